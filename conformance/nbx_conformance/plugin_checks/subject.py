"""What the checks of plugins look at."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from nbx_conformance.cases import CaseTable
from nbx_registry import sourcetree
from nbx_registry.errors import NbxError
from nbx_registry.plugins import Plugin
from nbx_registry.registry import Registry


@dataclass
class Subject:
    """One plugin, in a registry that has it."""

    plugin: Plugin
    registry: Registry
    cases: CaseTable

    @cached_property
    def top(self) -> str:
        """The name of its top-level package."""
        return self.plugin.module.partition(":")[0].partition(".")[0]

    @cached_property
    def package(self) -> Path | None:
        """The folder of its top-level package, or its only file; None for an object of this process."""
        module = self.plugin.module.partition(":")[0]
        try:
            path = sourcetree.find(module) if all(map(str.isidentifier, module.split("."))) else None
        except NbxError:
            path = None
        if path is None:
            return None
        if path.name == "__init__.py":
            path = path.parent
        depth = module.count(".")
        return path.parents[depth - 1] if depth else path


def told(problems: list[str], limit: int = 3) -> str:
    """Return what is wrong in one line."""
    more = f"; and {len(problems) - limit} more" if len(problems) > limit else ""
    return "; ".join(problems[:limit]) + more
