"""group_norm: groups of channels, each with all its pixels, to mean 0 and variance 1.

A group is cut into tiles of ``BLOCK_CHANNELS`` channels and ``BLOCK_PIXELS`` pixels. A tile's mean and M2, the sum of
the squared deviations from it, are found in registers; those of tiles are merged as T. F. Chan, G. H. Golub and R. J.
LeVeque do ("Updating formulae and a pairwise algorithm for computing sample variances", 1979): nothing is lost to a
mean that is large beside the deviations, and the tensor is read once for both.

`whole` gives a group to one program, which reads it once more where it is more than a tile. Where groups are few,
`measure` gives up to 256 programs a share of its tiles each; `normalise` merges what they found, one program a share.

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
from nbx_triton.kernels.normalization import compute, quotient, reciprocal_root
from nbx_triton.kernels.strided import NARROW, collapse, locate, program, reach
from nbx_triton.launching import Argument, launch

MAX_SHARES = 256
"""Programs that a group is given to at the most."""
_TILE = 8192


@triton.jit
def load_tile(
    x,
    tile,
    channels,
    pixels,
    channel_stride,
    pixel_shape,
    pixel_strides,
    BLOCK_CHANNELS: tl.constexpr,
    BLOCK_PIXELS: tl.constexpr,
):
    """Return one tile of the group at ``x``, zeros outside it, where it is inside, and how many elements that are."""
    across = (pixels + BLOCK_PIXELS - 1) // BLOCK_PIXELS
    channel = tile // across * BLOCK_CHANNELS + tl.arange(0, BLOCK_CHANNELS)[:, None]
    pixel = tile % across * BLOCK_PIXELS + tl.arange(0, BLOCK_PIXELS)[None, :]
    inside = (channel < channels) & (pixel < pixels)
    place = x + channel * channel_stride + locate(pixel, pixel_shape, pixel_strides)
    a = compute(tl.load(place, mask=inside, other=0))
    rows = tl.minimum(channels - tile // across * BLOCK_CHANNELS, BLOCK_CHANNELS)
    columns = tl.minimum(pixels - tile % across * BLOCK_PIXELS, BLOCK_PIXELS)
    return a, channel, pixel, inside, (rows * columns).to(a.dtype)


@triton.jit
def spread(a, inside, count):
    """Return mean and M2 of the elements that are inside."""
    mean = quotient(tl.sum(tl.sum(a, axis=1), axis=0), count)
    centred = tl.where(inside, a - mean, 0.0)
    return mean, tl.sum(tl.sum(centred * centred, axis=1), axis=0)


@triton.jit
def spread_of_tiles(
    x,
    first,
    last,
    channels,
    pixels,
    channel_stride,
    pixel_shape,
    pixel_strides,
    BLOCK_CHANNELS: tl.constexpr,
    BLOCK_PIXELS: tl.constexpr,
):
    """Return count, mean and M2 of the tiles from ``first`` to before ``last``, of which there is one at the least."""
    a, _channel, _pixel, inside, count = load_tile(
        x, first, channels, pixels, channel_stride, pixel_shape, pixel_strides, BLOCK_CHANNELS, BLOCK_PIXELS
    )
    mean, m2 = spread(a, inside, count)
    for tile in range(first + 1, last):
        a, _channel, _pixel, inside, own = load_tile(
            x, tile, channels, pixels, channel_stride, pixel_shape, pixel_strides, BLOCK_CHANNELS, BLOCK_PIXELS
        )
        own_mean, own_m2 = spread(a, inside, own)
        both = count + own
        share = quotient(own, both)
        apart = own_mean - mean
        mean += apart * share
        m2 += own_m2 + apart * apart * count * share
        count = both
    return count, mean, m2


@triton.jit
def store_tile(
    a,
    mean,
    scale,
    weight,
    bias,
    out,
    channel,
    pixel,
    inside,
    channels,
    weight_stride,
    bias_stride,
    channel_stride,
    pixel_shape,
    pixel_strides,
):
    """Write (a - mean) * scale * weight + bias. ``out``, ``weight`` and ``bias`` are those of the group."""
    y = (a - mean) * scale
    if weight is not None:
        y = y * compute(tl.load(weight + channel * weight_stride, mask=channel < channels, other=0))
    if bias is not None:
        y = y + compute(tl.load(bias + channel * bias_stride, mask=channel < channels, other=0))
    place = out + channel * channel_stride + locate(pixel, pixel_shape, pixel_strides)
    tl.store(place, y.to(out.dtype.element_ty), mask=inside)


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
    x_pixel_strides,
    out_pixel_strides,
    weight_stride,
    bias_stride,
    ONCE: tl.constexpr,
    WIDE: tl.constexpr,
    BLOCK_CHANNELS: tl.constexpr,
    BLOCK_PIXELS: tl.constexpr,
):
    """Write one group. ``channels`` are those of a group; strides are of image and channel, then of pixels."""
    number = program(WIDE)
    image = number // groups
    channel0 = number % groups * channels
    x += image * x_strides[0] + channel0 * x_strides[1]
    out += image * out_strides[0] + channel0 * out_strides[1]
    if weight is not None:
        weight += channel0 * weight_stride
    if bias is not None:
        bias += channel0 * bias_stride
    if ONCE:
        a, channel, pixel, inside, count = load_tile(
            x, number * 0, channels, pixels, x_strides[1], pixel_shape, x_pixel_strides, BLOCK_CHANNELS, BLOCK_PIXELS
        )
        mean, m2 = spread(a, inside, count)
        scale = reciprocal_root(quotient(m2, count) + eps)
        store_tile(
            a,
            mean,
            scale,
            weight,
            bias,
            out,
            channel,
            pixel,
            inside,
            channels,
            weight_stride,
            bias_stride,
            out_strides[1],
            pixel_shape,
            out_pixel_strides,
        )
    else:
        across = (pixels + BLOCK_PIXELS - 1) // BLOCK_PIXELS
        tiles = (channels + BLOCK_CHANNELS - 1) // BLOCK_CHANNELS * across + number * 0
        count, mean, m2 = spread_of_tiles(
            x,
            number * 0,
            tiles,
            channels,
            pixels,
            x_strides[1],
            pixel_shape,
            x_pixel_strides,
            BLOCK_CHANNELS,
            BLOCK_PIXELS,
        )
        scale = reciprocal_root(quotient(m2, count) + eps)
        for turn in range(tiles):
            # From its end: what was read last is met in the cache.
            a, channel, pixel, inside, count = load_tile(
                x,
                tiles - 1 - turn,
                channels,
                pixels,
                x_strides[1],
                pixel_shape,
                x_pixel_strides,
                BLOCK_CHANNELS,
                BLOCK_PIXELS,
            )
            store_tile(
                a,
                mean,
                scale,
                weight,
                bias,
                out,
                channel,
                pixel,
                inside,
                channels,
                weight_stride,
                bias_stride,
                out_strides[1],
                pixel_shape,
                out_pixel_strides,
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
    shares,
    tiles,
    per_share,
    x_strides,
    pixel_shape,
    x_pixel_strides,
    WIDE: tl.constexpr,
    BLOCK_CHANNELS: tl.constexpr,
    BLOCK_PIXELS: tl.constexpr,
):
    """Write count, mean and M2 of ``per_share`` tiles of a group, at ``[group, share]``."""
    number = program(WIDE)
    group = number // shares
    x += group // groups * x_strides[0] + group % groups * channels * x_strides[1]
    first = number % shares * per_share
    count, mean, m2 = spread_of_tiles(
        x,
        first,
        tl.minimum(first + per_share, tiles),
        channels,
        pixels,
        x_strides[1],
        pixel_shape,
        x_pixel_strides,
        BLOCK_CHANNELS,
        BLOCK_PIXELS,
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
    shares,
    tiles,
    per_share,
    size,
    eps,
    x_strides,
    out_strides,
    pixel_shape,
    x_pixel_strides,
    out_pixel_strides,
    weight_stride,
    bias_stride,
    WIDE: tl.constexpr,
    SHARES: tl.constexpr,
    BLOCK_CHANNELS: tl.constexpr,
    BLOCK_PIXELS: tl.constexpr,
):
    """Write ``per_share`` tiles of a group, of ``size`` elements. SHARES is ``shares`` up to a power of two."""
    number = program(WIDE)
    group = number // shares
    channel0 = group % groups * channels
    share = tl.arange(0, SHARES)
    known = share < shares
    own_count = tl.load(counts + group * shares + share, mask=known, other=0)
    own_mean = tl.load(means + group * shares + share, mask=known, other=0)
    own_m2 = tl.load(m2s + group * shares + share, mask=known, other=0)
    mean = quotient(tl.sum(own_count * own_mean, axis=0), size)
    apart = tl.where(known, own_mean - mean, 0.0)
    m2 = tl.sum(own_m2 + own_count * (apart * apart), axis=0)
    scale = reciprocal_root(quotient(m2, size) + eps)
    x += group // groups * x_strides[0] + channel0 * x_strides[1]
    out += group // groups * out_strides[0] + channel0 * out_strides[1]
    if weight is not None:
        weight += channel0 * weight_stride
    if bias is not None:
        bias += channel0 * bias_stride
    first = number % shares * per_share
    for tile in range(first, tl.minimum(first + per_share, tiles)):
        a, channel, pixel, inside, _count = load_tile(
            x, tile, channels, pixels, x_strides[1], pixel_shape, x_pixel_strides, BLOCK_CHANNELS, BLOCK_PIXELS
        )
        store_tile(
            a,
            mean,
            scale,
            weight,
            bias,
            out,
            channel,
            pixel,
            inside,
            channels,
            weight_stride,
            bias_stride,
            out_strides[1],
            pixel_shape,
            out_pixel_strides,
        )


class _Plan(NamedTuple):
    """How groups are cut up, and what every launch is given."""

    programs: int
    """Groups of all images."""
    size: int
    """Elements of a group."""
    tiles: int
    block: tuple[int, int]
    """Channels and pixels of a tile."""
    read: dict[str, Argument]
    write: dict[str, Argument]
    wide: bool


def _plan(ctx: BindContext) -> _Plan:
    x, weight, bias = ctx.signature.operands
    (out,) = ctx.signature.outputs
    groups = ctx.signature.attributes["groups"]
    channels, pixels = x.shape[1] // groups, prod(x.shape[2:])
    pixel_shape, x_pixels, out_pixels = collapse(x.shape[2:], x.strides[2:], out.strides[2:])
    block_pixels = min(_TILE, triton.next_power_of_2(pixels))
    block_channels = min(_TILE // block_pixels, triton.next_power_of_2(channels))
    number = "float64" if x.dtype.bits == 64 else "float32"
    read: dict[str, Argument] = {
        "x": "x",
        "groups": groups,
        "channels": channels,
        "pixels": pixels,
        "x_strides": x.strides[:2],
        "pixel_shape": pixel_shape,
        "x_pixel_strides": x_pixels,
    }
    write: dict[str, Argument] = {
        "weight": None if weight is None else "weight",
        "bias": None if bias is None else "bias",
        "out": "out",
        "eps": Scalar(ctx.signature.attributes["eps"], number),
        "out_strides": out.strides[:2],
        "out_pixel_strides": out_pixels,
        "weight_stride": 0 if weight is None else weight.strides[0],
        "bias_stride": 0 if bias is None else bias.strides[0],
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
        block=(block_channels, block_pixels),
        read=read,
        write=write,
        wide=max(x.size, reach(x.shape, x.strides), reach(out.shape, out.strides)) + slack >= NARROW,
    )


def _options(elements: int) -> Options:
    warps = max(1, min(8, elements // 1024))
    return Options(num_warps=warps, num_stages=1, enable_fp_fusion=True)


def _constants(plan: _Plan) -> dict[str, Any]:
    return {"WIDE": plan.wide, "BLOCK_CHANNELS": plan.block[0], "BLOCK_PIXELS": plan.block[1]}


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
        constants={**_constants(plan), "ONCE": plan.tiles == 1},
        options=_options(plan.block[0] * plan.block[1]),
    )
    return (step,)


def bind_split(ctx: BindContext) -> Sequence[Launch]:
    """Bind ``group_norm`` with several programs a group; what they find is in ``counts``, ``means`` and ``m2s``."""
    (out,) = ctx.signature.outputs
    if out.size == 0:
        return ()
    plan = _plan(ctx)
    per_share = triton.cdiv(plan.tiles, MAX_SHARES)
    shares = triton.cdiv(plan.tiles, per_share)
    cut: dict[str, Argument] = {
        "counts": "counts",
        "means": "means",
        "m2s": "m2s",
        "shares": shares,
        "tiles": plan.tiles,
        "per_share": per_share,
    }
    options = _options(plan.block[0] * plan.block[1])
    first = launch(
        ctx,
        measure,
        programs=plan.programs * shares,
        arguments={**plan.read, **cut},
        constants=_constants(plan),
        options=options,
    )
    second = launch(
        ctx,
        normalise,
        programs=plan.programs * shares,
        arguments={**plan.read, **plan.write, **cut, "size": Scalar(float(plan.size), "float32")},
        constants={**_constants(plan), "SHARES": triton.next_power_of_2(shares)},
        options=options,
    )
    return (first, second)
