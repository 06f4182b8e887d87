"""decode_attention: one query a sequence against a cache of keys, split into segments; and the reduction over splits.

`partial_attention`: one program attends one segment of keys of one sequence and KV head, for up to 16 of the query
heads that share it, and writes the unnormalised output, the maximum and the sum, in float32. `reduce_splits`: one
program adds up the splits of one row, ascending, as the contract of ``decode_attention_reduce`` states. No atomics; how
keys are split depends on their number alone, so a sequence's bits do not depend on the batch. Deterministic.
"""

from __future__ import annotations

from collections.abc import Sequence

import triton
import triton.language as tl

from nbx_registry.contracts.decoding import paged_decode_splits
from nbx_registry.launch import BindContext, Launch, Scalar
from nbx_registry.rounding import float_format
from nbx_triton.compiler import Options
from nbx_triton.kernels.strided import NARROW, program, reach
from nbx_triton.launching import Argument, has_matrix_unit, launch

LARGEST_TILE = 128
"""Every key tile divides this; segments are multiples of it."""


@triton.jit
def partial_attention(
    q,
    k,
    v,
    bias,
    o,
    m,
    norms,
    keys,
    splits,
    segment,
    kv_heads,
    group,
    width,
    v_width,
    scale,
    q_strides,
    k_strides,
    v_strides,
    bias_stride,
    ROUND: tl.constexpr,
    LIMIT: tl.constexpr,
    WIDE: tl.constexpr,
    BLOCK_G: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_D: tl.constexpr,
    BLOCK_DV: tl.constexpr,
):
    """Write ``o[row, split]``, ``m`` and ``norms`` of one segment; an empty one gives 0, -inf and 0.

    row is sequence * query heads + head.

    Strides are of batch, head, (token,) element. ROUND takes q to the cache's dtype, clamping finite values to LIMIT
    where that is above 0; without it, products of different dtypes are of float32.
    """
    number = program(WIDE)
    tiles = (group + BLOCK_G - 1) // BLOCK_G
    split = number % splits
    tile = number // splits % tiles
    kv_head = number // splits // tiles % kv_heads
    batch = number // splits // tiles // kv_heads

    member = tile * BLOCK_G + tl.arange(0, BLOCK_G)
    head = kv_head * group + member
    here = (member < group)[:, None]
    d = tl.arange(0, BLOCK_D).to(number.dtype)
    e = tl.arange(0, BLOCK_DV).to(number.dtype)
    n = tl.arange(0, BLOCK_N).to(number.dtype)

    place = q + batch * q_strides[0] + head[:, None] * q_strides[1] + d[None, :] * q_strides[2]
    query = tl.load(place, mask=here & (d < width)[None, :], other=0)
    if ROUND:
        wide = query.to(tl.float32)
        if LIMIT > 0:
            finite = tl.abs(wide) < float("inf")
            wide = tl.where(finite & (wide > LIMIT), LIMIT, tl.where(finite & (wide < -LIMIT), -LIMIT, wide))
        query = wide.to(k.dtype.element_ty)
    k_tile = k + batch * k_strides[0] + kv_head * k_strides[1] + d[:, None] * k_strides[3]
    v_tile = v + batch * v_strides[0] + kv_head * v_strides[1] + e[None, :] * v_strides[3]

    peak = tl.full((BLOCK_G,), float("-inf"), tl.float32)
    norm = tl.zeros((BLOCK_G,), tl.float32)
    total = tl.zeros((BLOCK_G, BLOCK_DV), tl.float32)
    first = split * segment
    last = tl.minimum(first + segment, keys)
    for at in range(first, last, BLOCK_N):
        column = at + n
        known = column < last
        key = tl.load(k_tile + column[None, :] * k_strides[2], mask=known[None, :] & (d < width)[:, None], other=0)
        if query.dtype == key.dtype:
            score = tl.dot(query, key, input_precision="ieee")
        else:
            score = tl.dot(query.to(tl.float32), key.to(tl.float32), input_precision="ieee")
        score *= scale
        if bias is not None:
            score += tl.load(bias + column * bias_stride, mask=known, other=0).to(tl.float32)[None, :]
        score = tl.where(known[None, :], score, float("-inf"))
        new = tl.maximum(peak, tl.max(score, axis=1))
        anchor = tl.where(new == float("-inf"), 0.0, new)
        p = tl.exp2((score - anchor[:, None]) * 1.4426950408889634)
        shrink = tl.exp2((peak - anchor) * 1.4426950408889634)
        norm = norm * shrink + tl.sum(p, axis=1)
        value = tl.load(v_tile + column[:, None] * v_strides[2], mask=known[:, None] & (e < v_width)[None, :], other=0)
        # Matrix units take both operands in one dtype; the contract allows for what p loses.
        total = tl.dot(p.to(value.dtype), value, total * shrink[:, None], input_precision="ieee")
        peak = new
    # Maxima pass over NaN: a row of nothing else would look like one with nothing to attend.
    peak = tl.where(norm != norm, norm, peak)
    row = (batch * kv_heads * group + head) * splits + split
    tl.store(m + row, peak, mask=member < group)
    tl.store(norms + row, norm, mask=member < group)
    tl.store(o + row[:, None] * v_width + e[None, :], total, mask=here & (e < v_width)[None, :])


