"""sum: along any axes, in a fixed order.

The tensor is seen as rows of elements to add: the axes that stay number the rows, those that go number the elements
of a row. One program adds up ``BLOCK_ROWS`` rows, in ``BLOCK_COLUMNS`` running sums each that are then added as a tree;
a running sum joins its total every 256 elements, so that none grows by a long row's elements one by one.
Where rows are few and long, `split` gives every row to several programs, whose partial sums `gather` adds in order.

Floating input is added in float32 (float64 in float64), partial results included; integers and bools in int64, which
wraps as uint64 does. Deterministic: no atomics. A row's bits may depend on how many rows there are, through the block.
"""

from __future__ import annotations

from collections.abc import Sequence

import triton
import triton.language as tl

from nbx_registry.infer import reduced_axes
from nbx_registry.launch import BindContext, Launch
from nbx_triton.compiler import Options
from nbx_triton.kernels.strided import NARROW, collapse, locate, program, reach
from nbx_triton.launching import launch

OPTIONS = Options(num_warps=4, num_stages=1, enable_fp_fusion=False)
LEAST_PER_SPLIT, MAX_SPLITS = 8192, 1024
TURNS = tl.constexpr(256)
"""How many elements a running sum takes before it joins its total."""
_BLOCK = 1024


@triton.jit
def accumulator(dtype: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    """Return zeros in the dtype in which elements of ``dtype`` are added."""
    if dtype == tl.float64:
        zeros = tl.zeros((ROWS, COLUMNS), tl.float64)
    elif dtype.is_floating():
        zeros = tl.zeros((ROWS, COLUMNS), tl.float32)
    else:
        zeros = tl.zeros((ROWS, COLUMNS), tl.int64)
    return zeros


@triton.jit
def add_up(
    x,
    out,
    rows,
    length,
    splits,
    per_split,
    row_shape,
    row_strides,
    out_strides,
    shape,
    strides,
    WIDE: tl.constexpr,
    BLOCK_ROWS: tl.constexpr,
    BLOCK_COLUMNS: tl.constexpr,
):
    """Write the sum of elements ``s * per_split`` and on, ``per_split`` of them, of each row; s is the split.

    With one split ``out`` is the output; with more it is ``[splits, rows]``, and ``out_strides`` is for one split.
    """
    number = program(WIDE)
    split = number % splits
    row = (number // splits) * BLOCK_ROWS + tl.arange(0, BLOCK_ROWS)
    here = row < rows
    first = split * per_split
    last = tl.minimum(first + per_split, length)
    start = x + locate(row, row_shape, row_strides)[:, None]
    total = accumulator(x.dtype.element_ty, BLOCK_ROWS, BLOCK_COLUMNS)
    for chunk in range(first, last, BLOCK_COLUMNS * TURNS):
        part = accumulator(x.dtype.element_ty, BLOCK_ROWS, BLOCK_COLUMNS)
        for at in range(chunk, tl.minimum(chunk + BLOCK_COLUMNS * TURNS, last), BLOCK_COLUMNS):
            column = at + tl.arange(0, BLOCK_COLUMNS)
            inside = here[:, None] & (column < last)[None, :]
            part += tl.load(start + locate(column, shape, strides)[None, :], mask=inside, other=0).to(part.dtype)
        total += part
    result = tl.sum(total, axis=1)
    target = out + split * rows + locate(row, row_shape, out_strides)
    tl.store(target, result.to(out.dtype.element_ty), mask=here)


@triton.jit
def gather(partial, out, rows, splits, row_shape, out_strides, WIDE: tl.constexpr, SPLITS: tl.constexpr):
    """Add the partial sums of one row, ``[splits, rows]``, as a tree. SPLITS is ``splits`` up to a power of two."""
    row = program(WIDE)
    split = tl.arange(0, SPLITS)
    part = tl.load(partial + split * rows + row, mask=split < splits, other=0)
    total = tl.sum(part, axis=0)
    tl.store(out + locate(row, row_shape, out_strides), total.to(out.dtype.element_ty))


def _bind(ctx: BindContext, splits: int) -> Sequence[Launch]:
    (x,) = ctx.signature.tensors
    (out,) = ctx.signature.outputs
    if out.size == 0:
        return ()
    gone = reduced_axes(ctx.signature.attributes["axis"], x.rank)
    kept = [axis for axis in range(x.rank) if axis not in gone]
    # Where the output keeps its axes, those that went have extent 1 there.
    out_axes = kept if out.rank == x.rank else range(len(kept))
    row_shape, row_strides, out_strides = collapse(
        [x.shape[a] for a in kept], [x.strides[a] for a in kept], [out.strides[a] for a in out_axes]
    )
    shape, strides = collapse([x.shape[a] for a in gone], [x.strides[a] for a in gone])
    rows, length = out.size, x.size // out.size
    per_split = triton.cdiv(length, splits)
    block_rows, block_columns = _blocks(rows, length, strides[-1])
    wide = x.size + block_rows * block_columns >= NARROW or reach(x.shape, x.strides) >= NARROW
    add = launch(
        ctx,
        add_up,
        programs=triton.cdiv(rows, block_rows) * splits,
        arguments={
            "x": "x",
            "out": "out" if splits == 1 else "partial",
            "rows": rows,
            "length": length,
            "splits": splits,
            "per_split": per_split,
            "row_shape": row_shape,
            "row_strides": row_strides,
            "out_strides": out_strides if splits == 1 else _dense(row_shape),
            "shape": shape,
            "strides": strides,
        },
        constants={"WIDE": wide, "BLOCK_ROWS": block_rows, "BLOCK_COLUMNS": block_columns},
        options=OPTIONS,
    )
    if splits == 1:
        return (add,)
    finish = launch(
        ctx,
        gather,
        programs=rows,
        arguments={
            "partial": "partial",
            "out": "out",
            "rows": rows,
            "splits": splits,
            "row_shape": row_shape,
            "out_strides": out_strides,
        },
        constants={"WIDE": wide, "SPLITS": triton.next_power_of_2(splits)},
        options=OPTIONS,
    )
    return (add, finish)


def _dense(shape: Sequence[int]) -> tuple[int, ...]:
    strides = [1]
    for extent in reversed(shape[1:]):
        strides.append(strides[-1] * extent)
    return tuple(reversed(strides))


def _blocks(rows: int, length: int, stride: int) -> tuple[int, int]:
    """Return rows and running sums of a block: long along the axis whose neighbours in memory are neighbours."""
    if stride == 1 and length > 16:
        columns = min(_BLOCK, triton.next_power_of_2(length))
    else:
        columns = max(8, _BLOCK // triton.next_power_of_2(rows))
    return _BLOCK // columns, columns


def bind(ctx: BindContext) -> Sequence[Launch]:
    """Bind ``sum`` with one program or less a row."""
    return _bind(ctx, 1)


def bind_split(ctx: BindContext) -> Sequence[Launch]:
    """Bind ``sum`` with several programs a row; the partial sums are the workspace ``partial``."""
    (x,) = ctx.signature.tensors
    (out,) = ctx.signature.outputs
    # The kernel's workspace declares the same number.
    return _bind(ctx, max(1, min(triton.cdiv(x.size // max(out.size, 1), LEAST_PER_SPLIT), MAX_SPLITS)))
