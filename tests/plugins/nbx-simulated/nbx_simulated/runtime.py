"""The runtime ``sim``: the `Runtime` protocol over simulated memory and streams."""

from __future__ import annotations

import inspect
import threading
import time
import weakref
from collections.abc import Callable, Sequence
from functools import cache, partial
from typing import Any, Literal

import numpy as np

from nbx_registry import dtypes
from nbx_registry.errors import NbxError
from nbx_registry.launch import Artifact, Launch, Scalar, ScalarOf
from nbx_registry.runtime import LiveDevice, MemoryInfo, Slot
from nbx_simulated.memory import Full, Memory
from nbx_simulated.streams import Capture, SimulatedEvent, SimulatedStream

CAPACITY = 256 << 20

LIVE = (
    LiveDevice(
        runtime="sim",
        index=0,
        name="Simulated Loopback",
        arch="sim_1",
        detected={"memory.bytes": CAPACITY, "multiprocessors": 4},
        versions={"simulation": "1"},
    ),
    LiveDevice(
        runtime="sim",
        index=1,
        name="Simulated Loopback Large",
        arch="sim_1",
        detected={"memory.bytes": 2 * CAPACITY, "multiprocessors": 16},
        versions={"simulation": "1"},
    ),
)


class SimulatedBuffer:
    """Simulated memory; freed in the order of its stream when it is dropped."""

    __slots__ = ("__weakref__", "_device", "address", "device", "nbytes", "stream")

    def __init__(self, device: _Device, address: int, nbytes: int, stream: SimulatedStream) -> None:
        self._device = device
        self.address = address
        self.nbytes = nbytes
        self.device = device.index
        self.stream = stream

    def __del__(self) -> None:
        self._device.release(self.address, self.stream)


class _Device:
    """One device: memory, what is handed out of it, and the stream for who names none."""

    def __init__(self, index: int, capacity: int) -> None:
        self.index = index
        self.memory = Memory(index, capacity)
        self.default_stream = SimulatedStream(index)
        self.live: dict[int, int] = {}
        self.streams: weakref.WeakSet[SimulatedStream] = weakref.WeakSet([self.default_stream])
        self.captures: dict[int, Capture] = {}

    def release(self, address: int, stream: SimulatedStream) -> None:
        """Take a dropped buffer back: freed in stream order, or when the graph that uses it goes."""
        self.live.pop(address, None)
        capture = self.captures.get(stream.handle)
        if capture is not None:
            capture.held.append(_Held(self.memory, address, stream))
        else:
            stream.enqueue(partial(self.memory.free, address))

    def synchronize(self) -> None:
        for stream in list(self.streams):
            if stream.recording is None:
                stream.synchronize()


class _Held:
    """Memory a graph keeps; freed with it."""

    def __init__(self, memory: Memory, address: int, stream: SimulatedStream) -> None:
        weakref.finalize(self, stream.enqueue, partial(memory.free, address)).atexit = False


