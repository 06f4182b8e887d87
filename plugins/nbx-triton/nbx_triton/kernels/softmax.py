"""softmax along any axis: exponentials by the device's own power of two, but for float64.

What a number lies below the largest of its row is rounded once before it is an exponent of 2, once as one, and the
unit's own error is 2 ulp: as much as the contract leaves. So an element takes 11 operations, where an exponential in
full takes 22 and a quotient 30; the memory leaves time for about 28 of 16 bits.

`short` normalises ``BLOCK_ROWS`` rows that fit a block, each read once; `long` has them in two passes (`row_passes`).
`measure` and `scale_pieces` give a row to several programs, where rows are few: the first writes largest number and sum
for each piece, the second merges those of the row as a tree and writes the piece. Block sizes follow from a row's
length and strides alone: a row's bits do not depend on the number of rows. Deterministic.

At the least a row is read and written once: 2 x 268 MB for 16384 x 8192 of 16 bits, 126 us at an H200's 4.25 TB/s.
"""

from __future__ import annotations

from collections.abc import Sequence

import triton
import triton.language as tl

from nbx_registry.infer import normalise_axis
from nbx_registry.launch import BindContext, Launch
from nbx_triton.kernels.normalization import compute, reciprocal, zeros
from nbx_triton.kernels.pieces import (
    Rows,
    block_of_rows,
    launch_pieces,
    launch_rows,
    piece_of_row,
    rows_along,
)
from nbx_triton.kernels.row_passes import passes
from nbx_triton.kernels.strided import locate

HELD = 8
"""Vectors of a row that a thread has room for between the passes."""


@triton.jit
def power_of_e(depth):
    """Return e^depth for numbers up to 0; below -87 it may be 0."""
    if depth.dtype == tl.float64:
        y = tl.exp(depth)
    else:
        y = tl.exp2(depth * 1.4426950408889634)
    return y


@triton.jit
def finite(peak):
    """Return ``peak``, or 0 where it is -infinity: what is that far below it is then nothing, and no NaN."""
    return tl.where(peak == float("-inf"), 0.0, peak)


@triton.jit
def take(state, a, _inside):
    """Take a[:, :, :], -inf where it is not of the row, into largest numbers and sums of what lies below."""
    peak, total = state
    new = tl.maximum(peak, tl.max(a, axis=1))
    anchor = finite(new)
    return new, total * power_of_e(peak - anchor) + tl.sum(power_of_e(a - anchor[:, None, :]), axis=1)


@triton.jit
def join(peak, total, axis: tl.constexpr):
    """Return the largest of all along an axis, 0 in place of -infinity, and 1 over the sum of what lies below it."""
    top = finite(tl.max(peak, axis=axis, keep_dims=True))
    # Nothing but -inf adds up to 0, whose share is infinite: 0 times it is NaN.
    return top, reciprocal(tl.sum(total * power_of_e(peak - top), axis=axis, keep_dims=True))


@triton.jit
def settle(state, _share, _eps):
    """Return what `join` does of a row's lanes."""
    return join(state[0][:, None, :], state[1][:, None, :], 2)


@triton.jit
def give(found, a):
    """Return the share of a[:, :, :]."""
    return power_of_e(a - found[0]) * found[1]


@triton.jit
def short(
    x,
    out,
    rows,
    length,
    row_shape,
    row_strides,
    out_strides,
    stride,
    out_stride,
    WIDE: tl.constexpr,
    BLOCK_ROWS: tl.constexpr,
    BLOCK_COLUMNS: tl.constexpr,
):
    """Write ``BLOCK_ROWS`` whole rows. One with NaN or +inf in it, or with nothing but -inf, is NaN."""
    row, column, inside = block_of_rows(rows, length, WIDE, BLOCK_ROWS, BLOCK_COLUMNS)
    source = x + locate(row, row_shape, row_strides)[:, None]
    a = compute(tl.load(source + column * stride, mask=inside, other=float("-inf")))
    e = power_of_e(a - tl.max(a, axis=1)[:, None])
    share = reciprocal(tl.sum(e, axis=1))
    target = out + locate(row, row_shape, out_strides)[:, None]
    tl.store(target + column * out_stride, (e * share[:, None]).to(out.dtype.element_ty), mask=inside)


