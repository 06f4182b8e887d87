"""Contents: what memory that calls read and write holds while a graph of them is proven: kept, changed, put back."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from nbx_registry import interop
from nbx_registry.runtime import Runtime
from nbx_registry.spec import TensorSpec

Bytes = np.ndarray[Any, np.dtype[np.uint8]]


@dataclass(frozen=True, slots=True)
class Area:
    """The memory of an array, from its first element to its last."""

    start: int
    nbytes: int
    spec: TensorSpec
    packed: bool
    """Whether elements of less than a byte share bytes."""
    writable: bool

    @property
    def end(self) -> int:
        """One past the last byte."""
        return self.start + self.nbytes

    def elements(self, data: Bytes) -> np.ndarray[Any, Any]:
        """Return the elements in a copy of the area's bytes; where they are packed, the bytes."""
        if self.packed:
            return data
        steps = [stride * self.spec.dtype.itemsize for stride in self.spec.strides]
        return np.lib.stride_tricks.as_strided(data.view(self.spec.dtype.numpy), self.spec.shape, steps)


def area_of(array: Any) -> Area | None:
    """Return the memory of an array of any library; None for what is none, or has no elements, and for scalars."""
    adapter = None if array is None else interop.adapter(array)
    if adapter is None:
        return None
    spec, address = adapter.spec(array), adapter.address(array)
    # NumPy's own scalars are values: they have no address.
    if not spec.size or not address:
        return None
    packed = spec.dtype.packed and adapter.name == "nbx"
    nbytes = spec.dtype.nbytes(spec.extent) if packed else spec.extent * spec.dtype.itemsize
    return Area(address, nbytes, spec, packed, adapter.writable(array))


class Contents:
    """What is written during a run, as it was before; and what it is filled with to prove that it is written again.

    Memory of the caller's is kept before it is written for the first time. Memory that was made for the run holds
    nothing before it. What is written before anything reads it may begin a run with anything: with what no run leaves.
    """

    def __init__(self, runtime: Runtime, index: int) -> None:
        self._runtime = runtime
        self._index = index
        self._known = _Ranges()
        """Kept or made."""
        self._touched = _Ranges()
        """Read, or written in place."""
        self._kept: list[tuple[int, Bytes]] = []
        self._made: list[tuple[int, int]] = []
        self._free: list[Area] = []
        """Written as a whole before anything else."""

    def read(self, area: Area) -> None:
        """Note that a call is about to read an area, or to write some of it in place."""
        self._touched.add(area.start, area.end)

    def write(self, area: Area, *, fresh: bool, whole: bool) -> None:
        """Note that a call is about to write an area, ``whole`` or in part, ``fresh`` where it was made for that."""
        missing = self._known.missing(area.start, area.end)
        if whole and missing == [(area.start, area.end)] and self._touched.missing(area.start, area.end) == missing:
            self._free.append(area)
        for start, end in missing:
            if fresh:
                self._made.append((start, end - start))
            else:
                self._runtime.synchronize(self._index)
                self._kept.append((start, self._load(start, end - start)))
        self._known.add(area.start, area.end)

    def writes(self, area: Area) -> bool:
        """Return whether some of an area is written."""
        return self._known.missing(area.start, area.end) != [(area.start, area.end)]

    def touches(self, area: Area) -> bool:
        """Return whether some of an area is read or written."""
        return self.writes(area) or self._touched.missing(area.start, area.end) != [(area.start, area.end)]

    @property
    def lasting(self) -> bool:
        """Whether something is written that was read before: what a run leaves is what the next one begins with."""
        return any(self._touched.missing(start, start + data.size) != [(start, start + data.size)]
                   for start, data in self._kept)  # fmt: skip

    def restore(self) -> None:
        """Put back what the caller's memory held."""
        self._runtime.synchronize(self._index)
        for start, data in self._kept:
            self._store(start, data)
        self._runtime.synchronize(self._index)

    def reset(self) -> None:
        """As `restore`, and fill what a run writes first with other contents than it has now."""
        self._runtime.synchronize(self._index)
        others = [(area, _other(area, self._load(area.start, area.nbytes))) for area in self._free]
        self.restore()
        for area, data in others:
            self._store(area.start, data)
        self._runtime.synchronize(self._index)

    def snapshot(self) -> list[tuple[int, Bytes]]:
        """Return what everything written holds now, by address."""
        self._runtime.synchronize(self._index)
        pieces = [(start, data.size) for start, data in self._kept] + self._made
        return [(start, self._load(start, nbytes)) for start, nbytes in pieces]

    def put(self, snapshot: Sequence[tuple[int, Bytes]]) -> None:
        """Let everything made for the run hold what it held then."""
        made = {start for start, _ in self._made}
        for start, data in snapshot:
            if start in made:
                self._store(start, data)
        self._runtime.synchronize(self._index)

    def change(self, areas: Sequence[Area]) -> list[tuple[int, Bytes]]:
        """Give floating arrays other elements of their own kind; return what they held, for `undo`."""
        self._runtime.synchronize(self._index)
        held = [(area.start, self._load(area.start, area.nbytes)) for area in areas]
        for area, (start, data) in zip(areas, held, strict=True):
            self._store(start, _changed(area, data))
        self._runtime.synchronize(self._index)
        return held

    def undo(self, held: Sequence[tuple[int, Bytes]]) -> None:
        """Put back what `change` returned."""
        self._runtime.synchronize(self._index)
        for start, data in reversed(held):
            self._store(start, data)
        self._runtime.synchronize(self._index)

    def load(self, area: Area) -> np.ndarray[Any, Any]:
        """Return a copy of an area's elements."""
        self._runtime.synchronize(self._index)
        return area.elements(self._load(area.start, area.nbytes))

    def _load(self, start: int, nbytes: int) -> Bytes:
        data = np.empty(nbytes, np.uint8)
        self._runtime.copy_out(self._index, data, start)
        return data

    def _store(self, start: int, data: Bytes) -> None:
        self._runtime.copy_in(self._index, start, data)


