"""Attention of one query a sequence by splits of the keys, which are taken from memory as the matrix unit wants them.

Splits are joined as those of `split_attention`; their programs take steps of 64 keys in turn, as many as there are
splits side by side. How many depends on the number of keys alone. Keys and values pass no shared memory: what a thread
loads, 16 bytes at a time, are its own operands. A product does not mind the order of what it sums, nor that of rows:
elements of a key are multiplied in the order in which threads have them, and those of a value are rows of the sums in
an order that is undone at the end. Warps do not wait for each other either: each has 16 keys of a step, and a maximum
and sums of its own, which are merged after the last step. When keys or values have been multiplied, those of the next
step are under way to the same registers.

On an H200 one query of float16 32 / 8 heads takes 9.1 us with 2048 keys of 64 (`quarters`: 10.3), 9.2 us where they are
in pages of 64 (11.3), 45 us with 32768 keys of 128 (50) and with 8192 as long as there (18), cold, medians.

No atomics; sums are in a fixed order. Deterministic. Written in Gluon, Triton's language of layouts.
"""

from __future__ import annotations

from collections.abc import Sequence

import triton
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.ampere import mma_v2

from nbx_registry.contracts.decoding import SPLIT_TOKENS, paged_decode_splits
from nbx_registry.launch import BindContext, Launch, Scalar
from nbx_registry.space import Space
from nbx_triton.compiler import Options
from nbx_triton.kernels import decode_attention, paged_attention
from nbx_triton.kernels.split_attention import LOG2_E, Cache, join, partial
from nbx_triton.kernels.strided import NARROW
from nbx_triton.launching import launch

WARPS = 4

SETTINGS = Space(parameters={"tokens": (64, 128, 256, 512)})
"""Keys that a split is made for."""

TAKEN = ("k", "v", "block_table", "seq_lens", "pages", "table_strides", "lens_stride")


@gluon.jit
def along(AXIS: gl.constexpr, EXTENT: gl.constexpr, layout: gl.constexpr):
    """Return the numbers below ``EXTENT`` along one of three axes."""
    if AXIS == 0:
        x = gl.arange(0, EXTENT, layout=gl.SliceLayout(1, gl.SliceLayout(2, layout)))
        x = gl.expand_dims(gl.expand_dims(x, 1), 2)
    elif AXIS == 1:
        x = gl.arange(0, EXTENT, layout=gl.SliceLayout(0, gl.SliceLayout(2, layout)))
        x = gl.expand_dims(gl.expand_dims(x, 0), 2)
    else:
        x = gl.arange(0, EXTENT, layout=gl.SliceLayout(0, gl.SliceLayout(1, layout)))
        x = gl.expand_dims(gl.expand_dims(x, 0), 1)
    return x


