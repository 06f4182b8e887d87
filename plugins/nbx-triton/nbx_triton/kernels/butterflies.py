"""rfft and irfft of lengths that are powers of two, from 16 to 16384: butterflies in registers.

With N = 2^(FIRST + REST), a thread holds ``x[2^REST j + r]`` for all j, and makes of them the frequencies k from 0 to
half of 2^FIRST; the others are conjugates of these, since x is real. Twiddled, they go through shared memory; then
another thread holds all r of one k, and a complex transform over r gives the frequencies k + 2^FIRST q. Where
2^REST numbers are more than a thread holds, that goes in two passes, with one more exchange between them. What there is
at k half of 2^FIRST is real before it is twiddled: half of a transform's length is enough for it. The inverse goes the
same way back.

float32 [4096, 1024] and its frequencies are 33.6 MB; on an H200 it takes 15.4 us and the inverse 14.3, where a copy of
as many bytes takes 12.9.

Fused multiply-adds are where they are written, nowhere else: a row's bits do not depend on its place. Deterministic.
"""

from __future__ import annotations

from collections.abc import Sequence

import triton
import triton.language as tl

from nbx_registry.launch import BindContext, Launch
from nbx_registry.space import Space
from nbx_triton.compiler import THREADS_PER_WARP, Options
from nbx_triton.kernels.circle import circle
from nbx_triton.kernels.lanes import stack, unstack
from nbx_triton.kernels.radix import (
    powers,
    product,
    transform,
    transform_back,
    transform_real,
    transform_real_back,
)
from nbx_triton.kernels.signals import signals_of
from nbx_triton.kernels.strided import locate, program
from nbx_triton.launching import launch

FORWARD = {4: 3, 5: 4, 6: 5, 7: 5, 8: 6, 9: 6, 10: 6, 11: 6, 12: 6, 13: 6, 14: 6}
BACK = {4: 3, 5: 3, 6: 4, 7: 4, 8: 5, 9: 5, 10: 6, 11: 6, 12: 6, 13: 6, 14: 6}
"""By the bits of a length, the bits of what a thread transforms as real numbers.

The more, the longer are runs of frequencies, and the shorter those of real numbers: what is written decides, since rows
of frequencies lie so that runs begin and end within what memory takes at once.
"""

WARPS = {11: 4}
"""By the bits of a length, warps of a program at the least: fewer leave registers of a multiprocessor without use."""

SETTINGS = Space(
    parameters={"warps": (1, 2, 4, 8)},
    exclude={"threads of one row": f"N > {64 * THREADS_PER_WARP} * warps"},
)


@triton.jit
def _deal(one, LANES: tl.constexpr, BITS: tl.constexpr):
    """Return real and imaginary parts, one[2^BITS, 2, ...] of LANES lanes in all, as tuples."""
    both = unstack(tl.reshape(one, (2 * 2**BITS, LANES)), LANES, BITS + 1, FIRST=True)
    re = ()
    im = ()
    for t in tl.static_range(2**BITS):
        re = re + (both[2 * t],)  # noqa: RUF005 - the compiler unpacks no tuples
        im = im + (both[2 * t + 1],)  # noqa: RUF005
    return re, im


@triton.jit
def _twiddle(re, im, LANES: tl.constexpr, PLACES: tl.constexpr, BITS: tl.constexpr, BACK: tl.constexpr):
    """Turn elements k of 2^BITS by k times a place in the circle of 2^(BITS + PLACES); lanes are (place, LANES)."""
    place = tl.arange(0, LANES << PLACES) // LANES
    cosines, sines = powers(place, BITS + PLACES, 2**BITS - 1)
    turned_re = (re[0],)
    turned_im = (im[0],)
    for k in tl.static_range(1, 2**BITS):
        if BACK:
            a, b = product(re[k], im[k], cosines[k - 1], -sines[k - 1])
        else:
            a, b = product(re[k], im[k], cosines[k - 1], sines[k - 1])
        turned_re = turned_re + (a,)  # noqa: RUF005 - the compiler unpacks no tuples
        turned_im = turned_im + (b,)  # noqa: RUF005
    return turned_re, turned_im


