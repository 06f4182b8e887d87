"""dequant_gemv_int4 of float16 on the matrix unit: words go in as they lie.

The low four bits of a float16 count multiples of 2^-24, and the next four sixteen times as many: numbers so small have
no exponent. So a word under the mask 000F000F is two nibbles as two float16, exactly, and the unit multiplies numbers
of any size. Four masked words, two of them shifted, are the eight rows of a word; x lies in the other operand's columns
so that each of the four products has its sum in one of them. A fifth product, with ones, is the sum of x alone. Scale
and minimum are applied to sums of a group. That takes less than two operations a weight, all told.

A program has some columns and all of the depth; half of its warps take the even groups, half the odd ones, whose x is
in the four columns of the other operand that are left. Words, scales and minima travel through shared memory, those of
some turns while one is worked on, in the order in which threads read what the unit wants in them.

Deterministic. Where x, scale or minimum is not finite, or a sum too large, weights are made after all, one by one.
"""

from __future__ import annotations

from collections.abc import Sequence

import triton
import triton.language as tl

from nbx_registry.launch import BindContext, Launch
from nbx_registry.space import Space
from nbx_triton.compiler import Options
from nbx_triton.kernels.int4 import WORDS, packed, wide_gemv
from nbx_triton.kernels.int4_gemv import exactly
from nbx_triton.kernels.strided import program
from nbx_triton.launching import launch

SETTINGS = Space(parameters={"warps": (2, 4, 8), "stages": (3, 4, 5, 6)})


@triton.jit
def two_nibbles(words, PLACE: tl.constexpr):
    """Return nibbles PLACE and PLACE + 4 side by side along a last axis, times 2^-24, 16 times that for odd places."""
    source = words if PLACE < 2 else words >> 8
    bits = source & (0x000F000F * 16 ** (PLACE % 2))
    low = bits.to(tl.int16).to(tl.float16, bitcast=True)
    high = (bits >> 16).to(tl.int16).to(tl.float16, bitcast=True)
    return tl.join(low, high)


