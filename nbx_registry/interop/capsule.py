"""DLPack capsules for every dtype of the table and any device, made and read with NumPy's own exchange.

NumPy exchanges host arrays of its own dtypes. The capsule's structure is plain data (``dlpack.h``, stable since
1.0), so a bfloat16 or a device tensor travels as raw words of the same size, and the two fields that differ, dtype
and device, are written into the structure. Lifetime stays with NumPy's compiled code: a deleter written in Python
could be called without an interpreter, when a consumer outlives it.
"""

from __future__ import annotations

import ctypes
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

import numpy as np

from nbx_registry import dtypes
from nbx_registry.dtypes import DType
from nbx_registry.errors import SignatureError

CPU = 1
"""DLPack's device types (``DLDeviceType``)."""
_PLACES = {CPU: "cpu", 2: "cuda", 3: "cpu", 10: "hip", 13: "cuda"}  # 3, 13: pinned and managed memory of CUDA
_TYPES = {"cpu": CPU, "cuda": 2, "hip": 10}
_WORDS = {1: np.dtype(np.uint8), 2: np.dtype(np.uint16), 4: np.dtype(np.uint32), 8: np.dtype(np.uint64)}
_UNSIGNED = 1


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


def place_of(device: tuple[int, int]) -> str:
    """Return the place of DLPack's (type, index). Raises `SignatureError` for a kind that is not read."""
    kind, index = int(device[0]), int(device[1])
    name = _PLACES.get(kind)
    if name is None:
        raise SignatureError(f"a DLPack tensor on device type {kind} cannot be read here; copy it to the host first")
    return name if name == "cpu" else f"{name}:{index}"


def export(words: np.ndarray, dtype: DType, place: str, **exchange: Any) -> Any:
    """Return a capsule of ``words`` (unsigned words over the memory, never read) as ``dtype`` at ``place``.

    ``exchange`` is what the consumer asked of ``__dlpack__`` that NumPy answers: ``max_version``.
    Raises BufferError for what DLPack cannot say.
    """
    device = device_of(place)
    if dtype.dlpack is None or dtype.bits < 8:
        # DLPack packs what is below a byte; arrays here hold one element a byte.
        raise BufferError(f"dtype {dtype.name} does not travel through DLPack; convert it first")
    capsule = words.__dlpack__(**exchange)
    tensor = _tensor(capsule)
    tensor.dtype.code, tensor.dtype.bits = dtype.dlpack
    tensor.device.type, tensor.device.index = device
    return capsule


def read(capsule: Any) -> tuple[np.ndarray, DType, str]:
    """Take a capsule in: words over its memory, which the array keeps alive and nobody may write; dtype; place.

    Raises `SignatureError` for a dtype or a device outside the tables; the capsule is then left unused.
    """
    tensor = _tensor(capsule)
    code, bits, lanes = tensor.dtype.code, tensor.dtype.bits, tensor.dtype.lanes
    dtype = next((d for d in dtypes.TABLE.values() if d.dlpack == (code, bits) and d.bits >= 8), None)
    if dtype is None or lanes != 1:
        raise SignatureError(
            f"a DLPack tensor of type code {code}, {bits} bits, {lanes} lanes is not in the dtype table"
        )
    place = place_of((tensor.device.type, tensor.device.index))
    with _disguised(tensor, dtype.itemsize):
        words = np.from_dlpack(_Given(capsule))
    words.flags.writeable = False
    return words, dtype, place


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


def _tensor(capsule: Any) -> _Tensor:
    if _is_valid(capsule, b"dltensor_versioned"):
        managed = _Versioned.from_address(_pointer(capsule, b"dltensor_versioned"))
        if managed.major != 1:
            raise SignatureError(f"a DLPack capsule of version {managed.major}.{managed.minor}; version 1 can be read")
        return managed.tensor
    if _is_valid(capsule, b"dltensor"):
        return _Tensor.from_address(_pointer(capsule, b"dltensor"))
    raise SignatureError(f"{capsule!r} is no unused DLPack capsule")
