"""The checks of a plugin as a whole, each made once a run."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from nbx_conformance.plugin_checks import (
    advisories,
    cases,
    docs,
    evidence,
    ids,
    light_import,
    no_torch,
    overlays,
    references,
    waivers,
)
from nbx_conformance.plugin_checks.subject import Subject
from nbx_conformance.trials.trial import LONGEST_REASON, Outcome
from nbx_registry.errors import shortened

if TYPE_CHECKING:
    from nbx_conformance.runs.session import Session

Check = Callable[[Subject], "Outcome | None"]
"""Looks at a plugin; None where the check has nothing to say about it."""

PLUGIN_CHECKS: Final[dict[str, Check]] = {
    module.NAME: module.check
    for module in (light_import, no_torch, ids, references, overlays, cases, docs, evidence, waivers, advisories)
}

ALWAYS: Final[frozenset[str]] = frozenset({light_import.NAME, ids.NAME, references.NAME, docs.NAME})
"""What has something to say about every plugin that has kernels."""


@dataclass(frozen=True)
class PluginItem:
    """One check of one plugin."""

    plugin: str
    check: str

    @property
    def id(self) -> str:
        """``plugin/nbx-acme/light_import``."""
        return f"plugin/{self.plugin}/{self.check}"


def items(session: Session) -> list[PluginItem]:
    """Return the checks of the plugins that a run is about, by plugin.

    Those whose kernels are tried; where ops or kernels are named, those that are named too. Of the shards of a run the
    first has them.
    """
    options, owners = session.options, session.registry.catalog.owners
    if options.shard is not None and options.shard[0] != 1:
        return []
    tried = {owners[item.kernel.id] for item in session.whole}
    found = tried & set(options.plugins) if options.ops or options.kernels else tried
    return [PluginItem(plugin, check) for plugin in sorted(found) for check in PLUGIN_CHECKS]


def look(session: Session, item: PluginItem) -> Outcome | None:
    """Make one check; None where it has nothing to say."""
    registry = session.registry
    return PLUGIN_CHECKS[item.check](Subject(registry.plugins[item.plugin], registry, session.cases))


def to_dict(session: Session) -> dict[str, Any]:
    """Return what was found of each plugin, as a bundle holds it."""
    found: dict[str, Any] = {}
    for name, outcomes in sorted(session.outcomes.items()):
        plugin = session.registry.plugins[name]
        said: list[dict[str, str]] = []
        for check, outcome in sorted(outcomes.items()):
            entry = {"check": check, "verdict": outcome.verdict}
            said.append({**entry, "reason": shortened(outcome.detail, LONGEST_REASON)} if outcome.detail else entry)
        failed = any(outcome.verdict != "pass" for outcome in outcomes.values())
        found[name] = {
            "distribution": plugin.distribution,
            "version": plugin.version,
            "verdict": "fail" if failed else "pass",
            "checks": said,
        }
    return found
