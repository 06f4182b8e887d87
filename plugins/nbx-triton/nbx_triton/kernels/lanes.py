"""Several elements of one lane as tensors of their own, and back: what a thread has loaded stays in its registers."""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def unstack(x, LANES: tl.constexpr, BITS: tl.constexpr):
    """Return the elements along the last axis of x[LANES, 2^BITS] as a tuple of tensors [LANES]."""
    parts = (x,)
    for level in tl.static_range(BITS):
        low = ()
        high = ()
        for i in tl.static_range(1 << level):
            even, odd = tl.split(tl.reshape(parts[i], (LANES, 1 << (BITS - 1 - level), 2)))
            low = low + (even,)  # noqa: RUF005 - the compiler unpacks no tuples
            high = high + (odd,)  # noqa: RUF005
        parts = low + high
    flat = ()
    for i in tl.static_range(2**BITS):
        flat = flat + (tl.reshape(parts[i], (LANES,)),)  # noqa: RUF005
    return flat


@triton.jit
def stack(parts, LANES: tl.constexpr, BITS: tl.constexpr):
    """Return 2^BITS tensors [LANES] as one tensor [LANES, 2^BITS]: the inverse of `unstack`."""
    for level in tl.static_range(BITS):
        joined = ()
        for i in tl.static_range(1 << (BITS - 1 - level)):
            joined = joined + (tl.join(parts[i], parts[i + (1 << (BITS - 1 - level))]),)  # noqa: RUF005
        parts = joined
    return tl.reshape(parts[0], (LANES, 2**BITS))
