"""One slab for a whole run: address-ordered first fit with coalescing over a trace of allocations and frees.

A trace is a sequence of ``("alloc", key, bytes)`` and ``("free", key)``. A key is anything hashable; once freed it may
be allocated again. Sizes are rounded up to units of 512 bytes; every figure and offset is in bytes. What is never freed
stays to the end. An allocation of no bytes takes no room, and its offset is 0.

Address-ordered first fit is what is priced because its extent is close to the live peak in practice and because a pool
can do it while a program runs (`nbx_registry.memory.SlabAllocator`), without knowing what comes. See P. R. Wilson et
al., Dynamic Storage Allocation: A Survey and Critical Review, IWMM 1995.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, cast

from nbx_registry.errors import TraceError
from nbx_registry.memory.freelist import FreeList

UNIT = 512
"""Bytes that every size is rounded up to."""

Event = tuple[Literal["alloc"], Hashable, int] | tuple[Literal["free"], Hashable]


@dataclass(frozen=True, slots=True)
class Layout:
    """Where every allocation of a trace lies in one slab. Bytes.

    Two allocations that live at the same time share no byte; each lies within the extent, at a multiple of 512.
    """

    extent: int
    """The highest end reached: what the slab must hold."""
    offsets: tuple[int, ...]
    """One an allocation, in the order of the trace."""


class Interval(NamedTuple):
    """One allocation of a trace: units, and the events between which it lives (``end`` excluded)."""

    units: int
    start: int
    end: int


def first_fit_extent(trace: Iterable[Event]) -> int:
    """Return the highest offset, in bytes, that address-ordered first fit reaches.

    At least the live peak, at most the sum of all sizes.

    Raises
    ------
    TraceError
        For an event that is none, a key allocated while it lives or freed while it does not, a size that is no
        integer or below 0: key and event are named.
    """
    return first_fit_layout(trace).extent


def first_fit_layout(trace: Iterable[Event]) -> Layout:
    """Return where address-ordered first fit puts every allocation. Raises as `first_fit_extent`."""
    free = FreeList()
    live: dict[Hashable, tuple[int, int]] = {}
    offsets: list[int] = []
    for index, event in enumerate(trace):
        key, size = _checked(index, event, live)
        if size is None:
            start, units = live.pop(key)
            if units:
                free.give(start, units)
            continue
        units = -(-size // UNIT)
        start = free.take(units) if units else 0
        live[key] = (start, units)
        offsets.append(start * UNIT)
    return Layout(free.extent * UNIT, tuple(offsets))


def live_peak(trace: Iterable[Event]) -> int:
    """Return the most bytes alive at a time, sizes rounded up to units. Raises as `first_fit_extent`."""
    live: dict[Hashable, int] = {}
    now = most = 0
    for index, event in enumerate(trace):
        key, size = _checked(index, event, live)
        if size is None:
            now -= live.pop(key)
        else:
            live[key] = -(-size // UNIT) * UNIT
            now += live[key]
            most = max(most, now)
    return most


def intervals(trace: Iterable[Event]) -> list[Interval]:
    """Return the allocations of a trace in order, those of no bytes included. Raises as `first_fit_extent`."""
    found: list[Interval] = []
    live: dict[Hashable, int] = {}
    index = -1
    for index, event in enumerate(trace):
        key, size = _checked(index, event, live)
        if size is None:
            position = live.pop(key)
            found[position] = found[position]._replace(end=index)
        else:
            live[key] = len(found)
            found.append(Interval(-(-size // UNIT), index, -1))
    return [one if one.end >= 0 else one._replace(end=index + 1) for one in found]


def _checked(index: int, event: Any, live: Mapping[Hashable, Any]) -> tuple[Hashable, int | None]:
    """Return key and size (None for a free) of an event that may follow."""
    if isinstance(event, (tuple, list)):
        parts = cast("Sequence[Any]", event)
        if len(parts) == 3 and parts[0] == "alloc":
            _, key, size = parts
            if type(size) is not int and not isinstance(size, bool):
                # Integers of other kinds, NumPy's for one.
                size = getattr(size, "__index__", lambda: None)()
            if type(size) is not int or size < 0:
                raise TraceError(
                    f"event {index} allocates {key!r} with {parts[2]!r} bytes; a size is an integer from 0 on"
                )
            if _alive(index, key, live):
                raise TraceError(f"event {index} allocates {key!r}, which is alive; free it, or name it otherwise")
            return key, size
        if len(parts) == 2 and parts[0] == "free":
            key = parts[1]
            if not _alive(index, key, live):
                raise TraceError(f"event {index} frees {key!r}, which is not alive")
            return key, None
    raise TraceError(f'event {index} is {event!r}; write ("alloc", key, bytes) or ("free", key)')


def _alive(index: int, key: Any, live: Mapping[Hashable, Any]) -> bool:
    try:
        return key in live
    except TypeError:
        raise TraceError(f"event {index} names {key!r}, which is not hashable; give it a name that is") from None
