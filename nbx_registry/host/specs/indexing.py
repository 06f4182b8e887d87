"""The host's indexing kernels, as data."""

from __future__ import annotations

from nbx_registry.host.specs.composed import composed
from nbx_registry.host.specs.numpy_kernel import numpy_kernel

KERNELS = (
    numpy_kernel("embedding", "indexing", "numpy.take.", batch_invariant=True),
    numpy_kernel("take", "indexing", "numpy.take; of views some entries at a time.", batch_invariant=True),
    # The rows of a table, as an embedding gathers them.
    composed("take", "embedding", when=("x.rank == 2", "axis in (0, -2)")),
)
