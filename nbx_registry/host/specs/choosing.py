"""The host's kernels that choose among elements, as data."""

from __future__ import annotations

from nbx_registry.host.specs.composed import composed
from nbx_registry.host.specs.numpy_kernel import numpy_kernel

KERNELS = (
    numpy_kernel("maximum", "elementwise", "numpy.maximum.", batch_invariant=True, overlap="any"),
    numpy_kernel("minimum", "elementwise", "numpy.minimum.", batch_invariant=True, overlap="any"),
    numpy_kernel(
        "clip", "choosing", "numpy.clip, numpy.maximum or numpy.minimum.", batch_invariant=True, overlap="any"
    ),
    numpy_kernel("where", "choosing", "Blocks: a choice by bits.", batch_invariant=True, overlap="any"),
    composed("clip", "maximum", "minimum", when=("min.given or max.given",)),
)