@gluon.jit
def page_of(entries, at, last, stride, pages, PAGE: gl.constexpr):
    """Return the page of the keys from ``at`` on, -1 where there is none or the pool has none."""
    page = gl.load(entries + at // PAGE * stride, mask=at < last, other=-1)
    return gl.where(page < pages, page, -1)


@gluon.jit
def bring(
    head,
    page,
    stride,
    at,
    last,
    PAGE: gl.constexpr,
    ROW: gl.constexpr,
    WARPS: gl.constexpr,
    WIDTH: gl.constexpr,
    layout: gl.constexpr,
):
    """Return [WARPS, 16, WIDTH] of the keys or values from ``at`` on, 0 from ``last`` on and where there is no page."""
    key = along(0, WARPS, layout) * 16 + along(1, 16, layout)
    known = at + key < last
    if page is None:
        start = head + at.to(gl.int64) * ROW
    else:
        start = head + page.to(gl.int64) * stride + at % PAGE * ROW
        known = known & (page >= 0)
    # Within a block offsets are small and known: they become part of the instructions that load.
    return gl.load(start + (key * ROW + along(2, WIDTH, layout)), mask=known, other=0, eviction_policy="evict_first")


@gluon.jit
def attend_split(
    q,
    k,
    v,
    block_table,
    seq_lens,
    o,
    m,
    norms,
    room,
    pages,
    scale,
    q_strides,
    k_strides,
    v_strides,
    table_strides,
    lens_stride,
    K_ROW: gl.constexpr,
    V_ROW: gl.constexpr,
    PAGE: gl.constexpr,
    SPLITS: gl.constexpr,
    KV_HEADS: gl.constexpr,
    GROUP: gl.constexpr,
    WARPS: gl.constexpr,
    WIDTH: gl.constexpr,
):
    """Write ``o[row, split]``, ``m`` and ``norms`` of one split; an empty one gives 0, -inf and 0.

    As `split_attention.attend_split`, for keys and values of WIDTH elements side by side, 64 or 128, in q's dtype. A
    step is of 16 keys a warp, of one page.
    """
    BLOCK: gl.constexpr = 16 * WARPS
    unit: gl.constexpr = gl.NVMMADistributedLayout([2, 0], [WARPS, 1, 1], [1, 16, 8])
    # A thread multiplies 8 elements side by side of every 32 of a key with the same of the query.
    keys: gl.constexpr = gl.DotOperandLayout(0, unit, 8)
    queries: gl.constexpr = gl.DotOperandLayout(1, unit, 8)
    # It has 8 elements side by side of every 64 of four keys' values.
    pieces: gl.constexpr = [[0, 0, 1], [0, 0, 2], [0, 0, 4], [0, 1, 0], [0, 8, 0], [0, 0, 64]]
    lanes: gl.constexpr = [[0, 2, 0], [0, 4, 0], [0, 0, 8], [0, 0, 16], [0, 0, 32]]
    warps: gl.constexpr = [[1, 0, 0], [2, 0, 0], [4, 0, 0]]
    values: gl.constexpr = gl.DistributedLinearLayout(
        pieces[: 4 + WIDTH // 64], lanes, warps[: WARPS.bit_length() - 1], [], [WARPS, 16, WIDTH]
    )

    number = gl.program_id(0)
    TILES: gl.constexpr = (GROUP + 7) // 8
    split = number % SPLITS
    tile = number // SPLITS % TILES
    kv_head = number // (SPLITS * TILES) % KV_HEADS
    batch = (number // (SPLITS * TILES * KV_HEADS)).to(gl.int64)

    last = room
    if seq_lens is not None:
        last = gl.maximum(gl.minimum(gl.load(seq_lens + batch * lens_stride), room), 0)
    # Programs take steps in turn: what they read at one time is side by side.
    first = split * BLOCK
    stride = SPLITS * BLOCK

    k_head = k + kv_head.to(gl.int64) * k_strides[1]
    v_head = v + kv_head.to(gl.int64) * v_strides[1]
    entries = block_table
    page = None
    if block_table is None:
        k_head += batch * k_strides[0]
        v_head += batch * v_strides[0]
    else:
        entries += batch * table_strides[0]
        page = page_of(entries, first, last, table_strides[1], pages, PAGE)
    key = bring(k_head, page, k_strides[0], first, last, PAGE, K_ROW, WARPS, WIDTH, keys)
    value = bring(v_head, page, v_strides[0], first, last, PAGE, V_ROW, WARPS, WIDTH, values)

    head = tile * 8 + along(2, 8, queries)
    place = (kv_head * GROUP + head).to(gl.int64) * q_strides[1] + along(1, WIDTH, queries).to(gl.int64) * q_strides[2]
    place += along(0, WARPS, queries) * 0
    query = gl.load(q + batch * q_strides[0] + place, mask=head < GROUP, other=0)

    peak = gl.full([WARPS, 8], float("-inf"), gl.float32, gl.SliceLayout(1, unit))
    # Weights are summed by their place in a step, over places at the end.
    weights = gl.zeros([WARPS, 16, 8], gl.float32, unit)
    total = gl.zeros([WARPS, WIDTH, 8], gl.float32, unit)
    row = along(0, WARPS, unit) * 16 + along(1, 16, unit)
    for at in range(first, last, stride):
        known = at + row < last
        after = at + stride
        if block_table is not None:
            known = known & (page >= 0)  # pyright: ignore[reportOptionalOperand]
            page = page_of(entries, after, last, table_strides[1], pages, PAGE)
        score = mma_v2(key, query, gl.zeros([WARPS, 16, 8], gl.float32, unit)) * scale
        key = bring(k_head, page, k_strides[0], after, last, PAGE, K_ROW, WARPS, WIDTH, keys)
        score = gl.where(known, score, float("-inf"))
        new = gl.maximum(peak, gl.max(score, axis=1))
        # While there is nothing but -inf, any finite number in its place leaves the sums at 0.
        anchor = gl.where(new == float("-inf"), 0.0, new)
        p = gl.exp2(score - gl.expand_dims(anchor, 1))
        shrink = gl.expand_dims(gl.exp2(peak - anchor), 1)
        weights = weights * shrink + p
        p = gl.convert_layout(p.to(k.dtype.element_ty), gl.DotOperandLayout(1, unit, 2))
        # Of elements the lower three bits become the upper ones of rows: threads' pieces are rows of their own.
        turned = gl.permute(gl.reshape(value, [WARPS, 16, WIDTH // 64, 8, 8]), [0, 4, 2, 3, 1])
        turned = gl.convert_layout(gl.reshape(turned, [WARPS, WIDTH, 16]), gl.DotOperandLayout(0, unit, 2))
        total = mma_v2(turned, p, total * shrink)
        value = bring(v_head, page, v_strides[0], after, last, PAGE, V_ROW, WARPS, WIDTH, values)
        peak = new

    # A thread has four elements of all warps.
    merged: gl.constexpr = gl.BlockedLayout([WARPS, 1, 4], [1, 128 // WIDTH, WIDTH // 4], [1, WARPS, 1], [2, 1, 0])
    total = gl.permute(gl.reshape(total, [WARPS, 8, WIDTH // 64, 8, 8]), [0, 4, 2, 3, 1])
    total = gl.reshape(total, [WARPS, 8, WIDTH])
    # All are in shared memory before the first is loaded, so that warps wait for each other once.
    rows: gl.constexpr = gl.SwizzledSharedLayout(1, 1, 1, [1, 0])
    totals = gl.allocate_shared_memory(
        gl.float32, [WARPS, 8, WIDTH], gl.SwizzledSharedLayout(1, 1, 1, [2, 1, 0]), total
    )
    peaks = gl.allocate_shared_memory(gl.float32, [WARPS, 8], rows, peak)
    parts = gl.allocate_shared_memory(gl.float32, [WARPS, 8], rows, gl.sum(weights, axis=1))
    total = totals.load(merged)
    peaks = peaks.load(gl.SliceLayout(2, merged))
    parts = parts.load(gl.SliceLayout(2, merged))
    largest = gl.max(peaks, axis=0)
    shares = gl.exp2(peaks - gl.expand_dims(gl.where(largest == float("-inf"), 0.0, largest), 0))
    norm = gl.sum(parts * shares, axis=0)
    total = gl.sum(total * gl.expand_dims(shares, 2), axis=0)
    # Maxima pass over NaN: a row of nothing else would look like one with nothing to attend.
    largest = gl.where(norm != norm, norm, largest)
    begin = (batch * (KV_HEADS * GROUP) + kv_head * GROUP + tile * 8) * SPLITS + split
    member = gl.arange(0, 8, layout=gl.SliceLayout(0, gl.SliceLayout(2, merged)))
    gl.store(m + begin + member * SPLITS, largest, mask=tile * 8 + member < GROUP)
    gl.store(norms + begin + member * SPLITS, norm, mask=tile * 8 + member < GROUP)
    member = gl.expand_dims(gl.arange(0, 8, layout=gl.SliceLayout(1, gl.SliceLayout(0, merged))), 1)
    e = gl.expand_dims(gl.arange(0, WIDTH, layout=gl.SliceLayout(0, gl.SliceLayout(0, merged))), 0)
    gl.store(o + begin * WIDTH + (member * SPLITS * WIDTH + e), total, mask=tile * 8 + member < GROUP)


def _launches(ctx: BindContext, cache: Cache, longest: int) -> Sequence[Launch]:
    """Return both launches for the query ``q`` and the output ``out``, with the workspace of `split_attention`."""
    q, (out,) = ctx.signature.tensor("q"), ctx.signature.outputs
    if out.size == 0:
        return ()
    k, v = cache.k, cache.v
    batch, heads, width = q.shape
    kv_heads = v.shape[1]
    # The one rule for all, so that how keys are split depends on nothing else.
    splits = triton.cdiv(paged_decode_splits(longest) * SPLIT_TOKENS, ctx.settings["tokens"])
    scale = ctx.signature.attributes["scale"]
    attend = launch(
        ctx,
        attend_split,
        programs=batch * kv_heads * triton.cdiv(heads // kv_heads, 8) * splits,
        arguments={
            **{name: cache.arguments[name] for name in TAKEN},
            **{name: value for name, value in partial(splits).items() if name != "splits"},
            "q": "q",
            "room": cache.room,
            "scale": Scalar((width**-0.5 if scale is None else scale) * LOG2_E, "float32"),
            "q_strides": q.strides,
            "k_strides": k.strides,
            "v_strides": v.strides,
        },
        constants={
            "K_ROW": k.strides[2],
            "V_ROW": v.strides[2],
            "PAGE": cache.page_tokens,
            "SPLITS": splits,
            "KV_HEADS": kv_heads,
            "GROUP": heads // kv_heads,
            "WARPS": WARPS,
            "WIDTH": width,
        },
        options=Options(num_warps=WARPS, num_stages=1, enable_fp_fusion=True),
    )
    return (attend, join(ctx, splits, batch * heads * splits * width >= NARROW // 2))


def bind(ctx: BindContext) -> Sequence[Launch]:
    """Bind ``decode_attention``: the splits, then their joining."""
    return _launches(ctx, decode_attention.cache_of(ctx), ctx.signature.axes["T"])


def bind_paged(ctx: BindContext) -> Sequence[Launch]:
    """Bind ``paged_decode_attention``: the splits, then their joining."""
    return _launches(ctx, paged_attention.cache_of(ctx), ctx.signature.axes["T"])
