"""The head of a schema string, ``name@version(``: all that registering an op reads of it."""

from __future__ import annotations

import re

from nbx_registry.errors import SchemaError

NAME = r"[A-Za-z][A-Za-z0-9_]{0,63}"
"""What names a thing in a schema, as a regular expression."""

HEAD = re.compile(rf"[ \t\n]*((?:{NAME}::)?{NAME})@([1-9][0-9]{{0,3}})[ \t\n]*\(")


def split_head(text: str) -> tuple[str, int]:
    """Return name and version of a schema string without parsing the rest. Raises `SchemaError`."""
    match = HEAD.match(text)
    if match is None:
        raise SchemaError(f"schema {text[:80]!r} must begin with 'name@version(' or 'namespace::name@version('")
    return match[1], int(match[2])
