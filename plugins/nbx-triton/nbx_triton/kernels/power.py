"""pow: IEEE 754's, in float32 for the floating dtypes below it and rounded once; of integers by squaring, wrapping.

Tensors are walked as `walk` says, by `dense` or `strided`. An exponent that is the same for all elements is looked at
once, by a branch that all programs take alike: 1, 2, ... 8 are repeated multiplication; `tabled_power` is for others
above 0 and below 2.5 of dense 16-bit numbers; `short_power` for those up to 2 in magnitude; `power` for the rest and
for exponents of each element. An element takes about 17 instructions by the table (bfloat16: 24), 40 by `short_power`
and 90 by `power` in float32; the memory of an H200 leaves time for 28 of an element of 2 bytes. Products and sums are
contracted where `tl.fma` says so alone: the interpreter and all devices find the same bits. Deterministic.
"""

from __future__ import annotations

from collections.abc import Sequence

import triton
import triton.language as tl

from nbx_registry.launch import BindContext, Launch, ScalarOf
from nbx_registry.space import Space
from nbx_triton.kernels.exponents import power, product, short_power
from nbx_triton.kernels.strided import program
from nbx_triton.kernels.tabled_power import tabled_power
from nbx_triton.kernels.walk import (
    Operand,
    Request,
    consecutive,
    number,
    operand,
    rest,
    run,
    tile,
    walk_dense,
    walk_strided,
    whole_vectors,
)
from nbx_triton.launching import Pointer

SETTINGS = Space(parameters={"vectors": (1, 2, 4, 8), "warps": (4, 8)})
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
def floating_power(WAY: tl.constexpr, x, e, SHORT: tl.constexpr, NARROW_RANGE: tl.constexpr):
    """Return x^e in the dtype of both, float32 or float64.

    WAY: of each element its own exponent ("each"), or one for all, with a branch for what it needs ("common"), or which
    is known to need "product", "table", "short" or "power". SHORT: x and e have at most 11 significant bits;
    NARROW_RANGE: as float16 has them.
    """
    if WAY == "product":
        y = product(x, e)
    elif WAY == "table":
        y = tabled_power(x, e, NARROW_RANGE)
    elif WAY == "short":
        y = short_power(x, e, NARROW_RANGE)
    elif WAY == "power":
        y = power(x, e, not NARROW_RANGE)
    elif WAY == "common":
        if is_small_whole(e):
            y = product(x, e)
        else:
            if SHORT:
                if is_short(e):
                    y = short_power(x, e, NARROW_RANGE)
                else:
                    y = power(x, e, not NARROW_RANGE)
            else:
                y = power(x, e, True)
    else:
        y = power(x, e, not NARROW_RANGE)
        # Those that the general way does not round well enough.
        square = x * x
        y = tl.where(e == 3.0, square * x, tl.where(e == 2.0, square, tl.where(e == 1.0, x, y)))
    return y


@triton.jit
def is_small_whole(e):
    """Whether a number is 1, 2, ... or 8."""
    return (tl.floor(e) == e) & (e >= 1.0) & (e <= 8.0)


@triton.jit
def is_short(e):
    """Whether a number is no integer, and at most 2 in magnitude."""
    return (tl.floor(e) != e) & (tl.abs(e) <= 2.0)


@triton.jit
def is_tabled(e):
    """Whether a number is one that `tabled_power` takes."""
    return (tl.floor(e) != e) & (e > 0.0) & (e < 2.5)


@triton.jit
def raised(WAY: tl.constexpr, x, e, absent, result: tl.constexpr):  # noqa: ARG001 - what the walk hands over
    """Return x^e, in what an element of ``result`` is computed in; operands of any dtype that converts to it."""
    if result.is_floating():
        if result == tl.float64:
            y = floating_power(WAY, x.to(tl.float64), e.to(tl.float64), False, False)
        else:
            a = x.to(tl.float32)
            b = e.to(tl.float32)
            y = floating_power(WAY, a, b, result.primitive_bitwidth < 32, result == tl.float16)
    else:
        if result.primitive_bitwidth == 64:
            y = integer_power(x, e, result, WAY == "common")
        elif result.is_int_unsigned():
            y = integer_power(x, e, tl.uint32, WAY == "common")
        else:
            y = integer_power(x, e, tl.int32, WAY == "common")
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
def tabled(given, out, count, first, EVEN: tl.constexpr, VECTOR: tl.constexpr, BLOCK: tl.constexpr):
    """Raise ``BLOCK`` elements from ``first`` on by a table.

    As `run` would, but that one offset serves the addresses of both tensors: two registers fewer, and a third more
    programs at a time.
    """
    result: tl.constexpr = out.dtype.element_ty
    width: tl.constexpr = given[0].dtype.element_ty.primitive_bitwidth
    lane = tl.arange(0, BLOCK)
    inside = whole_vectors(count, first, lane, EVEN)
    place = first + lane
    x = tl.load(tl.multiple_of(given[0] + place, width * VECTOR // 8), mask=inside)
    tl.store(out + place, raised("table", x, given[1], None, result).to(result), mask=inside)
    rest(raised, "table", given, out, count, first, EVEN, VECTOR, BLOCK)


@triton.jit
def quarters(
    WAY: tl.constexpr, given, out, count, first, EVEN: tl.constexpr, VECTOR: tl.constexpr, BLOCK: tl.constexpr
):
    """Raise ``BLOCK`` elements from ``first`` on, one quarter after the other: in fewer registers."""
    for quarter in range(4):
        run(raised, WAY, given, out, count, first + quarter * (BLOCK // 4), EVEN, VECTOR, BLOCK // 4)


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
    """Raise consecutive elements. COMMON: the exponent is a number, or points to one.

    Numbers of 16 bits take one way all, each with its own loads, so that what all ways together need of registers is
    what the tabled one does. It is asked about first, having the least time to spare.
    """
    given = (operands[0], exponent(operands[1], COMMON), None)
    result: tl.constexpr = out.dtype.element_ty
    if COMMON and operands[0].dtype.is_ptr() and result.is_floating() and result.primitive_bitwidth == 16:
        first = program(WIDE) * BLOCK
        given = (operands[0], number(given[1], result), None)
        e = given[1].to(tl.float32)
        if is_tabled(e):
            tabled(given, out, count, first, EVEN, VECTOR, BLOCK)
        else:
            if is_small_whole(e):
                run(raised, "product", given, out, count, first, EVEN, VECTOR, BLOCK)
            else:
                if is_short(e):
                    quarters("short", given, out, count, first, EVEN, VECTOR, BLOCK)
                else:
                    quarters("power", given, out, count, first, EVEN, VECTOR, BLOCK)
    else:
        consecutive(raised, "common" if COMMON else "each", given, out, count, EVEN, WIDE, VECTOR, BLOCK)


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
        "common" if COMMON else "each",
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
    if e.weak and out.dtype.name == "float16":
        # Rounded on the host, where it is done once.
        exponents = Operand(ScalarOf("e", "float16"))
    else:
        exponents = operand("e", e, out, e.dtype)
    return Request(
        operands=(operand("x", x, out, x.dtype), Operand(exponents.argument) if common else exponents),
        out=Pointer("out", out.dtype, out.align),
        spec=out,
        constants={"COMMON": common},
        fused=False,
        elements=1024,
    )
