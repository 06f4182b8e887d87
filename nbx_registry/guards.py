"""Guards: what depends on addresses or values, looked at on every call, and left out where it cannot matter."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from math import gcd
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from nbx_registry.decision import Candidate, Decision
from nbx_registry.dtypes import DType
from nbx_registry.errors import Refused, SignatureError
from nbx_registry.infer import scalar_dtype
from nbx_registry.interop.memory import address_of
from nbx_registry.kernel import Kernel
from nbx_registry.rounding import integer_range
from nbx_registry.runtime import Slot
from nbx_registry.signature import Signature
from nbx_registry.spec import TensorSpec

if TYPE_CHECKING:
    from nbx_registry.program import BoundProgram


FLOAT64_LIMIT = 2**1024 - 2**970
"""The least integer that rounds to no float64."""


FEW = 32
"""Numbers that Python looks through sooner than NumPy begins to."""


class Guard(Protocol):
    """One thing that must hold of the operands (parameters given, then outputs) of every call."""

    reads_values: bool
    """Whether it depends on what memory holds, and not on addresses alone."""
    told_by_numpy: bool
    """Whether NumPy raises an error too, before it writes, where it does not hold of what a caller gave."""

    def __call__(self, operands: Sequence[Any]) -> None:
        """Raise where it does not hold."""
        ...

    def doubt(self) -> str | None:
        """Return Python source over addresses ``p0``, ``p1``, ... that is true wherever it might not hold.

        None where that cannot be told from addresses and scalars.
        """
        ...


def guards_of(bound: BoundProgram, *, place: str, out_given: bool, decide: Callable[[], Decision]) -> list[Guard]:
    """Return the guards of a kind of call.

    Parameters
    ----------
    out_given
        Whether the caller brings the outputs; fresh ones share memory with nothing.
    decide
        Returns the decision behind ``bound``, for a refusal.
    """
    signature, kernel = bound.signature, bound.choice.kernel
    slots = [slot for slot in bound.slots if slot.kind in ("input", "output")]
    mutable = {param.name for param in signature.op.tensors if param.mutable}
    guards: list[Guard] = []
    if signature.op.index_bounds:
        # On a device an index out of range is out of contract: nobody reads it back to look.
        index = IndexGuard(signature, slots, scalars_alone=place != "cpu")
        guards += (index,) if index.limits else ()
    for position, slot in enumerate(slots):
        if slot.spec.weak and slot.spec.dtype.kind == "int":
            guards.append(RangeGuard(signature.op.name, position, scalar_dtype(signature, slot.name)))
    if mutable or out_given:
        written = [n for n, s in enumerate(slots) if s.name in mutable or (out_given and s.kind == "output")]
        if len(written) > 1 or kernel.overlap != "any":
            array = bound.runtime is not None and bound.runtime.operands == "array"
            overlap = OverlapGuard(kernel, slots, written, decide, array=array)
            guards += (overlap,) if overlap.pairs else ()
    return guards


class IndexGuard:
    """Indices on the host stay within what the contract allows.

    Attributes
    ----------
    limits : list of tuple
        (position, whether a Python integer stands there, name, least, first too large or None, what that is).
    """

    reads_values = True
    told_by_numpy = False

    def __init__(self, signature: Signature, slots: Sequence[Slot], *, scalars_alone: bool) -> None:
        self._op = signature.op.name
        limits = signature.index_limits()
        self.limits = [
            (position, slot.spec.weak, slot.name, *limits[slot.name])
            for position, slot in enumerate(slots)
            if slot.name in limits and _holds_indices(signature, slot) and (slot.spec.weak or not scalars_alone)
        ]

    def __call__(self, operands: Sequence[Any]) -> None:
        """Raise `SignatureError` naming index and limit."""
        for position, weak, name, low, high, what in self.limits:
            value = operands[position]
            if not weak:
                if value.size == 0 or _all_within(value, low, high):
                    continue
                smallest, largest = int(value.min()), int(value.max())
            else:
                smallest = largest = value
            if smallest >= low and (high is None or largest < high):
                continue
            bad = smallest if smallest < low else largest
            if high is None:
                range_ = f"below {low}"
            elif high <= low:
                range_ = f"where {what} is {high}: there is none to choose"
            else:
                range_ = f"outside {low}..{high - 1} ({what} is {high})"
            raise SignatureError(f"{self._op}: {name} holds {bad}, {range_}; nothing was written")

    def doubt(self) -> str | None:
        """Return the test of Python integers; None where values of arrays must be read."""
        if not all(weak for _, weak, *_ in self.limits):
            return None
        return " or ".join(
            f"p{position} < {low}" if high is None else f"not {low} <= p{position} < {high}"
            for position, _, _, low, high, _ in self.limits
        )


def _all_within(values: np.ndarray[Any, Any], low: int, high: int | None) -> bool:
    """Return whether one look at values tells that all are from ``low`` on and below ``high``."""
    if high is None or low > 0:
        return False
    if values.size <= FEW:
        numbers = values.ravel().tolist()
        return low <= min(numbers) and max(numbers) < high
    if low == 0:
        # Of signed integers those below zero are the largest, taken as unsigned.
        values = values.view(f"u{values.itemsize}")
    elif values.dtype.kind == "i" and low > -(1 << (8 * values.itemsize - 1)):
        return False
    return bool(np.maximum.reduce(values, axis=None) < high)


def _holds_indices(signature: Signature, slot: Slot) -> bool:
    if slot.spec.weak:
        return slot.spec.dtype.kind == "int" and scalar_dtype(signature, slot.name).integral
    return slot.spec.dtype.integral


class RangeGuard:
    """A Python integer is one that the dtype of the arrays beside it holds, or float64 beside floating ones."""

    reads_values = True

    def __init__(self, op: str, position: int, dtype: DType) -> None:
        self._op = op
        self._dtype = dtype.name
        self._position = position
        self.told_by_numpy = not dtype.integral
        self._low, self._high = integer_range(dtype) if dtype.integral else (1 - FLOAT64_LIMIT, FLOAT64_LIMIT - 1)

    def __call__(self, operands: Sequence[Any]) -> None:
        """Raise `SignatureError` naming the integer and the dtype."""
        value = operands[self._position]
        if not self._low <= value <= self._high:
            raise out_of_range(self._op, (value,), self._dtype)

    def doubt(self) -> str:
        """Return the test itself."""
        return f"not {self._low} <= p{self._position} <= {self._high}"


def out_of_range(op: str, values: Sequence[int], dtype: str) -> SignatureError:
    """Return the error for Python integers of which the array's dtype cannot hold one."""
    # Python spells out no integer of more than some thousand digits.
    scalars = ", ".join(str(v) if v.bit_length() <= 128 else f"of {v.bit_length()} bits" for v in values)
    return SignatureError(
        f"{op}: the Python integer {scalars} is outside the range of {dtype}; nothing was written;"
        " give a smaller one, or convert the array with astype"
    )


