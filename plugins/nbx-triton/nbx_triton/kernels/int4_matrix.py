"""dequant_gemv_int4 of float16 on the matrix unit: words go in as they lie, from the threads that loaded them.

The low four bits of a float16 count multiples of 2^-24, and the next four sixteen times as many: numbers so small have
no exponent. So a word under the mask 000F000F is two nibbles as two float16, exactly, and the unit multiplies numbers
of any size. Four masked words, two of them shifted, are the eight rows of a word.

The unit has four threads to a row of its left operand, which share the depth. Here each of the four has columns of its
own instead: the right operand has x where thread and column are the same number, and 0 elsewhere, so that the four sums
lie side by side. Four more columns of it are for the nibbles that count sixteen times as much. So a warp reads whole
lines of memory, no word travels between threads, and scale and minimum are applied once a group. A last product, with
ones, is the sum of x alone. That takes one and a half operations a weight, all told.

A program has some columns and all of the depth; its warps share the groups, each for itself, and loads of some rows of
words ahead are under way. Deterministic. Where x, scale or minimum is not finite, or a sum too large, weights are made
after all, one by one. An H200 takes 42 us for 8192 x 28672, whose words it reads in 35.
"""

from __future__ import annotations

from collections.abc import Sequence

import triton
import triton.language as tl

from nbx_registry.launch import BindContext, Launch
from nbx_registry.space import Space
from nbx_triton.compiler import THREADS_PER_WARP, Options
from nbx_triton.kernels.int4 import WORDS, packed, wide_gemv
from nbx_triton.kernels.int4_gemv import exactly
from nbx_triton.kernels.strided import program
from nbx_triton.launching import launch

SETTINGS = Space(
    parameters={"warps": (4, 8), "across": (2, 4), "deep": (2, 4), "ahead": (1, 2, 4)},
    exclude={"more than registers hold": "across * deep * (ahead + 1) > 48"},
)
"""Columns of a thread, rows of words of a step, and steps whose words are under way."""


@triton.jit
def two_halves(bits):
    """Return the halves of words of 32 bits as two float16, side by side along a last axis."""
    low = bits.to(tl.int16).to(tl.float16, bitcast=True)
    high = (bits >> 16).to(tl.int16).to(tl.float16, bitcast=True)
    return tl.join(low, high)


@triton.jit
def load_words(
    w,
    group,
    part,
    rows,
    column,
    columns,
    w_strides,
    MASKED: tl.constexpr,
    UNEVEN: tl.constexpr,
    WARPS: tl.constexpr,
    ACROSS: tl.constexpr,
    DEEP: tl.constexpr,
):
    """Return DEEP rows of words of WARPS groups from ``group`` on, a group a warp: part ``part`` of its rows.

    Axes are threads, rows, and the ACROSS columns that a thread has.
    """
    thread = tl.arange(0, 32 * WARPS)[:, None, None]
    row = column * 0 + thread // 32 * 16 + tl.arange(0, DEEP)[None, :, None]
    first = group * 16 + part * DEEP
    own = column + thread % 32 * ACROSS + tl.arange(0, ACROSS)[None, None, :]
    if MASKED or UNEVEN:
        # Registers do not hold as many addresses as there are then.
        row, first = first + row, first * 0
    if UNEVEN:
        # Past the last column its weights are read once more, and not written.
        own = tl.minimum(own, columns - 1)
    if MASKED:
        # Past the last row its words are read once more, for factors that are 0.
        row = tl.minimum(row, rows - 1)
    # A turn adds to addresses what is the same for all. No one reads the words again: the cache keeps what else it has.
    return tl.load(w + (row * w_strides[0] + own * w_strides[1]) + first * w_strides[0], eviction_policy="evict_first")


