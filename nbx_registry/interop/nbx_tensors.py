"""The adapter for the project's own tensor."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from nbx_registry.errors import SignatureError
from nbx_registry.interop.base import alignment
from nbx_registry.interop.packed import elements_per_byte
from nbx_registry.spec import TensorSpec
from nbx_registry.streams import current_stream

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
        if offset % elements_per_byte(x.dtype):
            raise SignatureError(f"a view of {x} from element {offset} on would split a byte; give a copy")
        return x.restrided(shape, strides, offset)

    def streams(self, place: str) -> Callable[[], Any]:
        def handle() -> Any:
            stream = current_stream(place)
            return None if stream is None else stream.handle

        return handle
