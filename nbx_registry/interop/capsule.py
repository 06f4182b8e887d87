"""DLPack capsules for every dtype of the table and any device, made and read with NumPy's own exchange.

NumPy exchanges host arrays of its own dtypes. The capsule's structure is plain data (``dlpack.h``, stable since
1.0), so a bfloat16 or a device tensor travels as raw words of the same size, and the two fields that differ, dtype
and device, are written into the structure. Lifetime stays with NumPy's compiled code: a deleter written in Python
could be called without an interpreter, when a consumer outlives it.

Of packed dtypes DLPack counts shape and strides in elements too, so that a tensor of them travels as one of as many
bytes as it has elements. Nobody reads those: both ends take address, shape and strides alone.
"""

from __future__ import annotations

import ctypes
from collections.abc import Generator
from contextlib import contextmanager
from math import prod
from typing import Any

import numpy as np

from nbx_registry import dtypes
from nbx_registry.dtypes import DType
from nbx_registry.errors import SignatureError
from nbx_registry.spec import MAX_EXTENT, MAX_RANK

CPU = 1
"""DLPack's device types (``DLDeviceType``)."""
_PLACES = {CPU: "cpu", 2: "cuda", 3: "cpu", 10: "hip", 13: "cuda"}  # 3, 13: pinned and managed memory of CUDA
_TYPES = {"cpu": CPU, "cuda": 2, "hip": 10}
_WORDS = {1: np.dtype(np.uint8), 2: np.dtype(np.uint16), 4: np.dtype(np.uint32), 8: np.dtype(np.uint64)}
_UNSIGNED = 1
VERSION = (1, 1)
"""Of DLPack: what capsules are asked for, and the first in which every dtype of the table has a code."""
_COPIED, _PADDED = 2, 4
"""Flags of a capsule (``DLPACK_FLAG_BITMASK_...``): a copy made for the consumer; packed elements one a byte."""


class _Device(ctypes.Structure):
    _fields_ = (("type", ctypes.c_int32), ("index", ctypes.c_int32))


