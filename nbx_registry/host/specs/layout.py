"""The host's layout kernels, as data."""

from __future__ import annotations

from nbx_registry.host.specs.numpy_kernel import numpy_kernel
from nbx_registry.kernel import Kernel

KERNELS = (
    numpy_kernel(
        "permute_dims",
        "layout",
        "numpy.copyto of the transposed view.",
        name="permute_copy",
        when=("copy",),
        batch_invariant=True,
    ),
    numpy_kernel(
        "pixel_shuffle",
        "layout",
        "One strided copy; for a broadcast view whose repeats do not divide up, one a channel.",
        batch_invariant=True,
    ),
    Kernel(
        id="nbx-host/permute_dims/view",
        op="permute_dims@1",
        backend="view",
        runtimes=(),
        bind="nbx_registry.host.kernels.layout:permute_view",
        when=("not copy",),
        deterministic=True,
        batch_invariant=True,
        replayable=True,
        overlap="any",
        doc="The same memory under permuted strides: nothing runs, on any runtime.",
    ),
)
