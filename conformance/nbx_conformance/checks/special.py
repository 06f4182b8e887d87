"""Special values: NaN, infinities and signed zeros come out where the oracle has them."""

from __future__ import annotations

from nbx_conformance.checks.judge import judge
from nbx_conformance.trials.trial import Outcome, Trial

NAME = "special"


def check(trial: Trial) -> Outcome | None:
    """Compare the first run with the oracle where its values are special; None where it has none."""
    judgement = judge(trial, trial.first, 0)
    if not judgement.has_special and not judgement.special:
        return None
    return Outcome(NAME, "fail" if judgement.special else "pass", judgement.special)
