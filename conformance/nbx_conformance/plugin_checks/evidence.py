"""Evidence: the plugin's bundles can be read, and are about kernels of its own: it speaks for no other plugin."""

from __future__ import annotations

from nbx_conformance.plugin_checks.subject import Subject, told
from nbx_conformance.trials.trial import Outcome
from nbx_registry.evidence import EvidenceStore

NAME = "evidence"


def check(subject: Subject) -> Outcome | None:
    """Read them; None for a plugin that has none. Whether what they say still holds is for `nbx doctor` to tell."""
    plugin, owners = subject.plugin, subject.registry.catalog.owners
    if not plugin.evidence:
        return None
    store = EvidenceStore(plugin.evidence)
    wrong = list(store.check())
    for bundle in store.bundles():
        named = {owners.get(kernel, plugin.name) for kernel in bundle.records} - {plugin.name}
        if named:
            others = ", ".join(sorted(named))
            wrong.append(f"{bundle.path} is about kernels of {others}: it belongs there, or in a user's folder")
    return Outcome(NAME, "fail" if wrong else "pass", told(wrong))
