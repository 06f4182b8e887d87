"""Device memory seen as arrays. The Acme One computes where the host can look."""

from __future__ import annotations

import ctypes

import numpy as np

from nbx_registry.spec import TensorSpec


def array_at(address: int, spec: TensorSpec) -> np.ndarray:
    """Return the tensor whose first element is at ``address``, without a copy."""
    dtype = spec.dtype.numpy
    if spec.size == 0:
        return np.empty(spec.shape, dtype)
    steps = [(extent - 1) * stride for extent, stride in zip(spec.shape, spec.strides, strict=True)]
    # A negative stride reaches below the first element.
    below = -sum(min(0, step) for step in steps) * dtype.itemsize
    reach = below + (sum(max(0, step) for step in steps) + 1) * dtype.itemsize
    memory = (ctypes.c_uint8 * reach).from_address(address - below)
    strides = tuple(stride * dtype.itemsize for stride in spec.strides)
    return np.ndarray(spec.shape, dtype, memory, below, strides)
