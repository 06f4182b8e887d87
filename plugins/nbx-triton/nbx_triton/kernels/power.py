"""pow: IEEE 754's, in float32 for the floating dtypes below it and rounded once; of integers by squaring, wrapping.

Tensors are walked as `walk` says, by `dense` or `strided`. Both are bound by memory for exponents that are whole and
small; a general exponent of 16-bit numbers takes about 40 instructions an element (H200: 160 us for 2^27 elements at
80 % of its issue rate, where memory takes 126), one of float32 about 90.

An exponent that is the same for all elements is looked at once, by a branch that all programs take alike: 1, 2, ... 8
are repeated multiplication; `short_power` is for others that are small, of 16-bit numbers; `power` is for the rest and
for exponents of each element. Products and sums are contracted where `tl.fma` says so alone: the interpreter and all
devices find the same bits. Deterministic.
"""

from __future__ import annotations

from collections.abc import Sequence

import triton
import triton.language as tl

from nbx_registry.launch import BindContext, Launch
from nbx_registry.space import Space
from nbx_triton.kernels.exponents import power, product, short_power
from nbx_triton.kernels.walk import Operand, Request, consecutive, operand, tile, walk_dense, walk_strided
from nbx_triton.launching import Pointer

SETTINGS = Space(parameters={"vectors": (1, 2, 4), "warps": (4, 8)})
"""Of `dense`: vectors of 16 bytes a thread has of the widest operand, and warps of a program."""


@triton.jit
def integer_power(x, e, wide: tl.constexpr, COMMON: tl.constexpr):
    """Return x^e of integers by squaring, modulo 2^bits of ``wide``. An e below zero is out of contract."""
    base = x.to(wide)
    left = e.to(wide)
    y = base * 0 + left * 0 + 1
    if COMMON:
        most = left
    else:
        most = tl.max(left)
    while most > 0:
        y = tl.where((left & 1) != 0, y * base, y)
        base *= base
        left = left >> 1
        most = most >> 1
    return y


@triton.jit
def floating_power(x, e, SHORT: tl.constexpr, NARROW_RANGE: tl.constexpr, COMMON: tl.constexpr):
    """Return x^e in the dtype of both, float32 or float64.

    COMMON: e is one number. SHORT: x and e have at most 11 significant bits; NARROW_RANGE: as float16 has them.
    """
    if COMMON:
        whole = tl.floor(e) == e
        if whole & (e >= 1.0) & (e <= 8.0):
            y = product(x, e)
        else:
            if SHORT:
                if whole | (tl.abs(e) > 2.0) | (e != e):
                    y = power(x, e, not NARROW_RANGE)
                else:
                    y = short_power(x, e, NARROW_RANGE)
            else:
                y = power(x, e, True)
    else:
        y = power(x, e, not NARROW_RANGE)
        # Those that the general way does not round well enough.
        square = x * x
        y = tl.where(e == 3.0, square * x, tl.where(e == 2.0, square, tl.where(e == 1.0, x, y)))
    return y


@triton.jit
def raised(COMMON: tl.constexpr, x, e, absent, result: tl.constexpr):  # noqa: ARG001 - what the walk hands over
    """Return x^e, in what an element of ``result`` is computed in; operands of any dtype that converts to it."""
    if result.is_floating():
        if result == tl.float64:
            y = floating_power(x.to(tl.float64), e.to(tl.float64), False, False, COMMON)
        else:
            a = x.to(tl.float32)
            b = e.to(tl.float32)
            y = floating_power(a, b, result.primitive_bitwidth < 32, result == tl.float16, COMMON)
    else:
        if result.primitive_bitwidth == 64:
            y = integer_power(x, e, result, COMMON)
        elif result.is_int_unsigned():
            y = integer_power(x, e, tl.uint32, COMMON)
        else:
            y = integer_power(x, e, tl.int32, COMMON)
    return y


@triton.jit
def exponent(e, COMMON: tl.constexpr):
    """Return the exponent for all, read if it lies in memory; one of each element's as it is given."""
    if COMMON and e.dtype.is_ptr():
        found = tl.load(e)
    else:
        found = e
    return found


@triton.jit
def dense(
    operands,
    out,
    count,
    COMMON: tl.constexpr,
    EVEN: tl.constexpr,
    WIDE: tl.constexpr,
    VECTOR: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Raise consecutive elements. COMMON: the exponent is a number, or points to one."""
    given = (operands[0], exponent(operands[1], COMMON), None)
    consecutive(raised, COMMON, given, out, count, EVEN, WIDE, VECTOR, BLOCK)


@triton.jit
def strided(
    operands,
    out,
    rows,
    columns,
    shape,
    strides,
    out_strides,
    steps,
    out_step,
    COMMON: tl.constexpr,
    WIDE: tl.constexpr,
    BLOCK_ROWS: tl.constexpr,
    BLOCK_COLUMNS: tl.constexpr,
):
    """Raise a tile of elements; COMMON as for `dense`."""
    given = (operands[0], exponent(operands[1], COMMON), None)
    tile(
        raised,
        COMMON,
        given,
        out,
        rows,
        columns,
        shape,
        strides,
        out_strides,
        steps,
        out_step,
        WIDE,
        BLOCK_ROWS,
        BLOCK_COLUMNS,
    )


def bind_dense(ctx: BindContext) -> Sequence[Launch]:
    """Bind ``pow`` over operands that are as dense as the output, numbers, or one exponent."""
    return walk_dense(ctx, dense, _request(ctx))


def bind_strided(ctx: BindContext) -> Sequence[Launch]:
    """Bind ``pow`` over operands of any strides."""
    return walk_strided(ctx, strided, _request(ctx))


def _request(ctx: BindContext) -> Request:
    x, e = ctx.signature.operands
    (out,) = ctx.signature.outputs
    common = e.weak or e.size == 1
    exponents = operand("e", e, out, e.dtype)
    return Request(
        operands=(operand("x", x, out, x.dtype), Operand(exponents.argument) if common else exponents),
        out=Pointer("out", out.dtype, out.align),
        spec=out,
        constants={"COMMON": common},
        fused=False,
        elements=1024,
    )
