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
from nbx_registry.spec import TensorSpec
from nbx_triton.compiler import Options
from nbx_triton.kernels.mathematics import exponential, normal_distribution
from nbx_triton.kernels.strided import NARROW, broadcast_strides, collapse, locate, program, reach
from nbx_triton.launching import Argument, has_matrix_unit, launch

_GROUP = 8
_SLACK = 128


@triton.jit
def activate(x, ACTIVATION: tl.constexpr):
    """Apply an epilogue to float32 (or float64) accumulators."""
    if ACTIVATION == "relu":
        # A comparison keeps NaN, which a maximum may drop.
        x = tl.where(x < 0, 0.0, x).to(x.dtype)
    elif ACTIVATION == "gelu":
        x = x * normal_distribution(x)
    elif ACTIVATION == "gelu_tanh":
        x = tl.div_rn(x, 1.0 + exponential(-1.5957691216057308 * (x + 0.044715 * x * x * x)))
    elif ACTIVATION == "silu":
        x = tl.div_rn(x, 1.0 + exponential(-x))
    elif ACTIVATION == "sigmoid":
        x = tl.div_rn(1.0, 1.0 + exponential(-x))
    else:
        tl.static_assert(ACTIVATION == "none")
    return x


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
    tile = number % (tiles_m * tiles_n)
    first = tile // (GROUP * tiles_n) * GROUP
    height = tl.minimum(tiles_m - first, GROUP)
    within = tile % (GROUP * tiles_n)
    row = (first + within % height) * BLOCK_M + tl.arange(0, BLOCK_M)
    column = (within // height) * BLOCK_N + tl.arange(0, BLOCK_N)
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
    total = activate(total, ACTIVATION)
    target = out + locate(batch, batch_shape, out_batch) + locate(row, row_shape, out_rows)[:, None]
    tl.store(target + column[None, :] * out_column, total.to(out.dtype.element_ty), mask=here_m & here_n)


class _Operands(NamedTuple):
    """A product as the kernel sees it: axes that number matrices, axes that number rows, and the last two strides."""

    batch: tuple[int, ...]
    rows: tuple[int, ...]
    a_batch: tuple[int, ...]
    a_rows: tuple[int, ...]
    a_depth: int
    b_batch: tuple[int, ...]
    b_depth: int
    b_column: int
    out_batch: tuple[int, ...]
    out_rows: tuple[int, ...]
    out_column: int
    columns: int
    depth: int


class _Tile(NamedTuple):
    m: int
    n: int
    k: int
    warps: int
    stages: int


def _tile(ctx: BindContext, x: TensorSpec, rows: int, columns: int, wide: bool) -> _Tile:
    if x.dtype.bits == 64:
        return _Tile(32, 32, 16, 4, 2)
    if x.dtype.bits == 32:
        return _Tile(16, 64, 32, 4, 2) if rows <= 16 else _Tile(64, 64, 16, 4, 2)
    if not has_matrix_unit(ctx):
        # Fused multiply-adds on registers: tiles larger than this take seconds to compile and spill.
        return _Tile(16, 64, 32, 4, 1) if rows <= 16 else _Tile(64, 64, 16, 4, 1)
    if rows <= 16:
        return _Tile(16, 64, 128, 4, 3)
    if rows <= 64 or columns <= 64:
        return _Tile(64, 64, 64, 4, 3)
    # Addresses in 64 bits take twice the registers.
    return _Tile(128, 64 if wide else 128, 64, 8, 3)


def _bind(
    ctx: BindContext, names: tuple[str, str], bias: TensorSpec | None, activation: str, o: _Operands
) -> Sequence[Launch]:
    out = ctx.signature.outputs[0]
    if out.size == 0:
        return ()
    x = ctx.signature.tensor(names[0])
    rows = 1
    for extent in o.rows:
        rows *= extent
    matrices = out.size // (rows * o.columns)
    batch_shape, a_batch, b_batch, out_batch = collapse(o.batch, o.a_batch, o.b_batch, o.out_batch)
    row_shape, a_rows, out_rows = collapse(o.rows, o.a_rows, o.out_rows)
    # The slack covers the padding of the last tile, whose offsets are computed and masked off.
    padded, deep, across = (*o.rows[:-1], o.rows[-1] + _SLACK) if o.rows else (), o.depth + _SLACK, o.columns + _SLACK
    farthest = max(
        reach(o.batch, o.a_batch) + reach((*padded, deep), (*o.a_rows, o.a_depth)),
        reach(o.batch, o.b_batch) + reach((deep, across), (o.b_depth, o.b_column)),
        reach(o.batch, o.out_batch) + reach((*padded, across), (*o.out_rows, o.out_column)),
    )
    wide = farthest >= NARROW
    tile = _tile(ctx, x, rows, o.columns, wide)
    programs = matrices * triton.cdiv(rows, tile.m) * triton.cdiv(o.columns, tile.n)
    arguments: dict[str, Argument] = {
        "a": names[0],
        "b": names[1],
        "bias": None if bias is None else "bias",
        "out": "out",
        "rows": rows,
        "columns": o.columns,
        "depth": o.depth,
        "batch_shape": batch_shape,
        "a_batch": a_batch,
        "b_batch": b_batch,
        "out_batch": out_batch,
        "row_shape": row_shape,
        "a_rows": a_rows,
        "out_rows": out_rows,
        "a_depth": o.a_depth,
        "b_depth": o.b_depth,
        "b_column": o.b_column,
        "out_column": o.out_column,
        "bias_stride": 0 if bias is None else bias.strides[0],
    }
    step = launch(
        ctx,
        product,
        programs=programs,
        arguments=arguments,
        constants={
            "ACTIVATION": activation,
            "WIDE": wide,
            "BLOCK_M": tile.m,
            "BLOCK_N": tile.n,
            "BLOCK_K": tile.k,
            "GROUP": _GROUP,
        },
        options=Options(num_warps=tile.warps, num_stages=tile.stages, enable_fp_fusion=True),
    )
    return (step,)


def bind_matmul(ctx: BindContext) -> Sequence[Launch]:
    """Bind ``matmul``: leading axes broadcast, an operand of rank 1 is a row or a column."""
    x1, x2 = ctx.signature.tensors
    (out,) = ctx.signature.outputs
    # Operands of rank 1 get the axis they lack, with extent 1.
    shape1, strides1 = (x1.shape, x1.strides) if x1.rank > 1 else ((1, *x1.shape), (0, *x1.strides))
    shape2, strides2 = (x2.shape, x2.strides) if x2.rank > 1 else ((*x2.shape, 1), (*x2.strides, 0))
    out_strides = list(out.strides)
    if x1.rank == 1:
        out_strides.insert(out.rank if x2.rank == 1 else out.rank - 1, 0)
    if x2.rank == 1:
        out_strides.append(0)
    rank = len(out_strides) - 2
    batch = tuple(out.shape[:rank])
    operands = _Operands(
        batch=batch,
        rows=(shape1[-2],),
        a_batch=broadcast_strides(shape1[:-2], strides1[:-2], rank),
        a_rows=(strides1[-2],),
        a_depth=strides1[-1],
        b_batch=broadcast_strides(shape2[:-2], strides2[:-2], rank),
        b_depth=strides2[-2],
        b_column=strides2[-1],
        out_batch=tuple(out_strides[:rank]),
        out_rows=(out_strides[-2],),
        out_column=out_strides[-1],
        columns=shape2[-1],
        depth=shape1[-1],
    )
    return _bind(ctx, ("x1", "x2"), None, "none", operands)


def bind_linear(ctx: BindContext) -> Sequence[Launch]:
    """Bind ``linear``: the leading axes of x number the rows, w is ``[N, K]``."""
    x, w, bias = ctx.signature.tensors
    (out,) = ctx.signature.outputs
    operands = _Operands(
        batch=(),
        rows=x.shape[:-1],
        a_batch=(),
        a_rows=x.strides[:-1],
        a_depth=x.strides[-1],
        b_batch=(),
        b_depth=w.strides[1],
        b_column=w.strides[0],
        out_batch=(),
        out_rows=out.strides[:-1],
        out_column=out.strides[-1],
        columns=w.shape[0],
        depth=w.shape[1],
    )
    return _bind(ctx, ("x", "w"), bias, ctx.signature.attributes["activation"] or "none", operands)
