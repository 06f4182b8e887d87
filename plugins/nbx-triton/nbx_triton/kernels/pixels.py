"""pixel_shuffle and pixel_unshuffle by rows of the image: bits moved, whatever they mean. Deterministic.

An image of H r by W r pixels has r^2 planes of H by W, and row h r + i of the image meets row h of r planes, those of
i r + j. One program moves a tile of rows of the image: all that depends on the row is worked out once a row. For r of 2
and 4 the r rows are joined, or split, in registers. For any other r up to 8, where rows lie in pieces of 16 bytes, r
pieces of as many planes' rows are as many of the image's row: a thread that has them splits them in registers, and r
threads that write them read all and take their own, since stores of less than 32 bytes side by side are slow. Else the
image is read, or written, in steps of r elements, whose gaps the other steps of the same program fill.

At the least an element is read and written once. On an H200 float16 [8, 256, 256, 256] takes 131 us for r of 2 and 4,
252 channels 133 us for r of 3, as float32 255 us, where copies take 129, 128 and 252.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import triton
import triton.language as tl

from nbx_registry.launch import BindContext, Launch
from nbx_registry.spec import TensorSpec
from nbx_triton.compiler import Options
from nbx_triton.kernels.lanes import stack, unstack
from nbx_triton.kernels.strided import NARROW, program, reach
from nbx_triton.kernels.tiles import ELEMENTS, tile_shape
from nbx_triton.launching import Pointer, launch

OPTIONS = Options(num_warps=4, num_stages=1, enable_fp_fusion=False)
JOINED = (2, 4)
"""What r rows are joined in registers for."""
MOST = 8
"""The largest r for which a thread has pieces of r rows."""
HELD = 64
"""Elements of a thread's pieces at the most."""


@triton.jit
def plane_offset(plane, repeat, strides):
    """Return where a plane begins in its image. ``strides`` are of batch, channel, repeat, row, column."""
    return plane // repeat * strides[1] + plane % repeat * strides[2]


@triton.jit
def _tile_of(rows, columns, channels, WIDE: tl.constexpr, BLOCK_ROWS: tl.constexpr, BLOCK: tl.constexpr):
    """Return the batch, the channel, the first row and the first column of a program's tile."""
    across = (columns + BLOCK - 1) // BLOCK
    down = (rows + BLOCK_ROWS - 1) // BLOCK_ROWS
    number = program(WIDE)
    matrix = number // across // down
    return matrix // channels, matrix % channels, number // across % down * BLOCK_ROWS, number % across * BLOCK


