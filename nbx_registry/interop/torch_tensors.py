"""The adapter for torch tensors, made when the first one is met: torch is never imported from here."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from nbx_registry import dtypes
from nbx_registry.errors import SignatureError
from nbx_registry.interop.base import alignment
from nbx_registry.interop.memory import array_at
from nbx_registry.spec import TensorSpec


def _key_of(torch: Any) -> Callable[[Any], tuple[Any, ...]]:
    """Return `TorchAdapter.key`: a function of its own, since it runs for every tensor of every call."""
    complex64 = torch.complex64

    def key(x: Any) -> tuple[Any, ...]:
        dtype = x.dtype
        try:
            # Asking whether it is contiguous costs half of asking for the strides; extents then settle them.
            strides = x.is_contiguous() or x.stride()
            shape = x.shape
        except RuntimeError:
            # A layout without strides (sparse) or without a shape (nested): `spec` refuses it.
            strides = shape = None
        index = x.get_device()
        # Refused or unresolved tensors are told apart here, so that an accepted key needs no look at them. (A build of
        # torch knows one kind of accelerator: an index of 0 or more says which device it is.)
        return (
            dtype,
            shape,
            strides,
            index if index >= 0 else x.device,
            x.requires_grad or x.is_neg() or (dtype is complex64 and x.is_conj()),
        )

    return key


class TorchAdapter:
    """torch.Tensor with strided memory on the host or on a GPU."""

    name = "torch"
    foreign = False
    address_code = "{x}.data_ptr()"

    def __init__(self, torch: Any) -> None:
        self._torch = torch
        self.key = _key_of(torch)
        self._strided = torch.strided
        self._to_table: dict[Any, dtypes.DType] = {}
        self._from_table: dict[dtypes.DType, Any] = {}
        for dtype in dtypes.TABLE.values():
            self._learn(dtype)
        # What torch's own .numpy() takes; the others are reached through their address.
        self._numpy_knows = frozenset(
            theirs for theirs, ours in self._to_table.items() if (ours.numpy_name or "").startswith("numpy:")
        )
        self._gpu = "hip" if torch.version.hip else "cuda"
        # Absent from a build without GPUs, where no tensor asks for it.
        self._raw_stream = getattr(torch._C, "_cuda_getCurrentRawStream", None)

    def _learn(self, dtype: dtypes.DType) -> Any:
        theirs = getattr(self._torch, dtype.name, None)
        # torch's 4-bit dtypes hold two elements a byte, or have no operations at all: not what the table means.
        if not isinstance(theirs, self._torch.dtype) or dtype.bits < 8:
            return None
        self._to_table[theirs] = dtype
        self._from_table[dtype] = theirs
        return theirs

    def _wrapped(self, x: Any) -> bool:
        """Whether ``x`` has no memory of its own: functorch's wrappers, and those of functionalisation."""
        functorch = getattr(self._torch._C, "_functorch", None)
        return (functorch is not None and functorch.is_functorch_wrapped_tensor(x)) or (
            self._torch._is_functional_tensor(x)
        )

    def take(self, x: Any) -> Any:
        return x

    def spec(self, x: Any, *, measure_align: bool = False) -> TensorSpec:
        if x.is_nested:
            raise SignatureError("a nested torch tensor has rows of several lengths; give them one by one, or padded")
        what = f"torch tensor of shape {list(x.shape)}"
        if x.layout is not self._strided:
            raise SignatureError(f"{what} has layout {x.layout}; give x.to_dense()")
        if x.requires_grad:
            raise SignatureError(f"{what} requires grad, and no gradient is recorded here; give x.detach()")
        if self._wrapped(x):
            raise SignatureError(
                f"{what} stands for others under a transform of torch.func, which does not see through to kernels;"
                " call the op outside of it"
            )
        if x.is_quantized:
            raise SignatureError(f"{what} is quantized ({x.dtype}); give x.int_repr() or x.dequantize()")
        if x.is_neg() or x.is_conj():
            raise SignatureError(f"{what} is a lazy negation or conjugate; give x.resolve_neg() or x.resolve_conj()")
        dtype = self._to_table.get(x.dtype)
        if dtype is None:
            dtype = next((d for d in dtypes.TABLE.values() if self._learn(d) is x.dtype), None)
        if dtype is None:
            name = str(x.dtype).removeprefix("torch.")
            if name.removesuffix("_x2") in dtypes.TABLE:
                raise SignatureError(f"{what} has dtype {x.dtype}, which torch packs in its own way; give nbx.Tensor")
            raise SignatureError(f"{what} has dtype {x.dtype}, not in the dtype table ({', '.join(dtypes.TABLE)})")
        self.place(x)
        align = alignment(x.data_ptr()) if measure_align else 16
        return TensorSpec(dtype, tuple(x.shape), x.stride(), align=align)

    def place(self, x: Any) -> str:
        device = x.device
        if device.type == "cpu":
            return "cpu"
        if device.type == "cuda":
            return f"{self._gpu}:{device.index}"
        raise SignatureError(
            f"torch tensor of shape {list(x.shape)} is on {device}; tensors on cpu and on cuda devices can be read"
        )

    def array(self, x: Any) -> np.ndarray:
        dtype = x.dtype
        address = self.address(x)
        if dtype in self._numpy_knows:
            try:
                return x.numpy()
            except TypeError:
                # Another layout under the key of a strided tensor.
                self.spec(x)
                raise
        return array_at(address, self._to_table[dtype].numpy, tuple(x.shape), x.stride(), owner=x)

    def address(self, x: Any) -> int:
        try:
            address = x.data_ptr()
        except RuntimeError:
            # Another layout, or a tensor that stands for others, under the key of a strided one.
            self.spec(x)
            raise
        if address == 0 and x.numel():
            self.spec(x)
            raise SignatureError(f"torch tensor of shape {list(x.shape)} has no memory: its storage is gone")
        return address

    def writable(self, x: Any) -> bool:
        return True

    def empty(self, spec: TensorSpec, place: str, like: Any = None) -> Any:
        dtype = self._from_table.get(spec.dtype) or self._learn(spec.dtype)
        if dtype is None:
            raise SignatureError(f"torch has no dtype {spec.dtype.name}; give out= as an array of another library")
        device = place if self._gpu == "cuda" else place.replace(self._gpu, "cuda")
        if spec.contiguous:
            return self._torch.empty(spec.shape, dtype=dtype, device=device)
        return self._torch.empty_strided(spec.shape, spec.strides, dtype=dtype, device=device)

    def view(self, x: Any, shape: tuple[int, ...], strides: tuple[int, ...], offset: int) -> Any:
        return x.as_strided(shape, strides, x.storage_offset() + offset)

    def streams(self, place: str) -> Callable[[], int | None]:
        if place == "cpu" or self._raw_stream is None:
            return _no_stream
        return partial(self._raw_stream, int(place.partition(":")[2]))


def _no_stream() -> None:
    return None
