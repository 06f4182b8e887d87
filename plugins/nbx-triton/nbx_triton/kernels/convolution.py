"""conv2d as products of matrices that nobody writes down: filters by what lies under their windows.

A program computes ``BLOCK_O`` filters of a group at ``BLOCK_P`` pixels of the output, which are numbered over images,
rows and columns. Programs that differ in their filters alone follow each other, so that inputs come from memory once
and from the cache then. Sums are of float32 (float64 in float64), rounded once; float32 products are IEEE.

`tiles` reads images and filters where they lie, element by element under the windows: any dtype, any strides.

`channels_last` is for 16-bit images on devices that copy to shared memory beside the work (cp.async), at least 4 bytes
at a time: taps along the width would be copied from odd addresses. So images are first copied with their channels side
by side and the filters likewise, ``[N, H, W, C]`` and ``[O, KH, KW, C]``, zeros filling every group's channels up to a
multiple of 16; then every tile is made of whole 16-byte pieces, and padding is masked pixel by pixel. The copy of
float16 [8, 128, 256, 256] reads and writes 268 MB, 63 us at the 4.25 TB/s of an H200, where 256 filters of 3 by 3 take
309 GFLOP, 420 us at the 740 TFLOP/s of its products; all takes 630 to 690 us. Images that lie so already are read where
they are.

Along a filter the order is fixed. Deterministic.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import triton
import triton.language as tl

from nbx_registry.launch import BindContext, Launch
from nbx_registry.space import Space
from nbx_registry.spec import TensorSpec
from nbx_triton.compiler import Options
from nbx_triton.kernels.packing import PIECE, copy_filters, copy_images, lies_so
from nbx_triton.kernels.strided import NARROW, collapse, program, reach
from nbx_triton.kernels.windows import operand_arguments, window_arguments
from nbx_triton.launching import Argument, Pointer, has_matrix_unit, launch

SMALLEST = 64
"""Pixels and filters of the smallest tile of `channels_last`."""

SETTINGS = Space(
    parameters={"tile_filters": (128, 256), "tile_pixels": (64, 128, 256), "stages": (3, 4)},
    exclude={
        "accumulators past the registers": "tile_filters * tile_pixels > 32768",
        "shared memory of the stages": (
            "(tile_filters + tile_pixels) * 128 * stages > device.shared.bytes_per_block_optin"
        ),
        "more filters than there are": "tile_filters > 128 and tile_filters >= 2 * (O // groups)",
        "too few programs": (
            "tile_pixels > 64 and"
            " 2 * groups * cdiv(N * OH * OW, tile_pixels) * cdiv(O // groups, tile_filters) < device.multiprocessors"
        ),
    },
)


@triton.jit
def _place(filters, groups, WIDE: tl.constexpr, BLOCK_O: tl.constexpr, BLOCK_P: tl.constexpr):
    """Return a program's group, its filters within the group, and its pixels."""
    number = program(WIDE)
    tiles_o = (filters + BLOCK_O - 1) // BLOCK_O
    group = number // tiles_o % groups
    o = number % tiles_o * BLOCK_O + tl.arange(0, BLOCK_O)
    p = number // tiles_o // groups * BLOCK_P + tl.arange(0, BLOCK_P)
    return group, o, p


@triton.jit
def _corner(p, out_height, out_width, stride, padding):
    """Return the images of pixels of the output, and the first row and column under their windows."""
    image = p // (out_height * out_width)
    top = p // out_width % out_height * stride[0] - padding[0]
    left = p % out_width * stride[1] - padding[1]
    return image, top, left


@triton.jit
def _finish(total, bias, out, group, o, p, pixels, filters, out_height, out_width, bias_stride, out_strides):
    """Add the bias to a tile, round it and write it."""
    if bias is not None:
        place = bias + (group * filters + o) * bias_stride
        total += tl.load(place, mask=o < filters, other=0).to(total.dtype)[:, None]
    image = p // (out_height * out_width)
    oh = p // out_width % out_height
    row = image * out_strides[0] + oh * out_strides[2] + p % out_width * out_strides[3]
    target = out + ((group * filters + o) * out_strides[1])[:, None] + row[None, :]
    tl.store(target, total.to(out.dtype.element_ty), mask=(o < filters)[:, None] & (p < pixels)[None, :])


