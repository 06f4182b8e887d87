"""paged_decode_attention: one query a sequence against the keys in its pages. Lengths are read on the device.

`attend_split` attends one split of one sequence's keys for the query heads of a KV head, so that keys and values are
read once, and writes the unnormalised output, the maximum and the sum in float32; `join_splits` joins the splits of a
row. How many splits there are is settled on the host (`paged_decode_splits`), what each of them covers on the device,
from the sequence's own length: nobody looks at other sequences, their lengths change nothing, and a recorded graph
attends the newest keys. What lies past a length is written and read by neither launch. No atomics; sums are in a fixed
order. Deterministic.

At the least a step reads the keys and values in use: 268 MB for 8 sequences of 8192 tokens, 8 heads of 128 in 16 bits.
"""

from __future__ import annotations

from collections.abc import Sequence

import triton
import triton.language as tl

from nbx_registry.contracts.decoding import paged_decode_splits
from nbx_registry.launch import BindContext, Launch, Scalar
from nbx_registry.rounding import float_format
from nbx_registry.space import Space
from nbx_triton.compiler import Options
from nbx_triton.kernels.strided import NARROW, program, reach
from nbx_triton.launching import Argument, has_matrix_unit, launch

LARGEST_STEP = 128
"""Every number of keys that a program takes at a time divides this; splits cover multiples of it."""

ATTENTION = Space(
    parameters={"keys": (32, 64, 128), "stages": (2, 3, 4)},
    exclude={
        "memory": "keys * (stages - 1) * (D + Dv) * bits(k_pool.dtype) > 8 * device.shared.bytes_per_block_optin",
        "nothing to pipeline with": "stages > 2 and not device.async_copy.cp_async",
        "products in registers": "keys > 32 and (bits(k_pool.dtype) > 16 or not device.async_copy.cp_async)",
    },
)
"""Keys of all pages that a program takes at a time, and how many such steps are under way."""


