"""Convolution: depthwise as shifted products over blocks of channels; conv2d as products by BLAS over its windows."""

from __future__ import annotations

from collections.abc import Generator
from math import prod
from typing import Any, NamedTuple

import numpy as np
from numpy.lib.stride_tricks import as_strided

from nbx_registry.host.kernels.blocks import BLOCK, Array, matrices, working
from nbx_registry.launch import BindContext, Launch
from nbx_registry.signature import Signature

WINDOWS = 1 << 20
"""Elements of windows laid out for BLAS at a time; more only where a single window holds more."""
FEW = 128
"""Outputs of an image below which BLAS does better with several images in one product."""


class _Window(NamedTuple):
    """How a window moves, down and along."""

    taps: tuple[int, int]
    stride: tuple[int, int]
    padding: tuple[int, int]
    dilation: tuple[int, int]


def _window(signature: Signature) -> _Window:
    given = signature.attributes
    taps = signature.axes["KH"], signature.axes["KW"]
    return _Window(taps, given["stride"], given["padding"], given["dilation"])


def _tiles(rows: int, columns: int, height: int, width: int) -> Generator[tuple[int, int, int, int], None, None]:
    """Yield ``(row, column, rows, columns)``: where each part of an image begins, and how large it is."""
    for row in range(0, rows, height):
        for column in range(0, columns, width):
            yield row, column, min(height, rows - row), min(width, columns - column)


