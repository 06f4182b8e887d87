"""Powers of 16-bit numbers to one exponent that is no integer, by a table of the exponents' powers.

With x = 16/11 2^n (1 + u) the power is (16/11 2^n)^e (1 + u)^e. Of each sign and exponent that x may have the first
factor is in a table in shared memory, beside what finds u: special values are entries like others. The second is a
polynomial in u, whose coefficients are those of the binomial series but for a multiple of its next one, which lessens
the largest error.
"""

from __future__ import annotations

import triton
import triton.language as tl

from nbx_triton.kernels.exponents import power_of_2, scaled


@triton.jit
def tabled_power(x, e, NARROW_RANGE: tl.constexpr):
    """Return x^e for an e that is no integer, above 0 and below 2.5, the same for all.

    x and e are float32 that bfloat16 has, with NARROW_RANGE float16. Before they are rounded to that, results are off
    by less than 2.8 ulp, the least normal ones of bfloat16 by 5: found for every x and every e.
    """
    place = tl.arange(0, 128)
    if NARROW_RANGE:
        # Exponents' last 7 bits tell them apart from -63 to 64.
        low_factor = first_factor(e, tl.where(place < 64, place + 1, place - 127), False)
        high_factor = low_factor
        lead = 1.0
    else:
        # A quarter, and what follows four times as large: it overflows where results do, not before.
        low_factor = first_factor(e, place - 127, True)
        high_factor = first_factor(e, place + 1, True)
        lead = 4.0
    b1 = e * lead
    b2 = b1 * tl.fma(e, 0.5, -0.5)
    b3 = b2 * tl.fma(e, 0.3333333432674408, -0.6666666865348816)
    b4 = b3 * tl.fma(e, 0.25, -0.75)
    b5 = b4 * tl.fma(e, 0.20000000298023224, -0.800000011920929)
    b6 = b5 * tl.fma(e, 0.1666666716337204, -0.8333333134651184)
    b7 = b6 * tl.fma(e, 0.1428571492433548, -0.8571428656578064)
    b8 = b7 * tl.fma(e, 0.125, -0.875)
    c2 = tl.fma(b8, tl.fma(e, -2.0200914150336757e-05, 0.0002879086241591722), b2)
    c3 = tl.fma(b8, tl.fma(e, -0.0003382046415936202, 0.0006742335972376168), b3)
    c4 = tl.fma(b8, tl.fma(e, 0.00031997630139812827, -0.015121803618967533), b4)
    c5 = tl.fma(b8, tl.fma(e, 0.007056204602122307, -0.01404742430895567), b5)
    c6 = tl.fma(b8, tl.fma(e, -0.0018427458126097918, 0.22922702133655548), b6)
    c7 = tl.fma(b8, tl.fma(e, -0.02287837490439415, -0.018156277015805244), b7)
    # 11/16 2^-n.
    low_inverse = (tl.minimum(255 - place, 254) << 23).to(tl.float32, bitcast=True) * 0.34375
    high_inverse = ((127 - place) << 23).to(tl.float32, bitcast=True) * 0.34375
    # An infinity leaves the polynomial as an infinity of its last coefficient's sign.
    ends = tl.where(c7 > 0.0, 1.0, -1.0)
    # By sign, the exponent's first bit, and the others. Those that x cannot have have anything.
    none = tl.full((128,), float("nan"), tl.float32)
    low = pair(tl.where(place == 0, 0.0, low_factor), low_inverse)
    high = pair(tl.where(place == 127, ends, high_factor), tl.where(place == 127, 1.0, high_inverse))
    negative_low = pair(tl.where(place == 0, 0.0, none), low_inverse)
    negative_high = pair(tl.where(place == 127, ends, none), tl.full((128,), -1.0, tl.float32))
    table = tl.join(tl.join(low, negative_low), tl.join(high, negative_high))
    if NARROW_RANGE:
        table = tl.reshape(tl.permute(table, (1, 2, 0)), (512,))
        row = 0
    else:
        # Subnormal numbers, and zero, 2^24 times as large, have entries of their own.
        small = pair(tl.where(place == 0, 0.0, first_factor(e, place - 151, True)), low_inverse)
        table = tl.join(table, tl.join(tl.join(small, negative_low), tl.join(small, negative_low)))
        table = tl.reshape(tl.permute(table, (3, 1, 2, 0)), (1024,))
        is_small = tl.abs(x) < 1.1754943508222875e-38
        x = tl.where(is_small, x * 16777216.0, x)
        row = tl.where(is_small, 512, 0)
    found = tl.gather(table, ((x.to(tl.int32, bitcast=True) >> 23) & 511) + row, 0)
    u = tl.fma(x, (found >> 32).to(tl.uint32).to(tl.float32, bitcast=True), -1.0)
    p = tl.fma(u, c7, c6)
    p = tl.fma(u, p, c5)
    p = tl.fma(u, p, c4)
    p = tl.fma(u, p, c3)
    p = tl.fma(u, p, c2)
    p = tl.fma(u, p, b1)
    p = tl.fma(u, p, lead)
    # Adding 0 makes a zero positive, whatever sign the polynomial has there.
    return tl.fma(found.to(tl.uint32).to(tl.float32, bitcast=True), p, 0.0)


@triton.jit
def first_factor(e, n, QUARTER: tl.constexpr):
    """Return (16/11 2^n)^e, anything where that is none of float32's normal numbers; QUARTER: a quarter of it, any."""
    # log2 16/11, in two parts.
    offset = e * 0.5405683517456055
    offset_low = tl.fma(e, 2.961709810733737e-08, tl.fma(e, 0.5405683517456055, -offset))
    multiple = e * n.to(tl.float32)
    rounded = (multiple + offset) + 12582912.0
    whole = rounded - 12582912.0
    y = power_of_2(((multiple - whole) + offset) + offset_low, True)
    if QUARTER:
        y = scaled(y, tl.minimum(tl.maximum(whole - 2.0, -250.0), 250.0))
    else:
        bits = y.to(tl.int32, bitcast=True) + (rounded.to(tl.int32, bitcast=True) << 23)
        y = bits.to(tl.float32, bitcast=True)
    return y


@triton.jit
def pair(low, high):
    """Return two float32 as the halves of one word of 64 bits."""
    return low.to(tl.uint32, bitcast=True).to(tl.uint64) | (high.to(tl.uint32, bitcast=True).to(tl.uint64) << 32)
