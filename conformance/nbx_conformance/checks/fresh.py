"""Fresh inputs: the same program on other inputs gives other outputs, right again."""

from __future__ import annotations

from nbx_conformance.checks.judge import judge
from nbx_conformance.trials.buffers import as_bytes
from nbx_conformance.trials.repeats import repeats
from nbx_conformance.trials.trial import Outcome, Trial

NAME = "fresh"


def check(trial: Trial) -> Outcome | None:
    """Compare the second run with the oracle, and one after many repeats; None where the case has no other inputs."""
    if not trial.problem.repeats_differ:
        return None
    wrong = judge(trial, trial.fresh, 1).wrong
    if wrong and _same_as_first(trial):
        wrong = f"the second run returned the first one's outputs: {wrong}"
    wrong = wrong or _afterwards(trial)
    return Outcome(NAME, "fail" if wrong else "pass", wrong)


def _afterwards(trial: Trial) -> str:
    found = repeats(trial)
    if found is None or found.afterwards is None:
        return ""
    wrong = judge(trial, found.afterwards, 1).wrong
    return wrong and f"a run on other inputs after {found}: {wrong}"


def _same_as_first(trial: Trial) -> bool:
    outputs = trial.first.outputs.items()
    return bool(outputs) and all((as_bytes(v) == as_bytes(trial.fresh.outputs[name])).all() for name, v in outputs)
