"""Strict JSON files whose root is an object, and reading them key by key with errors that name file and key."""

from __future__ import annotations

import hashlib
import json
import math
import os
import stat
import threading
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NoReturn, TypeGuard, cast

from nbx_registry.errors import FileError, nearest, shortened

MAX_BYTES = 64 * 2**20
"""Largest file read, in bytes."""

_LONGEST = 600
"""Characters that a message has of a key, and of what is wrong with it."""

_INTEGERS = range(-(2**63), 2**64)
"""What integers may be: those of 64 bits, with a sign or without."""


def read(path: Path, *, named: bool = True) -> bytes:
    """Return a file's bytes; from a pipe only where a person named it. Raises `FileError`."""
    try:
        if not named and stat.S_ISFIFO(os.stat(path).st_mode):
            # Opening one that lies in a folder waits until somebody writes.
            raise FileError(f"{path}: cannot be read: it is a pipe")
        with open(path, "rb") as stream:
            content = stream.read(MAX_BYTES + 1)
    except OSError as error:
        raise FileError(f"{path}: cannot be read: {error.strerror or error}") from error
    if len(content) > MAX_BYTES:
        raise FileError(f"{path}: larger than the {MAX_BYTES} bytes that are read")
    return content


def parse(content: bytes, path: Path) -> dict[str, Any]:
    """Parse JSON whose root is an object: no key twice, no NaN or infinity, no integer beyond 64 bits.

    Raises
    ------
    FileError
        If it is anything else; the message names file and, where there is one, line.
    """
    try:
        text = content.decode("utf-8")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise FileError(f"{path}:{line}: not UTF-8 ({error.reason})") from error
    with _told(path):
        root = _DECODER.decode(text)
    if not is_object(root):
        raise FileError(f"{path}:1: the file must be an object ({{...}})")
    return root


def parse_at(text: str, start: int, path: Path) -> dict[str, Any]:
    """Parse the object that begins at a place of a file's text, and nothing behind it; as `parse`."""
    with _told(path):
        found, _ = _DECODER.raw_decode(text, start)
    if not is_object(found):
        raise FileError(f"{path}: {text[start : start + 20]!r} must be an object ({{...}})")
    return found


@contextmanager
def _told(path: Path) -> Generator[None, None, None]:
    try:
        yield
    except json.JSONDecodeError as error:
        raise FileError(f"{path}:{error.lineno}: not JSON: {error.msg}") from error
    except RecursionError as error:
        raise FileError(f"{path}: nested too deeply") from error
    except ValueError as error:
        raise FileError(f"{path}: {error}") from error


def canonical(data: Any) -> bytes:
    """Return the one JSON text of plain data that digests are taken of: keys sorted, no spaces, UTF-8."""
    return json.dumps(data, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False).encode()


def digest(data: Mapping[str, Any], path: Path) -> str:
    """Return the SHA-256 of an object's canonical JSON, its ``digest`` left out. Raises `FileError` if it has none."""
    rest = {key: value for key, value in data.items() if key != "digest"}
    try:
        return hashlib.sha256(canonical(rest)).hexdigest()
    except RecursionError as error:
        raise FileError(f"{path}: nested too deeply") from error
    except ValueError as error:
        # A number beyond float64, which reads as infinity, or half of a surrogate pair.
        raise FileError(f"{path}: holds what has no canonical JSON: {error}") from error


def write(path: Path, data: Mapping[str, Any]) -> None:
    """Write an object as `replace` does. Raises `FileError`."""
    text = json.dumps(data, indent=1, sort_keys=True, ensure_ascii=False, allow_nan=False)
    replace(path, (text + "\n").encode())


def replace(path: Path, content: bytes) -> None:
    """Write a file as a whole, its folder too where there is none: a reader sees the old one or the new.

    Behind a link the file that it leads to is written. Raises `FileError` where that cannot be: what is there already
    (a device, a pipe, a folder) is left as it is.
    """
    unwritable = obstacle(path)
    if unwritable:
        raise FileError(f"{path}: {unwritable}")
    target = Path(os.path.realpath(path))
    unfinished = target.with_name(f".{target.name}.{os.getpid()}-{threading.get_ident()}")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        try:
            unfinished.write_bytes(content)
            unfinished.replace(target)
        except OSError:
            unfinished.unlink(missing_ok=True)
            raise
    except OSError as error:
        raise FileError(f"{path}: cannot be written: {error.strerror or error}") from error


def obstacle(path: Path) -> str:
    """Return why no file can be written there, as far as can be told without writing; empty where nothing is known."""
    if not path.name:
        return f"{str(path)!r} names no file"
    if path.exists() and not path.is_file():
        return f"is {'a folder' if path.is_dir() else 'no regular file'}; name another file"
    target = Path(os.path.realpath(path))
    folder = next((folder for folder in target.parents if folder.exists()), target)
    if not folder.is_dir():
        return f"cannot be written: {folder} is no folder; name another file"
    if not os.access(folder, os.W_OK | os.X_OK):
        return f"cannot be written: nothing may be written into {folder}; name another file"
    return ""


def is_object(value: Any) -> TypeGuard[dict[str, Any]]:
    """Whether a value is a JSON object."""
    return isinstance(value, dict)


