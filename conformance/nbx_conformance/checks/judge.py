"""Judgement of a run's results, outputs and parameters written in place alike, against the reference."""

from __future__ import annotations

from dataclasses import dataclass, replace

from nbx_conformance.cases.values import Array
from nbx_conformance.trials.bench import Execution
from nbx_conformance.trials.trial import Trial
from nbx_registry.compare import Comparison, Profile, allowed, compare, tightened


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

    It is the contract's, as far as the device file leaves it; a waiver may let an error be a number of times that.
    """
    problem = trial.problem
    share = tightened(problem.op, trial.site.target.device)
    reference = problem.reference(repetition)
    return {
        name: trial.looser * allowed(bound, share, reference[name], problem.results[name].dtype)
        for name, bound in problem.bounds(repetition).items()
    }


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
