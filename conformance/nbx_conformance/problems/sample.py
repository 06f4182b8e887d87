"""Samples: where a problem too large to be looked at everywhere is looked at, and such problems.

The op is cut along its batch axis: at its ends, around the elements at which an index of 31 or 32 bits ends, and
somewhere between. The oracle computes these parts alone, and of a kernel's outputs these parts alone are compared.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any, Final

import numpy as np

from nbx_conformance.cases import Case, layouts, values
from nbx_conformance.cases.values import Array
from nbx_conformance.problems.parts import Part, batch_of
from nbx_conformance.problems.problem import Problem
from nbx_conformance.problems.tiled import Tiled, prime_below
from nbx_registry.errors import FileError
from nbx_registry.op import Op
from nbx_registry.spec import TensorSpec

LARGE: Final = 2**31
"""Elements, of a tensor or of its memory, above which a problem is large: a signed 32-bit index tells no more apart."""

RANDOM: Final = 5
"""Indices of a sample that stand for no place in particular, as far as they cost the oracle little."""


def problem_of(op: Op, case: Case, limit: int = LARGE) -> Problem:
    """Return a case's problem: a `LargeProblem` where a tensor or its memory has more than ``limit`` elements."""
    problem = Problem(op, case)
    if case.refuses is None and any(_extent(spec) > limit for spec in (*case.specs(), *problem.signature.outputs)):
        return LargeProblem(op, case, limit)
    return problem


