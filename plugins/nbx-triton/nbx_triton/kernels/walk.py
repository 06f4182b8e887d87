"""Walking tensors: one value an element from up to three operands at the same place, numbers among them.

Two ways through memory serve every function of elements. Dense: operands without gaps and in the same order, so that
all axes are one; a program computes consecutive elements, each thread several vectors of 16 bytes. Their loads are
issued together where little is computed; where much is, the assembler spreads them out, in so few registers that all
warps fit and keep the memory busy. Strided: the rest; a program computes a tile of the output's densest axis and of the
others, counted out a row at a time, not an element at a time.

A kernel's own ``dense`` and ``strided`` hand `consecutive` and `tile` a function of (OP, x1, x2, x3, result): what was
fetched, in any dtype that converts to ``result``, and None for what is absent; OP is what that function takes it for.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import triton
import triton.language as tl

from nbx_registry.dtypes import DType
from nbx_registry.launch import BindContext, Launch, ScalarOf
from nbx_registry.spec import TensorSpec
from nbx_triton.compiler import THREADS_PER_WARP, Options
from nbx_triton.kernels.conversion import to_odd_float32
from nbx_triton.kernels.strided import NARROW, broadcast_strides, collapse, locate, program, reach
from nbx_triton.launching import Argument, Pointer, launch

VECTOR_BYTES = 16
OPERANDS = 3
ROWS = 32
"""Rows of a tile, if it has as many elements, where an operand has rows closer together than columns."""


@triton.jit
def number(x, result: tl.constexpr):
    """Return a number given in an operand's place as an element of ``result``, rounded once."""
    if x.dtype == tl.float64 and result.primitive_bitwidth < 32:
        y = to_odd_float32(x).to(result)
    else:
        y = x.to(result)
    return y


