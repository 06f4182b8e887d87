"""random_bits, uniform and normal: Philox 4x32-10 streams, the same words as on the host.

One program computes ``BLOCK`` blocks of four words and writes what is made of them, up to ``4 BLOCK`` consecutive
elements of the output. Block numbers have 64 bits. Words and uniform numbers are integers and powers of two: the same
bits everywhere. Deterministic; an element depends on seed, offset and its own place alone.
"""

from __future__ import annotations

from collections.abc import Sequence

import triton
import triton.language as tl

from nbx_registry.contracts.random import SIGNIFICANT
from nbx_registry.launch import BindContext, Launch, Scalar
from nbx_triton.compiler import Options
from nbx_triton.kernels.strided import NARROW, collapse, locate, program, reach
from nbx_triton.launching import launch

BLOCK = 256


@triton.jit
def philox(c0, c1, k0, k1):
    """Return the four words of the blocks of counters (c0, c1, 0, 0), uint32.

    J. K. Salmon, M. A. Moraes, R. O. Dror and D. E. Shaw, "Parallel random numbers: as easy as 1, 2, 3", 2011.
    """
    c2 = c0 * 0
    c3 = c0 * 0
    m0 = tl.full(c0.shape, 0xD2511F53, tl.uint32)
    m1 = tl.full(c0.shape, 0xCD9E8D57, tl.uint32)
    step0 = tl.full((), 0x9E3779B9, tl.uint32)
    step1 = tl.full((), 0xBB67AE85, tl.uint32)
    for _ in tl.static_range(10):
        high0 = tl.umulhi(c0, m0)
        high1 = tl.umulhi(c2, m1)
        low0 = c0 * m0
        low1 = c2 * m1
        c0 = high1 ^ c1 ^ k0
        c1 = low1
        c2 = high0 ^ c3 ^ k1
        c3 = low0
        k0 += step0
        k1 += step1
    return c0, c1, c2, c3


@triton.jit
def quantile(word):
    """Return the inverse of the normal distribution function at (word + 1/2) 2^-32, float32.

    M. J. Wichura, "Algorithm AS 241: the percentage points of the normal distribution", 1988, PPND7.
    """
    upper = word >= 0x80000000
    # Twice the distance to the nearer end, in units of 2^-32: odd, so that neither it nor what is left is 0.
    to_end = (tl.where(upper, word ^ 0xFFFFFFFF, word) << 1) | 1
    q = ((to_end ^ 0xFFFFFFFF) + 1).to(tl.float32) * 1.1641532182693481e-10
    r = 0.180625 - q * q
    above = ((59.109374720 * r + 159.29113202) * r + 50.434271938) * r + 3.3871327179
    below = ((67.187563600 * r + 78.757757664) * r + 17.895169469) * r + 1.0
    middle = q * tl.div_rn(above, below)
    s = tl.sqrt_rn(-tl.log(to_end.to(tl.float32) * 1.1641532182693481e-10)) - 1.6
    above = ((0.17023821103 * s + 1.3067284816) * s + 2.7568153900) * s + 1.4234372777
    below = (0.12021132975 * s + 0.73700164250) * s + 1.0
    value = tl.where(q > 0.425, tl.div_rn(above, below), middle)
    return tl.where(upper, value, -value)


@triton.jit
def draw(
    out,
    count,
    first_block,
    within,
    key_low,
    key_high,
    shape,
    out_strides,
    MAKE: tl.constexpr,
    BITS: tl.constexpr,
    WIDE: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Write elements made of the words from word ``within`` of block ``first_block`` on."""
    result: tl.constexpr = out.dtype.element_ty
    turn = program(WIDE)
    block = first_block + turn.to(tl.uint64) * BLOCK + tl.arange(0, BLOCK).to(tl.uint64)
    w0, w1, w2, w3 = philox(block.to(tl.uint32), (block >> 32).to(tl.uint32), key_low, key_high)
    word = tl.interleave(tl.interleave(w0, w2), tl.interleave(w1, w3))
    index = turn * (4 * BLOCK) + tl.arange(0, 4 * BLOCK) - within
    if MAKE == "bits":
        value = word
    elif MAKE == "uniform":
        value = (word >> (32 - BITS)).to(tl.float32) * (1.0 / (1 << BITS))
    else:
        value = quantile(word)
    inside = (index >= 0) & (index < count)
    tl.store(out + locate(index, shape, out_strides), value.to(result), mask=inside)


def _bind(ctx: BindContext, make: str) -> Sequence[Launch]:
    (out,) = ctx.signature.outputs
    if out.size == 0:
        return ()
    seed, offset = ctx.signature.attributes["seed"], ctx.signature.attributes["offset"]
    first, within = divmod(offset, 4)
    shape, strides = collapse(out.shape, out.strides)
    step = launch(
        ctx,
        draw,
        programs=triton.cdiv(out.size + within, 4 * BLOCK),
        arguments={
            "out": "out",
            "count": out.size,
            "first_block": Scalar(first, "uint64"),
            "within": Scalar(within, "int32"),
            "key_low": Scalar(seed % 2**32, "uint32"),
            "key_high": Scalar(seed // 2**32, "uint32"),
            "shape": shape,
            "out_strides": strides,
        },
        constants={
            "MAKE": make,
            "BITS": SIGNIFICANT.get(out.dtype.name, 0),
            "WIDE": out.size + 4 * BLOCK >= NARROW or reach(shape, strides) >= NARROW,
            "BLOCK": BLOCK,
        },
        options=Options(num_warps=4, num_stages=1, enable_fp_fusion=True),
    )
    return (step,)


def bind_random_bits(ctx: BindContext) -> Sequence[Launch]:
    """Bind ``random_bits``."""
    return _bind(ctx, "bits")


def bind_uniform(ctx: BindContext) -> Sequence[Launch]:
    """Bind ``uniform``."""
    return _bind(ctx, "uniform")


def bind_normal(ctx: BindContext) -> Sequence[Launch]:
    """Bind ``normal``."""
    return _bind(ctx, "normal")