class SimulatedRuntime:
    """Two devices that are not there.

    Launch functions are Python callables ``f(memory, *arguments)``: addresses as integers, scalars as numbers. They run
    on the stream's own thread, when the stream gets to them. A function with an attribute ``at_once`` that is true
    runs in the caller's thread instead, before `SimulatedProgram.run` returns: as if it had been launched on a stream
    that nobody asked for. One whose attribute ``waits`` is true too waits for its stream first, as what falls back to
    the host has to.

    Parameters
    ----------
    capacity
        Bytes of memory of ``sim:0``; ``sim:1`` has twice as much.
    """

    name = "sim"
    operands: Literal["address"] = "address"

    def __init__(self, capacity: int = CAPACITY) -> None:
        self._devices = [_Device(0, capacity), _Device(1, 2 * capacity)]
        self._handles: weakref.WeakValueDictionary[int, SimulatedStream] = weakref.WeakValueDictionary()
        self._lock = threading.Lock()
        for device in self._devices:
            self._handles[device.default_stream.handle] = device.default_stream

    def devices(self) -> Sequence[LiveDevice]:
        """Return both devices."""
        return LIVE

    def why_absent(self) -> str:
        """Return "": they are always here."""
        return ""

    def memory_of(self, device: int) -> Memory:
        """Return the device's memory itself, as launch functions see it."""
        return self._device(device).memory

    def allocate(self, device: int, nbytes: int, stream: SimulatedStream | int | None = None) -> SimulatedBuffer:
        """Allocate poisoned memory. Raises `OutOfMemory`; `NbxError` on a stream under capture."""
        where, queue = self._device(device), self._stream(device, stream)
        if queue.recording is not None:
            raise NbxError("memory cannot be allocated on a stream under capture; allocate before the capture begins")
        try:
            address = where.memory.allocate(nbytes)
        except Full:
            # What has been dropped is only freed once its stream gets there.
            where.synchronize()
            try:
                address = where.memory.allocate(nbytes)
            except Full as error:
                info = self.memory(device)
                raise info.out_of_memory(
                    nbytes,
                    f"sim:{device} is out of memory: {nbytes} bytes requested, {info.live} handed out, {info.pooled} "
                    f"pooled, {info.free} free",
                ) from error
        where.live[address] = nbytes
        return SimulatedBuffer(where, address, nbytes, queue)

    def memory(self, device: int) -> MemoryInfo:
        """Return what is handed out, pooled and free."""
        where = self._device(device)
        memory = where.memory
        return MemoryInfo(
            live=sum(list(where.live.values())),
            pooled=memory.pooled,
            free=memory.capacity - memory.used - memory.pooled,
            allocations=memory.allocations,
            allocated_bytes=memory.allocated_bytes,
        )

    def trim(self, device: int) -> None:
        """Wait for the device and give it back what is kept for reuse."""
        self.synchronize(device)
        self._device(device).memory.trim()

    def copy_in(
        self, device: int, address: int, source: np.ndarray, stream: SimulatedStream | int | None = None
    ) -> None:
        """Copy a contiguous host array to ``address``, in stream order; ``source`` is read now."""
        data = np.frombuffer(_bytes_of(source).tobytes(), np.uint8)
        if data.size:
            memory = self._device(device).memory
            self._stream(device, stream).enqueue(lambda: np.copyto(memory.view(address, data.size), data))

    def copy_out(
        self, device: int, target: np.ndarray, address: int, stream: SimulatedStream | int | None = None
    ) -> None:
        """Copy from ``address`` into a contiguous host array; wait for the stream, and raise what went wrong on it."""
        into = _bytes_of(target)
        queue = self._stream(device, stream)
        if into.size:
            memory = self._device(device).memory
            queue.enqueue(lambda: np.copyto(into, memory.view(address, into.size)))
        queue.synchronize()

    def copy(
        self, device: int, target: int, source: int, nbytes: int, stream: SimulatedStream | int | None = None
    ) -> None:
        """Copy between addresses of this device or others."""
        to, of = self._memory_at(target, device), self._memory_at(source, device)
        if nbytes:
            self._stream(device, stream).enqueue(
                lambda: np.copyto(to.view(target, nbytes), of.view(source, nbytes).copy())
            )

    def fill(
        self, device: int, address: int, byte: int, nbytes: int, stream: SimulatedStream | int | None = None
    ) -> None:
        """Set every byte to ``byte``."""
        memory = self._device(device).memory
        if nbytes:
            self._stream(device, stream).enqueue(lambda: memory.view(address, nbytes).fill(byte))

    def default_stream(self, device: int) -> SimulatedStream:
        """Return the stream for who names none."""
        return self._device(device).default_stream

    def stream(self, device: int) -> SimulatedStream:
        """Return a new stream, with a worker of its own."""
        where = self._device(device)
        stream = SimulatedStream(device)
        with self._lock:
            where.streams.add(stream)
            self._handles[stream.handle] = stream
        return stream

    def event(self, device: int) -> SimulatedEvent:
        """Return an event that was not recorded yet."""
        self._device(device)
        return SimulatedEvent(device)

    def delay(self, device: int, stream: SimulatedStream | int | None, seconds: float) -> None:
        """Keep the stream busy."""
        self._stream(device, stream).enqueue(partial(time.sleep, seconds))

    def synchronize(self, device: int) -> None:
        """Wait for every stream of the device; raise the first error."""
        self._device(device).synchronize()

    def load(self, device: int, artifact: Artifact) -> Callable[..., object]:
        """Load Python source: the function that it calls ``artifact.entry``. Raises `NbxError` for another kind."""
        self._device(device)
        if artifact.kind != "python":
            raise NbxError(f"{artifact.entry} is {artifact.kind} code for {artifact.arch}; the simulation loads python")
        scope: dict[str, Any] = {}
        exec(compile(artifact.image.decode(), f"<{artifact.entry}>", "exec"), scope)
        function = scope.get(artifact.entry)
        if not callable(function):
            raise NbxError(f"the code of {artifact.toolkit} for {artifact.arch} defines no {artifact.entry}")
        return function

    def program(self, device: int, launches: Sequence[Launch], slots: Sequence[Slot]) -> SimulatedProgram:
        """Pack launches over named slots. Raises `NbxError` for arguments that a function does not take."""
        self._device(device)
        return SimulatedProgram(self, device, launches, slots)

    def capture(self, device: int, stream: SimulatedStream) -> Capture:
        """Record what is enqueued on ``stream`` inside the block."""
        return Capture(
            self._stream(device, stream), self._device(device).captures, lambda other: self._stream(device, other)
        )

    def capturing(self, device: int, stream: SimulatedStream | int | None = None) -> bool:
        """Return whether ``stream`` is under capture."""
        return self._stream(device, stream).recording is not None

    def check_pointer(self, device: int, address: int) -> None:
        """Raise `NbxError` unless ``address`` is memory of that device that was allocated and not freed."""
        if not self._device(device).memory.holds(address):
            raise NbxError(f"address {address:#x} was made by no allocator of sim:{device}")

    def _device(self, index: int) -> _Device:
        if not 0 <= index < len(self._devices):
            raise NbxError(f"there is no sim:{index}: the simulation has sim:0 and sim:1")
        return self._devices[index]

    def _stream(self, device: int, stream: SimulatedStream | int | None) -> SimulatedStream:
        if stream is None:
            return self._device(device).default_stream
        if isinstance(stream, int):
            found = self._handles.get(stream)
            if found is None:
                raise NbxError(f"{stream:#x} is the handle of no stream of the simulation that still exists")
            stream = found
        if stream.device != device:
            raise NbxError(f"{stream!r} is no stream of sim:{device}")
        return stream

    def _memory_at(self, address: int, device: int) -> Memory:
        return next((d.memory for d in self._devices if d.memory.holds(address)), self._device(device).memory)


