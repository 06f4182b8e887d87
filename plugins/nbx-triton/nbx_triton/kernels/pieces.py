"""Rows by the block and by the piece: several short ones are one program's, a long one is several programs'.

A program has up to 4096 elements of whole rows, or one row, in registers, or goes twice through a longer one, by tiles:
`launch_rows`. Where rows are long and few, `launch_pieces` cuts each into pieces, in two launches: the first
writes what each piece comes to, every program of the second merges what those of its row came to, in a fixed tree, and
writes a piece.

Blocks and pieces follow from a row's length and stride alone: its bits do not depend on the number of rows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import triton
import triton.language as tl

from nbx_registry.launch import BindContext, Launch
from nbx_registry.spec import TensorSpec
from nbx_triton.compiler import THREADS_PER_WARP, Options
from nbx_triton.kernels.strided import NARROW, collapse, program, reach
from nbx_triton.launching import Argument, launch, takes_ptx

PIECE = 8192
"""Elements of a row that a program of several to a row has in registers at a time."""
MAX_PIECES = 1024
"""Programs that a row is given to at the most; kernels' workspaces declare the same number."""
WARPS_AT_ONCE = 32
"""Warps of programs of short rows that a multiprocessor runs at once, with registers for all that they load."""
LARGEST_ROW, LARGEST_ACROSS = 16384, 128
"""Elements of a row that a block holds: of one that is dense, a fourth of them if they are of 64 bits; of any other."""
LONG_WARPS, TILES = 16, 4
"""Of a row that no block holds: warps of its program, and vectors of 16 bytes that a thread loads at a time."""
VECTORS = ("weight", "bias", "weight_stride", "bias_stride")


@triton.jit
def block_of_rows(rows, length, WIDE: tl.constexpr, BLOCK_ROWS: tl.constexpr, BLOCK_COLUMNS: tl.constexpr):
    """Return rows [BLOCK_ROWS] and columns [1, BLOCK_COLUMNS] of a program's block, and where that is inside."""
    row = program(WIDE) * BLOCK_ROWS + tl.arange(0, BLOCK_ROWS)
    column = tl.arange(0, BLOCK_COLUMNS)[None, :].to(row.dtype)
    return row, column, (row < rows)[:, None] & (column < length)


@triton.jit
def piece_of_row(length, pieces, per_piece, WIDE: tl.constexpr):
    """Return a program's number, its row, where in the row its piece begins, and where the next one does."""
    number = program(WIDE)
    first = number % pieces * per_piece
    return number, number // pieces, first, tl.minimum(first + per_piece, length)


class Rows(NamedTuple):
    """The rows of a tensor along one axis, and what launches are given of them."""

    count: int
    length: int
    stride: int
    """Along a row that is read."""
    step: int
    """The larger stride along a row, of those read and written."""
    farthest: int
    """The largest index or offset of an element."""
    vectors: bool
    """Whether rows are read in vectors of 16 bytes."""
    read: dict[str, Argument]
    """What reading a row takes."""
    write: dict[str, Argument]
    """What writing it takes besides."""

    def wide(self, slack: int) -> bool:
        """Whether indices and offsets need 64 bits; masked columns up to ``slack`` past a row's end have some too."""
        return self.farthest + slack * self.step >= NARROW


def rows_along(axis: int, x: TensorSpec, out: TensorSpec) -> Rows:
    """Return the rows of ``x``, and of ``out`` of the same shape, along ``axis``, counted from 0."""
    others = [a for a in range(x.rank) if a != axis]
    row_shape, row_strides, out_strides = collapse(
        [x.shape[a] for a in others], [x.strides[a] for a in others], [out.strides[a] for a in others]
    )
    return Rows(
        count=x.size // x.shape[axis],
        length=x.shape[axis],
        stride=x.strides[axis],
        step=max(abs(x.strides[axis]), abs(out.strides[axis]), 1),
        farthest=max(x.size, reach(x.shape, x.strides), reach(out.shape, out.strides)),
        vectors=x.strides[axis] == 1 and all(n % 16 == 0 for n in (x.align, x.shape[axis], *row_strides)),
        read={
            "x": "x",
            "length": x.shape[axis],
            "row_shape": row_shape,
            "row_strides": row_strides,
            "stride": x.strides[axis],
        },
        write={"out": "out", "out_strides": out_strides, "out_stride": out.strides[axis]},
    )