class Sample:
    """The parts of a problem that are looked at.

    Raises `FileError` where the case cannot be cut, or into no parts small enough for its oracle.

    Attributes
    ----------
    parts
        In order, none reaching into another.
    block
        Length of the block that wide tensors repeat.
    """

    def __init__(self, problem: Problem, limit: int) -> None:
        self.problem = problem
        self.limit = limit
        self.block = prime_below(limit >> 11)
        self.batch = batch_of(problem)
        self.parts = [Part(problem, self.batch, first, count) for first, count in self._runs()]

    def wide(self, spec: TensorSpec) -> bool:
        """Whether a tensor is too large to be made, and kept, as an array."""
        return is_wide(spec, self.limit)

    def look(self, name: str, spec: TensorSpec, read: Callable[[TensorSpec], Array]) -> Array:
        """Return what ``read`` returns for the parts of a result, joined."""
        return self.join(name, [read(part.spec(name, spec)) for part in self.parts])

    def join(self, name: str, found: Sequence[Array]) -> Array:
        """Return the parts of a parameter or result as one array."""
        axis = self.batch.axes.get(name)
        return found[0] if axis is None else np.concatenate(found, axis)

    def _runs(self) -> Iterator[tuple[int, int]]:
        """Yield first index and number of indices of each part."""
        extent = self.batch.extent
        results = self.problem.results.items()
        operands = [*_operands(self.problem), *(item for item in results if item[0] not in self.problem.case.tensors)]
        cut = sum(spec.size // extent for name, spec in operands if name in self.batch.axes)
        shared = sum(spec.size for name, spec in operands if name not in self.batch.axes)
        budget = self.limit >> 3
        around = min((self.limit >> 13) // max(cut, 1), 32)
        taken: set[int] = set()
        needed = {0, extent - 1, *self._marked(operands)}
        for index in [*sorted(needed), *self._random()]:
            wanted = taken.union(range(max(index - around, 0), min(index + around + 1, extent)))
            cost = len(wanted) * cut + shared * len(_runs_of(wanted))
            if cost <= (budget if index in needed else budget >> 4):
                taken = wanted
            elif index in needed:
                case = self.problem.case
                raise FileError(
                    f"batch of case {case.id} of {case.op}: each of its {extent} indices has {cut} elements, beside"
                    f" {shared} that all parts share; the oracle is given at most {budget} in all: cut along a longer"
                    f" axis"
                )
        yield from _runs_of(taken)

    def _marked(self, operands: Sequence[tuple[str, TensorSpec]]) -> Iterator[int]:
        """Yield the indices of the elements just below, at and above each place at which an index may end."""
        for name, spec in operands:
            axis = self.batch.axes.get(name)
            if axis is None:
                continue
            low, high = layouts.span(spec)
            inner = int(np.prod(spec.shape[axis + 1 :], dtype=np.int64))
            for mark in (self.limit, 2 * self.limit):
                for element in (mark - 1, mark, mark + 1):
                    if low <= element < high and spec.strides[axis]:
                        yield _index_of(spec, axis, element)
                    if element < spec.size:
                        yield element // inner % spec.shape[axis]

    def _random(self) -> list[int]:
        case = self.problem.case
        rng = values.generator(case.seed, f"{case.op}/{case.id}", "sample", 0)
        return rng.integers(0, self.batch.extent, RANDOM).tolist()


class LargeProblem(Problem):
    """A problem with a tensor of more than ``limit`` elements: results are those of the parts of its sample, joined."""

    def __init__(self, op: Op, case: Case, limit: int) -> None:
        super().__init__(op, case)
        self.limit = limit

    @cached_property
    def sample(self) -> Sample:
        """Where it is looked at. Raises `FileError`."""
        return Sample(self, self.limit)

    def reference(self, repetition: int) -> dict[str, Array]:
        """Return the oracle's results at the sample."""
        return self._joined(lambda part: part.reference(repetition))

    def bounds(self, repetition: int) -> dict[str, Array]:
        """Return the largest errors allowed at the sample."""
        return self._joined(lambda part: part.bounds(repetition))

    def copied_bits(self, repetition: int) -> dict[str, Array] | None:
        """Return the outputs at the sample as unsigned words; None for an op that copies nothing."""
        found = [part.copied_bits(repetition) for part in self.sample.parts]
        words = [bits for bits in found if bits is not None]
        return _join(self.sample, words) if len(words) == len(found) else None

    def untouched(self, repetition: int) -> dict[str, Array]:
        """Return which elements at the sample the op leaves alone."""
        return self._joined(lambda part: part.untouched(repetition))

    def before(self, repetition: int) -> dict[str, Array]:
        """Return what parameters written in place hold at the sample before a run."""
        return self._joined(lambda part: part.before(repetition))

    def _joined(self, of: Callable[[Part], Mapping[str, Array]]) -> dict[str, Array]:
        return _join(self.sample, [of(part) for part in self.sample.parts])

    def _array(self, name: str, spec: TensorSpec, repetition: int, strategy: str | None = None) -> Any:
        if not is_wide(spec, self.limit):
            return super()._array(name, spec, repetition, strategy)
        case = self.case
        rng = values.generator(case.seed, f"{case.op}/{case.id}", name, repetition)
        chosen = case.strategy(strategy or name)
        return Tiled(spec, values.block(spec.dtype, chosen, prime_below(self.limit >> 11), rng, repetition))


def is_wide(spec: TensorSpec, limit: int) -> bool:
    """Whether a tensor is too large to be made and kept as an array, where ``limit`` elements make a problem large."""
    return _extent(spec) > limit >> 4


def _join(sample: Sample, found: Sequence[Mapping[str, Array]]) -> dict[str, Array]:
    return {name: sample.join(name, [results[name] for results in found]) for name in found[0]}


def _operands(problem: Problem) -> Iterator[tuple[str, TensorSpec]]:
    """Yield parameter and spec of each tensor given, those of a list under the list's name."""
    for name, value in problem.case.tensors.items():
        if isinstance(value, TensorSpec):
            yield name, value
        elif isinstance(value, tuple):
            yield from ((name, item) for item in value)


def _extent(spec: TensorSpec) -> int:
    """Return the elements of a tensor, or those from its buffer's start to its last one, whichever are more."""
    return max(spec.size, layouts.span(spec)[1])


def _index_of(spec: TensorSpec, axis: int, element: int) -> int:
    """Return the index along an axis of the last element of a tensor at, or before, an element of its memory."""
    index = 0
    rest = element - layouts.span(spec)[0]
    steps = zip(spec.strides, spec.shape, range(spec.rank), strict=True)
    for stride, extent, i in sorted(steps, key=lambda step: -abs(step[0])):
        if stride:
            found = min(rest // abs(stride), extent - 1)
            rest -= found * abs(stride)
            if i == axis:
                index = found if stride > 0 else extent - 1 - found
    return index


def _runs_of(indices: set[int]) -> list[tuple[int, int]]:
    """Return first index and length of each run of consecutive indices."""
    runs: list[tuple[int, int]] = []
    for index in sorted(indices):
        if runs and sum(runs[-1]) == index:
            runs[-1] = (runs[-1][0], runs[-1][1] + 1)
        else:
            runs.append((index, 1))
    return runs
