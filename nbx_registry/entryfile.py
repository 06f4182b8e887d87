"""YAML files that hold one list of entries, strictly read: every error names file, line, entry and key."""

from __future__ import annotations

import os
from pathlib import Path
from typing import NoReturn, cast

from nbx_registry import yamlfile
from nbx_registry.errors import FileError, nearest
from nbx_registry.yamlfile import Table, is_list, kind


class Entry:
    """One entry of a file.

    Attributes
    ----------
    path : Path
    number : int
        Its place in the list, from 1.
    table : Table
        What it says.
    """

    def __init__(self, path: Path, number: int, table: Table) -> None:
        self.path = path
        self.number = number
        self.table = table

    @property
    def where(self) -> str:
        """File and line."""
        return f"{self.path}:{self.table.line}"

    def known(self, *keys: str) -> None:
        """Refuse an entry that has other keys."""
        for key in self.table:
            if key not in keys:
                self.refuse(key, f"is no key of an entry{nearest(key, keys) or '; known are ' + ', '.join(keys)}")

    def text(self, key: str) -> str:
        """Return a string that must be there. Raises `FileError`."""
        found = self.optional(key)
        if found is None:
            self.refuse(key, "is missing; write a string")
        return found

    def optional(self, key: str) -> str | None:
        """Return a string, None where the key is absent. Raises `FileError`."""
        if key not in self.table:
            return None
        value = self.table[key]
        if not isinstance(value, str) or not value.strip():
            self.refuse(key, f"is {kind(value)}; write a string")
        return value

    def texts(self, key: str) -> tuple[str, ...]:
        """Return a string, or those of a list, one of which must be there. Raises `FileError`."""
        value = self.table.get(key)
        if not is_list(value):
            return (self.text(key),)
        found = tuple(item for item in value if isinstance(item, str) and item)
        if not found or len(found) != len(value):
            self.refuse(key, "is a list of other things; write strings")
        return found

    def link(self, key: str) -> str:
        """Return where to read more, which must be there. Raises `FileError`."""
        found = self.text(key)
        if not found.startswith(("https://", "http://")) or any(map(str.isspace, found)):
            self.refuse(key, f"is {found!r}; write the address of a page, like https://...")
        return found

    def refuse(self, key: str, what: str) -> NoReturn:
        """Raise the `FileError` about a key."""
        line = self.table.lines.get(key, self.table.line)
        raise FileError(f"{self.path}:{line}: entry {self.number}: {key} {what}")


def files(folder: Path) -> list[Path]:
    """Return the files of a folder (``*.yml``, ``*.yaml``), by name; none where it does not exist.

    Raises `FileError` where it may not be looked into.
    """
    try:
        names = sorted(os.listdir(folder))
    except FileNotFoundError:
        return []
    except OSError as error:
        raise FileError(f"{folder}: no folder whose files can be read: {error.strerror or error}") from error
    return [folder / name for name in names if name.endswith((".yml", ".yaml"))]


def entries(path: Path, heading: str) -> list[Entry]:
    """Read a file whose only key is ``heading``: a list of mappings, or nothing.

    Raises `FileError` for anything else.
    """
    root = yamlfile.load(path)
    for key in root:
        if key != heading:
            raise FileError(f"{path}:{root.lines[key]}: unknown key {key!r}{nearest(key, [heading])}; write {heading}:")
    if heading not in root:
        raise FileError(f"{path}:1: {heading} is missing; write {heading}: and a list of entries")
    rows = root[heading]
    if rows is None:
        return []
    if not is_list(rows):
        raise FileError(f"{path}:{root.lines[heading]}: {heading} is {kind(rows)}; write a list of entries")
    found: list[Entry] = []
    for number, row in enumerate(cast("list[object]", rows), 1):
        if not isinstance(row, Table):
            what = f"{heading}: entry {number} is {kind(row)}; write key: value"
            raise FileError(f"{path}:{root.lines[heading]}: {what}")
        found.append(Entry(path, number, row))
    return found