@triton.jit
def left_operand(words, PLACE: tl.constexpr, WARPS: tl.constexpr, ACROSS: tl.constexpr, DEEP: tl.constexpr):
    """Return nibbles PLACE and PLACE + 4 times 2^-24, 16 times that for odd places, in the threads that have the words.

    Rows are columns of weights, one of each thread of four; the depth is these four threads, rows of words and nibbles.
    """
    source = words if PLACE < 2 else words >> 8
    nibbles = two_halves(source & (0x000F000F * 16 ** (PLACE % 2)))
    nibbles = tl.reshape(nibbles, (WARPS, 8, 4, DEEP // 2, 2, ACROSS // 2, 2, 2))
    return tl.reshape(tl.permute(nibbles, (0, 5, 6, 1, 3, 2, 4, 7)), (WARPS, 8 * ACROSS, 8 * DEEP))


@triton.jit
def load_pairs(x, group, part, rows, MASKED: tl.constexpr, WARPS: tl.constexpr, DEEP: tl.constexpr):
    """Return factors of rows of words, those of nibbles i and i + 4 in one word of 32 bits: a tuple of four tensors.

    Axes are the four threads of a row, the eight columns of the right operand, warps, and DEEP rows of words; along the
    first two there is one and the same.
    """
    anywhere = (tl.arange(0, 4)[:, None, None, None] + tl.arange(0, 8)[None, :, None, None]) * 0
    warp, row = tl.arange(0, WARPS)[None, None, :, None], tl.arange(0, DEEP)[None, None, None, :]
    row = warp * 16 + row + anywhere
    first = group * 16 + part * DEEP
    word = tl.arange(0, 4)[None, None, None, None, :]
    places = x.to(tl.pointer_type(tl.int32), bitcast=True)
    places = places + (row[:, :, :, :, None] * 4 + word) + (group * 64 + part * DEEP * 4)
    if MASKED:
        words = tl.load(places, mask=(first + row < rows)[:, :, :, :, None], other=0)
    else:
        words = tl.load(places)
    near, far = tl.split(tl.reshape(words, (4, 8, WARPS, DEEP, 2, 2)))
    zero, four = tl.split(near)
    two, six = tl.split(far)
    return (
        (zero & 0xFFFF) | (four << 16),
        ((zero >> 16) & 0xFFFF) | (four & -0x10000),
        (two & 0xFFFF) | (six << 16),
        ((two >> 16) & 0xFFFF) | (six & -0x10000),
    )


@triton.jit
def right_operand(pairs, PLACE: tl.constexpr, WARPS: tl.constexpr, DEEP: tl.constexpr):
    """Return factors where thread and column are the same number, or four apart for odd places, and 0 elsewhere."""
    thread, column = tl.arange(0, 4)[:, None, None, None], tl.arange(0, 8)[None, :, None, None]
    factors = two_halves(tl.where(column == thread + PLACE % 2 * 4, pairs, 0))
    factors = tl.permute(tl.reshape(factors, (4, 8, WARPS, DEEP // 2, 2, 2)), (2, 3, 0, 4, 5, 1))
    return tl.reshape(factors, (WARPS, 8 * DEEP, 8))


@triton.jit
def load_factors(x, group, rows, MASKED: tl.constexpr, WARPS: tl.constexpr):
    """Return all factors of each warp's group in the right operand's threads, in an order that a sum does not see."""
    thread, column = tl.arange(0, 4)[:, None, None, None], tl.arange(0, 8)[None, :, None, None]
    warp, near = tl.arange(0, WARPS)[None, None, :, None], tl.arange(0, 4)[None, None, None, :]
    at = warp * 128 + (column * 4 + thread) * 4 + near
    places = x + at + group * 128
    if MASKED:
        factors = tl.load(places, mask=group * 128 + at < 8 * rows, other=0)
    else:
        factors = tl.load(places)
    return factors


@triton.jit
def sum_of_factors(factors, WARPS: tl.constexpr, ACROSS: tl.constexpr):
    """Return the sum of what `load_factors` loaded, for every row of the left operand."""
    factors = tl.reshape(tl.permute(factors, (2, 0, 3, 1)), (WARPS, 16, 8))
    ones = tl.full((WARPS, 8 * ACROSS, 16), 1.0, tl.float32).to(tl.float16)
    return tl.sum(tl.dot(ones, factors), axis=2)[:, :, None]


@triton.jit
def load_facts(
    facts,
    group,
    groups,
    column,
    columns,
    strides,
    MASKED: tl.constexpr,
    UNEVEN: tl.constexpr,
    WARPS: tl.constexpr,
    ACROSS: tl.constexpr,
):
    """Return scales or minima of each warp's group, loaded by the threads that have sums; past the last, its own."""
    thread, strip = tl.arange(0, 4)[:, None, None, None], tl.arange(0, 8)[None, :, None, None]
    own = column + (strip * 4 + thread % 2 * 2) * ACROSS + tl.arange(0, 2 * ACROSS)[None, None, None, :]
    row = column * 0 + tl.arange(0, WARPS)[None, None, :, None]
    if UNEVEN:
        own = tl.minimum(own, columns - 1)
    if MASKED:
        row, group = tl.minimum(group + row, groups - 1), group * 0
    return tl.load(facts + (row * strides[0] + own * strides[1]) + group * strides[0])


@triton.jit
def beside_sums(facts, WARPS: tl.constexpr, ACROSS: tl.constexpr):
    """Return what `load_facts` loaded as float32 numbers, each where a sum is that it is for."""
    facts = tl.permute(tl.reshape(facts, (2, 2, 8, WARPS, 2, ACROSS // 2, 2)), (3, 5, 6, 2, 0, 1, 4))
    return tl.reshape(facts, (WARPS, 8 * ACROSS, 8)).to(tl.float32)


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
    WARPS: tl.constexpr,
    ACROSS: tl.constexpr,
    DEEP: tl.constexpr,
    AHEAD: tl.constexpr,
):
    """Write 32 * ACROSS columns. MASKED: words end within WARPS groups; UNEVEN: columns within a tile."""
    WIDTH: tl.constexpr = 32 * ACROSS
    PARTS: tl.constexpr = 16 // DEEP
    number = program(WIDE)
    zero = number * 0
    column = number * WIDTH
    groups = (rows + 15) // 16
    last = (groups - 1) // WARPS * WARPS
    low = (tl.arange(0, 8) < 4)[None, None, :]
    # The sum of x alone is taken once, in the columns whose nibbles count once.
    once = tl.where(low, 2.0**-24, 0.0)
    total = tl.zeros((WARPS, 8 * ACROSS, 8), tl.float32)
    queue = ()
    for p in tl.static_range(AHEAD):
        more = load_words(w, zero, p, rows, column, columns, w_strides, MASKED, UNEVEN, WARPS, ACROSS, DEEP)
        queue = queue + (more,)  # noqa: RUF005 - the compiler unpacks no tuples
    for turn in tl.range(0, groups, WARPS, num_stages=1):
        group = zero + turn
        steps = load_facts(scale, group, groups, column, columns, scale_strides, MASKED, UNEVEN, WARPS, ACROSS)
        leasts = load_facts(zero_min, group, groups, column, columns, min_strides, MASKED, UNEVEN, WARPS, ACROSS)
        factors = load_factors(x, group, rows, MASKED, WARPS)
        # Past the end those of the last turn are loaded once more.
        after = zero + tl.minimum(turn + WARPS, last)
        sums = tl.zeros((WARPS, 8 * ACROSS, 8), tl.float32)
        for p in tl.static_range(PARTS):
            words = queue[0]
            far = group if p + AHEAD < PARTS else after
            more = load_words(
                w, far, (p + AHEAD) % PARTS, rows, column, columns, w_strides, MASKED, UNEVEN, WARPS, ACROSS, DEEP
            )
            rest = ()
            for d in tl.static_range(1, AHEAD):
                rest = rest + (queue[d],)  # noqa: RUF005
            queue = rest + (more,)  # noqa: RUF005
            pairs = load_pairs(x, group, p, rows, MASKED, WARPS, DEEP)
            for i in tl.static_range(4):
                nibbles = left_operand(words, i, WARPS, ACROSS, DEEP)
                sums = tl.dot(nibbles, right_operand(pairs[i], i, WARPS, DEEP), sums)
        alone = sum_of_factors(factors, WARPS, ACROSS)
        total += sums * beside_sums(steps, WARPS, ACROSS) + alone * once * beside_sums(leasts, WARPS, ACROSS)
    # Triton 3.6 leaves out threads where it reduces what was permuted over several of them: warps are added and results
    # looked at before that.
    result = tl.sum(total * tl.where(low, 1.0, 0.0625), axis=0) * 2.0**24
    unsure = tl.max(tl.max(tl.where(tl.abs(result) < float("inf"), 0, 1), axis=1), axis=0) > 0
    result = tl.permute(tl.reshape(result, (ACROSS // 2, 2, 8, 2, 4)), (2, 4, 0, 1, 3))
    result = tl.sum(tl.reshape(result, (WIDTH, 2)), axis=1)
    own = column + tl.arange(0, WIDTH)
    if unsure:
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
    warps, across = ctx.settings["warps"], ctx.settings["across"]
    block_n = THREADS_PER_WARP * across
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
            "MASKED": w.shape[0] % (WORDS * warps) != 0,
            "UNEVEN": out.size % block_n != 0,
            "WIDE": wide_gemv(ctx),
            "WARPS": warps,
            "ACROSS": across,
            "DEEP": ctx.settings["deep"],
            "AHEAD": ctx.settings["ahead"],
        },
        options=Options(num_warps=warps, num_stages=1, enable_fp_fusion=True),
    )
    return (step,)
