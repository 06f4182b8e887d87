"""group_norm: groups of channels, each with all its pixels, to mean 0 and variance 1.

A group is cut into tiles of ``BLOCK_CHANNELS`` channels and ``BLOCK_PIXELS`` pixels, whose means and squared deviations
are merged (see `variance`): the tensor is read once for both.

`whole` gives a group to one program, which reads it once more where it is more than a tile. Where groups are few, up to
256 programs are given a piece of a group each, of one tile or several: `measure` finds the spread of its piece,
`normalise` merges those of the group and writes the piece.

Strides of ``x`` and ``out`` are those of image and channel, then a tuple of those of pixels, along ``pixel_shape``.
Arithmetic is float32, for float64 in float64. Tiles follow from a group's extents alone: its bits do not depend on the
number of images. Deterministic.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any, NamedTuple

import triton
import triton.language as tl

from nbx_registry.launch import BindContext, Launch, Scalar
from nbx_triton.compiler import Options
from nbx_triton.kernels.normalization import affine, affine_arguments, compute, factors, quotient, reciprocal_root
from nbx_triton.kernels.pieces import cut, options, piece_of_row
from nbx_triton.kernels.strided import NARROW, collapse, locate, program, reach
from nbx_triton.kernels.variance import MAX_PIECES, merge, merge_pieces, spread
from nbx_triton.launching import Argument, launch

_TILE = 8192


@triton.jit
def place_tile(tile, channels, pixels, BLOCK_CHANNELS: tl.constexpr, BLOCK_PIXELS: tl.constexpr):
    """Return channels [BLOCK_CHANNELS, 1] and pixels [1, BLOCK_PIXELS] of a tile, and where that is in the group."""
    across = (pixels + BLOCK_PIXELS - 1) // BLOCK_PIXELS
    channel = tile // across * BLOCK_CHANNELS + tl.arange(0, BLOCK_CHANNELS)[:, None]
    pixel = tile % across * BLOCK_PIXELS + tl.arange(0, BLOCK_PIXELS)[None, :]
    return channel, pixel, (channel < channels) & (pixel < pixels)


@triton.jit
def load_tile(
    x, tile, channels, pixels, strides, pixel_shape, BLOCK_CHANNELS: tl.constexpr, BLOCK_PIXELS: tl.constexpr
):
    """Return one tile of the group at ``x``, zeros outside it."""
    channel, pixel, inside = place_tile(tile, channels, pixels, BLOCK_CHANNELS, BLOCK_PIXELS)
    place = x + channel * strides[1] + locate(pixel, pixel_shape, strides[2])
    return compute(tl.load(place, mask=inside, other=0))


@triton.jit
def spread_of_tile(a, tile, channels, pixels, BLOCK_CHANNELS: tl.constexpr, BLOCK_PIXELS: tl.constexpr):
    """Return count, mean and M2 of the tile that `load_tile` returned."""
    _channel, _pixel, inside = place_tile(tile, channels, pixels, BLOCK_CHANNELS, BLOCK_PIXELS)
    across = (pixels + BLOCK_PIXELS - 1) // BLOCK_PIXELS
    rows = tl.minimum(channels - tile // across * BLOCK_CHANNELS, BLOCK_CHANNELS)
    columns = tl.minimum(pixels - tile % across * BLOCK_PIXELS, BLOCK_PIXELS)
    count = (rows * columns).to(a.dtype)
    mean, m2 = spread(a, inside, count)
    return count, mean, m2


@triton.jit
def spread_of_tiles(
    x,
    first,
    last,
    channels,
    pixels,
    strides,
    pixel_shape,
    BLOCK_CHANNELS: tl.constexpr,
    BLOCK_PIXELS: tl.constexpr,
):
    """Return count, mean and M2 of the tiles from ``first`` to before ``last``, of which there is one at the least."""
    a = load_tile(x, first, channels, pixels, strides, pixel_shape, BLOCK_CHANNELS, BLOCK_PIXELS)
    count, mean, m2 = spread_of_tile(a, first, channels, pixels, BLOCK_CHANNELS, BLOCK_PIXELS)
    for tile in range(first + 1, last):
        a = load_tile(x, tile, channels, pixels, strides, pixel_shape, BLOCK_CHANNELS, BLOCK_PIXELS)
        own, own_mean, own_m2 = spread_of_tile(a, tile, channels, pixels, BLOCK_CHANNELS, BLOCK_PIXELS)
        count, mean, m2 = merge(count, mean, m2, own, own_mean, own_m2)
    return count, mean, m2


@triton.jit
def store_tile(
    a,
    tile,
    mean,
    scale,
    weight,
    bias,
    out,
    channel0,
    channels,
    pixels,
    strides,
    pixel_shape,
    weight_stride,
    bias_stride,
    BLOCK_CHANNELS: tl.constexpr,
    BLOCK_PIXELS: tl.constexpr,
):
    """Write (a - mean) * scale * weight + bias to the group at ``out``, whose first channel is ``channel0``."""
    channel, pixel, inside = place_tile(tile, channels, pixels, BLOCK_CHANNELS, BLOCK_PIXELS)
    w = factors(weight, channel0 + channel, channel < channels, weight_stride)
    b = factors(bias, channel0 + channel, channel < channels, bias_stride)
    y = affine((a - mean) * scale, w, b)
    place = out + channel * strides[1] + locate(pixel, pixel_shape, strides[2])
    tl.store(place, y.to(out.dtype.element_ty), mask=inside)


@triton.jit
def start(x, group, groups, channels, strides):
    """Return the address of a group's first element; groups are counted through all images."""
    return x + group // groups * strides[0] + group % groups * channels * strides[1]


