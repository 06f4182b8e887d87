"""Slabs: first fit as a naive one does it, layouts that hold, traces that no run could leave."""

from __future__ import annotations

import random
from collections.abc import Hashable, Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import nbx_registry as nbx
from nbx_registry.errors import TraceError
from nbx_registry.memory.freelist import CHUNK, FreeList
from nbx_registry.memory.layout import best_layout
from nbx_registry.memory.slab import UNIT, Event, Layout, first_fit_extent, first_fit_layout, live_peak


def naive(trace: Sequence[Event]) -> list[int]:
    """Return the offsets of first fit, found by looking at every live block for every allocation."""
    live: dict[Hashable, tuple[int, int]] = {}
    offsets: list[int] = []
    for event in trace:
        if event[0] == "free":
            del live[event[1]]
            continue
        units = -(-event[2] // UNIT)
        at = 0
        for start, end in sorted(span for span in live.values() if span[1] > span[0]):
            if start - at >= units:
                break
            at = end
        at = at if units else 0
        live[event[1]] = (at, at + units)
        offsets.append(at * UNIT)
    return offsets


def check(trace: Sequence[Event], layout: Layout) -> None:
    """Raise unless no two live allocations share a byte and the extent is where the highest ends."""
    rest = iter(layout.offsets)
    live: dict[Hashable, tuple[int, int]] = {}
    highest = 0
    for event in trace:
        if event[0] == "free":
            del live[event[1]]
            continue
        start = next(rest)
        end = start + event[2]
        assert start % UNIT == 0
        assert all(end <= low or high <= start or low == high or start == end for low, high in live.values())
        live[event[1]] = (start, end)
        highest = max(highest, -(-end // UNIT) * UNIT)
    assert highest == layout.extent
    assert next(rest, None) is None


@st.composite
def traces(draw: st.DrawFn, most: int = 60) -> list[Event]:
    """Traces with reused keys, sizes around the unit, none at all, and some never freed."""
    events: list[Event] = []
    live: list[int] = []
    for _ in range(draw(st.integers(0, most))):
        free = [key for key in range(12) if key not in live]
        if free and (not live or draw(st.booleans())):
            key = draw(st.sampled_from(free))
            live.append(key)
            events.append(("alloc", key, draw(st.sampled_from([0, 1, 511, 512, 513, 1000, 127 * 512, 1 << 40]))))
        else:
            events.append(("free", live.pop(draw(st.integers(0, len(live) - 1)))))
    return events


@settings(deadline=None)
@given(traces())
def test_first_fit_is_what_a_naive_one_gives(trace: list[Event]) -> None:
    layout = first_fit_layout(trace)
    assert list(layout.offsets) == naive(trace)
    check(trace, layout)
    total = sum(-(-event[2] // UNIT) * UNIT for event in trace if event[0] == "alloc")
    assert live_peak(trace) <= first_fit_extent(trace) == layout.extent <= total


@settings(deadline=None)
@given(traces(most=30))
def test_the_best_layout_holds_and_is_never_larger(trace: list[Event]) -> None:
    layout = best_layout(trace, seconds=0.02)
    check(trace, layout)
    assert live_peak(trace) <= layout.extent <= first_fit_extent(trace)


def many(count: int, seed: int) -> list[Event]:
    """Return a trace in which about half of what was allocated is free in small pieces."""
    draw = random.Random(seed)
    events: list[Event] = []
    live: list[int] = []
    for key in range(count):
        events.append(("alloc", key, draw.randint(1, 63) * UNIT))
        live.append(key)
        if draw.random() < 0.55:
            events.append(("free", live.pop(draw.randrange(len(live)))))
    draw.shuffle(live)
    return events + [("free", key) for key in live[::2]] + [("alloc", -key, UNIT) for key in range(1, count // 4)]


@pytest.mark.parametrize("count", [CHUNK - 1, 1000, 4 * CHUNK + 127])
def test_rows_of_free_blocks_split_and_vanish(count: int) -> None:
    trace = many(count, seed=count)
    assert list(first_fit_layout(trace).offsets) == naive(trace)


def test_every_free_block_is_found_in_whatever_row_it_is() -> None:
    free = FreeList()
    starts = [free.take(3) for _ in range(5 * CHUNK)]
    for start in starts[::2]:
        free.give(start, 3)
    assert [free.take(2) for _ in starts[::2]] == starts[::2]
    assert free.take(3) == starts[-1] + 3
    for start in starts[1::2]:
        free.give(start, 3)
    assert free.take(4) == starts[0] + 2


def test_freed_neighbours_are_one_block_again_and_the_top_comes_down() -> None:
    trace: list[Event] = [("alloc", name, 100) for name in "abcd"]
    trace += [("free", "b"), ("free", "c"), ("alloc", "e", 1024), ("free", "d"), ("free", "e"), ("alloc", "f", 9 * 512)]
    assert first_fit_layout(trace) == Layout(10 * 512, (0, 512, 1024, 1536, 512, 512))
    assert live_peak(trace) == 10 * 512


def test_the_best_layout_reaches_the_peak_where_first_fit_does_not() -> None:
    trace: list[Event] = [
        ("alloc", "short", 512),
        ("alloc", "long", 512),
        ("free", "short"),
        ("alloc", "large", 1024),
    ]
    assert first_fit_extent(trace) == 2048
    assert best_layout(trace).extent == live_peak(trace) == 1536
    assert best_layout(trace, seconds=0) == first_fit_layout(trace)


def test_what_is_tried_is_a_matter_of_the_trace() -> None:
    trace = many(63, seed=3)
    assert live_peak(trace) == best_layout(trace, seconds=30).extent
    assert best_layout(trace, seconds=30) == best_layout(iter(trace), seconds=30)


@pytest.mark.parametrize(
    ("trace", "message"),
    [
        ([("alloc", "x", 5), ("alloc", "x", 5)], "event 1 allocates 'x', which is alive"),
        ([("free", "x")], "event 0 frees 'x', which is not alive"),
        ([("alloc", "x", 5), ("free", "x"), ("free", "x")], "event 2 frees 'x'"),
        ([("alloc", "x", -1)], "event 0 allocates 'x' with -1 bytes"),
        ([("alloc", "x", 5.0)], "with 5.0 bytes"),
        ([("alloc", "x", True)], "with True bytes"),
        ([("alloc", "x")], r"event 0 is \('alloc', 'x'\); write"),
        ([("take", "x", 3)], "write"),
        (["free"], "event 0 is 'free'"),
        ([("alloc", [], 5)], r"event 0 names \[\], which is not hashable"),
        ([("free", {})], "event 0 names {}"),
    ],
)
def test_a_trace_that_no_run_leaves_is_named(trace: Any, message: str) -> None:
    for ask in (first_fit_extent, live_peak, best_layout):
        with pytest.raises(TraceError, match=message):
            ask(trace)


def test_a_budget_is_a_number_from_nothing_on() -> None:
    wrong: list[Any] = [-1, float("nan"), "1", None]
    for seconds in wrong:
        with pytest.raises(nbx.NbxError, match="seconds="):
            best_layout([], seconds=seconds)
    assert best_layout([]) == Layout(0, ())
