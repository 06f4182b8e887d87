"""Streams: a kernel is right on a stream of its own; where that is busy, it waits for what was enqueued before it."""

from __future__ import annotations

from typing import Final

from nbx_conformance.checks.judge import judge
from nbx_conformance.trials.trial import Outcome, Trial

NAME = "stream"

DELAYS: Final = (0.01, 0.2)
"""Seconds; the longer one where enqueueing took longer than the shorter one lasted."""


def check(trial: Trial) -> Outcome | None:
    """Run behind a delay; where streams run at once, run a representative on another one than the default.

    None where nothing is launched, where there is but one stream, and where all inputs look alike behind a delay.
    """
    if trial.bound.program is None:
        return None
    if not trial.site.lags(trial.bench):
        return _beside(trial)
    if not trial.problem.repeats_differ:
        return None
    for seconds in DELAYS:
        run = trial.bench.run_behind(trial.problem.inputs(0), trial.problem.inputs(1), seconds)
        if run is not None:
            wrong = judge(trial, run, 0).wrong
            return Outcome(NAME, "fail" if wrong else "pass", wrong and f"on a busy stream of its own: {wrong}")
    return Outcome(NAME, "fail", f"the launch came back only after the delay of {DELAYS[-1]} s before it: it waits")


def _beside(trial: Trial) -> Outcome | None:
    bench = trial.bench
    stream = bench.runtime.stream(bench.index)
    only = stream.handle == bench.runtime.default_stream(bench.index).handle
    if only or not trial.site.representative(trial.kernel, trial.case):
        return None
    wrong = judge(trial, bench.run(trial.problem.inputs(0), stream=stream), 0).wrong
    return Outcome(NAME, "fail" if wrong else "pass", wrong and f"on a stream of its own: {wrong}")
