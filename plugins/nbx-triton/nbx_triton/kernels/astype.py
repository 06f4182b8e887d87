"""astype: conversion between bool, integers and floating dtypes, each value rounded once.

Tensors are walked as `walk` says, by `dense` or `strided`. Deterministic.
"""

from __future__ import annotations

from collections.abc import Sequence

import triton
import triton.language as tl

from nbx_registry.dtypes import DType
from nbx_registry.launch import BindContext, Launch
from nbx_registry.rounding import float_format, integer_range
from nbx_registry.space import Space
from nbx_registry.spec import TensorSpec
from nbx_triton.kernels.conversion import convert
from nbx_triton.kernels.walk import Operand, Request, consecutive, tile, walk_dense, walk_strided
from nbx_triton.launching import Pointer

SETTINGS = Space(parameters={"vectors": (1, 2, 4, 8), "warps": (4, 8)})
"""Of `dense`: vectors of 16 bytes a thread has of the wider of the two, and warps of a program."""


@triton.jit
def converted(OP: tl.constexpr, x, absent2, absent3, result: tl.constexpr):  # noqa: ARG001 - what the walk hands over
    """Return ``x`` in dtype ``result``; OP says whether it becomes a bool, whether it saturates, and where."""
    if OP[0]:
        y = x != 0
    else:
        y = convert(x, result, OP[2], OP[3], OP[1])
    return y


@triton.jit
def dense(
    operands,
    out,
    count,
    OP: tl.constexpr,
    EVEN: tl.constexpr,
    WIDE: tl.constexpr,
    VECTOR: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Convert consecutive elements."""
    consecutive(converted, OP, operands, out, count, EVEN, WIDE, VECTOR, BLOCK)


@triton.jit
def strided(
    operands,
    out,
    rows,
    columns,
    shape,
    strides,
    out_strides,
    steps,
    out_step,
    OP: tl.constexpr,
    WIDE: tl.constexpr,
    BLOCK_ROWS: tl.constexpr,
    BLOCK_COLUMNS: tl.constexpr,
):
    """Convert a tile of elements."""
    tile(
        converted,
        OP,
        operands,
        out,
        rows,
        columns,
        shape,
        strides,
        out_strides,
        steps,
        out_step,
        WIDE,
        BLOCK_ROWS,
        BLOCK_COLUMNS,
    )


def bind_dense(ctx: BindContext) -> Sequence[Launch]:
    """Bind ``astype`` of what is as dense as the output."""
    return walk_dense(ctx, dense, _request(ctx))


def bind_strided(ctx: BindContext) -> Sequence[Launch]:
    """Bind ``astype`` of any strides."""
    return walk_strided(ctx, strided, _request(ctx))


def _request(ctx: BindContext) -> Request:
    (x,) = ctx.signature.operands
    (out,) = ctx.signature.outputs
    # A bool is a byte that is 0 or 1, which every dtype holds.
    saturate = bool(ctx.signature.attributes["saturate"]) and x.dtype.kind != "bool"
    return Request(
        operands=(Operand(_pointer("x", x), x),),
        out=_pointer("out", out),
        spec=out,
        constants={"OP": (out.dtype.kind == "bool", saturate, *_bounds(x.dtype, out.dtype))},
        fused=False,
    )


def _pointer(name: str, spec: TensorSpec) -> Pointer:
    return Pointer(name, "uint8" if spec.dtype.kind == "bool" else spec.dtype, spec.align)


def _bounds(source: DType, result: DType) -> tuple[int | float, int | float]:
    """Return the least and the largest value of ``result``, within those of ``source`` where both are integers."""
    if result.floating:
        largest = float_format(result).largest
        return -largest, largest
    low, high = integer_range(result)
    if not source.floating:
        own_low, own_high = integer_range(source)
        low, high = max(low, own_low), min(high, own_high)
    return low, high
