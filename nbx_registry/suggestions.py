"""What to install for what a device has: ``suggestions.yml``. The core knows no plugin, so a table says it."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from nbx_registry import yamlfile
from nbx_registry.errors import DuplicateError, FileError, NbxError, nearest
from nbx_registry.yamlfile import Table, kind

if TYPE_CHECKING:
    from nbx_registry.device import Device

_ROW = ("distribution", "planned")


@dataclass(frozen=True, slots=True)
class Suggestion:
    """A distribution that has kernels for a capability, or the runtime of that name."""

    distribution: str
    planned: bool = False
    """Whether it is still to be written: nobody is told to install it then."""

    def way(self, what: str) -> str:
        """Return the way out in words; ``what`` is what the distribution brings."""
        if self.planned:
            return f"{self.distribution}, which is to bring {what}, is planned: there is nothing to install yet"
        return f"install {self.distribution}: it has {what}"


def read_suggestions(folders: Iterable[Path]) -> tuple[Mapping[str, Suggestion], tuple[NbxError, ...]]:
    """Read the ``suggestions.yml`` of every folder that has one: suggestions by capability, and what is wrong.

    A file that is malformed suggests nothing, and for a capability that two files name nobody suggests anything: a
    refusal is told without it.
    """
    found: dict[str, Suggestion] = {}
    twice: set[str] = set()
    wrong: list[NbxError] = []
    for path in (folder / "suggestions.yml" for folder in folders):
        if not os.path.lexists(path):
            continue
        try:
            table = yamlfile.load(path)
            read = {key: _suggestion(key, row, f"{path}:{table.lines[key]}") for key, row in table.items()}
        except NbxError as error:
            wrong.append(error)
            continue
        for capability in sorted(found.keys() & read.keys()):
            twice.add(capability)
            where = f"{path}:{table.lines[capability]}"
            wrong.append(DuplicateError(f"{where}: {capability!r} has a suggestion already; leave one out"))
        found |= read
    return MappingProxyType({key: one for key, one in found.items() if key not in twice}), tuple(wrong)


def hints(table: Mapping[str, Suggestion], device: Device, installed: Collection[str]) -> tuple[str, ...]:
    """Return, for each distribution not installed, what it brings for a device; what can be installed comes first."""
    brought: dict[Suggestion, list[str]] = {}
    for capability, suggestion in sorted(table.items()):
        if suggestion.distribution not in installed and device.has(capability):
            brought.setdefault(suggestion, []).append(capability)
    order = sorted(brought, key=lambda suggestion: (suggestion.planned, suggestion.distribution))
    return tuple(one.way(f"kernels for {', '.join(brought[one])} of {device.id}") for one in order)


def _suggestion(capability: str, row: Any, where: str) -> Suggestion:
    if isinstance(row, str) and row:
        return Suggestion(row)
    if not isinstance(row, Table):
        raise FileError(f"{where}: {capability!r} is {kind(row)}; write the name of a distribution")
    for key in row:
        if key not in _ROW:
            raise FileError(f"{where}: unknown key {key!r} of {capability!r}{nearest(key, _ROW)}")
    distribution, planned = row.get("distribution"), row.get("planned", False)
    if not isinstance(distribution, str) or not distribution or not isinstance(planned, bool):
        raise FileError(f"{where}: {capability!r}: write {{distribution: <name>, planned: true}}")
    return Suggestion(distribution, planned)
