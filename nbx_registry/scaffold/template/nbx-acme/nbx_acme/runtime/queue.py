"""What is enqueued: streams, events, captures, and programs, which are launches with their arguments packed."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

from nbx_registry.errors import NbxError
from nbx_registry.launch import Launch, Scalar, ScalarOf
from nbx_registry.runtime import Slot

Work = Callable[[], object]


class Stream:
    """A queue that is empty whenever someone looks: what is enqueued runs at once, or is recorded in a capture.

    Its handle is what other libraries would have of it, and what `Program.run` is given.
    """

    place = "acme:0"
    device = 0

    def __init__(self) -> None:
        self.recording: list[Work] | None = None

    @property
    def handle(self) -> Stream:
        """The raw stream; real hardware has an integer here."""
        return self

    def synchronize(self) -> None:
        """Return: everything enqueued so far is done."""

    def wait(self, event: Event) -> None:
        """Make later work wait for ``event``, which is over."""
        event.synchronize()


def recording(stream: Stream | Any) -> list[Work] | None:
    """Return what a capture of the stream has recorded so far; None where there is no capture."""
    return stream.recording if isinstance(stream, Stream) else None


def enqueue(stream: Stream | Any, work: Work) -> None:
    """Do the work in the order of the stream."""
    captured = recording(stream)
    if captured is None:
        work()
    else:
        captured.append(work)


class Event:
    """A point in a stream."""

    def __init__(self) -> None:
        self._at: float | None = None

    def record(self, stream: Stream) -> None:
        """Mark the point that ``stream`` has been filled up to."""
        if recording(stream) is not None:
            raise NbxError("nothing runs in a capture, so there is no time to take; record around the replay")
        self._at = time.perf_counter()

    def synchronize(self) -> None:
        """Return: the point is reached."""

    def elapsed_s(self, earlier: Event) -> float:
        """Return the seconds between two recorded events."""
        if self._at is None or earlier._at is None:
            raise NbxError("the event was never recorded; call event.record(stream) first")
        return self._at - earlier._at


class Graph:
    """What a capture recorded."""

    def __init__(self, work: Sequence[Work]) -> None:
        self._work = tuple(work)

    def replay(self, stream: Stream) -> None:
        """Enqueue everything again, on what the memory holds now."""
        for work in self._work:
            enqueue(stream, work)


class Capture:
    """The value of a capture block; ``graph`` is there when the block has ended."""

    graph: Graph

    def end(self, work: Sequence[Work]) -> None:
        """Make the graph."""
        self.graph = Graph(work)


class Program:
    """Launches whose arguments were looked up once: running one takes operands in the order of the slots."""

    def __init__(self, launches: Sequence[Launch], slots: Sequence[Slot]) -> None:
        positions = {slot.name: position for position, slot in enumerate(slots)}
        self._launches = [(launch.function, _arguments(launch, positions)) for launch in launches]

    def run(self, operands: Sequence[Any], stream: Stream | Any = None) -> None:
        """Enqueue every launch. Operands are addresses, and Python scalars where a slot holds one."""
        for function, arguments in self._launches:
            values = [_value(operands, position, value) for position, value in arguments]
            enqueue(stream, lambda function=function, values=values: function(*values))


def _arguments(launch: Launch, positions: dict[str, int]) -> list[tuple[int | None, Any]]:
    """Return, for each argument, the operand it comes from and what is added to it; or a value of the launch's own."""
    offsets = dict(launch.offsets)
    found: list[tuple[int | None, Any]] = []
    for argument in launch.args:
        if isinstance(argument, Scalar):
            found.append((None, argument.value))
        elif isinstance(argument, ScalarOf):
            found.append((positions[argument.name], 0))
        else:
            found.append((positions[argument], offsets.get(argument, 0)))
    return found


def _value(operands: Sequence[Any], position: int | None, value: Any) -> Any:
    if position is None:
        return value
    return operands[position] + value if value else operands[position]
