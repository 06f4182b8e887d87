"""Cosines and sines of parts of a circle, and their tables: rfft_basis, irfft_basis.

A part is a fraction of integers, reduced to an eighth of the circle in integers; what is left is computed by
polynomials in float32, fitted so that the largest error is least. Cosines and sines are within 1.2e-7 of the true ones,
the zeros and ones among them exact. One program writes 1024 consecutive entries of both tables. Deterministic.
"""

from __future__ import annotations

from collections.abc import Sequence

import triton
import triton.language as tl

from nbx_registry.launch import BindContext, Launch, Scalar
from nbx_triton.compiler import Options
from nbx_triton.kernels.strided import NARROW, program, reach
from nbx_triton.launching import launch

BLOCK = 1024
NARROW_LENGTH = 2**16
"""Up to this length the product of a frequency and a place has 32 bits."""


@triton.jit
def circle(m, n, inverse):
    """Return cosine and sine of ``2 pi m / n``, float32, for integers m from 0 to n - 1; ``inverse`` is 1 / n.

    The eighth that m lies in is found in float32, and what is left in integers: where rounding takes the neighbouring
    eighth, the polynomials go on a little beyond their ends. 8 n must fit the integers.
    """
    eighth = (m.to(tl.float32) * (8.0 * inverse)).to(tl.int32)
    rest = m * 8 - eighth * n
    u = tl.where((eighth & 1) != 0, n - rest, rest).to(tl.float32) * inverse
    v = u * u
    # sin and cos of pi / 4 u for u from 0 to 1, by u and 1: to 4e-9 and 1e-10.
    s = tl.fma(v, -3.5975266945230386e-05, 0.0024900441500433574)
    s = tl.fma(v, s, -0.08074545377469527)
    s = tl.fma(u, 0.7853981633974483, u * (v * s))
    c = tl.fma(v, 3.5313346422969923e-06, -0.00032594200792295983)
    c = tl.fma(v, c, 0.01585432775185971)
    c = tl.fma(v, c, -0.3084251358383682)
    c = tl.fma(v, c, 1.0)
    across = ((eighth + 1) & 2) != 0
    cosine = tl.where(across, s, c)
    sine = tl.where(across, c, s)
    return tl.where(((eighth + 2) & 4) != 0, -cosine, cosine), tl.where((eighth & 4) != 0, -sine, sine)


@triton.jit
def tables(
    cosines,
    sines,
    count,
    n,
    inverse,
    once,
    twice,
    cosine_strides,
    sine_strides,
    WIDE: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Write ``w cos(2 pi k j / n)`` and ``-w sin(2 pi k j / n)``: w is ``once`` at k = 0 and n / 2, else ``twice``."""
    index = program(WIDE) * BLOCK + tl.arange(0, BLOCK)
    inside = index < count
    k = index // n
    j = index - k * n
    # Lanes beyond the table have no frequency.
    place = tl.where(inside, k, 0) * j % n
    c, s = circle(place, n, inverse)
    w = tl.where((k == 0) | (2 * k == n), once, twice)
    tl.store(cosines + k * cosine_strides[0] + j * cosine_strides[1], w * c, mask=inside)
    tl.store(sines + k * sine_strides[0] + j * sine_strides[1], 0.0 - w * s, mask=inside)


def _bind(ctx: BindContext, once: float, twice: float) -> Sequence[Launch]:
    cosines, sines = ctx.signature.outputs
    n = ctx.signature.attributes["n"]
    step = launch(
        ctx,
        tables,
        programs=triton.cdiv(cosines.size, BLOCK),
        arguments={
            "cosines": "C",
            "sines": "S",
            "count": cosines.size,
            "n": n,
            "inverse": Scalar(1 / n, "float32"),
            "once": Scalar(once, "float32"),
            "twice": Scalar(twice, "float32"),
            "cosine_strides": cosines.strides,
            "sine_strides": sines.strides,
        },
        constants={
            "WIDE": n > NARROW_LENGTH
            or cosines.size + BLOCK >= NARROW
            or max(reach(table.shape, table.strides) for table in (cosines, sines)) >= NARROW,
            "BLOCK": BLOCK,
        },
        options=Options(num_warps=4, num_stages=1, enable_fp_fusion=False),
    )
    return (step,)


def bind_rfft_basis(ctx: BindContext) -> Sequence[Launch]:
    """Bind ``rfft_basis``."""
    return _bind(ctx, 1.0, 1.0)


def bind_irfft_basis(ctx: BindContext) -> Sequence[Launch]:
    """Bind ``irfft_basis``."""
    n = ctx.signature.attributes["n"]
    return _bind(ctx, 1 / n, 2 / n)
