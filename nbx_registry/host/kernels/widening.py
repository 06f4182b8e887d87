"""float16 in float32 by its bits: NumPy converts one number at a time, in two to three times as long."""

from __future__ import annotations

from typing import Any

import numpy as np

from nbx_registry.host.kernels.blocks import Array

_FLOAT16_BITS = np.int32(-0x70002000)
"""0x8FFFE000: where sign, exponent and fraction of a float16 come to lie in a float32, three bits of exponent short."""


def widen(x: Array, out: Array) -> None:
    """Write finite numbers of a floating dtype of at most 32 bits to ``out``, float32, contiguous; exact.

    Infinities and NaNs of float16 become numbers beyond its range.
    """
    if x.dtype != np.float16:
        np.copyto(out, x, casting="unsafe")
        return
    words: Any = out.view(np.int32)
    np.copyto(words, x.view(np.int16))
    words <<= np.int32(13)
    words &= _FLOAT16_BITS
    # The exponent, off by the difference of the two biases, comes right by this factor, and so do subnormal numbers.
    out *= np.float32(2.0**112)
