"""The inverse of the standard normal distribution function at words of 32 bits.

M. J. Wichura, "Algorithm AS 241: the percentage points of the normal distribution", Applied Statistics 37, 1988: PPND7
in float32, PPND16 in float64. Both are rational functions, of the distance from 1/2 in the middle and of
``sqrt(-log(p))`` in the tails; the far tails, past 1e-11, no word reaches.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from nbx_registry.dtypes import DType
from nbx_registry.host.kernels.blocks import Array, working

# Highest power first.
_MIDDLE_32 = (
    (5.9109374720e01, 1.5929113202e02, 5.0434271938e01, 3.3871327179e00),
    (6.7187563600e01, 7.8757757664e01, 1.7895169469e01, 1.0),
)
_TAIL_32 = (
    (1.7023821103e-01, 1.3067284816e00, 2.7568153900e00, 1.4234372777e00),
    (1.2021132975e-01, 7.3700164250e-01, 1.0),
)
_MIDDLE_64 = (
    (
        2.5090809287301226727e3,
        3.3430575583588128105e4,
        6.7265770927008700853e4,
        4.5921953931549871457e4,
        1.3731693765509461125e4,
        1.9715909503065514427e3,
        1.3314166789178437745e2,
        3.3871328727963666080e0,
    ),
    (
        5.2264952788528545610e3,
        2.8729085735721942674e4,
        3.9307895800092710610e4,
        2.1213794301586595867e4,
        5.3941960214247511077e3,
        6.8718700749205790830e2,
        4.2313330701600911252e1,
        1.0,
    ),
)
_TAIL_64 = (
    (
        7.74545014278341407640e-4,
        2.27238449892691845833e-2,
        2.41780725177450611770e-1,
        1.27045825245236838258e0,
        3.64784832476320460504e0,
        5.76949722146069140550e0,
        4.63033784615654529590e0,
        1.42343711074968357734e0,
    ),
    (
        1.05075007164441684324e-9,
        5.47593808499534494600e-4,
        1.51986665636164571966e-2,
        1.48103976427480074590e-1,
        6.89767334985100004550e-1,
        1.67638483018380384940e0,
        2.05319162663775882187e0,
        1.0,
    ),
)


def quantile(dtype: DType) -> Callable[[Array, Array], None]:
    """Return ``(words, out)``: the quantiles at ``(word + 1/2) 2^-32``, in float32 (float64 in float64)."""
    wide = working(dtype)
    middle, tail = (_MIDDLE_64, _TAIL_64) if wide == np.float64 else (_MIDDLE_32, _TAIL_32)

    def make(words: Array, out: Array) -> None:
        # All ones where the word is in the upper half: no processor foresees the branches of numpy.where.
        upper: Any = (words.view(np.int32) >> np.int32(31)).view(np.uint32)
        # Twice the distance to the nearer end, in units of 2^-32: odd, so that neither it nor what is left is 0.
        to_end = words ^ upper
        to_end = to_end << np.uint32(1) | np.uint32(1)
        q: Any = (np.uint32(0) - to_end).astype(wide)
        q *= wide.type(2.0**-33)
        r = q * q
        np.subtract(wide.type(0.180625), r, out=r)
        value = _ratio(r, middle)
        value *= q
        far = np.flatnonzero(q > wide.type(0.425))
        if far.size:
            p: Any = to_end[far].astype(wide)
            p *= wide.type(2.0**-33)
            np.log(p, out=p)
            np.negative(p, out=p)
            np.sqrt(p, out=p)
            p -= wide.type(1.6)
            value[far] = _ratio(p, tail)
        # Numbers of the lower half change their sign.
        signs = np.bitwise_and(np.invert(upper, out=upper), np.uint32(1 << 31), out=upper)
        bits = value.view(f"u{wide.itemsize}")
        np.bitwise_xor(bits, signs.astype(bits.dtype) << bits.dtype.type(8 * wide.itemsize - 32), out=bits)
        np.copyto(out, value, casting="unsafe")

    return make


def _ratio(x: Array, coefficients: Sequence[Sequence[float]]) -> Array:
    above, below = (_polynomial(x, each) for each in coefficients)
    return np.divide(above, below, out=above)


def _polynomial(x: Array, coefficients: Sequence[float]) -> Array:
    first, second, *rest = (x.dtype.type(c) for c in coefficients)
    value = x * first
    value += second
    for coefficient in rest:
        value *= x
        value += coefficient
    return value
