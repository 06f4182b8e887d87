"""Cold device times of several ways to do one thing, side by side: each way in turn, round after round, medians.

Before every call a buffer larger than the last-level cache is overwritten, so that operands come from memory; while the
device does that the host enqueues what follows, so that no launch waits for it.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping
from typing import Final

import torch

FLUSH_BYTES: Final = 256 << 20
"""Overwritten before each call: four times the last-level cache of an H200, the largest of any card here."""

BUDGET_S: Final = 0.15
"""Device time spent on each way of one case."""


class Timer:
    """Times on one card."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._flush = torch.empty(FLUSH_BYTES, dtype=torch.uint8, device=device)

    def medians(self, ways: Mapping[str, Callable[[], object]], rounds: int | None = None) -> dict[str, float]:
        """Return median seconds of one call of each way."""
        for way in ways.values():
            # What a first call compiles or allocates is no part of a call.
            way()
            way()
        torch.cuda.synchronize(self._device)
        longest = max(self._once(way) for way in ways.values())
        rounds = rounds or max(7, min(101, int(BUDGET_S / (longest + 150e-6)) | 1))
        taken: dict[str, list[tuple[torch.cuda.Event, torch.cuda.Event]]] = {name: [] for name in ways}
        for _ in range(rounds):
            for name, way in ways.items():
                taken[name].append(self._events(way))
        torch.cuda.synchronize(self._device)
        return {
            name: statistics.median(begin.elapsed_time(end) for begin, end in pairs) * 1e-3
            for name, pairs in taken.items()
        }

    def copy(self, nbytes: int) -> Callable[[], object]:
        """Return a device copy that reads and writes ``nbytes`` in all."""
        source = torch.randint(0, 255, (max(16, nbytes // 2),), dtype=torch.uint8, device=self._device)
        target = torch.empty_like(source)
        return lambda: target.copy_(source)

    def _once(self, way: Callable[[], object]) -> float:
        begin, end = self._events(way)
        torch.cuda.synchronize(self._device)
        return begin.elapsed_time(end) * 1e-3

    def _events(self, way: Callable[[], object]) -> tuple[torch.cuda.Event, torch.cuda.Event]:
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        self._flush.fill_(1)
        begin.record()
        way()
        end.record()
        return begin, end
