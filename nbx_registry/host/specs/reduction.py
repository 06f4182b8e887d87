"""The host's reduction kernels, as data."""

from __future__ import annotations

from nbx_registry.host.specs.composed import WIDE, composed
from nbx_registry.host.specs.numpy_kernel import numpy_kernel

KERNELS = (
    # The order in which NumPy adds up depends on all of an array's extents.
    numpy_kernel(
        "sum",
        "reduction",
        "numpy.add.reduce: pairwise along the fastest axis, else row after row, past 512 in float64.",
    ),
    numpy_kernel("mean", "reduction", "The sum as `sum` adds it up, divided by the number of its terms."),
    numpy_kernel("prod", "reduction", "numpy.multiply.reduce, narrow dtypes in float32."),
    # The sign of a zero, of zeros of both, is NumPy's.
    numpy_kernel("max", "reduction", "numpy.maximum.reduce, narrow dtypes in float32."),
    numpy_kernel("argmax", "reduction", "numpy.argmax; narrow dtypes in blocks of float32.", batch_invariant=True),
    composed("mean", "sum", "divide", when=(WIDE,)),
)
