"""concat: tensors copied beside one another, up to 8 of them by one launch.

A tensor is seen as rows, which the axes before the joined one number, of columns, which it and those after it number;
without an axis it is one row. One program copies a tile of one tensor, about 4096 elements. What another dtype is asked
for keeps its value; all else is bits, whatever they mean. Deterministic.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import prod
from typing import Any, NamedTuple

import triton
import triton.language as tl

from nbx_registry.infer import normalise_axis
from nbx_registry.launch import BindContext, Launch
from nbx_registry.spec import TensorSpec
from nbx_triton.compiler import Options
from nbx_triton.kernels.strided import NARROW, collapse, locate, program, reach
from nbx_triton.kernels.tiles import ELEMENTS, tile, tile_shape
from nbx_triton.launching import Argument, Pointer, launch

OPTIONS = Options(num_warps=4, num_stages=1, enable_fp_fusion=False)
TENSORS = 8
"""Tensors that one launch copies."""


@triton.jit
def copy_part(
    x,
    out,
    number,
    rows,
    columns,
    pair,
    row_shape,
    x_row_strides,
    out_row_strides,
    shape,
    x_strides,
    out_strides,
    COMPLEX: tl.constexpr,
    BLOCK_ROWS: tl.constexpr,
    BLOCK_COLUMNS: tl.constexpr,
):
    """Copy one tile of a tensor. COMPLEX writes pairs of float32, of which ``x`` has both members if ``pair`` is 1."""
    row, column = tile(number, columns, BLOCK_ROWS, BLOCK_COLUMNS)
    inside = (row < rows)[:, None] & (column < columns)[None, :]
    source = x + locate(row, row_shape, x_row_strides)[:, None] + locate(column, shape, x_strides)[None, :]
    target = out + locate(row, row_shape, out_row_strides)[:, None] + locate(column, shape, out_strides)[None, :]
    tl.store(target, tl.load(source, mask=inside, other=0).to(out.dtype.element_ty), mask=inside)
    if COMPLEX:
        imaginary = tl.load(source + 1, mask=inside & (pair == 1), other=0)
        tl.store(target + 1, imaginary.to(out.dtype.element_ty), mask=inside)


@triton.jit
def join(
    arrays,
    out,
    tiles,
    starts,
    rows,
    columns,
    pairs,
    row_shapes,
    x_row_strides,
    out_row_strides,
    shapes,
    x_strides,
    out_strides,
    COMPLEX: tl.constexpr,
    WIDE: tl.constexpr,
    BLOCK_ROWS: tl.constexpr,
    BLOCK_COLUMNS: tl.constexpr,
):
    """Copy one tile of one of ``arrays``: ``tiles`` says before which program each ends, ``starts`` where it begins."""
    number = program(WIDE)
    first = number * 0
    for i in tl.static_range(len(arrays)):
        if (number >= first) & (number < tiles[i]):
            copy_part(
                arrays[i],
                out + starts[i],
                number - first,
                rows[i],
                columns[i],
                pairs[i],
                row_shapes[i],
                x_row_strides[i],
                out_row_strides[i],
                shapes[i],
                x_strides[i],
                out_strides[i],
                COMPLEX,
                BLOCK_ROWS,
                BLOCK_COLUMNS,
            )
        first = number * 0 + tiles[i]


class _Part(NamedTuple):
    """One tensor as rows of columns; strides are in elements of the pointers, two to a complex number."""

    pointer: Pointer
    wide: bool
    start: int
    rows: int
    columns: int
    pair: int
    row_shape: tuple[int, ...]
    x_row_strides: tuple[int, ...]
    out_row_strides: tuple[int, ...]
    shape: tuple[int, ...]
    x_strides: tuple[int, ...]
    out_strides: tuple[int, ...]


def _parts(arrays: Sequence[TensorSpec], out: TensorSpec, axis: int | None, mixed: bool) -> Iterator[_Part]:
    """Yield the tensors that have elements."""
    complex_out = mixed and out.dtype.name == "complex64"
    step = 2 if complex_out else 1
    start = 0
    for number, x in enumerate(arrays):
        place = 0 if axis is None else axis
        beside = out.strides[place]
        if axis is None:
            # The output's one axis, seen as the axes of x.
            out_all = tuple(beside * prod(x.shape[a + 1 :]) for a in range(x.rank))
        else:
            out_all = out.strides
        pair = complex_out and x.dtype.name == "complex64"
        x_all = tuple(stride * (2 if pair else 1) for stride in x.strides)
        out_all = tuple(stride * step for stride in out_all)
        if x.size:
            row_shape, x_rows, out_rows = collapse(x.shape[:place], x_all[:place], out_all[:place])
            shape, x_columns, out_columns = collapse(x.shape[place:], x_all[place:], out_all[place:])
            bits = "float32" if pair else x.dtype if mixed else f"int{x.dtype.itemsize * 8}"
            yield _Part(
                Pointer(f"arrays.{number}", bits, x.align),
                2 * max(reach(x.shape, x_all), reach(x.shape, out_all)) >= NARROW,
                start * beside * step,
                prod(x.shape[:place]),
                prod(x.shape[place:]),
                int(pair),
                row_shape,
                x_rows,
                out_rows,
                shape,
                x_columns,
                out_columns,
            )
        start += x.size if axis is None else x.shape[place]


def _copy(ctx: BindContext, parts: Sequence[_Part], mixed: bool) -> Launch:
    (out,) = ctx.signature.outputs
    complex_out = mixed and out.dtype.name == "complex64"
    bits = "float32" if complex_out else out.dtype if mixed else f"int{out.dtype.itemsize * 8}"
    block_rows, block_columns = tile_shape(max(part.rows for part in parts), max(part.columns for part in parts))
    ends: list[int] = []
    for part in parts:
        tiles = triton.cdiv(part.rows, block_rows) * triton.cdiv(part.columns, block_columns)
        ends.append(tiles + (ends[-1] if ends else 0))
    # Masked rows and columns past the end have offsets too.
    steps = (s for p in parts for s in (*p.x_row_strides, *p.out_row_strides, *p.x_strides, *p.out_strides))
    slack = (block_rows + block_columns) * max(map(abs, steps))
    fields: dict[str, Any] = {name: tuple(getattr(part, name) for part in parts) for name in _Part._fields}
    arguments: dict[str, Argument] = {
        "arrays": fields["pointer"],
        "out": Pointer("out", bits, out.align),
        "tiles": tuple(ends),
        "starts": fields["start"],
        "rows": fields["rows"],
        "columns": fields["columns"],
        "pairs": fields["pair"],
        "row_shapes": fields["row_shape"],
        "x_row_strides": fields["x_row_strides"],
        "out_row_strides": fields["out_row_strides"],
        "shapes": fields["shape"],
        "x_strides": fields["x_strides"],
        "out_strides": fields["out_strides"],
    }
    return launch(
        ctx,
        join,
        programs=ends[-1],
        arguments=arguments,
        constants={
            "COMPLEX": complex_out,
            "WIDE": any(part.wide for part in parts)
            or 2 * out.size + slack + ELEMENTS >= NARROW
            or 2 * reach(out.shape, out.strides) >= NARROW,
            "BLOCK_ROWS": block_rows,
            "BLOCK_COLUMNS": block_columns,
        },
        options=OPTIONS,
    )


def bind(ctx: BindContext) -> Sequence[Launch]:
    """Bind ``concat``, a launch for every 8 tensors that have elements."""
    (arrays,) = ctx.signature.operands
    (out,) = ctx.signature.outputs
    axis = ctx.signature.attributes["axis"]
    if axis is not None:
        axis = normalise_axis(axis, arrays[0].rank)
    mixed = any(x.dtype is not out.dtype for x in arrays)
    parts = list(_parts(arrays, out, axis, mixed))
    return tuple(_copy(ctx, parts[at : at + TENSORS], mixed) for at in range(0, len(parts), TENSORS))
