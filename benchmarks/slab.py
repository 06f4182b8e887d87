"""First fit over 100,000 events, in several shapes: `python benchmarks/slab.py`.

Exits 1 if a median, of the processor's time, passes the limit.
"""

from __future__ import annotations

import argparse
import random
import sys
import time
from collections.abc import Callable
from statistics import median

from nbx_registry.memory.layout import best_layout
from nbx_registry.memory.slab import Event, first_fit_extent, first_fit_layout, live_peak

EVENTS = 100_000


def layers() -> list[Event]:
    """Return values that live for a few events, as those of a network do."""
    draw = random.Random(1)
    sizes = [draw.randint(1, 1 << 26) for _ in range(64)]
    events: list[Event] = []
    for key in range(EVENTS // 2):
        events.append(("alloc", key, sizes[key % 64]))
        if key >= 5:
            events.append(("free", key - 5))
    return events


def scattered() -> list[Event]:
    """Return frees of whatever lives, with some thousand alive and as many free blocks."""
    draw = random.Random(2)
    events: list[Event] = []
    live: list[int] = []
    for key in range(EVENTS):
        if len(live) < 8000 or draw.random() < 0.5:
            events.append(("alloc", key, draw.randint(1, 1 << 20)))
            live.append(key)
        else:
            at = draw.randrange(len(live))
            live[at], live[-1] = live[-1], live[at]
            events.append(("free", live.pop()))
    return events


def comb() -> list[Event]:
    """Return the worst: tens of thousands of free blocks, all a little too small for what is asked for last."""
    count = EVENTS * 2 // 5
    events: list[Event] = [("alloc", key, 512 + key % 7 * 512) for key in range(count)]
    events += [("free", key) for key in range(0, count, 2)]
    for key in range(EVENTS // 5):
        events += [("alloc", ("late", key), 512 * (8 if key % 2 else 7)), ("free", ("late", key))]
    return events[:EVENTS]


def seconds(call: Callable[[], object], rounds: int = 5) -> float:
    """Return the median time of a call."""
    times: list[float] = []
    for _ in range(rounds):
        start = time.process_time()
        call()
        times.append(time.process_time() - start)
    return median(times)


def main() -> int:
    """Print the medians."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--limit", type=float, default=1.0, help="seconds")
    limit = parser.parse_args().limit
    good = True
    for make in (layers, scattered, comb):
        trace = make()
        took = seconds(lambda trace=trace: first_fit_extent(trace))
        good &= took <= limit
        peak, extent = live_peak(trace), first_fit_extent(trace)
        better = best_layout(trace, seconds=1).extent
        verdict = "ok" if took <= limit else "OVER"
        print(
            f"{make.__name__:<10} {len(trace)} events {took:6.3f} s  limit {limit:g} {verdict};  extent "
            f"{extent / peak:.3f} of the live peak, {better / peak:.3f} after 1 s of search"
        )
    assert first_fit_layout([]).extent == 0
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
