"""scaled_dot_product_attention: online softmax over blocks of keys, one program a tile of queries of one head.

The algorithm is FlashAttention's (T. Dao, "FlashAttention-2", 2023): running maximum, sum and unnormalised output in
float32. Head extents are padded to a power of two with zeros, which add nothing; the scale is that of the extent
itself. Blocks of keys that every query of the tile sees come first, and take no comparison; then those that the last
key, causality or a mask cuts.

Exponents are of base 2. The scale times log2(e) is one factor, of a product and of the largest one alike: what its
rounding loses, both lose. It comes after the product, since a query times the scale would be rounded to 16 bits. The
sign of a scale goes to the queries: which product is the largest must not depend on it.

Where causality gives later queries more keys their tiles are numbered first. Heads are numbered in sections whose keys
and values fit the cache together, those that read the same ones side by side. `short` has all keys in one block, and
waits for memory once. Keys are visited in ascending order by one program. Deterministic.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import triton
import triton.language as tl
from triton.runtime.interpreter import InterpretedFunction

from nbx_registry.launch import BindContext, Launch, Scalar
from nbx_triton.compiler import Options
from nbx_triton.kernels.strided import NARROW, broadcast_strides, program, reach
from nbx_triton.launching import Argument, has_matrix_unit, launch

LOG2_E = 1.4426950408889634

CACHED = 2**23
"""Bytes of keys and values that are kept together. On an H200 a block of causal float16 [4, 32 / 8, 4096, 128] takes
8 % less time in sections of 8 MB than in one of all 67 MB."""


@triton.jit
def place(queries, heads, section, CAUSAL: tl.constexpr, WIDE: tl.constexpr, BLOCK_M: tl.constexpr):
    """Return the program's batch, head and tile of queries."""
    number = program(WIDE)
    tiles = (queries + BLOCK_M - 1) // BLOCK_M
    head = number // (tiles * section) * section + number % section
    tile = number % (tiles * section) // section
    if CAUSAL:
        tile = tiles - 1 - tile
    return head // heads, head % heads, tile


@triton.jit
def hide(score, factor, mask, strides, row, column, queries, keys, CAUSAL: tl.constexpr, MASK_ROWS: tl.constexpr):
    """Return scores with -inf where a query does not see a key, and with the mask added where that is a number.

    ``mask`` points to a head's. MASK_ROWS: it is not the same for every query.
    """
    attends = (column < keys)[None, :]
    if CAUSAL:
        attends = attends & (column[None, :] <= row[:, None] + (keys - queries))
    if mask is not None:
        if MASK_ROWS:
            inside = attends & (row < queries)[:, None]
            rule = tl.load(mask + row[:, None] * strides[2] + column[None, :] * strides[3], mask=inside, other=0)
        else:
            rule = tl.load(mask + column * strides[3], mask=column < keys, other=0)[None, :]
        if mask.dtype.element_ty == tl.int1:
            attends = attends & rule
        else:
            score = score * factor + rule.to(tl.float32)
    return tl.where(attends, score, float("-inf"))


@triton.jit
def power_of_two(x, FLUSH: tl.constexpr):
    """Return 2^x. FLUSH: 0 where that is below the normal numbers, for a fourth of the instructions (PTX)."""
    if FLUSH:
        y = tl.inline_asm_elementwise("ex2.approx.ftz.f32 $0, $1;", "=f,f", [x], dtype=tl.float32, is_pure=True, pack=1)
    else:
        y = tl.exp2(x)
    return y


@triton.jit
def merge(score, peak, factor, NATURAL: tl.constexpr, FLUSH: tl.constexpr):
    """Return the weights of scores, what earlier weights shrink by, and the largest score of each row yet.

    ``factor`` makes exponents of 2 of scores; NATURAL ones are exponents of e. While there is nothing but -inf, any
    finite number in place of the largest leaves the sums at 0.
    """
    new = tl.maximum(peak, tl.max(score, axis=1))
    if NATURAL:
        # A number that hides by being low may be finite when its multiple is not.
        anchor = tl.where(new == float("-inf"), 0.0, new)
        p = power_of_two((score - anchor[:, None]) * 1.4426950408889634, FLUSH)
        shrink = power_of_two((peak - anchor) * 1.4426950408889634, FLUSH)
    else:
        anchor = tl.where(new == float("-inf"), 0.0, new * factor)
        p = power_of_two(score * factor - anchor[:, None], FLUSH)
        shrink = power_of_two(peak * factor - anchor, FLUSH)
    return p, shrink, new


