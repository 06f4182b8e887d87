"""Comparison of an output with its reference: finite values against a bound, special ones by rule, and a profile.

The bound is the contract's, which a device's file may tighten: `tightened`, `allowed`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

import numpy as np

from nbx_registry import dtypes
from nbx_registry.device import Device
from nbx_registry.dtypes import DType
from nbx_registry.op import Op
from nbx_registry.rounding import FloatFormat, float_format

Array = np.ndarray[Any, np.dtype[Any]]

QUANTILES: Final = (0.5, 0.99, 1.0)
"""Of the error in ulp, as profiles give them."""


@dataclass(frozen=True, kw_only=True)
class Profile:
    """How far an output is from its reference.

    Attributes
    ----------
    ulp
        Quantiles (`QUANTILES`) of the error in units in the last place of the output's dtype.
    relative_l2
        Euclidean norm of the error over that of the reference.
    share
        The largest share of its bound that an error takes; 1 is the limit.
    worst
        Index of that element.
    """

    ulp: tuple[float, ...] = (0.0,) * len(QUANTILES)
    relative_l2: float = 0.0
    share: float = 0.0
    worst: tuple[int, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Return plain data, three significant digits a figure; an exact result is just that."""
        if self.share == 0 and self.relative_l2 == 0:
            return {}
        return {
            "ulp": [_short(u) for u in self.ulp],
            "l2": _short(self.relative_l2),
            "share": _short(self.share),
            "worst": list(self.worst),
        }


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """The outcome for one output: what is wrong among finite and among special values (empty: nothing), the profile."""

    numbers: str
    special: str
    has_special: bool
    """Whether the reference has values that the rules for special ones decide."""
    measure: Callable[[], Profile]
    measure_closest: Callable[[], tuple[float, float]] = lambda: (0.0, 0.0)

    @property
    def wrong(self) -> str:
        """Whatever is wrong."""
        return self.numbers or self.special

    @cached_property
    def closest(self) -> tuple[float, float]:
        """The error that takes the largest share of what is allowed, and what is allowed there; zeros for no error.

        Measured when it is asked for, which takes a fraction of what `profile` takes.
        """
        return self.measure_closest()

    @cached_property
    def profile(self) -> Profile:
        """How far the output is from its reference; measured when it is asked for."""
        return self.measure()


def tightened(op: Op, device: Device | None) -> float:
    """Return which share of an op's bound a device file leaves: ``tolerance.matmul``, ``sdm.tolerance.wy_solve``."""
    name = op.name.removeprefix(f"{op.namespace}::")
    fact = f"{op.namespace}.tolerance.{name}" if op.namespace else f"tolerance.{name}"
    return float(device.fact(fact)) if device is not None and fact in device.facts else 1.0


def allowed(bound: Array, share: float, reference: Array, dtype: DType) -> Array:
    """Return the largest error allowed, by element, where a share of a contract's bound is left.

    Never less than half a unit in the last place, which rounding once takes, nor more than the contract's.
    """
    if share == 1:
        return bound
    return np.minimum(bound, np.maximum(share * bound, _half_ulp(dtype, reference)))


def _half_ulp(dtype: DType, reference: Array) -> Array:
    if dtype.kind not in ("float", "complex"):
        return np.zeros(np.shape(reference))
    form = float_format(dtypes.get(f"float{dtype.bits // 2}") if dtype.kind == "complex" else dtype)
    size = np.abs(reference)
    return form.spacing(np.minimum(np.where(np.isfinite(size), size, 0.0), form.largest)) / 2


def compare(
    name: str, output: Array, reference: Array, bound: Array, dtype: DType, *, signs: bool = False
) -> Comparison:
    """Compare an output of a kernel with the oracle's.

    Parameters
    ----------
    name
        The output's, for messages.
    output
        In the output's dtype.
    reference
        The oracle's: float64 for floating dtypes, else the output's dtype.
    bound
        The largest error allowed, by element.
    signs
        Whether the sign of a zero counts: for results that no accumulation stands behind.
    """
    if dtype.kind == "complex":
        half = dtypes.get(f"float{dtype.bits // 2}")
        parts = [np.stack([np.real(values), np.imag(values)], axis=-1) for values in (output, reference)]
        return compare(name, parts[0], parts[1], np.stack([bound, bound], axis=-1), half, signs=signs)
    if dtype.kind == "bool":
        # NumPy takes any byte but 0 for true; others, and arithmetic on the bytes, take 1 alone.
        output, reference = output.view(np.uint8), reference.astype(np.uint8)
    if not dtype.floating:
        return _compare_exactly(name, output, reference)
    form = float_format(dtype)
    with np.errstate(all="ignore"):
        found = output.astype(np.float64)
        return _compare_floating(name, found, reference, bound, form, signs)


def _compare_exactly(name: str, output: Array, reference: Array) -> Comparison:
    wrong = output != reference
    if not wrong.any():
        return Comparison(numbers="", special="", has_special=False, measure=Profile)
    return Comparison(
        numbers=_told(name, wrong, output, reference, None),
        special="",
        has_special=False,
        measure=lambda: Profile(share=float("inf"), worst=_first(wrong)),
    )


