"""Floating numbers of 16 bits in float32, by their bits: no conversion of NumPy's or ml_dtypes' own is as fast, and
ml_dtypes' hold Python's lock, so that threads would wait for each other."""

from __future__ import annotations

from typing import Any

import numpy as np

from nbx_registry.host.kernels.blocks import Array

_FLOAT16_BITS = np.int32(-0x70002000)
"""0x8FFFE000: where sign, exponent and fraction of a float16 come to lie in a float32, three bits of exponent short."""


def widen(x: Array, out: Array) -> None:
    """Write finite numbers of any floating dtype of at most 32 bits to ``out``, float32, contiguous; exact.

    Infinities and NaNs of float16 become numbers beyond its range.
    """
    if x.dtype == np.float16:
        words: Any = out.view(np.int32)
        np.copyto(words, x.view(np.int16), casting="unsafe")
        words <<= np.int32(13)
        words &= _FLOAT16_BITS
        # The exponent, off by the difference of the two biases, and subnormal numbers too, come right by this factor.
        out *= np.float32(2.0**112)
    elif x.dtype.itemsize == 2:
        words = out.view(np.uint32)
        np.copyto(words, x.view(np.uint16), casting="unsafe")
        words <<= np.uint32(16)
    else:
        np.copyto(out, x, casting="unsafe")