class OverlapGuard:
    """What is written shares no memory with anything else, as far as the kernel does not tolerate it.

    Spans of memory are compared, from the first byte to the last, and where they meet what repeats in both: keys and
    values in one buffer, pages of which take turns, lie apart. Interleaved views that do not repeat together count as
    overlapping. Two tensors that are both written never may.

    Attributes
    ----------
    pairs : list of tuple
        (written slot, other slot, bytes that the written spans, bytes that the other spans, `_combs` of the two,
        whether the very same elements are tolerated).
    """

    reads_values = False

    told_by_numpy = False

    def __init__(
        self,
        kernel: Kernel,
        slots: Sequence[Slot],
        written: Sequence[int],
        decide: Callable[[], Decision],
        *,
        array: bool,
    ) -> None:
        self._kernel = kernel
        self._slots = slots
        self._decide = decide
        spans = [0 if slot.spec.weak else _span(slot.spec, array=array) for slot in slots]
        self.pairs = [
            (
                w,
                other,
                spans[w],
                spans[other],
                _combs(slots[w].spec, slots[other].spec, array=array),
                other not in written and _same(kernel, slots[w].spec, slots[other].spec),
            )
            for w in written
            for other in range(len(slots))
            if other != w and (other > w if other in written else kernel.overlap != "any") and spans[w] and spans[other]
        ]

    def __call__(self, operands: Sequence[Any]) -> None:
        """Raise `Refused` naming the first two that share memory."""
        addresses = [_address(operand) for operand in operands]
        for w, other, bytes_w, bytes_other, combs, same in self.pairs:
            start, other_start = addresses[w], addresses[other]
            if (
                start < other_start + bytes_other
                and other_start < start + bytes_w
                and all(
                    (other_start - start) % period < tooth or (start - other_start) % period < other_tooth
                    for period, tooth, other_tooth in combs
                )
                and not (same and start == other_start)
            ):
                raise _refusal(self._decide(), self._kernel, self._slots[w], self._slots[other])

    def doubt(self) -> str:
        """Return whether elements may meet; that they are the very same ones only the guard itself sees."""
        return " or ".join(
            " and ".join(
                (
                    f"p{w} < p{o} + {bytes_o} and p{o} < p{w} + {bytes_w}",
                    *(
                        f"((p{o} - p{w}) % {period} < {tooth_w} or (p{w} - p{o}) % {period} < {tooth_o})"
                        for period, tooth_w, tooth_o in combs
                    ),
                )
            )
            for w, o, bytes_w, bytes_o, combs, _ in self.pairs
        )


