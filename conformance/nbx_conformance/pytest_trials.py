"""Trials as tests of pytest, and what their reports carry from one process to another."""

from __future__ import annotations

import faulthandler
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from nbx_conformance.runs.runner import Item
    from nbx_conformance.runs.session import Session

TRIAL = "nbx_trial"
"""The name under which a report carries which trial it is about, from its setup on: its process may end in it."""

RECORD = "nbx_record"
"""The name under which a report carries what its trial found."""


def found_in(report: pytest.TestReport, name: str) -> dict[str, Any] | None:
    """Return what a report carries under a name."""
    found: Any = next((value for key, value in report.user_properties if key == name), None)
    return found


class Tried:
    """One trial, as the parameter of a test."""

    def __init__(self, key: str, run: Session, item: Item) -> None:
        self._key = key
        self._run = run
        self._item = item

    def told(self) -> dict[str, Any]:
        """Return what other processes need to know of it."""
        options = {name: value for name, value in vars(self._run.options).items() if name != "extra"}
        of_trial = {"kernel": self._item.kernel.id, "case": self._item.case.id, "handle": self._run.handle}
        return {"run": self._key, "options": options, **of_trial}

    def __call__(self, request: pytest.FixtureRequest) -> None:
        """Try it."""
        from nbx_conformance.report import failure
        from nbx_conformance.runs.turns import turn
        from nbx_conformance.runs.worker import TRIAL_SECONDS

        with turn(self._run.site, self._item):
            if hasattr(request.config, "workerinput"):
                # That this process ended is seen by the one that deals out trials; that it hangs is not.
                faulthandler.dump_traceback_later(TRIAL_SECONDS[self._item.case.size], exit=True, file=2)
            try:
                record = self._run.run(self._item)
            finally:
                faulthandler.cancel_dump_traceback_later()
        request.node.user_properties.append((RECORD, {"record": record.to_dict()}))
        if record.verdict in ("fail", "error"):
            pytest.fail(failure(self._run, self._item, record), pytrace=False)


class Nothing:
    """That nothing can be tried, as the parameter of a test, which fails."""

    def __init__(self, why: str) -> None:
        self._why = why

    def __call__(self, request: pytest.FixtureRequest) -> None:
        """Fail."""
        del request
        pytest.fail(self._why, pytrace=False)
