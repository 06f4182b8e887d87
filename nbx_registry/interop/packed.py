"""Elements below a byte: packed in memory, the first one in the lowest bits, and one a byte in NumPy's arrays."""

from __future__ import annotations

from typing import Any

import numpy as np

from nbx_registry.dtypes import DType
from nbx_registry.errors import SpecError

Bytes = np.ndarray[Any, np.dtype[np.uint8]]


def elements_per_byte(dtype: DType) -> int:
    """Return how many elements of a packed dtype share a byte; 1 for any other.

    Raises `SpecError` for a width that does not divide a byte.
    """
    if not dtype.packed:
        return 1
    if 8 % dtype.bits:
        raise SpecError(f"dtype {dtype.name} has {dtype.bits} bits, which do not divide a byte: it cannot be stored")
    return 8 // dtype.bits


def pack(elements: np.ndarray[Any, Any], dtype: DType) -> Bytes:
    """Return the bytes that hold ``elements`` in C order; bits left over in the last one are 0."""
    per = elements_per_byte(dtype)
    mask = np.uint8(2**dtype.bits - 1)
    given = np.ascontiguousarray(elements).reshape(-1).view(np.uint8)
    packed = given[::per] & mask
    for place in range(1, per):
        later = given[place::per] & mask
        packed[: later.size] |= later << np.uint8(place * dtype.bits)
    return packed


def unpack(packed: Bytes, dtype: DType, count: int) -> np.ndarray[Any, Any]:
    """Return the first ``count`` elements of ``packed``, one a byte, in the NumPy dtype of ``dtype``."""
    per = elements_per_byte(dtype)
    mask = np.uint8(2**dtype.bits - 1)
    elements = np.empty((packed.size, per), np.uint8)
    for place in range(per):
        np.right_shift(packed, np.uint8(place * dtype.bits), out=elements[:, place])
    elements &= mask
    return elements.reshape(-1)[:count].view(dtype.numpy)
