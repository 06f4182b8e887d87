"""The adapter for the project's own tensor."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from nbx_registry.interop.base import alignment
from nbx_registry.spec import TensorSpec

if TYPE_CHECKING:
    from nbx_registry.tensor import Tensor


class NbxAdapter:
    """nbx.Tensor."""

    name = "nbx"
    foreign = False
    address_code = "{x}.address"

    def __init__(self, tensor_module: Any) -> None:
        self._module = tensor_module

    def take(self, x: Tensor) -> Tensor:
        return x

    def key(self, x: Tensor) -> tuple[Any, ...]:
        return (x.dtype, x.shape, x.strides, x.device)

    def spec(self, x: Tensor, *, measure_align: bool = False) -> TensorSpec:
        return TensorSpec(x.dtype, x.shape, x.strides, align=alignment(x.address) if measure_align else 16)

    def place(self, x: Tensor) -> str:
        return x.device

    def array(self, x: Tensor) -> np.ndarray:
        return x.host_array()

    def address(self, x: Tensor) -> int:
        return x.address

    def writable(self, x: Tensor) -> bool:
        return not x.readonly

    def empty(self, spec: TensorSpec, place: str, like: Any = None) -> Tensor:
        return self._module.empty_of(spec, place)

    def view(self, x: Tensor, shape: tuple[int, ...], strides: tuple[int, ...], offset: int) -> Tensor:
        return x.restrided(shape, strides, offset)

    def streams(self, place: str) -> Callable[[], Any]:
        current = self._module.current_stream

        def handle() -> Any:
            stream = current(place)
            return None if stream is None else stream.handle

        return handle
