"""Guarded buffers: memory with bands around a tensor and gaps in it that no kernel may write, or read for a result.

Each buffer keeps the image of what was last written to it, so that afterwards every byte can be compared.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, Protocol

import numpy as np

from nbx_conformance import layouts
from nbx_registry.runtime import Buffer, Runtime, Stream
from nbx_registry.spec import TensorSpec

Array = np.ndarray[Any, np.dtype[Any]]

BAND: Final = 4096
"""Bytes of guard band before and after: a multiple of every alignment, and wider than a misplaced tile's row."""

PATTERNS: Final = (0xFF, 0x7B)
"""Bytes that fill bands and gaps: NaN (-1) in every dtype, then large finite numbers."""

POISON: Final = (0xFF, 0x6D)
"""Bytes that outputs and workspace start as: NaN, then large numbers other than a band's."""


class Memory(Protocol):
    """Raw bytes that a kernel can be given."""

    address: int

    def write(self, image: Array, stream: Stream | None) -> None:
        """Fill the memory, in stream order."""
        ...

    def read(self, stream: Stream | None) -> Array:
        """Return a copy of the memory, complete on return."""
        ...


class HostMemory:
    """Bytes of this process, 256-byte aligned, for runtimes that take arrays."""

    def __init__(self, nbytes: int) -> None:
        raw = np.empty(nbytes + 256, np.uint8)
        start = -raw.ctypes.data % 256
        self.array: Array = raw[start : start + nbytes]
        self.address = int(self.array.ctypes.data)

    def write(self, image: Array, stream: Stream | None) -> None:
        """Fill the memory, in stream order."""
        del stream
        self.array[:] = image

    def read(self, stream: Stream | None) -> Array:
        """Return a copy of the memory, complete on return."""
        del stream
        return self.array.copy()


class DeviceMemory:
    """Bytes that a runtime allocated."""

    def __init__(self, runtime: Runtime, device: int, nbytes: int) -> None:
        self.runtime = runtime
        self.device = device
        self.buffer: Buffer = runtime.allocate(device, nbytes)
        self.nbytes = nbytes
        self.address = self.buffer.address

    def write(self, image: Array, stream: Stream | None) -> None:
        """Fill the memory, in stream order."""
        self.runtime.copy_in(self.device, self.address, image, stream)

    def read(self, stream: Stream | None) -> Array:
        """Return a copy of the memory, complete on return."""
        target = np.empty(self.nbytes, np.uint8)
        self.runtime.copy_out(self.device, target, self.address, stream)
        return target


Allocator = Callable[[int], Memory]


def allocator(runtime: Runtime, device: int) -> Allocator:
    """Return what allocates memory that the runtime's launches take."""
    if runtime.operands == "array":
        return HostMemory
    return lambda nbytes: DeviceMemory(runtime, device, nbytes)


@dataclass(frozen=True)
class Damage:
    """Bytes of a buffer that changed and must not have."""

    name: str
    count: int
    offset: int
    """Of the first, in bytes from the tensor's first element; negative before it."""
    extent: int
    """Bytes from the tensor's first element to the end of its last."""

    def __str__(self) -> str:
        where = f"{self.offset} bytes from the first element of its {self.extent}"
        return f"{self.count} byte{'s' if self.count != 1 else ''} of {self.name} changed, the first {where}"


class GuardedBuffer:
    """One operand's memory: band, body with the tensor's elements (and the gaps of its layout), band."""

    def __init__(self, name: str, spec: TensorSpec, allocate: Allocator) -> None:
        self.name = name
        self.spec = spec
        itemsize = spec.dtype.itemsize
        _, high = layouts.span(spec)
        # An expanded or reversed view still begins `offset` elements into its buffer; only what it reaches must fit.
        self.start = BAND + spec.offset * itemsize
        self.end = BAND + high * itemsize
        self.nbytes = BAND + -(-max(high, spec.offset) * itemsize // 256) * 256 + BAND
        self.memory = allocate(self.nbytes)
        self.image: Array = np.zeros(self.nbytes, np.uint8)
        self._inside: Array | None = None

    @property
    def address(self) -> int:
        """Of the first element."""
        return self.memory.address + self.start

    @property
    def inside(self) -> Array:
        """True for every byte that belongs to an element."""
        if self._inside is None:
            self._inside = np.zeros(self.nbytes, bool)
            _elements(self._inside, self.start, self.spec, bytewise=True)[...] = True
        return self._inside

    def operand(self, view: TensorSpec | None = None) -> Any:
        """Return what a launch is given: the array over the elements (or a view's), or the address of the first."""
        spec = self.spec if view is None else view
        start = BAND + spec.offset * spec.dtype.itemsize
        return _elements(self.memory.array, start, spec) if isinstance(self.memory, HostMemory) else self.address

    def bytes(self) -> Array | None:
        """Return the bytes from the first element on, where the memory is this process's; else None."""
        if not isinstance(self.memory, HostMemory):
            return None
        return self.memory.array[self.start : self.end]

    def prepare(self, values: Array | None, *, guard: int, poison: int) -> None:
        """Compose the next image: bands and gaps of one byte, elements with values (None: of the poison byte)."""
        self.image.fill(guard)
        if values is None:
            self.image[self.inside] = poison
        elif values.size:
            target = _elements(self.image, self.start, self.spec)
            # Assigning through a stride of 0 would write one element many times.
            kept = tuple(slice(0, 1) if step == 0 else slice(None) for step in self.spec.strides)
            target[(*kept, ...)] = values[kept]

    def upload(self, stream: Stream | None = None) -> None:
        """Write the image to memory."""
        self.memory.write(self.image, stream)

    def download(self, stream: Stream | None = None) -> Contents:
        """Read memory back."""
        return Contents(self, self.memory.read(stream), self.image.copy())


@dataclass(frozen=True)
class Contents:
    """What a buffer held after a run, beside what was written to it before."""

    buffer: GuardedBuffer
    after: Array
    before: Array

    def values(self, view: TensorSpec | None = None) -> Array:
        """Return the elements, dense: the tensor's own, or those of a view over the same memory."""
        spec = self.buffer.spec if view is None else view
        start = BAND + spec.offset * spec.dtype.itemsize
        return np.ascontiguousarray(_elements(self.after, start, spec)).reshape(spec.shape)

    def damage(self, *, elements: bool) -> Damage | None:
        """Return what changed outside the elements or, with ``elements``, anywhere; None where nothing did."""
        changed = self.after != self.before
        if not elements:
            changed &= ~self.buffer.inside
        count = int(np.count_nonzero(changed))
        if not count:
            return None
        buffer = self.buffer
        first = int(np.argmax(changed))
        return Damage(buffer.name, count, first - buffer.start, buffer.end - buffer.start)


def as_bytes(values: Array) -> Array:
    """Return the bytes of each element along a last axis of their own."""
    dense = np.ascontiguousarray(values)
    return dense.view(np.uint8).reshape(*values.shape, values.dtype.itemsize)


def _elements(memory: Array, start: int, spec: TensorSpec, *, bytewise: bool = False) -> Array:
    """Return the elements of a spec over raw memory, or, bytewise, their bytes along a last axis."""
    itemsize = spec.dtype.itemsize
    strides = tuple(step * itemsize for step in spec.strides)
    if spec.size == 0:
        return np.empty(
            (*spec.shape, itemsize) if bytewise else spec.shape, memory.dtype if bytewise else spec.dtype.numpy
        )
    if bytewise:
        return np.ndarray((*spec.shape, itemsize), memory.dtype, memory, start, (*strides, 1))
    return np.ndarray(spec.shape, spec.dtype.numpy, memory, start, strides)
