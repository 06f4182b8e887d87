"""scaled_dot_product_attention: online softmax over tiles of keys, one program a tile of queries of one head.

The algorithm is FlashAttention's (T. Dao, "FlashAttention-2", 2023): running maximum, sum and unnormalised output in
float32. Head extents are padded to a power of two with zeros, which add nothing; the scale is that of the extent
itself. Keys are visited in ascending order by one program. Deterministic.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import triton
import triton.language as tl

from nbx_registry.launch import BindContext, Launch, Scalar
from nbx_triton.compiler import Options
from nbx_triton.kernels.strided import NARROW, broadcast_strides, program, reach
from nbx_triton.launching import Argument, has_matrix_unit, launch


@triton.jit
def attend(
    q,
    k,
    v,
    mask,
    out,
    queries,
    keys,
    heads,
    heads_per_kv,
    width,
    v_width,
    scale,
    q_strides,
    k_strides,
    v_strides,
    mask_strides,
    out_strides,
    CAUSAL: tl.constexpr,
    WIDE: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_D: tl.constexpr,
    BLOCK_DV: tl.constexpr,
):
    """Write attention of ``BLOCK_M`` queries of one head; a query with nothing to attend gets 0.

    Strides are of batch, head, token, element. A mask is bool (true attends) or a number to add. CAUSAL aligns the last
    query with the last key. ``scale`` includes no log2(e).
    """
    number = program(WIDE)
    tiles = (queries + BLOCK_M - 1) // BLOCK_M
    tile = number % tiles
    head = number // tiles % heads
    batch = number // tiles // heads
    kv_head = head // heads_per_kv

    row = tile * BLOCK_M + tl.arange(0, BLOCK_M)
    here = (row < queries)[:, None]
    d = tl.arange(0, BLOCK_D).to(row.dtype)
    e = tl.arange(0, BLOCK_DV).to(row.dtype)
    n = tl.arange(0, BLOCK_N).to(row.dtype)

    q_tile = q + batch * q_strides[0] + head * q_strides[1] + row[:, None] * q_strides[2] + d[None, :] * q_strides[3]
    query = tl.load(q_tile, mask=here & (d < width)[None, :], other=0)
    k_tile = k + batch * k_strides[0] + kv_head * k_strides[1] + d[:, None] * k_strides[3]
    v_tile = v + batch * v_strides[0] + kv_head * v_strides[1] + e[None, :] * v_strides[3]

    peak = tl.full((BLOCK_M,), float("-inf"), tl.float32)
    norm = tl.zeros((BLOCK_M,), tl.float32)
    total = tl.zeros((BLOCK_M, BLOCK_DV), tl.float32)
    last = keys
    if CAUSAL:
        last = tl.maximum(tl.minimum(keys, (tile + 1) * BLOCK_M + keys - queries), 0)
    for at in range(0, last, BLOCK_N):
        column = at + n
        known = column < keys
        key = tl.load(k_tile + column[None, :] * k_strides[2], mask=known[None, :] & (d < width)[:, None], other=0)
        score = tl.dot(query, key, input_precision="ieee") * scale
        attends = known[None, :] & here
        if CAUSAL:
            attends = attends & (column[None, :] <= row[:, None] + (keys - queries))
        if mask is not None:
            place = batch * mask_strides[0] + head * mask_strides[1] + row[:, None] * mask_strides[2]
            rule = tl.load(mask + place + column[None, :] * mask_strides[3], mask=attends, other=0)
            if mask.dtype.element_ty == tl.int1:
                attends = attends & rule
            else:
                score += rule.to(tl.float32)
        score = tl.where(attends, score, float("-inf"))
        new = tl.maximum(peak, tl.max(score, axis=1))
        # While there is nothing but -inf, any finite number in its place leaves the sums at 0.
        anchor = tl.where(new == float("-inf"), 0.0, new)
        p = tl.exp2((score - anchor[:, None]) * 1.4426950408889634)
        shrink = tl.exp2((peak - anchor) * 1.4426950408889634)
        norm = norm * shrink + tl.sum(p, axis=1)
        value = tl.load(v_tile + column[:, None] * v_strides[2], mask=known[:, None] & (e < v_width)[None, :], other=0)
        # Matrix units take both operands in one dtype; the contract allows for what p loses.
        total = tl.dot(p.to(value.dtype), value, total * shrink[:, None], input_precision="ieee")
        peak = new
    result = tl.div_rn(total, tl.where(norm == 0.0, 1.0, norm)[:, None])
    target = out + batch * out_strides[0] + head * out_strides[1] + row[:, None] * out_strides[2]
    tl.store(target + e[None, :] * out_strides[3], result.to(out.dtype.element_ty), mask=here & (e < v_width)[None, :])


class _Tile(NamedTuple):
    m: int
    n: int
    warps: int
    stages: int


def _tile(ctx: BindContext, bits: int, width: int, queries: int) -> _Tile:
    """Return a tile whose operands fit the registers, and the shared memory of every architecture it is used on."""
    if bits == 32 or not has_matrix_unit(ctx):
        if width <= 128:
            return _Tile(32, 32, 4 if width <= 64 else 8, 1)
        # Operands of 32 keys pass through 100 KiB of shared memory, which not every architecture gives a block.
        return _Tile(16, 32 if ctx.device.fact("shared.bytes_per_block_optin") >= 2**17 else 16, 8, 1)
    if queries <= 16:
        return _Tile(16, 64, 4, 2) if width <= 128 else _Tile(16, 32, 4, 2)
    return _Tile(64, 64, 4, 2) if width <= 128 else _Tile(64, 32, 8, 2)


def bind(ctx: BindContext) -> Sequence[Launch]:
    """Bind ``scaled_dot_product_attention``."""
    q, k, v, mask = ctx.signature.tensors
    (out,) = ctx.signature.outputs
    if out.size == 0:
        return ()
    batch, heads, queries, width = q.shape
    _, kv_heads, keys, v_width = v.shape
    block_d = max(16, triton.next_power_of_2(width))
    block_dv = max(16, triton.next_power_of_2(v_width))
    tile = _tile(ctx, q.dtype.bits, max(block_d, block_dv), queries)
    scale = ctx.signature.attributes["scale"]
    arguments: dict[str, Argument] = {
        "q": "q",
        "k": "k",
        "v": "v",
        "mask": None if mask is None else "mask",
        "out": "out",
        "queries": queries,
        "keys": keys,
        "heads": heads,
        "heads_per_kv": heads // kv_heads,
        "width": width,
        "v_width": v_width,
        "scale": Scalar(max(width, 1) ** -0.5 if scale is None else scale, "float32"),
        "q_strides": q.strides,
        "k_strides": k.strides,
        "v_strides": v.strides,
        "mask_strides": (0, 0, 0, 0) if mask is None else broadcast_strides(mask.shape, mask.strides, 4),
        "out_strides": out.strides,
    }
    farthest = max(reach(x.shape, x.strides) for x in (q, k, v, out))
    if mask is not None:
        farthest = max(farthest, reach(mask.shape, mask.strides))
    programs = batch * heads * triton.cdiv(queries, tile.m)
    step = launch(
        ctx,
        attend,
        programs=programs,
        arguments=arguments,
        constants={
            "CAUSAL": bool(ctx.signature.attributes["causal"]),
            # The slack covers padded rows and elements, whose offsets are computed and masked off.
            "WIDE": 2 * farthest >= NARROW or programs >= NARROW // 128,
            "BLOCK_M": tile.m,
            "BLOCK_N": tile.n,
            "BLOCK_D": block_d,
            "BLOCK_DV": block_dv,
        },
        options=Options(num_warps=tile.warps, num_stages=tile.stages, enable_fp_fusion=True),
    )
    return (step,)
