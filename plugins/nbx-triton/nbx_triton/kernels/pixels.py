"""pixel_shuffle and pixel_unshuffle by rows of the image: bits moved, whatever they mean. Deterministic.

An image of H r by W r pixels has r^2 planes of H by W, and row h r + i of the image meets row h of r planes, those of
i r + j. One program moves ``BLOCK_ROWS`` rows of the image, ``BLOCK`` pixels of each plane's row at a time: all that
depends on the row is worked out once a row. For r of 2 and 4 the r rows are joined, or split, in registers. For any
other r up to 8 a thread has a piece of 16 bytes of each of the r rows, which are as many pieces of the image's row: so
memory is touched in runs of 16 bytes on both sides. Beyond, the image's side is in steps of r elements, whose gaps the
other steps of the same program fill.

At the least an element is read and written once.
"""

from __future__ import annotations

from collections.abc import Sequence

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
    across = (width + BLOCK - 1) // BLOCK
    down = (height * R + BLOCK_ROWS - 1) // BLOCK_ROWS
    number = program(WIDE)
    channel = number // across // down % channels
    batch = number // across // down // channels
    row = number // across % down * BLOCK_ROWS + tl.arange(0, BLOCK_ROWS)[:, None]
    column = number % across * BLOCK
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
            pixel = (number % across * R + j) * BLOCK + tl.arange(0, BLOCK)[None, :]
            own = here & (pixel < width * R)
            place = planes + plane_offset(plane + pixel % R, repeat, plane_strides) + pixel // R * plane_strides[4]
            tl.store(line + pixel * image_strides[3], tl.load(place, mask=own, other=0), mask=own)


@triton.jit
def move_pieces(
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
    BITS: tl.constexpr,
):
    """Move a tile as `move_rows` does, a lane 2^BITS pixels of each of R planes: R pieces of a row of the image."""
    pieces: tl.constexpr = BLOCK >> BITS
    lanes: tl.constexpr = BLOCK_ROWS * pieces
    across = (width + BLOCK - 1) // BLOCK
    down = (height * R + BLOCK_ROWS - 1) // BLOCK_ROWS
    number = program(WIDE)
    channel = number // across // down % channels
    batch = number // across // down // channels
    lane = tl.arange(0, lanes)[:, None]
    row = number // across % down * BLOCK_ROWS + lane // pieces
    column = number % across * BLOCK + (lane % pieces << BITS)
    e = tl.arange(0, 2**BITS)[None, :]
    here = row < height * R
    inside = here & (column + e < width)
    plane = (channel * R + row % R) * R
    place = planes + batch * plane_strides[0] + row // R * plane_strides[3] + (column + e) * plane_strides[4]
    line = image + batch * image_strides[0] + channel * image_strides[1] + row * image_strides[2]
    found = ()
    for i in tl.static_range(R):
        if UNSHUFFLE:
            pixel = column * R + (i << BITS) + e
            piece = tl.load(line + pixel * image_strides[3], mask=here & (pixel < width * R), other=0)
        else:
            piece = tl.load(place + plane_offset(plane + i, repeat, plane_strides), mask=inside, other=0)
        found = found + unstack(piece, lanes, BITS)
    for i in tl.static_range(R):
        parts = ()
        for k in tl.static_range(2**BITS):
            if UNSHUFFLE:
                parts = parts + (found[k * R + i],)  # noqa: RUF005 - the compiler unpacks no tuples
            else:
                parts = parts + (found[((i << BITS) + k) % R * 2**BITS + ((i << BITS) + k) // R],)  # noqa: RUF005
        piece = stack(parts, lanes, BITS)
        if UNSHUFFLE:
            tl.store(place + plane_offset(plane + i, repeat, plane_strides), piece, mask=inside)
        else:
            pixel = column * R + (i << BITS) + e
            tl.store(line + pixel * image_strides[3], piece, mask=here & (pixel < width * R))


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
    block_rows, block = tile_shape(height * r, width, max(1, ELEMENTS // triton.next_power_of_2(r)))
    pieces = r <= MOST and r not in JOINED
    piece = min(16 // out.dtype.itemsize, block, HELD // triton.next_power_of_2(r))
    bits = f"int{out.dtype.itemsize * 8}"
    # Masked rows and pixels past the end have offsets too.
    slack = (block_rows + block * r) * max(map(abs, (*strides, *one.strides)))
    step = launch(
        ctx,
        move_pieces if pieces else move_rows,
        programs=batch * channels * triton.cdiv(height * r, block_rows) * triton.cdiv(width, block),
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
            "UNSHUFFLE": image_name == "x",
            "R": r,
            "WIDE": 2 * max(reach(many.shape, many.strides), reach(one.shape, one.strides)) + slack >= NARROW
            or out.size + block_rows * r * block >= NARROW,
            "BLOCK_ROWS": block_rows,
            "BLOCK": block,
            **({"BITS": piece.bit_length() - 1} if pieces else {}),
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
