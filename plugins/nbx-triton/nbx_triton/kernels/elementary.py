"""Elementary functions in float32 within 1.4 ulp: power_of_e, logarithm, hyperbolic_tangent, error_function.

The short ones are for results of 16 bits, within what their contracts allow: an element of 2 bytes leaves time for
about 28 operations, and what else comes with it needs some of them.

Each reduces its argument and evaluates a polynomial fitted in the least maximum of the relative error (Lawson's
algorithm, coefficients rounded to float32 afterwards). But for one quotient, and for `tl.exp2` in the short ones, there
are only sums, products and shifts of bits: the numbers are the interpreter's on every device, up to contraction of
products and sums. Conversions share the unit for approximations, an eighth as fast as sums: integers come out of
float32 by adding 1.5 2^23. Errors were measured over 8 million numbers spread evenly over all bit patterns and 4
million over where each function bends, with and without contraction; PTX states 2^-22.5 for ``ex2.approx``.

`hyperbolic_tangent_float64` is in float64, where Triton has no such function.
"""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def scaled_power_of_e(x):
    """Return (p, n) with e^x = p 2^n, p in 0.70..1.42 and n an int32; for |x| below 2900.

    ln 2 is taken out in two parts, the first of which has so few bits that its multiples are exact (Cody and Waite,
    "Software Manual for the Elementary Functions", 1980). On the rest, |r| <= 0.3467, the polynomial is off by 3.1e-9.
    NaN gives NaN and any n.
    """
    shifted = x * 1.4426950408889634 + 12582912.0
    whole = shifted - 12582912.0
    r = (x - whole * 0.693359375) + whole * 2.1219444005469057e-4
    p = r * 0.0013814566191285849 + 0.00836873147636652
    p = p * r + 0.04166838899254799
    p = p * r + 0.1666652113199234
    p = p * r + 0.4999999403953552
    p = p * r + 1.0
    p = p * r + 1.0
    return p, shifted.to(tl.int32, bitcast=True) - 0x4B400000


@triton.jit
def exponent_as_float(n):
    """Return 2^n for int32 n in -126..127, anything for others."""
    return ((n + 127) << 23).to(tl.float32, bitcast=True)


@triton.jit
def at_most(x, bound):
    """Return the smaller of two; NaN for NaN."""
    return tl.minimum(x, bound, propagate_nan=tl.PropagateNan.ALL)


@triton.jit
def power_of_e(x):
    """Return e^x within 1.2 ulp, subnormal results too; 0 below -104, infinity above 89."""
    p, n = scaled_power_of_e(at_most(tl.maximum(x, -104.0, propagate_nan=tl.PropagateNan.ALL), 89.0))
    half = n >> 1
    return p * exponent_as_float(half) * exponent_as_float(n - half)


@triton.jit
def normal_power_of_e(x):
    """Return e^x within 1.2 ulp for x in -87..88."""
    p, n = scaled_power_of_e(x)
    return p * exponent_as_float(n)


@triton.jit
def short_power_of_e(x):
    """Return e^x for results of float16: within 4.3 ulp for |x| up to 11, 8 ulp up to 22.

    The exponent to base 2 is rounded once, from a product in two parts.
    """
    return tl.exp2(tl.fma(x, 1.925963033500011e-08, x * 1.4426950216293335))


@triton.jit
def short_decay(x, NARROW_RANGE: tl.constexpr):
    """Return e^-x within 2.4 ulp for x in -88..87; infinity below, 0 above, NaN for NaN.

    NARROW_RANGE is for results of float16, as `short_power_of_e` is.
    """
    if NARROW_RANGE:
        y = short_power_of_e(-x)
    else:
        bounded = at_most(tl.maximum(x, -89.0, propagate_nan=tl.PropagateNan.ALL), 88.0)
        exponent = bounded * -1.4426950216293335
        rest = tl.fma(bounded, -1.925963033500011e-08, tl.fma(bounded, -1.4426950216293335, -exponent))
        y = tl.exp2(exponent) * tl.fma(rest, 0.6931471805599453, 1.0)
    return y


@triton.jit
def short_gaussian_error_unit(x):
    """Return x times the normal distribution function of x, within 2.5e-7 |x|.

    Of the tail beyond |x| the logarithm to base 2 is a polynomial up to 5.7, where 6e-9 is left of it.
    """
    size = tl.abs(x)
    t = at_most(size, 5.7)
    q = t * 1.7755177395883948e-05 - 0.0006477577262558043
    q = q * t + 0.007724042981863022
    q = q * t - 0.05292673781514168
    q = q * t - 0.4590827226638794
    q = q * t - 1.1511168479919434
    q = q * t - 1.0
    # Nothing is left for an infinite one to be multiplied by.
    tail = tl.where(size > 5.7, 0.0, tl.exp2(q))
    return x * tl.where(x > 0.0, 1.0 - tail, tail)


