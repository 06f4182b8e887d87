"""Normalization: softmax and layer_norm, some rows at a time: all passes but the first find them in the cache."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

import numpy as np

from nbx_registry.host.kernels.blocks import BLOCK, Array, as_matrices, working
from nbx_registry.kernel import BindContext, Launch


def softmax(context: BindContext) -> Launch:
    """Bind softmax along an axis."""
    (spec,) = context.signature.operands
    axis = context.signature.attributes["axis"]
    dtype = working(spec.dtype)

    def run(x: Array, out: Array) -> None:
        if x.size == 0:
            return
        with np.errstate(all="ignore"):
            for rows, target in as_matrices(x.swapaxes(axis, -1), out.swapaxes(axis, -1)):
                _softmax_rows(rows, target, dtype)

    return Launch(function=run, args=("x", "out"))


def _softmax_rows(x: Array, out: Array, dtype: np.dtype[Any]) -> None:
    for part, y, target in _row_blocks(x, out, dtype):
        np.subtract(part, np.maximum.reduce(part, axis=1, keepdims=True), y)
        np.exp(y, y)
        np.divide(y, np.add.reduce(y, axis=1, keepdims=True), y)
        if target is not None:
            np.copyto(target, y, casting="unsafe")


def layer_norm(context: BindContext) -> Launch:
    """Bind layer_norm over the last axis: mean and deviations, then the mean square of the deviations."""
    signature = context.signature
    x, weight, bias = signature.operands
    dtype = working(x.dtype)
    eps = dtype.type(signature.attributes["eps"])
    scaled, shifted = weight is not None, bias is not None

    def run(array: Array, *rest: Array) -> None:
        if array.size == 0:
            return
        *parameters, out = rest
        wide = [parameter.astype(dtype, copy=False) for parameter in parameters]
        scale, shift = (wide[0] if scaled else None), (wide[-1] if shifted else None)
        with np.errstate(all="ignore"):
            for rows, target in as_matrices(array, out):
                _normalise_rows(rows, target, scale, shift, eps, dtype)

    return Launch(function=run, args=signature.names)


def _normalise_rows(
    x: Array,
    out: Array,
    weight: Array | None,
    bias: Array | None,
    eps: np.floating[Any],
    dtype: np.dtype[Any],
) -> None:
    count = dtype.type(x.shape[1])
    squares = np.empty((_rows_at_once(x), x.shape[1]), dtype)
    for part, y, target in _row_blocks(x, out, dtype):
        mean = np.add.reduce(part, axis=1, keepdims=True)
        np.subtract(part, np.divide(mean, count, mean), y)
        # A mean far from zero was rounded by more than the deviations can bear; their own mean is what it was off by.
        mean = np.add.reduce(y, axis=1, keepdims=True)
        np.subtract(y, np.divide(mean, count, mean), y)
        square = np.multiply(y, y, squares[: len(y)])
        deviation = np.add.reduce(square, axis=1, keepdims=True)
        np.divide(deviation, count, deviation)
        np.sqrt(np.add(deviation, eps, deviation), deviation)
        np.multiply(y, np.divide(dtype.type(1), deviation, deviation), y)
        if weight is not None:
            np.multiply(y, weight, y)
        if bias is not None:
            np.add(y, bias, y)
        if target is not None:
            np.copyto(target, y, casting="unsafe")


def _rows_at_once(x: Array) -> int:
    return max(1, min(len(x), BLOCK // x.shape[1]))


def _row_blocks(x: Array, out: Array, dtype: np.dtype[Any]) -> Generator[tuple[Array, Array, Array | None], None, None]:
    """Yield ``(part, y, target)``: rows of x in ``dtype``; where to compute, contiguous; where to copy it, or None.

    ``part`` may be ``y`` itself. ``target`` is None where ``y`` is already the output's own memory.
    """
    step = _rows_at_once(x)
    itemsize = dtype.itemsize
    direct = out.dtype == dtype and out.strides[1] == itemsize
    readable = x.dtype == dtype and x.strides[1] == itemsize
    scratch = None if direct else np.empty((step, x.shape[1]), dtype)
    for start in range(0, len(x), step):
        part, target = x[start : start + step], out[start : start + step]
        y = target if scratch is None else scratch[: len(part)]
        if not readable:
            np.copyto(y, part)
            part = y
        yield part, y, (None if scratch is None else target)
