"""rfft and irfft of lengths that are powers of two, from 16 to 16384: butterflies in registers.

A program transforms rows of 64 real numbers a thread in all. With N = 8 M, ``x[M j + m]`` for j from 0 to 7 meet in one
thread, which makes of them the sums over j for the residues k = 0 to 4 of a frequency modulo 8; those for 5 to 7 are
conjugates of 3 to 1, since x is real. Residue by residue a complex transform of length M over m, twiddled, gives the
frequencies k + 8 q. The inverse goes the same way back, and adds the residues up.

A complex transform goes in passes of radix 2, 4 or 8, decimating in frequency (J. W. Cooley and J. W. Tukey, "An
Algorithm for the Machine Calculation of Complex Fourier Series", 1965): a thread holds the elements of a butterfly, and
between passes they are exchanged once through shared memory. Twiddles are cosines and sines of an eighth of the circle,
and up to three products of such.

float32 [4096, 1024] and its frequencies are 33.6 MB, 8 us at the 4.25 TB/s of an H200; the butterflies are 0.13 GFLOP,
and exchanges move 126 MB through shared memories that together do 29 TB/s.

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
from nbx_triton.kernels.signals import signals_of
from nbx_triton.kernels.strided import locate, program
from nbx_triton.launching import launch

HELD = 64
"""Real numbers of a thread: in an eighth of them, as many lanes as there are threads."""

SETTINGS = Space(
    parameters={"warps": (2, 4, 8)},
    exclude={"a row past the registers": f"N > {HELD * THREADS_PER_WARP} * warps"},
)


@triton.jit
def _product(re, im, c, s):
    """Return (re + i im)(c - i s)."""
    return tl.fma(re, c, im * s), tl.fma(im, c, -(re * s))


@triton.jit
def _rotate(re, im, EIGHTHS: tl.constexpr):
    """Return (re + i im) times e^(-2 pi i EIGHTHS / 8), for less than half a circle."""
    if EIGHTHS == 1:
        re, im = (re + im) * 0.7071067811865476, (im - re) * 0.7071067811865476
    elif EIGHTHS == 2:
        re, im = im, -re
    elif EIGHTHS == 3:
        re, im = (im - re) * 0.7071067811865476, (im + re) * -0.7071067811865476
    return re, im


@triton.jit
def _butterfly(re, im, BITS: tl.constexpr):
    """Return the transform of 2^BITS complex numbers, up to 8, each a pair of tensors."""
    for level in tl.static_range(BITS):
        all_re = ()
        all_im = ()
        for block in tl.static_range(1 << level):
            sum_re = ()
            sum_im = ()
            difference_re = ()
            difference_im = ()
            for t in tl.static_range(1 << (BITS - 1 - level)):
                a_re = re[(block << (BITS - level)) + t]
                a_im = im[(block << (BITS - level)) + t]
                b_re = re[(block << (BITS - level)) + (1 << (BITS - 1 - level)) + t]
                b_im = im[(block << (BITS - level)) + (1 << (BITS - 1 - level)) + t]
                c_re, c_im = _rotate(a_re - b_re, a_im - b_im, t << (3 - BITS + level))
                sum_re = sum_re + (a_re + b_re,)  # noqa: RUF005 - the compiler unpacks no tuples
                sum_im = sum_im + (a_im + b_im,)  # noqa: RUF005
                difference_re = difference_re + (c_re,)  # noqa: RUF005
                difference_im = difference_im + (c_im,)  # noqa: RUF005
            all_re = all_re + sum_re + difference_re
            all_im = all_im + sum_im + difference_im
        re = all_re
        im = all_im
    # The bits of a frequency come in reverse.
    found_re = ()
    found_im = ()
    for k in tl.static_range(2**BITS):
        found_re = found_re + (re[((k & 1) << BITS >> 1) | ((k & 2) << BITS >> 3) | ((k & 4) << BITS >> 5)],)  # noqa: RUF005
        found_im = found_im + (im[((k & 1) << BITS >> 1) | ((k & 2) << BITS >> 3) | ((k & 4) << BITS >> 5)],)  # noqa: RUF005
    return found_re, found_im


@triton.jit
def _powers(c, s, BITS: tl.constexpr):
    """Return cosines and sines of 1 to 2^BITS - 1, up to 7, times an angle."""
    cosines = (c,)
    sines = (s,)
    for k in tl.static_range(2, 2**BITS):
        # The product of two powers that are there: of k / 2, and of what is left.
        a = cosines[k // 2 - 1]
        b = sines[k // 2 - 1]
        c2, s2 = cosines[k - k // 2 - 1], sines[k - k // 2 - 1]
        cosines = cosines + (tl.fma(a, c2, -(b * s2)),)  # noqa: RUF005 - the compiler unpacks no tuples
        sines = sines + (tl.fma(a, s2, b * c2),)  # noqa: RUF005
    return cosines, sines


@triton.jit
def _exchange(
    parts, ROWS: tl.constexpr, REST: tl.constexpr, DONE: tl.constexpr, BITS: tl.constexpr, NEXT: tl.constexpr
):
    """Return the elements of the next pass's butterflies.

    ``parts`` are the 2^BITS frequencies of this pass, over lanes (row, NEXT + REST bits of place, DONE of frequency).
    """
    one = stack(parts, ROWS << (NEXT + REST + DONE), BITS, FIRST=True)
    digits = tl.reshape(one, (1 << BITS, ROWS, 1 << NEXT, 1 << REST, 1 << DONE))
    lanes: tl.constexpr = ROWS << (REST + DONE + BITS)
    return unstack(tl.reshape(tl.permute(digits, (2, 1, 3, 0, 4)), (1 << NEXT, lanes)), lanes, NEXT, FIRST=True)


@triton.jit
def _pass(
    re,
    im,
    ROWS: tl.constexpr,
    LEFT: tl.constexpr,
    DONE: tl.constexpr,
    BITS: tl.constexpr,
    NEXT: tl.constexpr,
):
    """Transform 2^BITS elements a lane; if there is a next pass (of NEXT bits), twiddle and exchange.

    LEFT is the bits of places that are left after this pass.
    """
    re, im = _butterfly(re, im, BITS)
    if NEXT > 0:
        lane = tl.arange(0, ROWS << (LEFT + DONE))
        place = (lane >> DONE) & ((1 << LEFT) - 1)
        c, s = circle(place, 1 << (LEFT + BITS), 1.0 / (1 << (LEFT + BITS)))
        cosines, sines = _powers(c, s, BITS)
        turned_re = (re[0],)
        turned_im = (im[0],)
        for k in tl.static_range(1, 1 << BITS):
            a, b = _product(re[k], im[k], cosines[k - 1], sines[k - 1])
            turned_re = turned_re + (a,)  # noqa: RUF005 - the compiler unpacks no tuples
            turned_im = turned_im + (b,)  # noqa: RUF005
        re = _exchange(turned_re, ROWS, LEFT - NEXT, DONE, BITS, NEXT)
        im = _exchange(turned_im, ROWS, LEFT - NEXT, DONE, BITS, NEXT)
    return re, im


@triton.jit
def _transform(re, im, ROWS: tl.constexpr, BITS: tl.constexpr):
    """Return the transforms of rows of 2^BITS complex numbers, from lanes (row, place).

    They come as a tuple over the highest digit of the frequency, of lanes (row, what is left of the frequency).
    """
    passes: tl.constexpr = (BITS + 2) // 3
    small: tl.constexpr = BITS // passes
    more: tl.constexpr = BITS % passes
    first: tl.constexpr = small + 1 if more > 0 else small
    lanes: tl.constexpr = ROWS << (BITS - first)
    re = tl.permute(tl.reshape(re, (ROWS, 2**first, 2 ** (BITS - first))), (1, 0, 2))
    im = tl.permute(tl.reshape(im, (ROWS, 2**first, 2 ** (BITS - first))), (1, 0, 2))
    re = unstack(tl.reshape(re, (2**first, lanes)), lanes, first, FIRST=True)
    im = unstack(tl.reshape(im, (2**first, lanes)), lanes, first, FIRST=True)
    for i in tl.static_range(passes):
        re, im = _pass(
            re,
            im,
            ROWS,
            BITS - (i + 1) * small - (i + 1 if i < more else more),
            i * small + (i if i < more else more),
            small + (1 if i < more else 0),
            0 if i + 1 == passes else small + (1 if i + 1 < more else 0),
        )
    return re, im


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
    BITS: tl.constexpr,
):
    """Write the frequencies of ``ROWS`` rows of 8 times 2^BITS real numbers. Strides of out count complex numbers."""
    length: tl.constexpr = 2**BITS
    last: tl.constexpr = BITS // ((BITS + 2) // 3)
    lane = tl.arange(0, ROWS << BITS)
    # Not by bits: the compiler sees neighbours in a quotient and a rest.
    row = program(WIDE) * ROWS + lane // length
    m = (lane % length).to(row.dtype)
    start = x + locate(row, shape, x_strides)
    a0, b0 = _pair(start, x_column, m, row < rows, 0, BITS)
    a1, b1 = _pair(start, x_column, m, row < rows, 1, BITS)
    a2, b2 = _pair(start, x_column, m, row < rows, 2, BITS)
    a3, b3 = _pair(start, x_column, m, row < rows, 3, BITS)
    c, s = circle(m, 8 * length, 0.125 / length)
    cosines, sines = _powers(c, s, 3)
    d = (b1 - b3) * 0.7071067811865476
    e = (b1 + b3) * 0.7071067811865476
    r0, i0 = _transform((a0 + a2) + (a1 + a3), a0 * 0, ROWS, BITS)
    y, z = _product(b0 + d, -b2 - e, cosines[0], sines[0])
    r1, i1 = _transform(y, z, ROWS, BITS)
    y, z = _product(a0 - a2, a3 - a1, cosines[1], sines[1])
    r2, i2 = _transform(y, z, ROWS, BITS)
    y, z = _product(b0 - d, b2 - e, cosines[2], sines[2])
    r3, i3 = _transform(y, z, ROWS, BITS)
    y = (a0 + a2) - (a1 + a3)
    r4, i4 = _transform(y * cosines[3], -(y * sines[3]), ROWS, BITS)

    lanes: tl.constexpr = ROWS << (BITS - last)
    lane = tl.arange(0, lanes)
    row = program(WIDE) * ROWS + (lane >> (BITS - last))
    start = out + locate(row, shape, out_strides) * 2
    number = tl.arange(0, 8)[None, :]
    for t in tl.static_range(1 << last):
        q = (lane & ((1 << (BITS - last)) - 1)).to(row.dtype) + (t << (BITS - last))
        # Frequencies 8 q to 8 q + 3, or their like beyond the middle as conjugates.
        low = q < length // 2
        first = tl.where(low, 8 * q, 8 * (length - 1 - q) + 4)
        four = (
            tl.where(low, r0[t], r4[t]),
            tl.where(low, i0[t], -i4[t]),
            tl.where(low, r1[t], r3[t]),
            tl.where(low, i1[t], -i3[t]),
            r2[t],
            tl.where(low, i2[t], -i2[t]),
            tl.where(low, r3[t], r1[t]),
            tl.where(low, i3[t], -i1[t]),
        )
        if out_column == 1:
            place = (start + 2 * first)[:, None] + number
        else:
            place = start[:, None] + (first[:, None] + number // 2) * out_column * 2 + number % 2
        tl.store(place, stack(four, lanes, 3), mask=(row < rows)[:, None])
        middle = (q == length // 2) & (row < rows)
        tl.store(start + 8 * q * out_column * 2, r0[t], mask=middle)
        tl.store(start + 8 * q * out_column * 2 + 1, i0[t], mask=middle)


@triton.jit
def _pair(start, x_column, m, there, J: tl.constexpr, BITS: tl.constexpr):
    """Return the sum and the difference of elements J and J + 4 of eight, at place m of each."""
    a = tl.load(start + (m + (J << BITS)) * x_column, mask=there, other=0)
    b = tl.load(start + (m + ((J + 4) << BITS)) * x_column, mask=there, other=0)
    return a + b, a - b


@triton.jit
def _complex(place, mask):
    """Return real and imaginary part of what lies at ``place``."""
    pair = tl.load(place[:, None] + tl.arange(0, 2)[None, :], mask=mask[:, None], other=0)
    return tl.split(pair)


@triton.jit
def _back(re, im, ROWS: tl.constexpr, BITS: tl.constexpr):
    """Return the inverse transform, not divided by the length."""
    # Exchanging real and imaginary parts turns the other way round.
    im, re = _transform(im, re, ROWS, BITS)
    return re, im


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
    FULL: tl.constexpr,
    WIDE: tl.constexpr,
    ROWS: tl.constexpr,
    BITS: tl.constexpr,
):
    """Write ``ROWS`` rows of 8 times 2^BITS real numbers, from ``known`` frequencies, or more than all (FULL).

    Strides of x count complex numbers.
    """
    length: tl.constexpr = 2**BITS
    last: tl.constexpr = BITS // ((BITS + 2) // 3)
    lane = tl.arange(0, ROWS << BITS)
    row = program(WIDE) * ROWS + (lane >> BITS)
    q = (lane & (length - 1)).to(row.dtype)
    start = x + locate(row, shape, x_strides) * 2
    there = row < rows
    # Frequencies 8 q to 8 q + 3 and 8 q + 4, or their like beyond the middle as conjugates.
    low = q < length // 2
    first = tl.where(low, 8 * q, 8 * (length - 1 - q) + 4)
    alone = tl.where(low, 8 * q + 4, 8 * (length - q))
    number = tl.arange(0, 8)[None, :]
    if x_column == 1:
        place = (start + 2 * first)[:, None] + number
    else:
        place = start[:, None] + (first[:, None] + number // 2) * x_column * 2 + number % 2
    inside = there[:, None]
    if not FULL:
        inside = inside & (first[:, None] + number // 2 < known)
    four = unstack(tl.load(place, mask=inside, other=0), ROWS << BITS, 3)
    re, im = _complex(start + alone * x_column * 2, there & (alone < known))
    # At the ends imaginary parts do not count.
    i0 = tl.where(q == 0, 0.0, four[1])
    im = tl.where(q == length // 2, 0.0, im)
    r0, _ = _back(tl.where(low, four[0], re), tl.where(low, i0, -im), ROWS, BITS)
    r1, i1 = _back(tl.where(low, four[2], four[6]), tl.where(low, four[3], -four[7]), ROWS, BITS)
    r2, i2 = _back(four[4], tl.where(low, four[5], -four[5]), ROWS, BITS)
    r3, i3 = _back(tl.where(low, four[6], four[2]), tl.where(low, four[7], -four[3]), ROWS, BITS)
    r4, i4 = _back(tl.where(low, re, four[0]), tl.where(low, im, -four[1]), ROWS, BITS)

    lane = tl.arange(0, ROWS << (BITS - last))
    row = program(WIDE) * ROWS + (lane >> (BITS - last))
    start = out + locate(row, shape, out_strides)
    there = row < rows
    scale: tl.constexpr = 0.125 / length
    for t in tl.static_range(1 << last):
        m = (lane & ((1 << (BITS - last)) - 1)).to(row.dtype) + (t << (BITS - last))
        c, s = circle(m, 8 * length, 0.125 / length)
        cosines, sines = _powers(c, s, 3)
        a1, b1 = _product(r1[t], i1[t], cosines[0], -sines[0])
        a2, b2 = _product(r2[t], i2[t], cosines[1], -sines[1])
        a3, b3 = _product(r3[t], i3[t], cosines[2], -sines[2])
        a4 = tl.fma(r4[t], cosines[3], -(i4[t] * sines[3]))
        plus = (r0[t] + a4) * scale
        minus = (r0[t] - a4) * scale
        e0 = tl.fma(a2, 2 * scale, plus)
        e1 = tl.fma(b2, -2 * scale, minus)
        e2 = tl.fma(a2, -2 * scale, plus)
        e3 = tl.fma(b2, 2 * scale, minus)
        o0 = (a1 + a3) * (2 * scale)
        o1 = ((a1 - b1) - (a3 + b3)) * (1.4142135623730951 * scale)
        o2 = (b3 - b1) * (2 * scale)
        o3 = ((a3 - b3) - (a1 + b1)) * (1.4142135623730951 * scale)
        eight = (e0 + o0, e1 + o1, e2 + o2, e3 + o3, e0 - o0, e1 - o1, e2 - o2, e3 - o3)
        for j in tl.static_range(8):
            tl.store(start + (m + (j << BITS)) * out_column, eight[j], mask=there)


def _bind(ctx: BindContext, length: int) -> Sequence[Launch]:
    (x,) = ctx.signature.tensors
    (out,) = ctx.signature.outputs
    if out.size == 0:
        return ()
    warps = max(ctx.settings["warps"], length // (HELD * THREADS_PER_WARP))
    each = max(1, HELD * THREADS_PER_WARP * warps // length)
    signals = signals_of(ctx, slack=2 * each, places=2 * length)
    back = x.dtype.kind == "complex"
    step = launch(
        ctx,
        inverse if back else forward,
        programs=triton.cdiv(signals.rows, each),
        arguments={**signals.arguments, **({"known": x.shape[-1]} if back else {})},
        constants={
            **({"FULL": x.shape[-1] > length // 2} if back else {}),
            "WIDE": signals.wide,
            "ROWS": each,
            "BITS": length.bit_length() - 4,
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