@triton.jit
def divide(total, norm):
    """Return weighted sums over the sums of weights, 0 where there is no weight."""
    return total * tl.div_rn(1.0, tl.where(norm == 0.0, 1.0, norm))[:, None]


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
    section,
    width,
    v_width,
    factor,
    q_strides,
    k_strides,
    v_strides,
    mask_strides,
    out_strides,
    SIGN: tl.constexpr,
    CAUSAL: tl.constexpr,
    NATURAL: tl.constexpr,
    MASK_ROWS: tl.constexpr,
    SHORT: tl.constexpr,
    SPLIT: tl.constexpr,
    EVEN: tl.constexpr,
    FLUSH: tl.constexpr,
    WIDE: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_D: tl.constexpr,
    BLOCK_DV: tl.constexpr,
):
    """Write attention of ``BLOCK_M`` queries of one head; a query with nothing to attend gets 0.

    Strides are of batch, head, token, element. A mask is bool (true attends) or, NATURAL, a number to add; ``factor``
    is the scale, times log2(e) unless NATURAL, without its sign SIGN. CAUSAL aligns the last query with the last key.
    SHORT: there are up to ``BLOCK_N`` keys. SPLIT: whole blocks come first, in a loop of their own. EVEN: the extents
    are ``BLOCK_D`` and ``BLOCK_DV``.
    """
    batch, head, tile = place(queries, heads, section, CAUSAL, WIDE, BLOCK_M)
    kv_head = head // heads_per_kv
    row = tile * BLOCK_M + tl.arange(0, BLOCK_M)
    here = (row < queries)[:, None]
    d = tl.arange(0, BLOCK_D).to(row.dtype)
    e = tl.arange(0, BLOCK_DV).to(row.dtype)
    n = tl.arange(0, BLOCK_N).to(row.dtype)
    across = (d < width)[None, :]
    v_across = (e < v_width)[None, :]

    q_tile = q + batch * q_strides[0] + head * q_strides[1] + row[:, None] * q_strides[2] + d[None, :] * q_strides[3]
    query = tl.load(q_tile, mask=here & across, other=0)
    if SIGN != 1:
        query = (query.to(tl.float32) * SIGN).to(query.dtype)
    k_tile = k + batch * k_strides[0] + kv_head * k_strides[1] + d[:, None] * k_strides[3]
    v_tile = v + batch * v_strides[0] + kv_head * v_strides[1] + e[None, :] * v_strides[3]
    if mask is not None:
        mask += batch * mask_strides[0] + head * mask_strides[1]

    peak = tl.full((BLOCK_M,), float("-inf"), tl.float32)
    norm = tl.zeros((BLOCK_M,), tl.float32)
    total = tl.zeros((BLOCK_M, BLOCK_DV), tl.float32)
    whole = 0
    last = keys
    if SHORT:
        # Values are under way with keys, and nothing of what is summed is 0 to begin with.
        last = 0
        key = tl.load(k_tile + n[None, :] * k_strides[2], mask=(n < keys)[None, :] & (d < width)[:, None], other=0)
        value = tl.load(v_tile + n[:, None] * v_strides[2], mask=(n < keys)[:, None] & v_across, other=0)
        score = tl.dot(query, key, input_precision="ieee")
        score = hide(score, factor, mask, mask_strides, row, n, queries, keys, CAUSAL, MASK_ROWS)
        p, _shrink, _peak = merge(score, peak, factor, NATURAL, FLUSH)
        norm = tl.sum(p, axis=1)
        total = tl.dot(p.to(value.dtype), value, input_precision="ieee")
    elif CAUSAL:
        last = tl.maximum(tl.minimum(keys, (tile + 1) * BLOCK_M + keys - queries), 0)
    if SPLIT:
        whole = keys
        if CAUSAL:
            whole = tl.maximum(tl.minimum(keys, tile * BLOCK_M + 1 + keys - queries), 0)
        whole = whole // BLOCK_N * BLOCK_N
        for at in range(0, whole, BLOCK_N):
            column = at + n
            if EVEN:
                key = tl.load(k_tile + column[None, :] * k_strides[2])
            else:
                key = tl.load(k_tile + column[None, :] * k_strides[2], mask=(d < width)[:, None], other=0)
            score = tl.dot(query, key, input_precision="ieee")
            p, shrink, peak = merge(score, peak, factor, False, FLUSH)
            norm = norm * shrink + tl.sum(p, axis=1)
            if EVEN:
                value = tl.load(v_tile + column[:, None] * v_strides[2])
            else:
                value = tl.load(v_tile + column[:, None] * v_strides[2], mask=v_across, other=0)
            # Matrix units take both operands in one dtype; the contract allows for what p loses.
            total = tl.dot(p.to(value.dtype), value, total * shrink[:, None], input_precision="ieee")
    for at in range(whole, last, BLOCK_N):
        column = at + n
        known = column < keys
        key = tl.load(k_tile + column[None, :] * k_strides[2], mask=known[None, :] & (d < width)[:, None], other=0)
        score = tl.dot(query, key, input_precision="ieee")
        score = hide(score, factor, mask, mask_strides, row, column, queries, keys, CAUSAL, MASK_ROWS)
        p, shrink, peak = merge(score, peak, factor, NATURAL, FLUSH)
        norm = norm * shrink + tl.sum(p, axis=1)
        value = tl.load(v_tile + column[:, None] * v_strides[2], mask=known[:, None] & v_across, other=0)
        total = tl.dot(p.to(value.dtype), value, total * shrink[:, None], input_precision="ieee")
    target = out + batch * out_strides[0] + head * out_strides[1] + row[:, None] * out_strides[2]
    result = divide(total, norm).to(out.dtype.element_ty)
    tl.store(target + e[None, :] * out_strides[3], result, mask=here & v_across)


