"""Specs of convolutions: depthwise and general. Any strides of every operand."""

from __future__ import annotations

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
)

KERNELS = (
    kernel(
        "depthwise_conv2d@1",
        "slide",
        "depthwise:bind_slide",
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
        "depthwise:bind_gather",
        when=(f"x.dtype in {FLOATS}",),
        key=_KEY,
        batch_invariant=True,
        doc="One program computes 1024 consecutive outputs, tap by tap; any window.",
    ),
)
