"""Simulated device memory: an address space of its own, where every access is checked and every byte accounted.

An allocation is a host array that nothing else can reach. Addresses are handed out once and with gaps between them, so
an access out of bounds or after a free is told as what it is, whatever was allocated since.
"""

from __future__ import annotations

import bisect
import threading
from dataclasses import dataclass

import numpy as np

from nbx_registry.errors import NbxError
from nbx_registry.spec import TensorSpec

ALIGNMENT = 256
GAP = 64 * 1024
"""Bytes between two allocations that belong to neither."""
GRANULE = 512
"""Allocations are accounted in multiples of this, as a pool hands them out."""
POISON = 0xCB
"""What fresh memory holds."""

Array = np.ndarray


class MemoryFault(NbxError):
    """An access to simulated memory that real memory would have punished, or not noticed."""

    code = "SIMULATED_FAULT"


class Full(Exception):
    """The device has no room; becomes `OutOfMemory` where the figures are known."""


@dataclass
class Block:
    """One allocation. ``data`` is None once it is freed in stream order."""

    address: int
    nbytes: int
    data: Array | None

    @property
    def rounded(self) -> int:
        return -(-max(self.nbytes, 1) // GRANULE) * GRANULE


class Memory:
    """The memory of one device.

    Parameters
    ----------
    device
        Its index, part of every address.
    capacity
        Bytes.
    """

    def __init__(self, device: int, capacity: int) -> None:
        self.device = device
        self.capacity = capacity
        self.used = 0
        """Bytes allocated and not yet freed in stream order, rounded."""
        self.pooled = 0
        """Bytes freed and kept for reuse."""
        self.allocations = 0
        self.allocated_bytes = 0
        self._next = (device + 1) << 40
        self._blocks: list[Block] = []
        self._starts: list[int] = []
        self._lock = threading.RLock()

    def allocate(self, nbytes: int) -> int:
        """Return the address of fresh, poisoned memory. Raises `Full`."""
        with self._lock:
            block = Block(self._next, nbytes, None)
            if block.rounded <= self.pooled:
                self.pooled -= block.rounded
            elif self.used + self.pooled + block.rounded > self.capacity:
                self.pooled = 0
                if self.used + block.rounded > self.capacity:
                    raise Full
            block.data = np.full(nbytes, POISON, np.uint8)
            self.used += block.rounded
            self.allocations += 1
            self.allocated_bytes += nbytes
            self._blocks.append(block)
            self._starts.append(block.address)
            self._next = -(-(block.address + nbytes + GAP) // ALIGNMENT) * ALIGNMENT
            return block.address

    def trim(self) -> None:
        """Keep nothing for reuse."""
        with self._lock:
            self.pooled = 0

    def free(self, address: int) -> None:
        """Free an allocation, now. Raises `MemoryFault` for anything else, and the second time."""
        with self._lock:
            block = self._block(address)
            if block is None or block.address != address:
                raise MemoryFault(f"{address:#x} is freed, which sim:{self.device} never allocated")
            if block.data is None:
                raise MemoryFault(f"{address:#x} is freed twice")
            block.data = None
            self.used -= block.rounded
            self.pooled += block.rounded

    def view(self, address: int, nbytes: int) -> Array:
        """Return the bytes at ``address``, to read or write. Raises `MemoryFault` unless one allocation has all."""
        with self._lock:
            block = self._block(address)
            if block is None:
                raise MemoryFault(f"access to {address:#x}, which sim:{self.device} never allocated")
            offset = address - block.address
            what = f"{nbytes} bytes at {address:#x}, {offset} into an allocation of {block.nbytes} on sim:{self.device}"
            if block.data is None:
                raise MemoryFault(f"use after free: {what}")
            if offset + nbytes > block.nbytes:
                raise MemoryFault(f"out of bounds by {offset + nbytes - block.nbytes}: {what}")
            return block.data[offset : offset + nbytes]

    def array(self, address: int, spec: TensorSpec) -> Array:
        """Return the tensor whose first element is at ``address``, over the memory itself. Checked like `view`."""
        dtype = spec.dtype.numpy
        if spec.size == 0:
            return np.empty(spec.shape, dtype)
        reach = [(extent - 1) * stride for extent, stride in zip(spec.shape, spec.strides, strict=True)]
        low, high = sum(min(0, step) for step in reach), sum(max(0, step) for step in reach)
        whole = self.view(address + low * dtype.itemsize, (high - low + 1) * dtype.itemsize)
        strides = tuple(stride * dtype.itemsize for stride in spec.strides)
        return np.ndarray(spec.shape, dtype, whole, -low * dtype.itemsize, strides)

    def holds(self, address: int) -> bool:
        """Return whether ``address`` is inside an allocation that is not freed."""
        with self._lock:
            block = self._block(address)
            return block is not None and block.data is not None and address < block.address + max(block.nbytes, 1)

    def _block(self, address: int) -> Block | None:
        # Only what lies in a block or in the gap behind it is said to be near that block.
        position = bisect.bisect_right(self._starts, address) - 1
        if position < 0 or address >= self._blocks[position].address + self._blocks[position].nbytes + GAP:
            return None
        return self._blocks[position]
