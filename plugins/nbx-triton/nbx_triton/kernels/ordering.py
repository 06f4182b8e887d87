"""Numbers as integers in the order of topk's contract, alone and packed with where they are found.

NaN is above every number and equal to itself, zeros of both signs are equal; the smallest are wanted where all bits are
flipped. Packed with the place, of equal ones the first is the largest: keys are never equal, so any way of sorting
gives the same result.
"""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def order_key(x, LARGEST: tl.constexpr):
    """Return an integer that grows with ``x``, or falls: in the range of int16 for up to 16 bits, else of 32 or 64."""
    dtype: tl.constexpr = x.dtype
    if dtype.is_floating():
        if dtype.primitive_bitwidth == 64:
            bits = x.to(tl.int64, bitcast=True)
            size = bits & 0x7FFFFFFFFFFFFFFF
            key = tl.where(x != x, 0x7FFFFFFFFFFFFFFF, tl.where(bits < 0, -size, size))
        elif dtype.primitive_bitwidth == 32:
            bits = x.to(tl.int32, bitcast=True)
            size = bits & 0x7FFFFFFF
            key = tl.where(x != x, 0x7FFFFFFF, tl.where(bits < 0, -size, size))
        else:
            bits = x.to(tl.int16, bitcast=True).to(tl.int32)
            size = bits & 0x7FFF
            if dtype == tl.float16:
                infinity: tl.constexpr = 0x7C00
            else:
                infinity: tl.constexpr = 0x7F80
            key = tl.where(size > infinity, 0x7FFF, tl.where(bits < 0, -size, size))
    elif dtype == tl.uint64:
        key = x.to(tl.int64, bitcast=True) ^ (-0x7FFFFFFFFFFFFFFF - 1)
    elif dtype == tl.int64:
        key = x
    elif dtype == tl.uint32:
        key = x.to(tl.int32, bitcast=True) ^ (-0x7FFFFFFF - 1)
    elif dtype == tl.uint16:
        key = x.to(tl.int32) - 0x8000
    else:
        key = x.to(tl.int32)
    if not LARGEST:
        key = ~key
    return key


@triton.jit
def pack(key, place, inside, NARROW_KEY: tl.constexpr):
    """Return key and place in one integer, of which those outside are the least.

    NARROW_KEY is for keys of 16 bits and places below 65535, in 32 bits; else places are below 2^31, in 64.
    """
    if NARROW_KEY:
        both = (key << 16) | (0xFFFF - place.to(tl.int32))
        packed = tl.where(inside, both, -0x80000000)
    else:
        both = (key.to(tl.int64) << 32) | (0xFFFFFFFF - place.to(tl.int64))
        packed = tl.where(inside, both, -0x8000000000000000)
    return packed


@triton.jit
def place_of(packed, NARROW_KEY: tl.constexpr):
    """Return the place that was packed."""
    if NARROW_KEY:
        place = 0xFFFF - (packed & 0xFFFF)
    else:
        place = 0xFFFFFFFF - (packed & 0xFFFFFFFF)
    return place
