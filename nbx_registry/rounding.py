"""Rounding to a dtype of the table: exactly once, to nearest even, from float64 or from integers.

Casting float64 to bfloat16 or float8 through NumPy rounds twice (through float32); what is said here is what the
contracts mean by "rounded once", and what tolerances are measured in.
"""

from __future__ import annotations

from functools import cache
from typing import Any, NamedTuple, cast

import numpy as np

from nbx_registry.dtypes import DType
from nbx_registry.errors import SpecError


class FloatFormat(NamedTuple):
    """The numbers of a floating dtype."""

    mantissa: int
    """Bits of the fraction, the hidden one not counted."""
    least_exponent: int
    """Exponent of the smallest normal number."""
    largest: float
    """The largest finite number."""
    overflow: float
    """What a finite value beyond the largest becomes: inf, NaN in a format without infinities, or the largest
    itself in one without either."""
    signed_zero: bool
    nan: bool

    @property
    def limit(self) -> float:
        """The number after the largest, if the exponent went on. Exact, except that float64's is inf."""
        return self.largest + float(self.spacing(self.largest))

    def spacing(self, values: np.ndarray | float) -> np.ndarray:
        """Return the distance between neighbouring numbers of the format at ``values`` (finite), as float64."""
        values = np.asarray(values, np.float64)
        exponent = np.where(values == 0, self.least_exponent, np.frexp(values)[1] - 1)
        return np.ldexp(1.0, np.maximum(exponent, self.least_exponent) - self.mantissa)


@cache
def float_format(dtype: DType) -> FloatFormat:
    """Return the numbers of a floating dtype. Raises `SpecError` for any other."""
    if not dtype.floating:
        raise SpecError(f"{dtype.name} is no floating dtype")
    import ml_dtypes  # milliseconds to import, and many a process never asks

    info = cast("Any", ml_dtypes.finfo(dtype.numpy))
    with np.errstate(all="ignore"):
        beyond, minus_zero = np.array([np.inf, -0.0]).astype(dtype.numpy).astype(np.float64)
        nan = np.array([np.nan]).astype(dtype.numpy).astype(np.float64)[0]
    return FloatFormat(
        mantissa=int(info.nmant),
        least_exponent=int(info.minexp),
        largest=float(info.max),
        overflow=float(beyond),
        signed_zero=bool(np.signbit(minus_zero)),
        nan=bool(np.isnan(nan)),
    )


def round_to_float(values: np.ndarray | float, dtype: DType, *, saturate: bool = False) -> np.ndarray:
    """Round float64 ``values`` to the numbers of a floating dtype, once, to nearest even; the result is float64.

    Beyond the largest finite number the result is the format's overflow (inf; NaN for float8_e4m3fn and
    float8_e4m3fnuz; the largest number for float4_e2m1fn). With ``saturate`` every value beyond, infinities too, is
    clamped to the largest. NaN stays NaN.
    """
    form = float_format(dtype)
    values = np.asarray(values, np.float64)
    if dtype.bits == 64:
        return np.clip(values, -form.largest, form.largest) if saturate else values.copy()
    finite = np.isfinite(values)
    exponent = np.log2(form.spacing(np.where(finite, values, 1.0))).astype(np.int32)
    # Both shifts are by powers of two and exact: the only rounding is rint's.
    rounded = np.ldexp(np.rint(np.ldexp(np.where(finite, values, 1.0), -exponent)), exponent)
    rounded = np.where(finite, rounded, values)
    beyond = np.abs(rounded) > form.largest
    outside = np.copysign(form.largest if saturate else form.overflow, values)
    rounded = np.where(beyond, outside, rounded)
    return rounded if form.signed_zero else rounded + 0.0


def integer_range(dtype: DType) -> tuple[int, int]:
    """Return the least and the largest value of an integer or bool dtype."""
    if dtype.kind == "bool":
        return 0, 1
    if dtype.kind == "uint":
        return 0, 2**dtype.bits - 1
    if dtype.kind == "int":
        return -(2 ** (dtype.bits - 1)), 2 ** (dtype.bits - 1) - 1
    raise SpecError(f"{dtype.name} is no integer dtype")


def integers_as_float64(values: np.ndarray) -> np.ndarray:
    """Return integers as float64 that round on to any narrower format as the integers themselves would.

    Below 2**53 the result is exact. Beyond, the lowest bit of the significand stands for everything dropped (rounding
    to odd), so that rounding again, to at most 50 bits, is not a second rounding.
    """
    values = np.asarray(values)
    if values.dtype.kind not in "iu" or values.dtype.itemsize < 8:
        return values.astype(np.float64)
    exact = np.abs(values.astype(np.float64)) < 2.0**53
    high = (values >> 11) | ((values & 0x7FF) != 0).astype(values.dtype)
    return np.where(exact, values.astype(np.float64), high.astype(np.float64) * 2048.0)
