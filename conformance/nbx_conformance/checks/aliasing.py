"""Aliasing: an output that shares memory with an input is computed right, or refused by name with nothing written."""

from __future__ import annotations

from typing import Any, Final

from nbx_conformance.checks.judge import bounds_of
from nbx_conformance.trials import public
from nbx_conformance.trials.trial import Outcome, Trial, message
from nbx_registry.compare import compare
from nbx_registry.errors import Refused, SignatureError
from nbx_registry.spec import TensorSpec

NAME = "aliasing"

SHIFTS: Final = (0, 16, -16)
"""Elements by which the output begins after the input: exactly in its place, a little behind it, a little before it."""


def check(trial: Trial) -> Outcome | None:
    """Call with ``out=`` over each input that fits it; None where none fits, or the path is not public."""
    outputs = trial.problem.signature.outputs
    if not trial.site.public or len(outputs) != 1 or trial.bound.view is not None or not outputs[0].size:
        return None
    fitting = [
        name
        for name, spec in trial.case.tensors.items()
        if isinstance(spec, TensorSpec) and spec.dtype is outputs[0].dtype and spec.shape == outputs[0].shape
        if spec.contiguous and not spec.offset and trial.case.contiguous
    ]
    if not fitting:
        return None
    for name in fitting:
        for shift in SHIFTS:
            prepared, target = public.overlapping(trial, name, shift)
            wrong = _called(trial, prepared, target, name, shift)
            if wrong:
                return Outcome(NAME, "fail", f"out= {shift} elements into {name}: {wrong}")
    return Outcome(NAME, "pass")


def _called(trial: Trial, prepared: public.Call, target: Any, name: str, shift: int) -> str:
    try:
        public.call(trial, prepared, out=target)
    except (Refused, SignatureError) as error:
        damage = prepared.damage()
        return damage and f"{message(error)}, but {damage}"
    problem = trial.problem
    (output,) = problem.signature.outputs
    found = prepared.buffers[name].download().values(TensorSpec(output.dtype, output.shape, None, max(shift, 0)))
    result = problem.op.outputs[0].name
    compared = compare(result, found, problem.reference(0)[result], bounds_of(trial, 0)[result], output.dtype)
    return compared.numbers or compared.special
