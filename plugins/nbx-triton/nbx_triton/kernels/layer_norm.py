"""layer_norm: rows to mean 0 and variance 1.

`short` normalises ``BLOCK_ROWS`` rows that fit a block, each read once: about 17 operations an element, where the
memory leaves time for 28 of 16 bits. `long` goes through them twice, the second time from their end, so that what was
read last is met in the cache; means and squared deviations are merged tile by tile (see `variance`).
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
from nbx_triton.kernels.normalization import affine, affine_arguments, compute, reciprocal_root, zeros
from nbx_triton.kernels.pieces import (
    PIECE,
    block_of_rows,
    cut,
    launch_rows,
    options,
    piece_of_row,
    rows_along,
    tiles_of_rows,
)
from nbx_triton.kernels.strided import NARROW, locate
from nbx_triton.kernels.variance import MAX_PIECES, merge, merge_pieces
from nbx_triton.launching import Argument, launch


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
):
    """Write ``BLOCK_ROWS`` whole rows of ``length``; ``share`` is 1 / length."""
    row, column, inside = block_of_rows(rows, length, WIDE, BLOCK_ROWS, BLOCK_COLUMNS)
    source = x + locate(row, row_shape, row_strides)[:, None]
    a = compute(tl.load(source + column * stride, mask=inside, other=0))
    centred = tl.where(inside, a - (tl.sum(a, axis=1) * share)[:, None], 0.0)
    centred = tl.where(inside, centred - (tl.sum(centred, axis=1) * share)[:, None], 0.0)
    scale = reciprocal_root(tl.sum(centred * centred, axis=1) * share + eps)
    y = affine(centred * scale[:, None], weight, bias, column, column < length, weight_stride, bias_stride)
    target = out + locate(row, row_shape, out_strides)[:, None]
    tl.store(target + column * out_stride, y.to(out.dtype.element_ty), mask=inside)


@triton.jit
def long(
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
    TILES: tl.constexpr,
    LANES: tl.constexpr,
    READ_STAGES: tl.constexpr,
    WRITE_STAGES: tl.constexpr,
):
    """Write ``BLOCK_ROWS`` rows, ``TILES`` by ``LANES`` elements of each at a time."""
    row, here, lane, column, whole = tiles_of_rows(rows, length, WIDE, BLOCK_ROWS, TILES, LANES)
    source = x + locate(row, row_shape, row_strides)[:, None, None]
    target = out + locate(row, row_shape, out_strides)[:, None, None]
    mean = zeros(x.dtype.element_ty, BLOCK_ROWS, LANES)
    m2 = mean
    known = 0.0
    for at in tl.range(0, whole, TILES * LANES, num_stages=READ_STAGES):
        a = compute(tl.load(source + (at + column) * stride, mask=here, other=0))
        own = tl.sum(a, axis=1) * (1.0 / TILES)
        centred = a - own[:, None, :]
        # As `merge` does, but that all lanes have the same count.
        ratio = TILES / (known + TILES)
        apart = own - mean
        mean += apart * ratio
        m2 += tl.sum(centred * centred, axis=1) + apart * apart * (known * ratio)
        known += TILES
    count = tl.zeros_like(mean) + known
    for at in range(whole, length, LANES):
        inside = here & (at + lane < length)
        one = tl.sum(inside.to(mean.dtype), axis=1)
        own = tl.sum(compute(tl.load(source + (at + lane) * stride, mask=inside, other=0)), axis=1)
        count, mean, m2 = merge(count, mean, m2, one, own, 0.0)
    centre = (tl.sum(count * mean, axis=1) * share)[:, None]
    # What rounding took from the mean.
    lost = (tl.sum(count * (mean - centre), axis=1) * share)[:, None]
    off = mean - centre - lost
    scale = reciprocal_root(tl.sum(m2 + count * (off * off), axis=1) * share + eps)[:, None, None]
    centre = centre[:, :, None]
    shift = -lost[:, :, None] * scale
    for at in range(whole, length, LANES):
        inside = here & (at + lane < length)
        y = (compute(tl.load(source + (at + lane) * stride, mask=inside, other=0)) - centre) * scale + shift
        y = affine(y, weight, bias, at + lane, at + lane < length, weight_stride, bias_stride)
        tl.store(target + (at + lane) * out_stride, y.to(out.dtype.element_ty), mask=inside)
    for turn in tl.range(0, whole, TILES * LANES, num_stages=WRITE_STAGES):
        place = whole - TILES * LANES - turn + column
        z = (compute(tl.load(source + place * stride, mask=here, other=0)) - centre) * scale + shift
        z = affine(z, weight, bias, place, None, weight_stride, bias_stride)
        tl.store(target + place * out_stride, z.to(out.dtype.element_ty), mask=here, eviction_policy="evict_first")


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
        y = affine((a.to(tl.float32) - mean) * scale, weight, bias, here, here < last, weight_stride, bias_stride)
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
    # Of 32 warps each thread has 64 registers, which do not hold the state of eight lanes and two vectors of 16 bits.
    warps = 16 if x.dtype.bits == 16 else 32
    scaling = {**_scaling(ctx), "share": share}
    return (launch_rows(ctx, rows_along(x.rank - 1, x, out), short, long, scaling, warps),)


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
