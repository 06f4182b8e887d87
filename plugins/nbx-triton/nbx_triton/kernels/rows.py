"""paged_kv_append: rows copied to where an index says. Bits are copied, or rounded once.

One program handles one token's vector of one head. Deterministic, unless two entries of ``slot`` are the same, which
the contract leaves open.
"""

from __future__ import annotations

from collections.abc import Sequence

import triton
import triton.language as tl

from nbx_registry.launch import BindContext, Launch
from nbx_registry.rounding import float_format
from nbx_triton.compiler import Options
from nbx_triton.kernels.strided import NARROW, program, reach
from nbx_triton.launching import launch

OPTIONS = Options(num_warps=4, num_stages=1, enable_fp_fusion=False)


@triton.jit
def paged_append(
    new,
    slot,
    pool,
    slots,
    page_tokens,
    heads,
    width,
    new_strides,
    slot_stride,
    pool_strides,
    LIMIT: tl.constexpr,
    WIDE: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Write one token's vector of one head to its place. A slot below 0 or past the pool writes nothing.

    ``new_strides`` are of token, head, element; ``pool_strides`` of page, head, position, element. LIMIT is the largest
    number to store where the contract saturates, else 0.
    """
    number = program(WIDE)
    token = number // heads
    head = number % heads
    place = tl.load(slot + token * slot_stride).to(number.dtype)
    kept = (place >= 0) & (place < slots)
    page = place // page_tokens
    position = place % page_tokens
    column = tl.arange(0, BLOCK).to(number.dtype)
    inside = kept & (column < width)
    data = tl.load(new + token * new_strides[0] + head * new_strides[1] + column * new_strides[2], mask=inside, other=0)
    if new.dtype.element_ty != pool.dtype.element_ty:
        data = data.to(tl.float32)
    if LIMIT > 0:
        wide = data.to(tl.float32)
        data = tl.where(wide > LIMIT, LIMIT, tl.where(wide < -LIMIT, -LIMIT, wide))
    target = pool + page * pool_strides[0] + head * pool_strides[1] + position * pool_strides[2]
    tl.store(target + column * pool_strides[3], data.to(pool.dtype.element_ty), mask=inside)


def bind_paged_kv_append(ctx: BindContext) -> Sequence[Launch]:
    """Bind ``paged_kv_append``, in place on the pool."""
    new, slot, pool = ctx.signature.tensors
    if new.size == 0 or pool.size == 0:
        return ()
    tokens, heads, width = new.shape
    pages, _, page_tokens, _ = pool.shape
    step = launch(
        ctx,
        paged_append,
        programs=tokens * heads,
        arguments={
            "new": "new",
            "slot": "slot",
            "pool": "pool",
            "slots": pages * page_tokens,
            "page_tokens": page_tokens,
            "heads": heads,
            "width": width,
            "new_strides": new.strides,
            "slot_stride": slot.strides[0],
            "pool_strides": pool.strides,
        },
        constants={
            "LIMIT": float_format(pool.dtype).largest if ctx.signature.attributes["saturate"] else 0.0,
            "WIDE": new.size >= NARROW
            or reach(pool.shape, pool.strides) >= NARROW
            or reach(new.shape, new.strides) >= NARROW,
            "BLOCK": triton.next_power_of_2(width),
        },
        options=OPTIONS,
    )
    return (step,)
