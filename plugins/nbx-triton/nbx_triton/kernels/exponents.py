"""Powers of floating numbers, in float32 and float64: logarithm and exponential to base 2, the former in two parts.

x^e is 2^(e log2 x). The exponential makes a relative error of the exponent's absolute one, which is up to 128 (float64:
1024) times the logarithm's relative one, so that `logarithm` carries more digits than one number has. Polynomials are
minimax, with coefficients rounded to the dtype; the errors given are those of exact arithmetic. Nothing here is one of
the device's approximate instructions, and contraction is where `tl.fma` says so alone.
"""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def power(x, e, EXACT: tl.constexpr):
    """Return x^e as IEEE 754 ``pow``, subnormal results included.

    EXACT: within 1.2 ulp (float32, float64). Else, in float32, within 2.4 ulp where x, e and the result have float16's
    range.
    """
    size = tl.abs(x)
    infinity = float("inf")
    if x.dtype == tl.float64:
        limit = 1e240
        bound = 2000.0
    else:
        limit = 1e30
        bound = 250.0
    high, low = logarithm(size, EXACT)
    # An e so large that it decides alone, infinity too, makes no NaN of 0 or infinity in what follows.
    factor = tl.minimum(tl.maximum(e, -limit), limit)
    exponent = factor * high
    rest = tl.fma(factor, high, -exponent) + factor * low
    exponent = tl.minimum(tl.maximum(exponent, -bound), bound)
    rest = tl.minimum(tl.maximum(rest, -1.0), 1.0)
    whole = tl.floor(exponent + 0.5)
    y = scaled(power_of_2((exponent - whole) + rest, EXACT), whole)
    inverse = tl.where(size == 0.0, infinity, tl.where(size == infinity, 0.0, size))
    y = tl.where((size > 0.0) & (size < infinity), y, tl.where(e > 0.0, size, inverse))
    is_whole = tl.floor(e) == e
    half = e * 0.5
    # Every number from 2^24 (2^53) on is even, infinity as well.
    is_odd = is_whole & (tl.floor(half) != half)
    y = tl.where(is_odd & is_negative(x), y * -1.0, y)
    y = tl.where((x < 0.0) & (x > -infinity) & (is_whole == 0), float("nan"), y)
    y = tl.where(e == e, y, e)
    return tl.where((e == 0.0) | (x == 1.0), 1.0, y).to(x.dtype)


@triton.jit
def product(x, e):
    """Return x^e by multiplication, for an e that is 1, 2, ... or 8 for every element: e - 1 roundings at the most."""
    count = e.to(tl.int32)
    square = x * x
    fourth = square * square
    y = tl.where((count & 1) != 0, x, 1.0)
    y = tl.where((count & 2) != 0, y * square, y)
    y = tl.where((count & 4) != 0, y * fourth, y)
    return tl.where((count & 8) != 0, fourth * fourth, y)


@triton.jit
def short_power(x, e, NARROW_RANGE: tl.constexpr):
    """Return x^e for an e that is no integer, at most 2 in magnitude, the same for every element.

    x and e have at most 11 significant bits, and NARROW_RANGE tells that they are float16's. The logarithm of the
    significand, at most 1/2, is enough in one part: within 2.7 ulp.
    """
    bits = x.to(tl.int32, bitcast=True)
    size = bits & 0x7FFFFFFF
    if NARROW_RANGE:
        above = size - 0x3F3504F3
        # 2^23 times the exponent, which a multiplication by e 2^-23 makes up for.
        exponent = (above & -8388608).to(tl.float32)
        unit = 1.1920928955078125e-07
        significand = (size - (above & -8388608)).to(tl.float32, bitcast=True)
    else:
        significand, exponent = split(tl.abs(x))
        unit = 1.0
    t = significand - 1.0
    p = tl.fma(t, 0.1254131942987442, -0.21030129492282867)
    p = tl.fma(t, p, 0.21737807989120483)
    p = tl.fma(t, p, -0.2385197877883911)
    p = tl.fma(t, p, 0.28765690326690674)
    p = tl.fma(t, p, -0.3607211709022522)
    p = tl.fma(t, p, 0.48092252016067505)
    p = tl.fma(t, p, -0.7213471531867981)
    p = tl.fma(t, p, 1.442694902420044)
    part = t * p
    # Adding 1.5 * 2^23 rounds to an integer, and leaves it in the last bits.
    rounded = tl.fma(e, tl.fma(exponent, unit, part), 12582912.0)
    whole = rounded - 12582912.0
    y = power_of_2(tl.fma(e, part, tl.fma(e * unit, exponent, -whole)), False)
    if NARROW_RANGE:
        # 2^-50 to 2^50: one addition to the exponent's bits.
        y = (y.to(tl.int32, bitcast=True) + (rounded.to(tl.int32, bitcast=True) << 23)).to(tl.float32, bitcast=True)
    else:
        # bfloat16's exponents reach past what `scaled` takes, where the result is 0 or infinity anyhow.
        y = scaled(y, tl.minimum(tl.maximum(whole, -250.0), 250.0))
    # Zeros and infinities as they are, or, for e < 0, each the other; what is past infinity in bits stays NaN.
    is_number = (size - 1).to(tl.uint32, bitcast=True) < 0x7F7FFFFF
    first = tl.where(e > 0.0, 0, 0x7F800000)
    sign = tl.where(e > 0.0, 1, -1)
    y = tl.where(is_number, y, (first + sign * size).to(tl.float32, bitcast=True))
    return tl.where(is_number & (bits < 0), float("nan"), y)


