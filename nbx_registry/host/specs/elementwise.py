"""The host's kernels of arithmetic, as data."""

from __future__ import annotations

from nbx_registry.host.specs.composed import composed
from nbx_registry.host.specs.numpy_kernel import numpy_kernel

KERNELS = (
    numpy_kernel("add", "elementwise", "numpy.add.", batch_invariant=True, overlap="any"),
    numpy_kernel("subtract", "elementwise", "numpy.subtract.", batch_invariant=True, overlap="any"),
    numpy_kernel("multiply", "elementwise", "numpy.multiply.", batch_invariant=True, overlap="any"),
    numpy_kernel("divide", "elementwise", "numpy.divide.", batch_invariant=True, overlap="any"),
    numpy_kernel("negative", "elementwise", "numpy.negative.", batch_invariant=True, overlap="any"),
    numpy_kernel("abs", "elementwise", "numpy.absolute.", name="absolute", batch_invariant=True, overlap="any"),
    numpy_kernel("reciprocal", "elementwise", "numpy.reciprocal.", batch_invariant=True, overlap="any"),
    composed(
        "subtract",
        "negative",
        "add",
        when=(
            "not x2.weak",
            # An integer that wraps around as its negative is another number in a wider dtype.
            "x1.weak or x1.dtype == x2.dtype or x2.dtype in (float16, bfloat16, float32, float64)",
        ),
    ),
    composed("reciprocal", "divide"),
)