class _Tile(NamedTuple):
    m: int
    n: int
    warps: int
    stages: int


def _tile(ctx: BindContext, width: int, mask_rows: bool) -> _Tile:
    """Return a tile whose operands fit the registers, and the shared memory of every architecture it is used on."""
    queries = ctx.signature.tensor("q").shape[2]
    if not _matrix(ctx):
        if width <= 128:
            return _Tile(32, 32, 4 if width <= 64 else 8, 1)
        # Operands of 32 keys pass through 100 KiB of shared memory, which not every architecture gives a block.
        return _Tile(16, 32 if ctx.device.fact("shared.bytes_per_block_optin") >= 2**17 else 16, 8, 1)
    if queries <= 16:
        return _Tile(16, 64, 4, 2) if width <= 128 else _Tile(16, 32, 4, 2)
    if width > 128:
        return _Tile(64, 32, 8, 2)
    # Addresses of a mask that differs from query to query take registers.
    n = 32 if mask_rows else 64
    stages = 3 if width <= 64 or ctx.device.fact("shared.bytes_per_block_optin") >= 2**17 + 2**14 else 2
    q = ctx.signature.tensor("q")
    large = q.shape[0] * q.shape[1] * triton.cdiv(queries, 128) >= 8 * ctx.device.fact("multiprocessors")
    return _Tile(128, n, 8, stages) if large else _Tile(64, n, 4, stages)


def _matrix(ctx: BindContext) -> bool:
    return ctx.signature.tensor("q").dtype.bits == 16 and has_matrix_unit(ctx)


def section_of(ctx: BindContext) -> int:
    """Return how many heads of all sequences are numbered together: as many as have their keys in the cache at once."""
    q, k, v, _ = ctx.signature.tensors
    heads = k.shape[0] * k.shape[1]
    nbytes = heads * k.shape[2] * (k.shape[3] + v.shape[3]) * k.dtype.bits // 8
    # As much again is in the cache without that.
    pieces = triton.cdiv(nbytes, CACHED) if nbytes > 2 * CACHED else 1
    pieces = next((n for n in range(pieces, heads) if heads % n == 0), heads)
    return heads // pieces * (q.shape[1] // k.shape[1])