@triton.jit
def is_negative(x):
    """Whether the sign bit is set."""
    if x.dtype == tl.float64:
        found = x.to(tl.int64, bitcast=True) < 0
    else:
        found = x.to(tl.int32, bitcast=True) < 0
    return found


@triton.jit
def split(x):
    """Return significand, in sqrt(1/2)..sqrt(2), and exponent of a positive finite x.

    Of zeros, infinities and NaN the significand is in the same range, and the exponent finite.
    """
    if x.dtype == tl.float64:
        small = x < 2.2250738585072014e-308
        bits = tl.where(small, x * 18014398509481984.0, x).to(tl.int64, bitcast=True)
        above = bits - 0x3FE6A09E667F3BCD
        significand = (bits - ((above >> 52) << 52)).to(tl.float64, bitcast=True)
        exponent = (above >> 52).to(tl.int32).to(tl.float64) - tl.where(small, 54.0, 0.0)
    else:
        small = x < 1.1754943508222875e-38
        bits = tl.where(small, x * 16777216.0, x).to(tl.int32, bitcast=True)
        above = bits - 0x3F3504F3
        significand = (bits - ((above >> 23) << 23)).to(tl.float32, bitcast=True)
        exponent = (above >> 23).to(tl.float32) - tl.where(small, 24.0, 0.0)
    return significand, exponent


