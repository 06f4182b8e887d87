"""Repeats: a representative case run again and again on the same inputs while other work is in flight."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Final

from nbx_conformance.trials import load
from nbx_conformance.trials.bench import Bench, Execution
from nbx_conformance.trials.loop import Loop
from nbx_conformance.trials.trial import Trial, differing
from nbx_registry.bands import POISON

REPEATS: Final = 350
"""A race that shows in one run of fifty is missed with a probability of 0.98^350 < 0.001."""

STREAM_SECONDS: Final = (0.5, 0.05)
"""How long a kernel's first representative is repeated at most where one run is slow, and how long the others.

`LEAST` times all the same.
"""

THREAD_SECONDS: Final = (0.2, 0.003)
"""The same beside another thread, in this thread's own time: they take turns, and others want the processor too."""

LEAST: Final = 3

JUDGED: Final = 8
"""How many results that differ are held against the oracle."""


@dataclass(frozen=True)
class Repeats:
    """What the repeats showed.

    Attributes
    ----------
    count
        How many there were.
    beside
        What else was in flight, in words.
    differing
        How many gave other bits than the first run.
    first
        What differed first; empty where nothing did.
    others
        The first few results that differed, no two alike.
    written
        The input that a repeat wrote, which ended them; empty where none did.
    afterwards
        A run on the fresh inputs after them all: a kernel may begin to remember late.
    """

    count: int
    beside: str
    differing: int = 0
    first: str = ""
    others: tuple[Execution, ...] = ()
    written: str = ""
    afterwards: Execution | None = None

    def __str__(self) -> str:
        return f"{self.count} repeats {self.beside}"


def repeats(trial: Trial) -> Repeats | None:
    """Repeat a trial's first run. None for what is no representative, launches nothing, or wrote an input before."""
    if trial.large or trial.bound.program is None or not trial.site.representative(trial.kernel, trial.case):
        return None
    return trial.memo("repeats", lambda: _repeats(trial))


def _repeats(trial: Trial) -> Repeats | None:
    # What a second run shows is shown by the one that comes second.
    first, _, disturbance = trial.first, trial.fresh, trial.disturbance
    if any(_written(trial.bench, run) for run in trial.looked_at):
        # Nothing follows from what comes after.
        return None
    loop = Loop(trial.bench, trial.problem.inputs(0))
    stream = loop.bench.runtime.default_stream(loop.bench.index)
    expected = loop.results_of(first)
    # A result that is known to depend on what its memory held is not to be taken for one that changes by itself.
    poison = (POISON[0],) if disturbance.poison or disturbance.unwritten else POISON
    count = wrong = 0
    others: dict[tuple[bytes, ...], Execution] = {}
    described = written = ""
    beside, clock, seconds, work = _load(trial)
    with work as launch:
        end = clock() + seconds
        while count < LEAST or (count < REPEATS and clock() < end):
            loop.clear(poison[count % len(poison)], stream)
            # Whether a kernel keeps to its stream is for another check to find.
            stream.synchronize()
            launch(loop, stream)
            found = loop.results(stream)
            count += 1
            if found == expected:
                continue
            execution = loop.bench.read(stream)
            written = _written(loop.bench, execution)
            if written:
                break
            wrong += 1
            described = described or f"{differing(first, execution)} in repeat {count}"
            if len(others) < JUDGED:
                others.setdefault(tuple(found), execution)
    written = written or _written(loop.bench, loop.bench.read(stream))
    afterwards = None if written else trial.bench.run(trial.problem.inputs(1))
    return Repeats(count, beside, wrong, described, tuple(others.values()), written, afterwards)


def _load(trial: Trial) -> tuple[str, Callable[[], float], float, AbstractContextManager[load.Launch]]:
    """Return what else is in flight, in words, for how long by which clock, and the load."""
    foremost = trial.site.foremost(trial.kernel, trial.case)
    if trial.site.lags(trial.bench):
        seconds = STREAM_SECONDS[not foremost]
        return "with other streams busy", time.perf_counter, seconds, load.streams(_other(trial))
    seconds = THREAD_SECONDS[not foremost]
    if trial.site.reach == "here":
        return "with another thread busy", time.thread_time, seconds, load.threads(_other(trial), halted=foremost)
    return "with nothing beside them", time.thread_time, seconds, load.none()


def _other(trial: Trial) -> Loop:
    return Loop(trial.other_bench, trial.problem.inputs(1))


def _written(bench: Bench, execution: Execution) -> str:
    """Return in words what a run changed of what it was given to read."""
    given = [slot.name for slot in bench.slots if slot.kind == "input" and slot.name not in bench.mutable]
    found = (execution.contents[name].damage(elements=True) for name in given if name in execution.contents)
    return next((str(damage) for damage in found if damage is not None), "")
