"""The `Runtime` protocol: memory, streams, events, launches and graphs on one kind of device.

A new vendor implements this. Every method takes the device's index on that runtime (``cuda:1`` is index 1); every
address is an integer; every ``stream`` is a `Stream` of the same runtime and device, or the raw handle of one (a stream
that another library made), or None for the default one. Errors of the toolkit are raised
as `NbxError`, allocation failures as `OutOfMemory`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Protocol, runtime_checkable

from nbx_registry.errors import OutOfMemory

if TYPE_CHECKING:
    import numpy as np

    from nbx_registry.launch import Artifact, Launch
    from nbx_registry.spec import TensorSpec


@dataclass(frozen=True, kw_only=True, slots=True)
class LiveDevice:
    """A device that is present."""

    runtime: str
    index: int
    name: str
    """As the driver gives it: ``NVIDIA H200``."""
    arch: str
    """``sm_90``; for the host the machine's architecture."""
    detected: Mapping[str, object] = field(default_factory=dict[str, object])
    """What the driver reports, under the fact keys of device files (``memory.bytes``, ``multiprocessors``, ...)."""
    versions: Mapping[str, str] = field(default_factory=dict[str, str])
    """Versions of driver and toolkit, by name."""

    @property
    def handle(self) -> str:
        """``cpu`` for the host, else ``runtime:index``."""
        return "cpu" if self.runtime == "host" else f"{self.runtime}:{self.index}"


@dataclass(frozen=True, kw_only=True, slots=True)
class MemoryInfo:
    """Bytes. ``live`` is handed out, ``pooled`` kept for reuse, ``free`` what the device reports; None: cannot tell."""

    live: int | None
    pooled: int | None
    free: int | None
    allocations: int = 0
    """Allocations made so far, ever growing: what conformance compares with the declaration."""
    allocated_bytes: int = 0
    """Bytes asked for so far, ever growing."""

    @property
    def available(self) -> int | None:
        """Bytes that can still be handed out: free ones, and those that are kept for just that; None: cannot tell."""
        return None if self.free is None else self.free + (self.pooled or 0)

    def out_of_memory(self, requested: int, message: str) -> OutOfMemory:
        """Return the error of an allocation that did not fit, with these figures."""
        return OutOfMemory(message, requested=requested, live=self.live, pooled=self.pooled, free=self.free)


class Buffer(Protocol):
    """Memory that its runtime allocated; freed in stream order when it is dropped."""

    address: int
    nbytes: int
    device: int


class Stream(Protocol):
    """A queue of work. ``handle`` is the toolkit's own (an integer for CUDA)."""

    handle: Any
    device: int

    def synchronize(self) -> None:
        """Wait until everything enqueued so far is done."""
        ...

    def wait(self, event: Event) -> None:
        """Make later work of this stream wait for ``event``."""
        ...


class Event(Protocol):
    """A point in a stream."""

    def record(self, stream: Stream) -> None:
        """Mark the point that ``stream`` has been filled up to."""
        ...

    def synchronize(self) -> None:
        """Wait until the point is reached."""
        ...

    def elapsed_s(self, earlier: Event) -> float:
        """Seconds between two recorded events, both reached."""
        ...


class Graph(Protocol):
    """A captured sequence of launches."""

    def replay(self, stream: Stream) -> None:
        """Enqueue everything that was captured, on ``stream``."""
        ...


class Slot(NamedTuple):
    """One operand of a program: a parameter, an output, workspace, or (in a composite) another look at one of these."""

    name: str
    spec: TensorSpec
    kind: Literal["input", "output", "workspace", "derived"]


class Program(Protocol):
    """Launches with their arguments packed once. Callable from several threads at a time."""

    def run(self, operands: Sequence[Any], stream: Any) -> None:
        """Enqueue every launch.

        ``operands``, in slot order, are NumPy arrays (``operands == "array"``) or integer addresses, Python scalars
        for scalar slots. ``stream`` is the raw handle of a stream; None is the default one. A program may offer
        ``fixed(operands) -> launch(stream)`` too, which packs operands that stay the same only once.
        """
        ...


@runtime_checkable
class Runtime(Protocol):
    """How one kind of device is driven."""

    name: str
    operands: Literal["array", "address"]
    """Whether launches take NumPy arrays or addresses."""

    def devices(self) -> Sequence[LiveDevice]:
        """The devices present, in index order; empty when there is none. Never raises for a missing driver."""
        ...

    def why_absent(self) -> str:
        """Why `devices` is empty, in one sentence with the way out; empty when there are devices."""
        ...

    def allocate(self, device: int, nbytes: int, stream: Stream | Any = None) -> Buffer:
        """Allocate (256-byte aligned or better). Raises `OutOfMemory` with its figures."""
        ...

    def memory(self, device: int) -> MemoryInfo:
        """Return what is handed out, pooled and free now, and what was allocated so far."""
        ...

    def trim(self, device: int) -> None:
        """Give memory that is kept for reuse back to the device, for other processes; waits for the device."""
        ...

    def copy_in(self, device: int, address: int, source: np.ndarray, stream: Stream | Any = None) -> None:
        """Copy a contiguous host array to ``address``; the source may be reused when this returns."""
        ...

    def copy_out(self, device: int, target: np.ndarray, address: int, stream: Stream | Any = None) -> None:
        """Copy from ``address`` into a contiguous host array; complete when this returns."""
        ...

    def copy(self, device: int, target: int, source: int, nbytes: int, stream: Stream | Any = None) -> None:
        """Copy within the device."""
        ...

    def fill(self, device: int, address: int, byte: int, nbytes: int, stream: Stream | Any = None) -> None:
        """Set bytes to one value."""
        ...

    def default_stream(self, device: int) -> Stream:
        """The stream that work goes to where none is named."""
        ...

    def stream(self, device: int) -> Stream:
        """A new stream that does not synchronise with the default one."""
        ...

    def event(self, device: int) -> Event:
        """A new event, not yet recorded."""
        ...

    def delay(self, device: int, stream: Stream, seconds: float) -> None:
        """Keep ``stream`` busy for about that long: conformance proves with it that a kernel is on its stream."""
        ...

    def synchronize(self, device: int) -> None:
        """Wait until every stream of the device is done."""
        ...

    def load(self, device: int, artifact: Artifact) -> Any:
        """Load compiled code; the result is a `Launch.function` of this runtime."""
        ...

    def program(self, device: int, launches: Sequence[Launch], slots: Sequence[Slot]) -> Program:
        """Pack launches over named slots into something that runs with operands alone."""
        ...

    def capture(self, device: int, stream: Stream) -> AbstractContextManager[Any]:
        """Record what is enqueued on ``stream`` inside the block; the value's ``.graph`` is a `Graph` afterwards."""
        ...

    def capturing(self, device: int, stream: Stream | Any = None) -> bool:
        """Return whether what is enqueued on ``stream`` is being recorded, by `capture` or by another library."""
        ...
