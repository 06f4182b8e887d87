"""Binders of sum, prod, mean, max, argmax: which axes are rows, which tile a program takes, how many share a row."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import triton

from nbx_registry.dtypes import DType
from nbx_registry.infer import reduced_axes
from nbx_registry.launch import BindContext, Launch, Scalar
from nbx_registry.rounding import integer_range
from nbx_registry.space import Space
from nbx_registry.spec import TensorSpec
from nbx_triton.compiler import THREADS_PER_WARP, Options
from nbx_triton.kernels.pieces import warps_of_a_program
from nbx_triton.kernels.reduction import TURNS, gather, reduce
from nbx_triton.kernels.strided import NARROW, collapse, reach
from nbx_triton.launching import Argument, Pointer, launch, waits_by_itself

SETTINGS = Space(parameters={"vectors": (2, 4, 8), "warps": (4, 8)})
"""Vectors of 16 bytes a thread has of a tile, and warps of a program."""

VECTOR_BYTES = 16
COLUMN_WARPS, COLUMN_VECTORS = 16, 8
"""Of a program that is all a multiprocessor has: most warps, and vectors that a thread has under way."""
RUN_BYTES = 256
"""Of a tile that is long along rows: bytes of one run."""
STATE_BYTES = 128
"""Most bytes of running results in a thread's registers."""
ROW_PIECE, RUN_PIECE = 16384, 256
"""Least elements of a row for one program, of rows that are dense and of runs; as the specs have them."""
WARPS = 64
"""Of a multiprocessor, which takes that many where a thread has 32 registers."""
MOST_PROGRAMS = 4096
"""Partial results of all rows or runs together, as the specs have them."""
GATHERED = 2048
"""Partial results of a program of `gather`, at least."""


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


