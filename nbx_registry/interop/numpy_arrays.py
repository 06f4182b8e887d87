"""The adapter for NumPy: arrays and their subclasses, and NumPy's scalars as rank-0 inputs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from nbx_registry import dtypes
from nbx_registry.dtypes import BY_NUMPY as _BY_NUMPY
from nbx_registry.errors import OutOfMemory, SignatureError, UnknownName
from nbx_registry.interop.base import alignment, element_strides
from nbx_registry.interop.memory import address_of, array_at
from nbx_registry.spec import TensorSpec


def table_dtype(dtype: np.dtype, what: str) -> dtypes.DType:
    """Return the table's dtype of a NumPy dtype. Raises `SignatureError` naming ``what`` and why there is none."""
    try:
        return dtypes.of_numpy(dtype)
    except UnknownName:
        pass
    if dtype.names is not None or dtype.subdtype is not None:
        reason = "a structured dtype; give one field of it"
    elif dtype.hasobject:
        reason = "an object dtype; give numbers: x.astype('float32')"
    elif not dtype.isnative:
        reason = "byte-swapped; give x.astype(x.dtype.newbyteorder('='))"
    else:
        reason = f"not in the dtype table, which has {', '.join(dtypes.TABLE)}"
    raise SignatureError(f"{what} has dtype {dtype}, {reason}")


def no_room(spec: TensorSpec) -> OutOfMemory:
    """Return the error for an array that NumPy could not make: too large for the memory, or for NumPy itself."""
    nbytes = spec.size * spec.dtype.itemsize
    message = f"cannot allocate {nbytes} bytes on cpu for {spec}"
    return OutOfMemory(message, requested=nbytes, live=None, pooled=None, free=None)


class NumpyAdapter:
    """numpy.ndarray."""

    name = "numpy"
    foreign = False
    address_code = ""

    def take(self, x: np.ndarray) -> np.ndarray:
        return x

    def key(self, x: np.ndarray) -> tuple[Any, ...]:
        return (x.dtype, x.shape, x.strides, "cpu")

    def spec(self, x: np.ndarray, *, measure_align: bool = False) -> TensorSpec:
        shape = x.shape
        found = _BY_NUMPY.get(x.dtype)
        if found is not None and x.flags.c_contiguous:
            return TensorSpec(found, shape, align=alignment(self.address(x)) if measure_align else 16)
        what = f"NumPy array of shape {shape}"
        dtype = table_dtype(x.dtype, what)
        strides = element_strides(x.strides, x.dtype.itemsize, shape, what)
        return TensorSpec(dtype, shape, strides, align=alignment(self.address(x)) if measure_align else 16)

    def place(self, x: np.ndarray) -> str:
        return "cpu"

    def array(self, x: np.ndarray) -> np.ndarray:
        return x

    def address(self, x: np.ndarray) -> int:
        return address_of(x)

    def writable(self, x: np.ndarray) -> bool:
        return x.flags.writeable

    def empty(self, spec: TensorSpec, place: str, like: object = None) -> np.ndarray:
        if place != "cpu":
            raise SignatureError(f"NumPy arrays live on the host, not on {place!r}; give nbx.Tensor or torch arrays")
        try:
            if spec.contiguous:
                return np.empty(spec.shape, spec.dtype.numpy)
            flat = np.empty(spec.extent, spec.dtype.numpy)
        except (MemoryError, ValueError) as error:
            raise no_room(spec) from error
        return self.view(flat, spec.shape, spec.strides, 0)

    def view(self, x: np.ndarray, shape: tuple[int, ...], strides: tuple[int, ...], offset: int) -> np.ndarray:
        address = address_of(x) + offset * x.dtype.itemsize
        return array_at(address, x.dtype, shape, strides, owner=x, readonly=not x.flags.writeable)

    def streams(self, place: str) -> Callable[[], None]:
        return _no_stream


def _no_stream() -> None:
    return None


class NumpySubclassAdapter(NumpyAdapter):
    """Subclasses that are no more than arrays (numpy.memmap): kernels are given the plain array."""

    def array(self, x: np.ndarray) -> np.ndarray:
        return x.view(np.ndarray)


class NumpyScalarAdapter(NumpyAdapter):
    """numpy.float32(2): rank 0 with a dtype of its own, so not weak. It has no address, and is never written."""

    def array(self, x: Any) -> np.ndarray:
        return np.asarray(x)

    def address(self, x: Any) -> int:
        return 0

    def writable(self, x: Any) -> bool:
        return False

    def view(self, x: Any, shape: tuple[int, ...], strides: tuple[int, ...], offset: int) -> np.ndarray:
        return super().view(np.asarray(x), shape, strides, offset)