@triton.jit
def covered(length, splits, STEP: tl.constexpr):
    """Return how many of a sequence's keys each split covers: a multiple of STEP. The last ones may be left nothing."""
    return ((length + splits - 1) // splits + STEP - 1) // STEP * STEP


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
    k_pool,
    v_pool,
    block_table,
    seq_lens,
    o,
    m,
    norms,
    splits,
    room,
    pages,
    kv_heads,
    group,
    width,
    v_width,
    scale,
    q_strides,
    k_strides,
    v_strides,
    table_strides,
    lens_stride,
    ROUND: tl.constexpr,
    LIMIT: tl.constexpr,
    WIDE: tl.constexpr,
    PAGE: tl.constexpr,
    STEP: tl.constexpr,
    BLOCK_G: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_D: tl.constexpr,
    BLOCK_DV: tl.constexpr,
):
    """Write ``o[row, split]``, ``m`` and ``norms`` of one split, and nothing of an empty one.

    row is sequence * query heads + head. ``q_strides`` are of batch, head, element, those of pools of page, head,
    position, element. ``scale`` includes log2(e), so maxima are exponents of 2. ``room`` is how many tokens the table
    reaches. Keys are taken BLOCK_N at a time: of one page where that divides PAGE, else each of its own page. ROUND
    takes q to the cache's dtype, clamping finite values to LIMIT where that is above 0; without it, products of
    different dtypes are of float32.
    """
    number = program(WIDE)
    tiles = (group + BLOCK_G - 1) // BLOCK_G
    split = number % splits
    tile = number // splits % tiles
    kv_head = number // splits // tiles % kv_heads
    batch = number // splits // tiles // kv_heads

    length = tl.load(seq_lens + batch * lens_stride).to(number.dtype)
    length = tl.maximum(tl.minimum(length, room), 0)
    segment = covered(length, splits, STEP)
    first = split * segment
    last = tl.minimum(first + segment, length)
    steps = ((tl.maximum(last - first, 0) + BLOCK_N - 1) // BLOCK_N).to(tl.int32)

    member = tile * BLOCK_G + tl.arange(0, BLOCK_G)
    head = kv_head * group + member
    here = (member < group)[:, None]
    d = tl.arange(0, BLOCK_D).to(number.dtype)[None, :]
    e = tl.arange(0, BLOCK_DV).to(number.dtype)[None, :]
    n = tl.arange(0, BLOCK_N).to(number.dtype)

    place = q + batch * q_strides[0] + head[:, None] * q_strides[1] + d * q_strides[2]
    query = tl.load(place, mask=here & (d < width), other=0)
    if ROUND:
        wide = query.to(tl.float32)
        if LIMIT > 0:
            finite = tl.abs(wide) < float("inf")
            wide = tl.where(finite & (wide > LIMIT), LIMIT, tl.where(finite & (wide < -LIMIT), -LIMIT, wide))
        query = wide.to(k_pool.dtype.element_ty)
    k_head = k_pool + kv_head * k_strides[1] + d * k_strides[3]
    v_head = v_pool + kv_head * v_strides[1] + e * v_strides[3]
    entries = block_table + batch * table_strides[0]

    peak = tl.full((BLOCK_G,), float("-inf"), tl.float32)
    norm = tl.zeros((BLOCK_G,), tl.float32)
    total = tl.zeros((BLOCK_G, BLOCK_DV), tl.float32)
    page = pages_of(entries, first, last, table_strides[1], pages, n, PAGE, BLOCK_N)
    for step in range(steps):
        at = first + step * BLOCK_N
        # A step ahead of the keys, which then need not wait for where they are.
        coming = pages_of(entries, at + BLOCK_N, last, table_strides[1], pages, n, PAGE, BLOCK_N)
        if PAGE % BLOCK_N == 0:
            position = at % PAGE + n
        else:
            position = (at + n) % PAGE
        known = (at + n < last) & (page >= 0)
        own = page.to(number.dtype)
        k_row = (own * k_strides[0] + position * k_strides[2])[:, None]
        v_row = (own * v_strides[0] + position * v_strides[2])[:, None]
        key = tl.load(k_head + k_row, mask=known[:, None] & (d < width), other=0)
        if query.dtype == key.dtype:
            score = tl.dot(query, tl.trans(key), input_precision="ieee")
        else:
            score = tl.dot(query.to(tl.float32), tl.trans(key).to(tl.float32), input_precision="ieee")
        score = tl.where(known[None, :], score * scale, float("-inf"))
        new = tl.maximum(peak, tl.max(score, axis=1))
        # While there is nothing but -inf, any finite number in its place leaves the sums at 0.
        anchor = tl.where(new == float("-inf"), 0.0, new)
        p = tl.exp2(score - anchor[:, None])
        shrink = tl.exp2(peak - anchor)
        norm = norm * shrink + tl.sum(p, axis=1)
        value = tl.load(v_head + v_row, mask=known[:, None] & (e < v_width), other=0)
        # Matrix units take both operands in one dtype; the contract allows for what p loses.
        total = tl.dot(p.to(value.dtype), value, total * shrink[:, None], input_precision="ieee")
        peak = new
        page = coming
    # Maxima pass over NaN: a row of nothing else would look like one with nothing to attend.
    peak = tl.where(norm != norm, norm, peak)
    row = (batch * kv_heads * group + head) * splits + split
    written = (member < group) & (first < last)
    tl.store(m + row, peak, mask=written)
    tl.store(norms + row, norm, mask=written)
    tl.store(o + row[:, None] * v_width + e, total, mask=written[:, None] & (e < v_width))


@triton.jit
def join_splits(
    seq_lens,
    o,
    m,
    norms,
    out,
    splits,
    room,
    heads,
    width,
    lens_stride,
    out_strides,
    WIDE: tl.constexpr,
    STEP: tl.constexpr,
    BLOCK_S: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Write the output of one row: all of its splits are read at once, and added as a tree."""
    row = program(WIDE)
    batch = row // heads
    length = tl.load(seq_lens + batch * lens_stride).to(row.dtype)
    length = tl.maximum(tl.minimum(length, room), 0)
    segment = tl.maximum(covered(length, splits, STEP), 1)
    split = tl.arange(0, BLOCK_S).to(row.dtype)
    e = tl.arange(0, BLOCK).to(row.dtype)
    used = split * segment < length
    inside = e < width
    place = row * splits + split
    peaks = tl.load(m + place, mask=used, other=float("-inf"))
    parts = tl.load(norms + place, mask=used, other=0)
    own = tl.load(o + place[:, None] * width + e[None, :], mask=used[:, None] & inside[None, :], other=0)
    peak = tl.max(peaks, axis=0)
    weights = tl.exp2(peaks - tl.where(peak == float("-inf"), 0.0, peak))
    norm = tl.sum(weights * parts, axis=0)
    total = tl.sum(weights[:, None] * own, axis=0)
    result = tl.where(norm == 0.0, 0.0, tl.div_rn(total, tl.zeros_like(total) + tl.where(norm == 0.0, 1.0, norm)))
    target = out + batch * out_strides[0] + row % heads * out_strides[1] + e * out_strides[2]
    tl.store(target, result.to(out.dtype.element_ty), mask=inside)


def bind(ctx: BindContext) -> Sequence[Launch]:
    """Bind ``paged_decode_attention``: the splits, then their joining."""
    q, k_pool, v_pool, table, lens = ctx.signature.tensors
    (out,) = ctx.signature.outputs
    if out.size == 0:
        return ()
    batch, heads, width = q.shape
    pages, kv_heads, page_tokens, v_width = v_pool.shape
    group = heads // kv_heads
    splits = paged_decode_splits(ctx.signature.axes["T"])
    # Without pages, or tokens in them, the table leads nowhere; lengths are of 32 bits.
    room = min(table.shape[1] * page_tokens, NARROW - 1) if pages else 0
    rounds_q = ctx.signature.attributes["q_dtype"] is not None and q.dtype is not k_pool.dtype
    on_matrix_unit = k_pool.dtype.bits == 16 and (q.dtype is k_pool.dtype or rounds_q) and has_matrix_unit(ctx)
    block_d = max(16, triton.next_power_of_2(width))
    block_dv = max(16, triton.next_power_of_2(v_width))
    keys, stages = _step(ctx, block_d + block_dv, on_matrix_unit)
    if on_matrix_unit:
        # The unit takes 16 rows at the least.
        block_g = min(max(16, triton.next_power_of_2(group)), 64 if max(block_d, block_dv) <= 128 else 32)
    else:
        # In registers more than 8 of float32 do not fit.
        block_g = min(8, triton.next_power_of_2(group))
    scale = ctx.signature.attributes["scale"]
    # The slack covers padded members of a group, whose offsets are computed and masked off.
    wide = (
        2 * max(reach(x.shape, x.strides) for x in (q, k_pool, v_pool, table, lens, out)) >= NARROW
        or batch * heads * splits * v_width >= NARROW // 2
        or room >= NARROW // 2
    )
    shared: dict[str, Argument] = {
        "seq_lens": "seq_lens",
        "o": "partial_o",
        "m": "partial_m",
        "norms": "partial_l",
        "splits": splits,
        "room": room,
        "lens_stride": lens.strides[0],
    }
    attend = launch(
        ctx,
        attend_split,
        programs=batch * kv_heads * triton.cdiv(group, block_g) * splits,
        arguments={
            **shared,
            "q": "q",
            "k_pool": "k_pool",
            "v_pool": "v_pool",
            "block_table": "block_table",
            "pages": pages,
            "kv_heads": kv_heads,
            "group": group,
            "width": width,
            "v_width": v_width,
            "scale": Scalar((max(width, 1) ** -0.5 if scale is None else scale) * 1.4426950408889634, "float32"),
            "q_strides": q.strides,
            "k_strides": k_pool.strides,
            "v_strides": v_pool.strides,
            "table_strides": table.strides,
        },
        constants={
            "ROUND": rounds_q,
            "LIMIT": float_format(k_pool.dtype).largest if rounds_q and k_pool.dtype.name == "float16" else 0.0,
            "WIDE": wide,
            "PAGE": max(page_tokens, 1),
            "STEP": LARGEST_STEP,
            "BLOCK_G": block_g,
            "BLOCK_N": keys,
            "BLOCK_D": block_d,
            "BLOCK_DV": block_dv,
        },
        options=Options(
            num_warps=8 if max(block_d, block_dv) > 128 else 4,
            num_stages=stages,
            enable_fp_fusion=True,
        ),
    )
    block_s = triton.next_power_of_2(splits)
    block = triton.next_power_of_2(v_width)
    join = launch(
        ctx,
        join_splits,
        programs=batch * heads,
        arguments={**shared, "out": "out", "heads": heads, "width": v_width, "out_strides": out.strides},
        constants={"WIDE": wide, "STEP": LARGEST_STEP, "BLOCK_S": block_s, "BLOCK": block},
        options=Options(num_warps=4 if block_s * block <= 8192 else 8, num_stages=1, enable_fp_fusion=True),
    )
    return (attend, join)


def _step(ctx: BindContext, width: int, on_matrix_unit: bool) -> tuple[int, int]:
    """Return how many keys a step takes and how many are under way: as set, or what the device has room for."""
    keys, stages = ctx.settings["keys"], ctx.settings["stages"]
    if not on_matrix_unit:
        return min(keys, 32), 2
    pools = [ctx.signature.tensor(name) for name in ("k_pool", "v_pool")]
    if width > 256 and any(x.strides[3] != 1 or x.strides[2] % 8 for x in pools):
        # Such rows are loaded element by element: many addresses.
        return min(keys, 32), 2
    available = ctx.device.fact("shared.bytes_per_block_optin")
    while keys > 32 and (stages - 1) * keys * width * 2 > available:
        keys //= 2
    while stages > 2 and (stages - 1) * keys * width * 2 > available:
        stages -= 1
    return keys, stages