@triton.jit
def whole(
    x,
    weight,
    bias,
    out,
    groups,
    channels,
    pixels,
    eps,
    x_strides,
    out_strides,
    pixel_shape,
    weight_stride,
    bias_stride,
    ONCE: tl.constexpr,
    WIDE: tl.constexpr,
    BLOCK_CHANNELS: tl.constexpr,
    BLOCK_PIXELS: tl.constexpr,
):
    """Write one group, of ``channels`` channels. ONCE: it is one tile."""
    group = program(WIDE)
    x = start(x, group, groups, channels, x_strides)
    out = start(out, group, groups, channels, out_strides)
    zero = group * 0
    if ONCE:
        a = load_tile(x, zero, channels, pixels, x_strides, pixel_shape, BLOCK_CHANNELS, BLOCK_PIXELS)
        count, mean, m2 = spread_of_tile(a, zero, channels, pixels, BLOCK_CHANNELS, BLOCK_PIXELS)
        tiles = 1
    else:
        across = (pixels + BLOCK_PIXELS - 1) // BLOCK_PIXELS
        tiles = (channels + BLOCK_CHANNELS - 1) // BLOCK_CHANNELS * across + zero
        count, mean, m2 = spread_of_tiles(
            x, zero, tiles, channels, pixels, x_strides, pixel_shape, BLOCK_CHANNELS, BLOCK_PIXELS
        )
    scale = reciprocal_root(quotient(m2, count) + eps)
    for turn in range(tiles):
        # From its end: what was read last is met in the cache.
        tile = tiles - 1 - turn + zero
        if not ONCE:
            a = load_tile(x, tile, channels, pixels, x_strides, pixel_shape, BLOCK_CHANNELS, BLOCK_PIXELS)
        store_tile(
            a,
            tile,
            mean,
            scale,
            weight,
            bias,
            out,
            group % groups * channels,
            channels,
            pixels,
            out_strides,
            pixel_shape,
            weight_stride,
            bias_stride,
            BLOCK_CHANNELS,
            BLOCK_PIXELS,
        )


@triton.jit
def measure(
    x,
    counts,
    means,
    m2s,
    groups,
    channels,
    pixels,
    pieces,
    tiles,
    per_piece,
    x_strides,
    pixel_shape,
    WIDE: tl.constexpr,
    BLOCK_CHANNELS: tl.constexpr,
    BLOCK_PIXELS: tl.constexpr,
):
    """Write count, mean and M2 of ``per_piece`` tiles of a group, at ``[group, piece]``."""
    number, group, first, last = piece_of_row(tiles, pieces, per_piece, WIDE)
    x = start(x, group, groups, channels, x_strides)
    count, mean, m2 = spread_of_tiles(
        x, first, last, channels, pixels, x_strides, pixel_shape, BLOCK_CHANNELS, BLOCK_PIXELS
    )
    tl.store(counts + number, count)
    tl.store(means + number, mean)
    tl.store(m2s + number, m2)


