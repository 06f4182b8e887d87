"""Whether a result is right: within the contract's bound of the oracle, special values by the rules of `tolerance`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from nbx_registry import dtypes
from nbx_registry.dtypes import DType
from nbx_registry.rounding import float_format

Array = np.ndarray[Any, np.dtype[Any]]


@dataclass(frozen=True, slots=True)
class Comparison:
    """What came of comparing one result with its reference.

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


def compare(name: str, output: Array, reference: Array, bound: Array, dtype: DType, *, signs: bool) -> Comparison:
    """Compare a result, in its dtype, with the oracle's.

    Parameters
    ----------
    bound
        The largest error allowed, by element.
    signs
        Whether the sign of a zero counts.
    """
    if dtype.kind == "complex":
        half = dtypes.get(f"float{dtype.bits // 2}")
        output, reference = (np.stack([np.real(v), np.imag(v)], axis=-1) for v in (output, reference))
        return compare(name, output, reference, np.stack([bound, bound], axis=-1), half, signs=signs)
    if not dtype.floating:
        # Any byte but 0 would do for NumPy's true.
        words = output.view(np.uint8) if dtype.kind == "bool" else output
        differs = words != reference.astype(words.dtype)
        return Comparison(_told(name, differs, output, reference)) if differs.any() else Comparison()
    form = float_format(dtype)
    with np.errstate(all="ignore"):
        found = output.astype(np.float64)
        finite, size = np.isfinite(reference), np.abs(reference)
        error = np.where(finite & np.isfinite(found), np.abs(found - np.where(finite, reference, 0)), np.inf)
        limit = form.largest + float(form.spacing(form.largest)) / 2
        surely_over = finite & (size - bound > limit)
        overflowed = np.isnan(found) if np.isnan(form.overflow) else found == np.copysign(form.overflow, reference)
        number = finite & ~surely_over
        within = number & (error <= bound)
        # A format without infinities answers an infinite reference with what overflow becomes.
        special = np.where(surely_over | np.isinf(reference), np.copysign(form.overflow, reference), reference)
        right = within | (number & (size + bound >= limit) & overflowed)
        right |= ~number & ((special == found) | (np.isnan(special) & np.isnan(found)))
        if signs and form.signed_zero:
            right &= ~((reference == 0) & (found == 0) & (np.signbit(reference) != np.signbit(found)))
        if not right.all():
            return Comparison(_told(name, ~right, found, reference, bound))
        share = np.where(within & (error > 0), error / np.where(bound > 0, bound, 1.0), 0.0)
    if not share.size or not share.any():
        return Comparison()
    worst = np.unravel_index(int(np.argmax(share)), share.shape)
    return Comparison("", float(error[worst]), float(bound[worst]))


def _told(name: str, wrong: Array, found: Array, expected: Array, bound: Array | None = None) -> str:
    where = np.unravel_index(int(np.argmax(wrong)), wrong.shape)
    allowed = f", allowed +-{bound[where]:.3g}" if bound is not None else ""
    place = [int(index) for index in where]
    count = f"{int(wrong.sum())} of {wrong.size} elements wrong"
    return f"{name}{place} is {_shown(found[where])}, must be {_shown(expected[where])}{allowed}; {count}"


def _shown(value: Any) -> str:
    return f"{float(value):.9g}" if isinstance(value, float) else str(value)
