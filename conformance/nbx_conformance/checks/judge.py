"""Judgement of a run's results, outputs and parameters written in place alike, against the reference."""

from __future__ import annotations

from dataclasses import dataclass

from nbx_conformance.bench import Execution
from nbx_conformance.compare import Comparison, Profile, compare
from nbx_conformance.trial import Trial


@dataclass(frozen=True)
class Judgement:
    """What is wrong among finite values and among special ones (empty: nothing), and the worst profile."""

    numbers: str
    special: str
    has_special: bool
    profile: Profile

    @property
    def wrong(self) -> str:
        """Whatever is wrong."""
        return self.numbers or self.special


def judge(trial: Trial, execution: Execution, repetition: int) -> Judgement:
    """Compare a run on the inputs of a repetition with the oracle, within the contract's bound."""
    return trial.memo((execution, repetition), lambda: _judge(trial, execution, repetition))


def _judge(trial: Trial, execution: Execution, repetition: int) -> Judgement:
    problem = trial.problem
    reference, bounds = problem.reference(repetition), problem.bounds(repetition)
    found: list[Comparison] = []
    for name, values in execution.results.items():
        signs = problem.op.signed_zeros or name in execution.mutated
        dtype = problem.results[name].dtype
        found.append(compare(name, values, reference[name], bounds[name], dtype, signs=signs))
    worst = max((comparison.profile for comparison in found), key=lambda p: p.share, default=Profile())
    return Judgement(
        numbers="; ".join(c.numbers for c in found if c.numbers),
        special="; ".join(c.special for c in found if c.special),
        has_special=any(c.has_special for c in found),
        profile=worst,
    )
