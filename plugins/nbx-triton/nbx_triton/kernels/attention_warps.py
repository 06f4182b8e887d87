"""scaled_dot_product_attention where warps have trades: some bring keys and values, others multiply and weight them.

For devices whose matrix unit works by itself beside the warps that feed it (wgmma, sm_90): what the plain kernel lacks
there is work for it while weights are made. The design is FlashAttention-3's (J. Shah et al., 2024): two groups of
four warps have 64 queries each of a tile of 128 and go through the keys independently, so that one group's products
fall into the other's exponentials; within a group the products of a block of keys and those of the values before are
issued together, and weights are made while the latter are under way. Four more warps copy queries, keys and values to
shared memory, ``STAGES`` blocks ahead, and hold few registers, which the others have.

Barriers in shared memory say what is full and what is empty. Each is waited for by the parity of how often it was
completed: a block's number, over the stages, is the count for all.

One program stays on each multiprocessor and takes tiles in turn, those with most keys first; every other turn is dealt
in reverse, as cards are for equal hands. Blocks of keys are visited in descending order: the cut ones, which take
comparisons, come first. Deterministic.

Written in Gluon, Triton's language of layouts. Its copy was renamed between the versions this is built with.
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

copy_to_shared = getattr(async_copy, "async_load", None) or async_copy.async_copy_global_to_shared

GROUPS = 2
"""Groups of warps that multiply, of 64 queries each; `attend` names them one by one."""
QUERIES = 64 * GROUPS
KEYS = 128


@gluon.jit
def dealt(turn, programs):
    """Return the number of the program's tile in a turn, every other one of which is dealt in reverse."""
    number = gl.program_id(0)
    if turn % 2 == 1:
        number = programs - 1 - number
    return turn * programs + number


@gluon.jit
def turns_of(tiles, programs):
    """Return how many tiles the program has."""
    turns = tiles // programs
    if dealt(turns, programs) < tiles:
        turns += 1
    return turns


