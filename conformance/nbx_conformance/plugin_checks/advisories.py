"""Advisories: the plugin's files of advisories can be read, and their conditions fit the kernels that they name."""

from __future__ import annotations

from nbx_conformance.plugin_checks.subject import Subject, told
from nbx_conformance.trials.trial import Outcome
from nbx_registry.advisory import AdvisoryStore
from nbx_registry.conditions import rule_of
from nbx_registry.errors import ExpressionError

NAME = "advisories"


def check(subject: Subject) -> Outcome | None:
    """Read them; None for a plugin that has none."""
    plugin, catalog = subject.plugin, subject.registry.catalog
    if not plugin.advisories:
        return None
    store = AdvisoryStore([(folder, plugin.name) for folder in plugin.advisories])
    wrong = list(store.check())
    for advisory in store.advisories:
        for kernel in catalog.kernels.values() if advisory.when is not None else ():
            if advisory.when is not None and advisory.about(kernel.id):
                try:
                    rule_of(advisory.when, catalog.op(kernel.op))
                except ExpressionError as error:
                    wrong.append(f"{advisory.where}: {error}")
    return Outcome(NAME, "fail" if wrong else "pass", told(wrong))
