"""matmul and linear of a few rows of 16-bit floats by a large matrix, which is what takes the time: it is read once.

A program has some columns of b and all rows of a, which is small and comes from the cache. The columns are the tall
side of its products on the matrix unit, rows the short one, 16 at the least: a power of two or two of them, so that 80
are 64 and 16, not 128. Where the columns alone make too few programs to keep the memory busy, several share the depth:
each writes its sums, float32, to the workspace, and a second launch adds these in order, adds the bias, and applies the
activation.

Operands lie in whole 16-byte pieces, as `blocks` has it. Accumulation is float32 in a fixed order. Deterministic.

On an H200 32 rows of float16 by a [8192, 2048] weight take 17.2 us cold, by a [2048, 8192] one 17.8 us; 80 rows by a
[4096, 4096] one 19.5 us, where a copy of the bytes takes 14.0, 13.1 and 13.2 us. One after another in a graph, each by
a weight of its own, the first two take 10.7 and 11.9 us.
"""

from __future__ import annotations

from collections.abc import Sequence

import triton
import triton.language as tl
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait

from nbx_registry.launch import BindContext, Launch
from nbx_registry.space import Space
from nbx_triton.compiler import Options
from nbx_triton.kernels.products import (
    activate,
    advance,
    common_unit,
    fitting_stages,
    offsets,
    pieces_of,
    product_of,
    reads_shared_memory,
)
from nbx_triton.kernels.strided import NARROW, program
from nbx_triton.launching import Argument, launch, waits_by_itself

MOST_SHARES = 16
_LEAST_STEPS = 4
"""Of a program: the pipeline is to fill."""
_SLACK = 256
"""More than tiles reach past the last row, column and depth."""
_JOINED = 512
"""Elements that a program of the second launch adds up."""

