"""scaled_dot_product_attention where warps have trades: some bring keys and values, others multiply and weight them.

For devices whose matrix unit works beside the warps that feed it (wgmma, sm_90): there is then work for it while
weights are made. The design is FlashAttention-3's (J. Shah et al., 2024). Two groups of four warps have 64 queries each
of a tile of 128 and go through the keys by themselves, taking turns at the matrix unit. Within a group the products of
a block of keys and those of the values before it are issued together, and weights are made while the latter are under
way. Four more warps have the device's copy engine (TMA) bring queries, keys and values to shared memory, ``STAGES``
blocks ahead; the others have the registers that these do not need.

Barriers in shared memory say what is full and what is empty. A barrier is waited for by the parity of how often it was
completed, so that the number of a block, of all blocks that the program has seen, is the only count.

One program stays on each multiprocessor and has several tiles. Blocks of keys are visited in descending order, the cut
ones, which take comparisons, first. Deterministic.

Written in Gluon, Triton's language of layouts.
"""

from __future__ import annotations

from collections.abc import Sequence

import triton
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import (
    fence_async_shared,
    mbarrier,
    tma,
    warpgroup_mma,
    warpgroup_mma_wait,
)

from nbx_registry.launch import BindContext, Launch, Scalar
from nbx_triton.compiler import Options
from nbx_triton.kernels.attention import factor_of, section_of
from nbx_triton.kernels.attention_tiles import dealt, place, times
from nbx_triton.launching import launch

# Triton 3.9 has another name for what 3.6 calls the second.
copy_to_shared = getattr(tma, "async_load", None) or tma.async_copy_global_to_shared

QUERIES = 128
"""Queries of a tile, 64 for each group of warps that multiplies."""

MOST_PROGRAMS = 1024
"""There is scratch memory for so many; none has as many multiprocessors."""


@gluon.jit
def describe(pointer, sizes, strides, ROWS: gl.constexpr, BLOCK: gl.constexpr):
    """Return an operand's description, for blocks of ROWS tokens of one head. Sizes are batch, heads and tokens."""
    layout: gl.constexpr = gl.NVMMASharedLayout.get_default_for([1, 1, ROWS, BLOCK], pointer.dtype.element_ty)
    return tma.make_tensor_descriptor(
        pointer,
        [sizes[0], sizes[1], sizes[2], BLOCK],
        [strides[0], strides[1], strides[2], 1],
        [1, 1, ROWS, BLOCK],
        layout,
    )


