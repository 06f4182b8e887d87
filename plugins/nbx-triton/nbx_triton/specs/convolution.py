"""Specs of convolutions: depthwise and general. Any strides of every operand."""

from __future__ import annotations

from nbx_registry.kernel import Workspace
from nbx_triton.specs.common import FLOATS, kernel

_KEY = (
    "x.dtype",
    "x.shape",
    "x.strides",
    "w.shape",
    "w.strides",
    "bias.given",
    "bias.strides",
    "stride",
    "padding",
    "dilation",
    "out.strides",
)

_ACROSS = "groups * cdiv(CG, 16) * 16"

KERNELS = (
    kernel(
        "depthwise_conv2d@1",
        "slide",
        "depthwise:bind",
        when=(
            f"x.dtype in {FLOATS}",
            "max(stride) == 1",
            "max(dilation) == 1",
            # Rows of taps are unrolled.
            "KW <= 32",
            "padding[1] <= 32",
        ),
        key=_KEY,
        batch_invariant=True,
        defaults={"lane_rows": 4, "warps": 4},
        settings="nbx_triton.kernels.depthwise:SETTINGS",
        preference=1,
        doc="One lane computes a few rows and a vector of columns of a channel, from inputs read once into registers.",
    ),
    kernel(
        "depthwise_conv2d@1",
        "gather",
        "depthwise_gather:bind",
        when=(f"x.dtype in {FLOATS}",),
        key=_KEY,
        batch_invariant=True,
        doc="One program computes 1024 consecutive outputs, tap by tap; any window.",
    ),
    kernel(
        "conv2d@1",
        "tiles",
        "convolution:bind_tiles",
        when=(f"x.dtype in {FLOATS}",),
        key=(*_KEY, "groups"),
        doc="One program computes a tile of filters and pixels, channels, rows and columns of the filters in order.",
    ),
    kernel(
        "conv2d@1",
        "channels-last",
        "convolution:bind_channels_last",
        when=(
            "x.dtype in (float16, bfloat16)",
            "device.async_copy.cp_async",
            # Fewer channels are mostly zeros.
            "CG >= 16",
            # Pixels under a filter of one place are neighbours already.
            "KH * KW * max(stride) > 1 or max(padding) > 0 or H * W % 8 != 0",
        ),
        key=(*_KEY, "groups"),
        workspace=(
            Workspace(name="images", dtype="int16", shape=("N", "H", "W", _ACROSS)),
            Workspace(name="weights", dtype="int16", shape=("O", "KH", "KW", "cdiv(CG, 16) * 16")),
        ),
        defaults={"tile_filters": 128, "tile_pixels": 256, "stages": 3},
        settings="nbx_triton.kernels.convolution:SETTINGS",
        preference=1,
        doc="Two launches bring channels side by side; then one program computes a tile of filters and pixels.",
    ),
)
