"""layer_norm of dense rows, of up to 32 bits a number.

`short` normalises ``BLOCK_ROWS`` rows that fit a block, each read once: about 17 operations an element, where the
memory leaves time for 28 of 16 bits. The mean is corrected by that of what is left: nothing is lost to one that is
large beside the deviations.

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
from nbx_triton.kernels.normalization import affine, affine_arguments, reciprocal_root
from nbx_triton.kernels.pieces import PIECE, block, block_of_rows, cut, options, piece_of_row
from nbx_triton.kernels.strided import NARROW
from nbx_triton.kernels.variance import MAX_PIECES, merge_pieces
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
    weight_stride,
    bias_stride,
    WIDE: tl.constexpr,
    BLOCK_ROWS: tl.constexpr,
    BLOCK_COLUMNS: tl.constexpr,
):
    """Write ``BLOCK_ROWS`` whole rows of ``length``; ``share`` is 1 / length."""
    row, column, inside = block_of_rows(rows, length, WIDE, BLOCK_ROWS, BLOCK_COLUMNS)
    place = (row * length)[:, None] + column
    a = tl.load(x + place, mask=inside, other=0).to(tl.float32)
    centred = tl.where(inside, a - (tl.sum(a, axis=1) * share)[:, None], 0.0)
    centred = tl.where(inside, centred - (tl.sum(centred, axis=1) * share)[:, None], 0.0)
    scale = reciprocal_root(tl.sum(centred * centred, axis=1) * share + eps)
    y = affine(centred * scale[:, None], weight, bias, column, column < length, weight_stride, bias_stride)
    tl.store(out + place, y.to(out.dtype.element_ty), mask=inside)


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
    mean, scale = merge_pieces(counts, means, m2s, row, pieces, size, eps, PIECES)
    column = tl.arange(0, BLOCK).to(row.dtype)
    for at in range(first, last, BLOCK):
        here = at + column
        inside = here < last
        a = tl.load(x + row * length + here, mask=inside, other=0).to(tl.float32)
        y = affine((a - mean) * scale, weight, bias, here, inside, weight_stride, bias_stride)
        tl.store(out + row * length + here, y.to(out.dtype.element_ty), mask=inside)


def _scaling(ctx: BindContext) -> dict[str, Argument]:
    """Return what the scale of a row depends on beside its elements, weight and bias."""
    _, weight, bias = ctx.signature.tensors
    return {
        "eps": Scalar(ctx.signature.attributes["eps"], "float32"),
        **affine_arguments(weight=weight, bias=bias),
    }


def bind_short(ctx: BindContext) -> Sequence[Launch]:
    """Bind ``layer_norm`` of dense rows that fit a block."""
    x, _, _ = ctx.signature.tensors
    (out,) = ctx.signature.outputs
    if out.size == 0:
        return ()
    length, rows = x.shape[-1], prod(x.shape[:-1])
    block_rows, columns, warps = block(length)
    step = launch(
        ctx,
        short,
        programs=triton.cdiv(rows, block_rows),
        arguments={
            **_scaling(ctx),
            "x": "x",
            "out": "out",
            "rows": rows,
            "length": length,
            "share": Scalar(1 / length, "float32"),
        },
        constants={
            "WIDE": x.size + block_rows * columns >= NARROW,
            "BLOCK_ROWS": block_rows,
            "BLOCK_COLUMNS": columns,
        },
        options=options(warps),
    )
    return (step,)


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
