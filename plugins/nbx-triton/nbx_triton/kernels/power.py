"""pow: IEEE 754's, in float32 for the floating dtypes below it and rounded once; of integers by squaring, wrapping.

`dense` is for operands without gaps, a number in the place of one, and one exponent for all: a program raises
consecutive elements, each thread several vectors of 16 bytes. `strided` is for the rest: a program raises a tile of the
output's densest axis and of the others. Both are bound by memory for exponents that are whole and small; a general
exponent of 16-bit numbers takes about 40 instructions an element (H200: 160 us for 2^27 elements at 80 % of its issue
rate, where memory takes 126), one of float32 about 90.

An exponent that is the same for all elements is looked at once, by a branch that all programs take alike: 1, 2, ... 8
are repeated multiplication; `short_power` is for others that are small, of 16-bit numbers; `power` is for the rest and
for exponents of each element. Products and sums are contracted where `tl.fma` says so alone: the interpreter and all
devices find the same bits. Deterministic.
"""

from __future__ import annotations

from collections.abc import Sequence

import triton
import triton.language as tl

from nbx_registry.launch import BindContext, Launch, ScalarOf
from nbx_registry.space import Space
from nbx_registry.spec import TensorSpec
from nbx_triton.compiler import THREADS_PER_WARP, Options
from nbx_triton.kernels.astype import to_odd_float32
from nbx_triton.kernels.exponents import power, product, short_power
from nbx_triton.kernels.strided import NARROW, broadcast_strides, collapse, locate, program, reach
from nbx_triton.launching import Argument, launch

SETTINGS = Space(parameters={"vectors": (1, 2, 4), "warps": (4, 8)})
"""Of `dense`: vectors of 16 bytes a thread has of the widest operand, and warps of a program."""

VECTOR_BYTES = 16
TILE = 1024
"""Elements of a program of `strided`."""
SQUARE = 32
"""Most columns of a tile whose rows an operand has closer together than its columns."""


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
def raised(x, e, result: tl.constexpr, COMMON: tl.constexpr):
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
def number(x, result: tl.constexpr):
    """Return a number given in an operand's place as an element of ``result``, rounded once."""
    if x.dtype == tl.float64 and result.primitive_bitwidth < 32:
        y = to_odd_float32(x).to(result)
    else:
        y = x.to(result)
    return y


@triton.jit
def fetch(x, offset, inside, result: tl.constexpr):
    """Return the elements at ``offset`` of an operand, 0 for those not ``inside``; or the number in its place."""
    if not x.dtype.is_ptr():
        y = number(x, result)
    elif inside is None:
        y = tl.load(x + offset)
    else:
        y = tl.load(x + offset, mask=inside, other=0)
    return y


@triton.jit
def block(x, e, out, first, lane, inside, COMMON: tl.constexpr):
    """Raise elements ``first + lane``, those ``inside`` or all."""
    result: tl.constexpr = out.dtype.element_ty
    a = fetch(x, first + lane, inside, result)
    if COMMON:
        b = fetch(e, 0, None, result)
    else:
        b = fetch(e, first + lane, inside, result)
    tl.store(out + first + lane, raised(a, b, result, COMMON).to(result), mask=inside)


