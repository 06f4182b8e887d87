"""The host's cache kernels, as data."""

from __future__ import annotations

from nbx_registry.host.specs.numpy_kernel import numpy_kernel

KERNELS = (
    numpy_kernel(
        "paged_kv_append",
        "cache",
        "One indexed assignment; rows rounded first where the dtypes differ.",
        batch_invariant=True,
    ),
    numpy_kernel(
        "paged_kv_append_step",
        "cache",
        "One indexed assignment a pool; rows rounded first where the dtypes differ.",
        batch_invariant=True,
    ),
    numpy_kernel("paged_lens_advance", "cache", "numpy.add, in place.", batch_invariant=True),
)