@gluon.jit
def place(number, queries, keys, heads, section, CAUSAL: gl.constexpr, BLOCK_M: gl.constexpr, BLOCK_N: gl.constexpr):
    """Return a tile's batch, head and first query, its blocks of keys, and how many of these every query sees whole."""
    tiles = (queries + BLOCK_M - 1) // BLOCK_M
    head = number // (tiles * section) * section + number % section
    tile = number % (tiles * section) // section
    last = keys
    whole = keys
    if CAUSAL:
        tile = tiles - 1 - tile
        first_sees = tile * BLOCK_M + 1 + keys - queries
        whole = gl.maximum(gl.minimum(keys, first_sees), 0)
        last = gl.maximum(gl.minimum(keys, first_sees + BLOCK_M - 1), 0)
    # Where nothing is seen there is one block all the same, whose weights are 0.
    blocks = gl.maximum((last + BLOCK_N - 1) // BLOCK_N, 1)
    return head // heads, head % heads, tile * BLOCK_M, blocks, gl.minimum(whole // BLOCK_N, blocks - 1)


@gluon.jit
def bring(
    q,
    k,
    v,
    q_strides,
    k_strides,
    v_strides,
    shared_q,
    shared_k,
    shared_v,
    q_bars,
    k_bars,
    v_bars,
    queries,
    keys,
    heads,
    heads_per_kv,
    section,
    tiles,
    programs,
    CAUSAL: gl.constexpr,
    BLOCK_M: gl.constexpr,
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
    for turn in range(turns_of(tiles, programs)):
        batch, head, first, blocks, _whole = place(
            dealt(turn, programs), queries, keys, heads, section, CAUSAL, BLOCK_M, BLOCK_N
        )
        kv_head = head // heads_per_kv
        q_rows = q + batch.to(gl.int64) * q_strides[0] + head * q_strides[1] + d
        k_rows = k + batch.to(gl.int64) * k_strides[0] + kv_head * k_strides[1] + d
        v_rows = v + batch.to(gl.int64) * v_strides[0] + kv_head * v_strides[1] + d
        mbarrier.wait(q_bars[1].index(turn % 2), (turn // 2 + 1) & 1)
        for group in gl.static_range(BLOCK_M // 64):
            row = first + group * 64 + m
            place_q = shared_q.index(turn % 2 * (BLOCK_M // 64) + group)
            copy_to_shared(place_q, q_rows + row[:, None] * q_strides[2], mask=(row < queries)[:, None])
        async_copy.mbarrier_arrive(q_bars[0].index(turn % 2), increment_count=False)
        for before in range(blocks):
            column = (blocks - 1 - before) * BLOCK_N + n
            inside = (column < keys)[:, None]
            stage = count % STAGES  # pyright: ignore[reportOperatorIssue]
            parity = (count // STAGES + 1) & 1
            mbarrier.wait(k_bars[1].index(stage), parity)
            copy_to_shared(shared_k.index(stage), k_rows + column[:, None] * k_strides[2], mask=inside)
            async_copy.mbarrier_arrive(k_bars[0].index(stage), increment_count=False)
            mbarrier.wait(v_bars[1].index(stage), parity)
            copy_to_shared(shared_v.index(stage), v_rows + column[:, None] * v_strides[2], mask=inside)
            async_copy.mbarrier_arrive(v_bars[0].index(stage), increment_count=False)
            count += 1


@gluon.jit
def power_of_two(x):
    """Return 2^x, 0 where that is below the normal numbers: a fourth of the instructions that subnormal ones take."""
    return gl.inline_asm_elementwise("ex2.approx.ftz.f32 $0, $1;", "=f,f", [x], dtype=gl.float32, is_pure=True, pack=1)


@gluon.jit
def weigh(
    score,
    peak,
    norm,
    factor,
    row,
    column,
    queries,
    keys,
    CUT: gl.constexpr,
    CAUSAL: gl.constexpr,
):
    """Return the weights of a block, what earlier ones shrink by, the largest score and the sum of weights yet."""
    if CUT:
        attends = (column < keys)[None, :]
        if CAUSAL:
            attends = attends & (column[None, :] <= (row + (keys - queries))[:, None])
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
    shared_k,
    shared_v,
    k_bars,
    v_bars,
    own_turn,
    other_turn,
    count,
    block,
    factor,
    row,
    queries,
    keys,
    CUT: gl.constexpr,
    CAUSAL: gl.constexpr,
    BLOCK_N: gl.constexpr,
    STAGES: gl.constexpr,
    GROUP: gl.constexpr,
    TURNS: gl.constexpr,
    FENCE: gl.constexpr,
    layout: gl.constexpr,
):
    """Return sums with the values of the block before added, and the weights of this one, the ``count``-th."""
    stage = count % STAGES
    earlier = (count - 1) % STAGES
    parity = (count - 1) // STAGES & 1
    mbarrier.wait(v_bars[0].index(earlier), parity)
    mbarrier.wait(k_bars[0].index(stage), count // STAGES & 1)
    if TURNS:
        mbarrier.wait(own_turn, (count + 1 - GROUP) & 1)
    if FENCE:
        fence_async_shared()
    score = gl.zeros((64, BLOCK_N), gl.float32, layout=layout)
    score = warpgroup_mma(query, shared_k.index(stage).permute((1, 0)), score, use_acc=False, is_async=True)
    p = gl.convert_layout(weights.to(shared_v.dtype), gl.DotOperandLayout(0, total.type.layout, 2))
    total = warpgroup_mma(p, shared_v.index(earlier), total, is_async=True)
    if TURNS:
        mbarrier.arrive(other_turn, count=1)
    score = warpgroup_mma_wait(1, deps=[score])
    mbarrier.arrive(k_bars[1].index(stage), count=1)
    column = block * BLOCK_N + gl.arange(0, BLOCK_N, layout=gl.SliceLayout(0, layout))
    weights, shrink, peak, norm = weigh(score, peak, norm, factor, row, column, queries, keys, CUT, CAUSAL)
    # Known to be full: without a branch here the assembler has the sums waited for before the weights are made.
    mbarrier.wait(v_bars[0].index(earlier), parity)
    total, p, weights = warpgroup_mma_wait(0, deps=[total, p, weights])
    mbarrier.arrive(v_bars[1].index(earlier), count=1)
    total = total * gl.convert_layout(shrink, gl.SliceLayout(1, total.type.layout))[:, None]
    return total, weights, peak, norm


@gluon.jit
def multiply(
    out,
    out_strides,
    shared_q,
    shared_k,
    shared_v,
    q_bars,
    k_bars,
    v_bars,
    own_turn,
    other_turn,
    queries,
    keys,
    heads,
    section,
    tiles,
    programs,
    factor,
    CAUSAL: gl.constexpr,
    BLOCK_M: gl.constexpr,
    BLOCK_N: gl.constexpr,
    BLOCK_D: gl.constexpr,
    STAGES: gl.constexpr,
    GROUP: gl.constexpr,
    TURNS: gl.constexpr,
    FENCE: gl.constexpr,
):
    """Write the 64 queries of each tile that are the group's."""
    layout: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, BLOCK_N, 16])
    wide: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, BLOCK_D, 16])
    operand: gl.constexpr = gl.DotOperandLayout(0, wide, 2)
    stored: gl.constexpr = gl.BlockedLayout([1, 8], [256 // BLOCK_D, BLOCK_D // 8], [4, 1], [1, 0])
    m = gl.arange(0, 64, layout=gl.SliceLayout(1, layout))
    n = gl.arange(0, BLOCK_N, layout=gl.SliceLayout(0, layout))
    count = 0
    for turn in range(turns_of(tiles, programs)):
        batch, head, first, blocks, whole = place(
            dealt(turn, programs), queries, keys, heads, section, CAUSAL, BLOCK_M, BLOCK_N
        )
        first += GROUP * 64
        row = first + m
        peak = gl.full((64,), float("-inf"), gl.float32, layout=gl.SliceLayout(1, layout))
        norm = gl.zeros((64,), gl.float32, layout=gl.SliceLayout(1, layout))
        total = gl.zeros((64, BLOCK_D), gl.float32, layout=wide)
        query = shared_q.index(turn % 2 * (BLOCK_M // 64) + GROUP)
        block = blocks - 1
        stage = count % STAGES  # pyright: ignore[reportOperatorIssue]
        mbarrier.wait(q_bars[0].index(turn % 2), turn // 2 & 1)
        mbarrier.wait(k_bars[0].index(stage), count // STAGES & 1)
        if TURNS:
            mbarrier.wait(own_turn, (count + 1 - GROUP) & 1)
        fence_async_shared()
        score = gl.zeros((64, BLOCK_N), gl.float32, layout=layout)
        score = warpgroup_mma(query, shared_k.index(stage).permute((1, 0)), score, use_acc=False, is_async=True)
        if TURNS:
            mbarrier.arrive(other_turn, count=1)
        score = warpgroup_mma_wait(0, deps=[score])
        mbarrier.arrive(k_bars[1].index(stage), count=1)
        column = block * BLOCK_N + n
        weights, _shrink, peak, norm = weigh(score, peak, norm, factor, row, column, queries, keys, True, CAUSAL)
        count += 1
        while block > whole:
            block -= 1
            total, weights, peak, norm = step(
                total,
                weights,
                peak,
                norm,
                query,
                shared_k,
                shared_v,
                k_bars,
                v_bars,
                own_turn,
                other_turn,
                count,
                block,
                factor,
                row,
                queries,
                keys,
                True,
                CAUSAL,
                BLOCK_N,
                STAGES,
                GROUP,
                TURNS,
                FENCE,
                layout,
            )
            count += 1
        while block > 0:
            block -= 1
            total, weights, peak, norm = step(
                total,
                weights,
                peak,
                norm,
                query,
                shared_k,
                shared_v,
                k_bars,
                v_bars,
                own_turn,
                other_turn,
                count,
                block,
                factor,
                row,
                queries,
                keys,
                False,
                CAUSAL,
                BLOCK_N,
                STAGES,
                GROUP,
                TURNS,
                FENCE,
                layout,
            )
            count += 1
        mbarrier.arrive(q_bars[1].index(turn % 2), count=1)
        stage = (count - 1) % STAGES  # pyright: ignore[reportOperatorIssue]
        mbarrier.wait(v_bars[0].index(stage), (count - 1) // STAGES & 1)
        fence_async_shared()
        p = gl.convert_layout(weights.to(out.dtype.element_ty), operand)
        total = warpgroup_mma(p, shared_v.index(stage), total, is_async=True)
        total, p = warpgroup_mma_wait(0, deps=[total, p])
        mbarrier.arrive(v_bars[1].index(stage), count=1)
        norm = gl.convert_layout(gl.where(norm == 0.0, 1.0, norm), gl.SliceLayout(1, wide))
        result = gl.convert_layout((total / norm[:, None]).to(out.dtype.element_ty), stored)
        line = first + gl.arange(0, 64, layout=gl.SliceLayout(1, stored))
        d = gl.arange(0, BLOCK_D, layout=gl.SliceLayout(0, stored))
        target = out + batch.to(gl.int64) * out_strides[0] + head * out_strides[1]
        gl.store(target + line[:, None] * out_strides[2] + d[None, :], result, mask=(line < queries)[:, None])


@gluon.jit
def barriers(NUMBER: gl.constexpr, ARRIVALS: gl.constexpr):
    """Return ``NUMBER`` barriers, each completed by ``ARRIVALS``."""
    made = gl.allocate_shared_memory(gl.int64, [NUMBER, 1], mbarrier.MBarrierLayout())
    for i in gl.static_range(NUMBER):
        mbarrier.init(made.index(i), count=ARRIVALS)
    return made


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
    COPYING_REGISTERS: gl.constexpr,
    TURNS: gl.constexpr,
    FENCE: gl.constexpr,
):
    """Write attention, 128 queries of one head at a time; a query with nothing to attend gets 0.

    Strides are of batch, head, token; elements are neighbours. CAUSAL aligns the last query with the last key.
    ``factor`` is the scale times log2(e), above 0. ``WARPS`` copy.
    """
    BLOCK_M: gl.constexpr = 128
    dtype: gl.constexpr = q.dtype.element_ty
    shared_q = gl.allocate_shared_memory(
        dtype, [4, 64, BLOCK_D], gl.NVMMASharedLayout.get_default_for([64, BLOCK_D], dtype)
    )
    shared: gl.constexpr = gl.NVMMASharedLayout.get_default_for([BLOCK_N, BLOCK_D], dtype)
    shared_k = gl.allocate_shared_memory(dtype, [STAGES, BLOCK_N, BLOCK_D], shared)
    shared_v = gl.allocate_shared_memory(dtype, [STAGES, BLOCK_N, BLOCK_D], shared)
    # Full, by what each thread that copies has copied; empty, by each group that multiplies.
    q_bars = (barriers(2, 32 * WARPS), barriers(2, 2))
    k_bars = (barriers(STAGES, 32 * WARPS), barriers(STAGES, 2))
    v_bars = (barriers(STAGES, 32 * WARPS), barriers(STAGES, 2))
    turns = barriers(2, 1)
    gl.warp_specialize(
        [
            (
                multiply,
                (
                    out,
                    out_strides,
                    shared_q,
                    shared_k,
                    shared_v,
                    q_bars,
                    k_bars,
                    v_bars,
                    turns.index(0),
                    turns.index(1),
                    queries,
                    keys,
                    heads,
                    section,
                    tiles,
                    programs,
                    factor,
                    CAUSAL,
                    BLOCK_M,
                    BLOCK_N,
                    BLOCK_D,
                    STAGES,
                    0,
                    TURNS,
                    FENCE,
                ),
            ),
            (
                multiply,
                (
                    out,
                    out_strides,
                    shared_q,
                    shared_k,
                    shared_v,
                    q_bars,
                    k_bars,
                    v_bars,
                    turns.index(1),
                    turns.index(0),
                    queries,
                    keys,
                    heads,
                    section,
                    tiles,
                    programs,
                    factor,
                    CAUSAL,
                    BLOCK_M,
                    BLOCK_N,
                    BLOCK_D,
                    STAGES,
                    1,
                    TURNS,
                    FENCE,
                ),
            ),
            (
                bring,
                (
                    q,
                    k,
                    v,
                    q_strides,
                    k_strides,
                    v_strides,
                    shared_q,
                    shared_k,
                    shared_v,
                    q_bars,
                    k_bars,
                    v_bars,
                    queries,
                    keys,
                    heads,
                    heads_per_kv,
                    section,
                    tiles,
                    programs,
                    CAUSAL,
                    BLOCK_M,
                    BLOCK_N,
                    BLOCK_D,
                    STAGES,
                    WARPS,
                ),
            ),
        ],
        [4, WARPS],
        [REGISTERS, COPYING_REGISTERS],
    )


def bind(ctx: BindContext) -> Sequence[Launch]:
    """Bind ``scaled_dot_product_attention``."""
    q, k, v, _ = ctx.signature.tensors
    (out,) = ctx.signature.outputs
    if out.size == 0:
        return ()
    batch, heads, queries, width = q.shape
    _, kv_heads, keys, _ = k.shape
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
            "keys": keys,
            "heads": heads,
            "heads_per_kv": heads // kv_heads,
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
            "BLOCK_N": KEYS,
            "BLOCK_D": width,
            "STAGES": 2 if width > 64 else 4,
            "WARPS": 4,
            "REGISTERS": 232,
            "COPYING_REGISTERS": 40,
            "TURNS": True,
            "FENCE": True,
        },
        options=Options(num_warps=4, num_stages=1, enable_fp_fusion=True),
    )
    return (step,)
