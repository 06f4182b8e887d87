"""rotary_embedding: pairs of elements turned by the angle of their token's position.

One program turns ``BLOCK_TOKENS`` tokens of up to ``HEADS`` heads: the rows of the tables are read once for all of
them, and both members of a pair by the same thread. Arithmetic is float32, for float64 in float64. Deterministic.
"""

from __future__ import annotations

from collections.abc import Sequence

import triton
import triton.language as tl

from nbx_registry.launch import BindContext, Launch
from nbx_triton.compiler import Options
from nbx_triton.kernels.normalization import compute
from nbx_triton.kernels.strided import NARROW, collapse, locate, program, reach
from nbx_triton.launching import launch

OPTIONS = Options(num_warps=4, num_stages=1, enable_fp_fusion=True)
HEADS = 4
_PAIRS = 512
"""Most pairs of a head that a program turns."""
_PROGRAMS = 512
"""Tokens are shared out to so many programs before any turns several."""


@triton.jit
def turn(first, second, c, s):
    """Return the members of pairs after the turn."""
    a, b = compute(first), compute(second)
    return a * c.to(a.dtype) - b * s.to(a.dtype), b * c.to(a.dtype) + a * s.to(a.dtype)


@triton.jit
def rotate(
    x,
    position,
    cos,
    sin,
    out,
    tokens,
    heads,
    pairs,
    table_rows,
    position_shape,
    position_strides,
    shape,
    x_token_strides,
    out_token_strides,
    x_head,
    x_element,
    out_head,
    out_element,
    cos_strides,
    sin_strides,
    INTERLEAVED: tl.constexpr,
    HEADS: tl.constexpr,
    WIDE: tl.constexpr,
    BLOCK_TOKENS: tl.constexpr,
    BLOCK_PAIRS: tl.constexpr,
):
    """Write tokens of some heads. A token is numbered sequence * T + place; one past the tables is turned to zeros."""
    blocks = (heads + HEADS - 1) // HEADS
    number = program(WIDE)
    token = number // blocks * BLOCK_TOKENS + tl.arange(0, BLOCK_TOKENS)
    head = (number % blocks * HEADS + tl.arange(0, HEADS))[None, :, None]
    pair = tl.arange(0, BLOCK_PAIRS)[None, None, :].to(number.dtype)
    known = token < tokens
    row = tl.load(position + locate(token, position_shape, position_strides), mask=known, other=0).to(number.dtype)
    named = (known & (row >= 0) & (row < table_rows))[:, None, None] & (pair < pairs)
    known = known[:, None, None] & (head < heads)
    source = x + locate(token, shape, x_token_strides)[:, None, None] + head * x_head
    target = out + locate(token, shape, out_token_strides)[:, None, None] + head * out_head
    # Elements are under way before the tables, whose rows wait for positions.
    if INTERLEAVED:
        element = tl.arange(0, 2 * BLOCK_PAIRS)[None, None, :].to(number.dtype)
        inside = known & (element < 2 * pairs)
        both = tl.load(source + element * x_element, mask=inside, other=0)
        first, second = tl.split(tl.reshape(both, (BLOCK_TOKENS, HEADS, BLOCK_PAIRS, 2)))
    else:
        inside = known & (pair < pairs)
        first = tl.load(source + pair * x_element, mask=inside, other=0)
        second = tl.load(source + (pairs + pair) * x_element, mask=inside, other=0)
    row = row[:, None, None]
    c = tl.load(cos + row * cos_strides[0] + pair * cos_strides[1], mask=named, other=0)
    s = tl.load(sin + row * sin_strides[0] + pair * sin_strides[1], mask=named, other=0)
    a, b = turn(first, second, c, s)
    if INTERLEAVED:
        y = tl.reshape(tl.join(a, b), (BLOCK_TOKENS, HEADS, 2 * BLOCK_PAIRS)).to(out.dtype.element_ty)
        tl.store(target + element * out_element, y, mask=inside)
    else:
        tl.store(target + pair * out_element, a.to(out.dtype.element_ty), mask=inside)
        tl.store(target + (pairs + pair) * out_element, b.to(out.dtype.element_ty), mask=inside)


def bind(ctx: BindContext) -> Sequence[Launch]:
    """Bind ``rotary_embedding``, pairs half a width apart or interleaved."""
    x, position, cos, sin = ctx.signature.operands
    (out,) = ctx.signature.outputs
    if out.size == 0:
        return ()
    batch, heads, length, width = x.shape
    shape, x_tokens, out_tokens = collapse(
        (batch, length), (x.strides[0], x.strides[2]), (out.strides[0], out.strides[2])
    )
    position_shape, position_strides = collapse(position.shape, position.strides)
    block_pairs = triton.next_power_of_2(width // 2)
    blocks = triton.cdiv(heads, HEADS)
    most = min(_PAIRS // block_pairs, triton.next_power_of_2(triton.cdiv(batch * length * blocks, _PROGRAMS)))
    block_tokens = max(1, most)
    step = launch(
        ctx,
        rotate,
        programs=triton.cdiv(batch * length, block_tokens) * blocks,
        arguments={
            "x": "x",
            "position": "position",
            "cos": "cos",
            "sin": "sin",
            "out": "out",
            "tokens": batch * length,
            "heads": heads,
            "pairs": width // 2,
            "table_rows": cos.shape[0],
            "position_shape": position_shape,
            "position_strides": position_strides,
            "shape": shape,
            "x_token_strides": x_tokens,
            "out_token_strides": out_tokens,
            "x_head": x.strides[1],
            "x_element": x.strides[3],
            "out_head": out.strides[1],
            "out_element": out.strides[3],
            "cos_strides": cos.strides,
            "sin_strides": sin.strides,
        },
        constants={
            "INTERLEAVED": bool(ctx.signature.attributes["interleaved"]),
            "HEADS": HEADS,
            # A 64-bit position past the tables must not be cut to one inside them. Masked tokens, heads and pairs have
            # offsets too.
            "WIDE": position.dtype.bits == 64
            or max(2 * reach(spec.shape, spec.strides) + x.size for spec in (x, out, cos, sin, position)) >= NARROW
            or max(abs(stride) for spec in (x, out, cos, sin) for stride in spec.strides) * 2 * _PAIRS >= NARROW,
            "BLOCK_TOKENS": block_tokens,
            "BLOCK_PAIRS": block_pairs,
        },
        options=OPTIONS,
    )
    return (step,)
