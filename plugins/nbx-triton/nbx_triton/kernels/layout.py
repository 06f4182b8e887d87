"""permute_dims as a copy: bits moved, whatever they mean. Deterministic."""

from __future__ import annotations

from collections.abc import Sequence

import triton
import triton.language as tl

from nbx_registry.dtypes import DType
from nbx_registry.launch import BindContext, Launch
from nbx_registry.spec import TensorSpec
from nbx_triton.compiler import Options
from nbx_triton.kernels.strided import NARROW, collapse, locate, program, reach
from nbx_triton.launching import Pointer, launch

OPTIONS = Options(num_warps=4, num_stages=1, enable_fp_fusion=False)
TILE = 32
LINE = 1024


@triton.jit
def copy_tiles(
    x,
    out,
    rows,
    columns,
    shape,
    x_strides,
    out_strides,
    x_row,
    x_column,
    out_row,
    out_column,
    WIDE: tl.constexpr,
    BLOCK_ROWS: tl.constexpr,
    BLOCK_COLUMNS: tl.constexpr,
):
    """Copy one tile of two axes, the others (``shape``) numbering matrices of them.

    Columns run along the output's densest axis, rows along the input's: loads and stores both touch whole lines.
    """
    tiles_rows = (rows + BLOCK_ROWS - 1) // BLOCK_ROWS
    tiles_columns = (columns + BLOCK_COLUMNS - 1) // BLOCK_COLUMNS
    number = program(WIDE)
    matrix = number // (tiles_rows * tiles_columns)
    tile = number % (tiles_rows * tiles_columns)
    row = (tile // tiles_columns) * BLOCK_ROWS + tl.arange(0, BLOCK_ROWS)[:, None]
    column = (tile % tiles_columns) * BLOCK_COLUMNS + tl.arange(0, BLOCK_COLUMNS)[None, :]
    inside = (row < rows) & (column < columns)
    data = tl.load(x + locate(matrix, shape, x_strides) + row * x_row + column * x_column, mask=inside, other=0)
    tl.store(out + locate(matrix, shape, out_strides) + row * out_row + column * out_column, data, mask=inside)


@triton.jit
def copy_line(x, out, count, shape, x_strides, out_strides, WIDE: tl.constexpr, BLOCK: tl.constexpr):
    """Copy ``BLOCK`` consecutive elements of the output."""
    index = program(WIDE) * BLOCK + tl.arange(0, BLOCK)
    inside = index < count
    data = tl.load(x + locate(index, shape, x_strides), mask=inside, other=0)
    tl.store(out + locate(index, shape, out_strides), data, mask=inside)


def _bits(dtype: DType) -> str:
    """Return the integer dtype of the same size."""
    return f"int{dtype.itemsize * 8}"


def copy(ctx: BindContext, name: str, x: TensorSpec, strides: Sequence[int]) -> Sequence[Launch]:
    """Copy operand ``name``, seen through ``strides`` in the output's shape, to the output."""
    (out,) = ctx.signature.outputs
    if out.size == 0:
        return ()
    shape, x_strides, out_strides = collapse(out.shape, strides, out.strides)
    pointers = {
        "x": Pointer(name, _bits(x.dtype), x.align),
        "out": Pointer("out", _bits(x.dtype), out.align),
    }
    wide = 2 * max(reach(shape, x_strides), reach(shape, out_strides)) >= NARROW or out.size + LINE >= NARROW
    across, down = _densest(out_strides), _densest(x_strides)
    if across == down or min(shape[across], shape[down]) < TILE // 2:
        # Lines are dense in both, or too short to fill a tile.
        step = launch(
            ctx,
            copy_line,
            programs=triton.cdiv(out.size, LINE),
            arguments={
                **pointers,
                "count": out.size,
                "shape": shape,
                "x_strides": x_strides,
                "out_strides": out_strides,
            },
            constants={"WIDE": wide, "BLOCK": LINE},
            options=OPTIONS,
        )
        return (step,)
    others = [axis for axis in range(len(shape)) if axis not in (across, down)]
    matrices, x_matrix, out_matrix = collapse(
        [shape[axis] for axis in others], [x_strides[axis] for axis in others], [out_strides[axis] for axis in others]
    )
    tiles = triton.cdiv(shape[down], TILE) * triton.cdiv(shape[across], TILE)
    step = launch(
        ctx,
        copy_tiles,
        programs=out.size // (shape[down] * shape[across]) * tiles,
        arguments={
            **pointers,
            "rows": shape[down],
            "columns": shape[across],
            "shape": matrices,
            "x_strides": x_matrix,
            "out_strides": out_matrix,
            "x_row": x_strides[down],
            "x_column": x_strides[across],
            "out_row": out_strides[down],
            "out_column": out_strides[across],
        },
        constants={"WIDE": wide, "BLOCK_ROWS": TILE, "BLOCK_COLUMNS": TILE},
        options=OPTIONS,
    )
    return (step,)


def _densest(strides: Sequence[int]) -> int:
    """Return the axis along which neighbours are closest; of several, the last. An expanded axis is the last resort."""
    return min(range(len(strides)), key=lambda axis: (abs(strides[axis]) or NARROW, -axis))


def bind_permute_dims(ctx: BindContext) -> Sequence[Launch]:
    """Bind ``permute_dims`` with ``copy=True``."""
    (x,) = ctx.signature.tensors
    return copy(ctx, "x", x, [x.strides[axis % x.rank] for axis in ctx.signature.attributes["axes"]])