def block(length: int, stride: int = 1) -> tuple[int, int, int]:
    """Return rows and columns of a block, and warps: 16 elements a thread of short rows, 32 of others."""
    columns = triton.next_power_of_2(length)
    if columns <= 128:
        # Where rows lie across memory, neighbours in it are in different rows.
        return (2048 // columns, columns, 4) if stride == 1 else (32, columns, 4)
    if columns <= 512:
        return 1024 // columns, columns, 2
    return (4096 // columns, columns, 4) if columns <= 4096 else (1, columns, columns // 1024)


def cut(tiles: int, most: int) -> tuple[int, int]:
    """Return how many pieces ``tiles`` are cut into, ``most`` at the most, and how many tiles a piece has."""
    per_piece = triton.cdiv(tiles, most)
    return triton.cdiv(tiles, per_piece), per_piece


def options(warps: int) -> Options:
    """Return options of a kernel of ``warps`` warps, which loads by itself all that it needs at once."""
    return Options(num_warps=warps, num_stages=1, enable_fp_fusion=True)


def warps_of_a_program(ctx: BindContext) -> int:
    """Return how many warps a program may have on the device."""
    return ctx.device.fact("threads.per_block") // ctx.device.fact("warp.width")


def launch_rows(
    ctx: BindContext, rows: Rows, short: Any, long: Any, scaling: Mapping[str, Argument], held: int
) -> Launch:
    """Launch ``short`` with a program for each block of whole rows, or ``long`` where a block holds none.

    ``scaling`` are arguments of their own, ``held`` the vectors of a row that registers of ``long`` have room for.
    """
    itemsize = ctx.signature.operands[0].dtype.itemsize
    largest = LARGEST_ACROSS if rows.stride != 1 else LARGEST_ROW if itemsize <= 4 else LARGEST_ROW // 4
    if rows.length <= largest:
        block_rows, lanes, warps = block(rows.length, rows.stride)
        programs = triton.cdiv(rows.count, block_rows)
        # Where all programs run at once, the wait for vectors beside x counts; else the registers that they take.
        at_once = programs * warps <= ctx.device.fact("multiprocessors") * WARPS_AT_ONCE
        return launch(
            ctx,
            short,
            programs=programs,
            arguments={**rows.read, **rows.write, **scaling, "rows": rows.count},
            constants={
                "WIDE": rows.wide(block_rows * lanes),
                "BLOCK_ROWS": block_rows,
                "BLOCK_COLUMNS": lanes,
                **({"EARLY": at_once} if scaling else {}),
            },
            options=options(warps * max(1, itemsize // 4)),
        )
    # Rows may be fewer than multiprocessors, each of which then has one program's loads in flight.
    warps = min(LONG_WARPS, warps_of_a_program(ctx))
    # What is loaded one by one, or computed in 64 bits, takes more registers than packed vectors.
    tiles = 1 if itemsize > 4 else TILES if rows.vectors else TILES // 2
    block_rows, lanes = 1, warps * THREADS_PER_WARP * 16 // itemsize
    if rows.stride != 1:
        block_rows, tiles, lanes, warps = 32, 1, 64, 4
    if rows.vectors and itemsize <= 4 and ctx.device.arch.startswith("sm_"):
        held = min(held, rows.length // lanes // tiles * tiles)
    else:
        held = tiles
    names = ("x", "out", "rows", "length", "row_shape", "row_strides", "out_strides", "stride", "out_stride")
    every = {**rows.read, **rows.write, "rows": rows.count}
    own = dict(scaling)
    vectors = tuple(own.pop(name, None if name in ("weight", "bias") else 0) for name in VECTORS)
    return launch(
        ctx,
        long,
        programs=triton.cdiv(rows.count, block_rows),
        arguments={"given": tuple(every[name] for name in names), "vectors": vectors, **own},
        constants={
            "WIDE": rows.wide(block_rows * held * lanes),
            "BLOCK_ROWS": block_rows,
            "TILES": tiles,
            "HELD": held,
            "LANES": lanes,
            "SPLIT": held > tiles and itemsize == 2 and takes_ptx(ctx, long),
        },
        options=options(warps),
    )


def launch_pieces(
    ctx: BindContext, rows: Rows, measure: Any, scale: Any, found: Sequence[str], scaling: Mapping[str, Argument]
) -> Sequence[Launch]:
    """Launch ``measure``, which writes the workspaces ``found``, one number a piece, and ``scale``, which merges them.

    ``scaling`` are arguments of ``scale`` alone.
    """
    pieces, blocks = cut(triton.cdiv(rows.length, PIECE), MAX_PIECES)
    per_piece = blocks * PIECE
    read: dict[str, Argument] = {
        **rows.read,
        **{name: name for name in found},
        "pieces": pieces,
        "per_piece": per_piece,
    }
    constants = {"WIDE": rows.wide(pieces * per_piece + PIECE), "BLOCK": PIECE}
    first = launch(ctx, measure, programs=rows.count * pieces, arguments=read, constants=constants, options=options(8))
    second = launch(
        ctx,
        scale,
        programs=rows.count * pieces,
        arguments={**read, **rows.write, **scaling},
        constants={**constants, "PIECES": triton.next_power_of_2(pieces)},
        options=options(8),
    )
    return (first, second)
