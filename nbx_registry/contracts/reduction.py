"""Reductions: sum, mean, prod, max, argmax."""

from __future__ import annotations

import builtins
from typing import Any

import numpy as np

from nbx_registry import dtypes
from nbx_registry.cost import Cost, default_cost
from nbx_registry.dtypes import DType
from nbx_registry.errors import SignatureError
from nbx_registry.infer import reduced_axes, reduced_shape, sum_dtype
from nbx_registry.op import op
from nbx_registry.rounding import float_format
from nbx_registry.signature import Signature
from nbx_registry.spec import TensorSpec
from nbx_registry.tolerance import accumulation_dtype, steps

Array = np.ndarray[Any, np.dtype[Any]]

TERMS = "cdiv(x.size, max(out.size, 1))"
"""How many elements stand behind one result."""


def infer_sum(signature: Signature) -> TensorSpec:
    """Infer a reduction over ``axis`` in the dtype that sums have."""
    (x,) = signature.operands
    return _reduced(signature, sum_dtype(x.dtype))


def cost_sum(signature: Signature) -> Cost:
    """One operation an element; at the least one fewer for each result, an expanded axis counted once."""
    (x,), (out,) = signature.operands, signature.outputs
    return default_cost(signature, flops=x.size, least_flops=builtins.max(0, x.distinct - out.size))


def magnitude_sum(signature: Signature, x: Array, *, axis: tuple[int, ...] | None, keepdims: bool) -> Array:
    """Return the sum of the magnitudes, or 0 where nothing is rounded."""
    size = np.sum(np.abs(x), axis=axis, keepdims=keepdims)
    return np.where(adds_exactly(x, axis, keepdims, signature.outputs[0].dtype), 0.0, size)


def adds_exactly(x: Array, axis: tuple[int, ...] | None, keepdims: bool, dtype: DType) -> Array:
    """Return which sums an honest kernel of ``dtype`` adds up without rounding, whatever its order.

    Those of multiples of a power of two whose magnitudes add up to no more of it than the significand holds: every
    partial sum is such a multiple too. (Of complex sums none are taken to be.)
    """
    if x.dtype.kind == "c":
        return np.zeros((), np.bool_)
    fraction, exponent = np.frexp(x.astype(np.float64))
    significand = np.ldexp(fraction, 53).astype(np.int64)
    last_bit = exponent - 54 + np.frexp((significand & -significand).astype(np.float64))[1]
    unit = np.min(np.where(x == 0, 1023, last_bit), axis=axis, keepdims=keepdims, initial=1023)
    bits = float_format(accumulation_dtype(dtype)).mantissa + 1
    return np.ldexp(np.sum(np.abs(x), axis=axis, keepdims=keepdims, dtype=np.float64), -unit) <= 2.0**bits


@op(
    "sum@1(x: T1[*X], *, axis: int[]? = None, keepdims: bool = False) -> T2[*Y]",
    infer=infer_sum,
    cost=cost_sum,
    accumulation=TERMS,
    magnitude=magnitude_sum,
)
def sum(x: Array, *, axis: tuple[int, ...] | None, keepdims: bool) -> Array:
    """Add up the elements along one axis, several, or all.

    Parameters
    ----------
    x : any dtype and shape
    axis : int, integers, or None
        Negative ones count from the end. None adds up everything, an empty tuple nothing.
    keepdims : bool
        Keep the axes added up over, with extent 1.

    Returns
    -------
    the shape of ``x`` without those axes
        Integers and booleans give int64, unsigned ones uint64, exactly (modulo 2^64). Floating and complex numbers keep
        their dtype; they are accumulated in float32 (float64 in float64), partial results included, and rounded once.
        A sum of no elements is 0. A kernel's order of summation is its own, and fixed: the same tensor gives the same
        bits again.

    Raises
    ------
    SignatureError
        For an axis that ``x`` lacks, or one given twice.

    Notes
    -----
    Python array API standard 2024.12, ``sum``; the dtypes of integer sums are this project's choice.
    """
    return np.sum(_wide(x), axis=axis, keepdims=keepdims)