def _other(area: Area, data: Bytes) -> Bytes:
    """Return contents that differ in every element: NaN, or the least number, 0 or 1, which as an index is harmless."""
    found = data.copy()
    elements = area.elements(found)
    dtype = area.spec.dtype
    if area.packed:
        elements[...] = np.where(elements == 0, 0x11, 0)
    elif dtype.kind == "bool":
        elements[...] = ~elements
    elif dtype.integral:
        elements[...] = np.where(elements == 0, 1, 0).astype(elements.dtype)
    else:
        elements[...] = np.frombuffer(b"\xff" * dtype.itemsize, elements.dtype)[0]
    return found


def _changed(area: Area, data: Bytes) -> Bytes:
    """Return the same elements in reverse; where that is the same, halved; where they are zeros, ones."""
    found = data.copy()
    elements, before = area.elements(found), area.elements(data)
    elements[...] = np.flip(before)
    if np.array_equal(found, data) and not area.packed:
        wide = np.complex128 if area.spec.dtype.kind == "complex" else np.float64
        elements[...] = (before.astype(wide) * 0.5).astype(elements.dtype)
    if np.array_equal(found, data):
        elements[...] = 0x11 if area.packed else 1
    return found


class _Ranges:
    """Disjoint ranges of addresses."""

    def __init__(self) -> None:
        self._starts: list[int] = []
        self._ends: list[int] = []

    def add(self, start: int, end: int) -> None:
        low, high = self._meeting(start, end)
        if low < high:
            start, end = min(start, self._starts[low]), max(end, self._ends[high - 1])
        self._starts[low:high], self._ends[low:high] = [start], [end]

    def missing(self, start: int, end: int) -> list[tuple[int, int]]:
        """Return what of a range is in none."""
        found: list[tuple[int, int]] = []
        low, high = self._meeting(start, end)
        for place in range(low, high):
            if start < self._starts[place]:
                found.append((start, self._starts[place]))
            start = max(start, self._ends[place])
        if start < end:
            found.append((start, end))
        return found

    def _meeting(self, start: int, end: int) -> tuple[int, int]:
        low = bisect_left(self._ends, start + 1)
        return low, max(low, bisect_left(self._starts, end))
