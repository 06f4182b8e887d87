"""The runtime ``host``: NumPy arrays, and streams whose work is done by the time it is enqueued."""

from __future__ import annotations

import ctypes
import os
import platform
import threading
import time
import weakref
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any, Literal, NoReturn

import numpy as np

from nbx_registry.errors import NbxError
from nbx_registry.host.program import HostProgram
from nbx_registry.interop.memory import address_of
from nbx_registry.launch import Artifact, Launch
from nbx_registry.runtime import Event, LiveDevice, MemoryInfo, Slot, Stream

ALIGNMENT = 256
"""Bytes; what every runtime promises."""


@cache
def host_runtime() -> HostRuntime:
    """Return the process's one host runtime: memory is accounted in one place."""
    return HostRuntime()


class HostBuffer:
    """Host memory. ``array`` are its bytes."""

    __slots__ = ("__weakref__", "address", "array", "device", "nbytes")

    def __init__(self, raw: np.ndarray, nbytes: int) -> None:
        start = -address_of(raw) % ALIGNMENT
        self.array = raw[start : start + nbytes]
        # Not asked of the slice: one without elements says where ``raw`` starts.
        self.address = address_of(raw) + start
        self.nbytes = nbytes
        self.device = 0


class HostStream:
    """A queue that is always empty: what is enqueued has run when the call returns.

    ``handle`` names the stream to `HostProgram.run`; the default stream's is None.
    """

    __slots__ = ("device", "handle", "place", "recording")

    def __init__(self, *, default: bool = False) -> None:
        self.device = 0
        self.place = "cpu"
        self.handle: HostStream | None = None if default else self
        self.recording: list[Callable[[], object]] | None = None

    def synchronize(self) -> None:
        """Return: there is nothing to wait for."""

    def wait(self, event: Event) -> None:
        """Return: what ``event`` stands for is over. Raises `NbxError` for an event that was not recorded."""
        event.synchronize()

    def __repr__(self) -> str:
        return "<default stream of cpu>" if self.handle is None else f"<stream of cpu at {id(self):#x}>"


class HostEvent:
    """A point in time."""

    __slots__ = ("_at",)

    def __init__(self) -> None:
        self._at: float | None = None

    def record(self, stream: Stream) -> None:
        """Take the time. In a capture nothing runs, so that there is no time to take."""
        if getattr(stream, "recording", None) is not None:
            raise NbxError("an event of the host cannot be recorded in a capture; record around the graph's replay")
        self._at = time.perf_counter()

    def synchronize(self) -> None:
        """Return at once. Raises `NbxError` if the event was never recorded."""
        self._time()

    def elapsed_s(self, earlier: Event) -> float:
        """Seconds since ``earlier``. Raises `NbxError` for an event that was never recorded, or is not of the host."""
        if not isinstance(earlier, HostEvent):
            raise NbxError(f"{earlier!r} is no event of the host runtime")
        return self._time() - earlier._time()

    def _time(self) -> float:
        if self._at is None:
            raise NbxError("the event was never recorded; call event.record(stream) first")
        return self._at


class HostGraph:
    """Launches recorded in a capture, with the arrays they were given."""

    __slots__ = ("_calls",)

    def __init__(self, calls: Sequence[Callable[[], object]]) -> None:
        self._calls = tuple(calls)

    def replay(self, stream: Stream) -> None:
        """Run every launch again, in order, on what the arrays hold now."""
        recording = getattr(stream, "recording", None)
        if recording is not None:
            recording.extend(self._calls)
            return
        for call in self._calls:
            call()


class HostCapture:
    """The value of a capture block; ``graph`` is there once the block has ended."""

    __slots__ = ("_graph",)

    def __init__(self) -> None:
        self._graph: HostGraph | None = None

    def end(self, calls: Sequence[Callable[[], object]]) -> None:
        """Make the graph."""
        self._graph = HostGraph(calls)

    @property
    def graph(self) -> HostGraph:
        """The recorded launches. Raises `NbxError` inside the block, and where the block raised."""
        if self._graph is None:
            raise NbxError("the capture has not ended, or ended in an error: there is no graph")
        return self._graph


