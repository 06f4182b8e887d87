"""The dtype table: one object a dtype, compared by identity, read from ``dtypes.yml``; plugins may add theirs.

The table is the process's: what a plugin of one registry adds is known to every registry, and stays. It is read when a
dtype is first asked for, since registering ops and kernels needs none.
"""

from __future__ import annotations

import importlib
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Literal

import numpy as np

from nbx_registry.errors import DuplicateError, SpecError, UnknownName

Kind = Literal["bool", "int", "uint", "float", "complex"]


@dataclass(frozen=True, kw_only=True, eq=False)
class DType:
    """One element type. Instances are unique by name, so ``is`` compares them."""

    name: str
    kind: Kind
    bits: int
    """Bits of one element. Below 8 several share a byte, the first one in its lowest bits: in an nbx.Tensor, on a
    device, through DLPack and in files. NumPy arrays hold one such element a byte."""
    numpy_name: str | None = None
    """``module:name`` of the NumPy scalar type, ``numpy:float16``; None where NumPy has none."""
    safetensors: str | None = None
    dlpack: tuple[int, int] | None = None
    """DLPack's (type code, bits)."""
    key: str

    @property
    def itemsize(self) -> int:
        """Bytes of one element in a NumPy array; 1 for packed dtypes, of which it holds one element a byte."""
        return max(1, self.bits // 8)

    @property
    def packed(self) -> bool:
        """Whether several elements share a byte of memory."""
        return self.bits < 8

    @cached_property
    def numpy(self) -> np.dtype:
        """The NumPy dtype. Raises `SpecError` where NumPy (with ml_dtypes) has none."""
        if self.numpy_name is None:
            raise SpecError(f"dtype {self.name} has no NumPy dtype")
        module, _, attribute = self.numpy_name.partition(":")
        try:
            if module == "numpy":
                return np.dtype(attribute)
            return np.dtype(getattr(importlib.import_module(module), attribute))
        except (ImportError, AttributeError, TypeError) as error:
            raise SpecError(f"dtype {self.name}: {self.numpy_name!r} is no NumPy scalar type ({error})") from error

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


class _Table(Mapping[str, DType]):
    """The rows by name, read when they are first looked at."""

    def __init__(self) -> None:
        self.rows: dict[str, DType] = {}
        self.lock = threading.Lock()

    def read(self) -> dict[str, DType]:
        """Return the rows, from the file if nobody has asked before."""
        if not self.rows:
            with self.lock:
                if not self.rows:
                    self.rows = _from_file()
        return self.rows

    def __getitem__(self, name: str) -> DType:
        return self.read()[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.read())

    def __len__(self) -> int:
        return len(self.read())

    def __contains__(self, name: object) -> bool:
        return name in self.read()


_table = _Table()
BY_NUMPY: dict[np.dtype, DType] = {}
"""The dtypes met so far, by their NumPy dtype; `of_numpy` fills it."""

TABLE: Mapping[str, DType] = _table
"""Every dtype by name."""


def get(name: object) -> DType:
    """Return the dtype of that name, or the dtype itself. Raises `UnknownName` with the nearest one."""
    if isinstance(name, DType):
        return name
    if not isinstance(name, str):
        raise UnknownName(f"unknown dtype {name!r}: give its name in the table, like 'float32'")
    found = _table.read().get(name)
    if found is None:
        raise UnknownName.of("dtype", name, _table.rows, "the table is nbx_registry/dtypes.yml; a plugin may add to it")
    return found


def of_numpy(dtype: np.dtype) -> DType:
    """Return the table's dtype of a NumPy dtype. Raises `UnknownName` for one the table lacks (or byte-swapped)."""
    found = BY_NUMPY.get(dtype)
    if found is None:
        for candidate in _table.read().values():
            if _has_numpy(candidate) and candidate.numpy == dtype:
                found = BY_NUMPY[dtype] = candidate
                break
        else:
            raise UnknownName.of("NumPy dtype", str(dtype), _table.rows)
    return found


def _has_numpy(dtype: DType) -> bool:
    """Return whether NumPy has a type for it; a plugin may name one that is not there."""
    try:
        _ = dtype.numpy
    except SpecError:
        return False
    return True


def of_dlpack(code: int, bits: int) -> DType | None:
    """Return the table's dtype of a DLPack type code and width, or None."""
    return next((dtype for dtype in _table.read().values() if dtype.dlpack == (code, bits)), None)


def register(dtype: DType) -> None:
    """Add a dtype to the process's table.

    Registering the same facts again does nothing. Other facts under a known name, and a known key, DLPack type or name
    in safetensors under another name, are refused with `DuplicateError`.
    """
    _table.read()
    with _table.lock:
        _add(dtype)


def _add(dtype: DType) -> None:
    rows = _table.rows
    known = rows.get(dtype.name)
    if known is not None:
        if _facts(known) != _facts(dtype):
            raise DuplicateError(f"dtype {dtype.name!r} is already in the table with other facts: {_facts(known)}")
        return
    for other in rows.values():
        if other.key == dtype.key:
            raise DuplicateError(f"dtype {dtype.name!r} repeats the key {dtype.key!r} of {other.name!r}")
        if dtype.dlpack is not None and other.dlpack == dtype.dlpack:
            raise DuplicateError(f"dtype {dtype.name!r} repeats the DLPack type {dtype.dlpack} of {other.name!r}")
        if dtype.safetensors is not None and other.safetensors == dtype.safetensors:
            raise DuplicateError(
                f"dtype {dtype.name!r} repeats the safetensors name {dtype.safetensors!r} of {other.name!r}"
            )
    # Another thread may be walking over the table as it was.
    _table.rows = {**rows, dtype.name: dtype}


def _facts(dtype: DType) -> tuple[object, ...]:
    return (dtype.kind, dtype.bits, dtype.numpy_name, dtype.safetensors, dtype.dlpack, dtype.key)


def _from_file() -> dict[str, DType]:
    import yaml  # milliseconds to import, and a process that only lists ops never asks

    rows = yaml.load(Path(__file__).with_name("dtypes.yml").read_text("utf-8"), Loader=yaml.CSafeLoader)
    return {
        name: DType(
            name=name,
            kind=row["kind"],
            bits=row["bits"],
            numpy_name=f"ml_dtypes:{row['ml_dtypes']}" if "ml_dtypes" in row else f"numpy:{row['numpy']}",
            safetensors=row.get("safetensors"),
            dlpack=tuple(row["dlpack"]),
            key=row["key"],
        )
        for name, row in rows.items()
    }
