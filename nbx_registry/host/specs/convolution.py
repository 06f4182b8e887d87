"""The host's convolution kernels, as data."""

from __future__ import annotations

from nbx_registry.host.specs.composed import composed
from nbx_registry.host.specs.numpy_kernel import numpy_kernel

KERNELS = (
    numpy_kernel(
        "depthwise_conv2d",
        "convolution",
        "Shifted products, tap after tap, over blocks of 16384 elements of channels and rows.",
        batch_invariant=True,
    ),
    # BLAS picks another order of adding up for another number of windows.
    numpy_kernel("conv2d", "convolution", "Windows laid out, a million elements at a time, and one BLAS product."),
    composed("depthwise_conv2d", "conv2d", when=("C >= 1",)),
)
