"""depthwise_conv2d of any window: a program computes 1024 consecutive outputs, tap by tap.

An output adds its taps in one order, row by row, starting from the bias, each by one fused multiply-add: its bits
depend on nothing else. Products and sums are of float32 (float64 in float64), rounded once. Deterministic.
"""

from __future__ import annotations

from collections.abc import Sequence

import triton
import triton.language as tl

from nbx_registry.launch import BindContext, Launch
from nbx_triton.compiler import Options
from nbx_triton.kernels.depthwise import begin, far
from nbx_triton.kernels.strided import NARROW, program
from nbx_triton.kernels.windows import operand_arguments, window_arguments
from nbx_triton.launching import launch

BLOCK = 1024


@triton.jit
def gather(
    x,
    w,
    bias,
    out,
    count,
    channels,
    height,
    width,
    out_height,
    out_width,
    taps_down,
    taps_across,
    stride,
    padding,
    dilation,
    x_strides,
    w_strides,
    bias_stride,
    out_strides,
    WIDE: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Write ``BLOCK`` consecutive outputs. Strides of x and out are of image, channel, row and column."""
    result: tl.constexpr = out.dtype.element_ty
    wide: tl.constexpr = tl.float64 if result == tl.float64 else tl.float32
    index = program(WIDE) * BLOCK + tl.arange(0, BLOCK)
    live = index < count
    ow = index % out_width
    oh = index // out_width % out_height
    channel = index // out_width // out_height % channels
    image = index // out_width // out_height // channels
    top = oh * stride[0] - padding[0]
    left = ow * stride[1] - padding[1]
    plane = x + image * x_strides[0] + channel * x_strides[1]
    filters = w + channel * w_strides[0]
    total = begin(bias, channel, bias_stride, live, wide, BLOCK)
    for i in range(taps_down):
        row = top + i * dilation[0]
        there = live & (row >= 0) & (row < height)
        for j in range(taps_across):
            column = left + j * dilation[1]
            inside = there & (column >= 0) & (column < width)
            value = tl.load(plane + row * x_strides[2] + column * x_strides[3], mask=inside, other=0)
            tap = tl.load(filters + i * w_strides[1] + j * w_strides[2], mask=live, other=0)
            total = tl.fma(value.to(wide), tap.to(wide), total)
    place = image * out_strides[0] + channel * out_strides[1] + oh * out_strides[2] + ow * out_strides[3]
    tl.store(out + place, total.to(result), mask=live)


def bind(ctx: BindContext) -> Sequence[Launch]:
    """Bind ``depthwise_conv2d`` for any stride, padding and dilation."""
    x, w, _ = ctx.signature.tensors
    (out,) = ctx.signature.outputs
    if out.size == 0:
        return ()
    step = launch(
        ctx,
        gather,
        programs=triton.cdiv(out.size, BLOCK),
        arguments={
            **operand_arguments(ctx),
            **window_arguments(ctx),
            "count": out.size,
            "channels": out.shape[1],
            "taps_down": w.shape[2],
            "taps_across": w.shape[3],
            "x_strides": x.strides,
            "w_strides": (w.strides[0], w.strides[2], w.strides[3]),
        },
        constants={"WIDE": out.size + BLOCK >= NARROW or far(ctx), "BLOCK": BLOCK},
        options=Options(num_warps=4, num_stages=1, enable_fp_fusion=False),
    )
    return (step,)
