"""In place: of a parameter that is written, what the op does not touch keeps every bit."""

from __future__ import annotations

from nbx_conformance.trials.bench import Execution
from nbx_conformance.trials.buffers import as_bytes
from nbx_conformance.trials.trial import Outcome, Trial, first_index

NAME = "in_place"


def check(trial: Trial) -> Outcome | None:
    """Compare the untouched elements bit by bit; None for an op that writes no parameter."""
    if not trial.bench.mutable:
        return None
    for repetition, run in enumerate((trial.first, trial.fresh)):
        wrong = _changed(trial, run, repetition)
        if wrong:
            return Outcome(NAME, "fail", wrong)
    return Outcome(NAME, "pass")


def _changed(trial: Trial, run: Execution, repetition: int) -> str:
    before = trial.problem.before(repetition)
    untouched = trial.problem.untouched(repetition)
    for name, values in run.mutated.items():
        changed = untouched[name] & (as_bytes(values) != as_bytes(before[name])).any(-1)
        if changed.any():
            more = int(changed.sum()) - 1
            return f"{name}{first_index(changed)} is not to be touched, and changed, as did {more} more elements"
    return ""
