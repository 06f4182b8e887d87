"""The host's sorting kernels, as data."""

from __future__ import annotations

from nbx_registry.host.specs.numpy_kernel import numpy_kernel

KERNELS = (
    numpy_kernel(
        "topk",
        "sorting",
        "Ordered integers with the index behind: numpy.partition and a sort; long rows thinned out first.",
        batch_invariant=True,
    ),
)
