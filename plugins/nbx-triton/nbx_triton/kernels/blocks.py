"""matmul and linear of 16-bit floats that lie in whole 16-byte pieces, on the matrix unit: large tiles, one a program.

Both operands are copied to shared memory beside the work, several steps of the depth ahead, 16 bytes at a time, and no
element is masked but past an odd depth: rows and columns past the last read some that are there, and are not stored.
Offsets are computed once; along the depth addresses are stepped. A tile's columns are a power of two, or the sum of two
powers, where that has all tiles run at once.

Accumulation is float32, along the depth in steps of 64, ascending, without splitting it. Deterministic.

Which tile suits was measured on an H200, float16, cold: 4096 rows by a [1536, 384] weight with gelu take 20 us by tiles
of 64 x 128, 24 us by tiles of 128 x 256; 4096 rows by a [384, 1536] weight 17 us by tiles of 128 x 128, 19 us by tiles
of 64 x 128.
"""

from __future__ import annotations

from collections.abc import Sequence

import triton
import triton.language as tl

from nbx_registry.launch import BindContext, Launch
from nbx_registry.space import Space
from nbx_triton.compiler import Options
from nbx_triton.kernels.products import (
    PIECE,
    activate,
    advance,
    common_unit,
    fitting_stages,
    offsets,
    pieces_of,
    product_of,
    tile_of,
)
from nbx_triton.kernels.strided import NARROW, locate, program
from nbx_triton.launching import launch

STEP = 64
"""Of the depth, a step of the pipeline."""
HEIGHT = 8
"""Rows of tiles that are taken together, so that neighbours share what they read."""
SLACK = 512
"""More than tiles reach past the last row, column and depth."""

SETTINGS = Space(
    parameters={"block_m": (64, 128), "block_n": (128, 256), "more_n": (0, 64), "stages": (2, 3, 4), "warps": (4, 8)},
    exclude={
        "warps for the sums": "(block_m * block_n > 16384) != (warps > 4) and block_m * block_n != 16384",
        "wider than the product": "block_n > 128 and block_n >= 2 * N",
        "columns and more of them": "more_n > 0 and (block_n > 128 or block_m > 64)",
        "stages that several programs have room for": "(stages < 3) != (more_n > 0)",
    },
)


@triton.jit
def finish(
    total,
    bias,
    target,
    row,
    column,
    rows,
    columns,
    row_stride,
    column_stride,
    bias_stride,
    ACTIVATION: tl.constexpr,
):
    """Write ``activation(total + bias)``, of rows by columns, to ``target``."""
    if bias is not None:
        total += tl.load(bias + tl.minimum(column, columns - 1) * bias_stride).to(tl.float32)[None, :]
    total = activate(total, ACTIVATION, target.dtype.element_ty).to(target.dtype.element_ty)
    place = target + row[:, None] * row_stride + column[None, :] * column_stride
    tl.store(place, total, mask=(row < rows)[:, None] & (column < columns)[None, :])