class _DataType(ctypes.Structure):
    _fields_ = (("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16))


class _Tensor(ctypes.Structure):
    _fields_ = (
        ("data", ctypes.c_void_p),
        ("device", _Device),
        ("ndim", ctypes.c_int32),
        ("dtype", _DataType),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    )


class _Versioned(ctypes.Structure):
    _fields_ = (
        ("major", ctypes.c_uint32),
        ("minor", ctypes.c_uint32),
        ("manager", ctypes.c_void_p),
        ("deleter", ctypes.c_void_p),
        ("flags", ctypes.c_uint64),
        ("tensor", _Tensor),
    )


_is_valid = ctypes.pythonapi.PyCapsule_IsValid
_is_valid.argtypes, _is_valid.restype = (ctypes.py_object, ctypes.c_char_p), ctypes.c_int
_pointer = ctypes.pythonapi.PyCapsule_GetPointer
_pointer.argtypes, _pointer.restype = (ctypes.py_object, ctypes.c_char_p), ctypes.c_void_p


def device_of(place: str) -> tuple[int, int]:
    """Return DLPack's (type, index) of a place. Raises BufferError, as DLPack asks, where it has none."""
    kind, _, index = place.partition(":")
    if kind not in _TYPES:
        raise BufferError(f"DLPack names no device for {place!r}; copy to the host first: .to('cpu')")
    return _TYPES[kind], int(index or 0)


def place_of(device: Any) -> str:
    """Return the place of DLPack's (type, index). Raises `SignatureError` for a kind that is not read."""
    try:
        kind, index = map(int, device)
    except (TypeError, ValueError) as error:
        raise SignatureError(f"{device!r} is no DLPack device: it is a pair of type and index") from error
    name = _PLACES.get(kind)
    if name is None or index < 0:
        raise SignatureError(
            f"a DLPack tensor on device type {kind}, index {index} cannot be read; copy it to the host"
        )
    return name if name == "cpu" else f"{name}:{index}"


def export(words: np.ndarray, dtype: DType, place: str, *, copied: bool = False, **exchange: Any) -> Any:
    """Return a capsule of ``words`` (unsigned words over the memory, never read) as ``dtype`` at ``place``.

    ``exchange`` is what the consumer asked of ``__dlpack__`` that NumPy answers: ``max_version``.
    Raises BufferError for what DLPack cannot say.
    """
    device = device_of(place)
    if dtype.dlpack is None:
        raise BufferError(f"dtype {dtype.name} has no DLPack type; convert it with astype first")
    capsule = words.__dlpack__(**exchange)
    versioned, tensor = _parts(capsule)
    tensor.dtype.code, tensor.dtype.bits = dtype.dlpack
    tensor.device.type, tensor.device.index = device
    if versioned is not None:
        versioned.minor = max(versioned.minor, min(VERSION[1], exchange["max_version"][1]))
        versioned.flags |= _COPIED * copied
    return capsule


def read(capsule: Any) -> tuple[np.ndarray, DType, str]:
    """Take a capsule in: words over its memory, which the array keeps alive and nobody may write; dtype; place.

    Raises `SignatureError` for a capsule that holds no tensor that could be read; it is then left unused, and frees
    what it holds itself.
    """
    versioned, tensor = _parts(capsule)
    code, bits, lanes = tensor.dtype.code, tensor.dtype.bits, tensor.dtype.lanes
    dtype = dtypes.of_dlpack(code, bits)
    if dtype is None or lanes != 1 or dtype.itemsize not in _WORDS:
        raise SignatureError(
            f"a DLPack tensor of type code {code}, {bits} bits, {lanes} lanes is not in the dtype table"
        )
    if dtype.packed and versioned is not None and versioned.flags & _PADDED:
        raise SignatureError(
            f"a DLPack tensor of {dtype.name} is padded, one element a byte; give it packed or as int8"
        )
    place = place_of((tensor.device.type, tensor.device.index))
    _check_memory(tensor, dtype)
    with _disguised(tensor, dtype.itemsize):
        words = np.from_dlpack(_Given(capsule))
    words.flags.writeable = False
    return words, dtype, place


def _check_memory(tensor: _Tensor, dtype: DType) -> None:
    rank = tensor.ndim
    if not 0 <= rank <= MAX_RANK or (rank and not tensor.shape):
        raise SignatureError(f"a DLPack tensor of {rank} axes; 0 to {MAX_RANK} with a shape can be read")
    shape = tuple(tensor.shape[:rank]) if rank else ()
    if any(extent < 0 for extent in shape) or prod(shape) > MAX_EXTENT:
        raise SignatureError(f"a DLPack tensor of shape {shape}; extents are at least 0, and fit an address space")
    if 0 in shape:
        return
    address = (tensor.data or 0) + tensor.byte_offset
    if not tensor.data:
        raise SignatureError(f"a DLPack tensor of shape {shape} has no memory: its data pointer is null")
    # The two parts of a complex number need no more than each alone.
    unit = dtype.itemsize // 2 if dtype.kind == "complex" else dtype.itemsize
    if address % unit:
        raise SignatureError(
            f"a DLPack tensor of {dtype.name} at an address that is no multiple of its element's {unit} bytes"
            f" (byte_offset {tensor.byte_offset}); give a copy"
        )


def words_of(dtype: DType) -> np.dtype:
    """Return the unsigned word of the dtype's size."""
    return _WORDS[dtype.itemsize]


@contextmanager
def _disguised(tensor: _Tensor, itemsize: int) -> Generator[None, None, None]:
    # The producer's structure is as it was before anyone but NumPy looks at it again.
    dtype = (tensor.dtype.code, tensor.dtype.bits)
    device = (tensor.device.type, tensor.device.index)
    tensor.dtype.code, tensor.dtype.bits = _UNSIGNED, 8 * itemsize
    tensor.device.type, tensor.device.index = CPU, 0
    try:
        yield
    finally:
        tensor.dtype.code, tensor.dtype.bits = dtype
        tensor.device.type, tensor.device.index = device


class _Given:
    """A capsule already in hand, as the object NumPy asks for one."""

    def __init__(self, capsule: Any) -> None:
        self._capsule = capsule

    def __dlpack__(self, **_exchange: Any) -> Any:
        return self._capsule

    def __dlpack_device__(self) -> tuple[int, int]:
        return CPU, 0


def _parts(capsule: Any) -> tuple[_Versioned | None, _Tensor]:
    """Return the structures of an unused capsule: the first is None before DLPack 1.0."""
    if _is_valid(capsule, b"dltensor_versioned"):
        managed = _Versioned.from_address(_pointer(capsule, b"dltensor_versioned"))
        if managed.major != VERSION[0]:
            raise SignatureError(f"a DLPack capsule of version {managed.major}.{managed.minor}; version 1 can be read")
        return managed, managed.tensor
    if _is_valid(capsule, b"dltensor"):
        return None, _Tensor.from_address(_pointer(capsule, b"dltensor"))
    raise SignatureError(f"{capsule!r} is no unused DLPack capsule")