class Reader:
    """One object of a file, read key by key. Every error is a `FileError` naming the file and the key's path."""

    def __init__(self, path: Path, data: Mapping[str, Any], where: str = "") -> None:
        self.path = path
        self.data = data
        self.where = where

    def key(self, name: str) -> str:
        """Return the path of a key: ``kernels.nbx-host/add/numpy.verdict``."""
        return f"{self.where}.{name}" if self.where else name

    def known(self, *names: str) -> None:
        """Refuse keys that are none of ``names``."""
        for name in self.data:
            if name not in names:
                self.refuse(name, f"unknown key{nearest(name, names) or '; known are ' + ', '.join(names)}")

    def named(self) -> None:
        """Refuse keys that a line of text cannot show."""
        for name in self.data:
            self._shown_as_written(name, name)

    def refuse(self, name: str, problem: str) -> NoReturn:
        """Raise the error for a key."""
        key = self.key(name)
        # A value that a message shows may be as long as the file.
        problem = shortened(problem, _LONGEST)
        raise FileError(f"{self.path}: {shortened(key if key.isprintable() else repr(key), _LONGEST)}: {problem}")

    def string(self, name: str) -> str:
        """Return a string that is not empty, of characters that a line of text can show."""
        value = self._given(name)
        if not isinstance(value, str) or not value:
            self.refuse(name, f"is {_kind(value)}; it must be a string")
        self._shown_as_written(name, value)
        return value

    def optional_string(self, name: str) -> str | None:
        """Return a string, or None where the key is null or absent."""
        return None if self.data.get(name) is None else self.string(name)

    def choice(self, name: str, known: Sequence[str]) -> str:
        """Return a string that is one of ``known``."""
        value = self.string(name)
        if value not in known:
            self.refuse(name, f"{value!r} is none of {', '.join(known)}{nearest(value, known)}")
        return value

    def hexadecimal(self, name: str) -> str:
        """Return a SHA-256 in hexadecimal."""
        value = self.string(name)
        if len(value) != 64 or not set(value) <= set("0123456789abcdef"):
            self.refuse(name, f"{value[:80]!r} is no SHA-256 (64 hexadecimal digits)")
        return value

    def integer(self, name: str) -> int:
        """Return an integer, zero or more."""
        value = self._given(name)
        if not isinstance(value, int) or isinstance(value, bool) or value < 0:
            self.refuse(name, f"is {_shown(value)}; it must be an integer, zero or more")
        return value

    def number(self, name: str) -> float:
        """Return a number, zero or more."""
        value = self._given(name)
        if not isinstance(value, (int, float)) or isinstance(value, bool) or not 0 <= value < math.inf:
            self.refuse(name, f"is {_shown(value)}; it must be a number, zero or more")
        return float(value)

    def object(self, name: str) -> Reader:
        """Return a reader of the object there."""
        value = self._given(name)
        if not is_object(value):
            self.refuse(name, f"is {_kind(value)}; it must be an object")
        return Reader(self.path, value, self.key(name))

    def strings(self, name: str) -> dict[str, str]:
        """Return an object of strings."""
        inner = self.object(name)
        inner.named()
        return {key: inner.string(key) for key in inner.data}

    def names(self, name: str) -> list[str]:
        """Return a list of strings."""
        value = self._given(name)
        if not isinstance(value, list) or not all(isinstance(item, str) for item in cast("list[object]", value)):
            self.refuse(name, f"is {_kind(cast('object', value))}; it must be a list of strings")
        for item in cast("list[str]", value):
            self._shown_as_written(name, item)
        return cast("list[str]", value)

    def objects(self, name: str) -> list[Reader]:
        """Return readers of a list of objects."""
        value = self._given(name)
        if not isinstance(value, list):
            self.refuse(name, f"is {_kind(value)}; it must be a list")
        found: list[Reader] = []
        where = self.key(name)
        for index, item in enumerate(cast("list[object]", value)):
            if not is_object(item):
                self.refuse(f"{name}[{index}]", f"is {_kind(item)}; it must be an object")
            found.append(Reader(self.path, item, f"{where}[{index}]"))
        return found

    def _shown_as_written(self, name: str, text: str) -> None:
        # A name with an escape sequence, a newline or a change of direction in it would forge what a person reads.
        if not text.isprintable():
            self.refuse(name, f"{text[:80]!r} holds characters that no line of text shows")

    def _given(self, name: str) -> Any:
        if name not in self.data:
            self.refuse(name, "is missing")
        return self.data[name]


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"key {twice!r} is given twice")
    return found


def _constant(text: str) -> NoReturn:
    raise ValueError(f"{text} is no JSON number")


def _integer(text: str) -> int:
    # Short ones first: to read a very long one takes long.
    if len(text) > 20 or int(text) not in _INTEGERS:
        raise ValueError(f"{text[:20]}{'...' if len(text) > 20 else ''} is no integer of 64 bits")
    return int(text)


_DECODER = json.JSONDecoder(object_pairs_hook=_object, parse_constant=_constant, parse_int=_integer)


def _kind(value: object) -> str:
    if value is None:
        return "null"
    if isinstance(value, str):
        return "a string" if value else "an empty string"
    if isinstance(value, bool):
        return "a boolean"
    if isinstance(value, (int, float)):
        return "a number"
    return "a list" if isinstance(value, list) else "an object"


def _shown(value: object) -> str:
    return repr(value) if isinstance(value, (int, float)) else _kind(value)
