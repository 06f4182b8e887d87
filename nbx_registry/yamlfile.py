"""Strict YAML: plain data of the core schema and nothing else, with the line of every key.

Read through libyaml's event stream, never its composer or constructors: no tag runs code, nothing is shared or
expanded (aliases, anchors and merge keys are refused), nesting costs no C stack, and every error is a `FileError` that
names file and line. Scalars resolve by YAML 1.2's core schema, so ``4.8e12`` is a number and ``no`` is a string.
"""

from __future__ import annotations

import math
import os
import re
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeGuard, cast

import yaml

from nbx_registry.errors import FileError

MAX_BYTES = 4 * 2**20
"""Largest file read, in bytes."""
MAX_DEPTH = 32
"""Deepest nesting of mappings and sequences."""
MAX_NODES = 200_000
"""Most scalars, mappings and sequences of one file."""
MAX_INT_BITS = 128
"""Widest integer."""

_CORE_TAG = "tag:yaml.org,2002:"
_INT = re.compile(r"[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+")
_FLOAT = re.compile(r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?")
_INF = re.compile(r"[-+]?\.(?:inf|Inf|INF)")
_NAN = frozenset({".nan", ".NaN", ".NAN"})
_NULL = frozenset({"", "~", "null", "Null", "NULL"})
_TRUE = frozenset({"true", "True", "TRUE"})
_FALSE = frozenset({"false", "False", "FALSE"})
# What a plain scalar that is not a string begins with; all others need no further look.
_TYPED_START = frozenset("0123456789+-.~nNtTfF")


class Table(dict[str, Any]):
    """A mapping as read: an ordinary dict that also knows its ``line`` and, in ``lines``, that of each key (from 1)."""

    __slots__ = ("line", "lines")

    def __init__(self, line: int) -> None:
        super().__init__()
        self.line = line
        self.lines: dict[str, int] = {}


def load(path: Path) -> Table:
    """Read a file whose root is a mapping.

    Raises
    ------
    FileError
        If the file cannot be read, is no strict YAML, or its root is no mapping; the message names file and line.
    """
    try:
        if stat.S_ISFIFO(os.stat(path).st_mode):
            # Opening one waits until somebody writes.
            raise FileError(f"{path}: cannot be read: it is a pipe")
        with open(path, "rb") as stream:
            content = stream.read(MAX_BYTES + 1)
    except OSError as error:
        raise FileError(f"{path}: cannot be read: {error.strerror or error}") from error
    if len(content) > MAX_BYTES:
        raise FileError(f"{path}: larger than the {MAX_BYTES} bytes that are read; split it")
    return parse(content, str(path))


def parse(content: str | bytes, file: str = "<text>") -> Table:
    """Parse YAML whose root is a mapping; ``file`` names it in errors, which are all `FileError`."""
    if isinstance(content, bytes):
        try:
            content = content.decode("utf-8")
        except UnicodeDecodeError as error:
            line = content.count(b"\n", 0, error.start) + 1
            raise FileError(f"{file}:{line}: not UTF-8 ({error.reason}); save it as UTF-8") from error
    try:
        # libyaml reads str through UTF-8, which lone surrogates have no form in.
        content.encode("utf-8")
    except UnicodeEncodeError as error:
        raise FileError(f"{file}: holds a lone surrogate, which no file can") from error
    loader = yaml.CSafeLoader(content)
    try:
        root = _read(loader.get_event, file)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = mark.line + 1 if mark is not None else 1
        problem = ": ".join(part for part in (error.context, error.problem) if part)
        raise FileError(f"{file}:{line}: not YAML: {problem}") from error
    except yaml.reader.ReaderError as error:
        position = error.position if isinstance(error.position, int) else 0
        line = content.count("\n", 0, position) + 1
        raise FileError(f"{file}:{line}: not YAML: {error.reason}") from error
    finally:
        loader.dispose()
    if not isinstance(root, Table):
        raise FileError(f"{file}:1: the file is {kind(root)}; it must be a mapping (key: value)")
    return root


def kind(value: object) -> str:
    """Name a value's YAML type, with its article, for errors."""
    if value is None:
        return "empty"
    if isinstance(value, bool):
        return "a boolean"
    if isinstance(value, int):
        return "an integer"
    if isinstance(value, float):
        return "a number"
    if isinstance(value, str):
        return "a string" if value else "an empty string"
    return "a list" if isinstance(value, list) else "a mapping"


def is_list(value: object) -> TypeGuard[list[Any]]:
    """Whether a value is a YAML sequence."""
    return isinstance(value, list)


def _read(get_event: Callable[[], Any], file: str) -> Any:
    root: Any = None
    documents = 0
    nodes = 0
    # Each open collection with the key that waits for its value (None: the next scalar is a key).
    stack: list[tuple[Table | list[Any], str | None]] = []
    while True:
        event = get_event()
        name = cast("type[object]", type(event))
        if name is yaml.ScalarEvent:
            nodes += 1
            if event.anchor is not None:
                raise _refused(file, event, f"anchor &{event.anchor}; write the value out where it is used")
            if stack and isinstance(stack[-1][0], Table) and stack[-1][1] is None:
                stack[-1] = (stack[-1][0], _key(stack[-1][0], event, file))
                continue
            value: Any = _scalar(event, file)
        elif name is yaml.MappingStartEvent or name is yaml.SequenceStartEvent:
            nodes += 1
            if event.anchor is not None:
                raise _refused(file, event, f"anchor &{event.anchor}; write the value out where it is used")
            core = "map" if name is yaml.MappingStartEvent else "seq"
            if event.tag not in (None, _CORE_TAG + core):
                raise _refused(file, event, f"tag {event.tag!r}; only plain data is read")
            if stack and isinstance(stack[-1][0], Table) and stack[-1][1] is None:
                raise FileError(f"{file}:{_line(event)}: a key is a collection; keys are strings")
            if len(stack) >= MAX_DEPTH:
                raise FileError(f"{file}:{_line(event)}: nested deeper than {MAX_DEPTH} levels")
            stack.append((Table(_line(event)) if core == "map" else [], None))
            continue
        elif name is yaml.MappingEndEvent or name is yaml.SequenceEndEvent:
            value = stack.pop()[0]
        elif name is yaml.AliasEvent:
            raise _refused(file, event, f"alias *{event.anchor}; write the value out")
        elif name is yaml.DocumentStartEvent:
            documents += 1
            if documents > 1:
                raise FileError(f"{file}:{_line(event)}: a second document; a file holds one")
            continue
        elif name is yaml.StreamEndEvent:
            return root
        else:
            continue
        if nodes > MAX_NODES:
            raise FileError(f"{file}:{_line(event)}: more than {MAX_NODES} values; split the file")
        if not stack:
            root = value
            continue
        parent, key = stack[-1]
        if isinstance(parent, list):
            parent.append(value)
        else:
            assert key is not None
            parent[key] = value
            stack[-1] = (parent, None)


def _key(table: Table, event: Any, file: str) -> str:
    line = _line(event)
    key: str = event.value
    if event.tag not in (None, _CORE_TAG + "str"):
        raise _refused(file, event, f"tag {event.tag!r} on a key; keys are strings")
    if key == "<<" and not event.style:
        raise _refused(file, event, "merge key '<<'; write the keys out, or use extends")
    if key in table.lines:
        raise FileError(f"{file}:{line}: key {key!r} is given twice; first on line {table.lines[key]}")
    table.lines[key] = line
    return key


def _scalar(event: Any, file: str) -> Any:
    text: str = event.value
    tag = event.tag
    if tag is None:
        if event.style or (text and text[0] not in _TYPED_START):
            return text
        return _plain(text, event, file)
    if not tag.startswith(_CORE_TAG):
        raise _refused(file, event, f"tag {tag!r}; only plain data is read")
    wanted = tag.removeprefix(_CORE_TAG)
    if wanted == "str":
        return text
    value = _plain(text, event, file)
    types: dict[str, type | tuple[type, ...]] = {"int": int, "float": (int, float), "bool": bool, "null": type(None)}
    if wanted not in types:
        raise _refused(file, event, f"tag {tag!r}; only plain data is read")
    if not isinstance(value, types[wanted]) or (isinstance(value, bool) and wanted != "bool"):
        raise FileError(f"{file}:{_line(event)}: {text!r} is no {wanted}, as its tag claims")
    return float(value) if wanted == "float" else value


def _plain(text: str, event: Any, file: str) -> Any:
    if text in _NULL:
        return None
    if text in _TRUE:
        return True
    if text in _FALSE:
        return False
    if _INT.fullmatch(text):
        # The length first: converting millions of digits would take longer than anything else here.
        if len(text) <= MAX_INT_BITS:
            value = int(text, 0) if text[:2] in ("0x", "0o") else int(text)
            if value.bit_length() <= MAX_INT_BITS:
                return value
        raise FileError(f"{file}:{_line(event)}: an integer wider than {MAX_INT_BITS} bits ({text[:20]}...)")
    if _FLOAT.fullmatch(text):
        number = float(text)
        if not math.isfinite(number):
            raise FileError(f"{file}:{_line(event)}: {text[:40]} is too large for a float64; infinity is .inf")
        return number
    if _INF.fullmatch(text):
        return -math.inf if text[0] == "-" else math.inf
    return math.nan if text in _NAN else text


def _line(event: Any) -> int:
    return event.start_mark.line + 1


def _refused(file: str, event: Any, what: str) -> FileError:
    return FileError(f"{file}:{_line(event)}: refused: {what}")
