"""The checks of plugins as tests of pytest."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from nbx_conformance.plugin_checks import PluginItem
    from nbx_conformance.runs.session import Session

OUTCOME = "nbx_plugin_check"
"""The name under which a report carries what was found of a plugin."""


class Looked:
    """One check of one plugin, as the parameter of a test."""

    def __init__(self, key: str, run: Session, item: PluginItem) -> None:
        self._key = key
        self._run = run
        self._item = item

    def told(self) -> dict[str, Any]:
        """Return what other processes need to know of it."""
        options = {name: value for name, value in vars(self._run.options).items() if name != "extra"}
        return {
            "run": self._key,
            "options": options,
            "kernel": f"plugin {self._item.plugin}",
            "case": self._item.check,
        }

    def __call__(self, request: pytest.FixtureRequest) -> None:
        """Make it."""
        from nbx_conformance.plugin_checks import look

        item = self._item
        outcome = look(self._run, item)
        if outcome is None:
            return
        found = {"plugin": item.plugin, "check": item.check, "verdict": outcome.verdict, "detail": outcome.detail}
        request.node.user_properties.append((OUTCOME, found))
        if outcome.verdict != "pass":
            again = f"nbx conformance run --device {self._run.options.device} --plugin {item.plugin} -k {item.id}"
            pytest.fail(f"{item.id}\n  fail: {outcome.detail}\n  again: {again}", pytrace=False)


def take(run: Session, found: dict[str, Any]) -> None:
    """Take in what a report carries."""
    from nbx_conformance.trials.trial import Outcome

    outcome = Outcome(found["check"], found["verdict"], found["detail"])
    run.outcomes.setdefault(found["plugin"], {})[found["check"]] = outcome
