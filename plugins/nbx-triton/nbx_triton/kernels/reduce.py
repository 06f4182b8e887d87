"""sum, prod, mean, max, argmax: along any axes, in one pass and a fixed order.

The tensor is seen as rows of elements to reduce: the axes that stay number the rows, those that go number the elements
of a row. One program reduces ``BLOCK_ROWS`` rows, in ``BLOCK_COLUMNS`` running results each that are then combined as a
tree. A running sum of floats joins its total every 256 elements: none grows by a long row's elements one by one.
Tiles are long along the axis whose neighbours in memory are closest: along the elements of a row, or along rows (then a
row's elements are far from each other, and a tile takes runs of many rows).
Where that makes too few programs the elements of a row are shared out among several, which write partial results that
`gather` combines in order.

Floating input is computed in float32 (float64 in float64), partial results included. Products and sums of integers and
bools are int64, which wraps as uint64 does; their sums for a mean too, but those of 64-bit integers float64; their
largest in 32 or 64 bits of their own kind. Every element is read once: the floor is the tensor's bytes over the
bandwidth, with 16 bytes a load, several loads of a thread under way. Deterministic: no atomics.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import triton
import triton.language as tl

from nbx_registry.dtypes import DType
from nbx_registry.infer import reduced_axes
from nbx_registry.launch import BindContext, Launch, Scalar
from nbx_registry.rounding import integer_range
from nbx_registry.space import Space
from nbx_triton.compiler import THREADS_PER_WARP, Options
from nbx_triton.kernels.strided import NARROW, collapse, locate, program, reach
from nbx_triton.launching import Argument, Pointer, launch

SETTINGS = Space(parameters={"vectors": (2, 4, 8), "warps": (4, 8)})
"""Vectors of 16 bytes a thread has of a tile, and warps of a program."""

VECTOR_BYTES = 16
RUN_BYTES = 256
"""Of a tile that is long along rows: bytes of one run."""
STATE_BYTES = 128
"""Most bytes of running results in a thread's registers."""
ROW_PIECE, ROW_PROGRAMS = 16384, 4096
RUN_PIECE, RUN_PROGRAMS = 256, 2048
"""Least elements of a row for one program, and about how many programs share a tensor; as the specs have them."""
TURNS = tl.constexpr(256)
"""How many elements a running sum of floats takes before it joins its total."""
GATHERED = 2048
"""Partial results of a program of `gather`, at least."""


@triton.jit
def multiply(a, b):
    """Return a b."""
    return a * b


@triton.jit
def larger(a, b):
    """Return the larger of two; NaN where either is."""
    return tl.maximum(a, b, propagate_nan=tl.PropagateNan.ALL)


@triton.jit
def first_largest(a, i, b, j):
    """Return the larger of two and its index; NaN is larger than all, and of equal ones the lower index counts."""
    above = (b > a) | ((b != b) & (a == a))
    equal = (b == a) | ((b != b) & (a != a))
    taken = above | (equal & (j < i))
    return tl.where(taken, b, a), tl.where(taken, j, i)


