"""The bench: sets of operands in a device's memory that programs are run on, read back from, and timed over in turn."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from math import ceil
from typing import Any, Final, NamedTuple

import numpy as np

from nbx_registry.bands import PATTERNS, Damage, damage
from nbx_registry.device import Device
from nbx_registry.interop.memory import array_at
from nbx_registry.interop.packed import elements_per_byte, pack, unpack
from nbx_registry.price import CACHES
from nbx_registry.program import BoundProgram
from nbx_registry.runtime import Buffer, LiveDevice, Runtime
from nbx_registry.spec import TensorSpec
from nbx_registry.tuning.memory import POISON, Banded
from nbx_registry.tuning.problem import Array, Problem

SPAN: Final = 5
"""How many times the caches the sets hold that a cold time is taken on."""

MOST_SETS: Final = 256
"""Of operands: smaller ones are a matter of launching."""

MOST_BYTES: Final = 8 << 30
"""Of all sets together."""

_PIECE: Final = 1 << 26
"""Bytes of an operand that are looked at together."""

WINDOW_S: Final = 2e-3
"""Seconds of work that one time is taken of."""

MOST_LAUNCHES: Final = 256
"""In one window: what a queue holds without blocking its caller."""

GAP: Final = PATTERNS[0]
"""The byte that fills the gaps of an operand's layout."""

_MOST_DELAY_S: Final = 0.1

Run = Callable[[int], None]
"""Enqueues a program on a set of operands."""


class Results(NamedTuple):
    """What became of memory in a run."""

    values: Mapping[str, Array]
    """Outputs and what was written in place, by name."""
    astray: Damage | None
    """What was written that is neither output nor workspace."""


