"""scaled_dot_product_attention where warps have trades: some bring keys and values, others multiply and weight them.

For devices whose matrix unit works beside the warps that feed it (wgmma, sm_90): there is then work for it while
weights are made. The design is FlashAttention-3's (J. Shah et al., 2024). Two groups of four warps have 64 queries each
of a tile of 128 and go through the keys by themselves, taking turns at the matrix unit. Within a group the products of
a block of keys and those of the values before it are issued together, and weights are made while the latter are under
way. Four more warps copy queries, keys and values to shared memory, ``STAGES`` blocks ahead, with few registers; the
others have theirs.

Barriers in shared memory say what is full and what is empty. A barrier is waited for by the parity of how often it was
completed, so that the number of a block, of all blocks that the program has seen, is the only count.

One program stays on each multiprocessor and has several tiles, dealt out as cards are: every other time in reverse.
Sections of heads whose keys and values fit the cache follow one another, and the keys of causal tiles grow in one and
shrink in the next, to the last: so hands come out equal. Blocks of keys are visited in descending order, the cut ones,
which take comparisons, first. Deterministic.

Written in Gluon, Triton's language of layouts.
"""

from __future__ import annotations

from collections.abc import Sequence

import triton
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.ampere import async_copy
from triton.experimental.gluon.language.nvidia.hopper import (
    fence_async_shared,
    mbarrier,
    warpgroup_mma,
    warpgroup_mma_wait,
)

from nbx_registry.launch import BindContext, Launch, Scalar
from nbx_triton.compiler import Options
from nbx_triton.kernels.attention import factor_of, section_of
from nbx_triton.launching import launch

# Triton 3.9 has another name for what 3.6 calls the second.
copy_to_shared = getattr(async_copy, "async_load", None) or async_copy.async_copy_global_to_shared

QUERIES = 128
"""Queries of a tile, 64 for each group of warps that multiplies."""


@gluon.jit
def dealt(time, programs):
    """Return the number of the program's tile, the ``time``-th; every other time tiles are dealt in reverse."""
    number = gl.program_id(0)
    if time % 2 == 1:
        number = programs - 1 - number
    return time * programs + number


@gluon.jit
def times(tiles, programs):
    """Return how many tiles the program has."""
    count = tiles // programs
    if dealt(count, programs) < tiles:
        count += 1
    return count


