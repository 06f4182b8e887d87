"""Streams that really run behind: a worker thread each, closures in a queue, events between them."""

from __future__ import annotations

import itertools
import queue
import threading
import time
import weakref
from collections.abc import Callable
from dataclasses import dataclass, field

from nbx_registry.errors import NbxError
from nbx_registry.streams import refuse_recorded
from nbx_simulated.memory import MemoryFault

PATIENCE_S = 60.0
"""How long the host waits for a stream before it is called stuck."""

Work = Callable[[], object]

_handles = itertools.count(0x51000001)


@dataclass
class _Queue:
    """What a worker shares with its stream, without keeping the stream alive."""

    work: queue.SimpleQueue[Work | None] = field(default_factory=queue.SimpleQueue)
    errors: list[Exception] = field(default_factory=list)
    recording: list[Work] | None = None


class SimulatedStream:
    """A queue of work. ``handle`` is an integer, as a driver's would be.

    What fails while it runs is raised where the host next waits, once.
    """

    def __init__(self, device: int) -> None:
        self.device = device
        self.place = f"sim:{device}"
        self.handle = next(_handles)
        self._queue = _Queue()
        threading.Thread(target=_run, args=(self._queue,), name=f"{self.place} {self.handle:#x}", daemon=True).start()
        weakref.finalize(self, self._queue.work.put, None).atexit = False

    @property
    def recording(self) -> list[Work] | None:
        """What a capture has recorded so far; None outside of one."""
        return self._queue.recording

    @recording.setter
    def recording(self, value: list[Work] | None) -> None:
        self._queue.recording = value

    def enqueue(self, work: Work) -> None:
        """Append work, or record it where the stream is under capture."""
        if self._queue.recording is not None:
            self._queue.recording.append(work)
        else:
            self._queue.work.put(work)

    def synchronize(self) -> None:
        """Wait for everything enqueued so far; raise the first error since the last time."""
        refuse_recorded(f"{self!r} is waited for", "wait before, or after a replay", "HOST_READ")
        if self._queue.recording is not None:
            raise NbxError(f"{self!r} is under capture: nothing on it can be waited for")
        reached = threading.Event()
        self._queue.work.put(reached.set)
        if not reached.wait(PATIENCE_S):
            raise NbxError(f"{self!r} is stuck: it did not get anywhere in {PATIENCE_S:.0f} s")
        errors, self._queue.errors[:] = list(self._queue.errors), []
        if errors:
            raise errors[0]

    def wait(self, event: SimulatedEvent) -> None:
        """Make later work wait for the point that ``event`` was last recorded at; for none, nothing."""
        point = event.point
        if point is not None:
            self.enqueue(point.wait)

    def __repr__(self) -> str:
        return f"<SimulatedStream {self.handle:#x} of {self.place}>"


def _run(shared: _Queue) -> None:
    while (work := shared.work.get()) is not None:
        try:
            work()
        except NbxError as error:
            shared.errors.append(error)
        except Exception as error:  # noqa: BLE001 (a kernel may raise anything; the host is told where it waits)
            fault = MemoryFault(f"a kernel raised {type(error).__name__}: {error}")
            fault.__cause__ = error
            shared.errors.append(fault)
        # The closure may hold the last reference to a buffer, whose release belongs to now, not to the next turn.
        work = None


class _Point:
    def __init__(self) -> None:
        self._reached = threading.Event()
        self.at: float | None = None

    def reach(self) -> None:
        self.at = time.perf_counter()
        self._reached.set()

    def wait(self) -> None:
        if not self._reached.wait(PATIENCE_S):
            raise NbxError(f"an event was not reached in {PATIENCE_S:.0f} s")


class SimulatedEvent:
    """A point in a stream. Recording again makes it another point; who waits already waits for the one before."""

    def __init__(self, device: int) -> None:
        self.device = device
        self.point: _Point | None = None

    def record(self, stream: SimulatedStream) -> None:
        """Mark the point ``stream`` has been filled up to."""
        self.point = _Point()
        stream.enqueue(self.point.reach)

    def synchronize(self) -> None:
        """Wait until the event is reached."""
        if self.point is not None:
            self.point.wait()

    def elapsed_s(self, earlier: SimulatedEvent) -> float:
        """Seconds since ``earlier``. Raises `NbxError` unless both were reached."""
        ends = [None if event.point is None else event.point.at for event in (earlier, self)]
        if ends[0] is None or ends[1] is None:
            raise NbxError("both events must have been recorded and reached")
        return ends[1] - ends[0]


Find = Callable[["SimulatedStream | int | None"], SimulatedStream]
"""Returns a stream itself, the one of a raw handle, or the default one for None."""


class SimulatedGraph:
    """What a capture recorded."""

    def __init__(self, work: list[Work], held: list[object], find: Find) -> None:
        self._work = work
        self._held = held
        self._find = find

    def replay(self, stream: SimulatedStream | int | None = None) -> None:
        """Enqueue the whole sequence on ``stream``, or on the one of a raw handle."""
        stream = self._find(stream)
        for work in self._work:
            stream.enqueue(work)


class Capture:
    """Records what is enqueued on ``stream`` inside the block; ``graph`` is set when it ends without an error.

    Parameters
    ----------
    stream
        The stream.
    captures
        The captures of its device in progress, by the stream's handle.
    find
        Returns the stream of a raw handle.
    """

    def __init__(self, stream: SimulatedStream, captures: dict[int, Capture], find: Find) -> None:
        self.graph: SimulatedGraph | None = None
        self.held: list[object] = []
        """What was dropped meanwhile: the graph uses it."""
        self._stream = stream
        self._captures = captures
        self._find = find

    def __enter__(self) -> Capture:
        if self._stream.recording is not None:
            raise NbxError(f"{self._stream!r} is already under capture")
        self._stream.recording = []
        self._captures[self._stream.handle] = self
        return self

    def __exit__(self, kind: type[BaseException] | None, error: object, trace: object) -> None:
        del self._captures[self._stream.handle]
        work, self._stream.recording = self._stream.recording or [], None
        held, self.held = self.held, []
        if kind is None:
            self.graph = SimulatedGraph(work, held, self._find)
