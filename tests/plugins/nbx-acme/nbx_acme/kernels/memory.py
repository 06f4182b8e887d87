"""Device memory seen as arrays. The Acme One computes where the host can look."""

from __future__ import annotations

import ctypes

import numpy as np

from nbx_registry.spec import TensorSpec


def array_at(address: int, spec: TensorSpec) -> np.ndarray:
    """Return the tensor whose first element is at ``address`` (strides of at least 0), without a copy."""
    dtype = spec.dtype.numpy
    if spec.size == 0:
        return np.empty(spec.shape, dtype)
    memory = (ctypes.c_uint8 * (spec.extent * dtype.itemsize)).from_address(address)
    strides = tuple(stride * dtype.itemsize for stride in spec.strides)
    return np.ndarray(spec.shape, dtype, memory, 0, strides)