@gluon.jit
def place(number, sizes, CAUSAL: gl.constexpr, BLOCK_N: gl.constexpr):
    """Return a tile's batch, head and first query, its blocks of keys, and how many of these every query sees whole."""
    queries, keys, heads, section = sizes[0], sizes[1], sizes[2], sizes[3]
    tiles = (queries + 127) // 128
    part = number // (tiles * section)
    head = part * section + number % section
    tile = number % (tiles * section) // section
    last = keys
    whole = keys
    if CAUSAL:
        if (sizes[4] // (tiles * section) - part) % 2 == 1:
            tile = tiles - 1 - tile
        first_sees = tile * 128 + 1 + keys - queries
        whole = gl.maximum(gl.minimum(keys, first_sees), 0)
        last = gl.maximum(gl.minimum(keys, first_sees + 127), 0)
    # Where nothing is seen there is one block all the same, whose weights are 0.
    blocks = gl.maximum((last + BLOCK_N - 1) // BLOCK_N, 1)
    return head // heads, head % heads, tile * 128, blocks, gl.minimum(whole // BLOCK_N, blocks - 1)


@gluon.jit
def bring(
    inputs,
    strides,
    shared,
    full,
    empty,
    sizes,
    heads_per_kv,
    CAUSAL: gl.constexpr,
    BLOCK_N: gl.constexpr,
    BLOCK_D: gl.constexpr,
    STAGES: gl.constexpr,
    WARPS: gl.constexpr,
):
    """Copy the queries of each tile and its blocks of keys and values; what lies beyond the last one is 0."""
    layout: gl.constexpr = gl.BlockedLayout([1, 8], [256 // BLOCK_D, BLOCK_D // 8], [WARPS, 1], [1, 0])
    d = gl.arange(0, BLOCK_D, layout=gl.SliceLayout(0, layout))[None, :]
    n = gl.arange(0, BLOCK_N, layout=gl.SliceLayout(1, layout))
    m = gl.arange(0, 64, layout=gl.SliceLayout(1, layout))
    count = 0
    for time in range(times(sizes[4], sizes[5])):
        batch, head, first, blocks, _whole = place(dealt(time, sizes[5]), sizes, CAUSAL, BLOCK_N)
        kv_head = head // heads_per_kv
        q = inputs[0] + batch.to(gl.int64) * strides[0][0] + head * strides[0][1] + d
        k = inputs[1] + batch.to(gl.int64) * strides[1][0] + kv_head * strides[1][1] + d
        v = inputs[2] + batch.to(gl.int64) * strides[2][0] + kv_head * strides[2][1] + d
        side = time % 2
        mbarrier.wait(empty[0].index(side), (time // 2 + 1) & 1)
        for group in gl.static_range(2):
            row = (first + group * 64 + m)[:, None]
            copy_to_shared(shared[0].index(side * 2 + group), q + row * strides[0][2], mask=row < sizes[0])
        async_copy.mbarrier_arrive(full[0].index(side), increment_count=False)
        for before in range(blocks):
            column = ((blocks - 1 - before) * BLOCK_N + n)[:, None]
            stage = count % STAGES  # pyright: ignore[reportOperatorIssue]
            parity = (count // STAGES + 1) & 1
            mbarrier.wait(empty[1].index(stage), parity)
            copy_to_shared(shared[1].index(stage), k + column * strides[1][2], mask=column < sizes[1])
            async_copy.mbarrier_arrive(full[1].index(stage), increment_count=False)
            mbarrier.wait(empty[2].index(stage), parity)
            copy_to_shared(shared[2].index(stage), v + column * strides[2][2], mask=column < sizes[1])
            async_copy.mbarrier_arrive(full[2].index(stage), increment_count=False)
            count += 1


@gluon.jit
def power_of_two(x):
    """Return 2^x, 0 where that is below the normal numbers: a fourth of the instructions that subnormal ones take."""
    return gl.inline_asm_elementwise("ex2.approx.ftz.f32 $0, $1;", "=f,f", [x], dtype=gl.float32, is_pure=True, pack=1)


@gluon.jit
def score_block(query, key, turns, count, BLOCK_N: gl.constexpr, GROUP: gl.constexpr, layout: gl.constexpr):
    """Issue the products of queries and a block of keys when it is the group's turn."""
    mbarrier.wait(turns.index(GROUP), (count + 1 - GROUP) & 1)
    fence_async_shared()
    score = gl.zeros((64, BLOCK_N), gl.float32, layout=layout)
    return warpgroup_mma(query, key.permute((1, 0)), score, use_acc=False, is_async=True)


@gluon.jit
def add_values(total, weights, value):
    """Issue the products of weights, rounded to 16 bits, and a block of values. Return them and what they read."""
    p = gl.convert_layout(weights.to(value.dtype), gl.DotOperandLayout(0, total.type.layout, 2))
    return warpgroup_mma(p, value, total, is_async=True), p


@gluon.jit
def weigh(score, peak, norm, factor, row, block, sizes, CUT: gl.constexpr, CAUSAL: gl.constexpr, layout: gl.constexpr):
    """Return the weights of a block, what earlier ones shrink by, the largest score and the sum of weights yet."""
    if CUT:
        column = block * score.shape[1] + gl.arange(0, score.shape[1], layout=gl.SliceLayout(0, layout))
        attends = (column < sizes[1])[None, :]
        if CAUSAL:
            attends = attends & (column[None, :] <= (row + (sizes[1] - sizes[0]))[:, None])
        score = gl.where(attends, score, float("-inf"))
    new = gl.maximum(peak, gl.max(score, axis=1))
    # While there is nothing but -inf, any finite number in place of the largest leaves the sums at 0.
    anchor = gl.where(new == float("-inf"), 0.0, new * factor)
    p = power_of_two(score * factor - anchor[:, None])
    shrink = power_of_two(peak * factor - anchor)
    return p, shrink, new, norm * shrink + gl.sum(p, axis=1)


@gluon.jit
def step(
    total,
    weights,
    peak,
    norm,
    query,
    shared,
    full,
    empty,
    turns,
    count,
    block,
    factor,
    row,
    sizes,
    CUT: gl.constexpr,
    CAUSAL: gl.constexpr,
    BLOCK_N: gl.constexpr,
    STAGES: gl.constexpr,
    GROUP: gl.constexpr,
    layout: gl.constexpr,
):
    """Return sums with the values of the block before added, and the weights of this one, the ``count``-th."""
    stage = count % STAGES
    earlier = (count - 1) % STAGES
    parity = (count - 1) // STAGES & 1
    mbarrier.wait(full[2].index(earlier), parity)
    mbarrier.wait(full[1].index(stage), count // STAGES & 1)
    score = score_block(query, shared[1].index(stage), turns, count, BLOCK_N, GROUP, layout)
    total, p = add_values(total, weights, shared[2].index(earlier))
    mbarrier.arrive(turns.index(1 - GROUP), count=1)
    score = warpgroup_mma_wait(1, deps=[score])
    mbarrier.arrive(empty[1].index(stage), count=1)
    weights, shrink, peak, norm = weigh(score, peak, norm, factor, row, block, sizes, CUT, CAUSAL, layout)
    # It is full: without a branch here the assembler has the sums waited for before the weights are made.
    mbarrier.wait(full[2].index(earlier), parity)
    total, p, weights = warpgroup_mma_wait(0, deps=[total, p, weights])
    mbarrier.arrive(empty[2].index(earlier), count=1)
    total = total * gl.convert_layout(shrink, gl.SliceLayout(1, total.type.layout))[:, None]
    return total, weights, peak, norm


@gluon.jit
def multiply(
    out,
    strides,
    shared,
    full,
    empty,
    turns,
    sizes,
    factor,
    CAUSAL: gl.constexpr,
    BLOCK_N: gl.constexpr,
    BLOCK_D: gl.constexpr,
    STAGES: gl.constexpr,
    GROUP: gl.constexpr,
):
    """Write the 64 queries of each tile that are the group's."""
    layout: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, BLOCK_N, 16])
    wide: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, BLOCK_D, 16])
    stored: gl.constexpr = gl.BlockedLayout([1, 8], [256 // BLOCK_D, BLOCK_D // 8], [4, 1], [1, 0])
    count = 0
    for time in range(times(sizes[4], sizes[5])):
        batch, head, first, blocks, whole = place(dealt(time, sizes[5]), sizes, CAUSAL, BLOCK_N)
        row = first + GROUP * 64 + gl.arange(0, 64, layout=gl.SliceLayout(1, layout))
        peak = gl.full((64,), float("-inf"), gl.float32, layout=gl.SliceLayout(1, layout))
        norm = gl.zeros((64,), gl.float32, layout=gl.SliceLayout(1, layout))
        total = gl.zeros((64, BLOCK_D), gl.float32, layout=wide)
        side = time % 2
        query = shared[0].index(side * 2 + GROUP)
        block = blocks - 1
        stage = count % STAGES  # pyright: ignore[reportOperatorIssue]
        mbarrier.wait(full[0].index(side), time // 2 & 1)
        mbarrier.wait(full[1].index(stage), count // STAGES & 1)
        score = score_block(query, shared[1].index(stage), turns, count, BLOCK_N, GROUP, layout)
        mbarrier.arrive(turns.index(1 - GROUP), count=1)
        score = warpgroup_mma_wait(0, deps=[score])
        mbarrier.arrive(empty[1].index(stage), count=1)
        weights, _shrink, peak, norm = weigh(score, peak, norm, factor, row, block, sizes, True, CAUSAL, layout)
        count += 1
        # fmt: off
        while block > whole:
            block -= 1
            total, weights, peak, norm = step(
                total, weights, peak, norm, query, shared, full, empty, turns, count, block, factor, row, sizes,
                True, CAUSAL, BLOCK_N, STAGES, GROUP, layout,
            )
            count += 1
        while block > 0:
            block -= 1
            total, weights, peak, norm = step(
                total, weights, peak, norm, query, shared, full, empty, turns, count, block, factor, row, sizes,
                False, CAUSAL, BLOCK_N, STAGES, GROUP, layout,
            )
            count += 1
        # fmt: on
        mbarrier.arrive(empty[0].index(side), count=1)
        stage = (count - 1) % STAGES  # pyright: ignore[reportOperatorIssue]
        mbarrier.wait(full[2].index(stage), (count - 1) // STAGES & 1)
        fence_async_shared()
        total, p = add_values(total, weights, shared[2].index(stage))
        total, p = warpgroup_mma_wait(0, deps=[total, p])
        mbarrier.arrive(empty[2].index(stage), count=1)
        share = gl.convert_layout(1.0 / gl.where(norm == 0.0, 1.0, norm), gl.SliceLayout(1, wide))
        result = gl.convert_layout((total * share[:, None]).to(out.dtype.element_ty), stored)
        line = first + GROUP * 64 + gl.arange(0, 64, layout=gl.SliceLayout(1, stored))
        d = gl.arange(0, BLOCK_D, layout=gl.SliceLayout(0, stored))
        target = out + batch.to(gl.int64) * strides[0] + head * strides[1]
        gl.store(target + line[:, None] * strides[2] + d[None, :], result, mask=(line < sizes[0])[:, None])


@gluon.jit
def barriers(NUMBER: gl.constexpr, ARRIVALS: gl.constexpr):
    """Return ``NUMBER`` barriers, each completed by ``ARRIVALS``."""
    made = gl.allocate_shared_memory(gl.int64, [NUMBER, 1], mbarrier.MBarrierLayout())
    for i in gl.static_range(NUMBER):
        mbarrier.init(made.index(i), count=ARRIVALS)
    return made


@gluon.jit
def room(dtype: gl.constexpr, NUMBER: gl.constexpr, ROWS: gl.constexpr, COLUMNS: gl.constexpr):
    """Return shared memory for ``NUMBER`` blocks, laid out as the matrix unit reads them."""
    layout: gl.constexpr = gl.NVMMASharedLayout.get_default_for([ROWS, COLUMNS], dtype)
    return gl.allocate_shared_memory(dtype, [NUMBER, ROWS, COLUMNS], layout)


@gluon.jit
def attend(
    q,
    k,
    v,
    out,
    queries,
    keys,
    heads,
    heads_per_kv,
    section,
    tiles,
    programs,
    factor,
    q_strides,
    k_strides,
    v_strides,
    out_strides,
    CAUSAL: gl.constexpr,
    BLOCK_N: gl.constexpr,
    BLOCK_D: gl.constexpr,
    STAGES: gl.constexpr,
    WARPS: gl.constexpr,
    REGISTERS: gl.constexpr,
    WARPS_REGISTERS: gl.constexpr,
):
    """Write attention, 128 queries of one head at a time; a query with nothing to attend gets 0.

    Strides are of batch, head, token; elements are neighbours. CAUSAL aligns the last query with the last key.
    ``factor`` is the scale times log2(e), above 0. ``WARPS`` copy.
    """
    dtype: gl.constexpr = q.dtype.element_ty
    # Two tiles' queries: those of the next are there when a tile is done.
    shared = (room(dtype, 4, 64, BLOCK_D), room(dtype, STAGES, BLOCK_N, BLOCK_D), room(dtype, STAGES, BLOCK_N, BLOCK_D))
    # By what every thread that copies has copied, and by each group that multiplies.
    full = (barriers(2, 32 * WARPS), barriers(STAGES, 32 * WARPS), barriers(STAGES, 32 * WARPS))
    empty = (barriers(2, 2), barriers(STAGES, 2), barriers(STAGES, 2))
    turns = barriers(2, 1)
    sizes = (queries, keys, heads, section, tiles, programs)
    strides = (q_strides, k_strides, v_strides)
    # fmt: off
    gl.warp_specialize(
        [
            (multiply, (out, out_strides, shared, full, empty, turns, sizes, factor,
                        CAUSAL, BLOCK_N, BLOCK_D, STAGES, 0)),
            (multiply, (out, out_strides, shared, full, empty, turns, sizes, factor,
                        CAUSAL, BLOCK_N, BLOCK_D, STAGES, 1)),
            (bring, ((q, k, v), strides, shared, full, empty, sizes, heads_per_kv,
                     CAUSAL, BLOCK_N, BLOCK_D, STAGES, WARPS)),
        ],
        [4, WARPS],
        [REGISTERS, WARPS_REGISTERS],
    )
    # fmt: on


def bind(ctx: BindContext) -> Sequence[Launch]:
    """Bind ``scaled_dot_product_attention``."""
    q, k, v, _ = ctx.signature.tensors
    (out,) = ctx.signature.outputs
    if out.size == 0:
        return ()
    batch, heads, queries, width = q.shape
    tiles = batch * heads * triton.cdiv(queries, QUERIES)
    programs = min(tiles, ctx.device.fact("multiprocessors"))
    factor, _sign = factor_of(ctx)
    step = launch(
        ctx,
        attend,
        programs=programs,
        arguments={
            "q": "q",
            "k": "k",
            "v": "v",
            "out": "out",
            "queries": queries,
            "keys": k.shape[2],
            "heads": heads,
            "heads_per_kv": heads // k.shape[1],
            "section": section_of(ctx),
            "tiles": tiles,
            "programs": programs,
            "factor": Scalar(factor, "float32"),
            "q_strides": q.strides[:3],
            "k_strides": k.strides[:3],
            "v_strides": v.strides[:3],
            "out_strides": out.strides[:3],
        },
        constants={
            "CAUSAL": bool(ctx.signature.attributes["causal"]),
            "BLOCK_N": 128,
            "BLOCK_D": width,
            "STAGES": 2,
            "WARPS": 4,
            # A multiprocessor's, of 12 warps.
            "REGISTERS": 232,
            "WARPS_REGISTERS": 40,
        },
        options=Options(num_warps=4, num_stages=1, enable_fp_fusion=True),
    )
    return (step,)