@triton.jit
def fetch_dense(x, first, lane, inside, result: tl.constexpr, VECTOR: tl.constexpr):
    """Return elements ``first + lane`` of an operand, the number in its place, or None."""
    if x is None:
        y = None
    elif x.dtype.is_ptr():
        # As many elements of each operand to a vector as of the widest: no values pass from thread to thread.
        width: tl.constexpr = x.dtype.element_ty.primitive_bitwidth
        y = tl.load(tl.multiple_of(x + first + lane, width * VECTOR // 8), mask=inside)
    else:
        y = number(x, result)
    return y


@triton.jit
def block(FUNCTION: tl.constexpr, OP: tl.constexpr, operands, out, first, lane, inside, VECTOR: tl.constexpr):
    """Compute elements ``first + lane``, those ``inside`` or all."""
    result: tl.constexpr = out.dtype.element_ty
    x1 = fetch_dense(operands[0], first, lane, inside, result, VECTOR)
    x2 = fetch_dense(operands[1], first, lane, inside, result, VECTOR)
    x3 = fetch_dense(operands[2], first, lane, inside, result, VECTOR)
    tl.store(out + first + lane, FUNCTION(OP, x1, x2, x3, result).to(result), mask=inside)


@triton.jit
def whole_vectors(count, first, lane, EVEN: tl.constexpr):
    """Return which of elements ``first + lane`` lie before the last multiple of 16, a bound that leaves vectors whole.

    EVEN: all, so that none need be masked off.
    """
    if EVEN:
        inside = None
    else:
        inside = lane < (count - first) // 16 * 16
    return inside


@triton.jit
def rest(
    FUNCTION: tl.constexpr,
    OP: tl.constexpr,
    operands,
    out,
    count,
    first,
    EVEN: tl.constexpr,
    VECTOR: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Compute those of ``BLOCK`` elements from ``first`` on that `whole_vectors` leaves out."""
    if not EVEN:
        left = count - first
        if left < BLOCK:
            whole = left // 16 * 16
            lane = tl.arange(0, 16)
            block(FUNCTION, OP, operands, out, first + whole, lane, lane < left - whole, VECTOR)


@triton.jit
def run(
    FUNCTION: tl.constexpr,
    OP: tl.constexpr,
    operands,
    out,
    count,
    first,
    EVEN: tl.constexpr,
    VECTOR: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Compute ``BLOCK`` elements from ``first`` on, fewer where they end before."""
    lane = tl.arange(0, BLOCK)
    inside = whole_vectors(count, first, lane, EVEN)
    block(FUNCTION, OP, operands, out, first, lane, inside, VECTOR)
    rest(FUNCTION, OP, operands, out, count, first, EVEN, VECTOR, BLOCK)


@triton.jit
def consecutive(
    FUNCTION: tl.constexpr,
    OP: tl.constexpr,
    operands,
    out,
    count,
    EVEN: tl.constexpr,
    WIDE: tl.constexpr,
    VECTOR: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Compute ``BLOCK`` consecutive elements of ``out``, ``VECTOR`` a load; operands are as dense, numbers or None.

    EVEN: ``BLOCK`` divides their count.
    """
    run(FUNCTION, OP, operands, out, count, program(WIDE) * BLOCK, EVEN, VECTOR, BLOCK)


@triton.jit
def fetch_strided(x, row, column, shape, strides, step, inside, result: tl.constexpr):
    """Return elements (row, column) of an operand, the number in its place, or None."""
    if x is None:
        y = None
    elif x.dtype.is_ptr():
        y = tl.load(x + locate(row, shape, strides)[:, None] + (column * step)[None, :], mask=inside)
    else:
        y = number(x, result)
    return y


@triton.jit
def tile(
    FUNCTION: tl.constexpr,
    OP: tl.constexpr,
    operands,
    out,
    rows,
    columns,
    shape,
    strides,
    out_strides,
    steps,
    out_step,
    WIDE: tl.constexpr,
    BLOCK_ROWS: tl.constexpr,
    BLOCK_COLUMNS: tl.constexpr,
):
    """Compute a tile of ``out``. Columns are one axis, rows (``rows`` of them, of ``shape``) count out the others.

    Of each operand ``strides`` are of the rows, ``steps`` from column to column; None for what is no tensor.
    """
    result: tl.constexpr = out.dtype.element_ty
    tiles = (columns + BLOCK_COLUMNS - 1) // BLOCK_COLUMNS
    place = program(WIDE)
    row = (place // tiles) * BLOCK_ROWS + tl.arange(0, BLOCK_ROWS)
    column = (place % tiles) * BLOCK_COLUMNS + tl.arange(0, BLOCK_COLUMNS)
    inside = (row < rows)[:, None] & (column < columns)[None, :]
    x1 = fetch_strided(operands[0], row, column, shape, strides[0], steps[0], inside, result)
    x2 = fetch_strided(operands[1], row, column, shape, strides[1], steps[1], inside, result)
    x3 = fetch_strided(operands[2], row, column, shape, strides[2], steps[2], inside, result)
    y = FUNCTION(OP, x1, x2, x3, result).to(result)
    tl.store(out + locate(row, shape, out_strides)[:, None] + (column * out_step)[None, :], y, mask=inside)


@dataclass(frozen=True, slots=True)
class Operand:
    """What stands in one of the three places."""

    argument: Argument = None
    spec: TensorSpec | None = None
    """None for what is not walked: a number, one element for all, nothing."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Request:
    """What a kernel's ``dense`` and ``strided`` are to compute."""

    operands: tuple[Operand, ...]
    out: Pointer
    spec: TensorSpec
    """The output's."""
    constants: Mapping[str, Any]
    """The kernel's own, beside those of the walk."""
    fused: bool = True
    """Whether a product and a sum may be contracted."""
    elements: int = 2048
    """Of a program of ``strided``."""


def operand(name: str, spec: TensorSpec, out: TensorSpec, dtype: DType | str) -> Operand:
    """Return a tensor, seen as one of ``dtype``, or the number in its place, passed so as to be rounded once."""
    if not spec.weak:
        return Operand(Pointer(name, dtype, spec.align), spec)
    if out.dtype.floating:
        return Operand(ScalarOf(name, "float32" if out.dtype.bits == 32 else "float64"))
    return Operand(ScalarOf(name, "uint64" if out.dtype.kind == "uint" else "int64"))


def walk_dense(ctx: BindContext, function: Any, asked: Request) -> Sequence[Launch]:
    """Launch a ``dense`` over operands that are as dense as the output."""
    count = asked.spec.size
    if count == 0:
        return ()
    warps = ctx.settings["warps"]
    walked = (own.spec for own in asked.operands if own.spec is not None)
    vector = VECTOR_BYTES // max(spec.dtype.itemsize for spec in (asked.spec, *walked))
    size = warps * THREADS_PER_WARP * ctx.settings["vectors"] * vector
    step = launch(
        ctx,
        function,
        programs=triton.cdiv(count, size),
        arguments={"operands": _three(own.argument for own in asked.operands), "out": asked.out, "count": count},
        constants={
            **asked.constants,
            "EVEN": count % size == 0,
            "WIDE": count + size >= NARROW,
            "VECTOR": vector,
            "BLOCK": size,
        },
        options=Options(num_warps=warps, num_stages=1, enable_fp_fusion=asked.fused),
    )
    return (step,)


def walk_strided(ctx: BindContext, function: Any, asked: Request) -> Sequence[Launch]:
    """Launch a ``strided`` over operands of any strides."""
    out = asked.spec
    if out.size == 0:
        return ()
    walked = [own.spec for own in asked.operands if own.spec is not None]
    shape, out_strides, *found = collapse(
        out.shape, out.strides, *(broadcast_strides(spec.shape, spec.strides, out.rank) for spec in walked)
    )
    across = _densest(out_strides)
    rows = [axis for axis in range(len(shape)) if axis != across]
    down = next((_densest(own) for own in found if _is_denser(own, across)), None)
    if down is not None:
        # So that an operand whose neighbours lie along another axis is read in runs too.
        rows.remove(down)
        rows.append(down)
    columns, count = shape[across], out.size // shape[across]
    block_columns = _columns(columns, asked.elements if down is None else asked.elements // ROWS)
    block_rows = min(asked.elements // block_columns, triton.next_power_of_2(count))
    tiles = triton.cdiv(columns, block_columns) * triton.cdiv(count, block_rows)
    others = iter(found)
    strides = [next(others) if own.spec is not None else None for own in asked.operands]
    step = launch(
        ctx,
        function,
        programs=tiles,
        arguments={
            "operands": _three(own.argument for own in asked.operands),
            "out": asked.out,
            "rows": count,
            "columns": columns,
            "shape": tuple(shape[axis] for axis in rows) or (1,),
            "strides": _three(own and (tuple(own[axis] for axis in rows) or (0,)) for own in strides),
            "out_strides": tuple(out_strides[axis] for axis in rows) or (0,),
            "steps": _three(own and own[across] for own in strides),
            "out_step": out_strides[across],
        },
        constants={
            **asked.constants,
            "WIDE": max(count + block_rows, columns + block_columns, tiles) >= NARROW
            or any(reach(shape, own) >= NARROW for own in (out_strides, *found)),
            "BLOCK_ROWS": block_rows,
            "BLOCK_COLUMNS": block_columns,
        },
        options=Options(num_warps=4, num_stages=1, enable_fp_fusion=asked.fused),
    )
    return (step,)


def _three(given: Iterable[Argument]) -> tuple[Argument, ...]:
    """Return one for each place, None for places without an operand."""
    found = tuple(given)
    return (*found, *(None,) * (OPERANDS - len(found)))


def _densest(strides: Sequence[int]) -> int:
    """Return the axis along which neighbours are closest; a broadcast axis is none."""
    return min(range(len(strides)), key=lambda axis: (abs(strides[axis]) or NARROW, -axis))


def _is_denser(strides: Sequence[int], across: int) -> bool:
    """Whether an operand's neighbours are closer along another axis than along ``across``."""
    return strides[across] != 0 and abs(strides[_densest(strides)]) < abs(strides[across])


def _columns(extent: int, most: int) -> int:
    """Return a power of two of columns for a tile, at most a quarter of which lie beyond ``extent`` if 128 do."""
    columns = min(most, triton.next_power_of_2(extent))
    while columns > 128 and 4 * columns * triton.cdiv(extent, columns) > 5 * extent:
        columns //= 2
    return columns
