"""The process: what all of it shares is left as it was, so that no kernel changes what others compute or find."""

from __future__ import annotations

from nbx_conformance.trials.trial import Outcome, Trial

NAME = "process"


def check(trial: Trial) -> Outcome | None:
    """Compare what the process shares before the first run and after the second; None where nothing is launched."""
    if trial.bound.program is None:
        return None
    first, second = trial.first, trial.fresh
    del first, second
    wrong = "; ".join(trial.changes)
    return Outcome(NAME, "fail" if wrong else "pass", wrong and f"running it changed {wrong}")
