"""Guarded buffers: memory with bands around a tensor and gaps in it that no kernel may write, or read for a result.

A buffer keeps the image of what was last written to it, so that afterwards every byte can be compared; of large
tensors none is kept: `nbx_conformance.trials.tiled_buffers`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from nbx_conformance.cases import layouts
from nbx_conformance.cases.values import Array
from nbx_conformance.problems.tiled import Tiled
from nbx_registry import bands
from nbx_registry.bands import BAND, POISON, Damage
from nbx_registry.runtime import Buffer, Runtime, Stream
from nbx_registry.spec import TensorSpec

if TYPE_CHECKING:
    from nbx_conformance.trials.tiled_buffers import Scan


class Memory(Protocol):
    """Raw bytes that a kernel can be given."""

    address: int

    def write(self, image: Array, stream: Stream | None, start: int = 0) -> None:
        """Write bytes from byte ``start`` on, in stream order."""
        ...

    def fill(self, byte: int, start: int, nbytes: int, stream: Stream | None) -> None:
        """Set bytes to one value, in stream order."""
        ...

    def read(self, stream: Stream | None) -> Array:
        """Return a copy of the memory, complete on return."""
        ...

    def repeat(self, start: int, period: int, nbytes: int, stream: Stream | None) -> None:
        """Write the first ``period`` of ``nbytes`` bytes, from byte ``start`` on, again and again behind them."""
        ...

    def look(self, stream: Stream | None, start: int, nbytes: int, into: Array | None = None) -> Array:
        """Return bytes from byte ``start`` on, complete on return and right until the memory changes.

        They may lie in ``into``, as many bytes or more, which spares new memory for each look.
        """
        ...


class HostMemory:
    """Bytes of this process, 256-byte aligned, for runtimes that take arrays."""

    def __init__(self, nbytes: int) -> None:
        raw = np.empty(nbytes + 256, np.uint8)
        start = -raw.ctypes.data % 256
        self.array: Array = raw[start : start + nbytes]
        self.address = int(self.array.ctypes.data)

    def write(self, image: Array, stream: Stream | None, start: int = 0) -> None:
        """Write bytes from byte ``start`` on."""
        del stream
        self.array[start : start + image.size] = image

    def fill(self, byte: int, start: int, nbytes: int, stream: Stream | None) -> None:
        """Set bytes to one value."""
        del stream
        self.array[start : start + nbytes].fill(byte)

    def read(self, stream: Stream | None) -> Array:
        """Return a copy of the memory."""
        del stream
        return self.array.copy()

    def repeat(self, start: int, period: int, nbytes: int, stream: Stream | None) -> None:
        """Write the first ``period`` of ``nbytes`` bytes, from byte ``start`` on, again and again behind them."""
        del stream
        whole = self.array[start : start + nbytes]
        for target, count in _doublings(period, nbytes):
            whole[target : target + count] = whole[:count]

    def look(self, stream: Stream | None, start: int, nbytes: int, into: Array | None = None) -> Array:
        """Return bytes from byte ``start`` on, as they lie there."""
        del stream, into
        return self.array[start : start + nbytes]


class DeviceMemory:
    """Bytes that a runtime allocated."""

    def __init__(self, runtime: Runtime, device: int, nbytes: int) -> None:
        self.runtime = runtime
        self.device = device
        self.buffer: Buffer = runtime.allocate(device, nbytes)
        self.nbytes = nbytes
        self.address = self.buffer.address

    def write(self, image: Array, stream: Stream | None, start: int = 0) -> None:
        """Write bytes from byte ``start`` on, in stream order."""
        self.runtime.copy_in(self.device, self.address + start, image, stream)

    def fill(self, byte: int, start: int, nbytes: int, stream: Stream | None) -> None:
        """Set bytes to one value, in stream order."""
        self.runtime.fill(self.device, self.address + start, byte, nbytes, stream)

    def read(self, stream: Stream | None) -> Array:
        """Return a copy of the memory, complete on return."""
        return self.look(stream, 0, self.nbytes)

    def repeat(self, start: int, period: int, nbytes: int, stream: Stream | None) -> None:
        """Write the first ``period`` of ``nbytes`` bytes, from byte ``start`` on, again and again behind them."""
        first = self.address + start
        for target, count in _doublings(period, nbytes):
            self.runtime.copy(self.device, first + target, first, count, stream)

    def look(self, stream: Stream | None, start: int, nbytes: int, into: Array | None = None) -> Array:
        """Return a copy of bytes from byte ``start`` on, complete on return."""
        target = np.empty(nbytes, np.uint8) if into is None else into[:nbytes]
        self.runtime.copy_out(self.device, target, self.address + start, stream)
        return target


def _doublings(period: int, nbytes: int) -> Iterator[tuple[int, int]]:
    """Yield where a copy of how many of the first bytes goes, until all repeat the first ``period``."""
    done = period
    while done < nbytes:
        count = min(done, nbytes - done)
        yield done, count
        done += count


Allocator = Callable[[int], Memory]


def allocator(runtime: Runtime, device: int) -> Allocator:
    """Return what allocates memory that the runtime's launches take."""
    if runtime.operands == "array":
        return HostMemory
    return lambda nbytes: DeviceMemory(runtime, device, nbytes)


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
        self.poison = POISON[0]
        """The byte that an output last started as."""
        self.image: Array = np.zeros(0, np.uint8)
        """What was last composed."""

    @property
    def address(self) -> int:
        """Of the first element."""
        return self.memory.address + self.start

    @cached_property
    def inside(self) -> Array | slice:
        """The bytes that belong to an element: all from the first to the last, or true for each that does."""
        if self.spec.contiguous:
            return slice(self.start, self.end)
        found = np.zeros(self.nbytes, bool)
        elements_of(found, self.start, self.spec, bytewise=True)[...] = True
        return found

    def operand(self, view: TensorSpec | None = None) -> Any:
        """Return what a launch is given: the array over the elements (or a view's), or the address of the first."""
        spec = self.spec if view is None else view
        start = BAND + spec.offset * spec.dtype.itemsize
        return elements_of(self.memory.array, start, spec) if isinstance(self.memory, HostMemory) else self.address

    def bytes(self) -> Array | None:
        """Return the bytes from the first element on, where the memory is this process's; else None."""
        if not isinstance(self.memory, HostMemory):
            return None
        return self.memory.array[self.start : self.end]

    def prepare(self, values: Array | Tiled | None, *, guard: int, poison: int) -> None:
        """Compose the next image: bands and gaps of one byte, elements with values (None: of the poison byte)."""
        assert not isinstance(values, Tiled)
        self.poison = poison
        # Contents of earlier runs keep the image that was theirs.
        self.image = np.full(self.nbytes, guard, np.uint8)
        if values is None:
            self.image[self.inside] = poison
        elif values.size:
            target = elements_of(self.image, self.start, self.spec)
            # Assigning through a stride of 0 would write one element many times.
            kept = tuple(slice(0, 1) if step == 0 else slice(None) for step in self.spec.strides)
            target[(*kept, ...)] = values[kept]

    def upload(self, stream: Stream | None = None) -> None:
        """Write the image to memory."""
        self.memory.write(self.image, stream)

    def download(self, stream: Stream | None = None) -> Contents | Scan:
        """Read memory back."""
        return Contents(self, self.memory.read(stream), self.image, self.poison)