def _span(spec: TensorSpec, *, array: bool) -> int:
    """Return the bytes from the first element to the last: in arrays elements of less than a byte have one each."""
    return spec.extent * spec.dtype.itemsize if array else spec.dtype.nbytes(spec.extent)


def _combs(a: TensorSpec, b: TensorSpec, *, array: bool) -> tuple[tuple[int, int, int], ...]:
    """Return ``(period, bytes of a, bytes of b)`` for the ways to see both as combs whose teeth leave each other room.

    All strides from some length on are multiples of their greatest common divisor, the period; shorter ones stay within
    a tooth. Two such tensors share no byte if their teeth do not meet modulo the period.
    """
    if a.weak or b.weak or (not array and min(a.dtype.bits, b.dtype.bits) < 8):
        return ()
    sizes = [
        [(stride * spec.dtype.itemsize, extent) for extent, stride in zip(spec.shape, spec.strides, strict=True)]
        for spec in (a, b)
    ]
    lengths = sorted({stride for axes in sizes for stride, extent in axes if stride and extent > 1})
    found: list[tuple[int, int, int]] = []
    for place, shortest in enumerate(lengths):
        period = gcd(*lengths[place:])
        tooth_a, tooth_b = (
            spec.dtype.itemsize + sum((extent - 1) * stride for stride, extent in axes if stride < shortest)
            for spec, axes in zip((a, b), sizes, strict=True)
        )
        if tooth_a + tooth_b <= period:
            found.append((period, tooth_a, tooth_b))
    return tuple(found)


def _same(kernel: Kernel, a: TensorSpec, b: TensorSpec) -> bool:
    layout = a.shape == b.shape and a.strides == b.strides and a.dtype.itemsize == b.dtype.itemsize
    return layout and kernel.overlap == "same"


def _address(operand: Any) -> int:
    if isinstance(operand, np.ndarray):
        return address_of(operand)
    return operand if type(operand) is int else 0


def _refusal(decision: Decision, kernel: Kernel, written: Slot, other: Slot) -> Refused:
    """Return the error for overlapping memory: the decision with the chosen kernel refused for it."""
    reason = f"{written.name!r} ({written.spec}) shares memory with {other.name!r} ({other.spec})"
    way = f"{written.name!r} has memory of its own (pass a copy)"
    candidates = tuple(
        Candidate(kernel=c.kernel, accepted=False, code="OVERLAP", reason=reason, way=way, evidence=c.evidence)
        if c.kernel == kernel.id
        else c
        for c in decision.candidates
    )
    refused = replace(decision, chosen=None, candidates=candidates)
    return Refused(refused, f"{reason}, which {kernel.id} does not tolerate; would run if {way}\n{refused}")