@triton.jit
def _along(one, LANES: tl.constexpr, BITS: tl.constexpr, HIGH: tl.constexpr):
    """Return the transforms along the last axis of one[2, LANES, 2^BITS], of real and imaginary parts.

    They come as tuples over the high BITS - HIGH bits of a frequency, of lanes (the other bits, LANES). HIGH: bits of
    the place that go first, 0 for one pass.
    """
    low: tl.constexpr = BITS - HIGH
    if HIGH > 0:
        digits = tl.permute(tl.reshape(one, (2, LANES, 2**HIGH, 2**low)), (2, 0, 3, 1))
        re, im = _deal(digits, LANES << low, HIGH)
        re, im = transform(re, im, HIGH)
        re, im = _twiddle(re, im, LANES, low, HIGH, False)
        both = stack(re + im, LANES << low, HIGH + 1, FIRST=True)
        one = tl.permute(tl.reshape(both, (2, 2**HIGH, 2**low, LANES)), (2, 0, 1, 3))
    else:
        one = tl.permute(one, (2, 0, 1))
    re, im = _deal(one, LANES << HIGH, low)
    return transform(re, im, low)


@triton.jit
def _back_along(re, im, LANES: tl.constexpr, BITS: tl.constexpr, HIGH: tl.constexpr):
    """Return 2^BITS times what `_along` has these transforms of, as one tensor [2, 2^BITS, LANES]."""
    low: tl.constexpr = BITS - HIGH
    re, im = transform_back(re, im, low)
    one = stack(re + im, LANES << HIGH, low + 1, FIRST=True)
    if HIGH > 0:
        digits = tl.permute(tl.reshape(one, (2, 2**low, 2**HIGH, LANES)), (2, 0, 1, 3))
        re, im = _deal(digits, LANES << low, HIGH)
        re, im = _twiddle(re, im, LANES, low, HIGH, True)
        re, im = transform_back(re, im, HIGH)
        one = stack(re + im, LANES << low, HIGH + 1, FIRST=True)
    return tl.reshape(one, (2, 2**BITS, LANES))


