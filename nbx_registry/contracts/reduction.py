"""Reductions: sum."""

from __future__ import annotations

from typing import Any

import numpy as np

from nbx_registry import dtypes
from nbx_registry.cost import Cost, default_cost
from nbx_registry.infer import reduced_axes, reduced_shape, sum_dtype
from nbx_registry.op import op
from nbx_registry.signature import Signature
from nbx_registry.spec import TensorSpec

Array = np.ndarray[Any, np.dtype[Any]]


def infer_sum(signature: Signature) -> TensorSpec:
    """Infer a reduction over ``axis`` in the dtype that sums have."""
    (x,) = signature.operands
    axes = reduced_axes(signature.attributes["axis"], x.rank)
    return TensorSpec(sum_dtype(x.dtype), reduced_shape(x.shape, axes, signature.attributes["keepdims"]))


def cost_sum(signature: Signature) -> Cost:
    """One addition an element; at the least one fewer for each result, an expanded axis counted once."""
    (x,), (out,) = signature.operands, signature.outputs
    return default_cost(signature, flops=x.size, least_flops=max(0, x.distinct - out.size))


def magnitude_sum(signature: Signature, x: Array, *, axis: tuple[int, ...] | None, keepdims: bool) -> Array:
    """Return the sum of the magnitudes."""
    return np.sum(np.abs(x), axis=axis, keepdims=keepdims)


@op(
    "sum@1(x: T1[*X], *, axis: int[]? = None, keepdims: bool = False) -> T2[*Y]",
    infer=infer_sum,
    cost=cost_sum,
    accumulation="cdiv(x.size, max(out.size, 1))",
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
        A sum of no elements is 0. A kernel's order of summation is its own.

    Raises
    ------
    SignatureError
        For an axis that ``x`` lacks, or one given twice.

    Notes
    -----
    Python array API standard 2024.12, ``sum``; the dtypes of integer sums are this project's choice.
    """
    if x.dtype.kind in "fc":
        return np.sum(x, axis=axis, keepdims=keepdims)
    wide = sum_dtype(dtypes.of_numpy(x.dtype)).numpy
    return np.sum(x.astype(wide), axis=axis, keepdims=keepdims)