@triton.jit
def move_rows(
    planes,
    image,
    channels,
    height,
    width,
    repeat,
    plane_strides,
    image_strides,
    UNSHUFFLE: tl.constexpr,
    R: tl.constexpr,
    WIDE: tl.constexpr,
    BLOCK_ROWS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Move a tile of rows of one channel of the image, ``BLOCK`` pixels of each of their R planes.

    ``height`` and ``width`` are a plane's. A plane's number is channel * repeat + repetition. ``image_strides`` are of
    batch, channel, row, column.
    """
    batch, channel, first_row, column = _tile_of(height * R, width, channels, WIDE, BLOCK_ROWS, BLOCK)
    row = first_row + tl.arange(0, BLOCK_ROWS)[:, None]
    w = column + tl.arange(0, BLOCK)[None, :]
    here = row < height * R
    inside = here & (w < width)
    plane = (channel * R + row % R) * R
    planes += batch * plane_strides[0] + row // R * plane_strides[3]
    line = image + batch * image_strides[0] + channel * image_strides[1] + row * image_strides[2]
    if R == 2 or R == 4:
        place = planes + w * plane_strides[4]
        first = place + plane_offset(plane, repeat, plane_strides)
        second = place + plane_offset(plane + 1, repeat, plane_strides)
        pixel = column * R + tl.arange(0, BLOCK * R)[None, :]
        whole = here & (pixel < width * R)
        line += pixel * image_strides[3]
    if R == 4:
        third = place + plane_offset(plane + 2, repeat, plane_strides)
        fourth = place + plane_offset(plane + 3, repeat, plane_strides)
    if UNSHUFFLE:
        if R == 2:
            a, b = tl.split(tl.reshape(tl.load(line, mask=whole, other=0), (BLOCK_ROWS, BLOCK, 2)))
            tl.store(first, a, mask=inside)
            tl.store(second, b, mask=inside)
        elif R == 4:
            even, odd = tl.split(tl.reshape(tl.load(line, mask=whole, other=0), (BLOCK_ROWS, BLOCK, 2, 2)))
            a, c = tl.split(even)
            b, d = tl.split(odd)
            tl.store(first, a, mask=inside)
            tl.store(second, b, mask=inside)
            tl.store(third, c, mask=inside)
            tl.store(fourth, d, mask=inside)
        else:
            for j in range(R):
                a = tl.load(line + (w * R + j) * image_strides[3], mask=inside, other=0)
                tl.store(planes + plane_offset(plane + j, repeat, plane_strides) + w * plane_strides[4], a, mask=inside)
    elif R == 2:
        a = tl.load(first, mask=inside, other=0)
        b = tl.load(second, mask=inside, other=0)
        tl.store(line, tl.reshape(tl.join(a, b), (BLOCK_ROWS, BLOCK * 2)), mask=whole)
    elif R == 4:
        a = tl.load(first, mask=inside, other=0)
        b = tl.load(second, mask=inside, other=0)
        c = tl.load(third, mask=inside, other=0)
        d = tl.load(fourth, mask=inside, other=0)
        pixels = tl.join(tl.join(a, c), tl.join(b, d))
        tl.store(line, tl.reshape(pixels, (BLOCK_ROWS, BLOCK * 4)), mask=whole)
    else:
        # Written from the image's side, in runs: what is read in parts from several planes meets in the cache.
        for j in range(R):
            pixel = column * R + j * BLOCK + tl.arange(0, BLOCK)[None, :]
            own = here & (pixel < width * R)
            place = planes + plane_offset(plane + pixel % R, repeat, plane_strides) + pixel // R * plane_strides[4]
            tl.store(line + pixel * image_strides[3], tl.load(place, mask=own, other=0), mask=own)


@triton.jit
def split_pieces(
    planes,
    image,
    channels,
    height,
    width,
    repeat,
    plane_strides,
    image_strides,
    R: tl.constexpr,
    WIDE: tl.constexpr,
    BLOCK_ROWS: tl.constexpr,
    BLOCK: tl.constexpr,
    BITS: tl.constexpr,
):
    """Read a tile of rows of one channel of the image, a lane R pieces, which make a piece of each of R planes.

    BLOCK is the lanes of a row, a piece 2^BITS pixels; arguments are as for `move_rows`.
    """
    pieces = (width + 2**BITS - 1) // 2**BITS
    batch, channel, first_row, first_piece = _tile_of(height * R, pieces, channels, WIDE, BLOCK_ROWS, BLOCK)
    lane = tl.arange(0, BLOCK_ROWS * BLOCK)[:, None]
    row = first_row + lane // BLOCK
    w = (first_piece + lane % BLOCK) * 2**BITS
    e = tl.arange(0, 2**BITS)[None, :]
    here = row < height * R
    line = image + batch * image_strides[0] + channel * image_strides[1] + row * image_strides[2]
    found = ()
    for i in tl.static_range(R):
        pixel = w * R + i * 2**BITS + e
        piece = tl.load(line + pixel * image_strides[3], mask=here & (pixel < width * R), other=0)
        found = found + unstack(piece, BLOCK_ROWS * BLOCK, BITS)
    plane = (channel * R + row % R) * R
    place = planes + batch * plane_strides[0] + row // R * plane_strides[3] + (w + e) * plane_strides[4]
    for j in tl.static_range(R):
        parts = ()
        for k in tl.static_range(2**BITS):
            parts = parts + (found[k * R + j],)  # noqa: RUF005 - the compiler unpacks no tuples
        piece = stack(parts, BLOCK_ROWS * BLOCK, BITS)
        tl.store(place + plane_offset(plane + j, repeat, plane_strides), piece, mask=here & (w + e < width))


@triton.jit
def join_pieces(
    planes,
    image,
    channels,
    height,
    width,
    repeat,
    plane_strides,
    image_strides,
    R: tl.constexpr,
    WIDE: tl.constexpr,
    BLOCK_ROWS: tl.constexpr,
    BLOCK: tl.constexpr,
    BITS: tl.constexpr,
):
    """Write a tile of rows of one channel of the image, a lane one piece of 2^BITS pixels.

    R neighbours find their pixels in the same R pieces of planes, of which each takes its own: so lanes write side by
    side. BLOCK is the lanes of a row; arguments are as for `move_rows`.
    """
    pieces = (width * R + 2**BITS - 1) // 2**BITS
    batch, channel, first_row, first_piece = _tile_of(height * R, pieces, channels, WIDE, BLOCK_ROWS, BLOCK)
    lane = tl.arange(0, BLOCK_ROWS * BLOCK)[:, None]
    row = first_row + lane // BLOCK
    piece = first_piece + lane % BLOCK
    e = tl.arange(0, 2**BITS)[None, :]
    here = row < height * R
    w = piece // R * 2**BITS + e
    plane = (channel * R + row % R) * R
    place = planes + batch * plane_strides[0] + row // R * plane_strides[3] + w * plane_strides[4]
    found = ()
    for j in tl.static_range(R):
        data = tl.load(place + plane_offset(plane + j, repeat, plane_strides), mask=here & (w < width), other=0)
        found = found + unstack(data, BLOCK_ROWS * BLOCK, BITS)
    own = tl.reshape(piece % R, (BLOCK_ROWS * BLOCK,))
    parts = ()
    for k in tl.static_range(2**BITS):
        # Pixel p of R pieces is element p // R of plane p % R.
        pixel = found[k % R * 2**BITS + k // R]
        for i in tl.static_range(1, R):
            other = found[(i * 2**BITS + k) % R * 2**BITS + (i * 2**BITS + k) // R]
            pixel = tl.where(own == i, other, pixel)
        parts = parts + (pixel,)  # noqa: RUF005 - the compiler unpacks no tuples
    line = image + batch * image_strides[0] + channel * image_strides[1] + row * image_strides[2]
    pixel = piece * 2**BITS + e
    data = stack(parts, BLOCK_ROWS * BLOCK, BITS)
    tl.store(line + pixel * image_strides[3], data, mask=here & (pixel < width * R))


class _Tile(NamedTuple):
    """How a program's part is cut: the function, rows, columns or lanes of a row, and the function's own constants."""

    function: Any
    rows: int
    block: int
    across: int
    """Pixels of the planes that a tile has at the most."""
    tiles: int
    """Tiles of a row."""
    constants: Mapping[str, Any]


def _whole(spec: TensorSpec) -> bool:
    """Whether rows are dense, and lie so that the compiler finds pieces of 16 bytes in them."""
    return spec.align % 16 == 0 and spec.strides[-1] == 1 and all(stride % 16 == 0 for stride in spec.strides[:-1])


def _tile(r: int, rows: int, width: int, itemsize: int, whole: bool, unshuffle: bool) -> _Tile:
    """Return the tile of an image of so many rows, and of planes of so many columns; ``whole``: both lie in pieces."""
    if r in JOINED or r > MOST or not whole:
        block_rows, block = tile_shape(rows, width, max(1, ELEMENTS // triton.next_power_of_2(r)))
        tiles = triton.cdiv(width, block)
        return _Tile(move_rows, block_rows, block, block, tiles, {"UNSHUFFLE": unshuffle})
    piece = min(16 // itemsize, HELD // triton.next_power_of_2(r))
    pieces = triton.cdiv(width if unshuffle else width * r, piece)
    # A lane holds r pieces. One that writes a single one of them has so much less to do that a thread gets several.
    lanes = ELEMENTS // (piece * triton.next_power_of_2(r)) * (1 if unshuffle else min(4, triton.next_power_of_2(r)))
    # Lanes beyond the end of a row do nothing: the fewer the better, and of the same number the longest runs.
    most = min(lanes, triton.next_power_of_2(pieces)).bit_length()
    fitting = (2**bit for bit in range(min(most - 1, 4), most))
    block = min(fitting, key=lambda size: (triton.cdiv(pieces, size) * size, -size))
    block_rows = min(lanes // block, triton.next_power_of_2(rows))
    constants = {"BITS": piece.bit_length() - 1}
    function = split_pieces if unshuffle else join_pieces
    return _Tile(function, block_rows, block, block * piece, triton.cdiv(pieces, block), constants)


def _move(ctx: BindContext, planes: tuple[str, TensorSpec], image: tuple[str, TensorSpec]) -> Sequence[Launch]:
    """Move between planes, of rank 4 or 5, and the image, whichever of the two is the output."""
    (out,) = ctx.signature.outputs
    if out.size == 0:
        return ()
    r = ctx.signature.attributes["r"]
    (plane_name, many), (image_name, one) = planes, image
    repeat = many.shape[2] if many.rank == 5 else 1
    strides = many.strides if many.rank == 5 else (*many.strides[:2], 0, *many.strides[2:])
    batch, channels, height, width = one.shape[0], one.shape[1], *many.shape[-2:]
    whole = _whole(many) and _whole(one)
    tile = _tile(r, height * r, width, out.dtype.itemsize, whole, image_name == "x")
    bits = f"int{out.dtype.itemsize * 8}"
    # Masked rows and pixels past the end have offsets too.
    slack = (tile.rows + tile.across * r) * max(map(abs, (*strides, *one.strides)))
    step = launch(
        ctx,
        tile.function,
        programs=batch * channels * triton.cdiv(height * r, tile.rows) * tile.tiles,
        arguments={
            "planes": Pointer(plane_name, bits, many.align),
            "image": Pointer(image_name, bits, one.align),
            "channels": channels,
            "height": height,
            "width": width,
            "repeat": repeat,
            "plane_strides": strides,
            "image_strides": one.strides,
        },
        constants={
            "R": r,
            "WIDE": 2 * max(reach(many.shape, many.strides), reach(one.shape, one.strides)) + slack >= NARROW
            or out.size + tile.rows * r * tile.across >= NARROW,
            "BLOCK_ROWS": tile.rows,
            "BLOCK": tile.block,
            **tile.constants,
        },
        options=OPTIONS,
    )
    return (step,)


def bind_shuffle(ctx: BindContext) -> Sequence[Launch]:
    """Bind ``pixel_shuffle`` of ``[N, C, H, W]`` and of ``[N, P, B, H, W]``, any strides."""
    (x,) = ctx.signature.operands
    (out,) = ctx.signature.outputs
    return _move(ctx, ("x", x), ("out", out))


def bind_unshuffle(ctx: BindContext) -> Sequence[Launch]:
    """Bind ``pixel_unshuffle``, any strides."""
    (x,) = ctx.signature.operands
    (out,) = ctx.signature.outputs
    return _move(ctx, ("out", out), ("x", x))
