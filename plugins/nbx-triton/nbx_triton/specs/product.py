"""Specs of matrix products."""

from __future__ import annotations

from nbx_triton.specs.common import FLOATS, kernel

KERNELS = (
    kernel(
        "matmul@1",
        "tiles",
        "product:bind_matmul",
        when=(f"x1.dtype in {FLOATS}",),
        key=("x1.dtype", "x1.shape", "x1.strides", "x2.shape", "x2.strides"),
        doc="One program computes a tile of one product, along K in order; float32 and float64 are IEEE.",
    ),
    kernel(
        "linear@1",
        "tiles",
        "product:bind_linear",
        # The smooth activations are written for float32.
        when=(f"x.dtype in {FLOATS}", "x.dtype != float64 or activation in (None, 'relu')"),
        key=("x.dtype", "x.shape", "x.strides", "w.shape", "w.strides", "bias.given", "bias.strides", "activation"),
        doc="One program computes a tile, adds the bias and applies the activation before rounding.",
    ),
)