SETTINGS = Space(
    parameters={
        "block_n": (64, 128),
        "block_k": (64, 128),
        "stages": (4, 6, 8),
        "programs": (128, 256),
    },
    exclude={
        "shared memory of the stages": "2 * (block_n + 16) * block_k * stages > device.shared.bytes_per_block_optin",
        "wider than the product": "block_n > 64 and block_n > N",
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
    """Write ``activation(total + bias)``, of columns by rows, to ``target``."""
    if bias is not None:
        total += tl.load(bias + tl.minimum(column, columns - 1) * bias_stride).to(tl.float32)[:, None]
    total = activate(total, ACTIVATION, target.dtype.element_ty).to(target.dtype.element_ty)
    place = target + row[:, None] * row_stride + column[None, :] * column_stride
    tl.store(place, tl.trans(total), mask=(row < rows)[:, None] & (column < columns)[None, :])


@triton.jit
def stream(
    a,
    b,
    bias,
    target,
    rows,
    columns,
    depth,
    share,
    a_pitch,
    b_pitch,
    target_strides,
    bias_stride,
    ACTIVATION: tl.constexpr,
    A_DEEP: tl.constexpr,
    B_DEEP: tl.constexpr,
    COLUMN_UNIT: tl.constexpr,
    DEPTH_UNIT: tl.constexpr,
    TARGET_UNIT: tl.constexpr,
    EVEN: tl.constexpr,
    EARLY: tl.constexpr,
    WIDE: tl.constexpr,
    BLOCK_M: tl.constexpr,
    MORE_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
):
    """Write the sums of BLOCK_N columns over a share of the depth to ``target``: strides of share, row and column.

    There are BLOCK_M rows and MORE_M, which may be 0. Flags and units are those of `blocks.block`; TARGET_UNIT is of
    the stride of rows. EARLY: the launch after this one waits by itself for what is written here.
    """
    if EARLY:
        # Once all programs have begun; those of the next launch are then in place when the last of these ends.
        gdc_launch_dependents()
    number = program(WIDE)
    columns = columns * COLUMN_UNIT
    depth = depth * DEPTH_UNIT
    tiles = (columns + BLOCK_N - 1) // BLOCK_N
    part = number // tiles
    column = number % tiles * BLOCK_N + tl.arange(0, BLOCK_N)
    row = tl.arange(0, BLOCK_M).to(column.dtype)
    first = (part * share).to(tl.int32)
    last = tl.minimum(first + share, depth)
    k = first + tl.arange(0, BLOCK_K).to(column.dtype)
    outer, inner = offsets(column, k, columns, b_pitch, B_DEEP)
    tall = b + outer[:, None] + inner[None, :]
    outer, inner = offsets(row, k, rows, a_pitch, A_DEEP)
    short = a + outer[None, :] + inner[:, None]
    step = tl.full((), BLOCK_K, column.dtype)
    total = tl.zeros((BLOCK_N, BLOCK_M), tl.float32)
    if MORE_M > 0:
        more_row = BLOCK_M + tl.arange(0, MORE_M).to(column.dtype)
        outer, inner = offsets(more_row, k, rows, a_pitch, A_DEEP)
        more_short = a + outer[None, :] + inner[:, None]
        more_total = tl.zeros((BLOCK_N, MORE_M), tl.float32)
    # The assembler serialises products of a loop that may have no turns.
    tl.assume(first < last)
    for at in range(first, last, BLOCK_K):
        if EVEN:
            left = tl.load(tall)
            right = tl.load(short)
            if MORE_M > 0:
                more_right = tl.load(more_short)
        else:
            deep = at + tl.arange(0, BLOCK_K) < depth
            left = tl.load(tall, mask=deep[None, :], other=0)
            right = tl.load(short, mask=deep[:, None], other=0)
            if MORE_M > 0:
                more_right = tl.load(more_short, mask=deep[:, None], other=0)
        total = tl.dot(left, right, total)
        if MORE_M > 0:
            more_total = tl.dot(left, more_right, more_total)
            more_short += advance(step, a_pitch, A_DEEP)
        tall += advance(step, b_pitch, B_DEEP)
        short += advance(step, a_pitch, A_DEEP)
    target += part * target_strides[0]
    row_stride = target_strides[1] * TARGET_UNIT
    finish(total, bias, target, row, column, rows, columns, row_stride, target_strides[2], bias_stride, ACTIVATION)
    if MORE_M > 0:
        finish(
            more_total,
            bias,
            target,
            more_row,
            column,
            rows,
            columns,
            row_stride,
            target_strides[2],
            bias_stride,
            ACTIVATION,
        )


@triton.jit
def join(
    partial,
    bias,
    out,
    count,
    columns,
    out_row,
    out_column,
    bias_stride,
    ACTIVATION: tl.constexpr,
    EARLY: tl.constexpr,
    WIDE: tl.constexpr,
    SHARES: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Write BLOCK of ``count`` results, row after row: the sums of all shares, in order.

    EARLY: the launch before may not have ended.
    """
    if EARLY:
        gdc_wait()
    index = program(WIDE) * BLOCK + tl.arange(0, BLOCK)
    here = index < count
    row = index // columns
    column = index % columns
    total = tl.zeros((BLOCK,), tl.float32)
    for part in tl.static_range(SHARES):
        total += tl.load(partial + part * count + index, mask=here, other=0)
    if bias is not None:
        total += tl.load(bias + column * bias_stride, mask=here, other=0).to(tl.float32)
    total = activate(total, ACTIVATION, out.dtype.element_ty)
    tl.store(out + row * out_row + column * out_column, total.to(out.dtype.element_ty), mask=here)


def share_depth(depth: int, block_k: int, tiles: int, programs: int) -> tuple[int, int]:
    """Return how deep a program goes, in whole steps, and how many there are then for each of ``tiles``.

    ``programs`` is about how many there are to be in all. The kernels' workspaces declare the same number.
    """
    steps = triton.cdiv(depth, block_k)
    share = triton.cdiv(steps, max(1, min(programs // tiles, MOST_SHARES, triton.cdiv(steps, _LEAST_STEPS))))
    return share * block_k, triton.cdiv(steps, share)


def split_rows(ctx: BindContext, rows: int) -> tuple[int, int]:
    """Return two powers of two that take in all rows with the fewest left over; the second is smaller, or 0.

    It is 0 where products read registers, of which two in a step take too many.
    """
    whole = max(16, triton.next_power_of_2(rows))
    half = whole // 2
    rest = max(16, triton.next_power_of_2(max(1, rows - half)))
    return (half, rest) if rest < half and reads_shared_memory(ctx) else (whole, 0)


def bind(ctx: BindContext) -> Sequence[Launch]:
    """Bind ``matmul`` or ``linear``."""
    if ctx.signature.outputs[0].size == 0:
        return ()
    product = product_of(ctx)
    out = product.out
    rows, columns = product.rows, product.columns
    block_n, block_k = ctx.settings["block_n"], ctx.settings["block_k"]
    tiles = triton.cdiv(columns, block_n)
    share, shares = share_depth(product.depth, block_k, tiles, ctx.settings["programs"])
    joined = shares > 1
    target_row = columns if joined else out.row
    unit = common_unit(target_row)
    wide = max(product.farthest(_SLACK), shares * rows * columns) >= NARROW
    pieces = pieces_of(product, block_k)
    block_m, more_m = split_rows(ctx, rows)
    # More programs than multiprocessors are to run two at a time.
    together = 1 if tiles * shares <= ctx.device.fact("multiprocessors") else 2
    stages = fitting_stages(ctx, ctx.settings["stages"], 2 * block_k * (block_m + more_m + block_n), together)
    # 128 sums a thread leave too few registers for the epilogue.
    warps = 8 if block_m * block_n >= 16384 else 4
    early = joined and waits_by_itself(ctx, join)
    ending: dict[str, Argument] = {
        "bias": None if product.bias is None else "bias",
        "bias_stride": 0 if product.bias is None else product.bias.strides[0],
    }
    multiply = launch(
        ctx,
        stream,
        programs=tiles * shares,
        arguments={
            **pieces.arguments,
            **({"bias": None, "bias_stride": 0} if joined else ending),
            "target": "partial" if joined else "out",
            "share": share,
            "target_strides": (rows * columns, target_row // unit, 1 if joined else out.column),
        },
        constants={
            **pieces.constants,
            "ACTIVATION": "none" if joined else product.activation,
            "TARGET_UNIT": unit,
            "EARLY": early,
            "WIDE": wide,
            "BLOCK_M": block_m,
            "MORE_M": more_m,
            "BLOCK_N": block_n,
            "BLOCK_K": block_k,
        },
        options=Options(num_warps=warps, num_stages=stages, enable_fp_fusion=True),
    )
    if not joined:
        return (multiply,)
    add = launch(
        ctx,
        join,
        programs=triton.cdiv(rows * columns, _JOINED),
        arguments={
            **ending,
            "partial": "partial",
            "out": "out",
            "count": rows * columns,
            "columns": columns,
            "out_row": out.row,
            "out_column": out.column,
        },
        constants={
            "ACTIVATION": product.activation,
            "EARLY": early,
            "WIDE": wide,
            "SHARES": shares,
            "BLOCK": _JOINED,
        },
        options=Options(num_warps=4, num_stages=1, enable_fp_fusion=False),
        early=early,
    )
    return (multiply, add)