@triton.jit
def tiles(
    x,
    w,
    bias,
    out,
    pixels,
    filters,
    groups,
    channels,
    depth,
    height,
    width,
    out_height,
    out_width,
    stride,
    padding,
    dilation,
    x_strides,
    w_strides,
    w_depth,
    bias_stride,
    out_strides,
    KH: tl.constexpr,
    KW: tl.constexpr,
    INSIDE: tl.constexpr,
    WIDE: tl.constexpr,
    BLOCK_O: tl.constexpr,
    BLOCK_P: tl.constexpr,
    BLOCK_K: tl.constexpr,
):
    """Write one tile, along channels, rows and columns of the filters as they are numbered in w.

    Of filters whose elements lie at multiples of one stride, ``w_depth`` is that stride, else None. INSIDE: no window
    reaches beyond the image.
    """
    group, o, p = _place(filters, groups, WIDE, BLOCK_O, BLOCK_P)
    image, top, left = _corner(p, out_height, out_width, stride, padding)
    window = x + group * channels * x_strides[1] + image * x_strides[0] + top * x_strides[2] + left * x_strides[3]
    row_w = w + (group * filters + o) * w_strides[0]
    here_o = (o < filters)[:, None]
    here_p = (p < pixels)[None, :]
    if x.dtype.element_ty == tl.float64:
        total = tl.zeros((BLOCK_O, BLOCK_P), tl.float64)
    else:
        total = tl.zeros((BLOCK_O, BLOCK_P), tl.float32)
    for at in range(0, depth, BLOCK_K):
        k = (at + tl.arange(0, BLOCK_K)).to(p.dtype)
        c = k // (KH * KW)
        i = k // KW % KH * dilation[0]
        j = k % KW * dilation[1]
        if w_depth is not None:
            along = k * w_depth
        else:
            along = c * w_strides[1] + k // KW % KH * w_strides[2] + k % KW * w_strides[3]
        known = k < depth
        inside = known[:, None] & here_p
        if not INSIDE:
            row = top[None, :] + i[:, None]
            column = left[None, :] + j[:, None]
            inside = inside & (row >= 0) & (row < height) & (column >= 0) & (column < width)
        left_tile = tl.load(row_w[:, None] + along[None, :], mask=here_o & known[None, :], other=0)
        under = c * x_strides[1] + i * x_strides[2] + j * x_strides[3]
        right_tile = tl.load(window[None, :] + under[:, None], mask=inside, other=0)
        total = tl.dot(left_tile, right_tile, total, input_precision="ieee", out_dtype=total.dtype)
    _finish(total, bias, out, group, o, p, pixels, filters, out_height, out_width, bias_stride, out_strides)