@triton.jit
def _frequencies(lane, LANES: tl.constexpr, FIRST: tl.constexpr, REST: tl.constexpr, HIGH: tl.constexpr):
    """Return row and frequency of lanes (HIGH bits of q, row, k) by the other bits of q, and which to conjugate.

    Frequencies beyond the middle are conjugates of those that they come to.
    """
    half: tl.constexpr = 2**FIRST // 2
    q = (tl.arange(0, 2 ** (REST - HIGH)) << HIGH).to(lane.dtype)[None, :] + (lane // LANES)[:, None]
    # By bits: the compiler must not see neighbours, or it would give one thread several lanes.
    f = (q << FIRST) + (lane & (half - 1))[:, None]
    beyond = q >= 2**REST // 2
    return lane % LANES // half, tl.where(beyond, 2 ** (FIRST + REST) - f, f), beyond


@triton.jit
def _middles(FIRST: tl.constexpr, REST: tl.constexpr, HIGH: tl.constexpr, lane, LANES: tl.constexpr):
    """Return frequencies that are an odd multiple of half of 2^FIRST, of lanes (HIGH bits, LANES) by the other bits."""
    s = (tl.arange(0, 2 ** (REST - 1 - HIGH)) << HIGH).to(lane.dtype)[None, :] + (lane // LANES)[:, None]
    f = (s << (FIRST + 1)) + 2 ** (FIRST - 1)
    beyond = f > 2 ** (FIRST + REST) // 2
    return tl.where(beyond, 2 ** (FIRST + REST) - f, f), beyond


@triton.jit
def _store(start, column, f, beyond, mask, re, im, LANES: tl.constexpr, BITS: tl.constexpr):
    """Write complex numbers, tuples of 2^BITS, to the places f of each lane, conjugates ``beyond``."""
    both = tl.permute(tl.reshape(stack(re + im, LANES, BITS + 1, FIRST=True), (2, 2**BITS, LANES)), (2, 1, 0))
    part = tl.arange(0, 2)[None, None, :]
    both = tl.where(beyond[:, :, None] & (part == 1), -both, both)
    tl.store((start[:, None] + f * (2 * column))[:, :, None] + part, both, mask=mask[:, :, None])


@triton.jit
def _load(start, column, f, beyond, mask, LANES: tl.constexpr, BITS: tl.constexpr):
    """Return the complex numbers at the places f of each lane as tuples of 2^BITS, conjugates ``beyond``."""
    part = tl.arange(0, 2)[None, None, :]
    both = tl.load((start[:, None] + f * (2 * column))[:, :, None] + part, mask=mask[:, :, None], other=0)
    both = tl.where(beyond[:, :, None] & (part == 1), -both, both)
    return _deal(tl.permute(both, (1, 2, 0)), LANES, BITS)


@triton.jit
def forward(
    x,
    out,
    rows,
    shape,
    x_strides,
    out_strides,
    x_column,
    out_column,
    WIDE: tl.constexpr,
    ROWS: tl.constexpr,
    FIRST: tl.constexpr,
    REST: tl.constexpr,
    HIGH: tl.constexpr,
    MIDDLE_HIGH: tl.constexpr,
):
    """Write the frequencies of ``ROWS`` rows of 2^(FIRST + REST) numbers. Strides of out count complex numbers."""
    half: tl.constexpr = 2**FIRST // 2
    lane = tl.arange(0, ROWS << REST)
    row = program(WIDE) * ROWS + lane // 2**REST
    r = lane & (2**REST - 1)
    j = tl.arange(0, 2**FIRST).to(row.dtype)
    place = (x + locate(row, shape, x_strides) + r * x_column)[:, None] + ((j << REST) * x_column)[None, :]
    held = unstack(tl.load(place, mask=(row < rows)[:, None], other=0), ROWS << REST, FIRST)
    re, im = transform_real(held, FIRST)
    cosines, sines = powers(r, FIRST + REST, half - 1)
    turned_re = (re[0],)
    turned_im = (re[0] * 0,)
    for k in tl.static_range(1, half):
        a, b = product(re[k], im[k], cosines[k - 1], sines[k - 1])
        turned_re = turned_re + (a,)  # noqa: RUF005 - the compiler unpacks no tuples
        turned_im = turned_im + (b,)  # noqa: RUF005
    lanes: tl.constexpr = ROWS * half
    one = tl.reshape(stack(turned_re + turned_im, ROWS << REST, FIRST, FIRST=True), (2, half, ROWS, 2**REST))
    one = tl.reshape(tl.permute(one, (0, 2, 1, 3)), (2, lanes, 2**REST))
    all_re, all_im = _along(one, lanes, REST, HIGH)
    lane = tl.arange(0, lanes << HIGH)
    own, f, beyond = _frequencies(lane, lanes, FIRST, REST, HIGH)
    row = program(WIDE) * ROWS + own
    # At k = 0 those beyond the middle are there already.
    mask = (row < rows)[:, None] & ((lane & (half - 1) != 0)[:, None] | (f == (half << REST)) | ~beyond)
    start = out + locate(row, shape, out_strides) * 2
    _store(start, out_column, f.to(row.dtype), beyond, mask, all_re, all_im, lanes << HIGH, REST - HIGH)

    # At half of 2^FIRST, two real numbers a complex one.
    low, high = tl.split(tl.permute(tl.reshape(re[half], (ROWS, 2, 2**REST // 2)), (0, 2, 1)))
    c, s = circle(tl.arange(0, 2**REST // 2), 2 * 2**REST, 1.0 / (2 * 2**REST))
    a, b = product(low, -high, c[None, :], s[None, :])
    one = tl.permute(tl.join(a, b), (2, 0, 1))
    all_re, all_im = _along(one, ROWS, REST - 1, MIDDLE_HIGH)
    lane = tl.arange(0, ROWS << MIDDLE_HIGH)
    row = program(WIDE) * ROWS + lane % ROWS
    f, beyond = _middles(FIRST, REST, MIDDLE_HIGH, lane, ROWS)
    start = out + locate(row, shape, out_strides) * 2
    mask = (row < rows)[:, None] & (f >= 0)
    _store(
        start, out_column, f.to(row.dtype), beyond, mask, all_re, all_im, ROWS << MIDDLE_HIGH, REST - 1 - MIDDLE_HIGH
    )


@triton.jit
def inverse(
    x,
    out,
    rows,
    known,
    shape,
    x_strides,
    out_strides,
    x_column,
    out_column,
    WIDE: tl.constexpr,
    ROWS: tl.constexpr,
    FIRST: tl.constexpr,
    REST: tl.constexpr,
    HIGH: tl.constexpr,
    MIDDLE_HIGH: tl.constexpr,
):
    """Write ``ROWS`` rows of 2^(FIRST + REST) numbers, of ``known`` frequencies. Strides of x count complex numbers."""
    half: tl.constexpr = 2**FIRST // 2
    lanes: tl.constexpr = ROWS * half
    lane = tl.arange(0, lanes << HIGH)
    own, f, beyond = _frequencies(lane, lanes, FIRST, REST, HIGH)
    row = program(WIDE) * ROWS + own
    start = x + locate(row, shape, x_strides) * 2
    mask = (row < rows)[:, None] & (f < known)
    re, im = _load(start, x_column, f.to(row.dtype), beyond, mask, lanes << HIGH, REST - HIGH)
    # At the ends imaginary parts do not count; both are at k = 0 and the high bits' first.
    ends = lane % lanes & (half - 1) | lane // lanes
    real_im = ()
    for t in tl.static_range(2 ** (REST - HIGH)):
        if t == 0 or 2 * t == 2 ** (REST - HIGH):
            real_im = real_im + (tl.where(ends == 0, 0.0, im[t]),)  # noqa: RUF005 - the compiler unpacks no tuples
        else:
            real_im = real_im + (im[t],)  # noqa: RUF005
    one = tl.reshape(_back_along(re, real_im, lanes, REST, HIGH), (2, 2**REST, ROWS, half))
    one = tl.reshape(tl.permute(one, (3, 0, 2, 1)), (half, 2, ROWS << REST))
    all_re, all_im = _deal(one, ROWS << REST, FIRST - 1)

    lane = tl.arange(0, ROWS << MIDDLE_HIGH)
    row = program(WIDE) * ROWS + lane % ROWS
    f, beyond = _middles(FIRST, REST, MIDDLE_HIGH, lane, ROWS)
    start = x + locate(row, shape, x_strides) * 2
    mask = (row < rows)[:, None] & (f < known)
    re, im = _load(start, x_column, f.to(row.dtype), beyond, mask, ROWS << MIDDLE_HIGH, REST - 1 - MIDDLE_HIGH)
    one = tl.permute(_back_along(re, im, ROWS, REST - 1, MIDDLE_HIGH), (2, 1, 0))
    re, im = tl.split(one)
    c, s = circle(tl.arange(0, 2**REST // 2), 2 * 2**REST, 1.0 / (2 * 2**REST))
    a, b = product(re, im, c[None, :], -s[None, :])
    middle = tl.reshape(tl.permute(tl.join(a, -b), (0, 2, 1)), (ROWS << REST,)) * 2

    lane = tl.arange(0, ROWS << REST)
    row = program(WIDE) * ROWS + lane // 2**REST
    r = lane & (2**REST - 1)
    cosines, sines = powers(r, FIRST + REST, half - 1)
    turned_re = (all_re[0],)
    turned_im = (all_im[0],)
    for k in tl.static_range(1, half):
        a, b = product(all_re[k], all_im[k], cosines[k - 1], -sines[k - 1])
        turned_re = turned_re + (a,)  # noqa: RUF005
        turned_im = turned_im + (b,)  # noqa: RUF005
    held = transform_real_back(turned_re + (middle,), turned_im + (middle,), FIRST)  # noqa: RUF005
    one = tl.permute(stack(held, ROWS << REST, FIRST, FIRST=True), (1, 0)) * (1.0 / 2 ** (FIRST + REST))
    j = tl.arange(0, 2**FIRST).to(row.dtype)
    place = (out + locate(row, shape, out_strides) + r * out_column)[:, None] + ((j << REST) * out_column)[None, :]
    tl.store(place, one, mask=(row < rows)[:, None])


def _bind(ctx: BindContext, length: int) -> Sequence[Launch]:
    (x,) = ctx.signature.tensors
    (out,) = ctx.signature.outputs
    if out.size == 0:
        return ()
    bits = length.bit_length() - 1
    back = x.dtype.kind == "complex"
    first = (BACK if back else FORWARD)[bits]
    rest = bits - first
    # A pass takes up to 32 complex numbers a thread.
    high = rest // 2 if rest > 5 else 0
    lanes = min(2**rest, 2 ** (first - 1 + high))
    warps = max(ctx.settings["warps"], lanes // THREADS_PER_WARP, WARPS.get(bits, 1))
    each = warps * THREADS_PER_WARP // lanes
    signals = signals_of(ctx, slack=2 * each, places=2 * length)
    step = launch(
        ctx,
        inverse if back else forward,
        programs=triton.cdiv(signals.rows, each),
        arguments={**signals.arguments, **({"known": x.shape[-1]} if back else {})},
        constants={
            "WIDE": signals.wide,
            "ROWS": each,
            "FIRST": first,
            "REST": rest,
            "HIGH": high,
            "MIDDLE_HIGH": (rest - 1) // 2 if rest > 4 else 0,
        },
        options=Options(num_warps=warps, num_stages=1, enable_fp_fusion=False),
    )
    return (step,)


def bind_rfft(ctx: BindContext) -> Sequence[Launch]:
    """Bind ``rfft`` of a power of two."""
    return _bind(ctx, ctx.signature.tensors[0].shape[-1])


def bind_irfft(ctx: BindContext) -> Sequence[Launch]:
    """Bind ``irfft`` to a power of two."""
    return _bind(ctx, ctx.signature.attributes["n"])