@triton.jit
def beginning(dtype: tl.constexpr, OP: tl.constexpr, OTHER: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    """Return running results of nothing, in the dtype in which elements of ``dtype`` are reduced."""
    if dtype == tl.float64:
        total = tl.full((ROWS, COLUMNS), OTHER, tl.float64)
    elif dtype.is_floating():
        total = tl.full((ROWS, COLUMNS), OTHER, tl.float32)
    elif OP == "prod" or OP == "sum":
        total = tl.full((ROWS, COLUMNS), OTHER, tl.int64)
    elif OP == "mean":
        if dtype.primitive_bitwidth == 64:
            total = tl.full((ROWS, COLUMNS), OTHER, tl.float64)
        else:
            total = tl.full((ROWS, COLUMNS), OTHER, tl.int64)
    else:
        if dtype.primitive_bitwidth == 64:
            total = tl.full((ROWS, COLUMNS), OTHER, dtype)
        elif dtype == tl.uint32:
            total = tl.full((ROWS, COLUMNS), OTHER, tl.uint32)
        else:
            total = tl.full((ROWS, COLUMNS), OTHER, tl.int32)
    return total


@triton.jit
def merge(OP: tl.constexpr, total, place, a, at):
    """Take elements ``a`` into running results; ``place`` is where in the row the tile of the largest began."""
    if OP == "sum" or OP == "mean":
        total += a
    elif OP == "prod":
        total *= a
    elif OP == "max":
        total = larger(total, a)
    else:
        # A later one must be above the largest so far, of which NaN is none.
        above = (a > total) | ((a != a) & (total == total))
        total = tl.where(above, a, total)
        place = tl.where(above, at, place)
    return total, place


@triton.jit
def take(
    start,
    first,
    last,
    lane,
    shape,
    strides,
    here,
    total,
    place,
    OP: tl.constexpr,
    OTHER: tl.constexpr,
    EVEN_ROWS: tl.constexpr,
    TILES: tl.constexpr,
):
    """Take whole tiles from ``first`` to before ``last`` into running results; TILES are loaded at a time."""
    step: tl.constexpr = total.shape[1]
    for turn in range(first, last, step * TILES):
        for tile in tl.static_range(TILES):
            at = turn + tile * step
            source = start + locate(at + lane, shape, strides)[None, :]
            if EVEN_ROWS:
                a = tl.load(source)
            else:
                a = tl.load(source, mask=here, other=OTHER)
            total, place = merge(OP, total, place, a.to(total.dtype), at)
    return total, place


@triton.jit
def finish(OP: tl.constexpr, total, place):
    """Combine running results along the second axis, as a tree: the result, and for argmax also which ``place`` has it.

    For others the result is returned twice.
    """
    if OP == "argmax":
        result, found = tl.reduce((total, place), 1, first_largest)
    else:
        if OP == "sum" or OP == "mean":
            result = tl.sum(total, axis=1)
        elif OP == "prod":
            result = tl.reduce(total, 1, multiply)
        else:
            result = tl.reduce(total, 1, larger)
        found = result
    return result, found


@triton.jit
def divide(total, count):
    """Return a mean, correctly rounded from a sum and a number of its dtype, or from a sum of integers and float64."""
    if count.dtype == tl.float64:
        mean = total.to(tl.float64) / count
    else:
        mean = tl.div_rn(total, count)
    return mean


@triton.jit
def reduce(
    x,
    out,
    places,
    rows,
    length,
    splits,
    per_split,
    count,
    row_shape,
    row_strides,
    out_strides,
    shape,
    strides,
    OP: tl.constexpr,
    OTHER: tl.constexpr,
    PARTIAL: tl.constexpr,
    EVEN_ROWS: tl.constexpr,
    LONG: tl.constexpr,
    WIDE_ROWS: tl.constexpr,
    WIDE_COLUMNS: tl.constexpr,
    BLOCK_ROWS: tl.constexpr,
    BLOCK_COLUMNS: tl.constexpr,
    TILES: tl.constexpr,
):
    """Reduce elements ``s * per_split`` and on, ``per_split`` of them, of each row; s is the split.

    PARTIAL: ``out`` is ``[splits, rows]`` in the dtype of running results, ``out_strides`` is for one split, and argmax
    has ``places`` beside it. Else it is the output; ``count`` is what a mean is divided by, as a number. OTHER leaves
    a result as it is. LONG: running sums join totals on the way.
    """
    number = program(WIDE_ROWS)
    split = tl.program_id(0) % splits
    row = (number // splits) * BLOCK_ROWS + tl.arange(0, BLOCK_ROWS)
    start = x + locate(row, row_shape, row_strides)[:, None]
    lane = tl.arange(0, BLOCK_COLUMNS)
    if WIDE_COLUMNS:
        lane = lane.to(tl.int64)
        split = split.to(tl.int64)
    first = split * per_split
    last = tl.minimum(first + per_split, length)
    total = beginning(x.dtype.element_ty, OP, OTHER, BLOCK_ROWS, BLOCK_COLUMNS)
    place = tl.zeros((BLOCK_ROWS, BLOCK_COLUMNS), lane.dtype) + first
    here = (row < rows)[:, None]
    # Whole tiles need no look at the row's end, which would make loads of single elements where 16 does not divide it.
    whole = first + (last - first) // (BLOCK_COLUMNS * TILES) * (BLOCK_COLUMNS * TILES)
    if LONG:
        for chunk in range(first, whole, BLOCK_COLUMNS * TURNS):
            part = beginning(x.dtype.element_ty, OP, OTHER, BLOCK_ROWS, BLOCK_COLUMNS)
            end = tl.minimum(chunk + BLOCK_COLUMNS * TURNS, whole)
            part, place = take(start, chunk, end, lane, shape, strides, here, part, place, OP, OTHER, EVEN_ROWS, TILES)
            total += part
    else:
        total, place = take(start, first, whole, lane, shape, strides, here, total, place, OP, OTHER, EVEN_ROWS, TILES)
    for at in range(whole, last, BLOCK_COLUMNS):
        column = at + lane
        inside = (column < last)[None, :]
        if not EVEN_ROWS:
            inside = inside & here
        a = tl.load(start + locate(column, shape, strides)[None, :], mask=inside, other=OTHER)
        total, place = merge(OP, total, place, a.to(total.dtype), at)
    result, found = finish(OP, total, place + lane[None, :])
    if PARTIAL:
        offset = split * rows + row
        tl.store(out + offset, result, mask=row < rows)
        if OP == "argmax":
            tl.store(places + offset, found.to(tl.int64), mask=row < rows)
    else:
        deliver(OP, out, result, found, count, locate(row, row_shape, out_strides), row < rows)


@triton.jit
def deliver(OP: tl.constexpr, out, result, found, count, offset, here):
    """Store results in the output's dtype."""
    if OP == "argmax":
        value = found
    elif OP == "mean":
        value = divide(result, count)
    else:
        value = result
    tl.store(out + offset, value.to(out.dtype.element_ty), mask=here)


@triton.jit
def gather(
    partial,
    places,
    out,
    rows,
    splits,
    count,
    row_shape,
    out_strides,
    OP: tl.constexpr,
    OTHER: tl.constexpr,
    WIDE: tl.constexpr,
    BLOCK_ROWS: tl.constexpr,
    SPLITS: tl.constexpr,
):
    """Combine the partial results of a block of rows, ``[splits, rows]``. SPLITS is ``splits`` up to a power of two."""
    row = program(WIDE) * BLOCK_ROWS + tl.arange(0, BLOCK_ROWS)
    split = tl.arange(0, SPLITS)
    here = row < rows
    inside = here[:, None] & (split < splits)[None, :]
    offset = (split * rows)[None, :] + row[:, None]
    part = tl.load(partial + offset, mask=inside, other=OTHER)
    place = offset
    if OP == "argmax":
        # What is not there comes after all that is.
        place = tl.load(places + offset, mask=inside, other=9223372036854775807)
    result, found = finish(OP, part, place)
    deliver(OP, out, result, found, count, locate(row, row_shape, out_strides), here)


@dataclass(frozen=True, slots=True)
class Plan:
    """A reduction as rows of elements, and the tile that a program takes of it."""

    row_shape: tuple[int, ...]
    row_strides: tuple[int, ...]
    out_strides: tuple[int, ...]
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    rows: int
    length: int
    block_rows: int
    block_columns: int
    tiles: int
    """Tiles whose loads are under way together."""


def _plan(ctx: BindContext, vectors: int, warps: int, along: bool) -> Plan:
    """Return the tile of a program; ``along`` has it long along the elements of a row, wherever these lie."""
    (x,) = ctx.signature.tensors
    (out,) = ctx.signature.outputs
    gone = list(reduced_axes(ctx.signature.attributes["axis"], x.rank))
    kept = [axis for axis in range(x.rank) if axis not in gone]
    # Where the output keeps its axes, those that went have extent 1 there.
    place = dict(zip(kept, kept if out.rank == x.rank else range(len(kept)), strict=True))
    # In the order in which memory has them; a broadcast axis has none. argmax counts elements in the tensor's.
    kept.sort(key=lambda axis: -(abs(x.strides[axis]) or NARROW))
    if ctx.signature.op.name != "argmax":
        gone.sort(key=lambda axis: -(abs(x.strides[axis]) or NARROW))
    row_shape, row_strides, out_strides = collapse(
        [x.shape[a] for a in kept], [x.strides[a] for a in kept], [out.strides[place[a]] for a in kept]
    )
    shape, strides = collapse([x.shape[a] for a in gone], [x.strides[a] for a in gone])
    rows, length = out.size, x.size // out.size
    most = STATE_BYTES // _state(ctx.signature.op.name, x.dtype)
    vector = warps * THREADS_PER_WARP * min(VECTOR_BYTES // x.dtype.itemsize, most)
    whole = warps * THREADS_PER_WARP * min(vectors * VECTOR_BYTES // x.dtype.itemsize, most)
    extent = triton.next_power_of_2(max(length, 1))
    if along or (abs(strides[-1]) or NARROW) <= (abs(row_strides[-1]) or NARROW):
        # From the row's length alone: its bits do not depend on how many rows there are.
        size = vector if extent > vector else whole
        block_columns = min(size, extent)
        block_rows = size // block_columns
    else:
        block_rows = min(RUN_BYTES // x.dtype.itemsize, triton.next_power_of_2(rows))
        size = vector if extent > vector // block_rows else whole
        block_columns = min(size // block_rows, extent)
        block_rows = min(size // block_columns, triton.next_power_of_2(rows))
    tiles = 1 if size == whole else min(vectors, extent // block_columns)
    return Plan(row_shape, row_strides, out_strides, shape, strides, rows, length, block_rows, block_columns, tiles)


def _state(op: str, dtype: DType) -> int:
    """Return the bytes of a running result."""
    if op == "argmax":
        return 16 if dtype.bits == 64 else 8
    return 8 if dtype.bits == 64 or (op in ("sum", "prod", "mean") and not dtype.floating) else 4


def _work(op: str, dtype: DType) -> str:
    """Return the dtype of running results, as `beginning` has it."""
    if dtype.floating:
        return "float64" if dtype.bits == 64 else "float32"
    if op in ("sum", "prod"):
        return "int64"
    if op == "mean":
        return "float64" if dtype.bits == 64 else "int64"
    return dtype.name if dtype.bits == 64 or dtype.name == "uint32" else "int32"


def _other(op: str, dtype: DType) -> float | int:
    """Return the number that changes no result."""
    if op in ("sum", "prod", "mean"):
        return int(op == "prod")
    if dtype.floating:
        return float("-inf")
    return 0 if dtype.kind == "bool" else integer_range(dtype)[0]


def _count(op: str, dtype: DType, length: int) -> Argument:
    """Return what a mean is divided by, and None for others."""
    if op != "mean":
        return None
    return Scalar(float(length), "float32" if dtype.floating and dtype.bits < 64 else "float64")


def _bind(ctx: BindContext, vectors: int, warps: int, most: int | None, along: bool = False) -> Sequence[Launch]:
    """Bind a reduction; ``most`` is how many programs a row is shared out among at most, None to share out nothing."""
    (x,) = ctx.signature.tensors
    (out,) = ctx.signature.outputs
    if out.size == 0:
        return ()
    op = ctx.signature.op.name
    plan = _plan(ctx, vectors, warps, along)
    options = Options(num_warps=warps, num_stages=1, enable_fp_fusion=False)
    step = plan.block_columns * plan.tiles
    per_split = step * triton.cdiv(max(plan.length, 1), step * (most or 1))
    splits = max(1, triton.cdiv(plan.length, per_split))
    work = _work(op, x.dtype)
    partial: Argument = None if most is None else Pointer("partial", work)
    places: Argument = "places" if most is not None and op == "argmax" else None
    wide_rows = (
        plan.rows + plan.block_rows >= NARROW
        or max(reach(plan.row_shape, plan.row_strides), reach(plan.row_shape, plan.out_strides)) >= NARROW
    )
    common = {"rows": plan.rows, "splits": splits, "row_shape": plan.row_shape, "places": places}
    shared = {"OP": op, "OTHER": _other(op, x.dtype)}
    first = launch(
        ctx,
        reduce,
        programs=triton.cdiv(plan.rows, plan.block_rows) * splits,
        arguments={
            **common,
            "x": "x",
            "out": "out" if most is None else partial,
            "length": plan.length,
            "per_split": per_split,
            "count": _count(op, x.dtype, plan.length) if most is None else None,
            "row_strides": plan.row_strides,
            "out_strides": plan.out_strides,
            "shape": plan.shape,
            "strides": plan.strides,
        },
        constants={
            **shared,
            "PARTIAL": most is not None,
            "EVEN_ROWS": plan.rows % plan.block_rows == 0,
            "LONG": op in ("sum", "mean")
            and x.dtype.floating
            and min(plan.length, per_split) > plan.block_columns * int(TURNS.value),
            "WIDE_ROWS": wide_rows,
            "WIDE_COLUMNS": plan.length + per_split >= NARROW
            or reach(plan.shape, plan.strides) + plan.block_columns * max(map(abs, plan.strides)) >= NARROW,
            "BLOCK_ROWS": plan.block_rows,
            "BLOCK_COLUMNS": plan.block_columns,
            "TILES": plan.tiles,
        },
        options=options,
    )
    if most is None:
        return (first,)
    gathered = triton.next_power_of_2(splits)
    block_rows = min(max(1, GATHERED // gathered), triton.next_power_of_2(plan.rows))
    second = launch(
        ctx,
        gather,
        programs=triton.cdiv(plan.rows, block_rows),
        arguments={
            **common,
            "partial": partial,
            "out": "out",
            "count": _count(op, x.dtype, plan.length),
            "out_strides": plan.out_strides,
        },
        constants={**shared, "WIDE": wide_rows, "BLOCK_ROWS": block_rows, "SPLITS": gathered},
        options=Options(num_warps=4, num_stages=1, enable_fp_fusion=False),
    )
    return (first, second)


def bind_rows(ctx: BindContext) -> Sequence[Launch]:
    """Bind a reduction with one program or less a row, of the same size whatever the number of rows."""
    return _bind(ctx, 4, 4, None, along=True)


def bind_columns(ctx: BindContext) -> Sequence[Launch]:
    """Bind a reduction with one program for a run of rows."""
    return _bind(ctx, ctx.settings["vectors"], ctx.settings["warps"], None)


def bind_split_rows(ctx: BindContext) -> Sequence[Launch]:
    """Bind a reduction with several programs a row; partial results are workspace."""
    length, rows = _extents(ctx)
    most = max(1, min(triton.cdiv(length, ROW_PIECE), triton.cdiv(ROW_PROGRAMS, rows)))
    return _bind(ctx, ctx.settings["vectors"], ctx.settings["warps"], most)


def bind_split_columns(ctx: BindContext) -> Sequence[Launch]:
    """Bind a reduction with several programs for a run of rows; partial results are workspace."""
    length, rows = _extents(ctx)
    (x,) = ctx.signature.tensors
    runs = triton.cdiv(rows * x.dtype.itemsize, RUN_BYTES)
    most = max(1, min(triton.cdiv(length, RUN_PIECE), triton.cdiv(RUN_PROGRAMS, runs)))
    return _bind(ctx, ctx.settings["vectors"], ctx.settings["warps"], most)


def _extents(ctx: BindContext) -> tuple[int, int]:
    """Return the length and the number of rows, the latter at least 1."""
    (x,) = ctx.signature.tensors
    rows = max(ctx.signature.outputs[0].size, 1)
    return x.size // rows, rows
