"""Images and filters of conv2d copied so that channels lie side by side: ``[N, H, W, C]`` and ``[O, KH, KW, C]``.

Zeros fill every group's channels up to a multiple of 16: 16-bit elements are then read in whole pieces of 16 bytes.
Images go by tiles of 64 channels and 64 pixels, so that loads and stores both touch whole lines. Deterministic.
"""

from __future__ import annotations

import triton
import triton.language as tl

from nbx_registry.launch import BindContext, Launch
from nbx_registry.spec import TensorSpec
from nbx_triton.compiler import Options
from nbx_triton.kernels.strided import NARROW, collapse, locate, program, reach
from nbx_triton.launching import Pointer, launch

PIECE = 16
"""Channels of a group in a packed image are a multiple of this."""
_LINE = 1024
_TILE = 64


@triton.jit
def pack_images(
    x,
    packed,
    pixels,
    channels,
    groups,
    padded,
    shape,
    strides,
    x_image,
    x_channel,
    WIDE: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Copy ``BLOCK`` channels of ``BLOCK`` pixels of an image to ``packed``, where a group has ``padded`` channels."""
    number = program(WIDE)
    tiles_p = (pixels + BLOCK - 1) // BLOCK
    across = groups * padded
    tiles_c = (across + BLOCK - 1) // BLOCK
    place = number % tiles_c * BLOCK + tl.arange(0, BLOCK)
    p = number // tiles_c % tiles_p * BLOCK + tl.arange(0, BLOCK)
    image = number // tiles_c // tiles_p
    within = place % padded
    channel = place // padded * channels + within
    data = tl.load(
        x + image * x_image + (channel * x_channel)[:, None] + locate(p, shape, strides)[None, :],
        mask=((place < across) & (within < channels))[:, None] & (p < pixels)[None, :],
        other=0,
    )
    target = packed + (image * pixels + p)[None, :] * across + place[:, None]
    tl.store(target, data, mask=(place < across)[:, None] & (p < pixels)[None, :])


@triton.jit
def pack_filters(
    w,
    packed,
    count,
    channels,
    padded,
    w_strides,
    KH: tl.constexpr,
    KW: tl.constexpr,
    WIDE: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Copy ``BLOCK`` consecutive elements of ``packed``, [O, KH, KW, padded], from w; zeros beyond its channels."""
    index = program(WIDE) * BLOCK + tl.arange(0, BLOCK)
    c = index % padded
    tap = index // padded % (KH * KW)
    o = index // padded // (KH * KW)
    place = o * w_strides[0] + c * w_strides[1] + tap // KW * w_strides[2] + tap % KW * w_strides[3]
    data = tl.load(w + place, mask=(index < count) & (c < channels), other=0)
    tl.store(packed + index, data, mask=index < count)


def lies_so(x: TensorSpec) -> bool:
    """Whether channels lie side by side, each pixel's at a multiple of what the compiler takes for aligned."""
    others = ((x.strides[axis], x.shape[axis]) for axis in (0, 2, 3))
    return (
        x.strides[1] == 1 and x.align % 16 == 0 and all(stride % PIECE == 0 for stride, extent in others if extent > 1)
    )


def copy_images(ctx: BindContext, x: TensorSpec, padded: int) -> Launch:
    """Return the launch that copies images to ``images``, [N, H, W, groups * padded]."""
    images, _, height, width = x.shape
    groups = ctx.signature.attributes["groups"]
    shape, strides = collapse((height, width), x.strides[2:])
    pixels, across = height * width, groups * padded
    grown = (images, x.shape[1] + _TILE, height + _TILE, width)
    return launch(
        ctx,
        pack_images,
        programs=images * triton.cdiv(pixels, _TILE) * triton.cdiv(across, _TILE),
        arguments={
            "x": "x",
            "packed": Pointer("images", x.dtype),
            "pixels": pixels,
            "channels": x.shape[1] // groups,
            "groups": groups,
            "padded": padded,
            "shape": shape,
            "strides": strides,
            "x_image": x.strides[0],
            "x_channel": x.strides[1],
        },
        constants={
            "WIDE": reach(grown, x.strides) >= NARROW or (images * pixels + _TILE) * across >= NARROW,
            "BLOCK": _TILE,
        },
        options=Options(num_warps=4, num_stages=1, enable_fp_fusion=False),
    )


def copy_filters(ctx: BindContext, w: TensorSpec, padded: int) -> Launch:
    """Return the launch that copies filters to ``weights``, [O, KH, KW, padded]."""
    count = w.size // w.shape[1] * padded
    return launch(
        ctx,
        pack_filters,
        programs=triton.cdiv(count, _LINE),
        arguments={
            "w": "w",
            "packed": Pointer("weights", w.dtype),
            "count": count,
            "channels": w.shape[1],
            "padded": padded,
            "w_strides": w.strides,
        },
        constants={
            "KH": w.shape[2],
            "KW": w.shape[3],
            "WIDE": count + _LINE >= NARROW or reach((w.shape[0], padded, *w.shape[2:]), w.strides) >= NARROW,
            "BLOCK": _LINE,
        },
        options=Options(num_warps=4, num_stages=1, enable_fp_fusion=False),
    )
