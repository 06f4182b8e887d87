"""Makes the helpers of the unit tests importable, and prints how much was compared with what."""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parent / "unit")]


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
