"""What a decoding step writes to the paged cache: paged_kv_append_step, paged_lens_advance.

`append_step` writes a step's keys and values to their places, which it finds from lengths on the device, so that a
recorded graph follows them; `advance` counts the tokens. No atomics. Deterministic.
"""

from __future__ import annotations

from collections.abc import Sequence

import triton
import triton.language as tl

from nbx_registry.launch import BindContext, Launch, Scalar
from nbx_registry.rounding import float_format
from nbx_triton.compiler import Options
from nbx_triton.kernels.strided import NARROW, program, reach
from nbx_triton.launching import Pointer, launch


@triton.jit
def stored(data, like: tl.constexpr, LIMIT: tl.constexpr):
    """Return numbers as elements of dtype ``like``, clamped to LIMIT where that is above 0."""
    if data.dtype != like:
        data = data.to(tl.float32)
    if LIMIT > 0:
        wide = data.to(tl.float32)
        data = tl.where(wide > LIMIT, LIMIT, tl.where(wide < -LIMIT, -LIMIT, wide))
    return data.to(like)


@triton.jit
def append_step(
    k_new,
    v_new,
    k_pool,
    v_pool,
    block_table,
    lens,
    pages,
    reached,
    heads,
    width,
    v_width,
    k_new_strides,
    v_new_strides,
    k_strides,
    v_strides,
    table_strides,
    lens_stride,
    LIMIT: tl.constexpr,
    WIDE: tl.constexpr,
    PAGE: tl.constexpr,
    BLOCK_H: tl.constexpr,
    BLOCK_D: tl.constexpr,
    BLOCK_DV: tl.constexpr,
):
    """Write keys and values of BLOCK_H heads of one sequence. Where the table has no page for them nothing is written.

    ``reached`` is how many pages a sequence may have. Strides of new rows are of sequence, head, element, those of
    pools of page, head, position, element. LIMIT is the largest number to store where the contract saturates, else 0.
    """
    number = program(WIDE)
    tiles = (heads + BLOCK_H - 1) // BLOCK_H
    batch = number // tiles
    head = (number % tiles * BLOCK_H + tl.arange(0, BLOCK_H))[:, None]
    d = tl.arange(0, BLOCK_D).to(number.dtype)[None, :]
    e = tl.arange(0, BLOCK_DV).to(number.dtype)[None, :]
    k_inside = (head < heads) & (d < width)
    v_inside = (head < heads) & (e < v_width)

    # What is to be written is under way while length and table say where to.
    length = tl.load(lens + batch * lens_stride).to(number.dtype)
    key = tl.load(
        k_new + batch * k_new_strides[0] + head * k_new_strides[1] + d * k_new_strides[2], mask=k_inside, other=0
    )
    value = tl.load(
        v_new + batch * v_new_strides[0] + head * v_new_strides[1] + e * v_new_strides[2], mask=v_inside, other=0
    )
    entry = tl.where(length < 0, reached, length // PAGE)
    page = tl.load(block_table + batch * table_strides[0] + entry * table_strides[1], mask=entry < reached, other=-1)
    kept = (page >= 0) & (page < pages)
    position = length % PAGE
    own = page.to(number.dtype)

    target = k_pool + own * k_strides[0] + head * k_strides[1] + position * k_strides[2] + d * k_strides[3]
    tl.store(target, stored(key, k_pool.dtype.element_ty, LIMIT), mask=k_inside & kept)
    target = v_pool + own * v_strides[0] + head * v_strides[1] + position * v_strides[2] + e * v_strides[3]
    tl.store(target, stored(value, v_pool.dtype.element_ty, LIMIT), mask=v_inside & kept)


@triton.jit
def advance(lens, count, n, stride, WIDE: tl.constexpr, BLOCK: tl.constexpr):
    """Add n to BLOCK lengths; sums wrap around."""
    index = program(WIDE) * BLOCK + tl.arange(0, BLOCK)
    inside = index < count
    place = lens + index * stride
    tl.store(place, tl.load(place, mask=inside, other=0) + n, mask=inside)


def bind_append_step(ctx: BindContext) -> Sequence[Launch]:
    """Bind ``paged_kv_append_step``, in place on both pools. Without conversion bits are copied, whatever they mean."""
    k_new, v_new, k_pool, v_pool, table, lens = ctx.signature.tensors
    pages, heads, page_tokens, v_width = v_pool.shape
    batch, _, width = k_new.shape
    if table.size == 0 or pages * heads * page_tokens * (width + v_width) == 0:
        return ()
    saturates = ctx.signature.attributes["saturate"]
    copies = k_new.dtype is k_pool.dtype and not saturates
    operands = {"k_new": k_new, "v_new": v_new, "k_pool": k_pool, "v_pool": v_pool}
    block_d, block_dv = (triton.next_power_of_2(max(extent, 1)) for extent in (width, v_width))
    block_h = max(1, min(triton.next_power_of_2(heads), 1024 // max(block_d, block_dv)))
    step = launch(
        ctx,
        append_step,
        programs=batch * triton.cdiv(heads, block_h),
        arguments={
            **{
                name: Pointer(name, f"int{x.dtype.bits}" if copies else x.dtype, x.align)
                for name, x in operands.items()
            },
            "block_table": "block_table",
            "lens": "lens",
            "pages": pages,
            "reached": table.shape[1],
            "heads": heads,
            "width": width,
            "v_width": v_width,
            "k_new_strides": k_new.strides,
            "v_new_strides": v_new.strides,
            "k_strides": k_pool.strides,
            "v_strides": v_pool.strides,
            "table_strides": table.strides,
            "lens_stride": lens.strides[0],
        },
        constants={
            "LIMIT": float_format(k_pool.dtype).largest if saturates else 0.0,
            # The slack covers padded heads, whose offsets are computed and masked off.
            "WIDE": 2 * max(reach(x.shape, x.strides) for x in (*operands.values(), table, lens)) >= NARROW,
            "PAGE": page_tokens,
            "BLOCK_H": block_h,
            "BLOCK_D": block_d,
            "BLOCK_DV": block_dv,
        },
        options=Options(num_warps=4, num_stages=1, enable_fp_fusion=False),
    )
    return (step,)


def bind_advance(ctx: BindContext) -> Sequence[Launch]:
    """Bind ``paged_lens_advance``, in place."""
    (lens,) = ctx.signature.tensors
    n = ctx.signature.attributes["n"]
    if lens.size == 0 or n == 0:
        return ()
    block = 256
    step = launch(
        ctx,
        advance,
        programs=triton.cdiv(lens.size, block),
        arguments={"lens": "lens", "count": lens.size, "n": Scalar(n, "int32"), "stride": lens.strides[0]},
        constants={"WIDE": max(lens.size + block, reach(lens.shape, lens.strides)) >= NARROW, "BLOCK": block},
        options=Options(num_warps=4, num_stages=1, enable_fp_fusion=False),
    )
    return (step,)
