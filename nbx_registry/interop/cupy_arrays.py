"""The adapter for CuPy arrays, made when the first one is met: CuPy is never imported from here."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from nbx_registry.errors import SignatureError
from nbx_registry.interop.base import alignment, element_strides
from nbx_registry.interop.numpy_arrays import table_dtype
from nbx_registry.spec import TensorSpec


class CupyAdapter:
    """cupy.ndarray; its dtypes are NumPy's."""

    name = "cupy"
    foreign = False
    address_code = "{x}.data.ptr"

    def __init__(self, cupy: Any) -> None:
        self._cupy = cupy
        self._gpu = "hip" if cupy.cuda.runtime.is_hip else "cuda"

    def take(self, x: Any) -> Any:
        return x

    def key(self, x: Any) -> tuple[Any, ...]:
        return (x.dtype, x.shape, x.strides, x.device.id, "cupy")

    def spec(self, x: Any, *, measure_align: bool = False) -> TensorSpec:
        what = f"CuPy array of shape {x.shape}"
        dtype = table_dtype(x.dtype, what)
        if dtype.packed:
            raise SignatureError(
                f"{what} holds {dtype.name} one element a byte; kernels take them packed, as nbx.Tensor"
            )
        strides = element_strides(x.strides, x.dtype.itemsize, x.shape, what)
        return TensorSpec(dtype, x.shape, strides, align=alignment(x.data.ptr) if measure_align else 16)

    def place(self, x: Any) -> str:
        return f"{self._gpu}:{x.device.id}"

    def array(self, x: Any) -> np.ndarray:
        raise SignatureError(f"CuPy array of shape {x.shape} is on {self.place(x)}, not on the host; give x.get()")

    def address(self, x: Any) -> int:
        return x.data.ptr

    def writable(self, x: Any) -> bool:
        return True

    def empty(self, spec: TensorSpec, place: str, like: Any = None) -> Any:
        kind, _, index = place.partition(":")
        if kind != self._gpu:
            raise SignatureError(f"CuPy arrays live on {self._gpu} devices, not on {place!r}")
        if spec.dtype.packed:
            raise SignatureError(f"CuPy has no packed {spec.dtype.name}; give out= as an nbx.Tensor")
        with self._cupy.cuda.Device(int(index)):
            if spec.contiguous:
                return self._cupy.empty(spec.shape, spec.dtype.numpy)
            return self.view(self._cupy.empty(spec.extent, spec.dtype.numpy), spec.shape, spec.strides, 0)

    def view(self, x: Any, shape: tuple[int, ...], strides: tuple[int, ...], offset: int) -> Any:
        size = x.dtype.itemsize
        return self._cupy.ndarray(shape, x.dtype, x.data + offset * size, tuple(step * size for step in strides))

    def streams(self, place: str) -> Callable[[], int]:
        device, current = int(place.partition(":")[2]), self._cupy.cuda.get_current_stream
        return lambda: current(device).ptr