@triton.jit
def reduce_splits(
    o,
    m,
    norms,
    out,
    splits,
    heads,
    width,
    o_strides,
    m_strides,
    norm_strides,
    out_strides,
    WIDE: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Write the output of one row.

    ``o_strides`` are of row, split, element; ``out_strides`` of row // heads, row % heads, element.
    """
    row = program(WIDE)
    e = tl.arange(0, BLOCK).to(row.dtype)
    inside = e < width
    peak = tl.full((1,), float("-inf"), tl.float32)
    norm = tl.zeros((1,), tl.float32)
    total = tl.zeros((BLOCK,), tl.float32)
    for split in range(splits):
        own_peak = tl.load(m + row * m_strides[0] + split * m_strides[1] + tl.zeros((1,), tl.int32))
        own_norm = tl.load(norms + row * norm_strides[0] + split * norm_strides[1] + tl.zeros((1,), tl.int32))
        own = tl.load(o + row * o_strides[0] + split * o_strides[1] + e * o_strides[2], mask=inside, other=0)
        new = tl.maximum(peak, own_peak, propagate_nan=tl.PropagateNan.ALL)
        counts = new != float("-inf")
        shrink = tl.exp2((peak - new) * 1.4426950408889634)
        own_shrink = tl.exp2((own_peak - new) * 1.4426950408889634)
        total = tl.where(counts, shrink * total + own_shrink * own, total)
        norm = tl.where(counts, shrink * norm + own_shrink * own_norm, norm)
        peak = new
    result = tl.where(norm == 0.0, 0.0, tl.div_rn(total, tl.where(norm == 0.0, 1.0, norm)))
    target = out + row // heads * out_strides[0] + row % heads * out_strides[1] + e * out_strides[2]
    tl.store(target, result.to(out.dtype.element_ty), mask=inside)


def bind(ctx: BindContext) -> Sequence[Launch]:
    """Bind ``decode_attention``: the partial launch, then the reduction."""
    q, k, v, bias = ctx.signature.tensors
    (out,) = ctx.signature.outputs
    if out.size == 0:
        return ()
    batch, heads, width = q.shape
    _, kv_heads, keys, v_width = v.shape
    group = heads // kv_heads
    splits = paged_decode_splits(keys)
    segment = triton.cdiv(triton.cdiv(keys, splits), LARGEST_TILE) * LARGEST_TILE
    block_d = max(16, triton.next_power_of_2(width))
    block_dv = max(16, triton.next_power_of_2(v_width))
    rounds_q = ctx.signature.attributes["q_dtype"] is not None and q.dtype is not k.dtype
    on_matrix_unit = k.dtype.bits == 16 and (q.dtype is k.dtype or rounds_q) and has_matrix_unit(ctx)
    # The matrix unit takes 16 rows at the least; in registers more than 8 of float32 do not fit.
    block_g = 16 if on_matrix_unit else min(8, triton.next_power_of_2(group))
    scale = ctx.signature.attributes["scale"]
    # The slack covers padded members of a group, whose offsets are computed and masked off.
    wide = 2 * max(reach(x.shape, x.strides) for x in (q, k, v)) >= NARROW or batch * heads * splits * v_width >= NARROW
    arguments: dict[str, Argument] = {
        "q": "q",
        "k": "k",
        "v": "v",
        "bias": None if bias is None else "bias",
        "o": "partial_o",
        "m": "partial_m",
        "norms": "partial_l",
        "keys": keys,
        "splits": splits,
        "segment": segment,
        "kv_heads": kv_heads,
        "group": group,
        "width": width,
        "v_width": v_width,
        "scale": Scalar(max(width, 1) ** -0.5 if scale is None else scale, "float32"),
        "q_strides": q.strides,
        "k_strides": k.strides,
        "v_strides": v.strides,
        "bias_stride": 0 if bias is None else bias.strides[0],
    }
    partial = launch(
        ctx,
        partial_attention,
        programs=batch * kv_heads * triton.cdiv(group, block_g) * splits,
        arguments=arguments,
        constants={
            "ROUND": rounds_q,
            "LIMIT": float_format(k.dtype).largest if rounds_q and k.dtype.name == "float16" else 0.0,
            "WIDE": wide,
            "BLOCK_G": block_g,
            "BLOCK_N": 64 if max(block_d, block_dv) <= 128 and on_matrix_unit else 32,
            "BLOCK_D": block_d,
            "BLOCK_DV": block_dv,
        },
        options=Options(num_warps=4, num_stages=2, enable_fp_fusion=True),
    )
    reduce = _reduce(
        ctx,
        names=("partial_o", "partial_m", "partial_l"),
        rows=batch * heads,
        heads=heads,
        splits=splits,
        width=v_width,
        strides=((splits * v_width, v_width, 1), (splits, 1), (splits, 1)),
        out_strides=out.strides,
        wide=wide,
    )
    return (partial, reduce)


def bind_reduce(ctx: BindContext) -> Sequence[Launch]:
    """Bind ``decode_attention_reduce``."""
    o, m, norms = ctx.signature.tensors
    (out,) = ctx.signature.outputs
    if out.size == 0:
        return ()
    rows, splits, width = o.shape
    step = _reduce(
        ctx,
        names=("o", "m", "l"),
        rows=rows,
        heads=1,
        splits=splits,
        width=width,
        strides=(o.strides, m.strides, norms.strides),
        out_strides=(out.strides[0], 0, out.strides[1]),
        wide=max(reach(x.shape, x.strides) for x in (o, m, norms, out)) >= NARROW // 2,
    )
    return (step,)


def _reduce(
    ctx: BindContext,
    *,
    names: tuple[str, str, str],
    rows: int,
    heads: int,
    splits: int,
    width: int,
    strides: tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]],
    out_strides: tuple[int, ...],
    wide: bool,
) -> Launch:
    o, m, norms = names
    return launch(
        ctx,
        reduce_splits,
        programs=rows,
        arguments={
            "o": o,
            "m": m,
            "norms": norms,
            "out": "out",
            "splits": splits,
            "heads": heads,
            "width": width,
            "o_strides": strides[0],
            "m_strides": strides[1],
            "norm_strides": strides[2],
            "out_strides": out_strides,
        },
        constants={"WIDE": wide, "BLOCK": triton.next_power_of_2(width)},
        options=Options(num_warps=4, num_stages=1, enable_fp_fusion=True),
    )
