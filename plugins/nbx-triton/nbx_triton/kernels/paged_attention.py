"""paged_decode_attention: one query a sequence against the keys in its pages. Lengths are read on the device.

Both launches are those of `split_attention`. A sequence's length is its own affair: others change nothing of its bits,
and a recorded graph attends the newest keys. What lies past a length is not read.

At the least a step reads the keys and values in use: 268 MB for 8 sequences of 8192 tokens, 8 heads of 128 in 16 bits.
"""

from __future__ import annotations

from collections.abc import Sequence

from nbx_registry.contracts.decoding import paged_decode_splits
from nbx_registry.launch import BindContext, Launch
from nbx_triton.kernels.split_attention import Cache, attend_and_join
from nbx_triton.kernels.strided import NARROW, reach


def cache_of(ctx: BindContext) -> Cache:
    """Return where the keys of a sequence are."""
    _, k_pool, v_pool, table, lens = ctx.signature.tensors
    pages, _, page_tokens, _ = v_pool.shape
    return Cache(
        k_pool,
        v_pool,
        arguments={
            "k": "k_pool",
            "v": "v_pool",
            "block_table": "block_table",
            "seq_lens": "seq_lens",
            "bias": None,
            "pages": pages,
            "table_strides": table.strides,
            "lens_stride": lens.strides[0],
            "bias_stride": 0,
        },
        # Without pages, or tokens in them, the table leads nowhere; lengths are of 32 bits.
        room=min(table.shape[1] * page_tokens, NARROW - 1) if pages else 0,
        page_tokens=max(page_tokens, 1),
        reach=max(reach(x.shape, x.strides) for x in (table, lens)),
    )


def bind(ctx: BindContext) -> Sequence[Launch]:
    """Bind ``paged_decode_attention``: the splits, then their joining."""
    (out,) = ctx.signature.outputs
    if out.size == 0:
        return ()
    return attend_and_join(ctx, cache_of(ctx), paged_decode_splits(ctx.signature.axes["T"]) * ctx.settings["parts"])
