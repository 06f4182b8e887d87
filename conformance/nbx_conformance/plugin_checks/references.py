"""References: what the plugin names is there, and what its kernels say of themselves holds; nothing is imported."""

from __future__ import annotations

from nbx_conformance.plugin_checks.subject import Subject, told
from nbx_conformance.trials.trial import Outcome

NAME = "references"


def check(subject: Subject) -> Outcome:
    """Look at what ``nbx doctor`` looks at: binders, settings, factories, folders, conditions, workspace."""
    found = subject.registry.diagnostics(subject.plugin.name)
    wrong = [f"{finding.about}: {finding.text}" for finding in found if finding.kind == "problem"]
    return Outcome(NAME, "fail" if wrong else "pass", told(wrong))