@dataclass(frozen=True)
class Contents:
    """What a buffer held after a run, beside what was written to it before."""

    buffer: GuardedBuffer
    after: Array
    before: Array
    poison: int

    def values(self, view: TensorSpec | None = None) -> Array:
        """Return the elements, dense: the tensor's own, or those of a view over the same memory."""
        spec = self.buffer.spec if view is None else view
        start = BAND + spec.offset * spec.dtype.itemsize
        return np.ascontiguousarray(elements_of(self.after, start, spec)).reshape(spec.shape)

    def damage(self, *, elements: bool) -> Damage | None:
        """Return what changed outside the elements or, with ``elements``, anywhere; None where nothing did."""
        buffer = self.buffer
        kept = None if elements else buffer.inside
        return bands.damage(buffer.name, self.after, self.before, buffer.start, buffer.end, kept)

    def poisoned(self) -> Array:
        """Return which elements hold the poison that an output starts as."""
        values = self.values()
        itemsize = values.dtype.itemsize
        if itemsize <= 8:
            return values.view(f"u{itemsize}") == int.from_bytes(bytes([self.poison]) * itemsize)
        return (as_bytes(values) == self.poison).all(-1)

    def unwritten(self, kept: Array) -> str:
        """Return in words what was never written: ``kept`` elements held poison after runs on different ones."""
        where = [int(i) for i in np.unravel_index(int(np.argmax(kept)), kept.shape)]
        count = f"{int(kept.sum())} of {kept.size} elements"
        return f"{count} of {self.buffer.name} were never written, first {where}"


def as_bytes(values: Array) -> Array:
    """Return the bytes of each element along a last axis of their own."""
    dense = np.ascontiguousarray(values)
    return dense.view(np.uint8).reshape(*values.shape, values.dtype.itemsize)


def elements_of(memory: Array, start: int, spec: TensorSpec, *, bytewise: bool = False) -> Array:
    """Return the elements of a spec over raw memory, or, bytewise, their bytes along a last axis.

    An array of no elements lies in the memory too: a write beside it lands in a band, not in what is not ours.
    """
    itemsize = spec.dtype.itemsize
    strides = tuple(step * itemsize for step in spec.strides)
    if bytewise:
        return np.ndarray((*spec.shape, itemsize), memory.dtype, memory, start, (*strides, 1))
    return np.ndarray(spec.shape, spec.dtype.numpy, memory, start, strides)
