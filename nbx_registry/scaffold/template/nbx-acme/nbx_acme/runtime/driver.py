"""The runtime ``acme``: one device, whose memory is the host's and whose work is done when a call returns.

Where this copies or waits, a driver of real hardware enqueues; the methods and what they promise stay the same. They
are documented in ``nbx_registry.runtime``.
"""

from __future__ import annotations

import ctypes
import threading
import time
import weakref
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from functools import cache
from typing import Any, Literal, NoReturn

import numpy as np

from nbx_acme.runtime.queue import Capture, Event, Program, Stream, enqueue, recording
from nbx_registry.errors import NbxError, OutOfMemory
from nbx_registry.launch import Artifact, Launch
from nbx_registry.runtime import LiveDevice, MemoryInfo, Slot

CAPACITY = 64 << 20
"""Bytes of device memory."""
ALIGNMENT = 256
"""Bytes; what every runtime promises."""

Array = np.ndarray[Any, Any]


class Buffer:
    """Device memory, given back when nothing holds it any more."""

    def __init__(self, nbytes: int, device: int, stream: Stream | Any) -> None:
        raw = np.empty(nbytes + ALIGNMENT, np.uint8)
        self.address = raw.ctypes.data + -raw.ctypes.data % ALIGNMENT
        self.nbytes = nbytes
        self.device = device
        self.stream = stream
        """In whose order it is given back."""
        self._raw = raw


class Driver:
    """Drives the one device there is."""

    name = "acme"
    operands: Literal["array", "address"] = "address"

    def __init__(self) -> None:
        # The garbage collector may drop a buffer anywhere, while this thread holds the lock too.
        self._lock = threading.RLock()
        self._live = 0
        self._allocations = 0
        self._allocated_bytes = 0
        self._default = Stream()

    def devices(self) -> Sequence[LiveDevice]:
        """Return what the driver reports: names as device files match them, facts under their keys."""
        return [
            LiveDevice(
                runtime="acme",
                index=0,
                name="Acme One",
                arch="acme_1",
                detected={"memory.bytes": CAPACITY},
                versions={"driver": "0.1"},
            )
        ]

    def why_absent(self) -> str:
        """Return why there is no device; there always is this one."""
        return ""

    # Memory.

    def allocate(self, device: int, nbytes: int, stream: Stream | Any = None) -> Buffer:
        """Allocate uninitialised bytes. Raises `OutOfMemory` with its figures."""
        _only(device)
        with self._lock:
            if self._live + nbytes > CAPACITY:
                free = CAPACITY - self._live
                raise OutOfMemory(
                    f"acme:{device}: {nbytes} bytes requested, {free} free",
                    requested=nbytes,
                    live=self._live,
                    pooled=0,
                    free=free,
                )
            self._live += nbytes
            self._allocations += 1
            self._allocated_bytes += nbytes
        buffer = Buffer(nbytes, device, stream)
        weakref.finalize(buffer, self._release, nbytes).atexit = False
        return buffer

    def _release(self, nbytes: int) -> None:
        with self._lock:
            self._live -= nbytes

    def memory(self, device: int) -> MemoryInfo:
        """Return the account: what is handed out and free now, and what was allocated so far."""
        _only(device)
        return MemoryInfo(
            live=self._live,
            pooled=0,
            free=CAPACITY - self._live,
            allocations=self._allocations,
            allocated_bytes=self._allocated_bytes,
        )

    def trim(self, device: int) -> None:
        """Give memory that is kept for reuse back to the device. Here none is kept."""
        _only(device)

    def copy_in(self, device: int, address: int, source: Array, stream: Stream | Any = None) -> None:
        """Copy a contiguous host array to ``address``; the source may be reused when this returns."""
        _only(device)
        held = source.copy()
        enqueue(stream, lambda: ctypes.memmove(address, held.ctypes.data, held.nbytes))

    def copy_out(self, device: int, target: Array, address: int, stream: Stream | Any = None) -> None:
        """Copy from ``address`` into a contiguous host array; complete when this returns."""
        _only(device)
        if recording(stream) is not None:
            raise NbxError("a copy to the host waits for it: it cannot be part of a capture")
        ctypes.memmove(target.ctypes.data, address, target.nbytes)

    def copy(self, device: int, target: int, source: int, nbytes: int, stream: Stream | Any = None) -> None:
        """Copy within the device."""
        _only(device)
        enqueue(stream, lambda: ctypes.memmove(target, source, nbytes))

    def fill(self, device: int, address: int, byte: int, nbytes: int, stream: Stream | Any = None) -> None:
        """Set bytes to one value."""
        _only(device)
        enqueue(stream, lambda: ctypes.memset(address, byte, nbytes))

    # Streams and events.

    def default_stream(self, device: int) -> Stream:
        """Return the stream that work goes to where none is named."""
        _only(device)
        return self._default

    def stream(self, device: int) -> Stream:
        """Return a new stream."""
        _only(device)
        return Stream()

    def event(self, device: int) -> Event:
        """Return a new event, not yet recorded."""
        _only(device)
        return Event()

    def delay(self, device: int, stream: Stream, seconds: float) -> None:
        """Keep ``stream`` busy for that long."""
        _only(device)
        enqueue(stream, lambda: time.sleep(seconds))

    def synchronize(self, device: int) -> None:
        """Return: whatever was enqueued is done."""
        _only(device)

    # Launches.

    def load(self, device: int, artifact: Artifact) -> NoReturn:
        """Raise `NbxError`: a kernel here is a Python function. Real hardware loads what its compiler made."""
        _only(device)
        raise NbxError(f"the Acme One loads no {artifact.kind} code; its kernels are Python functions")

    def program(self, device: int, launches: Sequence[Launch], slots: Sequence[Slot]) -> Program:
        """Pack launches over named slots into something that runs with operands alone."""
        _only(device)
        return Program(launches, slots)

    @contextmanager
    def capture(self, device: int, stream: Stream) -> Generator[Capture, None, None]:
        """Record what is enqueued on ``stream`` inside the block, instead of running it."""
        _only(device)
        if stream.recording is not None:
            raise NbxError("the stream is in a capture already")
        capture = Capture()
        stream.recording = []
        try:
            yield capture
            capture.end(stream.recording)
        finally:
            stream.recording = None

    def capturing(self, device: int, stream: Stream | Any = None) -> bool:
        """Return whether ``stream`` is in a capture."""
        _only(device)
        return recording(stream) is not None


def _only(device: int) -> None:
    if device != 0:
        raise NbxError(f"there is one device, acme:0; there is no acme:{device}")


@cache
def create() -> Driver:
    """Return the process's one driver: memory is accounted in one place."""
    return Driver()