class SimulatedProgram:
    """Launches over named slots. A run enqueues them; the functions run when the stream gets to them."""

    def __init__(
        self, runtime: SimulatedRuntime, device: int, launches: Sequence[Launch], slots: Sequence[Slot]
    ) -> None:
        self._runtime = runtime
        self._device = device
        self._slots = tuple(slots)
        self._launches = [(launch.function, _resolvers(launch, slots)) for launch in launches if 0 not in launch.grid]

    def run(self, operands: Sequence[Any], stream: SimulatedStream | int | None = None) -> None:
        """Enqueue every launch over ``operands``, in slot order."""
        if len(operands) != len(self._slots):
            names = ", ".join(slot.name for slot in self._slots)
            raise NbxError(f"the program takes {len(self._slots)} operands ({names}), got {len(operands)}")
        queue = self._runtime._stream(self._device, stream)
        memory = self._runtime.memory_of(self._device)
        for function, resolvers in self._launches:
            work = partial(function, memory, *(resolve(operands) for resolve in resolvers))
            if getattr(function, "at_once", False):
                if getattr(function, "waits", False):
                    queue.synchronize()
                work()
            else:
                queue.enqueue(work)


def _resolvers(launch: Launch, slots: Sequence[Slot]) -> list[Callable[[Sequence[Any]], Any]]:
    index = {slot.name: position for position, slot in enumerate(slots)}
    offsets = dict(launch.offsets)
    if not callable(launch.function):
        raise NbxError(f"a launch of the simulation is a Python function, not {launch.function!r}")
    try:
        inspect.signature(launch.function).bind(None, *launch.args)
    except TypeError as error:
        raise NbxError(f"{launch.function!r} does not take {len(launch.args)} arguments: {error}") from error
    found: list[Callable[[Sequence[Any]], Any]] = []
    for argument in launch.args:
        if isinstance(argument, Scalar):
            value = _scalar(argument.value, argument.ctype)
            found.append(lambda _, value=value: value)
            continue
        name = argument.name if isinstance(argument, ScalarOf) else argument
        if name not in index:
            raise NbxError(f"a launch takes {name!r}, which is none of its slots: {', '.join(index) or 'none'}")
        at = index[name]
        if isinstance(argument, ScalarOf):
            found.append(lambda operands, at=at, ctype=argument.ctype: _scalar(operands[at], ctype))
        else:
            offset = offsets.pop(name, 0)
            found.append(lambda operands, at=at, offset=offset: operands[at] + offset)
    if offsets:
        raise NbxError(f"a launch offsets {', '.join(map(repr, offsets))}, which it does not take as an address")
    return found


def _scalar(value: Any, ctype: str) -> Any:
    return np.asarray(value, dtypes.get(ctype).numpy).item()


def _bytes_of(array: np.ndarray) -> np.ndarray:
    if not array.flags.c_contiguous:
        raise NbxError(f"copies take contiguous arrays; this one has shape {array.shape}, strides {array.strides}")
    return array.reshape(-1).view(np.uint8)


@cache
def create() -> SimulatedRuntime:
    """Return the process's one simulation of the default capacity."""
    return SimulatedRuntime()
