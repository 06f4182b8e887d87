"""Creation: full, arange. No tensor comes in; the result is on the device asked for."""

from __future__ import annotations

from math import ceil, isfinite
from typing import Any

import numpy as np

from nbx_registry import dtypes
from nbx_registry.dtypes import DType
from nbx_registry.errors import SignatureError
from nbx_registry.infer import given_shape
from nbx_registry.op import op
from nbx_registry.rounding import integer_range, integers_as_float64, round_to_float
from nbx_registry.signature import Signature
from nbx_registry.spec import MAX_EXTENT, TensorSpec

Array = np.ndarray[Any, np.dtype[Any]]
Number = bool | int | float

DEFAULTS = {"bool": "bool", "int": "int64", "float": "float32"}
"""The dtype that Python numbers of a type make, where none is asked for."""
_HELD = {"bool": ("bool",), "int": ("int", "uint", "float", "complex"), "float": ("float", "complex")}
"""The kinds of dtypes that Python numbers of a type may be held in."""


def infer_full(signature: Signature) -> TensorSpec:
    """Infer the shape from the attribute, the dtype from the other one or from the value."""
    value: Number = signature.attributes["fill_value"]
    kind = type(value).__name__
    dtype: DType = signature.attributes["dtype"] or dtypes.get(DEFAULTS[kind])
    if dtype.kind not in _HELD[kind]:
        raise SignatureError(
            f"fill_value {value} is a Python {kind}, which a tensor of {dtype.name} is not filled with; "
            f"name another dtype= or give another number",
            code="DTYPE",
        )
    _fits("fill_value", value, dtype)
    return TensorSpec(dtype, given_shape(signature.attributes["shape"]))


def _fits(what: str, value: Number, dtype: DType) -> None:
    if dtype.integral:
        low, high = integer_range(dtype)
        if not low <= value <= high:
            raise SignatureError(
                f"{what} {value} is outside the range of {dtype.name}, {low} to {high}; name another dtype=",
                code="ATTRIBUTE",
            )


@op(
    "full@1(*, shape: int[], fill_value: int|float|bool, dtype: dtype? = None) -> T[*S]",
    infer=infer_full,
    exact=True,
)
def full(*, shape: tuple[int, ...], fill_value: Number, dtype: DType | None) -> Array:
    """Make a tensor that holds one value everywhere.

    Parameters
    ----------
    shape : integers
        One integer is a tensor of rank 1.
    fill_value : integer, float or bool
    dtype : dtype, optional
        Left out, int64 for an integer, float32 for a float, bool for a bool.

    Returns
    -------
    ``dtype``, ``shape``
        The value rounded once, to nearest even; beyond the largest number what the dtype overflows to, as `astype`
        has it. On ``device=``, the host unless named.

    Raises
    ------
    SignatureError
        For an extent below 0; for an integer outside the range of an integer dtype; for a value of another kind than
        the dtype: a float in an integer dtype, a bool in any but bool, anything else in bool.

    Notes
    -----
    Python array API standard 2024.12, ``full``; which kinds go together is the standard's rule for scalars beside
    arrays, and float32 for floats this project's choice of the standard's default floating-point dtype.
    """
    target = dtype or dtypes.get(DEFAULTS[type(fill_value).__name__])
    if not target.floating:
        return np.full(shape, fill_value, np.complex128 if target.kind == "complex" else target.numpy)
    return np.full(shape, round_to_float(integers_as_float64(np.asarray(fill_value)), target))


def infer_arange(signature: Signature) -> TensorSpec:
    """Infer the length from the bounds and the step, the dtype from the attribute or from the three."""
    start, stop, step = progression(**{name: signature.attributes[name] for name in ("start", "stop", "step")})
    whole = all(type(number) is int for number in (start, stop, step))
    dtype: DType = signature.attributes["dtype"] or dtypes.get(DEFAULTS["int" if whole else "float"])
    if dtype.kind in ("bool", "complex") or (dtype.integral and not whole):
        given = "bounds or step are floats" if dtype.integral else "it counts in integers and in floating-point numbers"
        raise SignatureError(f"arange in {dtype.name}: {given}; name another dtype=", code="DTYPE")
    count = length(start, stop, step)
    if count:
        for index in (0, count - 1):
            _fits(f"element {index},", start + index * step, dtype)
    return TensorSpec(dtype, (count,))


def progression(start: float, stop: float | None, step: float) -> tuple[float, float, float]:
    """Return first number, end and step: of one bound alone the numbers from 0 up to it."""
    return (0, start, step) if stop is None else (start, stop, step)


def length(start: float, stop: float, step: float) -> int:
    """Return how many numbers there are from ``start`` up to, not including, ``stop``.

    Exact for integers; else ``ceil((stop - start) / step)`` in float64. Raises `SignatureError` where there is no such
    number.
    """
    if not step:
        raise SignatureError("step is 0; a progression that does not move has no length", code="ATTRIBUTE")
    if all(type(number) is int for number in (start, stop, step)):
        count = -((start - stop) // step)
    else:
        steps = (float(stop) - float(start)) / float(step)
        if not all(isfinite(number) for number in (start, stop, step, steps)):
            raise SignatureError(f"from {start} to {stop} by {step} is no finite number of steps", code="ATTRIBUTE")
        count = ceil(steps)
    if count > MAX_EXTENT:
        raise SignatureError(f"from {start} to {stop} by {step} are more than 2**62 steps", code="SHAPE")
    return max(0, int(count))


def magnitude_arange(signature: Signature, *, start: float, stop: float | None, step: float, dtype: Any) -> Array:
    """Return the magnitudes of the two terms."""
    first, _, by = progression(start, stop, step)
    return abs(float(first)) + np.arange(signature.outputs[0].size) * abs(float(by))


@op(
    "arange@1(*, start: int|float, stop: int|float? = None, step: int|float = 1, dtype: dtype? = None) -> N[L]",
    infer=infer_arange,
    flops="2 * L",
    least_flops="L",
    accumulation="6",
    magnitude=magnitude_arange,
)
def arange(*, start: float, stop: float | None, step: float, dtype: DType | None) -> Array:
    """Make the numbers ``start, start + step, start + 2 step, ...`` up to, not including, ``stop``.

    Parameters
    ----------
    start : integer or float
        The end, from 0 on, where ``stop`` is left out.
    stop : integer or float, optional
    step : integer or float
        Below 0 to count down.
    dtype : real dtype, optional
        Left out, int64 where the three are integers, else float32.

    Returns
    -------
    ``dtype`` [L]
        L is ``ceil((stop - start) / step)``, exact for integers, computed in float64 where one of the three is a
        float, and 0 where ``stop`` lies the other way. Element i is ``start + i step``: exact in an integer dtype; in
        a floating one computed in float32 (float64 in float64) from the three in it, so within a few roundings of the
        larger term, then rounded once. On ``device=``, the host unless named.

    Raises
    ------
    SignatureError
        For a step of 0, a bound or step that is not finite, an element outside the range of an integer dtype; for
        floats with an integer dtype; for bool and complex dtypes.

    Notes
    -----
    Python array API standard 2024.12, ``arange``; float32 is this project's choice of the default floating-point dtype.
    The numbers are multiplied out, never added up: no error grows along the sequence.
    """
    first, end, by = progression(start, stop, step)
    values = [first + index * by for index in range(length(first, end, by))]
    if dtype is not None and dtype.floating:
        return np.array(values, np.float64)
    if dtype is None:
        return np.array(values, np.int64 if all(type(n) is int for n in (first, end, by)) else np.float64)
    return np.array(values, dtype.numpy)
