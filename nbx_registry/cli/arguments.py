"""The ARGs of ``explain`` and ``price``: specs and Python literals, by position or by name."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable
from typing import Any

import click

from nbx_registry.errors import SpecError

_NAMED = re.compile(r"([A-Za-z_]\w*)=(.*)\Z", re.DOTALL)
_SPEC = re.compile(r"\s*[A-Za-z_]\w*\s*\[")
_WORD = re.compile(r"[A-Za-z_][\w.-]*\Z")

MAX_LENGTH = 2000
"""Characters of one ARG."""


def parse(arguments: Iterable[str], attributes: Iterable[str]) -> tuple[list[Any], dict[str, Any]]:
    """Return positional and keyword arguments for `Registry.decide` and `Registry.price`.

    An argument is a spec string (left as text), or a Python literal; ``name=`` before it makes it a keyword. An
    attribute is ``name=value`` with a literal or a bare word. Raises `SpecError` or `click.UsageError`.
    """
    positional: list[Any] = []
    keywords: dict[str, Any] = {}
    for text in arguments:
        named = _NAMED.match(text)
        if named is None:
            if keywords:
                raise click.UsageError(f"positional ARG {text!r} follows a named one")
            positional.append(_value(text, text, words=False))
        else:
            _set(keywords, named[1], _value(named[2], text, words=False))
    for text in attributes:
        named = _NAMED.match(text)
        if named is None:
            raise click.UsageError(f"--attr {text!r} is not of the form name=value")
        _set(keywords, named[1], _value(named[2], text, words=True))
    for reserved in ("out", "device", "kernel", "require"):
        if reserved in keywords:
            raise click.UsageError(f"{reserved!r} is no argument of an op; use the option --{reserved}")
    return positional, keywords


def _set(keywords: dict[str, Any], name: str, value: Any) -> None:
    if name in keywords:
        raise click.UsageError(f"{name!r} is given twice")
    keywords[name] = value


def _value(text: str, whole: str, *, words: bool) -> Any:
    if len(text) > MAX_LENGTH:
        raise SpecError(f"an argument of {len(text)} characters; at most {MAX_LENGTH}")
    if _SPEC.match(text):
        return text
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
        if words and _WORD.match(text):
            return text
    what = "a Python literal or a word" if words else "a spec (float16[2, 3]) or a Python literal"
    raise SpecError(f"{whole!r}: {text!r} is not {what}")
