"""decode_attention: one query a sequence against a cache of keys; decode_attention_reduce: joining what splits left.

Both launches of the first are those of `split_attention`. How keys are split depends on their number alone, so a
sequence's bits do not depend on the batch. `reduce_splits`: one program adds up the splits of one row, ascending, as
the contract of ``decode_attention_reduce`` states. No atomics. Deterministic.
"""

from __future__ import annotations

from collections.abc import Sequence

import triton
import triton.language as tl

from nbx_registry.contracts.decoding import paged_decode_splits
from nbx_registry.launch import BindContext, Launch
from nbx_triton.compiler import Options
from nbx_triton.kernels.split_attention import Cache, attend_and_join
from nbx_triton.kernels.strided import NARROW, program, reach
from nbx_triton.launching import launch


@triton.jit
def reduce_splits(
    o,
    m,
    norms,
    out,
    splits,
    width,
    o_strides,
    m_strides,
    norm_strides,
    out_strides,
    WIDE: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Write one row. Strides of o are of row, split, element."""
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
    place = out + row * out_strides[0] + e * out_strides[1]
    tl.store(place, result.to(out.dtype.element_ty), mask=inside)


def cache_of(ctx: BindContext) -> Cache:
    """Return where the keys of a sequence are."""
    _, k, v, bias = ctx.signature.tensors
    return Cache(
        k,
        v,
        arguments={
            "k": "k",
            "v": "v",
            "block_table": None,
            "seq_lens": None,
            "bias": None if bias is None else "bias",
            "pages": 0,
            "table_strides": (0, 0),
            "lens_stride": 0,
            "bias_stride": 0 if bias is None else bias.strides[0],
        },
        room=k.shape[2],
        reach=0 if bias is None else reach(bias.shape, bias.strides),
    )


def bind(ctx: BindContext) -> Sequence[Launch]:
    """Bind ``decode_attention``: the splits, then their joining."""
    (out,) = ctx.signature.outputs
    if out.size == 0:
        return ()
    cache = cache_of(ctx)
    return attend_and_join(ctx, cache, paged_decode_splits(cache.room) * ctx.settings["parts"])


def bind_reduce(ctx: BindContext) -> Sequence[Launch]:
    """Bind ``decode_attention_reduce``."""
    o, m, norms = ctx.signature.tensors
    (out,) = ctx.signature.outputs
    if out.size == 0:
        return ()
    rows, splits, width = o.shape
    step = launch(
        ctx,
        reduce_splits,
        programs=rows,
        arguments={
            "o": "o",
            "m": "m",
            "norms": "l",
            "out": "out",
            "splits": splits,
            "width": width,
            "o_strides": o.strides,
            "m_strides": m.strides,
            "norm_strides": norms.strides,
            "out_strides": out.strides,
        },
        constants={
            "WIDE": max(reach(x.shape, x.strides) for x in (o, m, norms, out)) >= NARROW // 2,
            "BLOCK": triton.next_power_of_2(width),
        },
        options=Options(num_warps=4, num_stages=1, enable_fp_fusion=True),
    )
    return (step,)