@gluon.jit
def bring(
    inputs,
    strides,
    shared,
    full,
    empty,
    sizes,
    batches,
    heads_per_kv,
    CAUSAL: gl.constexpr,
    BLOCK: gl.constexpr,
    STAGES: gl.constexpr,
):
    """Have the queries of each tile copied and its blocks of keys and values; what lies beyond the last one is 0."""
    kv_sizes = (batches, sizes[2] // heads_per_kv, sizes[1])
    q = describe(inputs[0], (batches, sizes[2], sizes[0]), strides[0], 64, BLOCK)
    k = describe(inputs[1], kv_sizes, strides[1], BLOCK, BLOCK)
    v = describe(inputs[2], kv_sizes, strides[2], BLOCK, BLOCK)
    count = 0
    for time in range(times(sizes[4], sizes[5])):
        batch, head, first, blocks, _whole = place(dealt(time, sizes[5]), sizes, CAUSAL, BLOCK)
        kv_head = head // heads_per_kv
        side = time % 2
        mbarrier.wait(empty[0].index(side), (time // 2 + 1) & 1)
        mbarrier.expect(full[0].index(side), 2 * q.block_type.nbytes)
        for group in gl.static_range(2):
            at = [batch, head, first + group * 64, 0]
            copy_to_shared(q, at, full[0].index(side), shared[0].index(side * 2 + group))
        for before in range(blocks):
            column = (blocks - 1 - before) * BLOCK
            stage = count % STAGES  # pyright: ignore[reportOperatorIssue]
            parity = (count // STAGES + 1) & 1
            at = [batch, kv_head, column, 0]
            mbarrier.wait(empty[1].index(stage), parity)
            mbarrier.expect(full[1].index(stage), k.block_type.nbytes)
            copy_to_shared(k, at, full[1].index(stage), shared[1].index(stage))
            mbarrier.wait(empty[2].index(stage), parity)
            mbarrier.expect(full[2].index(stage), v.block_type.nbytes)
            copy_to_shared(v, at, full[2].index(stage), shared[2].index(stage))
            count += 1


@gluon.jit
def matrix(block):
    """Return a block of one head in shared memory as rows and columns."""
    return block.reshape((block.shape[2], block.shape[3]))


@gluon.jit
def power_of_two(x):
    """Return 2^x, 0 where that is below the normal numbers: a fourth of the instructions that subnormal ones take."""
    return gl.inline_asm_elementwise("ex2.approx.ftz.f32 $0, $1;", "=f,f", [x], dtype=gl.float32, is_pure=True, pack=1)


@gluon.jit
def score_block(query, key, turns, count, GROUP: gl.constexpr, layout: gl.constexpr):
    """Issue the products of queries and a block of keys when it is the group's turn."""
    mbarrier.wait(turns.index(GROUP), (count + 1 - GROUP) & 1)
    keys: gl.constexpr = key.shape[0]
    score = gl.zeros((64, keys), gl.float32, layout=layout)
    return warpgroup_mma(query, key.permute((1, 0)), score, use_acc=False, is_async=True)


@gluon.jit
def weigh(score, peak, norm, factor, row, block, sizes, CUT: gl.constexpr, CAUSAL: gl.constexpr, dtype: gl.constexpr):
    """Return the weights of a block, what earlier ones shrink by, the largest score and the sum of weights yet.

    Weights are rounded to 16 bits here: until they are multiplied they take half the registers.
    """
    layout: gl.constexpr = score.type.layout
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
    norm = norm * shrink + gl.sum(p, axis=1)
    # As the matrix unit takes it from registers, the very ones that it is in.
    return gl.convert_layout(p.to(dtype), gl.DotOperandLayout(0, layout, 2)), shrink, new, norm


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
    STAGES: gl.constexpr,
    GROUP: gl.constexpr,
):
    """Return sums with the values of the block before added, and the weights of this one, the ``count``-th."""
    stage = count % STAGES
    earlier = (count - 1) % STAGES
    parity = (count - 1) // STAGES & 1
    mbarrier.wait(full[2].index(earlier), parity)
    mbarrier.wait(full[1].index(stage), count // STAGES & 1)
    layout: gl.constexpr = total.type.layout
    dtype: gl.constexpr = weights.dtype
    score = score_block(query, matrix(shared[1].index(stage)), turns, count, GROUP, layout)
    total = warpgroup_mma(weights, matrix(shared[2].index(earlier)), total, is_async=True)
    mbarrier.arrive(turns.index(1 - GROUP), count=1)
    score = warpgroup_mma_wait(1, deps=[score])
    mbarrier.arrive(empty[1].index(stage), count=1)
    made, shrink, peak, norm = weigh(score, peak, norm, factor, row, block, sizes, CUT, CAUSAL, dtype)
    # It is full: without a branch here the assembler has the sums waited for before the weights are made.
    mbarrier.wait(full[2].index(earlier), parity)
    total, weights, made = warpgroup_mma_wait(0, deps=[total, weights, made])
    mbarrier.arrive(empty[2].index(earlier), count=1)
    return total * shrink[:, None], made, peak, norm


@gluon.jit
def write(out, strides, total, norm, batch, head, first, queries):
    """Write sums over the sums of weights, 0 where there is no weight."""
    width: gl.constexpr = total.shape[1]
    stored: gl.constexpr = gl.BlockedLayout([1, 8], [256 // width, width // 8], [4, 1], [1, 0])
    result = total * (1.0 / gl.where(norm == 0.0, 1.0, norm))[:, None]
    result = gl.convert_layout(result.to(out.dtype.element_ty), stored)
    line = first + gl.arange(0, 64, layout=gl.SliceLayout(1, stored))
    d = gl.arange(0, width, layout=gl.SliceLayout(0, stored))
    target = out + batch.to(gl.int64) * strides[0] + head * strides[1]
    gl.store(target + line[:, None] * strides[2] + d[None, :], result, mask=(line < queries)[:, None])


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
    BLOCK: gl.constexpr,
    STAGES: gl.constexpr,
    GROUP: gl.constexpr,
):
    """Write the 64 queries of each tile that are the group's."""
    layout: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, BLOCK, 16])
    dtype: gl.constexpr = out.dtype.element_ty
    count = 0
    for time in range(times(sizes[4], sizes[5])):
        batch, head, first, blocks, whole = place(dealt(time, sizes[5]), sizes, CAUSAL, BLOCK)
        row = first + GROUP * 64 + gl.arange(0, 64, layout=gl.SliceLayout(1, layout))
        peak = gl.full((64,), float("-inf"), gl.float32, layout=gl.SliceLayout(1, layout))
        norm = gl.zeros((64,), gl.float32, layout=gl.SliceLayout(1, layout))
        total = gl.zeros((64, BLOCK), gl.float32, layout=layout)
        side = time % 2
        query = matrix(shared[0].index(side * 2 + GROUP))
        block = blocks - 1
        stage = count % STAGES  # pyright: ignore[reportOperatorIssue]
        mbarrier.wait(full[0].index(side), time // 2 & 1)
        mbarrier.wait(full[1].index(stage), count // STAGES & 1)
        score = score_block(query, matrix(shared[1].index(stage)), turns, count, GROUP, layout)
        mbarrier.arrive(turns.index(1 - GROUP), count=1)
        score = warpgroup_mma_wait(0, deps=[score])
        mbarrier.arrive(empty[1].index(stage), count=1)
        weights, _shrink, peak, norm = weigh(score, peak, norm, factor, row, block, sizes, True, CAUSAL, dtype)
        count += 1
        # Both loops have the same description of the queries, which the products above need too: did they not, the
        # assembler (ptxas 12.8) would make it in front of the first loop alone, which may not run.
        # fmt: off
        while block > whole:
            block -= 1
            total, weights, peak, norm = step(
                total, weights, peak, norm, query, shared, full, empty, turns, count, block, factor, row, sizes,
                True, CAUSAL, STAGES, GROUP,
            )
            count += 1
        while block > 0:
            block -= 1
            total, weights, peak, norm = step(
                total, weights, peak, norm, query, shared, full, empty, turns, count, block, factor, row, sizes,
                False, CAUSAL, STAGES, GROUP,
            )
            count += 1
        # fmt: on
        mbarrier.arrive(empty[0].index(side), count=1)
        stage = (count - 1) % STAGES  # pyright: ignore[reportOperatorIssue]
        mbarrier.wait(full[2].index(stage), (count - 1) // STAGES & 1)
        total = warpgroup_mma(weights, matrix(shared[2].index(stage)), total, is_async=True)
        total, weights = warpgroup_mma_wait(0, deps=[total, weights])
        mbarrier.arrive(empty[2].index(stage), count=1)
        write(out, strides, total, norm, batch, head, first + GROUP * 64, sizes[0])


@gluon.jit
def barriers(NUMBER: gl.constexpr, ARRIVALS: gl.constexpr):
    """Return ``NUMBER`` barriers, each completed by ``ARRIVALS``."""
    made = gl.allocate_shared_memory(gl.int64, [NUMBER, 1], mbarrier.MBarrierLayout())
    for i in gl.static_range(NUMBER):
        mbarrier.init(made.index(i), count=ARRIVALS)
    return made


@gluon.jit
def room(dtype: gl.constexpr, NUMBER: gl.constexpr, ROWS: gl.constexpr, COLUMNS: gl.constexpr):
    """Return shared memory for ``NUMBER`` blocks of one head, laid out as the matrix unit reads them."""
    layout: gl.constexpr = gl.NVMMASharedLayout.get_default_for([1, 1, ROWS, COLUMNS], dtype)
    return gl.allocate_shared_memory(dtype, [NUMBER, 1, 1, ROWS, COLUMNS], layout)


@gluon.jit
def attend(
    q,
    k,
    v,
    out,
    batches,
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
    BLOCK: gl.constexpr,
    STAGES: gl.constexpr,
    WARPS: gl.constexpr,
    REGISTERS: gl.constexpr,
    WARPS_REGISTERS: gl.constexpr,
):
    """Write attention, 128 queries of one head at a time; a query with nothing to attend gets 0.

    Strides are of batch, head, token; elements are neighbours. CAUSAL aligns the last query with the last key.
    ``factor`` is the scale times log2(e), above 0. ``WARPS`` have operands brought.
    """
    dtype: gl.constexpr = q.dtype.element_ty
    # Two tiles' queries: those of the next are there when a tile is done.
    shared = (room(dtype, 4, 64, BLOCK), room(dtype, STAGES, BLOCK, BLOCK), room(dtype, STAGES, BLOCK, BLOCK))
    # By what is copied, and by each group that multiplies.
    full = (barriers(2, 1), barriers(STAGES, 1), barriers(STAGES, 1))
    empty = (barriers(2, 2), barriers(STAGES, 2), barriers(STAGES, 2))
    turns = barriers(2, 1)
    sizes = (queries, keys, heads, section, tiles, programs)
    strides = (q_strides, k_strides, v_strides)
    # The copy engine is to see barriers as they are set.
    fence_async_shared()
    # fmt: off
    gl.warp_specialize(
        [
            (multiply, (out, out_strides, shared, full, empty, turns, sizes, factor,
                        CAUSAL, BLOCK, STAGES, 0)),
            (multiply, (out, out_strides, shared, full, empty, turns, sizes, factor,
                        CAUSAL, BLOCK, STAGES, 1)),
            (bring, ((q, k, v), strides, shared, full, empty, sizes, batches, heads_per_kv,
                     CAUSAL, BLOCK, STAGES)),
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
    programs = min(tiles, ctx.device.fact("multiprocessors"), MOST_PROGRAMS)
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
            "batches": batch,
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
            "BLOCK": width,
            "STAGES": 2,
            "WARPS": 4,
            # A multiprocessor's, of 12 warps.
            "REGISTERS": 240,
            "WARPS_REGISTERS": 24,
        },
        options=Options(num_warps=4, num_stages=1, enable_fp_fusion=True),
        scratch="descriptions",
    )
    return (step,)
