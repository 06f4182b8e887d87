"""The layout with the least extent found within a time budget, for a trace that is known as a whole."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import count

from nbx_registry.errors import NbxError
from nbx_registry.memory.slab import UNIT, Event, Interval, Layout, first_fit_layout, intervals, live_peak

_GLANCE = 1 << 15
"""Pairs of allocations, and allocations, looked at between two looks at the clock."""


class _Late(Exception):
    """The budget is spent."""


def best_layout(trace: Iterable[Event], *, seconds: float = 0.5) -> Layout:
    """Return the layout of least extent that is found within a time budget; never a larger one than first fit's.

    Orders of placement are tried one after the other, each allocation at the lowest offset that is free for the whole
    of its life: by size, by length of life, by both, then the best order so far with allocations that reach the top
    moved forward, as drawn from a generator that is always seeded alike. The search ends where the live peak is
    reached, below which nothing goes. What is tried is a matter of the trace alone; the budget only decides how much of
    it, so that more time never finds a larger extent, and only layouts of a search that reached the peak are sure to be
    found again.

    Parameters
    ----------
    seconds
        From when first fit is done. Placing n allocations once costs about the sum of what lives beside each.

    Raises
    ------
    TraceError
        As `nbx_registry.memory.first_fit_extent`.
    """
    if not isinstance(seconds, (int, float)) or not seconds >= 0:  # pyright: ignore[reportUnnecessaryIsInstance] - a caller may give anything
        raise NbxError(f"seconds={seconds!r}: a budget is a number from 0 on")
    events = list(trace)
    best = first_fit_layout(events)
    least = live_peak(events)
    deadline = time.perf_counter() + seconds
    try:
        search = _Search(intervals(events), deadline)
        for offsets in search.layouts():
            extent = search.extent(offsets) * UNIT
            if extent < best.extent:
                best = Layout(extent, tuple(offset * UNIT for offset in offsets))
            if best.extent == least:
                break
    except _Late:
        pass
    return best


class _Search:
    """Placements of a set of intervals, one order after the other."""

    def __init__(self, items: Sequence[Interval], deadline: float) -> None:
        self._items = items
        self._deadline = deadline
        self._beside: list[list[int]] = [[] for _ in items]
        """The allocations that share some time with each."""
        live: list[int] = []
        self._work = _GLANCE
        for index, item in enumerate(items):
            self._look(len(live))
            live = [other for other in live if items[other].end > item.start]
            if item.units:
                self._beside[index] = list(live)
                for other in live:
                    self._beside[other].append(index)
                live.append(index)

    def extent(self, offsets: Sequence[int]) -> int:
        """Return the highest end."""
        return max((o + item.units for o, item in zip(offsets, self._items, strict=True)), default=0)

    def layouts(self) -> Iterator[list[int]]:
        """Yield offsets without end, in units. Raises `_Late` when the time is up."""
        items = self._items
        everything = range(len(items))
        ranks: list[Callable[[int], tuple[int, ...]]] = [
            lambda n: (-items[n].units, n),
            lambda n: (items[n].start - items[n].end, -items[n].units, n),
            lambda n: ((items[n].start - items[n].end) * items[n].units, n),
        ]
        found: list[tuple[int, list[int], list[int]]] = []
        for rank in ranks:
            order = sorted(everything, key=rank)
            offsets = self._place(order)
            found.append((self.extent(offsets), order, offsets))
            yield offsets
        extent, order, offsets = min(found, key=lambda one: one[0])
        # Not for secrets: the same orders are to be tried every time.
        draw = random.Random(0)
        for _ in count():
            self._look(len(order))
            changed = self._moved(order, offsets, extent, draw)
            tried = self._place(changed)
            reached = self.extent(tried)
            # Orders as good as the best are walked through: the way to a better one often leads over them.
            if reached <= extent:
                extent, order, offsets = reached, changed, tried
            yield tried

    def _moved(self, order: list[int], offsets: Sequence[int], extent: int, draw: random.Random) -> list[int]:
        """Return an order with an allocation that reaches the top, or one beside it, placed earlier."""
        top = next(n for n in order if offsets[n] + self._items[n].units == extent)
        chosen = draw.choice([top, *self._beside[top]])
        changed = list(order)
        position = changed.index(chosen)
        del changed[position]
        changed.insert(draw.randint(0, position), chosen)
        return changed

    def _place(self, order: Sequence[int]) -> list[int]:
        items, beside = self._items, self._beside
        offsets = [-1] * len(items)
        for index in order:
            self._look(len(beside[index]))
            units = items[index].units
            at = 0
            if units:
                for low, high in sorted(
                    (offsets[n], offsets[n] + items[n].units) for n in beside[index] if offsets[n] >= 0
                ):
                    if low - at >= units:
                        break
                    at = max(at, high)
            offsets[index] = at
        return offsets

    def _look(self, work: int) -> None:
        self._work += work + 1
        if self._work >= _GLANCE:
            self._work = 0
            if time.perf_counter() >= self._deadline:
                raise _Late
