"""matmul and linear: tiles of a matrix product, one program a tile.

Operands are read through strides of their own, so transposed and expanded ones cost no copy. float16 and bfloat16 use
the device's matrix unit where Triton has it, float32 and float64 products are IEEE. Accumulation is float32 (float64 in
float64), along K in steps of ``BLOCK_K``, ascending, without splitting K. Deterministic.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import triton
import triton.language as tl

from nbx_registry.launch import BindContext, Launch
from nbx_triton.compiler import Options
from nbx_triton.kernels.products import Product, activate, product_of, tile_of
from nbx_triton.kernels.strided import NARROW, locate, program
from nbx_triton.launching import has_matrix_unit, launch

_GROUP = 8
_SLACK = 128


@triton.jit
def product(
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
    row_shape,
    a_rows,
    out_rows,
    a_depth,
    b_depth,
    b_column,
    out_column,
    bias_stride,
    ACTIVATION: tl.constexpr,
    WIDE: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
    GROUP: tl.constexpr,
):
    """Write one tile of ``activation(a @ b + bias)``.

    Tiles are numbered batch by batch, ``GROUP`` rows of them at a time: neighbouring programs share rows of ``a`` and
    columns of ``b``, which stay in the cache.
    """
    number = program(WIDE)
    tiles_m = (rows + BLOCK_M - 1) // BLOCK_M
    tiles_n = (columns + BLOCK_N - 1) // BLOCK_N
    batch = number // (tiles_m * tiles_n)
    tile_m, tile_n = tile_of(number % (tiles_m * tiles_n), tiles_m, tiles_n, GROUP)
    row = tile_m * BLOCK_M + tl.arange(0, BLOCK_M)
    column = tile_n * BLOCK_N + tl.arange(0, BLOCK_N)
    k = tl.arange(0, BLOCK_K).to(row.dtype)
    here_m = (row < rows)[:, None]
    here_n = (column < columns)[None, :]

    a_tile = a + locate(batch, batch_shape, a_batch) + locate(row, row_shape, a_rows)[:, None]
    b_tile = b + locate(batch, batch_shape, b_batch) + column[None, :] * b_column
    if a.dtype.element_ty == tl.float64:
        total = tl.zeros((BLOCK_M, BLOCK_N), tl.float64)
    else:
        total = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    for at in range(0, depth, BLOCK_K):
        deep = at + k
        left = tl.load(a_tile + deep[None, :] * a_depth, mask=here_m & (deep < depth)[None, :], other=0)
        right = tl.load(b_tile + deep[:, None] * b_depth, mask=here_n & (deep < depth)[:, None], other=0)
        total = tl.dot(left, right, total, input_precision="ieee", out_dtype=total.dtype)
    if bias is not None:
        total += tl.load(bias + column * bias_stride, mask=column < columns, other=0).to(total.dtype)[None, :]
    total = activate(total, ACTIVATION, out.dtype.element_ty)
    target = out + locate(batch, batch_shape, out_batch) + locate(row, row_shape, out_rows)[:, None]
    tl.store(target + column[None, :] * out_column, total.to(out.dtype.element_ty), mask=here_m & here_n)


class _Tile(NamedTuple):
    m: int
    n: int
    k: int
    warps: int
    stages: int


def _tile(ctx: BindContext, product: Product, wide: bool) -> _Tile:
    rows, columns, bits = product.rows, product.columns, product.a.spec.dtype.bits
    if bits == 64:
        return _Tile(32, 32, 16, 4, 2)
    if bits == 32:
        # Smooth activations in float32 take many registers.
        warps = 4 if product.activation in ("none", "relu") else 8
        return _Tile(16, 64, 32, 4, 2) if rows <= 16 else _Tile(64, 64, 16, warps, 2)
    if not has_matrix_unit(ctx):
        # Fused multiply-adds on registers: tiles larger than this take seconds to compile and spill.
        return _Tile(16, 64, 32, 4, 1) if rows <= 16 else _Tile(64, 64, 16, 4, 1)
    if rows <= 16:
        return _Tile(16, 64, 128, 4, 3)
    if rows <= 64 or columns <= 64:
        return _Tile(64, 64, 32, 4, 3)
    # Addresses in 64 bits take twice the registers.
    return _Tile(128, 64 if wide else 128, 32, 8, 3)


def bind(ctx: BindContext) -> Sequence[Launch]:
    """Bind ``matmul`` or ``linear``."""
    if ctx.signature.outputs[0].size == 0:
        return ()
    o = product_of(ctx)
    wide = o.farthest(_SLACK) >= NARROW
    tile = _tile(ctx, o, wide)
    step = launch(
        ctx,
        product,
        programs=o.matrices * triton.cdiv(o.rows, tile.m) * triton.cdiv(o.columns, tile.n),
        arguments={
            "a": o.a.name,
            "b": o.b.name,
            "bias": None if o.bias is None else "bias",
            "out": "out",
            "rows": o.rows,
            "columns": o.columns,
            "depth": o.depth,
            "batch_shape": o.batch,
            "a_batch": o.a.batch,
            "b_batch": o.b.batch,
            "out_batch": o.out.batch,
            "row_shape": o.row_shape,
            "a_rows": o.a.rows,
            "out_rows": o.out.rows,
            "a_depth": o.a.column,
            "b_depth": o.b.row,
            "b_column": o.b.column,
            "out_column": o.out.column,
            "bias_stride": 0 if o.bias is None else o.bias.strides[0],
        },
        constants={
            "ACTIVATION": o.activation,
            "WIDE": wide,
            "BLOCK_M": tile.m,
            "BLOCK_N": tile.n,
            "BLOCK_K": tile.k,
            "GROUP": _GROUP,
        },
        options=Options(num_warps=tile.warps, num_stages=tile.stages, enable_fp_fusion=True),
    )
    return (step,)