def factor_of(ctx: BindContext) -> tuple[float, int]:
    """Return what makes exponents of 2 of products, or of e where a mask is added; and its sign or 0, left out."""
    q, _, _, mask = ctx.signature.tensors
    scale = ctx.signature.attributes["scale"]
    scale = max(q.shape[3], 1) ** -0.5 if scale is None else scale
    natural = mask is not None and mask.dtype.kind == "float"
    return (abs(scale) or 1.0) * (1.0 if natural else LOG2_E), (scale > 0) - (scale < 0)


def _launch(ctx: BindContext, tile: _Tile, constants: dict[str, bool]) -> Launch:
    """Return the launch of tiles, with the constants SHORT, SPLIT and EVEN."""
    q, k, v, mask = ctx.signature.tensors
    (out,) = ctx.signature.outputs
    batch, heads, queries, width = q.shape
    _, kv_heads, keys, v_width = v.shape
    factor, sign = factor_of(ctx)
    mask_strides = (0, 0, 0, 0) if mask is None else broadcast_strides(mask.shape, mask.strides, 4)
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
        "section": section_of(ctx),
        "width": width,
        "v_width": v_width,
        "factor": Scalar(factor, "float32"),
        "q_strides": q.strides,
        "k_strides": k.strides,
        "v_strides": v.strides,
        "mask_strides": mask_strides,
        "out_strides": out.strides,
    }
    farthest = max(reach(x.shape, x.strides) for x in (q, k, v, out))
    if mask is not None:
        farthest = max(farthest, reach(mask.shape, mask.strides))
    programs = batch * heads * triton.cdiv(queries, tile.m)
    return launch(
        ctx,
        attend,
        programs=programs,
        arguments=arguments,
        constants={
            "SIGN": sign,
            "CAUSAL": bool(ctx.signature.attributes["causal"]),
            "NATURAL": mask is not None and mask.dtype.kind == "float",
            "MASK_ROWS": mask_strides[2] != 0,
            # The contract lets weights below the normal numbers be 0. The interpreter knows no PTX, nor does AMD.
            "FLUSH": ctx.device.arch.startswith("sm_") and not isinstance(attend, InterpretedFunction),
            # The slack covers padded rows and elements, whose offsets are computed and masked off.
            "WIDE": 2 * farthest >= NARROW or programs >= NARROW // 128,
            "BLOCK_M": tile.m,
            "BLOCK_N": tile.n,
            "BLOCK_D": max(16, triton.next_power_of_2(width)),
            "BLOCK_DV": max(16, triton.next_power_of_2(v_width)),
            **constants,
        },
        options=Options(num_warps=tile.warps, num_stages=tile.stages, enable_fp_fusion=True),
    )


def bind(ctx: BindContext) -> Sequence[Launch]:
    """Bind ``scaled_dot_product_attention``."""
    q, _, v, mask = ctx.signature.tensors
    (out,) = ctx.signature.outputs
    if out.size == 0:
        return ()
    widths = {q.shape[3], v.shape[3]}
    # Those of one row are the same for every query.
    mask_rows = mask is not None and broadcast_strides(mask.shape, mask.strides, 4)[2] != 0
    tile = _tile(ctx, triton.next_power_of_2(max(16, *widths)), mask_rows)
    constants = {
        "SHORT": False,
        # Without a matrix unit comparisons are the least of it.
        "SPLIT": mask is None and _matrix(ctx),
        "EVEN": all(width == max(16, triton.next_power_of_2(width)) for width in widths),
    }
    return (_launch(ctx, tile, constants),)


def bind_short(ctx: BindContext) -> Sequence[Launch]:
    """Bind ``scaled_dot_product_attention`` of few keys."""
    q, k, _, _ = ctx.signature.tensors
    (out,) = ctx.signature.outputs
    if out.size == 0:
        return ()
    block_n = max(16, triton.next_power_of_2(k.shape[2]))
    block_m = min(64, max(16, triton.next_power_of_2(q.shape[2])))
    constants = {"SHORT": True, "SPLIT": False, "EVEN": False}
    return (_launch(ctx, _Tile(block_m, block_n, 4, 1), constants),)
