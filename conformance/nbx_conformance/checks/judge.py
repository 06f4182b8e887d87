"""Judgement of a run's results, outputs and parameters written in place alike, against the reference."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from nbx_conformance.bench import Array, Execution
from nbx_conformance.compare import Comparison, Profile, compare
from nbx_conformance.trial import Trial
from nbx_registry import dtypes
from nbx_registry.device import Device
from nbx_registry.dtypes import DType
from nbx_registry.op import Op
from nbx_registry.rounding import float_format


@dataclass(frozen=True)
class Judgement:
    """The comparisons of a run's results. ``looser`` is the number of times the bound that a waiver allows."""

    comparisons: tuple[Comparison, ...]
    looser: float

    @property
    def numbers(self) -> str:
        """What is wrong among finite values."""
        return "; ".join(c.numbers for c in self.comparisons if c.numbers)

    @property
    def special(self) -> str:
        """What is wrong among special ones."""
        return "; ".join(c.special for c in self.comparisons if c.special)

    @property
    def has_special(self) -> bool:
        """Whether there are any."""
        return any(c.has_special for c in self.comparisons)

    @property
    def profile(self) -> Profile:
        """The worst of the results, its share that of what is allowed without a waiver."""
        worst = max((comparison.profile for comparison in self.comparisons), key=lambda p: p.share, default=Profile())
        return replace(worst, share=worst.share * self.looser)

    @property
    def wrong(self) -> str:
        """Whatever is wrong."""
        return self.numbers or self.special


def judge(trial: Trial, execution: Execution, repetition: int) -> Judgement:
    """Compare a run on the inputs of a repetition with the oracle, within the bound that holds there."""
    return trial.memo((execution, repetition), lambda: _judge(trial, execution, repetition))


def profile_of(trial: Trial) -> Profile:
    """Return the error profile of a trial: that of its first run.

    Where a waiver lets errors be larger, that of whichever run came closest to it: what rests on the waiver is to show.
    """
    if trial.looser == 1:
        return judge(trial, trial.first, 0).profile
    return max((judged.profile for judged in trial.judged), key=lambda p: p.share)


def bounds_of(trial: Trial, repetition: int) -> dict[str, Array]:
    """Return the largest error allowed, by element, of each result.

    It is the contract's. A device file may tighten it, never below half a unit in the last place, which rounding once
    takes; a waiver may let an error be a number of times that.
    """
    problem = trial.problem
    bounds = {name: trial.looser * bound for name, bound in problem.bounds(repetition).items()}
    share = tightened(problem.op, trial.site.target.device)
    if share == 1:
        return bounds
    reference = problem.reference(repetition)
    found: dict[str, Array] = {}
    for name, bound in bounds.items():
        least = trial.looser * _half_ulp(problem.results[name].dtype, reference[name])
        found[name] = np.minimum(bound, np.maximum(share * bound, least))
    return found


def tightened(op: Op, device: Device | None) -> float:
    """Return which share of an op's bound a device file leaves: ``tolerance.matmul``, ``sdm.tolerance.wy_solve``."""
    name = op.name.removeprefix(f"{op.namespace}::")
    fact = f"{op.namespace}.tolerance.{name}" if op.namespace else f"tolerance.{name}"
    return device.fact(fact) if device is not None and fact in device.facts else 1


def _half_ulp(dtype: DType, reference: Array) -> Array:
    if dtype.kind not in ("float", "complex"):
        return np.zeros(np.shape(reference))
    form = float_format(dtypes.get(f"float{dtype.bits // 2}") if dtype.kind == "complex" else dtype)
    size = np.abs(reference)
    return form.spacing(np.minimum(np.where(np.isfinite(size), size, 0.0), form.largest)) / 2


def _judge(trial: Trial, execution: Execution, repetition: int) -> Judgement:
    problem = trial.problem
    reference, bounds = problem.reference(repetition), bounds_of(trial, repetition)
    found: list[Comparison] = []
    for name, values in execution.results.items():
        signs = problem.op.signed_zeros or name in execution.mutated
        dtype = problem.results[name].dtype
        found.append(compare(name, values, reference[name], bounds[name], dtype, signs=signs))
    judged = Judgement(tuple(found), trial.looser)
    trial.judged.append(judged)
    return judged
