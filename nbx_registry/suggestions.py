"""What to install for what a device has: ``suggestions.yml``. The core knows no plugin, so a table says it."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from nbx_registry import yamlfile
from nbx_registry.errors import DuplicateError, FileError, nearest
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


def read_suggestions(folders: Iterable[Path]) -> Mapping[str, Suggestion]:
    """Read the ``suggestions.yml`` of every folder that has one: suggestions by capability.

    Raises
    ------
    FileError
        For a malformed row, with file and line.
    DuplicateError
        For a capability that has a suggestion already.
    """
    found: dict[str, Suggestion] = {}
    for folder in folders:
        path = folder / "suggestions.yml"
        if not path.is_file():
            continue
        table = yamlfile.load(path)
        for capability, row in table.items():
            where = f"{path}:{table.lines[capability]}"
            if capability in found:
                raise DuplicateError(f"{where}: {capability!r} has a suggestion already")
            found[capability] = _suggestion(capability, row, where)
    return MappingProxyType(found)


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