@triton.jit
def logarithm(x, NARROW_RANGE: tl.constexpr):
    """Return ln x within 0.9 ulp, of subnormal numbers too; NaN below 0, -infinity for zeros of either sign.

    x is 2^k (1 + f) with 1 + f in sqrt(1/2)..sqrt(2), and ln(1 + f) = f - f^2/2 + f^3 p(f), off by 5.9e-9.
    NARROW_RANGE tells that x is a number of float16, none of which is subnormal here.
    """
    bits = x.to(tl.int32, bitcast=True)
    if NARROW_RANGE:
        above = bits - 0x3F3504F3
        k = (above >> 23).to(tl.float32)
    else:
        small = x < 1.1754943508222875e-38
        above = tl.where(small, x * 8388608.0, x).to(tl.int32, bitcast=True) - 0x3F3504F3
        k = (above >> 23).to(tl.float32)
        k = tl.where(small, k - 23.0, k)
    f = ((above & 0x7FFFFF) + 0x3F3504F3).to(tl.float32, bitcast=True) - 1.0
    p = f * -0.07636746764183044 + 0.12765051424503326
    p = p * f - 0.1316099613904953
    p = p * f + 0.1420135200023651
    p = p * f - 0.1662323772907257
    p = p * f + 0.20001240074634552
    p = p * f - 0.2500082552433014
    p = p * f + 0.3333333134651184
    p = p * f - 0.5
    y = k * 0.693359375 + (f + (p * (f * f) - k * 2.1219444005469057e-4))
    # By bits: comparisons of what was 16 bits wide are made two at a time, and taken apart again.
    special = tl.where((bits & 0x7FFFFFFF) == 0, float("-inf"), tl.where(bits == 0x7F800000, x, float("nan")))
    return tl.where((bits - 1).to(tl.uint32, bitcast=True) < 0x7F7FFFFF, y, special)


@triton.jit
def with_sign_of(size, x):
    """Return float32 numbers of no sign with that of x."""
    sign = x.to(tl.int32, bitcast=True) & -0x80000000
    return (size.to(tl.int32, bitcast=True) | sign).to(tl.float32, bitcast=True)


@triton.jit
def hyperbolic_tangent(x, SHORT: tl.constexpr):
    """Return tanh x within 1.4 ulp, 2.4 where a quotient is off by the 2 ulp that a GPU's fast one may be.

    Below 0.625 x + x^3 p(x^2), off by 4.8e-9; above 1 - 2 / (e^2x + 1). SHORT: within 4 ulp, for results of 16 bits.
    """
    size = tl.abs(x)
    s = x * x
    p = s * -0.005666980054229498 + 0.020606180652976036
    p = p * s - 0.05373000726103783
    p = p * s + 0.13331331312656403
    p = p * s - 0.33333277702331543
    near = (s * p) * size + size
    if SHORT:
        far = 1.0 - 2.0 * (1.0 / (tl.exp2(at_most(size, 10.0) * 2.8853900817779268) + 1.0))
    else:
        far = 1.0 - 2.0 / (normal_power_of_e(2.0 * at_most(size, 10.0)) + 1.0)
    return with_sign_of(tl.where(size < 0.625, near, far), x)


@triton.jit
def error_function(x, SHORT: tl.constexpr):
    """Return erf x within 1.4 ulp; SHORT: 2 ulp, for results of 16 bits.

    Below 0.921875 x + x p(x^2), off by 1.7e-8; above 1 - e^q(x) with a polynomial in place of ln erfc, off by 1.5e-9.
    """
    size = tl.abs(x)
    s = x * x
    p = s * -0.0005953883519396186 + 0.004985974635928869
    p = p * s - 0.026761749759316444
    p = p * s + 0.11281684041023254
    p = p * s - 0.3761247992515564
    p = p * s + 0.12837915122509003
    near = p * size + size
    t = at_most(size, 4.0)
    q = t * 0.00019494672596920282 - 0.0030336922500282526
    q = q * t + 0.022189775481820107
    q = q * t - 0.10385636985301971
    q = q * t - 0.6372657418251038
    q = q * t - 1.1276273727416992
    q = q * t - 0.00020700879395008087
    if SHORT:
        far = 1.0 - tl.exp2(q * 1.4426950408889634)
    else:
        far = 1.0 - normal_power_of_e(q)
    return with_sign_of(tl.where(size < 0.921875, near, far), x)


@triton.jit
def hyperbolic_tangent_float64(x):
    """Return tanh x in float64 within 3 ulp, as `hyperbolic_tangent` does; the polynomial is off by 1.7e-18."""
    size = tl.abs(x)
    s = x * x
    p = s * 5.789659006936903e-06 - 2.9613541786060896e-05
    p = p * s + 9.09928308464647e-05
    p = p * s - 0.00023669438749552167
    p = p * s + 0.0005893403159561166
    p = p * s - 0.0014557005433133833
    p = p * s + 0.003592110239308691
    p = p * s - 0.008863233961034975
    p = p * s + 0.02186948844930621
    p = p * s - 0.053968253965509645
    p = p * s + 0.133333333333292
    p = p * s - 0.33333333333333315
    near = (s * p) * size + size
    far = 1.0 - 2.0 / (tl.exp(2.0 * tl.where(size > 20.0, 20.0, size)) + 1.0)
    y = tl.where(size < 0.625, near, far)
    return tl.where(x < 0.0, -y, tl.where(x == 0.0, x, y))
