"""Determinism: a kernel that claims it gives the same bits for the same inputs, whatever else memory holds."""

from __future__ import annotations

from nbx_conformance.trial import Outcome, Trial

NAME = "determinism"


def check(trial: Trial) -> Outcome | None:
    """Run again on the same inputs; None for a kernel that claims nothing, and for a view."""
    if not trial.kernel.deterministic or trial.bound.view is not None:
        return None
    wrong = trial.disturbance.repeats
    return Outcome(NAME, "fail" if wrong else "pass", wrong)
