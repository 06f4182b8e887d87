"""Prints how much the oracles were compared with what: a run spread over processes reads no conftest below for that."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    counts: Counter[str] = Counter()
    ops: set[str] = set()
    for report in terminalreporter.getreports("passed"):
        properties: dict[str, Any] = dict(report.user_properties)
        if "oracles" in properties:
            ops.update(properties["oracles"])
            counts.update(properties["compared"])
    if ops:
        told = ", ".join(f"{count} with {source}" for source, count in counts.most_common())
        line = f"oracles: {len(ops)} ops in {counts.total()} comparisons ({told})"
        terminalreporter.write_line(line)
