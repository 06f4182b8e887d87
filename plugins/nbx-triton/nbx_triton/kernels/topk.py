"""topk: of short rows by sorting them in registers, of any rows by going over them k times.

`rows`: one program sorts ``BLOCK_ROWS`` rows of up to 4096 elements, as far as its k best need (a bitonic sort of runs
of k, of which halves then drop out: A. Shanbhag, H. Pirk and S. Madden, "Efficient Top-K Query Processing on GPUs",
2018). `passes`: one program goes over a row once for each of the k, for dtypes of 64 bits and whatever else nothing
better is for. Values are copied from where they were found: signs of zeros and the bits of NaN stay. Deterministic.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import triton
import triton.language as tl

from nbx_registry.infer import normalise_axis
from nbx_registry.launch import BindContext, Launch
from nbx_triton.compiler import Options
from nbx_triton.kernels.ordering import order_key, pack, place_of
from nbx_triton.kernels.strided import NARROW, collapse, locate, program, reach
from nbx_triton.launching import Argument, launch

_ELEMENTS = 2048
_PIECE = 1024


@triton.jit
def rows_in_registers(
    x,
    values,
    indices,
    rows,
    length,
    k,
    row_shape,
    x_row_strides,
    value_row_strides,
    index_row_strides,
    stride,
    value_stride,
    index_stride,
    LARGEST: tl.constexpr,
    NARROW_KEY: tl.constexpr,
    WIDE: tl.constexpr,
    BLOCK_ROWS: tl.constexpr,
    BLOCK: tl.constexpr,
    K: tl.constexpr,
):
    """Write the k best of ``BLOCK_ROWS`` rows. K is k up to a power of two, BLOCK the length."""
    row = program(WIDE) * BLOCK_ROWS + tl.arange(0, BLOCK_ROWS)
    here = (row < rows)[:, None]
    column = tl.arange(0, BLOCK)[None, :]
    inside = here & (column < length)
    source = x + locate(row, row_shape, x_row_strides)[:, None]
    a = tl.load(source + column.to(row.dtype) * stride, mask=inside, other=0)
    best = tl.topk(pack(order_key(a, LARGEST), column, inside, NARROW_KEY), K)
    place = place_of(best, NARROW_KEY)
    rank = tl.arange(0, K)[None, :].to(row.dtype)
    wanted = here & (rank < k)
    found = tl.load(source + place.to(row.dtype) * stride, mask=wanted, other=0)
    value_target = values + locate(row, row_shape, value_row_strides)[:, None]
    tl.store(value_target + rank * value_stride, found, mask=wanted)
    index_target = indices + locate(row, row_shape, index_row_strides)[:, None]
    tl.store(index_target + rank * index_stride, place.to(tl.int64), mask=wanted)


@triton.jit
def row_by_passes(
    x,
    values,
    indices,
    length,
    k,
    row_shape,
    x_row_strides,
    value_row_strides,
    index_row_strides,
    stride,
    value_stride,
    index_stride,
    LARGEST: tl.constexpr,
    WIDE: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Write the k best of one row, each found among those that come after the one before it."""
    row = program(WIDE)
    source = x + locate(row, row_shape, x_row_strides)
    value_target = values + locate(row, row_shape, value_row_strides)
    index_target = indices + locate(row, row_shape, index_row_strides)
    last_key = tl.full((1,), 0, tl.int64)
    last_place = tl.full((1,), -1, tl.int64)
    first = tl.full((1,), 1, tl.int32)
    for rank in range(k):
        # A place of ``length`` stands for none.
        best_key = tl.full((BLOCK,), -0x8000000000000000, tl.int64)
        best_place = tl.full((BLOCK,), 0, tl.int64) + length
        for at in range(0, length, BLOCK):
            column = at + tl.arange(0, BLOCK).to(tl.int64)
            inside = column < length
            key = order_key(tl.load(source + column * stride, mask=inside, other=0), LARGEST).to(tl.int64)
            after = (key < last_key) | ((key == last_key) & (column > last_place)) | (first == 1)
            better = inside & after & ((key > best_key) | (best_place == length))
            best_key = tl.where(better, key, best_key)
            best_place = tl.where(better, column, best_place)
        top = tl.max(best_key, axis=0)
        place = tl.min(tl.where(best_key == top, best_place, length), axis=0)
        last_key = tl.full((1,), 0, tl.int64) + top
        last_place = tl.full((1,), 0, tl.int64) + place
        first = tl.full((1,), 0, tl.int32)
        step = rank + row * 0
        tl.store(value_target + step * value_stride, tl.load(source + place.to(row.dtype) * stride))
        tl.store(index_target + step * index_stride, place)


