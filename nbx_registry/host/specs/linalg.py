"""The host's linalg kernels, as data."""

from __future__ import annotations

from nbx_registry.host.specs.numpy_kernel import numpy_kernel
from nbx_registry.kernel import Kernel

KERNELS = (
    # BLAS picks another kernel, and another order of adding up, for another number of rows.
    numpy_kernel("matmul", "linalg", "BLAS through numpy.matmul; narrow dtypes in float32."),
    numpy_kernel(
        "linear", "linalg", "One BLAS product into the output; bias and activation on blocks of rows, in place."
    ),
    Kernel(
        id="nbx-host/linear/composed",
        op="linear@1",
        backend="composite",
        runtimes=(),
        bind="nbx_registry.host.kernels.composites:linear",
        parts=("matmul@1", "add@1", "relu@1", "gelu@1", "silu@1"),
        # In narrower dtypes each part would round once more than the contract allows.
        when=("x.dtype in (float32, float64)",),
        preference=-10,
        doc="matmul, add, an activation, on whatever device has kernels for these.",
    ),
)
