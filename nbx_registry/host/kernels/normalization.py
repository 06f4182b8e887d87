"""Normalization, some rows at a time: all passes but the first find them in the cache."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

import numpy as np

from nbx_registry.host.kernels.blocks import BLOCK, Array, add_down, working
from nbx_registry.launch import BindContext, Launch

AT_ONCE = 4 * BLOCK
"""Elements of the rows of a block: passes are few, so that what is read and written may fill a second-level cache."""
LEAST_COLUMNS = 512
"""Of a part of a plane: shorter runs of memory take longer."""
LONGEST_DOT = 8192
"""Up to so many elements OpenBLAS takes a dot product on one thread: its order does not depend on their number."""


def softmax(context: BindContext) -> Launch:
    """Bind softmax along an axis: along the last one some rows at a time, along others some columns."""
    (spec,) = context.signature.operands
    axis = context.signature.attributes["axis"]
    dtype = working(spec.dtype)

    def run(x: Array, out: Array) -> None:
        for part, y, target in _row_blocks(x, out, dtype):
            np.subtract(part, np.maximum.reduce(part, -1, keepdims=True), y)
            np.exp(y, y)
            np.divide(y, np.add.reduce(y, -1, keepdims=True), y)
            if target is not None:
                np.copyto(target, y, casting="unsafe")

    def run_down(x: Array, out: Array) -> None:
        for part, target in _column_blocks(np.moveaxis(x, axis, -2), np.moveaxis(out, axis, -2)):
            y = part.astype(dtype, "C")
            np.subtract(y, np.maximum.reduce(y, -2, keepdims=True), y)
            np.exp(y, y)
            np.divide(y, add_down(y), y)
            np.copyto(target, y[..., : target.shape[-1]], casting="unsafe")

    return Launch(function=run if axis in (-1, spec.rank - 1) else run_down, args=("x", "out"))


def layer_norm(context: BindContext) -> Launch:
    """Bind layer_norm over the last axis: mean and deviations, then the mean square of the deviations."""
    signature = context.signature
    x, weight, bias = signature.operands
    dtype = working(x.dtype)
    eps, count = dtype.type(signature.attributes["eps"]), dtype.type(x.shape[-1])
    scaled, shifted = weight is not None, bias is not None
    mean_square = _mean_square_by_dot if x.shape[-1] <= LONGEST_DOT else _mean_square

    def run(x: Array, *rest: Array) -> None:
        *parameters, out = rest
        scale = parameters[0].astype(dtype, copy=False) if scaled else None
        shift = parameters[-1].astype(dtype, copy=False) if shifted else None
        for part, y, target in _row_blocks(x, out, dtype):
            mean = np.add.reduce(part, -1, keepdims=True)
            np.subtract(part, np.divide(mean, count, mean), y)
            deviation = mean_square(y, count)
            np.sqrt(np.add(deviation, eps, deviation), deviation)
            np.multiply(y, np.divide(dtype.type(1), deviation, deviation), y)
            if scale is not None:
                np.multiply(y, scale, y)
            if shift is not None:
                np.add(y, shift, y)
            if target is not None:
                np.copyto(target, y, casting="unsafe")

    return Launch(function=run, args=signature.names)


def rms_norm(context: BindContext) -> Launch:
    """Bind rms_norm over the last axis."""
    signature = context.signature
    x, weight = signature.operands
    dtype = working(x.dtype)
    eps, count = dtype.type(signature.attributes["eps"]), dtype.type(x.shape[-1])
    mean_square = _mean_square_by_dot if x.shape[-1] <= LONGEST_DOT else _mean_square

    def run(x: Array, *rest: Array) -> None:
        *parameters, out = rest
        scale = parameters[0].astype(dtype, copy=False) if weight is not None else None
        for part, y, target in _row_blocks(x, out, dtype):
            root = mean_square(part, count)
            np.sqrt(np.add(root, eps, root), root)
            np.multiply(part, np.divide(dtype.type(1), root, root), y)
            if scale is not None:
                np.multiply(y, scale, y)
            if target is not None:
                np.copyto(target, y, casting="unsafe")

    return Launch(function=run, args=signature.names)


def group_norm(context: BindContext) -> Launch:
    """Bind group_norm: a group is a row, as in `layer_norm`; its channels are scaled and shifted one by one."""
    signature = context.signature
    x, weight, bias = signature.operands
    groups, length = signature.attributes["groups"], signature.axes["M"]
    dtype = working(x.dtype)
    eps, count = dtype.type(signature.attributes["eps"]), dtype.type(length)
    channels = signature.axes["C"] // groups
    rows = signature.axes["N"] * groups
    scaled, shifted = weight is not None, bias is not None
    mean_square = _mean_square_by_dot if length <= LONGEST_DOT else _mean_square

    def run(x: Array, *rest: Array) -> None:
        *parameters, out = rest
        if out.size == 0:
            return
        # [groups, channels of a group, 1]
        wide = [p.astype(dtype, copy=False).reshape(groups, channels, 1) for p in parameters]
        source = x.reshape(rows, length)
        found = out if out.flags.c_contiguous else np.empty(out.shape, out.dtype)
        start = 0
        for part, y, target in _row_blocks(source, found.reshape(rows, length), dtype):
            mean = np.add.reduce(part, -1, keepdims=True)
            np.subtract(part, np.divide(mean, count, mean), y)
            deviation = mean_square(y, count)
            np.sqrt(np.add(deviation, eps, deviation), deviation)
            np.divide(dtype.type(1), deviation, deviation)
            each = y.reshape(-1, channels, length // channels)
            group = np.arange(start, start + len(each)) % groups
            start += len(each)
            scale = deviation.reshape(-1, 1, 1)
            np.multiply(each, scale * wide[0][group] if scaled else scale, each)
            if shifted:
                np.add(each, wide[-1][group], each)
            if target is not None:
                np.copyto(target, y, casting="unsafe")
        if found is not out:
            np.copyto(out, found)

    return Launch(function=run, args=signature.names)


def _mean_square_by_dot(y: Array, count: Any) -> Array:
    square = np.asarray(np.vecdot(y, y))[..., None]
    return np.divide(square, count, square)


def _mean_square(y: Array, count: Any) -> Array:
    square = np.add.reduce(np.square(y), -1, keepdims=True)
    return np.divide(square, count, square)


def _row_blocks(x: Array, out: Array, dtype: np.dtype[Any]) -> Generator[tuple[Array, Array, Array | None], None, None]:
    """Yield ``(part, y, target)``: rows of x in ``dtype``; where to compute; where to copy that, or None.

    Rows of ``part`` and ``y``, which may be the same, are contiguous, so that what a row gives depends on nothing else.
    ``target`` is None where ``y`` is the output's own memory.
    """
    if x.size == 0:
        return
    itemsize = dtype.itemsize
    readable = x.dtype == dtype and x.strides[-1] == itemsize
    direct = out.dtype == dtype and out.strides[-1] == itemsize
    for part, target in _slabs(x, out, AT_ONCE):
        y = target if direct else np.empty(part.shape, dtype)
        if readable:
            yield part, y, None if direct else target
        else:
            np.copyto(y, part)
            yield y, y, None if direct else target


def _column_blocks(x: Array, out: Array) -> Generator[tuple[Array, Array], None, None]:
    """Yield parts [..., n, columns] of arrays of at least two axes; of x two columns at the least.

    NumPy adds a single column up pairwise, several row after row: what a column gives depends on nothing else.
    """
    if x.size == 0:
        return
    for plane, target in _slabs(x, out, AT_ONCE, 2):
        rows, width = plane.shape[-2:]
        columns = max(LEAST_COLUMNS, AT_ONCE // rows) if plane.ndim == 2 else width
        parts = -(-width // columns)
        for part in range(parts):
            here = slice(width * part // parts, width * (part + 1) // parts)
            block = plane[..., here]
            yield block if block.shape[-1] > 1 else np.broadcast_to(block, (*block.shape[:-1], 2)), target[..., here]


def _slabs(x: Array, out: Array, block: int, rank: int = 1) -> Generator[tuple[Array, Array], None, None]:
    """Cut arrays along their leading axes into parts of at most ``block`` elements, or single ones of ``rank`` axes."""
    if x.size <= block or x.ndim == rank:
        yield x, out
        return
    each = x.size // len(x)
    if each > block:
        for index in range(len(x)):
            yield from _slabs(x[index], out[index], block, rank)
    else:
        step = block // each
        for start in range(0, len(x), step):
            yield x[start : start + step], out[start : start + step]
