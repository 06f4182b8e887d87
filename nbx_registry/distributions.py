"""Installed distributions: their names, versions and metadata files, as `importlib.metadata` tells them.

That module brings e-mail, archives, random numbers and sockets, and takes longer to import than all that registering
needs of ours. Where packages lie in folders, as installers leave them, the metadata beside them is read here; where
``sys.path`` holds an archive, or a finder has distributions of its own, `importlib.metadata` is asked.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator
from importlib.machinery import PathFinder
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import importlib.metadata

_METADATA = ("METADATA", "PKG-INFO", "")
"""Where installers write name and version; an ``.egg-info`` may be one file."""


class Distribution:
    """One installed distribution.

    Attributes
    ----------
    place : str
        The folder, or archive, in which it is installed.
    """

    def __init__(self, place: str, metadata: str) -> None:
        self.place = place
        self._metadata = os.path.join(place, metadata)

    def read(self, name: str) -> bytes | None:
        """Return what a file of its metadata holds, None where there is no such file."""
        try:
            with open(os.path.join(self._metadata, name) if name else self._metadata, "rb") as file:
                return file.read()
        except (FileNotFoundError, IsADirectoryError, NotADirectoryError, PermissionError):
            return None

    def identity(self) -> tuple[str | None, str | None]:
        """Return name and version; None for what nobody wrote down."""
        found: dict[str, str] = {}
        for key, value in self.fields():
            found.setdefault(key, value)
        return found.get("name"), found.get("version")

    def fields(self) -> Iterator[tuple[str, str]]:
        """Yield what its metadata says, line by line: a key, in small letters, and its value."""
        content = next(filter(None, map(self.read, _METADATA)), b"")
        # The head ends with the first empty line; behind it stands the README.
        head = content.replace(b"\r\n", b"\n").partition(b"\n\n")[0]
        for line in head.decode("utf-8", "replace").splitlines():
            key, colon, value = line.partition(":")
            if colon:
                yield key.lower(), value.strip()


class _Asked(Distribution):
    """One that `importlib.metadata` found."""

    def __init__(self, distribution: importlib.metadata.Distribution) -> None:
        super().__init__(str(distribution.locate_file("")), "")
        self._distribution = distribution

    def read(self, name: str) -> bytes | None:
        text = self._distribution.read_text(name)
        return None if text is None else text.encode()


def installed(name: str | None = None) -> Iterator[Distribution]:
    """Yield every distribution, in the order of ``sys.path``; with ``name`` those that it may be the name of."""
    wanted = None if name is None else canonical(name)
    listings = _listings()
    if listings is None:
        import importlib.metadata

        found = importlib.metadata.distributions() if name is None else importlib.metadata.distributions(name=name)
        yield from map(_Asked, found)
        return
    for place, children in listings:
        for child in children:
            low = child.lower()
            if low.endswith((".dist-info", ".egg-info")) and (wanted is None or wanted == _named(low)):
                yield Distribution(place, child)


def version(name: str) -> str | None:
    """Return the version of an installed distribution, None where it is not installed."""
    return next((found for each in installed(name) if (found := each.identity()[1]) is not None), None)


def extras(name: str) -> frozenset[str]:
    """Return what the extras of an installed distribution would install, by canonical names."""
    found: set[str] = set()
    for key, value in next((fields for each in installed(name) if (fields := list(each.fields()))), ()):
        if key == "requires-dist" and re.search(r"\bextra\s*==", value):
            found.update(map(canonical, re.findall(r"^[\w.-]+", value)))
    return frozenset(found)


def canonical(name: str) -> str:
    """Return the name by which distributions and plugins are told apart: ``NBX_Made`` is ``nbx-made``."""
    return re.sub(r"[-_.]+", "-", name).lower()


def _named(metadata: str) -> str:
    """Return the name of a distribution as that of its metadata has it: ``nbx_made-1.0.dist-info``."""
    return canonical(metadata.rpartition(".")[0].partition("-")[0])


def _listings() -> list[tuple[str, list[str]]] | None:
    """Return what is in each folder of ``sys.path``; None where `importlib.metadata` would look elsewhere too."""
    if any(hasattr(finder, "find_distributions") for finder in sys.meta_path if finder is not PathFinder):
        return None
    found: list[tuple[str, list[str]]] = []
    for entry in sys.path:
        place: object = entry
        if type(place) is not str or place.lower().endswith(".egg"):
            return None
        try:
            found.append((place or ".", os.listdir(place or ".")))
        except NotADirectoryError:
            return None
        except OSError:
            continue
    return found
