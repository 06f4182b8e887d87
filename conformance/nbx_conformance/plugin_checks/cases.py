"""Cases: every op that the plugin brings has some, of every kind that applies to it, and they fit their contracts."""

from __future__ import annotations

from nbx_conformance.cases import FOLDER, CaseTable
from nbx_conformance.lint import lint
from nbx_conformance.plugin_checks.subject import Subject, told
from nbx_conformance.trials.trial import Outcome
from nbx_registry.plugins import CORE

NAME = "cases"


def check(subject: Subject) -> Outcome | None:
    """Lint the cases that it brings for its ops; None for a plugin that brings neither."""
    plugin = subject.plugin
    # Those of the core's ops come with the suite.
    folders = [FOLDER] if plugin.name == CORE else plugin.cases
    if not plugin.ops and not folders:
        return None
    wrong = lint(CaseTable(folders), plugin.ops)
    return Outcome(NAME, "fail" if wrong else "pass", told(wrong))