@triton.jit
def normalise(
    x,
    weight,
    bias,
    counts,
    means,
    m2s,
    out,
    groups,
    channels,
    pixels,
    pieces,
    tiles,
    per_piece,
    size,
    eps,
    x_strides,
    out_strides,
    pixel_shape,
    weight_stride,
    bias_stride,
    WIDE: tl.constexpr,
    PIECES: tl.constexpr,
    BLOCK_CHANNELS: tl.constexpr,
    BLOCK_PIXELS: tl.constexpr,
):
    """Write ``per_piece`` tiles of a group, of ``size`` elements. PIECES is ``pieces`` up to a power of two."""
    _number, group, first, last = piece_of_row(tiles, pieces, per_piece, WIDE)
    mean, scale = merge_pieces(counts, means, m2s, group, pieces, size, eps, PIECES)
    x = start(x, group, groups, channels, x_strides)
    out = start(out, group, groups, channels, out_strides)
    for tile in range(first, last):
        a = load_tile(x, tile, channels, pixels, x_strides, pixel_shape, BLOCK_CHANNELS, BLOCK_PIXELS)
        store_tile(
            a,
            tile,
            mean,
            scale,
            weight,
            bias,
            out,
            group % groups * channels,
            channels,
            pixels,
            out_strides,
            pixel_shape,
            weight_stride,
            bias_stride,
            BLOCK_CHANNELS,
            BLOCK_PIXELS,
        )


class _Plan(NamedTuple):
    """How groups are cut up, and what every launch is given."""

    programs: int
    """Groups of all images."""
    size: int
    """Elements of a group."""
    tiles: int
    read: dict[str, Argument]
    write: dict[str, Argument]
    constants: dict[str, Any]
    options: Options


def _plan(ctx: BindContext) -> _Plan:
    x, weight, bias = ctx.signature.operands
    (out,) = ctx.signature.outputs
    groups = ctx.signature.attributes["groups"]
    channels, pixels = x.shape[1] // groups, prod(x.shape[2:])
    pixel_shape, x_pixels, out_pixels = collapse(x.shape[2:], x.strides[2:], out.strides[2:])
    block_pixels = min(_TILE, triton.next_power_of_2(pixels))
    block_channels = min(_TILE // block_pixels, triton.next_power_of_2(channels))
    read: dict[str, Argument] = {
        "x": "x",
        "groups": groups,
        "channels": channels,
        "pixels": pixels,
        "x_strides": (*x.strides[:2], x_pixels),
        "pixel_shape": pixel_shape,
    }
    write: dict[str, Argument] = {
        "out": "out",
        "eps": Scalar(ctx.signature.attributes["eps"], "float64" if x.dtype.bits == 64 else "float32"),
        "out_strides": (*out.strides[:2], out_pixels),
        **affine_arguments(weight=weight, bias=bias),
    }
    # Masked channels and pixels past the group's end have offsets too.
    slack = max(
        block_channels * abs(spec.strides[1]) + block_pixels * max(map(abs, steps))
        for spec, steps in ((x, x_pixels), (out, out_pixels))
    )
    return _Plan(
        programs=x.shape[0] * groups,
        size=channels * pixels,
        tiles=triton.cdiv(channels, block_channels) * triton.cdiv(pixels, block_pixels),
        read=read,
        write=write,
        constants={
            "WIDE": max(x.size, reach(x.shape, x.strides), reach(out.shape, out.strides)) + slack >= NARROW,
            "BLOCK_CHANNELS": block_channels,
            "BLOCK_PIXELS": block_pixels,
        },
        options=options(max(1, min(8, block_channels * block_pixels // 1024))),
    )


def bind(ctx: BindContext) -> Sequence[Launch]:
    """Bind ``group_norm`` with one program a group."""
    (out,) = ctx.signature.outputs
    if out.size == 0:
        return ()
    plan = _plan(ctx)
    step = launch(
        ctx,
        whole,
        programs=plan.programs,
        arguments={**plan.read, **plan.write},
        constants={**plan.constants, "ONCE": plan.tiles == 1},
        options=plan.options,
    )
    return (step,)


def bind_split(ctx: BindContext) -> Sequence[Launch]:
    """Bind ``group_norm`` with several programs a group; what they find is in ``counts``, ``means`` and ``m2s``."""
    (out,) = ctx.signature.outputs
    if out.size == 0:
        return ()
    plan = _plan(ctx)
    pieces, per_piece = cut(plan.tiles, MAX_PIECES)
    read: dict[str, Argument] = {
        **plan.read,
        "counts": "counts",
        "means": "means",
        "m2s": "m2s",
        "pieces": pieces,
        "tiles": plan.tiles,
        "per_piece": per_piece,
    }
    first = launch(
        ctx,
        measure,
        programs=plan.programs * pieces,
        arguments=read,
        constants=plan.constants,
        options=plan.options,
    )
    second = launch(
        ctx,
        normalise,
        programs=plan.programs * pieces,
        arguments={**read, **plan.write, "size": Scalar(float(plan.size), "float32")},
        constants={**plan.constants, "PIECES": triton.next_power_of_2(pieces)},
        options=plan.options,
    )
    return (first, second)