@triton.jit
def long(
    given,
    vectors,
    WIDE: tl.constexpr,
    BLOCK_ROWS: tl.constexpr,
    TILES: tl.constexpr,
    HELD: tl.constexpr,
    LANES: tl.constexpr,
    SPLIT: tl.constexpr,
):
    """Write ``BLOCK_ROWS`` rows by the `passes`."""
    total = zeros(given[0].dtype.element_ty, BLOCK_ROWS, LANES)
    state = (total + float("-inf"), total)
    other: tl.constexpr = float("-inf")
    passes(take, settle, give, state, other, given, vectors, None, None, WIDE, BLOCK_ROWS, TILES, HELD, LANES, SPLIT)


@triton.jit
def measure(
    x,
    peaks,
    sums,
    length,
    pieces,
    per_piece,
    row_shape,
    row_strides,
    stride,
    WIDE: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Write the largest of ``per_piece`` elements and the sum of exponentials of what they lie below it."""
    number, row, first, last = piece_of_row(length, pieces, per_piece, WIDE)
    column = tl.arange(0, BLOCK)[None, :].to(number.dtype)
    source = x + locate(row, row_shape, row_strides)
    peak = tl.full((1,), float("-inf"), tl.float32)
    total = tl.zeros((1,), tl.float32)
    for at in range(first, last, BLOCK):
        place = source + (at + column) * stride
        a = tl.load(place, mask=at + column < last, other=float("-inf")).to(tl.float32)
        new = tl.maximum(peak, tl.max(a, axis=1))
        total = total * power_of_e(peak - finite(new)) + tl.sum(power_of_e(a - finite(new)[:, None]), axis=1)
        peak = new
    tl.store(peaks + number + tl.arange(0, 1), peak)
    tl.store(sums + number + tl.arange(0, 1), total)


@triton.jit
def scale_pieces(
    x,
    peaks,
    sums,
    out,
    length,
    pieces,
    per_piece,
    row_shape,
    row_strides,
    out_strides,
    stride,
    out_stride,
    WIDE: tl.constexpr,
    PIECES: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Write one piece of a row. PIECES is ``pieces`` up to a power of two."""
    _number, row, first, last = piece_of_row(length, pieces, per_piece, WIDE)
    column = tl.arange(0, BLOCK)[None, :].to(row.dtype)
    source = x + locate(row, row_shape, row_strides)
    target = out + locate(row, row_shape, out_strides)
    # On its way while what the pieces came to is merged.
    a = tl.load(source + (first + column) * stride, mask=first + column < last, other=float("-inf"))
    piece = tl.arange(0, PIECES)[None, :]
    own = tl.load(peaks + row * pieces + piece, mask=piece < pieces, other=float("-inf"))
    parts = tl.load(sums + row * pieces + piece, mask=piece < pieces, other=0)
    peak, share = join(own, parts, 1)
    for at in range(first, last, BLOCK):
        y = power_of_e(a.to(tl.float32) - peak) * share
        tl.store(target + (at + column) * out_stride, y.to(out.dtype.element_ty), mask=at + column < last)
        beyond = at + BLOCK + column
        a = tl.load(source + beyond * stride, mask=beyond < last, other=float("-inf"))


def _rows(ctx: BindContext) -> Rows:
    (x,) = ctx.signature.tensors
    (out,) = ctx.signature.outputs
    return rows_along(normalise_axis(ctx.signature.attributes["axis"], x.rank), x, out)


def bind(ctx: BindContext) -> Sequence[Launch]:
    """Bind ``softmax`` with one program for one row or several."""
    (out,) = ctx.signature.outputs
    if out.size == 0:
        return ()
    return (launch_rows(ctx, _rows(ctx), short, long, {}, HELD),)


def bind_split(ctx: BindContext) -> Sequence[Launch]:
    """Bind ``softmax`` with several programs a row; what they find is in the workspaces ``peaks`` and ``sums``."""
    (out,) = ctx.signature.outputs
    if out.size == 0:
        return ()
    return launch_pieces(ctx, _rows(ctx), measure, scale_pieces, ("peaks", "sums"), {})