@triton.jit
def dense(
    x,
    e,
    out,
    count,
    COMMON: tl.constexpr,
    EVEN: tl.constexpr,
    WIDE: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Raise ``BLOCK`` consecutive elements. ``x`` and ``e`` are as dense as ``out``, or numbers.

    COMMON: ``e`` is a number, or points to one. EVEN: ``BLOCK`` divides the count. Else only the last program looks
    whether elements are there: a mask whose end is no multiple of 16 would make every access one of single elements.
    """
    first = program(WIDE) * BLOCK
    lane = tl.arange(0, BLOCK)
    if EVEN:
        block(x, e, out, first, lane, None, COMMON)
    else:
        left = count - first
        if left >= BLOCK:
            block(x, e, out, first, lane, None, COMMON)
        else:
            block(x, e, out, first, lane, lane < left, COMMON)


@triton.jit
def strided(
    x,
    e,
    out,
    rows,
    columns,
    shape,
    x_strides,
    e_strides,
    out_strides,
    x_step,
    e_step,
    out_step,
    COMMON: tl.constexpr,
    WIDE: tl.constexpr,
    BLOCK_ROWS: tl.constexpr,
    BLOCK_COLUMNS: tl.constexpr,
):
    """Raise a tile of elements. Columns are one axis, rows (``rows`` of them, of ``shape``) count out the others."""
    result: tl.constexpr = out.dtype.element_ty
    tiles = (columns + BLOCK_COLUMNS - 1) // BLOCK_COLUMNS
    place = program(WIDE)
    row = (place // tiles) * BLOCK_ROWS + tl.arange(0, BLOCK_ROWS)
    column = (place % tiles) * BLOCK_COLUMNS + tl.arange(0, BLOCK_COLUMNS)
    inside = (row < rows)[:, None] & (column < columns)[None, :]
    a = fetch(x, locate(row, shape, x_strides)[:, None] + (column * x_step)[None, :], inside, result)
    if COMMON:
        b = fetch(e, 0, None, result)
    else:
        b = fetch(e, locate(row, shape, e_strides)[:, None] + (column * e_step)[None, :], inside, result)
    y = raised(a, b, result, COMMON).to(result)
    tl.store(out + locate(row, shape, out_strides)[:, None] + (column * out_step)[None, :], y, mask=inside)


def bind_dense(ctx: BindContext) -> Sequence[Launch]:
    """Bind ``pow`` over operands that are as dense as the output, numbers, or one exponent."""
    x, e = ctx.signature.operands
    (out,) = ctx.signature.outputs
    if out.size == 0:
        return ()
    warps = ctx.settings["warps"]
    common = e.weak or e.size == 1
    widest = max(spec.dtype.itemsize for spec in (out, x, e) if not spec.weak and spec.size == out.size)
    size = warps * THREADS_PER_WARP * ctx.settings["vectors"] * (VECTOR_BYTES // widest)
    step = launch(
        ctx,
        dense,
        programs=triton.cdiv(out.size, size),
        arguments={"x": _operand("x", x, out), "e": _operand("e", e, out), "out": "out", "count": out.size},
        constants={
            "COMMON": common,
            "EVEN": out.size % size == 0,
            "WIDE": out.size + size >= NARROW,
            "BLOCK": size,
        },
        options=Options(num_warps=warps, num_stages=1, enable_fp_fusion=False),
    )
    return (step,)


def bind_strided(ctx: BindContext) -> Sequence[Launch]:
    """Bind ``pow`` over operands of any strides."""
    x, e = ctx.signature.operands
    (out,) = ctx.signature.outputs
    if out.size == 0:
        return ()
    given = [(0,) * out.rank if spec.weak else broadcast_strides(spec.shape, spec.strides, out.rank) for spec in (x, e)]
    shape, out_strides, x_strides, e_strides = collapse(out.shape, out.strides, *given)
    every = (out_strides, x_strides, e_strides)
    across = _densest(out_strides)
    rows = [axis for axis in range(len(shape)) if axis != across]
    down = next((_densest(own) for own in every[1:] if _is_denser(own, across)), None)
    if down is not None:
        # A square tile, so that an operand whose neighbours lie along another axis is read in runs too.
        rows.remove(down)
        rows.append(down)
    columns, count = shape[across], out.size // shape[across]
    block_columns = min(TILE if down is None else SQUARE, triton.next_power_of_2(columns))
    block_rows = min(TILE // block_columns, triton.next_power_of_2(count))
    tiles = triton.cdiv(columns, block_columns) * triton.cdiv(count, block_rows)
    step = launch(
        ctx,
        strided,
        programs=tiles,
        arguments={
            "x": _operand("x", x, out),
            "e": _operand("e", e, out),
            "out": "out",
            "rows": count,
            "columns": columns,
            "shape": tuple(shape[axis] for axis in rows) or (1,),
            "x_strides": tuple(x_strides[axis] for axis in rows) or (0,),
            "e_strides": tuple(e_strides[axis] for axis in rows) or (0,),
            "out_strides": tuple(out_strides[axis] for axis in rows) or (0,),
            "x_step": x_strides[across],
            "e_step": e_strides[across],
            "out_step": out_strides[across],
        },
        constants={
            "COMMON": e.weak or e.size == 1,
            "WIDE": max(count + block_rows, columns + block_columns, tiles) >= NARROW
            or any(reach(shape, own) + abs(own[across]) * block_columns >= NARROW for own in every),
            "BLOCK_ROWS": block_rows,
            "BLOCK_COLUMNS": block_columns,
        },
        options=Options(num_warps=4, num_stages=1, enable_fp_fusion=False),
    )
    return (step,)


def _operand(name: str, spec: TensorSpec, out: TensorSpec) -> Argument:
    """Return the operand, or the number that the caller gives in its place, to be rounded once."""
    if not spec.weak:
        return name
    if out.dtype.floating:
        return ScalarOf(name, "float32" if out.dtype.bits == 32 else "float64")
    return ScalarOf(name, "uint64" if out.dtype.kind == "uint" else "int64")


def _densest(strides: Sequence[int]) -> int:
    """Return the axis along which neighbours are closest; a broadcast axis is none."""
    return min(range(len(strides)), key=lambda axis: (abs(strides[axis]) or NARROW, -axis))


def _is_denser(strides: Sequence[int], across: int) -> bool:
    """Whether an operand's neighbours are closer along another axis than along ``across``."""
    return strides[across] != 0 and abs(strides[_densest(strides)]) < abs(strides[across])
