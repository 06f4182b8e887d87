"""rms_norm: rows divided by their root mean square.

`short` normalises ``BLOCK_ROWS`` rows that fit a block, each read once; `long` has them in two passes (`row_passes`).
`add_squares` and `scale_pieces` give a row to several programs, where rows are few: the first writes a sum of squares
for each piece, the second adds those of the row in a fixed tree and scales the piece.

Arithmetic is float32, for float64 in float64, with the reciprocal root and each product rounded once. Block sizes
follow from a row's length and strides alone: a row's bits do not depend on the number of rows. Deterministic.

At the least a row is read and written once: 2 x 268 MB for 16384 x 8192 of 16 bits.
"""

from __future__ import annotations

from collections.abc import Sequence

import triton
import triton.language as tl

from nbx_registry.launch import BindContext, Launch, Scalar
from nbx_triton.kernels.normalization import affine, affine_arguments, compute, factors, reciprocal_root, zeros
from nbx_triton.kernels.pieces import (
    block_of_rows,
    launch_pieces,
    launch_rows,
    piece_of_row,
    rows_along,
)
from nbx_triton.kernels.row_passes import passes
from nbx_triton.kernels.strided import locate
from nbx_triton.launching import Argument

HELD = 16
"""Vectors of a row that a thread has room for between the passes."""


@triton.jit
def short(
    x,
    weight,
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
    out_stride,
    WIDE: tl.constexpr,
    BLOCK_ROWS: tl.constexpr,
    BLOCK_COLUMNS: tl.constexpr,
    EARLY: tl.constexpr,
):
    """Write x / sqrt(mean of x^2 + eps) * weight, ``BLOCK_ROWS`` whole rows; ``share`` is 1 / length."""
    row, column, inside = block_of_rows(rows, length, WIDE, BLOCK_ROWS, BLOCK_COLUMNS)
    source = x + locate(row, row_shape, row_strides)[:, None]
    a = compute(tl.load(source + column * stride, mask=inside, other=0))
    if EARLY:
        w = factors(weight, column, column < length, weight_stride)
    scale = reciprocal_root(tl.sum(a * a, axis=1) * share + eps)[:, None]
    if not EARLY:
        w = factors(weight, column, column < length, weight_stride)
    y = affine(a * scale, w, None)
    target = out + locate(row, row_shape, out_strides)[:, None]
    tl.store(target + column * out_stride, y.to(out.dtype.element_ty), mask=inside)


@triton.jit
def take(state, a, _inside):
    """Add the squares of a[:, :, :], 0 where it is not of the row, to sums [:, :]."""
    return (state[0] + tl.sum(a * a, axis=1),)


@triton.jit
def settle(state, share, eps):
    """Return rows' scales."""
    return (reciprocal_root(tl.sum(state[0], axis=1) * share + eps)[:, None, None],)


@triton.jit
def give(found, a):
    """Return a[:, :, :] to scale."""
    return a * found[0]


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
    state = (zeros(given[0].dtype.element_ty, BLOCK_ROWS, LANES),)
    passes(take, settle, give, state, 0.0, given, vectors, share, eps, WIDE, BLOCK_ROWS, TILES, HELD, LANES, SPLIT)


@triton.jit
def add_squares(
    x,
    partial,
    length,
    pieces,
    per_piece,
    row_shape,
    row_strides,
    stride,
    WIDE: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Write the sum of squares of ``per_piece`` elements to ``partial[row, piece]``."""
    number, row, first, last = piece_of_row(length, pieces, per_piece, WIDE)
    column = tl.arange(0, BLOCK)[None, :].to(number.dtype)
    source = x + locate(row, row_shape, row_strides)
    squares = zeros(x.dtype.element_ty, 1, BLOCK)
    for at in range(first, last, BLOCK):
        a = compute(tl.load(source + (at + column) * stride, mask=at + column < last, other=0))
        squares += a * a
    tl.store(partial + number + tl.arange(0, 1), tl.sum(squares, axis=1))


@triton.jit
def scale_pieces(
    x,
    weight,
    partial,
    out,
    length,
    pieces,
    per_piece,
    share,
    eps,
    row_shape,
    row_strides,
    out_strides,
    stride,
    weight_stride,
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
    # On its way while what the pieces came to is added.
    a = tl.load(source + (first + column) * stride, mask=first + column < last, other=0)
    piece = tl.arange(0, PIECES)[None, :]
    parts = tl.load(partial + row * pieces + piece, mask=piece < pieces, other=0)
    scale = reciprocal_root(tl.sum(parts, axis=1) * share + eps)[:, None]
    for at in range(first, last, BLOCK):
        here = at + column
        y = affine(compute(a) * scale, factors(weight, here, here < last, weight_stride), None)
        tl.store(target + here * out_stride, y.to(out.dtype.element_ty), mask=here < last)
        a = tl.load(source + (here + BLOCK) * stride, mask=here + BLOCK < last, other=0)


def _scaling(ctx: BindContext) -> dict[str, Argument]:
    """Return what the scale of a row depends on beside its elements, and the weight."""
    x, weight = ctx.signature.operands
    number = "float64" if x.dtype.bits == 64 else "float32"
    return {
        "share": Scalar(1 / x.shape[-1], number),
        "eps": Scalar(ctx.signature.attributes["eps"], number),
        **affine_arguments(weight=weight),
    }


def bind(ctx: BindContext) -> Sequence[Launch]:
    """Bind ``rms_norm`` with one program for one row or several."""
    x, _ = ctx.signature.operands
    (out,) = ctx.signature.outputs
    if out.size == 0:
        return ()
    return (launch_rows(ctx, rows_along(x.rank - 1, x, out), short, long, _scaling(ctx), HELD),)


def bind_split(ctx: BindContext) -> Sequence[Launch]:
    """Bind ``rms_norm`` with several programs a row; their sums of squares are the workspace ``partial``."""
    x, _ = ctx.signature.operands
    (out,) = ctx.signature.outputs
    if out.size == 0:
        return ()
    rows = rows_along(x.rank - 1, x, out)
    return launch_pieces(ctx, rows, add_squares, scale_pieces, ("partial",), _scaling(ctx))
