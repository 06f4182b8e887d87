"""Device memory seen as arrays: the Acme One computes where the host can look.

A kernel that the device itself runs has no need of this.
"""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from nbx_registry import TensorSpec


def array_at(address: int, spec: TensorSpec) -> np.ndarray[Any, Any]:
    """Return the tensor whose first element is at ``address``, without a copy."""
    dtype = spec.dtype.numpy
    if spec.size == 0:
        return np.empty(spec.shape, dtype)
    steps = [(extent - 1) * stride for extent, stride in zip(spec.shape, spec.strides, strict=True)]
    # A negative stride reaches below the first element.
    below = -sum(min(0, step) for step in steps) * dtype.itemsize
    above = (sum(max(0, step) for step in steps) + 1) * dtype.itemsize
    memory = np.ctypeslib.as_array((ctypes.c_uint8 * (below + above)).from_address(address - below))
    return np.ndarray(spec.shape, dtype, memory, below, tuple(stride * dtype.itemsize for stride in spec.strides))
