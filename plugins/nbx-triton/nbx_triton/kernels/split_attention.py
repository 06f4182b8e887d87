"""Attention of one query a sequence in two launches: splits of the keys, then their joining.

`attend_split` attends one split of one sequence's keys for the query heads of a KV head, so that keys and values are
read once, and writes the unnormalised output, the maximum and the sum in float32, of an empty split 0, -inf and 0;
`join_splits` joins the splits of a row. How many splits there are is settled on the host (`paged_decode_splits`), what
each of them covers by the sequence's own length, on the device where that is known there alone: nobody looks at other
sequences. No atomics; sums are in a fixed order. Deterministic.

Products have keys for rows and heads for columns, of which the matrix unit takes 8 at the least: half the registers
that 16 rows of heads would take. Keys and values are read once and leave the second-level cache first, where the
partial results stay for the second launch.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import triton
import triton.language as tl
from triton.language.extra.cuda import gdc_wait

from nbx_registry.launch import BindContext, Launch, Scalar
from nbx_registry.rounding import float_format
from nbx_registry.space import Space
from nbx_registry.spec import TensorSpec
from nbx_triton.compiler import Options
from nbx_triton.kernels.strided import NARROW, program, reach
from nbx_triton.launching import Argument, has_matrix_unit, launch, waits_by_itself

STEP = 64
"""Splits cover multiples of so many keys; every number of keys that a program takes at a time divides it."""

JOINED = 1024
"""Partial results for each warp of the second launch; programs have up to four."""

MOST_LOADED = 8192
"""Elements of keys and values that a warp has under way, in registers."""

LOG2_E = 1.4426950408889634


SETTINGS = Space(
    parameters={"keys": (16, 32, 64), "warps": (1, 2, 4), "together": (False, True), "parts": (1, 2, 4)},
    exclude={"registers": f"keys * 256 > {MOST_LOADED} * warps", "warps without keys": "keys < 16 * warps"},
)
"""Keys of a step, twice as many where a key and its value have 128 elements or fewer; warps of a program; whether a
step's loads are under way together; parts of a split."""


