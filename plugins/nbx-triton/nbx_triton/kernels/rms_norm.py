"""rms_norm: rows divided by their root mean square.

`short` normalises ``BLOCK_ROWS`` rows that fit a block, each read once. `long` has one program a row, which it reads
twice: the second time from its end, so that what the first pass read last is met in the cache. `add_squares` and
`scale_pieces` give a row to several programs, where rows are few: the first writes a sum of squares for each piece,
the second adds those of the row in a fixed tree and scales the piece.

Arithmetic is float32, for float64 in float64, with the reciprocal root and each product rounded once. Block sizes
follow from a row's length and strides alone: a row's bits do not depend on the number of rows. Deterministic.

At the least a row is read and written once: 2 x 268 MB for 16384 x 8192 of 16 bits.
"""

from __future__ import annotations

from collections.abc import Sequence

import triton
import triton.language as tl

from nbx_registry.launch import BindContext, Launch, Scalar
from nbx_triton.kernels.normalization import affine, affine_arguments, compute, reciprocal_root, zeros
from nbx_triton.kernels.pieces import block_of_rows, launch_blocks, launch_pieces, options, piece_of_row, rows_along
from nbx_triton.kernels.strided import locate, program
from nbx_triton.launching import Argument, launch

LARGEST_ROW = 16384
"""Elements of a row that one program holds in registers."""
_BLOCK = 16384


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
):
    """Write x / sqrt(mean of x^2 + eps) * weight, ``BLOCK_ROWS`` whole rows; ``share`` is 1 / length."""
    row, column, inside = block_of_rows(rows, length, WIDE, BLOCK_ROWS, BLOCK_COLUMNS)
    source = x + locate(row, row_shape, row_strides)[:, None]
    a = compute(tl.load(source + column * stride, mask=inside, other=0))
    scale = reciprocal_root(tl.sum(a * a, axis=1) * share + eps)[:, None]
    y = affine(a * scale, weight, None, column, column < length, weight_stride, 0)
    target = out + locate(row, row_shape, out_strides)[:, None]
    tl.store(target + column * out_stride, y.to(out.dtype.element_ty), mask=inside)


@triton.jit
def long(
    x,
    weight,
    out,
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
    BLOCK: tl.constexpr,
):
    """Write one row, twice ``BLOCK`` elements at a time: the loads of both are on their way together."""
    row = program(WIDE)
    column = tl.arange(0, BLOCK)[None, :].to(row.dtype)
    source = x + locate(row, row_shape, row_strides)
    target = out + locate(row, row_shape, out_strides)
    squares = zeros(x.dtype.element_ty, 1, BLOCK)
    for at in range(0, length, 2 * BLOCK):
        low = tl.load(source + (at + column) * stride, mask=at + column < length, other=0)
        high = tl.load(source + (at + BLOCK + column) * stride, mask=at + BLOCK + column < length, other=0)
        squares += compute(low) * compute(low)
        squares += compute(high) * compute(high)
    scale = reciprocal_root(tl.sum(squares, axis=1) * share + eps)[:, None]
    pieces = (length + 2 * BLOCK - 1) // (2 * BLOCK)
    for piece in range(pieces):
        here = (pieces - 1 - piece) * (2 * BLOCK) + column
        beside = here + BLOCK
        low = tl.load(source + here * stride, mask=here < length, other=0)
        high = tl.load(source + beside * stride, mask=beside < length, other=0)
        y = affine(compute(low) * scale, weight, None, here, here < length, weight_stride, 0)
        z = affine(compute(high) * scale, weight, None, beside, beside < length, weight_stride, 0)
        tl.store(target + here * out_stride, y.to(out.dtype.element_ty), mask=here < length)
        tl.store(target + beside * out_stride, z.to(out.dtype.element_ty), mask=beside < length)


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
    piece = tl.arange(0, PIECES)[None, :]
    parts = tl.load(partial + row * pieces + piece, mask=piece < pieces, other=0)
    scale = reciprocal_root(tl.sum(parts, axis=1) * share + eps)[:, None]
    source = x + locate(row, row_shape, row_strides)
    target = out + locate(row, row_shape, out_strides)
    for at in range(first, last, BLOCK):
        inside = at + column < last
        a = compute(tl.load(source + (at + column) * stride, mask=inside, other=0))
        y = affine(a * scale, weight, None, at + column, inside, weight_stride, 0)
        tl.store(target + (at + column) * out_stride, y.to(out.dtype.element_ty), mask=inside)


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
    rows = rows_along(x.rank - 1, x, out)
    if rows.length <= LARGEST_ROW:
        return (launch_blocks(ctx, rows, short, _scaling(ctx)),)
    block = _BLOCK if x.dtype.bits <= 32 else _BLOCK // 2
    step = launch(
        ctx,
        long,
        programs=rows.count,
        arguments={**rows.read, **rows.write, **_scaling(ctx)},
        constants={"WIDE": rows.wide(2 * block), "BLOCK": block},
        # Rows may be fewer than multiprocessors: 64 KB of loads in flight for each, of 16 bits.
        options=options(32),
    )
    return (step,)


def bind_split(ctx: BindContext) -> Sequence[Launch]:
    """Bind ``rms_norm`` with several programs a row; their sums of squares are the workspace ``partial``."""
    x, _ = ctx.signature.operands
    (out,) = ctx.signature.outputs
    if out.size == 0:
        return ()
    rows = rows_along(x.rank - 1, x, out)
    return launch_pieces(ctx, rows, add_squares, scale_pieces, ("partial",), _scaling(ctx))
