"""The runtime of the Acme One: one device, its memory in reach of the host, every call done when it returns."""

from __future__ import annotations

import ctypes
import time
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from itertools import count
from types import SimpleNamespace
from typing import Any

import numpy as np

from nbx_registry.errors import NbxError, OutOfMemory
from nbx_registry.launch import Artifact, Launch, Scalar, ScalarOf
from nbx_registry.runtime import LiveDevice, MemoryInfo, Slot

CAPACITY = 64 << 20
ALIGNMENT = 256

_handles = count(1)


class _Buffer:
    def __init__(self, runtime: Runtime, nbytes: int) -> None:
        raw = np.empty(nbytes + ALIGNMENT, np.uint8)
        start = -raw.ctypes.data % ALIGNMENT
        self.address = raw.ctypes.data + start
        self.nbytes = nbytes
        self.device = 0
        self._raw = raw
        weakref.finalize(self, runtime._release, nbytes).atexit = False


class _Stream:
    place = "acme:0"
    device = 0

    def __init__(self) -> None:
        self.handle = next(_handles)

    def synchronize(self) -> None:
        pass

    def wait(self, event: _Event) -> None:
        event.synchronize()


class _Event:
    at = 0.0

    def record(self, stream: _Stream) -> None:
        self.at = time.perf_counter()

    def synchronize(self) -> None:
        pass

    def elapsed_s(self, earlier: _Event) -> float:
        return self.at - earlier.at


class _Program:
    def __init__(self, runtime: Runtime, launches: Sequence[Launch], slots: Sequence[Slot]) -> None:
        self._runtime = runtime
        names = [slot.name for slot in slots]
        self._launches = [(launch, _plan(launch, names)) for launch in launches]

    def run(self, operands: Sequence[Any], stream: int | None = None) -> None:
        for launch, plan in self._launches:
            arguments = [operands[index] + offset if index is not None else offset for index, offset in plan]
            self._runtime._do(stream, lambda f=launch.function, a=arguments: f(*a))


def _plan(launch: Launch, names: list[str]) -> list[tuple[int | None, Any]]:
    offsets = dict(launch.offsets)
    found: list[tuple[int | None, Any]] = []
    for argument in launch.args:
        if isinstance(argument, Scalar):
            found.append((None, argument.value))
        elif isinstance(argument, ScalarOf):
            found.append((names.index(argument.name), 0))
        else:
            found.append((names.index(argument), offsets.get(argument, 0)))
    return found


class Runtime:
    """What `nbx_registry.runtime.Runtime` asks for, and nothing of the core's beneath."""

    name = "acme"
    operands = "address"

    def __init__(self) -> None:
        self._live = 0
        self._allocations = 0
        self._allocated_bytes = 0
        self._default = _Stream()
        self._recording: dict[int, list[Callable[[], object]]] = {}

    def devices(self) -> Sequence[LiveDevice]:
        return [
            LiveDevice(
                runtime="acme",
                index=0,
                name="Acme One",
                arch="acme_1",
                detected={"memory.bytes": CAPACITY},
                versions={"driver": "1.4"},
            )
        ]

    def why_absent(self) -> str:
        return ""

    def allocate(self, device: int, nbytes: int, stream: object = None) -> _Buffer:
        if self._live + nbytes > CAPACITY:
            raise OutOfMemory(
                f"acme:{device}: {nbytes} bytes requested, {CAPACITY - self._live} free",
                requested=nbytes,
                live=self._live,
                pooled=0,
                free=CAPACITY - self._live,
            )
        self._live += nbytes
        self._allocations += 1
        self._allocated_bytes += nbytes
        return _Buffer(self, nbytes)

    def _release(self, nbytes: int) -> None:
        self._live -= nbytes

    def memory(self, device: int) -> MemoryInfo:
        return MemoryInfo(
            live=self._live,
            pooled=0,
            free=CAPACITY - self._live,
            allocations=self._allocations,
            allocated_bytes=self._allocated_bytes,
        )

    def copy_in(self, device: int, address: int, source: np.ndarray, stream: Any = None) -> None:
        held = source.copy()
        self._do(stream, lambda: ctypes.memmove(address, held.ctypes.data, held.nbytes))

    def copy_out(self, device: int, target: np.ndarray, address: int, stream: Any = None) -> None:
        ctypes.memmove(target.ctypes.data, address, target.nbytes)

    def copy(self, device: int, target: int, source: int, nbytes: int, stream: Any = None) -> None:
        self._do(stream, lambda: ctypes.memmove(target, source, nbytes))

    def fill(self, device: int, address: int, byte: int, nbytes: int, stream: Any = None) -> None:
        self._do(stream, lambda: ctypes.memset(address, byte, nbytes))

    def default_stream(self, device: int) -> _Stream:
        return self._default

    def stream(self, device: int) -> _Stream:
        return _Stream()

    def event(self, device: int) -> _Event:
        return _Event()

    def delay(self, device: int, stream: Any, seconds: float) -> None:
        self._do(stream, lambda: time.sleep(seconds))

    def synchronize(self, device: int) -> None:
        pass

    def load(self, device: int, artifact: Artifact) -> Any:
        raise NbxError(f"the Acme One loads no {artifact.kind} code; its kernels are Python functions")

    def program(self, device: int, launches: Sequence[Launch], slots: Sequence[Slot]) -> _Program:
        return _Program(self, launches, slots)

    @contextmanager
    def capture(self, device: int, stream: _Stream) -> Iterator[SimpleNamespace]:
        capture = SimpleNamespace(graph=None)
        work = self._recording[stream.handle] = []
        try:
            yield capture
        finally:
            del self._recording[stream.handle]
        capture.graph = SimpleNamespace(replay=lambda stream: [one() for one in work])

    def _do(self, stream: Any, work: Callable[[], object]) -> None:
        recording = self._recording.get(getattr(stream, "handle", stream))
        if recording is None:
            work()
        else:
            recording.append(work)


@cache
def create() -> Runtime:
    """Return the process's one runtime."""
    return Runtime()
