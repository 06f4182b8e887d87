"""Aliasing: an input given as ``out=`` too is computed right, or refused by name with nothing written."""

from __future__ import annotations

from nbx_conformance import public
from nbx_conformance.compare import compare
from nbx_conformance.trial import Outcome, Trial, message
from nbx_registry.errors import Refused, SignatureError
from nbx_registry.spec import TensorSpec

NAME = "aliasing"


def check(trial: Trial) -> Outcome | None:
    """Call with the first input that fits the output as ``out=``; None where none fits, or the path is not public."""
    outputs = trial.problem.signature.outputs
    if not trial.site.public or len(outputs) != 1 or trial.bound.view is not None or not outputs[0].size:
        return None
    fitting = [
        name
        for name, spec in trial.case.tensors.items()
        if isinstance(spec, TensorSpec) and spec.dtype is outputs[0].dtype and spec.shape == outputs[0].shape
        if spec.distinct == spec.size and spec.contiguous
    ]
    if not fitting:
        return None
    prepared = public.prepare(trial)
    try:
        public.call(trial, prepared, out=prepared.arguments[fitting[0]])
    except (Refused, SignatureError) as error:
        damage = prepared.damage()
        return Outcome(NAME, "fail" if damage else "pass", damage and f"{message(error)}, but {damage}")
    found = prepared.buffers[fitting[0]].download().values()
    problem, name = trial.problem, trial.problem.op.outputs[0].name
    compared = compare(name, found, problem.reference(0)[name], problem.bounds(0)[name], outputs[0].dtype)
    wrong = compared.numbers or compared.special
    return Outcome(NAME, "fail" if wrong else "pass", wrong and f"with {fitting[0]} as out=: {wrong}")