@triton.jit
def channels_last(
    x,
    w,
    bias,
    out,
    pixels,
    filters,
    groups,
    padded,
    height,
    width,
    out_height,
    out_width,
    stride,
    padding,
    dilation,
    x_strides,
    bias_stride,
    out_strides,
    KH: tl.constexpr,
    KW: tl.constexpr,
    EVEN: tl.constexpr,
    WIDE: tl.constexpr,
    BLOCK_O: tl.constexpr,
    BLOCK_P: tl.constexpr,
    BLOCK_K: tl.constexpr,
):
    """Write one tile, ``BLOCK_K`` channels at a time, for these all taps of the filters.

    ``x_strides`` are of image, row and column; channels lie side by side, ``padded`` of them a group. EVEN: BLOCK_K
    divides that.
    """
    group, o, p = _place(filters, groups, WIDE, BLOCK_O, BLOCK_P)
    image, top, left = _corner(p, out_height, out_width, stride, padding)
    window = image * x_strides[0] + top * x_strides[1] + left * x_strides[2] + group * padded
    row_w = (group * filters + o) * (KH * KW * padded)
    k = tl.arange(0, BLOCK_K)
    here_o = (o < filters)[:, None]
    here_p = p < pixels
    total = tl.zeros((BLOCK_O, BLOCK_P), tl.float32)
    # At least one step: on the way past a loop of none the assembler meets sums that no product has written, and makes
    # each of all loops' products wait for the one before it.
    for step in range(tl.maximum((padded + BLOCK_K - 1) // BLOCK_K * (KH * KW), 1)):
        channel = step // (KH * KW) * BLOCK_K
        tap = step % (KH * KW)
        i = tap // KW * dilation[0]
        j = tap % KW * dilation[1]
        row = top + i
        column = left + j
        inside = (here_p & (row >= 0) & (row < height) & (column >= 0) & (column < width))[None, :]
        known = here_o
        if not EVEN:
            inside = inside & (channel + k < padded)[:, None]
            known = known & (channel + k < padded)[None, :]
        under = window + (i * x_strides[1] + j * x_strides[2] + channel)
        along = row_w + (tap * padded + channel)
        left_tile = tl.load(w + along[:, None] + k[None, :], mask=known, other=0)
        right_tile = tl.load(x + under[None, :] + k[:, None], mask=inside, other=0)
        total = tl.dot(left_tile, right_tile, total)
    _finish(total, bias, out, group, o, p, pixels, filters, out_height, out_width, bias_stride, out_strides)


class _Image(NamedTuple):
    """Extents and strides of the images and the output, those of a pointwise convolution as one row."""

    height: int
    width: int
    out_height: int
    out_width: int
    x_strides: tuple[int, ...]
    out_strides: tuple[int, ...]


def _image(ctx: BindContext) -> _Image:
    x, w, _ = ctx.signature.tensors
    (out,) = ctx.signature.outputs
    attributes = ctx.signature.attributes
    height, width = x.shape[2:]
    pointwise = w.shape[2:] == (1, 1) and attributes["stride"] == (1, 1) and attributes["padding"] == (0, 0)
    shape, x_rows, out_rows = collapse((height, width), x.strides[2:], out.strides[2:])
    if pointwise and len(shape) == 1:
        # Pixels in a row are neighbours, which vectors need.
        x_strides, out_strides = (*x.strides[:2], 0, x_rows[0]), (*out.strides[:2], 0, out_rows[0])
        return _Image(1, shape[0], 1, shape[0], x_strides, out_strides)
    return _Image(height, width, *out.shape[2:], x.strides, out.strides)


class _Tile(NamedTuple):
    o: int
    p: int
    k: int
    warps: int
    stages: int


def _tile(ctx: BindContext, x: TensorSpec, filters: int, image: _Image) -> _Tile:
    if x.dtype.bits == 64:
        return _Tile(32, 32, 16, 4, 2)
    few = filters <= 16
    if x.dtype.bits == 32 or not has_matrix_unit(ctx):
        return _Tile(16, 64, 32, 4, 2) if few else _Tile(64, 64, 16, 4, 2)
    if not few and image.out_height == 1 and image.out_width % PIECE == 0 and image.x_strides[3] == 1:
        # Whole pieces of neighbouring pixels: addresses are few.
        return _Tile(64 if filters <= 64 else 128, 128, 64, 8, 3)
    return _Tile(16, 64, 32, 4, 3) if few else _Tile(64, 64, 32, 8, 3)


def bind_tiles(ctx: BindContext) -> Sequence[Launch]:
    """Bind ``conv2d`` for any operands."""
    x, w, _ = ctx.signature.tensors
    (out,) = ctx.signature.outputs
    if out.size == 0:
        return ()
    attributes = ctx.signature.attributes
    groups = attributes["groups"]
    filters, channels = out.shape[1] // groups, w.shape[1]
    image = _image(ctx)
    tile = _tile(ctx, x, filters, image)
    pixels = out.size // out.shape[1]
    _, (w_depth, *more) = collapse(w.shape[1:], w.strides[1:])
    step = launch(
        ctx,
        tiles,
        programs=groups * triton.cdiv(filters, tile.o) * triton.cdiv(pixels, tile.p),
        arguments={
            **operand_arguments(ctx),
            **window_arguments(ctx),
            "pixels": pixels,
            "filters": filters,
            "groups": groups,
            "channels": channels,
            "depth": w.size // w.shape[0],
            "w_strides": w.strides,
            "w_depth": None if more else w_depth,
            **image._asdict(),
        },
        constants={
            "KH": w.shape[2],
            "KW": w.shape[3],
            "INSIDE": attributes["padding"] == (0, 0),
            "WIDE": _far(ctx, tile, x.shape, x.strides),
            "BLOCK_O": tile.o,
            "BLOCK_P": tile.p,
            "BLOCK_K": tile.k,
        },
        options=Options(num_warps=tile.warps, num_stages=tile.stages, enable_fp_fusion=True),
    )
    return (step,)


def _far(ctx: BindContext, tile: _Tile, shape: Sequence[int], strides: Sequence[int]) -> bool:
    """Whether an offset passes 32 bits, those that are computed and masked off among them.

    Beyond the image lie the padding, on all sides, and what the last tiles have too many of.
    """
    w, bias = ctx.signature.tensors[1:]
    (out,) = ctx.signature.outputs
    padding, dilation = ctx.signature.attributes["padding"], ctx.signature.attributes["dilation"]
    slack = tile.k
    images = shape[0] + triton.cdiv(tile.p, max(out.shape[2] * out.shape[3], 1))
    grown = (images, shape[1] + slack, *(extent + 2 * pad for extent, pad in zip(shape[2:], padding, strict=True)))
    more = sum(step * slack * abs(stride) for step, stride in zip(dilation, strides[2:], strict=True))
    outputs = (out.shape[0] + images - shape[0], out.shape[1] + tile.o, *out.shape[2:])
    farthest = (
        reach(grown, strides) + more,
        reach((w.shape[0] + tile.o, w.shape[1] + slack, *w.shape[2:]), w.strides),
        0 if bias is None else reach((bias.shape[0] + tile.o,), bias.strides),
        reach(outputs, out.strides),
    )
    return max(farthest) >= NARROW


def _turns(tile: tuple[int, int], groups: int, pixels: int, filters: int, multiprocessors: int) -> int:
    """Return what a multiprocessor's share of tiles costs: products, operands brought for them, and steps as such.

    The weights fit what an H200 took for tiles of 64 to 256 filters and pixels of images with 320 to 1280 channels.
    """
    o, p = tile
    programs = groups * triton.cdiv(pixels, p) * triton.cdiv(filters, o)
    return triton.cdiv(programs, multiprocessors) * (o * p + 17 * (o + p) + 5000)


def _packed(ctx: BindContext, pixels: int, filters: int, padded: int) -> _Tile:
    """Return the tile that costs least of those up to the size that the settings ask for."""
    settings = ctx.settings
    groups = ctx.signature.attributes["groups"]
    most = min(settings["tile_filters"], max(SMALLEST, triton.next_power_of_2(filters)))
    sizes = (SMALLEST, 2 * SMALLEST, 4 * SMALLEST)
    # A block of channels with little of nothing in it.
    k = next(k for k in (64, 32, 16) if 4 * (-padded % k) <= padded)
    limit = ctx.device.fact("shared.bytes_per_block_optin")
    fewest = min(settings["stages"], 3)
    tiles = [
        (o, p)
        for o in sizes
        for p in sizes
        if o <= most and p <= settings["tile_pixels"] and (o + p) * k * 2 * fewest <= limit
    ]
    if not (ctx.device.has("matrix_unit.wgmma_m64k16") or ctx.device.has("matrix_unit.tcgen05_f16")):
        # Operands of these products take registers too.
        tiles = [(o, p) for o, p in tiles if o * p <= 16384]
    multiprocessors = ctx.device.fact("multiprocessors")
    # Of equals the largest.
    o, p = min(reversed(tiles), key=lambda tile: _turns(tile, groups, pixels, filters, multiprocessors))
    stages = min(settings["stages"], limit // ((o + p) * k * 2))
    return _Tile(o, p, k, 8 if o * p >= 8192 else 4, stages)


def bind_channels_last(ctx: BindContext) -> Sequence[Launch]:
    """Bind ``conv2d`` of 16-bit images, packed first; ``images`` and ``weights`` are the workspace."""
    x, w, _ = ctx.signature.tensors
    (out,) = ctx.signature.outputs
    if out.size == 0:
        return ()
    groups = ctx.signature.attributes["groups"]
    filters, channels = out.shape[1] // groups, w.shape[1]
    padded = triton.cdiv(channels, PIECE) * PIECE
    pixels = out.size // out.shape[1]
    tile = _packed(ctx, pixels, filters, padded)
    (images, _, height, width), across = x.shape, groups * padded
    steps = [copy_filters(ctx, w, padded)]
    if padded == channels and lies_so(x):
        source: Argument = "x"
        strides = (x.strides[0], x.strides[2], x.strides[3])
    else:
        source = Pointer("images", x.dtype)
        strides = (height * width * across, width * across, across)
        steps.append(copy_images(ctx, x, padded))
    shape, along = (images, across, height, width), (strides[0], 1, *strides[1:])
    wide = _far(ctx, tile, shape, along) or (w.shape[0] + tile.o) * w.shape[2] * w.shape[3] * padded >= NARROW
    steps.append(
        launch(
            ctx,
            channels_last,
            programs=groups * triton.cdiv(filters, tile.o) * triton.cdiv(pixels, tile.p),
            arguments={
                **operand_arguments(ctx),
                **window_arguments(ctx),
                "x": source,
                "w": Pointer("weights", w.dtype),
                "pixels": pixels,
                "filters": filters,
                "groups": groups,
                "padded": padded,
                "x_strides": strides,
            },
            constants={
                "KH": w.shape[2],
                "KW": w.shape[3],
                "EVEN": padded % tile.k == 0,
                "WIDE": wide,
                "BLOCK_O": tile.o,
                "BLOCK_P": tile.p,
                "BLOCK_K": tile.k,
            },
            options=Options(num_warps=tile.warps, num_stages=tile.stages, enable_fp_fusion=True),
        )
    )
    return tuple(steps)
