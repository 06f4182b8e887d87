"""Determinism: a kernel that claims it gives the same bits for the same inputs, whatever else is in memory or runs."""

from __future__ import annotations

from nbx_conformance.trials.repeats import repeats
from nbx_conformance.trials.trial import Outcome, Trial

NAME = "determinism"


def check(trial: Trial) -> Outcome | None:
    """Run again on the same inputs, a representative case many times; None for a kernel that claims nothing or a view.

    How many times, and beside what, is recorded.
    """
    if not trial.kernel.deterministic or trial.bound.view is not None:
        return None
    wrong = trial.disturbance.repeats
    if wrong:
        return Outcome(NAME, "fail", wrong)
    found = repeats(trial)
    if found is None:
        return Outcome(NAME, "pass")
    if found.differing:
        return Outcome(NAME, "fail", f"{found.differing} of {found} gave other bits, the first: {found.first}")
    return Outcome(NAME, "pass", f"{found}")
