"""Reductions: NumPy's own, told what to accumulate in, and kept from adding float32 one by one for long."""

from __future__ import annotations

from collections.abc import Callable
from math import prod as product
from typing import Any

import numpy as np

from nbx_registry.host.kernels.blocks import BLOCK, Array, as_matrices, working
from nbx_registry.infer import reduced_axes
from nbx_registry.launch import BindContext, Launch
from nbx_registry.signature import Signature
from nbx_registry.spec import TensorSpec

FEW = 4096
"""Elements up to which narrow dtypes are compared as they are: the same answer, sooner than by way of float32."""
ONE_BY_ONE = 512
"""So many elements are added one after another in float32 before float64 goes on."""

LARGE_PART = 1 << 18
"""Elements of a part from which on a call of its own is nothing; NumPy converts narrow dtypes faster in such calls."""


def sum(context: BindContext) -> Launch:
    """Bind numpy.add.reduce over the axes, in float32 or wider (float64, complex64), or 64-bit integers."""
    signature = context.signature
    (x,), (result,) = signature.operands, signature.outputs
    wide = _accumulator(result)
    add = _adder(x, _axes(signature), wide, signature.attributes["keepdims"])

    def run(array: Array, out: Array) -> None:
        if out.dtype == wide:
            add(array, out)
        else:
            # Partial results given to a narrow output would be rounded to it.
            out[...] = np.asarray(add(array, None), wide)

    return Launch(function=run, args=("x", "out"))


def mean(context: BindContext) -> Launch:
    """Bind the sum, in float64 for integers, divided by the number of its terms."""
    signature = context.signature
    (x,), (result,) = signature.operands, signature.outputs
    axes = _axes(signature)
    wide = _accumulator(result) if x.dtype.kind in ("float", "complex") else np.dtype(np.float64)
    add = _adder(x, axes, wide, signature.attributes["keepdims"])
    count = float(product(x.shape[axis] for axis in axes))

    def run(array: Array, out: Array) -> None:
        if out.dtype == wide:
            np.divide(add(array, out), wide.type(count), out)
        else:
            out[...] = np.divide(add(array, None), count).astype(np.float32)

    return Launch(function=run, args=("x", "out"))


def prod(context: BindContext) -> Launch:
    """Bind numpy.multiply.reduce over the axes, in the dtypes of `sum`."""
    return _reduce(context, np.multiply.reduce, _accumulator(context.signature.outputs[0]))


def max(context: BindContext) -> Launch:
    """Bind numpy.maximum.reduce over the axes: narrow floating dtypes in float32, which NumPy compares faster."""
    (result,) = context.signature.outputs
    dtype = _accumulator(result) if result.dtype.bits >= 8 or result.dtype.floating else np.dtype(np.int8)
    return _reduce(context, np.maximum.reduce, dtype)


def argmax(context: BindContext) -> Launch:
    """Bind numpy.argmax: narrow floating dtypes some rows at a time, in float32."""
    signature = context.signature
    (x,) = signature.operands
    axis, keepdims = signature.attributes["axis"], signature.attributes["keepdims"]
    place = x.rank - 1 if axis is None else axis % x.rank

    def run(array: Array, out: Array) -> None:
        if out.size:
            array.argmax(axis, out, keepdims=keepdims)

    def run_wide(array: Array, out: Array) -> None:
        if out.size == 0:
            return
        if axis is None:
            rows, found = array.reshape(1, -1), out.reshape(1, 1)
        else:
            rows = np.moveaxis(array, place, -1)
            found = np.moveaxis(out, place, -1) if keepdims else out[..., None]
        if rows.ndim == 1:
            rows, found = rows[None], found[None]
        step = -(-BLOCK // rows.shape[-1])
        for part, target in as_matrices(rows, found):
            for start in range(0, len(part), step):
                piece = part[start : start + step].astype(np.float32)
                target[start : start + step, 0] = np.argmax(piece, -1)

    narrow = x.dtype.floating and x.dtype.bits < 32 and x.size > FEW
    # Long rows of bfloat16 are compared sooner than converted, whole.
    own = x.dtype.name == "bfloat16" and (x.size if axis is None else x.shape[place]) > BLOCK
    return Launch(function=run_wide if narrow and not own else run, args=("x", "out"))


def _axes(signature: Signature) -> tuple[int, ...]:
    return reduced_axes(signature.attributes["axis"], signature.operands[0].rank)


def _accumulator(result: TensorSpec) -> np.dtype[Any]:
    """Return the dtype to accumulate a result in: float32 for narrower floating ones, else its own."""
    return working(result.dtype) if result.dtype.floating else result.dtype.numpy


def _reduce(context: BindContext, reduce: Any, dtype: np.dtype[Any]) -> Launch:
    """Bind a ufunc's reduction in ``dtype``, rounded once to the output's."""
    signature = context.signature
    axes, keepdims = _axes(signature), signature.attributes["keepdims"]

    def run(array: Array, out: Array) -> None:
        # Without results there may be no identity to start from.
        if out.size == 0:
            return
        if out.dtype == dtype:
            reduce(array, axes, dtype, out, keepdims)
        else:
            out[...] = np.asarray(reduce(array, axes, dtype, None, keepdims), dtype)

    return Launch(function=run, args=("x", "out"))


def _adder(x: TensorSpec, axes: tuple[int, ...], dtype: np.dtype[Any], keepdims: bool) -> Callable[..., Any]:
    """Return ``add(array, out)``: the sum over ``axes``, into ``out`` or, for None, anew, in ``dtype`` or wider.

    NumPy adds pairwise along contiguous trailing axes, and one by one across others, where float32 would lose count.
    """
    reduce: Any = np.add.reduce

    def add_plainly(array: Array, out: Array | None) -> Any:
        return reduce(array, axes, dtype, out, keepdims)

    across = [x.shape[axis] for axis in axes]
    while x.contiguous and across and axes[len(across) - 1] == x.rank - 1 - len(axes) + len(across):
        across.pop()
    if dtype.name not in ("float32", "complex64") or product(across) <= ONE_BY_ONE:
        return add_plainly
    wider = np.dtype(np.float64 if dtype.name == "float32" else np.complex128)
    first, extent = axes[0], x.shape[axes[0]]
    step = ONE_BY_ONE * extent // product(across)
    # Parts of fewer elements cost more to begin than float64 takes.
    worthwhile = step > 0 and step * (x.size // extent) >= BLOCK

    # Small parts in one call, along an axis of their own before all others that are reduced.
    small = step * (x.size // extent) < LARGE_PART
    count = extent // step if worthwhile else 0
    whole = count * step
    before = (slice(None),) * first
    split = (*x.shape[:first], count, step, *x.shape[first + 1 :])
    inner = tuple(axis + 1 for axis in axes)

    def total(array: Array) -> Any:
        if not worthwhile:
            return reduce(array, axes, wider, None, keepdims)
        if not small:
            found: Any = 0
            for start in range(0, extent, step):
                part = array[(*before, slice(start, start + step))]
                found = found + np.asarray(reduce(part, axes, dtype, None, keepdims), wider)
            return found
        # Splitting an axis needs no copy.
        parts = np.reshape(array[(*before, slice(whole))], split, copy=False)
        found = reduce(reduce(parts, inner, dtype, None, keepdims), first, wider)
        if whole < extent:
            found = found + reduce(array[(*before, slice(whole, None))], axes, dtype, None, keepdims)
        return found

    def add(array: Array, out: Array | None) -> Any:
        found = total(array)
        if out is None:
            return found
        np.copyto(out, found, casting="same_kind")
        return out

    return add
