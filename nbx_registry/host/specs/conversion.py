"""The host's kernel of conversions, as data."""

from __future__ import annotations

from nbx_registry.host.specs.numpy_kernel import numpy_kernel

KERNELS = (
    numpy_kernel(
        "astype",
        "conversion",
        "numpy.copyto, on every core from 8 MB on; in blocks where NumPy would round twice, saturating, to integers.",
        batch_invariant=True,
    ),
)