class Bench:
    """Operands of one signature on one live device, for all candidates alike.

    Attributes
    ----------
    sets : int
        Sets of operands that take turns.
    cold : bool
        Whether these are together beyond the caches, as far as the device's file says.
    """

    def __init__(self, problem: Problem, runtime: Runtime, live: LiveDevice, device: Device) -> None:
        self.problem = problem
        self.runtime = runtime
        self.live = live
        self._stream = runtime.default_stream(live.index)
        self._mutable = {param.name for param in problem.signature.op.tensors if param.mutable}
        self._outputs = {output.name for output in problem.signature.op.outputs}
        self._slots = problem.signature.slots()
        self.sets, self.cold = self._sets(device)
        self._guarded = self._allocate_guarded()
        self._buffers: list[Mapping[str, Buffer]] = [self._guarded, *(self._allocate() for _ in range(1, self.sets))]
        self._turn = 0
        self._enqueue_s = 0.0

    def _sets(self, device: Device) -> tuple[int, bool]:
        """Return how many sets of operands to use, and whether a run finds none of its own in a cache."""
        each = sum(_nbytes(spec) for _, spec in self._slots if not spec.weak)
        available = self.runtime.memory(self.live.index).available
        room = MOST_BYTES if available is None else min(MOST_BYTES, available // 2)
        most = min(max(room // max(each, 1), 1), MOST_SETS)
        caches = sum(int(device.fact(key)) for key in CACHES if key in device.facts)
        least = self.problem.signature.op.cost(self.problem.signature).least_bytes
        needed = ceil(SPAN * caches / least) if caches and least else most + 1
        cold = needed <= most
        return max(needed if cold else 1, min(self.problem.count, most)), cold

    # Memory.

    def _allocate_guarded(self) -> dict[str, Banded]:
        """Return the set that candidates are checked on."""
        return {
            name: Banded(self.runtime, self.live.index, name, _nbytes(spec), self._stream)
            for name, spec in self._slots
            if not spec.weak
        }

    def _allocate(self) -> dict[str, Buffer]:
        return {
            name: self.runtime.allocate(self.live.index, max(_nbytes(spec), 1), self._stream)
            for name, spec in self._slots
            if not spec.weak
        }

    def upload(self, number: int, place: int = 0) -> None:
        """Write the values of an input to a set."""
        for name, value in self._values(number).items():
            if name in self._buffers[place]:
                self._write(self._buffers[place][name], dict(self._slots)[name], value)

    def fill(self) -> None:
        """Give every set one of the inputs, in turn."""
        numbers = min(self.problem.count, self.sets)
        for place in range(self.sets):
            if place < numbers:
                self.upload(place, place)
                continue
            source = self._buffers[place % numbers]
            for name, buffer in self._buffers[place].items():
                if name not in self._outputs and source[name].nbytes:
                    self.runtime.copy(
                        self.live.index, buffer.address, source[name].address, source[name].nbytes, self._stream
                    )
        self.runtime.synchronize(self.live.index)

    def operands(self, bound: BoundProgram, place: int, workspace: Sequence[Buffer]) -> list[Any]:
        """Return what a program is given to run on a set."""
        array = self.runtime.operands == "array"
        scalars = self._values(0)
        found: list[Any] = []
        for name, spec in self._slots:
            if spec.weak:
                found.append(scalars[name])
                continue
            buffer = self._buffers[place][name]
            address = buffer.address + spec.dtype.nbytes(_start(spec))
            if array:
                found.append(array_at(address, spec.dtype.numpy, spec.shape, spec.strides, owner=buffer))
            else:
                found.append(address)
        return bound.operands(found, workspace)

    def _values(self, number: int) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for param, value in zip(self.problem.signature.op.tensors, self.problem.inputs(number), strict=True):
            if isinstance(value, list):
                found.update((f"{param.name}.{i}", item) for i, item in enumerate(value))  # pyright: ignore[reportUnknownArgumentType, reportUnknownVariableType]
            elif value is not None:
                found[param.name] = value
        return found

    def _write(self, buffer: Buffer, spec: TensorSpec, value: Array) -> None:
        if spec.size:
            self.runtime.copy_in(self.live.index, buffer.address, self._image(spec, value), self._stream)

    def _image(self, spec: TensorSpec, value: Array) -> Array:
        """Return the bytes of a tensor's memory, gaps of its layout as a band is."""
        packs = self._packs(spec)
        span = np.empty(_span(spec), spec.dtype.numpy)
        if not spec.contiguous or spec.offset:
            span.view(np.uint8).fill(0 if packs else GAP)
        # Assigning through a stride of 0 would write one element many times.
        kept = tuple(slice(0, 1) if step == 0 else slice(None) for step in spec.strides)
        _elements(span, spec)[(*kept, ...)] = value[kept]
        return pack(span, spec.dtype) if packs else span.view(np.uint8)

    def _bytes(self, buffer: Buffer, spec: TensorSpec) -> Array:
        image = np.empty(_nbytes(spec) if self._packs(spec) else _span(spec) * spec.dtype.itemsize, np.uint8)
        if image.size:
            self.runtime.copy_out(self.live.index, image, buffer.address, self._stream)
        return image

    def _values_in(self, image: Array, spec: TensorSpec) -> Array:
        span = unpack(image, spec.dtype, _span(spec)) if self._packs(spec) else image.view(spec.dtype.numpy)
        return np.array(_elements(span, spec), order="C")

    def _packs(self, spec: TensorSpec) -> bool:
        return self.runtime.operands != "array" and elements_per_byte(spec.dtype) > 1

    # Running.

    def results(self, bound: BoundProgram, number: int) -> Results:
        """Run a program on an input, in the first set, and return what became of its memory.

        Outputs and workspace start as a byte that no right result is made of, between bands of another. Whether what
        may not be written still holds its values is looked at on the first input alone: reading it takes long.
        """
        assert bound.program is not None
        index, poison, pattern = self.live.index, POISON[number % len(POISON)], PATTERNS[number % len(PATTERNS)]
        self.upload(number)
        # What `BoundProgram.allocate_workspace` would allocate, and bands.
        array = self.runtime.operands == "array"
        workspace = [
            Banded(self.runtime, index, f"workspace {name}", _workspace_nbytes(spec, array), self._stream)
            for name, spec, _ in bound.workspace
        ]
        specs = dict(self._slots)
        for buffer in (*(self._guarded[name] for name in self._outputs if not specs[name].weak), *workspace):
            if buffer.nbytes:
                self.runtime.fill(index, buffer.address, poison, buffer.nbytes, self._stream)
        for buffer in (*self._guarded.values(), *workspace):
            buffer.guard(pattern)
        self.runtime.synchronize(index)
        bound.program.run(self.operands(bound, 0, workspace), self._stream.handle)
        self.runtime.synchronize(index)
        astray = next(filter(None, (buffer.astray() for buffer in (*self._guarded.values(), *workspace))), None)
        values: dict[str, Array] = {}
        for name, spec in self.problem.results.items():
            image = self._bytes(self._guarded[name], spec)
            values[name] = self._values_in(image, spec)
            astray = astray or self._in_gaps(name, image, poison if name in self._outputs else GAP)
        return Results(values, astray or (None if number else self._in_inputs()))

    def _in_gaps(self, name: str, image: Array, before: int) -> Damage | None:
        """Return what was written in the gaps of the layout of what may be written."""
        spec = dict(self._slots)[name]
        if (spec.contiguous and not spec.offset) or self._packs(spec):
            return None
        inside = np.zeros(_span(spec), [("bytes", np.bool_, (spec.dtype.itemsize,))])
        _elements(inside, spec)["bytes"] = True
        first = _start(spec) * spec.dtype.itemsize
        return damage(name, image, before, first, image.size, inside.view(np.bool_))

    def _in_inputs(self) -> Damage | None:
        """Return what of the first input was written that may only be read."""
        values = self._values(0)
        for name, spec in self._slots:
            if name not in values or spec.weak or name.partition(".")[0] in self._mutable or not spec.size:
                continue
            image, buffer = self._image(spec, values[name]), self._guarded[name]
            first = _start(spec) * spec.dtype.itemsize
            for start in range(0, image.size, _PIECE):
                before = image[start : start + _PIECE]
                after = np.empty_like(before)
                self.runtime.copy_out(self.live.index, after, buffer.address + start, self._stream)
                found = damage(name, after, before, first - start, image.size - start)
                if found is not None:
                    return found
        return None

    def runner(self, bound: BoundProgram) -> Run:
        """Return what enqueues a program on a set."""
        assert bound.program is not None
        workspace = bound.allocate_workspace(self._stream)
        handle, fixed = self._stream.handle, getattr(bound.program, "fixed", None)
        given = [self.operands(bound, place, workspace) for place in range(self.sets)]
        if callable(fixed):
            launches: list[Any] = [fixed(operands) for operands in given]
            return lambda place: launches[place](handle)
        run = bound.program.run
        return lambda place: run(given[place], handle)

    # Timing.

    def launches(self, run: Run) -> int:
        """Return how many launches fill a window."""
        self._elapsed(run, [0])
        seconds = self._elapsed(run, [0, 0])
        return min(max(int(WINDOW_S / max(seconds, 1e-9)), 1), MOST_LAUNCHES)

    def seconds(self, run: Run, count: int, *, warm: bool) -> float:
        """Return seconds of one run on the average of a window.

        Cold, every run has the set that has not been used for longest; warm, all of a window have the same.
        """
        if warm:
            places = [self._turn % self.sets] * count
            self._turn += 1
            self._elapsed(run, places[:1])
        else:
            places = [(self._turn + step) % self.sets for step in range(count)]
            self._turn += count
        return self._elapsed(run, places)

    def _elapsed(self, run: Run, places: Sequence[int]) -> float:
        runtime, index, stream = self.runtime, self.live.index, self._stream
        began, ended = runtime.event(index), runtime.event(index)
        if runtime.operands == "address":
            # Behind a busy stream launches wait for each other, and not for who enqueues them.
            runtime.delay(index, stream, min(2 * self._enqueue_s * (len(places) + 2), _MOST_DELAY_S))
        began.record(stream)
        before = time.perf_counter()
        for place in places:
            run(place)
        enqueued = time.perf_counter() - before
        ended.record(stream)
        runtime.synchronize(index)
        self._enqueue_s = enqueued / len(places)
        return ended.elapsed_s(began) / len(places)


def _nbytes(spec: TensorSpec) -> int:
    """Return the bytes of memory that a tensor with its offset and gaps lies in; one element a byte at the least."""
    return max(spec.dtype.nbytes(_span(spec)), _span(spec) * spec.dtype.itemsize if spec.dtype.packed else 0)


def _workspace_nbytes(spec: TensorSpec, array: bool) -> int:
    # An array holds one element of less than a byte in each.
    return spec.size * spec.dtype.itemsize if array else spec.nbytes


def _elements(span: Array, spec: TensorSpec) -> Array:
    """Return a tensor's elements in the memory that it lies in."""
    strides = tuple(step * span.itemsize for step in spec.strides)
    return np.ndarray(spec.shape, span.dtype, span, _start(spec) * span.itemsize, strides)


def _start(spec: TensorSpec) -> int:
    """Return the elements of its memory before a tensor's first one."""
    back = sum((extent - 1) * step for extent, step in zip(spec.shape, spec.strides, strict=True) if step < 0)
    return spec.offset - (back if spec.size else 0)


def _span(spec: TensorSpec) -> int:
    """Return the elements of the memory that a tensor lies in."""
    if not spec.size:
        return spec.offset
    ahead = sum((extent - 1) * step for extent, step in zip(spec.shape, spec.strides, strict=True) if step > 0)
    return _start(spec) + ahead + 1


def machine(live: LiveDevice) -> Mapping[str, Any]:
    """Return what is known of the machine a time was taken on, as plain data."""
    return {"handle": live.handle, "name": live.name, "arch": live.arch, "versions": dict(live.versions)}
