"""Streams: a kernel enqueued on a busy stream of its own waits for what was enqueued before it."""

from __future__ import annotations

from typing import Final

from nbx_conformance.checks.judge import judge
from nbx_conformance.trial import Outcome, Trial

NAME = "stream"

DELAYS: Final = (0.01, 0.2)
"""Seconds; the longer one where enqueueing took longer than the shorter one lasted."""


def check(trial: Trial) -> Outcome | None:
    """Run behind a delay; None where streams run at once, where nothing is launched, or all inputs look alike."""
    if trial.bound.program is None or not trial.problem.repeats_differ or not trial.site.lags(trial.bench):
        return None
    for seconds in DELAYS:
        run = trial.bench.run_behind(trial.problem.inputs(0), trial.problem.inputs(1), seconds)
        if run is not None:
            wrong = judge(trial, run, 0).wrong
            return Outcome(NAME, "fail" if wrong else "pass", wrong and f"on a busy stream of its own: {wrong}")
    return Outcome(NAME, "fail", f"the launch came back only after the delay of {DELAYS[-1]} s before it: it waits")
