"""Waivers: the plugin's files of waivers can be read, and are about its own kernels."""

from __future__ import annotations

from nbx_conformance.plugin_checks.subject import Subject
from nbx_conformance.runs import waivers
from nbx_conformance.trials.trial import Outcome
from nbx_registry import entryfile
from nbx_registry.errors import FileError

NAME = "waivers"


def check(subject: Subject) -> Outcome | None:
    """Read them; None for a plugin that has none."""
    plugin = subject.plugin
    if not plugin.waivers:
        return None
    try:
        files = [path for folder in plugin.waivers for path in entryfile.files(folder)]
        waivers.check_ids(waiver for path in files for waiver in waivers.read(path, plugin.name))
    except FileError as error:
        return Outcome(NAME, "fail", str(error))
    return Outcome(NAME, "pass")
