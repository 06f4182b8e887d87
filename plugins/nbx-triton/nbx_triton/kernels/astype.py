"""astype: conversion between bool, integers and floating dtypes, each value rounded once.

One program converts ``BLOCK`` consecutive elements of the output. Deterministic.
"""

from __future__ import annotations

from collections.abc import Sequence

import triton
import triton.language as tl

from nbx_registry.dtypes import DType
from nbx_registry.launch import BindContext, Launch
from nbx_registry.rounding import float_format, integer_range
from nbx_triton.compiler import Options
from nbx_triton.kernels.strided import NARROW, collapse, locate, program, reach
from nbx_triton.launching import launch

BLOCK = 1024


@triton.jit
def to_odd_float32(x):
    """Round float64 to float32 so that rounding on to 16 bits is as good as rounding once.

    Rounding to odd: towards zero, with the last bit set where anything was dropped (S. Boldo and G. Melquiond, "When
    double rounding is odd", 2005).
    """
    nearest = x.to(tl.float32)
    back = nearest.to(tl.float64)
    bits = nearest.to(tl.int32, bitcast=True)
    bits = tl.where(tl.abs(back) > tl.abs(x), bits - 1, bits)
    bits = tl.where(back != x, bits | 1, bits)
    return tl.where(x == x, bits.to(tl.float32, bitcast=True), nearest)


@triton.jit
def to_odd_float64(x):
    """Turn a 64-bit integer into float64 with what does not fit kept as an odd last bit, as `to_odd_float32` does."""
    exact = x < 2**53
    if x.dtype == tl.int64:
        exact = exact & (x > -(2**53))
    high = (x >> 11) | tl.where((x & 2047) != 0, 1, 0).to(x.dtype)
    return tl.where(exact, x.to(tl.float64), high.to(tl.float64) * 2048.0)


@triton.jit
def float_to_integer(x, result: tl.constexpr, LOW: tl.constexpr, HIGH: tl.constexpr, SATURATE: tl.constexpr):
    """Truncate; NaN gives 0. Saturating, numbers past the range give its end."""
    number = tl.where(x == x, x, 0.0)
    if SATURATE:
        # HIGH + 1 and LOW are powers of two or 0, so the comparisons are exact in any floating dtype.
        above = number >= HIGH * 1.0 + 1.0
        below = number <= LOW
        kept = tl.where(above | below, 0.0, number).to(result)
        high = tl.full(x.shape, HIGH, result)
        low = tl.full(x.shape, LOW, result)
        return tl.where(above, high, tl.where(below, low, kept))
    return number.to(result)


@triton.jit
def convert(
    x,
    out,
    count,
    shape,
    x_strides,
    out_strides,
    LOW: tl.constexpr,
    HIGH: tl.constexpr,
    SATURATE: tl.constexpr,
    WIDE: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Write ``x`` in the dtype of ``out``. LOW and HIGH bound its values, or those of x where these lie further in."""
    index = program(WIDE) * BLOCK + tl.arange(0, BLOCK)
    inside = index < count
    source: tl.constexpr = x.dtype.element_ty
    result: tl.constexpr = out.dtype.element_ty
    a = tl.load(x + locate(index, shape, x_strides), mask=inside, other=0)
    # Triton computes in 16-bit floats as it finds them; float32 holds all their values.
    if source.is_floating() and source.primitive_bitwidth < 32:
        a = a.to(tl.float32)
    if result == tl.int1:
        b = a != 0
    elif result.is_floating():
        if result == tl.float64:
            a = a.to(tl.float64)
        elif result.primitive_bitwidth == 16 and not source.is_floating():
            if source == tl.int64 or source == tl.uint64:
                a = to_odd_float64(a)
            else:
                a = a.to(tl.float64)
        if SATURATE and a.dtype.is_floating():
            a = tl.where(a > HIGH, HIGH, tl.where(a < LOW, LOW, a)).to(a.dtype)
        if result.primitive_bitwidth == 16 and a.dtype == tl.float64:
            a = to_odd_float32(a)
        b = a.to(result)
    elif source.is_floating():
        b = float_to_integer(a, result, LOW, HIGH, SATURATE)
    else:
        if SATURATE and source != tl.int1:
            low = tl.full(a.shape, LOW, source)
            high = tl.full(a.shape, HIGH, source)
            a = tl.where(a > high, high, tl.where(a < low, low, a))
        b = a.to(result)
    tl.store(out + locate(index, shape, out_strides), b, mask=inside)


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


def bind(ctx: BindContext) -> Sequence[Launch]:
    """Bind ``astype``."""
    (x,) = ctx.signature.tensors
    (out,) = ctx.signature.outputs
    if out.size == 0:
        return ()
    shape, strides, out_strides = collapse(out.shape, x.strides, out.strides)
    low, high = _bounds(x.dtype, out.dtype)
    step = launch(
        ctx,
        convert,
        programs=triton.cdiv(out.size, BLOCK),
        arguments={
            "x": "x",
            "out": "out",
            "count": out.size,
            "shape": shape,
            "x_strides": strides,
            "out_strides": out_strides,
        },
        constants={
            "LOW": low,
            "HIGH": high,
            "SATURATE": bool(ctx.signature.attributes["saturate"]),
            "WIDE": out.size + BLOCK >= NARROW or max(reach(shape, strides), reach(shape, out_strides)) >= NARROW,
            "BLOCK": BLOCK,
        },
        options=Options(num_warps=4, num_stages=1, enable_fp_fusion=False),
    )
    return (step,)
