"""take: places along an axis, copied one for each index. Bits are moved, whatever they mean. Deterministic.

The axes before the one that is taken along number blocks, those after it the columns of a place. One program copies a
tile of entries (block, index) by columns, about 4096 elements: whole lines where places are long, and neighbouring
entries where they are short.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import triton
import triton.language as tl

from nbx_registry.infer import normalise_axis
from nbx_registry.launch import BindContext, Launch
from nbx_triton.compiler import Options
from nbx_triton.kernels.strided import NARROW, collapse, locate, program, reach
from nbx_triton.kernels.tiles import ELEMENTS, tile, tile_shape
from nbx_triton.launching import Pointer, launch

OPTIONS = Options(num_warps=4, num_stages=1, enable_fp_fusion=False)


@triton.jit
def pick(
    x,
    indices,
    out,
    entries,
    picks,
    extent,
    columns,
    index_stride,
    x_axis,
    out_axis,
    block_shape,
    x_block_strides,
    out_block_strides,
    shape,
    x_strides,
    out_strides,
    WIDE: tl.constexpr,
    BLOCK_ENTRIES: tl.constexpr,
    BLOCK_COLUMNS: tl.constexpr,
):
    """Copy a tile. Entry (block, i) is numbered block * picks + i; an index outside reads nothing and gives zeros."""
    entry, column = tile(program(WIDE), columns, BLOCK_ENTRIES, BLOCK_COLUMNS)
    here = entry < entries
    i = entry % picks
    place = tl.load(indices + i * index_stride, mask=here, other=0).to(entry.dtype)
    known = here & (place >= 0) & (place < extent)
    inside = here[:, None] & (column < columns)[None, :]
    source = x + (locate(entry // picks, block_shape, x_block_strides) + place * x_axis)[:, None]
    target = out + (locate(entry // picks, block_shape, out_block_strides) + i * out_axis)[:, None]
    data = tl.load(source + locate(column, shape, x_strides)[None, :], mask=inside & known[:, None], other=0)
    tl.store(target + locate(column, shape, out_strides)[None, :], data, mask=inside)


def bind(ctx: BindContext) -> Sequence[Launch]:
    """Bind ``take`` along any axis."""
    x, indices = ctx.signature.operands
    (out,) = ctx.signature.outputs
    if out.size == 0:
        return ()
    axis = normalise_axis(ctx.signature.attributes["axis"] or 0, x.rank)
    block_shape, x_blocks, out_blocks = collapse(x.shape[:axis], x.strides[:axis], out.strides[:axis])
    shape, x_columns, out_columns = collapse(x.shape[axis + 1 :], x.strides[axis + 1 :], out.strides[axis + 1 :])
    columns = prod(x.shape[axis + 1 :])
    picks = indices.shape[0]
    entries = prod(x.shape[:axis]) * picks
    block_entries, block_columns = tile_shape(entries, columns)
    bits = f"int{x.dtype.itemsize * 8}"
    # Masked entries and columns past the end have offsets too.
    steps = (*x_blocks, *out_blocks, *x_columns, *out_columns, x.strides[axis], out.strides[axis])
    slack = (block_entries + block_columns) * max(map(abs, steps))
    step = launch(
        ctx,
        pick,
        programs=triton.cdiv(entries, block_entries) * triton.cdiv(columns, block_columns),
        arguments={
            "x": Pointer("x", bits, x.align),
            "indices": "indices",
            "out": Pointer("out", bits, out.align),
            "entries": entries,
            "picks": picks,
            "extent": x.shape[axis],
            "columns": columns,
            "index_stride": indices.strides[0],
            "x_axis": x.strides[axis],
            "out_axis": out.strides[axis],
            "block_shape": block_shape,
            "x_block_strides": x_blocks,
            "out_block_strides": out_blocks,
            "shape": shape,
            "x_strides": x_columns,
            "out_strides": out_columns,
        },
        constants={
            # A 64-bit index past the axis must not be cut to one inside it.
            "WIDE": indices.dtype.bits == 64
            or max(reach(x.shape, x.strides), reach(out.shape, out.strides), out.size) + slack + ELEMENTS >= NARROW
            or reach(indices.shape, indices.strides) >= NARROW,
            "BLOCK_ENTRIES": block_entries,
            "BLOCK_COLUMNS": block_columns,
        },
        options=OPTIONS,
    )
    return (step,)
