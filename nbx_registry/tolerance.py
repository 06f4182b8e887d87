"""Tolerances: how far an honest kernel may be from the oracle, element by element.

An honest kernel computes in float32 (in float64 where float64 comes out), in any order, and rounds once to the
output's dtype. If ``n`` roundings stand behind an element, each relative to at most ``u`` (half of the dtype's
epsilon), the error before that last rounding is at most ``n u`` times the sum of the magnitudes of its terms,
whatever the order of summation (N. J. Higham, "Accuracy and Stability of Numerical Algorithms", 2nd edition, section
4.2). The bound is

    ulp * spacing(|reference| + e) + e,    e = 2 n u magnitude

with the op's ``accumulation`` for n and its ``magnitude``. The factor 2 is for matrix units, which truncate where they
might round, and for the oracle's own error in float64. It is far below what it has to catch: accumulation in float16
(u is 8192 times as large), TF32 products in float32 (relative error 2^-11 an operand), a term left out, a variance as a
difference of squares.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from nbx_registry import dtypes
from nbx_registry.cost import inputs
from nbx_registry.dtypes import DType
from nbx_registry.rounding import float_format

if TYPE_CHECKING:
    from nbx_registry.op import Op
    from nbx_registry.signature import Signature

Array = np.ndarray[Any, np.dtype[Any]]

SLACK = 2
LONGEST = 8192
"""Above so many terms a bound that grows with their number would admit anything; no kernel adds more one by one."""
FLUSHED = 2.0**-102
"""A magnitude whose float32 rounding is the smallest normal number, 2^-126: for ops whose exponential may be flushed to
zero below it."""


def bound_of(op: Op, signature: Signature, arrays: Sequence[Any], reference: Sequence[Array]) -> tuple[Array, ...]:
    """Return the largest error allowed for each element of each result, as float64 arrays of the references' shapes.

    Parameters
    ----------
    op, signature
        What was computed.
    arrays
        The inputs, as `Op.run_oracle` takes them.
    reference
        What `Op.run_oracle` returned: outputs, then the new values of what is written in place.

    Returns
    -------
    tuple of array
        0 for results that are exact: integers, booleans, and those of ops marked ``exact``. There the result equals the
        reference to the bit, the sign of a zero included, the payload of a NaN not.

    Notes
    -----
    A bound says nothing about special values: NaN answers NaN, an infinity the same infinity, and a result beyond the
    dtype's largest number is what the dtype overflows to, where the reference lies that far up to its bound.
    """
    written = [spec for spec, mutable in inputs(signature) if mutable]
    specs = [*signature.outputs, *written]
    if op.exact or not any(spec.dtype.kind in ("float", "complex") for spec in specs):
        return tuple(np.zeros(np.shape(result)) for result in reference)
    magnitudes: Sequence[Array] = [np.abs(result) for result in reference]
    with np.errstate(all="ignore"):
        if op.magnitude is not None:
            found = op.magnitude(signature, *op.upcast(signature, arrays), **signature.attributes)
            magnitudes = cast("tuple[Array, ...]", found) if isinstance(found, tuple) else (found,)
        from nbx_registry import expr  # contracts import this module: it stays light

        count = expr.parse(op.accumulation).evaluate(signature.value)
        return tuple(
            _bound(spec.dtype, count, op.ulp, result, magnitude)
            for spec, result, magnitude in zip(specs, reference, magnitudes, strict=True)
        )


def _bound(dtype: DType, count: float, ulp: float, reference: Array, magnitude: Array) -> Array:
    if dtype.kind not in ("float", "complex"):
        return np.zeros(np.shape(reference))
    wide = accumulation_dtype(dtype)
    # The components of a complex number are rounded each; its error is their hypotenuse.
    parts = 2 if dtype.kind == "complex" else 1
    form = float_format(dtypes.get("float32") if dtype.kind == "complex" else dtype)
    size = np.abs(reference)
    size = np.where(np.isfinite(size), size, 0.0)
    magnitude = np.where(np.isfinite(magnitude), magnitude, size)
    roundings = steps(count) - (form is float_format(wide))
    # Products that fall below the normal numbers lose absolute precision instead.
    least = float_format(wide).spacing(0.0)
    error = SLACK * roundings * (roundoff(wide) * magnitude + least)
    return parts * (ulp * form.spacing(np.minimum(size + error, form.largest)) + error)


def steps(count: float) -> float:
    """Return how many roundings a sum of ``count`` terms is taken to make one after another: at most `LONGEST`."""
    return max(1, min(count, LONGEST))


def accumulation_dtype(dtype: DType) -> DType:
    """Return what an output of ``dtype`` is accumulated in: float64 for float64, else float32."""
    return dtype if dtype.name == "float64" else dtypes.get("float32")


def roundoff(dtype: DType) -> float:
    """Return the largest relative error of rounding to a floating dtype: half of its epsilon."""
    return 2.0 ** -(float_format(dtype).mantissa + 1)
