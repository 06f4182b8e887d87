"""Ids: kernels are named after their plugin, and its ops lie in a namespace that is its own."""

from __future__ import annotations

from collections.abc import Iterator

from nbx_conformance.plugin_checks.subject import Subject, told
from nbx_conformance.trials.trial import Outcome
from nbx_registry.plugins import CORE

NAME = "ids"


def check(subject: Subject) -> Outcome:
    """Look at the ids of kernels and ops. One id twice is in nobody's catalog: its plugins are quarantined."""
    wrong = list(_wrong(subject))
    return Outcome(NAME, "fail" if wrong else "pass", told(wrong))


def _wrong(subject: Subject) -> Iterator[str]:
    plugin = subject.plugin
    for kernel in plugin.kernels:
        if not kernel.id.startswith(f"{plugin.name}/"):
            yield f"kernel {kernel.id} is to begin with {plugin.name}/"
    if plugin.name == CORE:
        return
    own = {op.namespace for op in plugin.ops}
    for other in subject.registry.catalog.active:
        if other is not plugin:
            for namespace in sorted(own & {op.namespace for op in other.ops}):
                yield f"ops of the namespace {namespace!r} are brought by {other.name} too; choose one of its own"
