"""The host's kernels of activations, as data."""

from __future__ import annotations

from nbx_registry.host.specs.composed import WIDE, composed
from nbx_registry.host.specs.numpy_kernel import numpy_kernel

KERNELS = (
    numpy_kernel("relu", "elementwise", "numpy.maximum with zero.", batch_invariant=True, overlap="any"),
    numpy_kernel("sigmoid", "activation", "Blocks: exp, a sum, a division.", batch_invariant=True, overlap="any"),
    numpy_kernel("silu", "activation", "Blocks: exp, a sum, a division.", batch_invariant=True, overlap="any"),
    numpy_kernel(
        "gelu",
        "activation",
        "Blocks of 16384 elements: exp and a polynomial of degree 7 in float32 (22 in float64).",
        batch_invariant=True,
        overlap="any",
    ),
    composed("relu", "maximum"),
    composed("sigmoid", "negative", "exp", "add", "reciprocal", when=(WIDE,)),
    composed("silu", "sigmoid", "multiply", when=(WIDE,)),
    composed("gelu", "multiply", "add", "erf", "tanh", when=(WIDE,)),
)
