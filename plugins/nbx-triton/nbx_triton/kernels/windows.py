"""Arguments that kernels of convolutions share: what is under the windows, where they stand, and what they give."""

from __future__ import annotations

from nbx_registry.launch import BindContext
from nbx_triton.launching import Argument


def operand_arguments(ctx: BindContext) -> dict[str, Argument]:
    """Return the operands, the extents of an image and of an output, and strides of the output and the bias."""
    x, _, bias = ctx.signature.tensors
    (out,) = ctx.signature.outputs
    return {
        "x": "x",
        "w": "w",
        "bias": None if bias is None else "bias",
        "out": "out",
        "height": x.shape[2],
        "width": x.shape[3],
        "out_height": out.shape[2],
        "out_width": out.shape[3],
        "bias_stride": 0 if bias is None else bias.strides[0],
        "out_strides": out.strides,
    }


def window_arguments(ctx: BindContext) -> dict[str, Argument]:
    """Return stride, padding and dilation, down and across."""
    return {name: ctx.signature.attributes[name] for name in ("stride", "padding", "dilation")}
