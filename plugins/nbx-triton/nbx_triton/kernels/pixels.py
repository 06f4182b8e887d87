"""pixel_shuffle and pixel_unshuffle by rows of the image: bits moved, whatever they mean. Deterministic.

An image of H r by W r pixels has r^2 planes of H by W, and row h r + i of the image meets row h of r planes, those of
i r + j. One program moves ``BLOCK_ROWS`` rows of the image, ``BLOCK`` pixels of each plane's row at a time: all that
depends on the row is worked out once a row. For r of 2 and 4 the r rows are joined, or split, in registers, so that
memory is touched in runs of 16 bytes on both sides; for any other r the image's side is in steps of r elements, whose
gaps the other steps of the same program fill.

At the least an element is read and written once.
"""

from __future__ import annotations

from collections.abc import Sequence

import triton
import triton.language as tl

from nbx_registry.launch import BindContext, Launch
from nbx_registry.spec import TensorSpec
from nbx_triton.compiler import Options
from nbx_triton.kernels.strided import NARROW, program, reach
from nbx_triton.launching import Pointer, launch

OPTIONS = Options(num_warps=4, num_stages=1, enable_fp_fusion=False)
_ELEMENTS = 4096


@triton.jit
def plane_row(planes, n, plane, repeat, h, strides):
    """Return where row h of a plane begins. ``strides`` are of batch, channel, repeat, row, column."""
    return planes + n * strides[0] + plane // repeat * strides[1] + plane % repeat * strides[2] + h * strides[3]


@triton.jit
def move_rows(
    planes,
    image,
    rows,
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
    """Move a tile of rows of the image, ``BLOCK`` pixels of each of its R planes.

    Rows are numbered (n, c, h, i); ``width`` is that of a plane. A plane's number is channel * repeat + repetition.
    ``image_strides`` are of batch, channel, row, column.
    """
    across = (width + BLOCK - 1) // BLOCK
    number = program(WIDE)
    row = number // across * BLOCK_ROWS + tl.arange(0, BLOCK_ROWS)[:, None]
    w = number % across * BLOCK + tl.arange(0, BLOCK)[None, :]
    inside = (row < rows) & (w < width)
    i = row % R
    h = row // R % height
    c = row // R // height % channels
    n = row // R // height // channels
    plane = (c * R + i) * R
    line = image + n * image_strides[0] + c * image_strides[1] + (h * R + i) * image_strides[2]
    if R == 2 or R == 4:
        pixel = number % across * (BLOCK * R) + tl.arange(0, BLOCK * R)[None, :]
        whole = (row < rows) & (pixel < width * R)
    if UNSHUFFLE:
        if R == 2:
            pixels = tl.load(line + pixel * image_strides[3], mask=whole, other=0)
            a, b = tl.split(tl.reshape(pixels, (BLOCK_ROWS, BLOCK, 2)))
            tl.store(plane_row(planes, n, plane, repeat, h, plane_strides) + w * plane_strides[4], a, mask=inside)
            tl.store(plane_row(planes, n, plane + 1, repeat, h, plane_strides) + w * plane_strides[4], b, mask=inside)
        elif R == 4:
            pixels = tl.load(line + pixel * image_strides[3], mask=whole, other=0)
            even, odd = tl.split(tl.reshape(pixels, (BLOCK_ROWS, BLOCK, 2, 2)))
            a0, a2 = tl.split(even)
            a1, a3 = tl.split(odd)
            tl.store(plane_row(planes, n, plane, repeat, h, plane_strides) + w * plane_strides[4], a0, mask=inside)
            tl.store(plane_row(planes, n, plane + 1, repeat, h, plane_strides) + w * plane_strides[4], a1, mask=inside)
            tl.store(plane_row(planes, n, plane + 2, repeat, h, plane_strides) + w * plane_strides[4], a2, mask=inside)
            tl.store(plane_row(planes, n, plane + 3, repeat, h, plane_strides) + w * plane_strides[4], a3, mask=inside)
        else:
            for j in range(R):
                a = tl.load(line + (w * R + j) * image_strides[3], mask=inside, other=0)
                place = plane_row(planes, n, plane + j, repeat, h, plane_strides) + w * plane_strides[4]
                tl.store(place, a, mask=inside)
    elif R == 2:
        a0 = tl.load(plane_row(planes, n, plane, repeat, h, plane_strides) + w * plane_strides[4], mask=inside)
        a1 = tl.load(plane_row(planes, n, plane + 1, repeat, h, plane_strides) + w * plane_strides[4], mask=inside)
        pixels = tl.reshape(tl.join(a0, a1), (BLOCK_ROWS, BLOCK * 2))
        tl.store(line + pixel * image_strides[3], pixels, mask=whole)
    elif R == 4:
        a0 = tl.load(plane_row(planes, n, plane, repeat, h, plane_strides) + w * plane_strides[4], mask=inside)
        a1 = tl.load(plane_row(planes, n, plane + 1, repeat, h, plane_strides) + w * plane_strides[4], mask=inside)
        a2 = tl.load(plane_row(planes, n, plane + 2, repeat, h, plane_strides) + w * plane_strides[4], mask=inside)
        a3 = tl.load(plane_row(planes, n, plane + 3, repeat, h, plane_strides) + w * plane_strides[4], mask=inside)
        pixels = tl.reshape(tl.join(tl.join(a0, a2), tl.join(a1, a3)), (BLOCK_ROWS, BLOCK * 4))
        tl.store(line + pixel * image_strides[3], pixels, mask=whole)
    else:
        # Written from the image's side, in runs: what is read in parts from several planes meets in the cache.
        for j in range(R):
            pixel = (number % across * R + j) * BLOCK + tl.arange(0, BLOCK)[None, :]
            own = (row < rows) & (pixel < width * R)
            place = plane_row(planes, n, plane + pixel % R, repeat, h, plane_strides) + pixel // R * plane_strides[4]
            tl.store(line + pixel * image_strides[3], tl.load(place, mask=own, other=0), mask=own)


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
    block = min(_ELEMENTS // triton.next_power_of_2(r), triton.next_power_of_2(width))
    rows = batch * channels * height * r
    block_rows = max(1, min(_ELEMENTS // triton.next_power_of_2(r) // block, triton.next_power_of_2(rows)))
    bits = f"int{out.dtype.itemsize * 8}"
    # Masked rows and pixels past the end have offsets too.
    slack = (block_rows + block * r) * max(map(abs, (*strides, *one.strides)))
    step = launch(
        ctx,
        move_rows,
        programs=triton.cdiv(rows, block_rows) * triton.cdiv(width, block),
        arguments={
            "planes": Pointer(plane_name, bits, many.align),
            "image": Pointer(image_name, bits, one.align),
            "rows": rows,
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