@triton.jit
def load_words(
    w, first, rows, column, columns, w_strides, MASKED: tl.constexpr, UNEVEN: tl.constexpr, WARPS: tl.constexpr
):
    """Return the words of two groups, four columns of a row of words side by side: the four of one thread.

    The others of a thread come rounds of threads later. Along a round are the unit's four lanes of the depth, its eight
    lanes of rows, and the warps, of which the first half takes the first group; from one to the next there are two rows
    of words twice. So a round is one piece of shared memory, whoever loads it and whoever reads it.
    """
    place = tl.arange(0, 128 * WARPS)[:, None]
    lane, strip = place % 4, place // 4 % (8 * WARPS)
    near, far = place // (32 * WARPS) % 2, place // (64 * WARPS)
    row = (first + strip // (4 * WARPS)) * 16 + far * 8 + lane * 2 + near
    own = column + strip % (4 * WARPS) * 4 + tl.arange(0, 4)[None, :]
    if UNEVEN:
        # Past the last column its weights are read once more, and not written.
        own = tl.minimum(own, columns - 1)
    if MASKED:
        # Past the last row its words are read once more, for factors that are 0.
        row = tl.minimum(row, rows - 1)
    return tl.load(w + row * w_strides[0] + own * w_strides[1])


@triton.jit
def as_rows(words, WARPS: tl.constexpr):
    """Return what `load_words` loaded as a matrix of columns and rows of words: nothing moves between threads."""
    words = tl.permute(tl.reshape(words, (2, 2, WARPS, 8, 4, 2, 2)), (5, 2, 6, 3, 0, 4, 1))
    return tl.reshape(words, (32 * WARPS, 16))


@triton.jit
def load_facts(facts, first, groups, column, columns, strides, UNEVEN: tl.constexpr, WARPS: tl.constexpr):
    """Return scales or minima of two groups, loaded as `load_words` loads words; past the last group, its own."""
    place = tl.arange(0, 32 * WARPS)[:, None]
    strip = place // 4
    group = tl.minimum(first + strip // (4 * WARPS), groups - 1)
    own = column + strip % (4 * WARPS) * 4 + tl.arange(0, 4)[None, :]
    if UNEVEN:
        own = tl.minimum(own, columns - 1)
    return tl.load(facts + group * strides[0] + own * strides[1])


@triton.jit
def beside_sums(facts, WARPS: tl.constexpr):
    """Return what `load_facts` loaded as float32 numbers, each where a sum is that it is for."""
    facts = tl.reshape(tl.permute(tl.reshape(facts, (WARPS, 8, 4, 2, 2)), (3, 0, 4, 1, 2)), (32 * WARPS, 4, 1))
    return tl.reshape(tl.broadcast_to(facts, (32 * WARPS, 4, 2)), (32 * WARPS, 8)).to(tl.float32)


@triton.jit
def load_factors(x, first, rows, x_stride, MASKED: tl.constexpr):
    """Return factors of two groups: four columns are each word's eight, four and four; four those of the next group."""
    column = tl.arange(0, 8)[None, :]
    row = (first + column // 4) * 128 + 4 * tl.arange(0, 32)[:, None] + column % 4
    if MASKED:
        factors = tl.load(x + row * x_stride, mask=row < 8 * rows, other=0)
    else:
        factors = tl.load(x + row * x_stride)
    return factors


@triton.jit
def matrix(
    x,
    w,
    scale,
    zero_min,
    out,
    rows,
    columns,
    x_stride,
    w_strides,
    scale_strides,
    min_strides,
    out_stride,
    MASKED: tl.constexpr,
    UNEVEN: tl.constexpr,
    WIDE: tl.constexpr,
    STAGES: tl.constexpr,
    WARPS: tl.constexpr,
):
    """Write 16 * WARPS columns. MASKED: words end within two groups; UNEVEN: columns within a tile."""
    ROWS: tl.constexpr = 32 * WARPS
    number = program(WIDE)
    zero = number * 0
    column = number * (ROWS // 2)
    groups = (rows + 15) // 16
    place = tl.arange(0, 8)[None, :]
    half = tl.arange(0, ROWS)[:, None] // 16 % WARPS // (WARPS // 2)
    ones = tl.full((ROWS, 32), 1.0, tl.float32).to(tl.float16)
    total = tl.zeros((ROWS, 8), tl.float32)
    for turn in tl.range(0, groups, 2, num_stages=STAGES):
        first = zero + turn
        words = as_rows(load_words(w, first, rows, column, columns, w_strides, MASKED, UNEVEN, WARPS), WARPS)
        steps = load_facts(scale, first, groups, column, columns, scale_strides, UNEVEN, WARPS)
        leasts = load_facts(zero_min, first, groups, column, columns, min_strides, UNEVEN, WARPS)
        factors = load_factors(x, first, rows, x_stride, MASKED)
        products = tl.zeros((ROWS, 8), tl.float32)
        for i in tl.static_range(4):
            sums = tl.dot(tl.reshape(two_nibbles(words, i), (ROWS, 32)), factors)
            if i % 2 == 1:
                sums *= 0.0625
            products = tl.where(place == 4 * half + i, sums, products)
        alone = tl.dot(ones, factors) * 2.0**-24
        total += products * beside_sums(steps, WARPS) + alone * beside_sums(leasts, WARPS)
    # Rows are columns as `as_rows` has them: in order of columns, those of both halves side by side.
    result = tl.sum(tl.where(place // 4 == half, total, 0.0), axis=1) * 2.0**24
    result = tl.permute(tl.reshape(result, (2, 2, WARPS // 2, 2, 8)), (2, 4, 0, 3, 1))
    result = tl.sum(tl.reshape(result, (ROWS // 2, 2)), axis=1)
    own = column + tl.arange(0, ROWS // 2)
    if tl.max(tl.where(tl.abs(result) < float("inf"), 0, 1), axis=0) > 0:
        known = tl.minimum(own, columns - 1)
        result = exactly(
            x, w, scale, zero_min, rows, known, zero, x_stride, w_strides, scale_strides, min_strides, 16, 8
        )
    tl.store(out + own * out_stride, result.to(out.dtype.element_ty), mask=own < columns)


def bind(ctx: BindContext) -> Sequence[Launch]:
    """Bind ``dequant_gemv_int4`` on the matrix unit."""
    x, w, _, _ = ctx.signature.tensors
    (out,) = ctx.signature.outputs
    if out.size == 0:
        return ()
    warps = ctx.settings["warps"]
    block_n = 16 * warps
    step = launch(
        ctx,
        matrix,
        programs=triton.cdiv(out.size, block_n),
        arguments={
            **{name: value for name, value in packed(ctx).items() if name != "one"},
            "x": "x",
            "rows": w.shape[0],
            "x_stride": x.strides[0],
            "out": "out",
            "out_stride": out.strides[0],
        },
        constants={
            "MASKED": w.shape[0] % (2 * WORDS) != 0,
            "UNEVEN": out.size % block_n != 0,
            "WIDE": wide_gemv(ctx),
            "STAGES": ctx.settings["stages"],
            "WARPS": warps,
        },
        options=Options(num_warps=warps, num_stages=1, enable_fp_fusion=True),
    )
    return (step,)
