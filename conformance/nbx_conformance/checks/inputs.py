"""Inputs unchanged: not a byte of any input differs afterwards, in its elements, its gaps and around it."""

from __future__ import annotations

from nbx_conformance.trials.repeats import repeats
from nbx_conformance.trials.trial import Outcome, Trial

NAME = "inputs"


def check(trial: Trial) -> Outcome | None:
    """Compare every input's buffer with what was written to it, after repeats too; None where there is none."""
    names = [
        slot.name
        for slot in trial.bench.slots
        if slot.kind == "input" and slot.name in trial.bench.buffers and slot.name not in trial.bench.mutable
    ]
    if not names:
        return None
    for run in trial.looked_at:
        for name in names:
            damage = run.contents[name].damage(elements=True)
            if damage is not None:
                return Outcome(NAME, "fail", f"an input was written: {damage}")
    found = repeats(trial)
    if found is not None and found.written:
        return Outcome(NAME, "fail", f"an input was written in one of {found}: {found.written}")
    return Outcome(NAME, "pass")
