"""DLPack capsules made by hand, for tests: any content, and a count of how often each was given back."""

from __future__ import annotations

import ctypes
from typing import Any

from nbx_registry.interop.capsule import _Tensor, _Versioned

_api = ctypes.pythonapi
_Deleter = ctypes.CFUNCTYPE(None, ctypes.c_void_p)
_Destructor = ctypes.CFUNCTYPE(None, ctypes.c_void_p)
_new = _api.PyCapsule_New
_new.argtypes, _new.restype = (ctypes.c_void_p, ctypes.c_char_p, _Destructor), ctypes.py_object
# The capsule is being destroyed when these are asked: it goes by its address.
_is_valid = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_char_p)(("PyCapsule_IsValid", _api))


class _Managed(ctypes.Structure):
    """``DLManagedTensor``, from before DLPack 1.0."""

    _fields_ = (("tensor", _Tensor), ("manager", ctypes.c_void_p), ("deleter", ctypes.c_void_p))


class Producer:
    """An object whose capsule holds what a test says.

    Attributes
    ----------
    deleted : int
        How often the capsule's deleter ran.
    asked : list
        The keywords of each ``__dlpack__``.
    """

    def __init__(
        self,
        shape: tuple[int, ...] = (2, 3),
        *,
        dtype: tuple[int, int, int] = (2, 32, 1),
        strides: tuple[int, ...] | None = None,
        device: Any = (1, 0),
        inside: tuple[int, int] = (1, 0),
        version: tuple[int, int] | None = (1, 1),
        flags: int = 0,
        byte_offset: int = 0,
        null: bool = False,
        rank: int | None = None,
    ) -> None:
        self._managed: Any
        self.deleted = 0
        self.asked: list[dict[str, Any]] = []
        self.device = device
        self.memory = (ctypes.c_uint8 * 256)(*range(256))
        self._shape = (ctypes.c_int64 * max(len(shape), 1))(*shape)
        self._strides = None if strides is None else (ctypes.c_int64 * max(len(strides), 1))(*strides)
        self._deleter, self._destructor = _Deleter(self._delete), _Destructor(self._destroy)
        self._name, self._managed = b"dltensor", _Managed()
        if version is not None:
            self._name = b"dltensor_versioned"
            self._managed = _Versioned(major=version[0], minor=version[1], flags=flags)
        self._managed.deleter = ctypes.cast(self._deleter, ctypes.c_void_p)
        tensor = self._managed.tensor
        # 64 bytes in, on a multiple of 64.
        self.start = -ctypes.addressof(self.memory) % 64 + 64
        tensor.data = None if null else ctypes.addressof(self.memory) + self.start
        tensor.device.type, tensor.device.index = inside
        tensor.ndim = len(shape) if rank is None else rank
        tensor.dtype.code, tensor.dtype.bits, tensor.dtype.lanes = dtype
        tensor.shape = self._shape
        if self._strides is not None:
            tensor.strides = self._strides
        tensor.byte_offset = byte_offset

    def _delete(self, _managed: int) -> None:
        self.deleted += 1

    def _destroy(self, capsule: int) -> None:
        # As dlpack.h has it: a capsule that nobody took gives back what it holds.
        if _is_valid(capsule, self._name):
            self.deleted += 1

    def __dlpack_device__(self) -> Any:
        return self.device

    def __dlpack__(self, **exchange: Any) -> Any:
        self.asked.append(exchange)
        return _new(ctypes.addressof(self._managed), self._name, self._destructor)
