"""Guard bands: nothing outside outputs and workspace is written, and no result depends on bytes outside the tensors."""

from __future__ import annotations

from nbx_conformance.trials.trial import Outcome, Trial

NAME = "guards"


def check(trial: Trial) -> Outcome | None:
    """Look at the bands and gaps of all that may be written; then change them all and see whether a result follows."""
    if trial.bound.view is not None:
        return None
    wrong: list[str] = []
    for run in trial.looked_at:
        for slot in trial.bench.slots:
            written = slot.kind != "input" or slot.name in trial.bench.mutable
            if written and slot.name in run.contents:
                damage = run.contents[slot.name].damage(elements=False)
                if damage is not None:
                    wrong.append(f"written outside: {damage}")
        if wrong:
            break
    if trial.disturbance.guards:
        wrong.append(trial.disturbance.guards)
    return Outcome(NAME, "fail" if wrong else "pass", "; ".join(wrong))