@triton.jit
def block(
    a,
    b,
    bias,
    out,
    rows,
    columns,
    depth,
    batch_shape,
    a_batch,
    b_batch,
    out_batch,
    a_pitch,
    b_pitch,
    out_pitch,
    out_column,
    bias_stride,
    ACTIVATION: tl.constexpr,
    A_DEEP: tl.constexpr,
    B_DEEP: tl.constexpr,
    COLUMN_UNIT: tl.constexpr,
    DEPTH_UNIT: tl.constexpr,
    OUT_UNIT: tl.constexpr,
    EVEN: tl.constexpr,
    WIDE: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    MORE_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
    HEIGHT: tl.constexpr,
):
    """Write one tile of ``activation(a @ b + bias)``, of BLOCK_N and MORE_N columns. Tiles are numbered batch by batch.

    Pitches and batch strides of a and b are in pieces of 8 elements. A_DEEP, B_DEEP: elements lie side by side along
    the depth, or else along rows of a, columns of b. EVEN: BLOCK_K divides the depth.
    """
    number = program(WIDE)
    columns = columns * COLUMN_UNIT
    depth = depth * DEPTH_UNIT
    tiles_m = (rows + BLOCK_M - 1) // BLOCK_M
    width: tl.constexpr = BLOCK_N + MORE_N
    tiles_n = (columns + width - 1) // width
    batch = number // (tiles_m * tiles_n)
    tile_m, tile_n = tile_of(number % (tiles_m * tiles_n), tiles_m, tiles_n, HEIGHT)
    row = tile_m * BLOCK_M + tl.arange(0, BLOCK_M)
    column = tile_n * width + tl.arange(0, BLOCK_N)
    k = tl.arange(0, BLOCK_K).to(row.dtype)
    a_tile = a + locate(batch, batch_shape, a_batch) * 8
    b_tile = b + locate(batch, batch_shape, b_batch) * 8
    outer, inner = offsets(row, k, rows, a_pitch, A_DEEP)
    a_tile += outer[:, None] + inner[None, :]
    if MORE_N > 0:
        more_column = tile_n * width + BLOCK_N + tl.arange(0, MORE_N)
        outer, inner = offsets(more_column, k, columns, b_pitch, B_DEEP)
        more_tile = b_tile + outer[None, :] + inner[:, None]
        more_total = tl.zeros((BLOCK_M, MORE_N), tl.float32)
    outer, inner = offsets(column, k, columns, b_pitch, B_DEEP)
    b_tile += outer[None, :] + inner[:, None]
    step = tl.full((), BLOCK_K, row.dtype)
    total = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    # The assembler serialises products whose sums may not be theirs: a loop of no turns.
    tl.assume(depth > 0)
    for at in range(0, depth, BLOCK_K):
        if EVEN:
            left = tl.load(a_tile)
            right = tl.load(b_tile)
            if MORE_N > 0:
                more_right = tl.load(more_tile)
        else:
            deep = at + tl.arange(0, BLOCK_K) < depth
            left = tl.load(a_tile, mask=deep[None, :], other=0)
            right = tl.load(b_tile, mask=deep[:, None], other=0)
            if MORE_N > 0:
                more_right = tl.load(more_tile, mask=deep[:, None], other=0)
        total = tl.dot(left, right, total)
        if MORE_N > 0:
            more_total = tl.dot(left, more_right, more_total)
            more_tile += advance(step, b_pitch, B_DEEP)
        a_tile += advance(step, a_pitch, A_DEEP)
        b_tile += advance(step, b_pitch, B_DEEP)
    target = out + locate(batch, batch_shape, out_batch)
    row_stride = out_pitch * OUT_UNIT
    finish(total, bias, target, row, column, rows, columns, row_stride, out_column, bias_stride, ACTIVATION)
    if MORE_N > 0:
        finish(
            more_total, bias, target, row, more_column, rows, columns, row_stride, out_column, bias_stride, ACTIVATION
        )


def bind(ctx: BindContext) -> Sequence[Launch]:
    """Bind ``matmul`` or ``linear``."""
    if ctx.signature.outputs[0].size == 0:
        return ()
    product = product_of(ctx)
    out, bias = product.out, product.bias
    block_m, block_n, more_n = ctx.settings["block_m"], ctx.settings["block_n"], ctx.settings["more_n"]
    width = block_n + more_n
    stages = fitting_stages(ctx, ctx.settings["stages"], 2 * STEP * (block_m + width))
    pieces = pieces_of(product, STEP)
    out_unit = common_unit(out.row)
    step = launch(
        ctx,
        block,
        programs=product.matrices * triton.cdiv(product.rows, block_m) * triton.cdiv(product.columns, width),
        arguments={
            **pieces.arguments,
            "bias": None if bias is None else "bias",
            "out": "out",
            "batch_shape": product.batch,
            "a_batch": tuple(stride // PIECE for stride in product.a.batch),
            "b_batch": tuple(stride // PIECE for stride in product.b.batch),
            "out_batch": out.batch,
            "out_pitch": out.row // out_unit,
            "out_column": out.column,
            "bias_stride": 0 if bias is None else bias.strides[0],
        },
        constants={
            **pieces.constants,
            "ACTIVATION": product.activation,
            "OUT_UNIT": out_unit,
            "WIDE": product.farthest(SLACK) >= NARROW,
            "BLOCK_M": block_m,
            "BLOCK_N": block_n,
            "MORE_N": more_n,
            "BLOCK_K": STEP,
            "HEIGHT": HEIGHT,
        },
        options=Options(num_warps=ctx.settings["warps"], num_stages=stages, enable_fp_fusion=True),
    )
    return (step,)
