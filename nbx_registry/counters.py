"""Counters of what ran: for every kernel bound, how often it was called, and while profiling how long it took."""

from __future__ import annotations

import itertools
import threading
from dataclasses import dataclass

from nbx_registry.decision import Evidence


class Counter:
    """Counts calls; safe to advance from many threads without a lock."""

    __slots__ = ("_ticks", "advance")

    def __init__(self) -> None:
        # next() of an itertools.count is one bytecode under the interpreter's lock, unlike `n += 1`.
        self._ticks = itertools.count()
        self.advance = self._ticks.__next__

    @property
    def value(self) -> int:
        """Calls so far."""
        # repr is the one way to read a count without advancing it that all Python versions share: "count(5)".
        return int(repr(self._ticks)[6:-1])


@dataclass(frozen=True, kw_only=True, slots=True)
class Ran:
    """What ran: one row an op, kernel and device."""

    op: str
    kernel: str
    device: str
    evidence: Evidence
    calls: int


class Counters:
    """All counters of a registry, kept when bound programs are forgotten."""

    def __init__(self) -> None:
        self._counters: dict[tuple[str, str, str, Evidence], Counter] = {}
        self._lock = threading.Lock()

    def counter(self, op: str, kernel: str, device: str, evidence: Evidence) -> Counter:
        """Return the counter of a row, made if new."""
        key = (op, kernel, device, evidence)
        found = self._counters.get(key)
        if found is None:
            with self._lock:
                found = self._counters.setdefault(key, Counter())
        return found

    def rows(self) -> list[Ran]:
        """What ran so far, by op and kernel; kernels never called are left out."""
        with self._lock:
            items = sorted(self._counters.items(), key=lambda item: item[0][:3])
        return [
            Ran(op=op, kernel=kernel, device=device, evidence=evidence, calls=counter.value)
            for (op, kernel, device, evidence), counter in items
            if counter.value
        ]
