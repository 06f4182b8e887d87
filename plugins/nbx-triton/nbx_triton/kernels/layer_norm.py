"""layer_norm: rows to mean 0 and variance 1.

`short` normalises ``BLOCK_ROWS`` rows that fit a block, each read once: about 17 operations an element, where the
memory leaves time for 28 of 16 bits. `long` has them in two passes (`row_passes`), in the first of which means and
squared deviations are merged tile by tile (see `variance`).
The mean is corrected by that of what is left: nothing is lost to one that is large beside the deviations.

Few long rows are given to several programs each. `measure` of `group_norm` writes mean and squared deviations of each
piece of a row, as if it were a group of one channel; `normalise_rows` merges those of a row and writes a piece, which
is read from memory once, then from the cache.

Blocks follow from a row's length alone: its bits do not depend on the number of rows. Deterministic.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import triton
import triton.language as tl

from nbx_registry.launch import BindContext, Launch, Scalar
from nbx_triton.kernels.group_norm import measure
from nbx_triton.kernels.normalization import affine, affine_arguments, compute, factors, reciprocal_root, zeros
from nbx_triton.kernels.pieces import (
    PIECE,
    block_of_rows,
    cut,
    launch_rows,
    options,
    piece_of_row,
    rows_along,
)
from nbx_triton.kernels.row_passes import passes
from nbx_triton.kernels.strided import NARROW, locate
from nbx_triton.kernels.variance import MAX_PIECES, merge_pieces
from nbx_triton.launching import Argument, launch

HELD = 12
"""Vectors of a row that a thread has room for between the passes."""


@triton.jit
def short(
    x,
    weight,
    bias,
    out,
    rows,
    length,
    share,
    eps,
    row_shape,
    row_strides,
    out_strides,
    stride,
    weight_stride,
    bias_stride,
    out_stride,
    WIDE: tl.constexpr,
    BLOCK_ROWS: tl.constexpr,
    BLOCK_COLUMNS: tl.constexpr,
    EARLY: tl.constexpr,
):
    """Write ``BLOCK_ROWS`` whole rows of ``length``; ``share`` is 1 / length."""
    row, column, inside = block_of_rows(rows, length, WIDE, BLOCK_ROWS, BLOCK_COLUMNS)
    source = x + locate(row, row_shape, row_strides)[:, None]
    a = compute(tl.load(source + column * stride, mask=inside, other=0))
    if EARLY:
        w = factors(weight, column, column < length, weight_stride)
        b = factors(bias, column, column < length, bias_stride)
    centred = tl.where(inside, a - (tl.sum(a, axis=1) * share)[:, None], 0.0)
    centred = tl.where(inside, centred - (tl.sum(centred, axis=1) * share)[:, None], 0.0)
    scale = reciprocal_root(tl.sum(centred * centred, axis=1) * share + eps)
    if not EARLY:
        w = factors(weight, column, column < length, weight_stride)
        b = factors(bias, column, column < length, bias_stride)
    y = affine(centred * scale[:, None], w, b)
    target = out + locate(row, row_shape, out_strides)[:, None]
    tl.store(target + column * out_stride, y.to(out.dtype.element_ty), mask=inside)


@triton.jit
def take(state, a, inside):
    """Merge a[:, :, :], 0 where not ``inside``, into counts, means and M2 of lanes, as `merge` does."""
    count, mean, m2 = state
    if inside is None:
        # All lanes have the same count.
        own = tl.sum(a, axis=1) * (1.0 / a.shape[1])
        centred = a - own[:, None, :]
        both = count + a.shape[1]
        ratio = a.shape[1] / both
    else:
        here = tl.broadcast_to(inside, a.shape)
        one = tl.sum(here.to(mean.dtype), axis=1)
        own = tl.sum(a, axis=1) / tl.maximum(one, 1.0)
        centred = tl.where(here, a - own[:, None, :], 0.0)
        both = count + one
        ratio = one / tl.maximum(both, 1.0)
    apart = own - mean
    return both, mean + apart * ratio, m2 + tl.sum(centred * centred, axis=1) + apart * apart * (count * ratio)


@triton.jit
def add_pairs(a, b, c, d):
    """Return a + c and b + d."""
    return a + c, b + d


@triton.jit
def settle(state, share, eps):
    """Return rows' means, scales, and what rounding took from the means, scaled."""
    count, mean, m2 = state
    centre = (tl.sum(count * mean, axis=1) * share)[:, None]
    off = mean - centre
    # Both in one tree: all warps wait for one another once less.
    left, squares = tl.reduce((count * off, m2 + count * (off * off)), 1, add_pairs)
    lost = left * share
    scale = reciprocal_root(squares * share - lost * lost + eps)[:, None, None]
    return centre[:, :, None], scale, lost[:, None, None] * scale


