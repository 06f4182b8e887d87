"""The host's reduction kernels, as data."""

from __future__ import annotations

from nbx_registry.host.specs.numpy_kernel import numpy_kernel

KERNELS = (
    # The order in which NumPy adds up depends on all of an array's extents.
    numpy_kernel("sum", "reduction", "numpy.add.reduce: pairwise along the fastest axis, else row after row."),
)
