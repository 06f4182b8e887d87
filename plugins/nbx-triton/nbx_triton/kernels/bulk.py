"""matmul and linear of 16-bit floats by large tiles that the device's copy engine brings (TMA, from sm_90 on).

A program describes both operands to the engine, then computes one tile after another: as many programs as run at once
share the tiles, so that the first pieces of the next tile are on their way while this one is rounded and written. The
engine fills what lies past an extent with zeros, so nothing is masked. The descriptions lie in the workspace.

Accumulation is float32, along the depth in steps of 64, ascending, without splitting it. Deterministic.

On an H200 float16 4096 cubed takes 186 us (torch 182), 8192 cubed 1.64 ms (1.66), 64 products of 512 cubed 38.4 us
(37.3), cold, medians, torch in the same run.
"""

from __future__ import annotations

from collections.abc import Sequence

import triton
import triton.language as tl

from nbx_registry.launch import BindContext, Launch
from nbx_registry.space import Space
from nbx_triton.compiler import Options
from nbx_triton.kernels.blocks import finish
from nbx_triton.kernels.products import PIECE, common_unit, pieces_of, product_of, tile_of
from nbx_triton.kernels.strided import NARROW
from nbx_triton.launching import launch

STEP = 64
"""Of the depth, a step of the pipeline: a row of 128 bytes, the widest that the engine swizzles."""
HEIGHT = 8
"""Rows of tiles that are taken together, so that neighbours share what they read."""
SLACK = 256
"""More than tiles reach past the last row, column and depth."""
MOST_PROGRAMS = 1024

SETTINGS = Space(
    parameters={"block_m": (64, 128), "block_n": (128, 256), "stages": (3, 4), "resident": (1, 2)},
    exclude={
        "shared memory of the stages": (
            "resident * ((block_m + block_n) * 128 * stages + block_m * block_n)"
            " > device.shared.bytes_per_multiprocessor - 4096"
        ),
        "registers of the sums": "resident > 1 and block_m * block_n > 16384",
        "wider than the product": "block_n > 128 and block_n >= 2 * N",
    },
)


@triton.jit
def describe(
    pointer,
    batches,
    batch_pitch,
    extent,
    depth,
    pitch,
    DEEP: tl.constexpr,
    BATCHED: tl.constexpr,
    BLOCK: tl.constexpr,
    BLOCK_K: tl.constexpr,
):
    """Return an operand's description, for tiles of BLOCK along its outer axis by BLOCK_K along the depth.

    Pitches are in pieces of 8 elements. DEEP: elements lie side by side along the depth, or else along the outer axis.
    """
    if BATCHED:
        if DEEP:
            found = tl.make_tensor_descriptor(
                pointer, [batches, extent, depth], [batch_pitch * 8, pitch * 8, 1], [1, BLOCK, BLOCK_K]
            )
        else:
            found = tl.make_tensor_descriptor(
                pointer, [batches, depth, extent], [batch_pitch * 8, pitch * 8, 1], [1, BLOCK_K, BLOCK]
            )
    elif DEEP:
        found = tl.make_tensor_descriptor(pointer, [extent, depth], [pitch * 8, 1], [BLOCK, BLOCK_K])
    else:
        found = tl.make_tensor_descriptor(pointer, [depth, extent], [pitch * 8, 1], [BLOCK_K, BLOCK])
    return found


@triton.jit
def fetch(
    described,
    batch,
    first,
    at,
    DEEP: tl.constexpr,
    BATCHED: tl.constexpr,
    BLOCK: tl.constexpr,
    BLOCK_K: tl.constexpr,
):
    """Return the tile from index ``first`` of the outer axis and ``at`` of the depth; zeros past the ends."""
    if BATCHED:
        if DEEP:
            tile = tl.reshape(described.load([batch, first, at]), (BLOCK, BLOCK_K))
        else:
            tile = tl.trans(tl.reshape(described.load([batch, at, first]), (BLOCK_K, BLOCK)))
    elif DEEP:
        tile = described.load([first, at])
    else:
        tile = tl.trans(described.load([at, first]))
    return tile