class HostRuntime:
    """The machine this process runs on, as one device."""

    name = "host"
    operands: Literal["array", "address"] = "array"

    def __init__(self) -> None:
        # The garbage collector may drop a buffer anywhere, while this thread holds the lock too.
        self._lock = threading.RLock()
        self._live = 0
        self._allocations = 0
        self._allocated_bytes = 0
        self._default = HostStream(default=True)

    def devices(self) -> Sequence[LiveDevice]:
        """The host itself."""
        return (_live_device(),)

    def why_absent(self) -> str:
        """Return "": the host is always there."""
        return ""

    def allocate(self, device: int, nbytes: int, stream: Stream | None = None) -> HostBuffer:
        """Allocate uninitialised bytes at a multiple of 256. Raises `OutOfMemory`."""
        _only(device)
        try:
            raw = np.empty(nbytes + ALIGNMENT, np.uint8)
        except (MemoryError, ValueError) as error:
            memory = self.memory(device)
            raise memory.out_of_memory(
                nbytes, f"cannot allocate {nbytes} bytes on cpu: {memory.live} live, {memory.free} free"
            ) from error
        buffer = HostBuffer(raw, nbytes)
        with self._lock:
            self._live += nbytes
            self._allocations += 1
            self._allocated_bytes += nbytes
        # The memory lives as long as any array over it; the account is the buffer's, which tensors hold.
        weakref.finalize(buffer, self._release, nbytes).atexit = False
        return buffer

    def _release(self, nbytes: int) -> None:
        with self._lock:
            self._live -= nbytes

    def memory(self, device: int) -> MemoryInfo:
        """Account of what this runtime allocated; freed memory goes back to the system, none is pooled."""
        _only(device)
        return MemoryInfo(
            live=self._live,
            pooled=0,
            free=_free_bytes(),
            allocations=self._allocations,
            allocated_bytes=self._allocated_bytes,
        )

    def trim(self, device: int) -> None:
        """Do nothing: no memory is kept."""
        _only(device)

    def copy_in(self, device: int, address: int, source: np.ndarray, stream: Stream | None = None) -> None:
        """Copy a contiguous array to ``address``."""
        _only(device)
        _contiguous(source)
        self._enqueue(stream, ctypes.memmove, address, address_of(source), source.nbytes, keep=source)

    def copy_out(self, device: int, target: np.ndarray, address: int, stream: Stream | None = None) -> None:
        """Copy from ``address`` into a contiguous array."""
        _only(device)
        _contiguous(target)
        self._enqueue(stream, ctypes.memmove, address_of(target), address, target.nbytes, keep=target)

    def copy(self, device: int, target: int, source: int, nbytes: int, stream: Stream | None = None) -> None:
        """Copy bytes; the two ranges may overlap."""
        _only(device)
        self._enqueue(stream, ctypes.memmove, target, source, nbytes)

    def fill(self, device: int, address: int, byte: int, nbytes: int, stream: Stream | None = None) -> None:
        """Set every byte to ``byte``."""
        _only(device)
        self._enqueue(stream, ctypes.memset, address, byte, nbytes)

    def default_stream(self, device: int) -> HostStream:
        """The stream whose handle is None."""
        _only(device)
        return self._default

    def stream(self, device: int) -> HostStream:
        """A stream of its own, which can be captured."""
        _only(device)
        return HostStream()

    def event(self, device: int) -> HostEvent:
        """An event, not yet recorded."""
        _only(device)
        return HostEvent()

    def delay(self, device: int, stream: Stream, seconds: float) -> None:
        """Sleep: on a stream that runs nothing behind, being busy is the caller's being busy."""
        _only(device)
        self._enqueue(stream, time.sleep, seconds)

    def synchronize(self, device: int) -> None:
        """Return: there is nothing to wait for."""
        _only(device)

    def load(self, device: int, artifact: Artifact) -> NoReturn:
        """Raise `NbxError`: kernels of the host are Python functions, bound as they are."""
        raise NbxError(f"the host runtime loads no compiled code; artifact {artifact.entry!r} is for {artifact.arch}")

    def program(self, device: int, launches: Sequence[Launch], slots: Sequence[Slot]) -> HostProgram:
        """Pack launches into one call over NumPy arrays in slot order."""
        _only(device)
        return HostProgram(launches, slots)

    @contextmanager
    def capture(self, device: int, stream: Stream) -> Generator[HostCapture, None, None]:
        """Record what is enqueued on ``stream``, which must be one made by `stream`; nothing of it runs yet.

        The graph holds on to the arrays of its launches. What other streams do in the block runs as ever.
        """
        _only(device)
        if not isinstance(stream, HostStream) or stream.handle is None:
            raise NbxError(f"{stream!r} cannot be captured; capture a stream of its own: runtime.stream(0)")
        if stream.recording is not None:
            raise NbxError(f"{stream!r} is already in a capture")
        capture = HostCapture()
        stream.recording = []
        try:
            yield capture
            capture.end(stream.recording)
        finally:
            stream.recording = None

    def capturing(self, device: int, stream: HostStream | None = None) -> bool:
        """Return whether ``stream`` is in a capture."""
        _only(device)
        return getattr(stream, "recording", None) is not None

    def _enqueue(
        self, stream: Stream | None, function: Callable[..., object], *arguments: Any, keep: object = None
    ) -> None:
        recording = getattr(stream, "recording", None)
        if recording is None:
            function(*arguments)
        else:
            # ``keep`` rides along in the recorded call, so that its memory is there at replay.
            recording.append(lambda _keep=keep: function(*arguments))


def _only(device: int) -> None:
    if device != 0:
        raise NbxError(f"the host is one device, index 0; there is no index {device}")


def _contiguous(array: np.ndarray) -> None:
    if not array.flags.c_contiguous:
        raise NbxError(f"copies take contiguous arrays; this one has shape {array.shape}, strides {array.strides}")


@cache
def _live_device() -> LiveDevice:
    detected: dict[str, object] = {}
    total = _total_bytes()
    if total is not None:
        detected["memory.bytes"] = total
    return LiveDevice(
        runtime="host",
        index=0,
        name=_processor_name(),
        arch=platform.machine(),
        detected=detected,
        versions={"numpy": np.__version__, "python": platform.python_version()},
    )


def _processor_name() -> str:
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.is_file():
        for line in cpuinfo.read_text("utf-8", "replace").splitlines():
            key, colon, value = line.partition(":")
            if colon and key.strip() in ("model name", "Model", "cpu model"):
                return value.strip()
    # Not Linux, or an architecture whose cpuinfo has no name for it.
    return platform.processor() or platform.machine()


def _total_bytes() -> int | None:
    return _pages("SC_PHYS_PAGES")


def _free_bytes() -> int | None:
    return _pages("SC_AVPHYS_PAGES")


def _pages(name: str) -> int | None:
    names = getattr(os, "sysconf_names", {})
    if name not in names or "SC_PAGE_SIZE" not in names:
        return None
    return os.sysconf(name) * os.sysconf("SC_PAGE_SIZE")
