"""Overlays: the plugin's device files, overlays and schema are well formed, and state each fact once."""

from __future__ import annotations

from nbx_conformance.plugin_checks.subject import Subject, told
from nbx_conformance.trials.trial import Outcome

NAME = "overlays"


def check(subject: Subject) -> Outcome | None:
    """Read them beside all others; None for a plugin that has none."""
    folders = (*subject.plugin.devices, *subject.plugin.overlays)
    if not folders:
        return None
    places = tuple(f"{folder}" for folder in folders)
    wrong = [text for text in subject.registry.devices.check() if any(place in text for place in places)]
    return Outcome(NAME, "fail" if wrong else "pass", told(wrong))
