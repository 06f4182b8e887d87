"""The host's creation kernels, as data."""

from __future__ import annotations

from nbx_registry.host.specs.numpy_kernel import numpy_kernel

KERNELS = (
    numpy_kernel("full", "creation", "numpy.copyto of one element.", batch_invariant=True),
    numpy_kernel(
        "arange",
        "creation",
        "Blocks of 16384: multiples of the step and the block's first element; in float64 for floating dtypes.",
        batch_invariant=True,
    ),
)
