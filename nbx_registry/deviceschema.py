"""The schemas of several folders put together: what is wrong with one is told, and the others hold all the same."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from nbx_registry.devicefile import KeySchema, Schema, read_schema
from nbx_registry.errors import DuplicateError, NbxError


@dataclass(frozen=True, slots=True)
class Schemas:
    """What the ``schema.yml`` of some folders describe together."""

    schema: Schema
    """Every key that device files may state."""
    common: Path | None
    """The folder of the common keys, whose sources every file may name."""
    wrong: tuple[NbxError, ...]
    """What is wrong with a file, or between two; the keys it is about are in no schema."""


def read_schemas(folders: Iterable[Path]) -> Schemas:
    """Read the ``schema.yml`` of every folder that has one.

    Where two have no namespace, the one with the more keys holds the common ones. A fragment in a namespace of theirs
    is left out, and so is a key that two fragments describe: nothing depends on the order of the folders.
    """
    wrong: list[NbxError] = []
    commons: list[tuple[Path, dict[str, KeySchema]]] = []
    fragments: list[tuple[Path, dict[str, KeySchema]]] = []
    for path in (folder / "schema.yml" for folder in folders):
        if not os.path.lexists(path):
            continue
        try:
            namespace, found = read_schema(path)
        except NbxError as error:
            wrong.append(error)
            continue
        (commons if namespace is None else fragments).append((path, found))
    commons.sort(key=lambda one: (-len(one[1]), one[0]))
    common = commons[0][0] if commons else None
    wrong += [
        DuplicateError(f"{common} and {path} both describe the common keys; give one a namespace:")
        for path, _ in commons[1:]
    ]
    keys = dict(commons[0][1]) if commons else {}
    roots = {key.partition(".")[0] for key in keys}
    twice: set[str] = set()
    for path, found in fragments:
        taken = next((key for key in found if key.partition(".")[0] in roots), None)
        if taken is not None:
            wrong.append(DuplicateError(f"{path}: namespace of {taken!r} is taken by the common keys of {common}"))
            continue
        for key, row in found.items():
            if key in keys:
                twice.add(key)
                wrong.append(DuplicateError(f"key {key!r} is described by {keys[key].file} and by {path}; rename one"))
            keys[key] = row
    described = {key: row for key, row in keys.items() if key not in twice}
    return Schemas(Schema(described), None if common is None else common.parent, tuple(wrong))