def _copy_places(x: Array, target: Array, start: tuple[int, int], step: tuple[int, int]) -> None:
    """Copy x[..., H, W] from place ``start`` on, every ``step``-th; where there is no input the target stays."""
    places: list[slice] = []
    filled: list[slice] = []
    for first, by, extent, wanted in zip(start, step, x.shape[-2:], target.shape[-2:], strict=True):
        skipped = max(0, -(first // by))
        first += skipped * by
        count = max(0, min(wanted - skipped, -((first - extent) // by)))
        places.append(slice(first, first + count * by, by))
        filled.append(slice(skipped, skipped + count))
    np.copyto(target[..., filled[0], filled[1]], x[..., places[0], places[1]], casting="unsafe")


# depthwise_conv2d -----------------------------------------------------------------------------------------------------


def depthwise_conv2d(context: BindContext) -> Launch:
    """Bind the sum of shifted products, tap after tap, over blocks of channels and parts of the image.

    The padded input of a block is laid out by the phases that a stride sees it in. So every tap reads one run of memory
    a channel, whatever the stride, over the ends of rows: what is computed there is left behind.
    """
    signature = context.signature
    x, _, bias = signature.operands
    (out,) = signature.outputs
    window = _window(signature)
    dtype = working(x.dtype)
    # Along each axis tap i is in phase (i dilation) mod stride, so many steps on.
    down, along = (
        [divmod(i * window.dilation[axis], window.stride[axis]) for i in range(window.taps[axis])] for axis in (0, 1)
    )
    rows_out, columns_out = out.shape[2:]
    columns_at_once = max(1, min(columns_out, BLOCK))
    pitch = columns_at_once + along[-1][0]
    rows_at_once = max(1, min(rows_out, BLOCK // pitch))
    channels = max(1, min(x.shape[1], BLOCK // (rows_at_once * pitch)))
    phases = [(p, q) for p in dict.fromkeys(p for _, p in down) for q in dict.fromkeys(q for _, q in along)]
    # The last tap's run ends in the row after its last one.
    room = (len(phases), rows_at_once + down[-1][0] + 1, pitch)
    taps = [
        (i, j, phases.index((p, q)), row * pitch + column)
        for i, (row, p) in enumerate(down)
        for j, (column, q) in enumerate(along)
    ]
    given = bias is not None

    def run(x: Array, w: Array, *rest: Array) -> None:
        out = rest[-1]
        if out.size == 0:
            return
        filters = w[:, 0].astype(dtype)
        shift = rest[0].astype(dtype)[:, None] if given else None
        padded = np.empty((channels, *room), dtype)
        sums, products = np.empty((2, channels, rows_at_once * pitch), dtype)
        with np.errstate(all="ignore"):
            for row, column, rows, columns in _tiles(rows_out, columns_out, rows_at_once, columns_at_once):
                padded[...] = 0
                corner = [
                    at * by - before
                    for at, by, before in zip((row, column), window.stride, window.padding, strict=True)
                ]
                for n in range(len(x)):
                    for c in range(0, x.shape[1], channels):
                        part = slice(c, c + channels)
                        source, target = x[n, part], out[n, part, row : row + rows, column : column + columns]
                        count = len(source)
                        for number, (p, q) in enumerate(phases):
                            _copy_places(source, padded[:count, number], (corner[0] + p, corner[1] + q), window.stride)
                        runs = padded[:count].reshape(count, len(phases), -1)
                        total, product = sums[:count, : rows * pitch], products[:count, : rows * pitch]
                        for number, (i, j, phase, start) in enumerate(taps):
                            read = runs[:, phase, start : start + rows * pitch]
                            np.multiply(read, filters[part, i, j, None], product if number else total)
                            if number:
                                np.add(total, product, total)
                        if shift is not None:
                            np.add(total, shift[part], total)
                        np.copyto(target, total.reshape(count, rows, pitch)[:, :, :columns], casting="unsafe")

    return Launch(function=run, args=signature.names)


# conv2d ---------------------------------------------------------------------------------------------------------------


def conv2d(context: BindContext) -> Launch:
    """Bind products of the filters with windows laid out beside one another, a bounded number at a time.

    As many whole images and groups at once as fit, else parts of one image.
    """
    signature = context.signature
    x, w, bias = signature.operands
    (out,) = signature.outputs
    window = _window(signature)
    dtype = working(x.dtype)
    batch, rows_out, columns_out = out.shape[0], *out.shape[2:]
    groups = signature.attributes["groups"]
    filters_of_group, channels, depth = w.shape[0] // groups, w.shape[1], prod(w.shape[1:])
    columns_at_once = max(1, min(columns_out, WINDOWS // max(depth, 1)))
    rows_at_once = max(1, min(rows_out, WINDOWS // max(depth * columns_at_once, 1)))
    of_image = max(depth * rows_at_once * columns_at_once, 1)
    whole = rows_at_once == rows_out and columns_at_once == columns_out
    images = max(1, min(batch, WINDOWS // of_image)) if whole else 1
    groups_at_once = max(1, min(groups, WINDOWS // (of_image * images))) if whole else 1
    # Small images share a product; of larger ones each has its own, which can go to the output as it is.
    together = rows_out * columns_out < FEW
    given = bias is not None
    # Without padding windows are views of the input, if that is in the dtype they are computed in.
    viewed = x.dtype.numpy == dtype and window.padding == (0, 0)

    def run(x: Array, w: Array, *rest: Array) -> None:
        out = rest[-1]
        if out.size == 0:
            return
        filters = np.ascontiguousarray(w, dtype).reshape(groups, filters_of_group, depth)
        shift = rest[0].astype(dtype).reshape(groups, filters_of_group, 1) if given else None
        # Splitting an axis needs no copy.
        grouped = np.reshape(x, (batch, groups, channels, *x.shape[2:]), copy=False)
        results = np.reshape(out, (batch, groups, filters_of_group, rows_out, columns_out), copy=False)
        with np.errstate(all="ignore"):
            for tile in _tiles(rows_out, columns_out, rows_at_once, columns_at_once):
                row, column, rows, columns = tile
                for n in range(0, batch, images):
                    for g in range(0, groups, groups_at_once):
                        part = slice(n, n + images), slice(g, g + groups_at_once)
                        target = results[(*part, slice(None), slice(row, row + rows), slice(column, column + columns))]
                        windows = _windows(grouped[part], window, tile, together, viewed, dtype)
                        _product(filters[part[1]], windows, None if shift is None else shift[part[1]], target)

    return Launch(function=run, args=signature.names)


def _windows(
    x: Array,
    window: _Window,
    tile: tuple[int, int, int, int],
    together: bool,
    viewed: bool,
    dtype: np.dtype[Any],
) -> Array:
    """Return what the outputs of a tile see of x[N, G, C, H, W], as matrices [N, G, C KH KW, rows columns] for BLAS.

    ``together``: as [1, G, C KH KW, N rows columns].
    """
    images, groups, channels = x.shape[:3]
    first = [at * by - before for at, by, before in zip(tile[:2], window.stride, window.padding, strict=True)]
    reach = [
        (count - 1) * by + (taps - 1) * apart + 1
        for count, by, taps, apart in zip(tile[2:], window.stride, window.taps, window.dilation, strict=True)
    ]
    if viewed:
        source = x[..., first[0] : first[0] + reach[0], first[1] : first[1] + reach[1]]
    else:
        source = np.zeros((images, groups, channels, *reach), dtype)
        _copy_places(x, source, (first[0], first[1]), (1, 1))
    outer, inner = (1, images) if together else (images, 1)
    n, g, c, h, w = source.strides
    (down, along), (lower, further) = window.dilation, window.stride
    windows = as_strided(
        source,
        (outer, groups, channels, *window.taps, inner, *tile[2:]),
        (n, g, c, h * down, w * along, n, h * lower, w * further),
        writeable=False,
    )
    # A copy, unless a window is a single place.
    depth = channels * window.taps[0] * window.taps[1]
    return matrices(windows.reshape(outer, groups, depth, inner * tile[2] * tile[3]), dtype)


def _product(filters: Array, windows: Array, shift: Array | None, out: Array) -> None:
    """Write the product of filters[G, O, K] and windows, as `_windows` gives them, to out[N, G, O, rows, columns]."""
    images, groups, count, rows, columns = out.shape
    outer = len(windows)
    target = None
    if outer == images and out.dtype == filters.dtype and out.strides[-1] == out.itemsize:
        try:
            target = np.reshape(out, (outer, groups, count, rows * columns), copy=False)
        except ValueError:
            # Rows that do not continue one another.
            target = None
    product = np.matmul(filters, windows, out=target)
    if shift is not None:
        np.add(product, shift, product)
    if target is None:
        spread = product.reshape(outer, groups, count, images // outer, rows, columns).transpose(0, 3, 1, 2, 4, 5)
        np.copyto(out, spread.reshape(out.shape), casting="unsafe")