@triton.jit
def give(found, a):
    """Return a[:, :, :] to mean 0 and variance 1."""
    return (a - found[0]) * found[1] - found[2]


@triton.jit
def long(
    given,
    vectors,
    share,
    eps,
    WIDE: tl.constexpr,
    BLOCK_ROWS: tl.constexpr,
    TILES: tl.constexpr,
    HELD: tl.constexpr,
    LANES: tl.constexpr,
    SPLIT: tl.constexpr,
):
    """Write ``BLOCK_ROWS`` rows by the `passes`."""
    mean = zeros(given[0].dtype.element_ty, BLOCK_ROWS, LANES)
    passes(
        take,
        settle,
        give,
        (zeros(given[0].dtype.element_ty, 1, 1), mean, mean),
        0.0,
        given,
        vectors,
        share,
        eps,
        WIDE,
        BLOCK_ROWS,
        TILES,
        HELD,
        LANES,
        SPLIT,
    )


@triton.jit
def normalise_rows(
    x,
    weight,
    bias,
    counts,
    means,
    m2s,
    out,
    length,
    pieces,
    per_piece,
    size,
    eps,
    weight_stride,
    bias_stride,
    WIDE: tl.constexpr,
    PIECES: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Write ``per_piece`` elements of a row of ``length``; ``size`` is that as a number."""
    _number, row, first, last = piece_of_row(length, pieces, per_piece, WIDE)
    column = tl.arange(0, BLOCK).to(row.dtype)
    source = x + row * length + column
    # On its way while what the pieces came to is merged.
    a = tl.load(source + first, mask=first + column < last, other=0)
    mean, scale = merge_pieces(counts, means, m2s, row, pieces, size, eps, PIECES)
    for at in range(first, last, BLOCK):
        here = at + column
        w = factors(weight, here, here < last, weight_stride)
        b = factors(bias, here, here < last, bias_stride)
        y = affine((a.to(tl.float32) - mean) * scale, w, b)
        tl.store(out + row * length + here, y.to(out.dtype.element_ty), mask=here < last)
        a = tl.load(source + at + BLOCK, mask=here + BLOCK < last, other=0)


def _scaling(ctx: BindContext) -> dict[str, Argument]:
    """Return what the scale of a row depends on beside its elements, weight and bias."""
    x, weight, bias = ctx.signature.operands
    number = "float64" if x.dtype.bits == 64 else "float32"
    return {"eps": Scalar(ctx.signature.attributes["eps"], number), **affine_arguments(weight=weight, bias=bias)}


def bind(ctx: BindContext) -> Sequence[Launch]:
    """Bind ``layer_norm`` with one program for one row or several."""
    x, _, _ = ctx.signature.operands
    (out,) = ctx.signature.outputs
    if out.size == 0:
        return ()
    share = Scalar(1 / x.shape[-1], "float64" if x.dtype.bits == 64 else "float32")
    scaling = {**_scaling(ctx), "share": share}
    return (launch_rows(ctx, rows_along(x.rank - 1, x, out), short, long, scaling, HELD),)


def bind_split(ctx: BindContext) -> Sequence[Launch]:
    """Bind ``layer_norm`` of dense rows, several programs each; see ``counts``, ``means`` and ``m2s``."""
    x, _, _ = ctx.signature.tensors
    (out,) = ctx.signature.outputs
    if out.size == 0:
        return ()
    length, rows = x.shape[-1], prod(x.shape[:-1])
    tiles = triton.cdiv(length, PIECE)
    pieces, tiles_each = cut(tiles, MAX_PIECES)
    found: dict[str, Argument] = {"counts": "counts", "means": "means", "m2s": "m2s", "pieces": pieces}
    wide = x.size + pieces * tiles_each * PIECE >= NARROW
    first = launch(
        ctx,
        measure,
        programs=rows * pieces,
        arguments={
            **found,
            "x": "x",
            "groups": 1,
            "channels": 1,
            "pixels": length,
            "tiles": tiles,
            "per_piece": tiles_each,
            "x_strides": (length, 0, (1,)),
            "pixel_shape": (length,),
        },
        constants={"WIDE": wide, "BLOCK_CHANNELS": 1, "BLOCK_PIXELS": PIECE},
        options=options(8),
    )
    second = launch(
        ctx,
        normalise_rows,
        programs=rows * pieces,
        arguments={
            **found,
            **_scaling(ctx),
            "x": "x",
            "out": "out",
            "length": length,
            "per_piece": tiles_each * PIECE,
            "size": Scalar(float(length), "float32"),
        },
        constants={"WIDE": wide, "PIECES": triton.next_power_of_2(pieces), "BLOCK": PIECE},
        options=options(8),
    )
    return (first, second)