@triton.jit
def bulk(
    a,
    b,
    bias,
    out,
    rows,
    columns,
    depth,
    batches,
    a_batch,
    b_batch,
    out_batch,
    a_pitch,
    b_pitch,
    out_pitch,
    out_column,
    bias_stride,
    tiles,
    programs,
    ACTIVATION: tl.constexpr,
    A_DEEP: tl.constexpr,
    B_DEEP: tl.constexpr,
    BATCHED: tl.constexpr,
    COLUMN_UNIT: tl.constexpr,
    OUT_UNIT: tl.constexpr,
    WIDE: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
    HEIGHT: tl.constexpr,
):
    """Write every ``programs``-th tile of ``activation(a @ b + bias)``. Tiles are numbered batch by batch."""
    columns = columns * COLUMN_UNIT
    tiles_m = (rows + BLOCK_M - 1) // BLOCK_M
    tiles_n = (columns + BLOCK_N - 1) // BLOCK_N
    a_described = describe(a, batches, a_batch, rows, depth, a_pitch, A_DEEP, BATCHED, BLOCK_M, BLOCK_K)
    b_described = describe(b, batches, b_batch, columns, depth, b_pitch, B_DEEP, BATCHED, BLOCK_N, BLOCK_K)
    # The assembler serialises products whose sums may not be theirs: a loop of no turns.
    tl.assume(depth > 0)
    for number in tl.range(tl.program_id(0), tiles, programs, flatten=True):
        batch = number // (tiles_m * tiles_n)
        tile_m, tile_n = tile_of(number % (tiles_m * tiles_n), tiles_m, tiles_n, HEIGHT)
        total = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
        for at in range(0, depth, BLOCK_K):
            left = fetch(a_described, batch, tile_m * BLOCK_M, at, A_DEEP, BATCHED, BLOCK_M, BLOCK_K)
            right = fetch(b_described, batch, tile_n * BLOCK_N, at, B_DEEP, BATCHED, BLOCK_N, BLOCK_K)
            total = tl.dot(left, tl.trans(right), total)
        row = tile_m * BLOCK_M + tl.arange(0, BLOCK_M)
        column = tile_n * BLOCK_N
        if WIDE:
            batch = batch.to(tl.int64)
            row = row.to(tl.int64)
            column = column.to(tl.int64)
        target = out + batch * out_batch
        pitch = out_pitch * OUT_UNIT
        if OUT_UNIT > 1 and not WIDE:
            # One half of the columns after the other: what is made of one takes half of the registers. Addresses of
            # 64 bits, or of single elements, would take more than that leaves.
            near, far = tl.split(tl.permute(tl.reshape(total, (BLOCK_M, 2, BLOCK_N // 2)), (0, 2, 1)))
            half = column + tl.arange(0, BLOCK_N // 2)
            finish(near, bias, target, row, half, rows, columns, pitch, out_column, bias_stride, ACTIVATION)
            half += BLOCK_N // 2
            finish(far, bias, target, row, half, rows, columns, pitch, out_column, bias_stride, ACTIVATION)
        else:
            whole = column + tl.arange(0, BLOCK_N)
            finish(total, bias, target, row, whole, rows, columns, pitch, out_column, bias_stride, ACTIVATION)


def bind(ctx: BindContext) -> Sequence[Launch]:
    """Bind ``matmul`` or ``linear``."""
    if ctx.signature.outputs[0].size == 0:
        return ()
    product = product_of(ctx)
    out, bias = product.out, product.bias
    block_m, block_n, stages = ctx.settings["block_m"], ctx.settings["block_n"], ctx.settings["stages"]
    tiles = product.matrices * triton.cdiv(product.rows, block_m) * triton.cdiv(product.columns, block_n)
    programs = min(tiles, ctx.settings["resident"] * ctx.device.fact("multiprocessors"), MOST_PROGRAMS)
    pieces = pieces_of(product, STEP)
    out_unit = common_unit(out.row)
    step = launch(
        ctx,
        bulk,
        programs=programs,
        arguments={
            **pieces.arguments,
            "depth": product.depth,
            "bias": None if bias is None else "bias",
            "out": "out",
            "batches": product.matrices,
            "a_batch": product.a.batch[0] // PIECE,
            "b_batch": product.b.batch[0] // PIECE,
            "out_batch": out.batch[0],
            "out_pitch": out.row // out_unit,
            "out_column": out.column,
            "bias_stride": 0 if bias is None else bias.strides[0],
            "tiles": tiles,
            "programs": programs,
        },
        constants={
            "ACTIVATION": product.activation,
            "A_DEEP": pieces.constants["A_DEEP"],
            "B_DEEP": pieces.constants["B_DEEP"],
            "COLUMN_UNIT": pieces.constants["COLUMN_UNIT"],
            "BATCHED": product.matrices > 1,
            "OUT_UNIT": out_unit,
            "WIDE": product.farthest(SLACK) >= NARROW,
            "BLOCK_M": block_m,
            "BLOCK_N": block_n,
            "BLOCK_K": STEP,
            "HEIGHT": HEIGHT,
        },
        options=Options(num_warps=8 if block_m * block_n > 16384 else 4, num_stages=stages, enable_fp_fusion=True),
        scratch="descriptions",
    )
    return (step,)
