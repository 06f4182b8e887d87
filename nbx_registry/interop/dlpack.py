"""The adapter for any other object with ``__dlpack__``, jax's arrays among them: taken in as an nbx.Tensor, only read.

Results come back as nbx.Tensor, which exports DLPack itself, so that the caller's library takes them without a copy.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from nbx_registry.interop.nbx_tensors import NbxAdapter
from nbx_registry.spec import TensorSpec


class DlpackAdapter(NbxAdapter):
    """An object with ``__dlpack__`` and ``__dlpack_device__``.

    Every look at one is an exchange (some microseconds): `take` it once and use the Tensor, which also keeps the
    memory alive.
    """

    name = "dlpack"
    foreign = True

    def take(self, x: Any) -> Any:
        return self._module.from_dlpack(x)

    def key(self, x: Any) -> tuple[Any, ...]:
        return super().key(self.take(x))

    def spec(self, x: Any, *, measure_align: bool = False) -> TensorSpec:
        return super().spec(self.take(x), measure_align=measure_align)

    def place(self, x: Any) -> str:
        return super().place(self.take(x))

    def array(self, x: Any) -> np.ndarray:
        return super().array(self.take(x))

    def address(self, x: Any) -> int:
        return super().address(self.take(x))

    def writable(self, x: Any) -> bool:
        return False

    def view(self, x: Any, shape: tuple[int, ...], strides: tuple[int, ...], offset: int) -> Any:
        return super().view(self.take(x), shape, strides, offset)
