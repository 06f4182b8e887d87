"""Functions that Triton's own versions compute too coarsely, or that its interpreter lacks. float32 throughout."""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def exponential(x):
    """Return e^x within about 2 ulp, subnormal results included.

    ``tl.exp`` multiplies by log2(e) in float32 and is wrong by |x| / 12 ulp. Here the integer part of the exponent is
    taken out first, with ln 2 in two parts (Cody and Waite, "Software Manual for the Elementary Functions", 1980).
    """
    bounded = tl.where(x < -150.0, -150.0, tl.where(x > 130.0, 130.0, x))
    whole = tl.floor(bounded * 1.4426950408889634 + 0.5)
    rest = (bounded - whole * 0.693359375) - whole * -2.1219444005469057e-4
    half = tl.floor(whole * 0.5)
    return tl.exp2(rest * 1.4426950408889634) * power_of_two(half) * power_of_two(whole - half)


@triton.jit
def power_of_two(n):
    """Return 2^n for a float32 integer n in -126..127, exactly; NaN for NaN."""
    exponent = tl.where(n == n, n, 0.0).to(tl.int32)
    scale = ((exponent + 127) << 23).to(tl.float32, bitcast=True)
    return tl.where(n == n, scale, n)


@triton.jit
def normal_distribution(x):
    """Return the standard normal distribution function, (1 + erf(x / sqrt 2)) / 2, within a few ulp in both tails.

    The tail is e^(-x^2/2) erfcx(z) / 2 with z = |x| / sqrt 2. (1 + 2 z) erfcx(z) is a polynomial in (z - 2)/(z + 2),
    fitted to 2e-8 over 0 <= z <= 10.6, past which float32 has no number (the form is that of M. M. Shepherd and J. G.
    Laframboise, "Chebyshev Approximation of (1 + 2x) exp(x^2) erfc x", 1981).
    """
    size = tl.minimum(tl.abs(x), 15.0)
    z = size * 0.7071067811865476
    q = (z - 2.0) / (z + 2.0)
    p = q * 2.963197221106384e-05 - 0.00035649052006192505
    p = p * q - 0.0012496431590989232
    p = p * q + 0.0012677779886871576
    p = p * q + 0.008633796125650406
    p = p * q - 0.00804367009550333
    p = p * q - 0.05420380085706711
    p = p * q + 0.16405317187309265
    p = p * q - 0.16603147983551025
    p = p * q - 0.09276390075683594
    p = p * q + 1.2769783735275269
    # The exponent must not lose what rounding to float32 takes of size^2, and of its product.
    square = size * size
    exponent = square * -0.7213475108146667
    rest = tl.fma(square, -0.7213475108146667, -exponent) + square * -9.629815168e-09
    rest = tl.fma(tl.fma(size, size, -square), -0.7213475204444817, rest)
    decay = tl.exp2(exponent) * tl.fma(rest, 0.6931471805599453, 1.0)
    tail = 0.5 * decay * (p / (1.0 + 2.0 * z))
    return tl.where(x > 0, 1.0 - tail, tail)
