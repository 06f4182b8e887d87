"""Several elements of one lane as tensors of their own, and back: what a thread has loaded stays in its registers."""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def unstack(x, LANES: tl.constexpr, BITS: tl.constexpr, FIRST: tl.constexpr = False):
    """Return the elements along the last axis of x[LANES, 2^BITS] as a tuple of tensors [LANES].

    FIRST: those along the first axis of x[2^BITS, LANES]. The bit that is split off is the last axis, and lanes are the
    fastest one of the rest: so the compiler gives a thread whole lanes at the first split, and later ones move nothing.
    """
    parts = (x,)
    for level in tl.static_range(BITS):
        low = ()
        high = ()
        for i in tl.static_range(1 << level):
            if FIRST:
                both = tl.permute(tl.reshape(parts[i], (1 << (BITS - 1 - level), 2, LANES)), (0, 2, 1))
            else:
                both = tl.reshape(parts[i], (LANES, 1 << (BITS - 1 - level), 2))
            even, odd = tl.split(both)
            low = low + (even,)  # noqa: RUF005 - the compiler unpacks no tuples
            high = high + (odd,)  # noqa: RUF005
        parts = low + high
    flat = ()
    for i in tl.static_range(2**BITS):
        flat = flat + (tl.reshape(parts[i], (LANES,)),)  # noqa: RUF005
    return flat


@triton.jit
def stack(parts, LANES: tl.constexpr, BITS: tl.constexpr, FIRST: tl.constexpr = False):
    """Return 2^BITS tensors [LANES] as one tensor [LANES, 2^BITS], [2^BITS, LANES] if FIRST: the inverse of `unstack`.

    If FIRST, nothing moves.
    """
    for level in tl.static_range(BITS):
        joined = ()
        for i in tl.static_range(1 << (BITS - 1 - level)):
            low = parts[i]
            high = parts[i + (1 << (BITS - 1 - level))]
            if FIRST:
                low = tl.reshape(low, (1 << level, LANES))
                both = tl.permute(tl.join(low, tl.reshape(high, (1 << level, LANES))), (0, 2, 1))
            else:
                both = tl.join(low, high)
            joined = joined + (both,)  # noqa: RUF005 - the compiler unpacks no tuples
        parts = joined
    if FIRST:
        one = tl.reshape(parts[0], (2**BITS, LANES))
    else:
        one = tl.reshape(parts[0], (LANES, 2**BITS))
    return one
