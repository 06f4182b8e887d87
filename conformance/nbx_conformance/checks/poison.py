"""Poisoned outputs: outputs and workspace start as garbage, and no result keeps any of it or depends on it."""

from __future__ import annotations

from nbx_conformance.trials.trial import Outcome, Trial

NAME = "poison"


def check(trial: Trial) -> Outcome | None:
    """Run on two kinds of garbage; None for a view, which has no memory of its own."""
    if trial.bound.view is not None:
        return None
    found = trial.disturbance
    wrong = found.unwritten or found.poison
    return Outcome(NAME, "fail" if wrong else "pass", wrong)
