"""The host's kernels, as data, one module a family of ops."""

from __future__ import annotations

from nbx_registry.host.specs import (
    activation,
    attention,
    cache,
    choosing,
    conversion,
    convolution,
    creation,
    elementwise,
    exponential,
    fourier,
    indexing,
    layout,
    linalg,
    normalization,
    quantized,
    random,
    reduction,
    sorting,
)
from nbx_registry.host.specs.numpy_kernel import NUMPY as NUMPY

_FAMILIES = (
    elementwise,
    exponential,
    activation,
    choosing,
    conversion,
    reduction,
    normalization,
    linalg,
    convolution,
    layout,
    creation,
    random,
    indexing,
    sorting,
    attention,
    cache,
    fourier,
    quantized,
)

KERNELS = tuple(kernel for family in _FAMILIES for kernel in family.KERNELS)
"""Every kernel of the host."""