def infer_mean(signature: Signature) -> TensorSpec:
    """Infer a reduction over ``axis`` that keeps floating and complex dtypes; float32 for others."""
    (x,) = signature.operands
    return _reduced(signature, x.dtype if x.dtype.kind in ("float", "complex") else dtypes.get("float32"))


def cost_mean(signature: Signature) -> Cost:
    """One operation an element, as a sum, and one for each result; at the least one for each element that differs."""
    (x,), (out,) = signature.operands, signature.outputs
    return default_cost(signature, flops=x.size + out.size, least_flops=x.distinct)


def magnitude_mean(signature: Signature, x: Array, *, axis: tuple[int, ...] | None, keepdims: bool) -> Array:
    """Return the mean magnitude; where nothing but the division is rounded, what that may be off, the mean's."""
    wide = x if x.dtype.kind in "fc" else x.astype(np.float64)
    size, result = _average(np.abs(wide), axis, keepdims), np.abs(_average(wide, axis, keepdims))
    exact = adds_exactly(wide, axis, keepdims, signature.outputs[0].dtype)
    return np.where(exact, result * (3 / steps(x.size // builtins.max(result.size, 1))), size)


@op(
    "mean@1(x: T1[*X], *, axis: int[]? = None, keepdims: bool = False) -> T2[*Y]",
    infer=infer_mean,
    cost=cost_mean,
    accumulation=f"{TERMS} + 2",
    magnitude=magnitude_mean,
)
def mean(x: Array, *, axis: tuple[int, ...] | None, keepdims: bool) -> Array:
    """Average the elements along one axis, several, or all.

    Parameters
    ----------
    x : any dtype and shape
    axis : int, integers, or None
        Negative ones count from the end. None averages everything, an empty tuple nothing.
    keepdims : bool
        Keep the axes averaged over, with extent 1.

    Returns
    -------
    the shape of ``x`` without those axes
        The sum, then divided by the number of elements. Floating and complex numbers keep their dtype; they are
        accumulated in float32 (float64 in float64), partial results included, and rounded once; what a sum beyond
        float32 leaves is open. Integers and booleans give float32. The mean of no elements is NaN. A kernel's order of
        summation is its own, and fixed.

    Raises
    ------
    SignatureError
        For an axis that ``x`` lacks, or one given twice.

    Notes
    -----
    Python array API standard 2024.12, ``mean``; that integers have a mean, and its dtype, are this project's choice.
    """
    # Python's integers, whose sums and quotients are exact.
    return _average(x if x.dtype.kind in "fc" else _wide(x).astype(object), axis, keepdims)


@op(
    "prod@1(x: T1[*X], *, axis: int[]? = None, keepdims: bool = False) -> T2[*Y]",
    infer=infer_sum,
    cost=cost_sum,
    accumulation=TERMS,
)
def prod(x: Array, *, axis: tuple[int, ...] | None, keepdims: bool) -> Array:
    """Multiply the elements along one axis, several, or all.

    Parameters
    ----------
    x : any dtype and shape
    axis : int, integers, or None
        Negative ones count from the end. None multiplies everything, an empty tuple nothing.
    keepdims : bool
        Keep the axes multiplied over, with extent 1.

    Returns
    -------
    the shape of ``x`` without those axes
        Integers and booleans give int64, unsigned ones uint64, exactly (modulo 2^64). Floating and complex numbers keep
        their dtype; they are multiplied in float32 (float64 in float64), partial products included, and rounded once:
        float16 partial products may pass its largest number where the whole does not. Partial products beyond float32,
        or below its normal numbers, are a matter of the order, which is open. A product of no elements is 1.
        A kernel's order is its own, and fixed: the same tensor gives the same bits again.

    Raises
    ------
    SignatureError
        For an axis that ``x`` lacks, or one given twice.

    Notes
    -----
    Python array API standard 2024.12, ``prod``; the dtypes of integer products are this project's choice.
    """
    return np.prod(_wide(x), axis=axis, keepdims=keepdims)


def infer_max(signature: Signature) -> TensorSpec:
    """Infer a reduction over ``axis`` that keeps the dtype and has something to choose from."""
    (x,) = signature.operands
    return _chosen(signature, x.dtype)


@op(
    "max@1(x: T[*X], *, axis: int[]? = None, keepdims: bool = False) -> T[*Y]",
    require="x.dtype != complex64",
    infer=infer_max,
    cost=cost_sum,
    ulp=0,
    signed_zeros=False,
)
def max(x: Array, *, axis: tuple[int, ...] | None, keepdims: bool) -> Array:
    """Find the largest element along one axis, several, or all.

    Parameters
    ----------
    x : any dtype but complex, any shape
    axis : int, integers, or None
        Negative ones count from the end. None looks at everything, an empty tuple at each element alone.
    keepdims : bool
        Keep the axes reduced over, with extent 1.

    Returns
    -------
    the dtype of ``x``, its shape without those axes
        One of the elements, exactly. NaN wherever there is one. Which zero comes of zeros of both signs is open.

    Raises
    ------
    SignatureError
        For an axis that ``x`` lacks, or one given twice; for the largest of no elements, which is not defined (a result
        without elements is none).

    Notes
    -----
    Python array API standard 2024.12, ``max``.
    """
    if x.size == 0:
        return np.empty(reduced_shape(x.shape, reduced_axes(axis, x.ndim), keepdims), x.dtype)
    return np.max(_wide(x), axis=axis, keepdims=keepdims)


def infer_argmax(signature: Signature) -> TensorSpec:
    """Infer an index for each result of a reduction over ``axis`` that has something to choose from."""
    return _chosen(signature, dtypes.get("int64"))


@op(
    "argmax@1(x: T[*X], *, axis: int? = None, keepdims: bool = False) -> int64[*Y]",
    require="x.dtype != complex64",
    infer=infer_argmax,
    cost=cost_sum,
)
def argmax(x: Array, *, axis: int | None, keepdims: bool) -> Array:
    """Find where the largest element is, along one axis or in all.

    Parameters
    ----------
    x : any dtype but complex, any shape
    axis : int or None
        Negative ones count from the end. None looks at everything.
    keepdims : bool
        Keep the axes reduced over, with extent 1.

    Returns
    -------
    int64, the shape of ``x`` without the axis
        Indices along the axis; for None one index into the elements in row-major order. Of equal elements the first is
        named (zeros of both signs are equal). NaN counts as the largest: where there is one, the first is named.

    Raises
    ------
    SignatureError
        For an axis that ``x`` lacks; for the largest of no elements, which is not defined (a result without elements is
        none).

    Notes
    -----
    Python array API standard 2024.12, ``argmax``; the place of NaN is NumPy's.
    """
    if x.size == 0:
        return np.empty(reduced_shape(x.shape, reduced_axes(axis, x.ndim), keepdims), np.int64)
    return np.asarray(np.argmax(_wide(x), axis=axis, keepdims=keepdims))


def _reduced(signature: Signature, dtype: DType) -> TensorSpec:
    (x,) = signature.operands
    axes = reduced_axes(signature.attributes["axis"], x.rank)
    return TensorSpec(dtype, reduced_shape(x.shape, axes, signature.attributes["keepdims"]))


def _chosen(signature: Signature, dtype: DType) -> TensorSpec:
    (x,), op = signature.operands, signature.op.name
    out = _reduced(signature, dtype)
    if x.size == 0 and out.size:
        raise SignatureError(
            f"{op}: x is {x}: there is nothing along axis={signature.attributes['axis']} to choose from, and the {op} "
            f"of nothing is not defined; leave the call out where x has no elements",
            code="SHAPE",
        )
    return out


def _average(x: Array, axis: tuple[int, ...] | None, keepdims: bool) -> Array:
    total: Array = np.asarray(np.add.reduce(x, axis=axis, keepdims=keepdims))
    count = x.size // total.size if total.size else 1
    # numpy.mean warns of nothing by nothing, and Python refuses it.
    return total / count if count else total * np.nan


def _wide(x: Array) -> Array:
    """Return integers and booleans in the 64 bits that sums have, others as they are."""
    return x if x.dtype.kind in "fc" else x.astype(sum_dtype(dtypes.of_numpy(x.dtype)).numpy)
