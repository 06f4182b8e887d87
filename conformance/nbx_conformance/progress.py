"""Progress: what a person sees while a run goes on, in the place of pytest's dots."""

from __future__ import annotations

import shutil
import time
from collections.abc import Sequence
from typing import Final

import pytest

from nbx_conformance.pytest_trials import RECORD, TRIAL, found_in

LINE_SECONDS: Final = 10
"""How long apart lines are where there is no terminal whose line could be written anew."""

FRAME_SECONDS: Final = 0.1
"""How long apart the line of a terminal is written anew."""


class Progress:
    """A pytest plugin: how many trials of how many, for how long, and which kernel is tried."""

    def __init__(self) -> None:
        self.total = 0
        self.done = 0
        self.now = ""
        self._began = self._shown = time.monotonic()
        self._terminal: pytest.TerminalReporter | None = None

    def pytest_sessionstart(self, session: pytest.Session) -> None:
        """Find out where to write."""
        self._terminal = session.config.pluginmanager.get_plugin("terminalreporter")

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        """Count the trials."""
        self.total = len(session.items)

    @pytest.hookimpl(optionalhook=True)
    def pytest_xdist_node_collection_finished(self, ids: Sequence[str]) -> None:
        """Count the trials, which other processes collect."""
        self.total = len(ids)

    def pytest_report_teststatus(self, report: pytest.TestReport) -> tuple[str, str, str] | None:
        """Leave out pytest's letters."""
        return (report.outcome, "", "") if _ends(report) else None

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Count a trial that is done, and say at once that it failed."""
        trial = found_in(report, TRIAL)
        if report.when == "setup" and trial is not None:
            self.now = f"{trial['kernel']} {trial['case']}"
        if _ends(report):
            self.done += 1
            record = found_in(report, RECORD)
            if report.failed and record is not None:
                checks = [name for said in ("error", "fail") for name in record["record"]["checks"].get(said, ())]
                self._say(f"failed: {record['record']['kernel']} {record['record']['case']}: {', '.join(checks)}")
        self._show()

    def pytest_sessionfinish(self) -> None:
        """Leave the line empty for what follows."""
        if self._terminal is not None and self.total:
            self._say(str(self))

    def __str__(self) -> str:
        seconds = int(time.monotonic() - self._began)
        percent = 100 * self.done // self.total if self.total else 0
        return f"{percent:3d}%  {self.done} of {self.total} trials, {seconds // 60}:{seconds % 60:02d}"

    def _show(self) -> None:
        terminal = self._terminal
        waited = time.monotonic() - self._shown
        if terminal is None or waited < (FRAME_SECONDS if terminal.isatty else LINE_SECONDS):
            return
        self._shown = time.monotonic()
        line = f"{self}, {self.now}"
        if terminal.isatty:
            # One column less: some terminals break a line that is full.
            terminal.rewrite(line[: shutil.get_terminal_size().columns - 1], erase=True)
        else:
            terminal.write_line(line)
        terminal.flush()

    def _say(self, line: str) -> None:
        assert self._terminal is not None
        if self._terminal.isatty:
            self._terminal.rewrite("", erase=True)
            self._terminal.rewrite("")
        self._terminal.write_line(line)


def _ends(report: pytest.TestReport) -> bool:
    # Of a trial whose process ended there is a report, but not of its call.
    return report.when not in ("setup", "teardown")