def arguments_of(ctx: BindContext) -> tuple[dict[str, Argument], int]:
    """Return the arguments that every kernel of topk takes, and the rows."""
    (x,) = ctx.signature.operands
    values, indices = ctx.signature.outputs
    axis = normalise_axis(ctx.signature.attributes["axis"], x.rank)
    others = [a for a in range(x.rank) if a != axis]
    row_shape, x_rows, value_rows, index_rows = collapse(
        [x.shape[a] for a in others], *([spec.strides[a] for a in others] for spec in (x, values, indices))
    )
    arguments: dict[str, Argument] = {
        "x": "x",
        "values": "values",
        "indices": "indices",
        "length": x.shape[axis],
        "k": ctx.signature.attributes["k"],
        "row_shape": row_shape,
        "x_row_strides": x_rows,
        "value_row_strides": value_rows,
        "index_row_strides": index_rows,
        "stride": x.strides[axis],
        "value_stride": values.strides[axis],
        "index_stride": indices.strides[axis],
    }
    return arguments, x.size // x.shape[axis]


def wide(ctx: BindContext, slack: int) -> bool:
    """Return whether offsets need 64 bits; ``slack`` elements along any axis are computed and masked off."""
    specs = (*ctx.signature.operands, *ctx.signature.outputs)
    return any(
        2 * reach(spec.shape, spec.strides) + slack * max(map(abs, spec.strides)) >= NARROW or spec.size >= NARROW
        for spec in specs
    )


def narrow_key(ctx: BindContext) -> bool:
    """Return whether key and place fit 32 bits."""
    (x,) = ctx.signature.operands
    return x.dtype.bits <= 16 and ctx.signature.axes["L"] < 65536


def bind_rows(ctx: BindContext) -> Sequence[Launch]:
    """Bind ``topk`` of rows that are sorted in registers."""
    values, _ = ctx.signature.outputs
    if values.size == 0:
        return ()
    arguments, rows = arguments_of(ctx)
    block = triton.next_power_of_2(ctx.signature.axes["L"])
    block_rows = min(max(1, _ELEMENTS // block), triton.next_power_of_2(rows))
    constants: dict[str, Any] = {
        "LARGEST": bool(ctx.signature.attributes["largest"]),
        "NARROW_KEY": narrow_key(ctx),
        "WIDE": wide(ctx, block_rows * block),
        "BLOCK_ROWS": block_rows,
        "BLOCK": block,
        "K": triton.next_power_of_2(ctx.signature.attributes["k"]),
    }
    step = launch(
        ctx,
        rows_in_registers,
        programs=triton.cdiv(rows, block_rows),
        arguments={**arguments, "rows": rows},
        constants=constants,
        options=Options(num_warps=max(1, min(8, block_rows * block // 512)), num_stages=1, enable_fp_fusion=False),
    )
    return (step,)


def bind_passes(ctx: BindContext) -> Sequence[Launch]:
    """Bind ``topk`` of any rows, k times over each."""
    values, _ = ctx.signature.outputs
    if values.size == 0:
        return ()
    arguments, rows = arguments_of(ctx)
    step = launch(
        ctx,
        row_by_passes,
        programs=rows,
        arguments=arguments,
        constants={
            "LARGEST": bool(ctx.signature.attributes["largest"]),
            "WIDE": wide(ctx, _PIECE),
            "BLOCK": _PIECE,
        },
        options=Options(num_warps=8, num_stages=1, enable_fp_fusion=False),
    )
    return (step,)
