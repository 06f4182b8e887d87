"""Types of what ops take: arrays of any library, names of dtypes, policies."""

from __future__ import annotations

from typing import Any, Literal, Protocol, TypeAlias

import numpy as np

from nbx_registry.dtypes import DType
from nbx_registry.policy import Require

__all__ = ["ArrayLike", "DTypeLike", "DTypeName", "Require", "SupportsDLPack"]


class SupportsDLPack(Protocol):
    """An array that other libraries can take: of NumPy, torch, CuPy, jax, `nbx_registry.Tensor`, and any other."""

    def __dlpack_device__(self) -> tuple[Any, Any]:
        """Return DLPack's type and index of the device that the array is on."""
        ...


ArrayLike: TypeAlias = SupportsDLPack | np.generic
"""An array of any library, or a NumPy scalar, which is one of rank 0."""

DTypeName = Literal[
    "bool",
    "int8",
    "int16",
    "int32",
    "int64",
    "uint8",
    "uint16",
    "uint32",
    "uint64",
    "float16",
    "bfloat16",
    "float32",
    "float64",
    "complex64",
    "float8_e4m3fn",
    "float8_e5m2",
    "float8_e4m3fnuz",
    "float4_e2m1fn",
    "int4",
    "uint4",
]
"""The dtypes of the table."""

DTypeLike: TypeAlias = DType | DTypeName | str
"""A dtype or its name; a plugin may have added to the names."""