@triton.jit
def logarithm(x, EXACT: tl.constexpr):
    """Return log2(x) of a positive finite x in two parts, the larger first.

    With t the significand less 1 and q = t / (2 + t), it is 2/ln 2 (q + q^3/3 + q^5/5 + ...) and the exponent (W. J.
    Cody and W. Waite, "Software Manual for the Elementary Functions", 1980). q and, if EXACT, the cube's term are
    carried in two parts: relative error 2^-36, else 2^-29; in float64 2^-64.
    """
    significand, exponent = split(x)
    t = significand - 1.0
    if x.dtype == tl.float64:
        r = t * 0.027933670207858086 - 0.06433964520692825
        r = t * r + 0.12534251809120178
        r = t * r - 0.24995312094688416
        r = t * r + 0.4999963343143463
        r = tl.fma(r, tl.fma(-r, t + 2.0, 1.0), r)
    else:
        r = tl.fma(t, -0.057135023176670074, 0.12813332676887512)
        r = tl.fma(t, r, -0.25038620829582214)
        r = tl.fma(t, r, 0.49995696544647217)
    # Newton's steps for 1 / (2 + t). What q is off then is found exactly: t - 2 q has no rounding.
    r = tl.fma(r, tl.fma(-r, t + 2.0, 1.0), r)
    q = t * r
    q_low = r * tl.fma(-q, t, tl.fma(q, -2.0, t))
    s = q * q
    if x.dtype == tl.float64:
        p = s * 0.14775907857301313 + 0.13563085572216596
        p = s * p + 0.15194188583929036
        p = s * p + 0.16972659335936513
        p = s * p + 0.19235938020433377
        p = s * p + 0.22195308270408912
        p = s * p + 0.26230818925664195
        p = s * p + 0.32059889797530444
        p = s * p + 0.41219858311113244
        p = s * p + 0.5770780163555853
        high = q * 2.8853900817779268
        low = product_rest(q, 2.8853900817779268, high) + (q * 4.0710547481862066e-17 + q_low * 2.8853900817779268)
        cube, cube_low = third_power(q, q_low, s)
        term = cube * 0.9617966939259756
        low += product_rest(cube, 0.9617966939259756, term) + (
            cube * 5.057766214179783e-17 + cube_low * 0.9617966939259756
        )
        low += cube * (s * p)
    elif EXACT:
        p = tl.fma(s, 0.34021809697151184, 0.4117063581943512)
        p = tl.fma(s, p, 0.5770828723907471)
        high = q * 2.885390043258667
        low = product_rest(q, 2.885390043258667, high) + tl.fma(q, 3.851926067000022e-08, q_low * 2.885390043258667)
        cube, cube_low = third_power(q, q_low, s)
        term = cube * 0.9617967009544373
        low += product_rest(cube, 0.9617967009544373, term) + tl.fma(
            cube, -2.1757172063985308e-08, cube_low * 0.9617967009544373
        )
        low = tl.fma(cube, s * p, low)
    else:
        p = tl.fma(s, 0.4309566617012024, 0.576754093170166)
        p = tl.fma(s, p, 0.9617982506752014)
        high = q * 2.885390043258667
        low = product_rest(q, 2.885390043258667, high) + tl.fma(q, 3.851926067000022e-08, q_low * 2.885390043258667)
        term = (q * s) * p
    # The terms are smaller one than the other, so that what each addition drops is known.
    partial = high + term
    low += term - (partial - high)
    total = exponent + partial
    low += partial - (total - exponent)
    high = total + low
    return high, low - (high - total)


@triton.jit
def product_rest(x, y, rounded):
    """Return what rounding took from the product x y."""
    return tl.fma(x, tl.full((), y, x.dtype), -rounded)


@triton.jit
def third_power(x, x_low, square):
    """Return (x + x_low)^3 in two parts, where ``square`` is x x, rounded."""
    square_low = tl.fma(x, x, -square) + (x + x) * x_low
    cube = x * square
    return cube, tl.fma(x, square, -cube) + (x * square_low + x_low * square)


@triton.jit
def power_of_2(x, EXACT: tl.constexpr):
    """Return 2^x for an x of at most about 1/2 in magnitude: within 2^-23.4 without rounding; EXACT 2^-28, 2^-58."""
    if x.dtype == tl.float64:
        p = x * 4.434760693821236e-10 + 7.073783736112731e-09
        p = x * p + 1.017819967637203e-07
        p = x * p + 1.3215435279660627e-06
        p = x * p + 1.5252733492774835e-05
        p = x * p + 0.00015403530457116748
        p = x * p + 0.0013333558146775115
        p = x * p + 0.009618129107594117
        p = x * p + 0.05550410866482008
        p = x * p + 0.2402265069591013
        p = x * p + 0.6931471805599453
    elif EXACT:
        p = tl.fma(x, 0.00015353354683611542, 0.0013398875016719103)
        p = tl.fma(x, p, 0.00961843691766262)
        p = tl.fma(x, p, 0.055503323674201965)
        p = tl.fma(x, p, 0.24022647738456726)
        p = tl.fma(x, p, 0.6931471824645996)
    else:
        p = tl.fma(x, 0.0013264769222587347, 0.009671512059867382)
        p = tl.fma(x, p, 0.05550733581185341)
        p = tl.fma(x, p, 0.24022242426872253)
        p = tl.fma(x, p, 0.6931470036506653)
    return tl.fma(x, p, 1.0)


@triton.jit
def scaled(x, n):
    """Return x 2^n for an integer n, at most 250 (float64: 2000) in magnitude, rounded once."""
    whole = n.to(tl.int32)
    half = whole >> 1
    return x * binary(half, x.dtype) * binary(whole - half, x.dtype)


@triton.jit
def binary(n, dtype: tl.constexpr):
    """Return 2^n, for an n that ``dtype`` has the power of."""
    if dtype == tl.float64:
        y = ((n + 1023).to(tl.int64) << 52).to(tl.float64, bitcast=True)
    else:
        y = ((n + 127) << 23).to(tl.float32, bitcast=True)
    return y
