"""Conversion of elements between integers and floating dtypes, each value rounded once."""

from __future__ import annotations

import triton
import triton.language as tl


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
        y = tl.where(above, high, tl.where(below, low, kept))
    else:
        y = number.to(result)
    return y


@triton.jit
def convert(x, result: tl.constexpr, LOW: tl.constexpr, HIGH: tl.constexpr, SATURATE: tl.constexpr):
    """Return ``x`` in dtype ``result``. LOW and HIGH bound its values, or those of x where these lie further in."""
    source: tl.constexpr = x.dtype
    a = x
    # Triton computes in 16-bit floats as it finds them; float32 holds all their values.
    if source.is_floating() and source.primitive_bitwidth < 32:
        a = a.to(tl.float32)
    if result.is_floating():
        if result == tl.float64:
            a = a.to(tl.float64)
        elif result.primitive_bitwidth == 16 and not source.is_floating():
            if source.primitive_bitwidth == 64:
                a = to_odd_float64(a)
            elif source.primitive_bitwidth == 32:
                a = a.to(tl.float64)
            else:
                a = a.to(tl.float32)
        if SATURATE and a.dtype.is_floating():
            a = tl.where(a > HIGH, HIGH, tl.where(a < LOW, LOW, a)).to(a.dtype)
        if result.primitive_bitwidth == 16 and a.dtype == tl.float64:
            a = to_odd_float32(a)
        b = a.to(result)
    elif source.is_floating():
        b = float_to_integer(a, result, LOW, HIGH, SATURATE)
    else:
        if SATURATE:
            low = tl.full(a.shape, LOW, source)
            high = tl.full(a.shape, HIGH, source)
            a = tl.where(a > high, high, tl.where(a < low, low, a))
        b = a.to(result)
    return b
