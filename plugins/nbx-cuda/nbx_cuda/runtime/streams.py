"""Streams and events of one device."""

from __future__ import annotations

from typing import Any

from nbx_cuda.runtime.context import Context
from nbx_cuda.runtime.driver import call, translated
from nbx_registry.errors import NbxError
from nbx_registry.streams import refuse_recorded

LEGACY, PER_THREAD = 1, 2
"""The driver's handles of its two default streams; 0 means the legacy one as well."""


def refuse_wait(what: str) -> None:
    """Raise `CaptureError` where calls are recorded for a graph, in which the host waits for nothing."""
    refuse_recorded(what, "wait before, or after a replay", "HOST_READ")


class CudaStream:
    """A queue of work on one device, ``place`` (``cuda:0``). ``handle`` is the driver's, an integer.

    ``core`` is cuda-core's stream, which owns the handle, or borrows it when the stream is somebody else's.
    """

    __slots__ = ("context", "core", "device", "handle", "place")

    def __init__(self, context: Context, core: Any, handle: int | None = None) -> None:
        self.context = context
        self.core = core
        self.device = context.index
        self.place = f"cuda:{context.index}"
        self.handle = int(core.handle) if handle is None else handle

    @classmethod
    def new(cls, context: Context) -> CudaStream:
        """Create a stream that does not synchronise with the driver's default one."""
        from cuda.core import StreamOptions

        with translated(f"creating a stream on cuda:{context.index}"), context.device() as core_device:
            return cls(context, core_device.create_stream(options=StreamOptions(nonblocking=True)))

    @classmethod
    def foreign(cls, context: Context, handle: int) -> CudaStream:
        """Wrap a stream of another library, which keeps it alive; 0 is the driver's default stream."""
        from cuda import core

        if handle in (0, LEGACY):
            return cls(context, core.LEGACY_DEFAULT_STREAM, handle)
        if handle == PER_THREAD:
            return cls(context, core.PER_THREAD_DEFAULT_STREAM, handle)
        return cls(context, core.Stream.from_handle(handle), handle)

    def synchronize(self) -> None:
        """Wait until everything enqueued so far is done. Raises `CudaError` for what went wrong meanwhile."""
        refuse_wait(f"{self!r} is waited for")
        with self.context.current():
            call(f"waiting for a stream of cuda:{self.device}", "cuStreamSynchronize", self.handle)

    def wait(self, event: CudaEvent) -> None:
        """Make later work of this stream wait for ``event`` (which may be of another device)."""
        with self.context.current(), translated(f"making a stream of cuda:{self.device} wait"):
            self.core.wait(event.core)

    def __repr__(self) -> str:
        return f"<CudaStream {self.handle:#x} of {self.place}>"


class CudaEvent:
    """A point in a stream, with its time."""

    __slots__ = ("context", "core", "device")

    def __init__(self, context: Context) -> None:
        from cuda.core import EventOptions

        self.context = context
        self.device = context.index
        with translated(f"creating an event on cuda:{self.device}"), context.device() as core_device:
            self.core = core_device.create_event(EventOptions(timing_enabled=True))

    def record(self, stream: CudaStream) -> None:
        """Mark the point ``stream`` has been filled up to. Raises `NbxError` for a stream of another device."""
        if stream.device != self.device:
            raise NbxError(f"an event of cuda:{self.device} cannot be recorded on a stream of cuda:{stream.device}")
        with self.context.current(), translated(f"recording an event on cuda:{self.device}"):
            stream.core.record(self.core)

    def synchronize(self) -> None:
        """Wait until the event is reached."""
        refuse_wait(f"an event of cuda:{self.device} is waited for")
        with self.context.current(), translated(f"waiting for an event of cuda:{self.device}"):
            self.core.sync()

    def elapsed_s(self, earlier: CudaEvent) -> float:
        """Seconds since ``earlier``, to half a microsecond. Raises `CudaError` unless both were reached."""
        with self.context.current(), translated("asking for the time between two events"):
            return (self.core - earlier.core) * 1e-3