def _plan(ctx: BindContext, vectors: int, warps: int, run: int, along: bool) -> Plan:
    """Return the tile of a program, ``run`` bytes long or more if it is along rows.

    ``along`` has it long along the elements of a row, wherever these lie.
    """
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
        block_rows = min(run // x.dtype.itemsize, triton.next_power_of_2(rows))
        size = vector if extent > vector // block_rows else whole
        block_columns = min(size // block_rows, extent)
        block_rows = min(size // block_columns, triton.next_power_of_2(rows))
    # Offsets of 64 bits, of which each element may need its own, leave registers for half as many.
    together = vectors if reach(x.shape, x.strides) < NARROW else max(1, vectors // 2)
    tiles = 1 if size == whole else min(together, extent // block_columns)
    return Plan(row_shape, row_strides, out_strides, shape, strides, rows, length, block_rows, block_columns, tiles)


def _in_vectors(x: TensorSpec, plan: Plan) -> bool:
    """Whether neighbours in memory are loaded together, 16 bytes at a time."""
    strides, inner = (*plan.row_strides, *plan.strides), (*plan.row_shape[1:], *plan.shape[1:])
    return (
        1 in strides
        and all(stride == 1 or stride % 16 == 0 for stride in strides)
        and all(extent % 16 == 0 for extent in (x.align, *inner))
    )


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


def _bind(
    ctx: BindContext,
    vectors: int,
    warps: int,
    most: int | None,
    run: int = RUN_BYTES,
    *,
    along: bool = False,
    ahead: bool = False,
) -> Sequence[Launch]:
    """Bind a reduction; ``most`` is how many programs a row is shared out among at most, None to share out nothing."""
    (x,) = ctx.signature.tensors
    (out,) = ctx.signature.outputs
    if out.size == 0:
        return ()
    op = ctx.signature.op.name
    plan = _plan(ctx, vectors, warps, run, along)
    if ahead and not _in_vectors(x, plan):
        # What is loaded one by one takes a register each.
        return _bind(ctx, 4, warps, most, run, along=along)
    options = Options(num_warps=warps, num_stages=1, enable_fp_fusion=False)
    step = plan.block_columns * plan.tiles
    splits = max(1, min(most or 1, triton.cdiv(plan.length, step)))
    turns = int(TURNS.value)
    long = op in ("sum", "mean") and x.dtype.floating and plan.length > splits * plan.block_columns * turns
    early = most is not None and waits_by_itself(ctx, gather)
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
            "LONG": long,
            "WIDE_ROWS": wide_rows,
            "WIDE_COLUMNS": plan.length + splits * step * (turns if long else 1) >= NARROW
            or reach(plan.shape, plan.strides) + plan.block_columns * max(map(abs, plan.strides)) >= NARROW,
            "BLOCK_ROWS": plan.block_rows,
            "BLOCK_COLUMNS": plan.block_columns,
            "TILES": plan.tiles,
            "AHEAD": ahead,
            "POLICY": "evict_first" if ahead and x.dtype.bits == 16 else "",
            "EARLY": early,
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
        constants={**shared, "WIDE": wide_rows, "EARLY": early, "BLOCK_ROWS": block_rows, "SPLITS": gathered},
        options=Options(num_warps=4, num_stages=1, enable_fp_fusion=False),
        early=early,
    )
    return (first, second)


def bind_rows(ctx: BindContext) -> Sequence[Launch]:
    """Bind a reduction with one program or less a row, of the same size whatever the number of rows."""
    length, _ = _extents(ctx)
    # Up to 256 bytes a thread; longer rows may be so few that one program is all a multiprocessor has.
    wanted = triton.next_power_of_2(length * ctx.signature.tensors[0].dtype.itemsize // 8192)
    return _bind(ctx, 4, max(4, min(wanted, _most_warps(ctx))), None, along=True)


def bind_columns(ctx: BindContext) -> Sequence[Launch]:
    """Bind a reduction with one program for a run of rows."""
    _, rows = _extents(ctx)
    short = RUN_BYTES // 2
    runs = triton.cdiv(rows * ctx.signature.tensors[0].dtype.itemsize, short)
    most = min(COLUMN_WARPS, warps_of_a_program(ctx))
    warps = max(4, min(triton.next_power_of_2(_programs(ctx, 1) // runs + 1) // 2, most))
    if warps == 4:
        return _bind(ctx, 4, warps, None)
    return _bind(ctx, COLUMN_VECTORS, warps, None, short, ahead=True)


def bind_split_rows(ctx: BindContext) -> Sequence[Launch]:
    """Bind a reduction with several programs a row; partial results are workspace."""
    length, rows = _extents(ctx)
    warps = ctx.settings["warps"]
    most = max(1, min(triton.cdiv(length, ROW_PIECE), _programs(ctx, warps) // rows))
    return _bind(ctx, ctx.settings["vectors"], warps, most)


def bind_split_columns(ctx: BindContext) -> Sequence[Launch]:
    """Bind a reduction with several programs for a run of rows; partial results are workspace."""
    length, rows = _extents(ctx)
    warps = ctx.settings["warps"]
    runs = triton.cdiv(rows * ctx.signature.tensors[0].dtype.itemsize, RUN_BYTES)
    most = max(1, min(triton.cdiv(length, RUN_PIECE), _programs(ctx, warps) // runs))
    return _bind(ctx, ctx.settings["vectors"], warps, most)


def _most_warps(ctx: BindContext) -> int:
    """Return how many warps a program may have whose threads' registers hold a vector and its running results."""
    (x,) = ctx.signature.tensors
    state = _state(ctx.signature.op.name, x.dtype)
    return min(32 if VECTOR_BYTES // x.dtype.itemsize * state < STATE_BYTES else 16, warps_of_a_program(ctx))


def _programs(ctx: BindContext, warps: int) -> int:
    """Return how many programs of ``warps`` warps are on the device at a time, as far as partial results have room."""
    return min(MOST_PROGRAMS * 4, ctx.device.fact("multiprocessors") * WARPS) // warps


def _extents(ctx: BindContext) -> tuple[int, int]:
    """Return the length and the number of rows, the latter at least 1."""
    (x,) = ctx.signature.tensors
    rows = max(ctx.signature.outputs[0].size, 1)
    return x.size // rows, rows
