"""Problems: a signature with several inputs, and what the oracle and the contract's bound say of each.

Where the oracle would take long, it is asked for parts: some indices of the outputs' first axis. Whether the op treats
these independently is asked of the oracle itself, which must give one index alone what it gives it beside another.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final, cast

import numpy as np

from nbx_registry.compare import allowed, compare, tightened
from nbx_registry.device import Device
from nbx_registry.errors import NbxError
from nbx_registry.signature import Operand, Signature, results_of
from nbx_registry.spec import TensorSpec
from nbx_registry.tuning.values import NUMBER, Array, draw

MOST_FLOPS: Final = {"matrix": 4 * 10**10, "vector": 2**26}
"""Operations of the op, by the unit of a device that does them, above which the oracle is asked for parts.

NumPy multiplies matrices by a library, and does the rest in passes over memory.
"""

MOST_ELEMENTS: Final = 2**25
"""Elements of all operands above which it is."""


Cut = Mapping[int, int]
"""Parameters by place, and the axis of each that is cut to the same indices."""


@dataclass(frozen=True, slots=True)
class Judgement:
    """What the oracle says of results.

    Attributes
    ----------
    wrong
        What is wrong, in words; empty where nothing is.
    deviation, bound
        The error that takes the largest share of what is allowed, and what is allowed there.
    """

    wrong: str = ""
    deviation: float = 0.0
    bound: float = 0.0

    @property
    def share(self) -> float:
        """How much of what is allowed the error takes."""
        return self.deviation / self.bound if self.bound else 0.0


@dataclass(frozen=True)
class _Truth:
    """What the oracle says of one part of one input: reference and bound by result."""

    first: int | None
    stop: int
    reference: Sequence[Array]
    bound: Sequence[Array]


class Problem:
    """A signature to be computed, on `NUMBER` inputs.

    Parameters
    ----------
    given
        Values that are taken as they are, by parameter; `values.draw`.
    device
        Whose file may tighten the contract's bound.
    """

    def __init__(self, signature: Signature, given: Mapping[str, Any], device: Device | None = None) -> None:
        self.signature = signature
        self.given = given
        self.count = NUMBER
        self._share = tightened(signature.op, device)
        self._inputs: dict[int, list[Any]] = {}
        self._truths: dict[int, list[_Truth]] = {}

    def inputs(self, number: int) -> list[Any]:
        """Return the values of every parameter, in order."""
        if number not in self._inputs:
            self._inputs[number] = draw(self.signature, self.given, number)
        return self._inputs[number]

    @cached_property
    def results(self) -> dict[str, TensorSpec]:
        """Specs of the outputs, then of the parameters written in place."""
        return results_of(self.signature)

    def judge(self, number: int, results: Mapping[str, Array]) -> Judgement:
        """Compare results on an input with the oracle's: the first that is wrong, or the one nearest to being so."""
        op = self.signature.op
        outputs = {output.name for output in op.outputs}
        worst = Judgement()
        for truth in self._truth(number):
            for (name, spec), reference, bound in zip(self.results.items(), truth.reference, truth.bound, strict=True):
                values = results[name] if truth.first is None else results[name][truth.first : truth.stop]
                signs = op.signed_zeros or name not in outputs
                found = compare(name, values, reference, bound, spec.dtype, signs=signs)
                if found.wrong:
                    where = f" (from index {truth.first})" if truth.first else ""
                    return Judgement(found.wrong + where)
                worst = max(worst, Judgement("", *found.closest), key=lambda one: one.share)
        return worst

    def _truth(self, number: int) -> list[_Truth]:
        if number not in self._truths:
            self._truths[number] = list(self._compute(number))
        return self._truths[number]

    def _compute(self, number: int) -> Iterator[_Truth]:
        arrays = self.inputs(number)
        for first, stop in self._parts:
            signature, operands = self.signature, arrays
            if first is not None:
                signature, operands = cut(self.signature, arrays, self._cut, first, stop)
            with np.errstate(all="ignore"):
                reference = signature.op.run_oracle(signature, operands)
                bounds = signature.op.bound(signature, operands, reference)
            kept = [
                allowed(bound, self._share, values, spec.dtype)
                for bound, values, spec in zip(bounds, reference, self.results.values(), strict=True)
            ]
            yield _Truth(first, stop, reference, kept)

    @cached_property
    def _cut(self) -> Cut:
        """Which parameters are cut, and along which axis; none where the op cannot be cut."""
        whole: Cut = {}
        return next((one for one in _cuts(self.signature) if _independent(self.signature, self.inputs(0), one)), whole)

    @cached_property
    def _parts(self) -> list[tuple[int | None, int]]:
        """The parts that the oracle is asked for: first index and the one past the last; None for the whole."""
        signature = self.signature
        elements = sum(spec.size for _, spec in signature.slots())
        cost = signature.op.cost(signature)
        size = max(cost.flops / MOST_FLOPS[cost.unit], elements / MOST_ELEMENTS)
        if size <= 1 or not self._cut:
            return [(None, 0)]
        extent = signature.outputs[0].shape[0]
        rows = min(max(int(extent / size / 3), 1), extent)
        starts = sorted({0, (extent - rows) * 3 // 7, extent - rows})
        if rows * len(starts) > 2 * extent / size:
            # One index alone is more than was to be asked for: the ends are all.
            starts = sorted({0, extent - rows})
        return [(start, start + rows) for start in starts]


def cut(signature: Signature, arrays: Sequence[Any], axes: Cut, first: int, stop: int) -> tuple[Signature, list[Any]]:
    """Return signature and values with parameters cut to some indices of an axis each.

    Raises `NbxError` where the op takes no such operands.
    """
    specs: list[Operand] = list(signature.tensors)
    values = list(arrays)
    for place, axis in axes.items():
        spec = cast("TensorSpec", specs[place])
        specs[place] = TensorSpec(spec.dtype, (*spec.shape[:axis], stop - first, *spec.shape[axis + 1 :]))
        values[place] = values[place][(slice(None),) * axis + (slice(first, stop),)]
    return signature.op.signature(specs, signature.attributes), values


def _cuts(signature: Signature) -> Iterator[Cut]:
    """Yield sets of parameters that may share the outputs' first axis: by its name, else as their own first."""
    op = signature.op
    outputs = signature.outputs
    if not outputs or any(param.mutable for param in op.tensors) or not all(spec.shape for spec in outputs):
        return
    extent = outputs[0].shape[0]
    if extent < 3 or any(spec.shape[0] != extent for spec in outputs):
        return
    dense = {
        place: (param, spec)
        for place, (param, spec) in enumerate(zip(op.tensors, signature.tensors, strict=True))
        if isinstance(spec, TensorSpec) and not spec.weak
    }
    tall = {place: spec for place, (_, spec) in dense.items() if spec.shape[:1] == (extent,)}
    axis = op.outputs[0].axes[0] if op.outputs[0].axes else None
    named: dict[int, int] = {}
    for place, (param, spec) in dense.items():
        before = param.axes[: param.axes.index(axis)] if axis in param.axes else None
        # Behind an axis of any number of extents, as *B, places are not those of the names.
        if before is None or any(str(one).startswith("*") for one in before):
            continue
        if spec.shape[len(before) : len(before) + 1] == (extent,):
            named[place] = len(before)
    ranked = {place: 0 for place, spec in tall.items() if spec.rank == outputs[0].rank}
    found: list[Cut] = []
    for one in (named, ranked, dict.fromkeys(tuple(tall)[:1], 0)):
        if one and one not in found:
            found.append(one)
            yield one


def _independent(signature: Signature, arrays: Sequence[Any], axes: Cut) -> bool:
    """Whether the oracle gives an index alone what it gives it beside another."""
    try:
        (both, together), (one, alone) = (cut(signature, arrays, axes, first, 2) for first in (0, 1))
        with np.errstate(all="ignore"):
            pairs = list(zip(both.op.run_oracle(both, together), one.op.run_oracle(one, alone), strict=True))
    except NbxError:
        return False
    except (ValueError, IndexError, TypeError):
        # An oracle is NumPy, which refuses shapes in its own words.
        return False
    return all(
        pair.shape[:1] == (2,) and single.shape[:1] == (1,) and np.allclose(pair[1:], single, 1e-9, 0, equal_nan=True)
        for pair, single in pairs
    )
