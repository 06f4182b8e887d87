"""The host's normalization kernels, as data."""

from __future__ import annotations

from nbx_registry.host.specs.numpy_kernel import numpy_kernel

KERNELS = (
    numpy_kernel(
        "softmax",
        "normalization",
        "Blocks of rows: maximum, exponentials, pairwise sum, quotient.",
        batch_invariant=True,
        overlap="same",
    ),
    numpy_kernel(
        "layer_norm",
        "normalization",
        "Blocks of rows: mean, deviations, their mean square; pairwise sums.",
        batch_invariant=True,
    ),
)
