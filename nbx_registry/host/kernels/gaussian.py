"""The Gaussian error linear unit and the error function of a block, from NumPy's exp and polynomials.

With Q(a) = erfc(a / sqrt 2) / 2, the upper tail of the normal distribution, ``gelu(x) = x Phi(x)`` is
``max(x, 0) - a Q(a)`` at a = abs(x): no digits cancel on either side of zero. Q(a) is ``exp(-a^2 / 2) g(a)`` with
``g(a) = erfcx(a / sqrt 2) / 2``, which falls slowly and smoothly: t = 1 / (a + k) times a polynomial. ``erf(x)`` is
``1 - 2 Q(x sqrt 2)`` where abs(x) is at least 1, and x times a polynomial of x^2 below, where that would cancel.

Every function works in place or not: ``x`` and ``out`` are equal or apart. ``scratch`` is [3, >= len(x)].
Callers silence NumPy's floating-point warnings: an exp that overflows is on the way to the right answer.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from nbx_registry.host.kernels.blocks import Array, choose

FEW = 2048
"""Numbers up to which numpy.copysign is faster than steps with bits, which are quick but several."""

# g(a) / t as a polynomial of t, lowest power first. Minimax on 0 <= a <= 15 (least squares, reweighted until the
# error is level): relative error 3.3e-8 (1 + a^2 / 2), the shape of what float32 loses in exp(-a^2 / 2) anyway.
_K32 = np.float32(2.5)
_G32 = tuple(
    map(
        np.float32,
        (
            0.39917534589767456,
            0.9852529168128967,
            2.352734088897705,
            0.27882665395736694,
            21.627471923828125,
            -84.73590087890625,
            114.4084243774414,
            -56.239925384521484,
        ),
    )
)

# g(a) / t as a polynomial of u = 2 k t - 1, which goes through [-1, 1] for all a >= 0. Chebyshev interpolation with 40
# digits, relative error 8e-17.
_K64 = 4.0
_G64 = (
    0.7552851304157515,
    0.6078966419718931,
    0.38713740074221653,
    0.1865218579595672,
    0.0603965748907624,
    0.007540188969137313,
    -0.0034796923628903557,
    -0.0016308184878823643,
    0.00013334425890372837,
    0.0002310951507876874,
    -1.9079074883936755e-06,
    -3.514564458582385e-05,
    7.152737509308815e-07,
    5.9229798276747605e-06,
    -6.2620687669596e-07,
    -1.0270948807114341e-06,
    2.662327898883562e-07,
    1.6231917680473566e-07,
    -7.98985075256226e-08,
    -1.9608339140939514e-08,
    1.6536044775506402e-08,
    1.2845818869925269e-09,
    -1.7737405043949108e-09,
)
_HIGH_HALF = np.uint64(0xFFFF_FFFF_F800_0000)

# erf(x) / x as a polynomial of x^2, lowest power first: interpolation in 7 (12) Chebyshev nodes of 0 <= x^2 <= 1,
# relative error 2e-9 (8e-18).
_E32 = tuple(
    map(
        np.float32,
        (
            1.1283791065216064,
            -0.3761262595653534,
            0.11283594369888306,
            -0.02685421146452427,
            0.005189087241888046,
            -0.000801686430349946,
            7.875874871388078e-05,
        ),
    )
)
_E64 = (
    1.1283791670955126,
    -0.37612638903183543,
    0.11283791670945006,
    -0.02686617064323777,
    0.0052239776071164225,
    -0.0008548325975389692,
    0.00012055294904839707,
    -1.492473690741966e-05,
    1.6447424703317362e-06,
    -1.6208483801871705e-07,
    1.3720064546777686e-08,
    -7.795898827002142e-10,
)

_TANH_LINEAR = -2 * math.sqrt(2 / math.pi)
_TANH_CUBIC = _TANH_LINEAR * 0.044715


def gelu_float32(x: Array, out: Array, scratch: Array) -> None:
    """Write gelu of float32: within 2e-7 abs(x); below zero also within 5e-7 (1 + x^2 / 2) of the result."""
    a, t, p = scratch[:, : len(x)]
    np.abs(x, a)
    infinite = _find_infinity(x, a)
    _scaled_tail_float32(a, t, p)
    np.multiply(p, a, p)
    np.multiply(a, np.float32(0.5), t)
    np.multiply(a, t, a)
    # 1 / exp(a^2 / 2), which needs no sign changed, is 0 as well where the exponential overflows.
    np.divide(p, np.exp(a, a), p)
    _finish(x, t, p, a, out, infinite)


def gelu_float64(x: Array, out: Array, scratch: Array) -> None:
    """Write gelu of float64: within 4e-16 abs(x); below zero also within 1e-15 of the result."""
    a, t, p = scratch[:, : len(x)]
    np.abs(x, a)
    infinite = _find_infinity(x, a)
    _scaled_tail_float64(a, t, p)
    # exp(-a^2 / 2) loses the digits that a^2 lacks: with h, the upper half of a's bits, h^2 is exact, and
    # a^2 = h^2 + (a - h) (a + h).
    high = (a.view(np.uint64) & _HIGH_HALF).view(np.float64)
    np.multiply(high, high, t)
    np.multiply(t, -0.5, t)
    np.multiply(p, np.exp(t, t), p)
    np.subtract(high, a, t)
    np.add(high, a, high)
    np.multiply(t, high, t)
    np.multiply(t, 0.5, t)
    np.multiply(p, np.exp(t, t), p)
    np.multiply(p, a, p)
    np.multiply(a, 0.5, a)
    _finish(x, a, p, t, out, infinite)


def gelu_tanh(x: Array, out: Array, scratch: Array) -> None:
    """Write the tanh form, as ``x / (1 + exp(-2 z))``, which keeps the digits that ``1 + tanh(z)`` loses below zero."""
    t = scratch[0, : len(x)]
    np.multiply(x, x, t)
    np.multiply(t, t.dtype.type(_TANH_CUBIC), t)
    np.add(t, t.dtype.type(_TANH_LINEAR), t)
    np.multiply(t, x, t)
    np.exp(t, t)
    np.add(t, t.dtype.type(1), t)
    np.divide(x, t, out)


def erf(x: Array, out: Array, scratch: Array) -> None:
    """Write the error function, float32 within 2 ulp, float64 within 3."""
    a, t, p = scratch[:, : len(x)]
    one, double = x.dtype.type(1), x.dtype.itemsize == 8
    np.abs(x, a)
    inside = np.less(a, one)
    np.multiply(a, x.dtype.type(math.sqrt(2)), a)
    (_scaled_tail_float64 if double else _scaled_tail_float32)(a, t, p)
    np.multiply(x, x, a)
    np.exp(np.negative(a, t), t)
    np.multiply(p, t, p)
    np.add(p, p, p)
    np.subtract(one, p, p)
    _take_sign(x, p, t)
    coefficients = _E64 if double else _E32
    np.multiply(a, coefficients[-1], t)
    for coefficient in coefficients[-2:0:-1]:
        np.add(t, coefficient, t)
        np.multiply(t, a, t)
    np.add(t, coefficients[0], t)
    np.multiply(t, x, t)
    choose(inside, t, p, out, a.view(_bits(x)))


def _scaled_tail_float32(a: Array, t: Array, p: Array) -> None:
    """Write g(a) into p; t is overwritten."""
    np.add(a, _K32, t)
    np.divide(np.float32(1), t, t)
    np.multiply(t, _G32[-1], p)
    for coefficient in _G32[-2::-1]:
        np.add(p, coefficient, p)
        np.multiply(p, t, p)


def _scaled_tail_float64(a: Array, t: Array, p: Array) -> None:
    """Write g(a) into p; t is overwritten."""
    np.add(a, _K64, t)
    np.divide(2 * _K64, t, t)
    np.subtract(t, 1.0, t)
    np.multiply(t, _G64[-1], p)
    for coefficient in _G64[-2:0:-1]:
        np.add(p, coefficient, p)
        np.multiply(p, t, p)
    np.add(p, _G64[0], p)
    np.add(a, _K64, t)
    np.divide(p, t, p)


def _find_infinity(x: Array, a: Array) -> Array | None:
    """Return where x is +inf, None if it is nowhere: infinity times Q(infinity) is not 0 by itself."""
    if len(a) and math.isfinite(np.maximum.reduce(a)):
        return None
    return x == np.inf


def _finish(x: Array, half: Array, tail: Array, spare: Array, out: Array, infinite: Array | None) -> None:
    """Write max(x, 0) - tail. The maximum is x / 2 + abs(x) / 2 (``half``), which is exact, and faster.

    A difference of zero gets the sign of x.
    """
    if len(x) <= FEW:
        np.multiply(x, x.dtype.type(0.5), spare)
        np.add(spare, half, spare)
        np.subtract(spare, tail, spare)
        np.copysign(spare, x, out)
    else:
        sign = _sign(x, spare)
        np.multiply(x, x.dtype.type(0.5), out)
        np.add(out, half, out)
        np.subtract(out, tail, out)
        np.bitwise_or(out.view(sign.dtype), sign, out.view(sign.dtype))
    if infinite is not None:
        out[infinite] = np.inf


def _take_sign(x: Array, size: Array, spare: Array) -> None:
    """Give ``size``, which has none, the sign of x: of many by its bit, where numpy.copysign takes thrice as long."""
    if len(x) <= FEW:
        np.copysign(size, x, size)
        return
    sign = _sign(x, spare)
    np.bitwise_or(size.view(sign.dtype), sign, size.view(sign.dtype))


def _sign(x: Array, spare: Array) -> Array:
    """Return the bits of x that are its sign, in the memory of ``spare``."""
    bits = _bits(x)
    return np.bitwise_and(x.view(bits), bits.type(1 << (8 * bits.itemsize - 1)), spare.view(bits))


def _bits(x: Array) -> np.dtype[Any]:
    return np.dtype(f"uint{8 * x.dtype.itemsize}")
