"""Numbers: every finite value is within the contract's bound of the oracle's; copies are equal to the bit."""

from __future__ import annotations

from nbx_conformance.checks.judge import judge
from nbx_conformance.trials.repeats import repeats
from nbx_conformance.trials.trial import Outcome, Trial, first_index

NAME = "numbers"


def check(trial: Trial) -> Outcome | None:
    """Compare the first run with the oracle, and those of its repeats beside other work that gave something else.

    None where no result has an element: a kernel that takes nothing but such cases has computed nothing.
    """
    if not any(values.size for values in trial.first.results.values()):
        return None
    wrong = judge(trial, trial.first, 0).numbers or _copied(trial) or _repeated(trial)
    return Outcome(NAME, "fail" if wrong else "pass", wrong)


def _copied(trial: Trial) -> str:
    words = trial.problem.copied_bits(0)
    if words is None:
        return ""
    for name, expected in words.items():
        found = trial.first.outputs[name]
        differs = found.view(expected.dtype) != expected
        if differs.any():
            count = f"{int(differs.sum())} of {differs.size} elements"
            return f"{name}{first_index(differs)} is no copy: its bits changed ({count})"
    return ""


def _repeated(trial: Trial) -> str:
    found = repeats(trial)
    if found is None:
        return ""
    for run in found.others:
        wrong = judge(trial, run, 0).wrong
        if wrong:
            return f"{found.differing} of {found} gave something else, one of them: {wrong}"
    return ""
