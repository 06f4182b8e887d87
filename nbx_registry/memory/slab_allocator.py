"""An allocator over one slab: what first fit prices, done while a program runs."""

from __future__ import annotations

import threading
import weakref
from collections import deque
from typing import Any

from nbx_registry.errors import NbxError, OutOfMemory
from nbx_registry.memory.freelist import FreeList
from nbx_registry.memory.slab import UNIT
from nbx_registry.runtime import Buffer


class SlabBuffer:
    """A part of a slab; free again when it is dropped."""

    __slots__ = ("__weakref__", "address", "device", "nbytes", "slab")

    def __init__(self, slab: Buffer, offset: int, nbytes: int) -> None:
        self.slab = slab
        self.address = slab.address + offset
        self.device = slab.device
        self.nbytes = nbytes


class SlabAllocator:
    """Serves one device from one buffer, by address-ordered first fit in units of 512 bytes.

    A run whose allocations and frees are those of a trace reaches the extent that `first_fit_extent` gives for it:
    a plan's ``slab_bytes`` is what such a slab must hold, as long as the client drops each value after its last use.

    What is dropped is handed out again at once, so everything must be enqueued on one stream, in whose order the new
    use comes after the old; another one is refused.

    Parameters
    ----------
    slab
        Memory of the device, 256-byte aligned or better.
    place
        The device: ``cuda:0``.

    Attributes
    ----------
    slab : Buffer
    place : str
    """

    def __init__(self, slab: Buffer, place: str) -> None:
        self.slab = slab
        self.place = place
        self._free = FreeList()
        self._units = slab.nbytes // UNIT
        self._live = 0
        self._stream: Any = _ANY
        self._lock = threading.Lock()
        self._dropped: deque[tuple[int, int]] = deque()
        """What to free before anything else is done: a buffer may be dropped at any moment, the lock held or not."""

    @property
    def extent(self) -> int:
        """The highest offset reached so far, bytes."""
        return self._free.extent * UNIT

    @property
    def live(self) -> int:
        """Bytes handed out, rounded up to units."""
        with self._lock:
            self._collect()
            return self._live * UNIT

    def allocate(self, place: str, nbytes: int, stream: Any) -> SlabBuffer:
        """Return a part of the slab.

        Raises
        ------
        OutOfMemory
            No free part is large enough.
        NbxError
            Another device, another stream than that of the first allocation, or a size that is no integer from 0 on.
        """
        if not isinstance(nbytes, int) or nbytes < 0:  # pyright: ignore[reportUnnecessaryIsInstance] - a caller may give anything
            raise NbxError(f"{nbytes!r} bytes were asked for; a size is an integer from 0 on")
        if place != self.place:
            raise NbxError(f"this slab is of {self.place}; memory was asked for on {place}")
        handle = getattr(stream, "handle", stream)
        with self._lock:
            if self._stream is _ANY:
                self._stream = handle
        if handle != self._stream:
            raise NbxError(
                f"a slab serves one stream, in whose order it hands memory out again: it began with {self._stream!r}, "
                f"now it is {handle!r}; make a slab for each"
            )
        units = -(-nbytes // UNIT)
        if not units:
            return SlabBuffer(self.slab, 0, 0)
        with self._lock:
            self._collect()
            start = self._free.take(units, self._units)
            if start >= 0:
                self._live += units
        if start < 0:
            live = self.live
            raise OutOfMemory(
                f"the slab of {self.slab.nbytes} bytes on {place} has no room for {nbytes} in a row: {live} are handed "
                "out",
                requested=nbytes,
                live=live,
                pooled=self.slab.nbytes - live,
                free=0,
            )
        buffer = SlabBuffer(self.slab, start * UNIT, nbytes)
        weakref.finalize(buffer, self._dropped.append, (start, units)).atexit = False
        return buffer

    def _collect(self) -> None:
        while self._dropped:
            start, units = self._dropped.popleft()
            self._free.give(start, units)
            self._live -= units


_ANY = object()