def _compare_floating(
    name: str, found: Array, reference: Array, bound: Array, form: FloatFormat, signs: bool
) -> Comparison:
    error = np.abs(found - reference)
    if (error <= bound).all() and np.isfinite(error).all():
        # All is finite and within its bound, so nothing overflowed: only the signs of zeros are left to look at.
        zero = reference == 0 if signs else np.zeros(0, bool)
        wrong_sign = zero & (found == 0) & (np.signbit(found) != np.signbit(reference)) if zero.any() else zero
        wrong_sign &= form.signed_zero
        return Comparison(
            numbers="",
            special=_told(name, wrong_sign, found, reference, None) if wrong_sign.any() else "",
            has_special=bool(zero.any()),
            measure=lambda: _profile(
                error, reference, bound, np.ones(error.shape, bool), np.zeros(error.shape, bool), form
            ),
            measure_closest=lambda: _closest(error, bound, error > 0),
        )
    finite = np.isfinite(reference)
    # From here on a value rounds to the format's overflow; within its bound of it either answer is right.
    threshold = form.largest + float(form.spacing(form.largest)) / 2
    magnitude = np.abs(reference)
    surely_over = finite & (magnitude - bound > threshold)
    maybe_over = finite & (magnitude + bound >= threshold)
    overflowed = np.isnan(found) if np.isnan(form.overflow) else found == np.copysign(form.overflow, reference)
    error = np.where(finite, error, 0.0)
    within = error <= bound
    good_number = within | (maybe_over & overflowed)
    numeric = finite & ~surely_over
    wrong_number = numeric & ~good_number

    expected = np.where(surely_over, np.copysign(form.overflow, reference), reference)
    # A format without infinities cannot return one: there an infinite reference becomes what overflow becomes.
    infinite = np.isinf(reference)
    expected = np.where(infinite, np.copysign(form.overflow, reference), expected)
    matches = (np.isnan(expected) & np.isnan(found)) | (expected == found)
    wrong_special = ~numeric & ~matches
    zero = numeric & (reference == 0)
    if signs and form.signed_zero:
        wrong_special |= zero & (found == 0) & (np.signbit(found) != np.signbit(reference))

    # Where overflow is a number, that is no error of a result which may overflow.
    counted = numeric & np.isfinite(found) & (within | ~good_number)
    return Comparison(
        numbers=_told(name, wrong_number, found, reference, bound) if wrong_number.any() else "",
        special=_told(name, wrong_special, found, expected, None) if wrong_special.any() else "",
        has_special=bool((~numeric).any() or (signs and zero.any())),
        measure=lambda: _profile(error, reference, bound, counted, wrong_number, form),
        measure_closest=lambda: _closest(error, bound, counted & (error > 0)),
    )


def _closest(error: Array, bound: Array, counted: Array) -> tuple[float, float]:
    with np.errstate(all="ignore"):
        share = np.where(counted, error / np.where(bound > 0, bound, 1e-300), 0.0)
    if not share.any():
        return 0.0, 0.0
    worst = _first(share == share.max())
    return float(error[worst]), float(bound[worst])


def _profile(error: Array, reference: Array, bound: Array, counted: Array, wrong: Array, form: FloatFormat) -> Profile:
    with np.errstate(all="ignore"):
        return _measured(error, reference, bound, counted, wrong, form)


def _measured(error: Array, reference: Array, bound: Array, counted: Array, wrong: Array, form: FloatFormat) -> Profile:
    if not counted.any():
        return Profile(share=float("inf"), worst=_first(wrong)) if wrong.any() else Profile()
    errors, references, bounds = error[counted], reference[counted], bound[counted]
    ulp = errors / form.spacing(references)
    share = np.where(errors == 0, 0.0, errors / np.where(bounds > 0, bounds, 1e-300))
    # A bound that is no number is kept by no error.
    share[np.isnan(share)] = np.inf
    worst = int(np.argmax(share))
    position = np.argwhere(counted)[worst] if not wrong.any() or share[worst] > 1 else _first(wrong)
    return Profile(
        ulp=_quantiles(ulp),
        relative_l2=_relative(errors, references),
        share=float(share[worst]),
        worst=tuple(int(i) for i in position),
    )


def _relative(errors: Array, references: Array) -> float:
    """Return the norm of errors over that of references, or theirs alone where the references are zeros."""
    # Squares of large numbers overflow, of small ones vanish; of numbers up to 1 none that matters does.
    scale = max(float(np.abs(references).max()), float(np.abs(errors).max()))
    if scale == 0 or np.isinf(scale):
        return scale
    found, norm = float(np.linalg.norm(errors / scale)), float(np.linalg.norm(references / scale))
    return found / norm if norm else found * scale


def _quantiles(values: Array) -> tuple[float, ...]:
    """Return `QUANTILES`, each the least value that at least that share of the values does not exceed."""
    ranks = [max(math.ceil(values.size * share) - 1, 0) for share in QUANTILES]
    ordered = np.partition(values, ranks)
    return tuple(float(ordered[rank]) for rank in ranks)


def _told(name: str, wrong: Array, found: Array, expected: Array, bound: Array | None) -> str:
    where = _first(wrong)
    got, want = found[where], expected[where]
    allowed = f", allowed +-{bound[where]:.3g}" if bound is not None else ""
    count = int(wrong.sum())
    return (
        f"{name}{list(where)} is {_shown(got)}, must be {_shown(want)}{allowed}; "
        f"{count} of {wrong.size} element{'s' if wrong.size != 1 else ''} wrong"
    )


def _shown(value: Any) -> str:
    return f"{float(value):.9g}" if isinstance(value, float) else str(value)


def _first(wrong: Array) -> tuple[int, ...]:
    flat = int(np.argmax(wrong))
    return tuple(int(i) for i in np.unravel_index(flat, wrong.shape)) if wrong.shape else ()


def _short(value: float) -> float:
    # JSON has no infinity; a share of a bound of zero is as good as infinite.
    return float(f"{min(value, 1e300):.3g}")
