"""Parts: a problem cut along the axis on which its op treats what lies there independently, as its case says."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, cast

from nbx_conformance.cases import Case, Scalar
from nbx_conformance.problems.problem import Problem
from nbx_registry import expr
from nbx_registry.errors import FileError, nearest
from nbx_registry.spec import TensorSpec


@dataclass(frozen=True)
class Batch:
    """Where a problem may be cut.

    Attributes
    ----------
    extent
        Of the axis; every tensor that is cut has it.
    axes
        By parameter and output that is cut, its axis, from 0 on. All others are shared by all parts.
    """

    extent: int
    axes: Mapping[str, int]


def batch_of(problem: Problem) -> Batch:
    """Return where a problem may be cut.

    Raises `FileError` where its case names no axis, names a tensor that is not there or an axis it lacks, names axes of
    different extents, or does not name a result.
    """
    case = problem.case
    if not case.batch:
        raise FileError(f"case {case.id} of {case.op} has no batch: it names no axis along which it may be cut")
    axes: dict[str, int] = {}
    extents: dict[str, int] = {}
    for name, axis in case.batch.items():
        for spec in _specs(problem, name):
            if axis < -spec.rank and name in case.tensors:
                # It has fewer axes than it is broadcast to.
                continue
            if not -spec.rank <= axis < spec.rank:
                raise FileError(f"batch of case {case.id} of {case.op}: {name} is {spec}; it has no axis {axis}")
            # What is broadcast along the axis is passed whole.
            if spec.shape[axis] != 1 or name not in extents:
                axes[name], extents[name] = axis % spec.rank, spec.shape[axis]
    extent = max(extents.values(), default=1)
    axes = {name: axis for name, axis in axes.items() if extents[name] == extent}
    if set(extents.values()) - {1, extent}:
        given = ", ".join(f"{name} {size}" for name, size in extents.items())
        raise FileError(f"batch of case {case.id} of {case.op}: extents differ: {given}")
    if missing := [name for name in problem.results if name not in axes]:
        raise FileError(
            f"batch of case {case.id} of {case.op} lacks an axis of {', '.join(missing)}, which is computed"
        )
    return Batch(extent, axes)


class Part(Problem):
    """Indices ``first`` up to ``first + count`` of a problem's batch axis, as a problem of its own, with dense tensors.

    Raises `FileError` where the case cannot be cut; `batch_of`.
    """

    def __init__(self, whole: Problem, batch: Batch, first: int, count: int) -> None:
        self.whole = whole
        self.batch = batch
        self.first = first
        self.count = count
        super().__init__(whole.op, self._case())

    def cut(self, name: str, value: Any) -> Any:
        """Return a parameter's or output's share of what belongs to the whole: an array, or anything sliced like one.

        That of a list parameter's value is a list.
        """
        axis = self.batch.axes.get(name)
        if axis is None or isinstance(value, bool | int | float):
            return value
        if isinstance(value, list):
            return [self.cut(name, item) for item in cast("list[Any]", value)]
        return value[(slice(None),) * axis + (slice(self.first, self.first + self.count),)]

    def spec(self, name: str, spec: TensorSpec) -> TensorSpec:
        """Return a parameter's or output's share of the whole's, where it lies in it."""
        axis = self.batch.axes.get(name)
        if axis is None:
            return spec
        shape = tuple(self.count if i == axis else extent for i, extent in enumerate(spec.shape))
        return TensorSpec(spec.dtype, shape, spec.strides, spec.offset + self.first * spec.strides[axis])

    def _value(self, name: str, spec: TensorSpec | Scalar | tuple[TensorSpec, ...], repetition: int) -> Any:
        del spec
        return self.cut(name, self.whole.given(repetition)[name])

    def _case(self) -> Case:
        case = self.whole.case
        tensors: dict[str, Any] = {}
        for name, value in case.tensors.items():
            if isinstance(value, TensorSpec):
                tensors[name] = self.spec(name, value).dense()
            elif isinstance(value, tuple):
                tensors[name] = tuple(self.spec(name, item).dense() for item in value)
            else:
                tensors[name] = value
        attributes = {**case.attributes, **{name: self._attribute(value) for name, value in case.part.items()}}
        identifier = f"{case.id}[{self.first}:{self.first + self.count}]"
        return replace(case, id=identifier, tensors=tensors, attributes=attributes)

    def _attribute(self, value: Any) -> Any:
        if isinstance(value, list):
            return [self._attribute(item) for item in cast("list[Any]", value)]
        return expr.parse(value).evaluate(self._named) if isinstance(value, str) else value

    def _named(self, name: str) -> Any:
        own = {"first": self.first, "count": self.count}
        return own[name] if name in own else self.whole.signature.value(name)


def _specs(problem: Problem, name: str) -> Iterator[TensorSpec]:
    """Yield the specs that a name of a batch stands for: several for a list, none for a tensor left out or a scalar."""
    given = problem.case.tensors.get(name)
    if isinstance(given, TensorSpec):
        yield given
    elif isinstance(given, tuple):
        yield from given
    elif name in problem.results:
        yield problem.results[name]
    elif name not in (known := [*(param.name for param in problem.op.tensors), *problem.results]):
        raise FileError(
            f"batch of case {problem.case.id} of {problem.case.op}: it has no {name!r}{nearest(name, known)};"
            f" known: {', '.join(known)}"
        )
