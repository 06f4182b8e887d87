"""The host's elementwise kernels, as data."""

from __future__ import annotations

from nbx_registry.host.specs.numpy_kernel import numpy_kernel

KERNELS = (
    numpy_kernel("add", "elementwise", "numpy.add", batch_invariant=True, overlap="any"),
    numpy_kernel("multiply", "elementwise", "numpy.multiply", batch_invariant=True, overlap="any"),
    numpy_kernel("divide", "elementwise", "numpy.divide", batch_invariant=True, overlap="any"),
    numpy_kernel("sqrt", "elementwise", "numpy.sqrt", batch_invariant=True, overlap="any"),
    numpy_kernel(
        "gelu",
        "elementwise",
        "Blocks of 16384 elements: exp and a polynomial of degree 7 in float32 (22 in float64).",
        batch_invariant=True,
        overlap="any",
    ),
    numpy_kernel(
        "astype",
        "conversion",
        "numpy.copyto; in blocks where NumPy would round twice, saturating, and from floating to integers.",
        batch_invariant=True,
    ),
)