@triton.jit
def pages_of(entries, at, last, stride, pages, n, PAGE: tl.constexpr, BLOCK_N: tl.constexpr):
    """Return the pages of keys at + n, -1 where there is none or the pool has none: one number where it is one page."""
    if PAGE % BLOCK_N == 0:
        page = tl.load(entries + at // PAGE * stride, mask=at < last, other=-1)
    else:
        page = tl.load(entries + (at + n) // PAGE * stride, mask=at + n < last, other=-1)
    return tl.where(page < pages, page, -1)


@triton.jit
def attend_split(
    q,
    k,
    v,
    block_table,
    seq_lens,
    bias,
    o,
    m,
    norms,
    splits,
    room,
    pages,
    width,
    v_width,
    scale,
    q_strides,
    k_strides,
    v_strides,
    table_strides,
    lens_stride,
    bias_stride,
    ROUND: tl.constexpr,
    LIMIT: tl.constexpr,
    WIDE: tl.constexpr,
    FULL: tl.constexpr,
    TOGETHER: tl.constexpr,
    K_ROW: tl.constexpr,
    V_ROW: tl.constexpr,
    PAGE: tl.constexpr,
    STEP: tl.constexpr,
    KV_HEADS: tl.constexpr,
    GROUP: tl.constexpr,
    BLOCK_G: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_D: tl.constexpr,
    BLOCK_DV: tl.constexpr,
):
    """Write ``o[row, split]``, ``m`` and ``norms`` of one split; an empty one gives 0, -inf and 0.

    row is sequence * query heads + head. A sequence has ``room`` keys, or ``seq_lens`` of them where that is less.
    Strides of q are of batch, head, element, those of k and v of batch, head, token, element; with a ``block_table`` of
    page, head, position, element. ``scale`` includes log2(e), so maxima are exponents of 2. Keys are taken BLOCK_N at a
    time: of one page where that divides PAGE, else each of its own page. ROUND takes q to the cache's dtype, clamping
    finite values to LIMIT where that is above 0; without it, products of different dtypes are of float32. FULL says
    that rows fill their blocks.
    """
    number = program(WIDE)
    TILES: tl.constexpr = (GROUP + BLOCK_G - 1) // BLOCK_G
    split = number % splits
    tile = number // splits % TILES
    kv_head = number // splits // TILES % KV_HEADS
    batch = number // splits // (TILES * KV_HEADS)

    length = room + number * 0
    if seq_lens is not None:
        length = tl.maximum(tl.minimum(tl.load(seq_lens + batch * lens_stride).to(number.dtype), length), 0)
    # The last splits may be left nothing.
    segment = ((length + splits - 1) // splits + STEP - 1) // STEP * STEP
    first = split * segment
    last = tl.minimum(first + segment, length)
    steps = ((tl.maximum(last - first, 0) + BLOCK_N - 1) // BLOCK_N).to(tl.int32)

    d = tl.arange(0, BLOCK_D).to(number.dtype)
    e = tl.arange(0, BLOCK_DV).to(number.dtype)
    n = tl.arange(0, BLOCK_N).to(number.dtype)
    k_head = k + kv_head * k_strides[1]
    v_head = v + kv_head * v_strides[1]
    # Within a block offsets are small and known: they become part of the instructions that load.
    k_block = n[:, None] * K_ROW + d[None, :] * k_strides[3]
    v_block = n[None, :] * V_ROW + e[:, None] * v_strides[3]
    if block_table is None:
        k_head += batch * k_strides[0]
        v_head += batch * v_strides[0]
    else:
        entries = block_table + batch * table_strides[0]
        page = pages_of(entries, first, last, table_strides[1], pages, n, PAGE, BLOCK_N)

    member = tile * BLOCK_G + tl.arange(0, BLOCK_G)
    head = kv_head * GROUP + member
    place = q + batch * q_strides[0] + head[None, :] * q_strides[1] + d[:, None] * q_strides[2]
    query = tl.load(place, mask=(member < GROUP)[None, :] & (d < width)[:, None], other=0)
    if ROUND:
        wide = query.to(tl.float32)
        if LIMIT > 0:
            finite = tl.abs(wide) < float("inf")
            wide = tl.where(finite & (wide > LIMIT), LIMIT, tl.where(finite & (wide < -LIMIT), -LIMIT, wide))
        query = wide.to(k.dtype.element_ty)

    peak = tl.full((BLOCK_G,), float("-inf"), tl.float32)
    # Weights are summed by their place in a step, over places at the end.
    weights = tl.zeros((BLOCK_N, BLOCK_G), tl.float32)
    total = tl.zeros((BLOCK_DV, BLOCK_G), tl.float32)
    for step in range(steps):
        at = first + step * BLOCK_N
        known = at + n < last
        whole = at + BLOCK_N <= last
        if block_table is None:
            k_place = k_head + at * K_ROW + k_block
            v_place = v_head + at * V_ROW + v_block
        else:
            own = page.to(number.dtype)
            known = known & (page >= 0)
            if PAGE % BLOCK_N == 0:
                k_place = k_head + (own * k_strides[0] + at % PAGE * K_ROW) + k_block
                v_place = v_head + (own * v_strides[0] + at % PAGE * V_ROW) + v_block
                whole = whole & (page >= 0)
            else:
                # Of each key the place in its page, not in the block.
                moved = (at + n) % PAGE - n
                k_place = k_head + (own * k_strides[0] + moved * K_ROW)[:, None] + k_block
                v_place = v_head + (own * v_strides[0] + moved * V_ROW)[None, :] + v_block
            # A step ahead of the keys, which then need not wait for where they are.
            page = pages_of(entries, at + BLOCK_N, last, table_strides[1], pages, n, PAGE, BLOCK_N)
        k_known = known[:, None]
        v_known = known[None, :]
        if not FULL:
            k_known = k_known & (d < width)[None, :]
            v_known = v_known & (e < v_width)[:, None]
        if TOGETHER and FULL and PAGE % BLOCK_N == 0:
            # What is loaded is stored in shared memory at once, which waits for it; behind a branch it is stored when
            # all is loaded.
            if whole:
                key = tl.load(k_place, eviction_policy="evict_first")
                value = tl.load(v_place, eviction_policy="evict_first")
            else:
                key = tl.load(k_place, mask=k_known, other=0, eviction_policy="evict_first")
                value = tl.load(v_place, mask=v_known, other=0, eviction_policy="evict_first")
        else:
            key = tl.load(k_place, mask=k_known, other=0, eviction_policy="evict_first")
            value = tl.load(v_place, mask=v_known, other=0, eviction_policy="evict_first")
        if query.dtype == key.dtype:
            score = tl.dot(key, query, input_precision="ieee")
        else:
            score = tl.dot(key.to(tl.float32), query.to(tl.float32), input_precision="ieee")
        score *= scale
        if bias is not None:
            added = tl.load(bias + (at + n) * bias_stride, mask=known, other=0).to(tl.float32)
            score += added[:, None] * 1.4426950408889634
        score = tl.where(known[:, None], score, float("-inf"))
        new = tl.maximum(peak, tl.max(score, axis=0))
        # While there is nothing but -inf, any finite number in its place leaves the sums at 0.
        anchor = tl.where(new == float("-inf"), 0.0, new)
        p = tl.exp2(score - anchor[None, :])
        shrink = tl.exp2(peak - anchor)
        weights = weights * shrink[None, :] + p
        # Matrix units take both operands in one dtype; the contract allows for what p loses.
        total = tl.dot(value, p.to(value.dtype), total * shrink[None, :], input_precision="ieee")
        peak = new
    norm = tl.sum(weights, axis=0)
    # Maxima pass over NaN: a row of nothing else would look like one with nothing to attend.
    peak = tl.where(norm != norm, norm, peak)
    row = (batch * (KV_HEADS * GROUP) + head) * splits + split
    tl.store(m + row, peak, mask=member < GROUP)
    tl.store(norms + row, norm, mask=member < GROUP)
    inside = (member < GROUP)[None, :] & (e < v_width)[:, None]
    tl.store(o + row[None, :] * v_width + e[:, None], total, mask=inside)


@triton.jit
def join_splits(
    o,
    m,
    norms,
    out,
    splits,
    out_strides,
    EARLY: tl.constexpr,
    WIDE: tl.constexpr,
    ALL: tl.constexpr,
    HEADS: tl.constexpr,
    WIDTH: tl.constexpr,
    BLOCK_S: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Write BLOCK elements of one row of the output: all of its splits are read at once, and added as a tree.

    EARLY says that the launch before may not have ended, ALL that there are BLOCK_S splits and whole blocks.
    """
    number = program(WIDE)
    BLOCKS: tl.constexpr = (WIDTH + BLOCK - 1) // BLOCK
    row = number // BLOCKS
    split = tl.arange(0, BLOCK_S).to(row.dtype)
    e = number % BLOCKS * BLOCK + tl.arange(0, BLOCK)
    o_place = o + row * splits * WIDTH + (split[:, None] * WIDTH + e[None, :])
    m_place = m + row * splits + split
    norm_place = norms + row * splits + split
    if EARLY:
        gdc_wait()
    if ALL:
        own = tl.load(o_place)
        peaks = tl.load(m_place)
        parts = tl.load(norm_place)
    else:
        own = tl.load(o_place, mask=(split < splits)[:, None] & (e < WIDTH)[None, :], other=0)
        peaks = tl.load(m_place, mask=split < splits, other=float("-inf"))
        parts = tl.load(norm_place, mask=split < splits, other=0)
    peak = tl.max(peaks, axis=0)
    weights = tl.exp2(peaks - tl.where(peak == float("-inf"), 0.0, peak))
    norm = tl.sum(weights * parts, axis=0)
    total = tl.sum(weights[:, None] * own, axis=0)
    result = tl.where(norm == 0.0, 0.0, tl.div_rn(total, tl.zeros_like(total) + tl.where(norm == 0.0, 1.0, norm)))
    target = out + row // HEADS * out_strides[0] + row % HEADS * out_strides[1] + e * out_strides[2]
    tl.store(target, result.to(out.dtype.element_ty), mask=e < WIDTH)


@dataclass(frozen=True, slots=True)
class Cache:
    """Where a launch finds the keys of a sequence.

    Attributes
    ----------
    k, v : TensorSpec
        Of [batch, heads, tokens, width], or of pages in the place of a batch.
    arguments : mapping
        ``k``, ``v``, ``block_table``, ``seq_lens`` and ``bias`` with what belongs to them.
    room : int
        Keys that a sequence has at the most.
    page_tokens : int
    reach : int
        The largest offset in what comes beside k and v.
    """

    k: TensorSpec
    v: TensorSpec
    arguments: Mapping[str, Argument]
    room: int
    page_tokens: int = STEP
    reach: int = 0


def attend_and_join(ctx: BindContext, cache: Cache, splits: int) -> Sequence[Launch]:
    """Return both launches for the query ``q`` and the output ``out``, with the workspace of `WORKSPACE`."""
    q, (out,) = ctx.signature.tensor("q"), ctx.signature.outputs
    k, v = cache.k, cache.v
    batch, heads, width = q.shape
    kv_heads, v_width = v.shape[1], v.shape[3]
    group = heads // kv_heads
    rounds_q = ctx.signature.attributes["q_dtype"] is not None and q.dtype is not k.dtype
    on_matrix_unit = k.dtype.bits == 16 and (q.dtype is k.dtype or rounds_q) and has_matrix_unit(ctx)
    block_d = max(16, triton.next_power_of_2(width))
    block_dv = max(16, triton.next_power_of_2(v_width))
    if on_matrix_unit:
        # The unit takes 8 columns at the least.
        block_g = min(max(8, triton.next_power_of_2(group)), 32)
    else:
        # In registers more than 8 of float32 do not fit.
        block_g = min(8, triton.next_power_of_2(group))
    keys, warps = _step(ctx, cache, block_d + block_dv, block_g, on_matrix_unit)
    scale = ctx.signature.attributes["scale"]
    # The slack covers padded members of a group, whose offsets are computed and masked off.
    wide = (
        2 * max(cache.reach, *(reach(x.shape, x.strides) for x in (q, k, v, out))) >= NARROW
        or batch * heads * splits * v_width >= NARROW // 2
        or cache.room >= NARROW // 2
    )
    attend = launch(
        ctx,
        attend_split,
        programs=batch * kv_heads * triton.cdiv(group, block_g) * splits,
        arguments={
            **cache.arguments,
            **partial(splits),
            "q": "q",
            "room": cache.room,
            "width": width,
            "v_width": v_width,
            "scale": Scalar((max(width, 1) ** -0.5 if scale is None else scale) * LOG2_E, "float32"),
            "q_strides": q.strides,
            "k_strides": k.strides,
            "v_strides": v.strides,
        },
        constants={
            "ROUND": rounds_q,
            "LIMIT": float_format(k.dtype).largest if rounds_q and k.dtype.name == "float16" else 0.0,
            "WIDE": wide,
            "FULL": (width, v_width) == (block_d, block_dv),
            "TOGETHER": ctx.settings["together"],
            "K_ROW": k.strides[2],
            "V_ROW": v.strides[2],
            "KV_HEADS": kv_heads,
            "GROUP": group,
            "PAGE": cache.page_tokens,
            "STEP": STEP,
            "BLOCK_G": block_g,
            "BLOCK_N": keys,
            "BLOCK_D": block_d,
            "BLOCK_DV": block_dv,
        },
        options=Options(num_warps=warps, num_stages=1, enable_fp_fusion=True),
    )
    return (attend, join(ctx, splits, wide))


def partial(splits: int) -> dict[str, Argument]:
    """Return what both launches take of the workspace."""
    return {"o": "partial_o", "m": "partial_m", "norms": "partial_l", "splits": splits}


def join(ctx: BindContext, splits: int, wide: bool) -> Launch:
    """Return the second launch, for the output ``out``; ``wide`` as of `program`."""
    (out,) = ctx.signature.outputs
    batch, heads, v_width = out.shape
    early = waits_by_itself(ctx, join_splits)
    block_s = triton.next_power_of_2(splits)
    # Elements of a row that a program writes: few of many splits, so that a row is joined by several.
    block = int(min(max(JOINED // block_s, 32), 128, triton.next_power_of_2(v_width)))
    return launch(
        ctx,
        join_splits,
        programs=batch * heads * triton.cdiv(v_width, block),
        arguments={**partial(splits), "out": "out", "out_strides": out.strides},
        constants={
            "EARLY": early,
            "WIDE": wide,
            "ALL": (splits, v_width % block) == (block_s, 0),
            "HEADS": heads,
            "WIDTH": v_width,
            "BLOCK_S": block_s,
            "BLOCK": block,
        },
        options=Options(num_warps=min(max(1, block_s * block // JOINED), 4), num_stages=1, enable_fp_fusion=True),
        early=early,
    )


def _step(ctx: BindContext, cache: Cache, width: int, block_g: int, on_matrix_unit: bool) -> tuple[int, int]:
    """Return how many keys a step takes and how many warps a program has: as set, or what registers have room for.

    ``width`` is that of a key and a value.
    """
    keys, warps = ctx.settings["keys"], ctx.settings["warps"]
    if not on_matrix_unit:
        return 32, max(warps, 4 if width <= 256 else 8)
    if width <= 128:
        keys *= 2
    most = MOST_LOADED
    if width * block_g > 2048:
        # The query takes its share, in each warp as much.
        most, warps = most // 2, max(warps, 2 if width * block_g <= 8192 else 4)
    if any(x.strides[3] != 1 or x.strides[2] % 8 for x in (cache.k, cache.v)):
        # Rows that are not loaded 16 bytes at a time take many addresses.
        most, warps = most // 4, max(warps, 2)
    keys = min(max(keys, 16 * warps), STEP)
    while keys > 16 and keys * width > most * warps:
        keys //= 2
    return keys, warps
