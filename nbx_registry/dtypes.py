"""The dtype table: one object a dtype, compared by identity, read from ``dtypes.yml``; plugins may add theirs."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from types import MappingProxyType
from typing import Literal

import numpy as np
import yaml

from nbx_registry.errors import DuplicateError, SpecError, UnknownName

Kind = Literal["bool", "int", "uint", "float", "complex"]


@dataclass(frozen=True, kw_only=True, eq=False)
class DType:
    """One element type. Instances are unique by name, so ``is`` compares them."""

    name: str
    kind: Kind
    bits: int
    """Bits of one element as stored; below 8 several share a byte."""
    numpy_name: str | None = None
    """``module:name`` of the NumPy scalar type, ``numpy:float16``; None where NumPy has none."""
    safetensors: str | None = None
    dlpack: tuple[int, int] | None = None
    """DLPack's (type code, bits)."""
    key: str

    @property
    def itemsize(self) -> int:
        """Bytes of one element; 1 for packed types, whose arrays here hold one element a byte."""
        return max(1, self.bits // 8)

    @cached_property
    def numpy(self) -> np.dtype:
        """The NumPy dtype. Raises `SpecError` where NumPy (with ml_dtypes) has none."""
        if self.numpy_name is None:
            raise SpecError(f"dtype {self.name} has no NumPy dtype")
        module, _, attribute = self.numpy_name.partition(":")
        if module == "numpy":
            return np.dtype(attribute)
        return np.dtype(getattr(importlib.import_module(module), attribute))

    @property
    def floating(self) -> bool:
        """Whether it is a (real) floating dtype."""
        return self.kind == "float"

    @property
    def integral(self) -> bool:
        """Whether it is a signed or unsigned integer dtype."""
        return self.kind in ("int", "uint")

    def nbytes(self, elements: int) -> int:
        """Bytes of that many elements, packed where ``bits`` is below 8."""
        return (elements * self.bits + 7) // 8

    def __repr__(self) -> str:
        return self.name

    __str__ = __repr__

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return get, (self.name,)


_TABLE: dict[str, DType] = {}
BY_NUMPY: dict[np.dtype, DType] = {}
"""The dtypes met so far, by their NumPy dtype; `of_numpy` fills it."""

TABLE: Mapping[str, DType] = MappingProxyType(_TABLE)
"""Every dtype by name."""


def get(name: str | DType) -> DType:
    """Return the dtype of that name. Raises `UnknownName` with the nearest one."""
    if isinstance(name, DType):
        return name
    found = _TABLE.get(name)
    if found is None:
        raise UnknownName.of("dtype", name, _TABLE, "the table is nbx_registry/dtypes.yml; a plugin may add to it")
    return found


def of_numpy(dtype: np.dtype) -> DType:
    """Return the table's dtype of a NumPy dtype. Raises `UnknownName` for one the table lacks (or byte-swapped)."""
    found = BY_NUMPY.get(dtype)
    if found is None:
        for candidate in _TABLE.values():
            if candidate.numpy_name is not None and candidate.numpy == dtype:
                found = BY_NUMPY[dtype] = candidate
                break
        else:
            raise UnknownName.of("NumPy dtype", str(dtype), _TABLE)
    return found


def register(dtype: DType) -> None:
    """Add a dtype. Registering the same facts again does nothing; other facts under a known name or key are refused."""
    known = _TABLE.get(dtype.name)
    if known is not None:
        if _facts(known) != _facts(dtype):
            raise DuplicateError(f"dtype {dtype.name!r} is already in the table with other facts: {_facts(known)}")
        return
    for other in _TABLE.values():
        if other.key == dtype.key:
            raise DuplicateError(f"dtype {dtype.name!r} repeats the key {dtype.key!r} of {other.name!r}")
    _TABLE[dtype.name] = dtype


def _facts(dtype: DType) -> tuple[object, ...]:
    return (dtype.kind, dtype.bits, dtype.numpy_name, dtype.safetensors, dtype.dlpack, dtype.key)


def _load() -> None:
    rows = yaml.load(Path(__file__).with_name("dtypes.yml").read_text("utf-8"), Loader=yaml.CSafeLoader)
    for name, row in rows.items():
        numpy_name = f"numpy:{row['numpy']}" if "numpy" in row else None
        if "ml_dtypes" in row:
            numpy_name = f"ml_dtypes:{row['ml_dtypes']}"
        register(
            DType(
                name=name,
                kind=row["kind"],
                bits=row["bits"],
                numpy_name=numpy_name,
                safetensors=row.get("safetensors"),
                dlpack=tuple(row["dlpack"]) if "dlpack" in row else None,
                key=row["key"],
            )
        )


_load()
