"""Allocation: what the runtime hands out during a call is what is declared: outputs and workspace, no byte more."""

from __future__ import annotations

from nbx_conformance.trials import public
from nbx_conformance.trials.trial import Outcome, Trial

NAME = "allocation"


def check(trial: Trial) -> Outcome:
    """Count allocations of the bound program, which has all it needs, and of a call through the registry."""
    wrong = _program(trial) or (_call(trial) if trial.site.public else "")
    return Outcome(NAME, "fail" if wrong else "pass", wrong)


def _program(trial: Trial) -> str:
    count, nbytes = trial.fresh.allocations
    if not count and not nbytes:
        return ""
    return f"the program allocated {nbytes} bytes in {count} pieces beside outputs and workspace it was given"


def _call(trial: Trial) -> str:
    runtime, index, _ = public.device_of(trial.site)
    prepared = public.prepare(trial, tensors=True)
    # The first call may bind and pack; what a call costs is what the second one asks for.
    public.call(trial, prepared)
    before = runtime.memory(index)
    result = public.call(trial, prepared)
    after = runtime.memory(index)
    asked = after.allocated_bytes - before.allocated_bytes
    bound = trial.bound
    outputs = 0 if bound.view is not None else sum(spec.nbytes for spec in bound.signature.outputs)
    # What launches nothing needs no workspace.
    workspace = sum(slot.spec.nbytes for slot in bound.workspace) if bound.launches else 0
    del result
    if asked == outputs + workspace:
        return ""
    return f"a call asked for {asked} bytes; declared are {outputs} of outputs and {workspace} of workspace"
