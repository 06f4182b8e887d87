"""The host's kernels of powers, roots and exponentials, as data."""

from __future__ import annotations

from nbx_registry.host.specs.composed import WIDE, composed
from nbx_registry.host.specs.numpy_kernel import numpy_kernel

KERNELS = (
    numpy_kernel(
        "pow",
        "powers",
        "numpy.power; squares by themselves, small integer powers of float32 by multiplication in float64.",
        batch_invariant=True,
        overlap="any",
    ),
    numpy_kernel("sqrt", "elementwise", "numpy.sqrt.", batch_invariant=True, overlap="any"),
    numpy_kernel("rsqrt", "elementwise", "Blocks: a root and a division.", batch_invariant=True, overlap="any"),
    numpy_kernel("exp", "elementwise", "numpy.exp.", batch_invariant=True, overlap="any"),
    numpy_kernel("log", "elementwise", "numpy.log.", batch_invariant=True, overlap="any"),
    numpy_kernel("tanh", "elementwise", "numpy.tanh.", batch_invariant=True, overlap="any"),
    numpy_kernel(
        "erf",
        "activation",
        "Blocks: a polynomial of degree 13 in float32 (23 in float64) below 1, exp and another one above.",
        batch_invariant=True,
        overlap="any",
    ),
    composed("rsqrt", "sqrt", "reciprocal", when=(WIDE,)),
)
