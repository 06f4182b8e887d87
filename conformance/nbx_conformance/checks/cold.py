"""Cold times: on operands that no cache holds, a kernel takes no less than the least cost of its op.

Several sets of operands, together beyond the caches of the device, take turns; a time below what their bytes need on
the way through memory means that the work was not done. The roof has room for all that data sheets leave out
(`nbx_conformance.problems.roof`), so that no kernel is accused that did its work; results of the timed runs are looked
at as well.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from nbx_conformance.checks.judge import judge
from nbx_conformance.problems.largest import sets
from nbx_conformance.problems.roof import Roof, roof_of
from nbx_conformance.trials.bench import Bench
from nbx_conformance.trials.trial import Outcome, Trial
from nbx_registry.bands import PATTERNS, POISON
from nbx_registry.errors import MissingFact

NAME = "cold"

MOST_BYTES: Final = 4 << 30
"""Of all sets together, beyond the first."""

_WINDOWS: Final = 5
"""Times taken, of which the median counts."""

_SOON: Final = 4
"""How many times the least time a round must take for two to suffice: what is that slow is not accused."""

_WINDOW_S: Final = 0.1
"""Seconds that a window lasts at the most, unless one round takes longer."""

_MOST_ROUNDS: Final = 16


@dataclass(frozen=True)
class Cold:
    """A cold time.

    Attributes
    ----------
    seconds
        Of one run: the median of the windows.
    least_s
        What no run takes less than.
    sets
        Sets of operands that took turns.
    wrong
        What is wrong with the results, in words; empty where nothing is.
    """

    seconds: float
    least_s: float
    sets: int
    wrong: str = ""


def check(trial: Trial) -> Outcome | None:
    """Time the kernel cold; None on cases that are not its largest, on other routes than to the device, and for views.

    Where a fact is not stated there is no roof, and nothing is said but, once a run, which fact that is.
    """
    device = trial.site.target.device
    if trial.site.reach != "here" or device is None or trial.case.size == "smoke" or trial.bound.program is None:
        return None
    try:
        if not trial.site.is_largest(trial.kernel, trial.case):
            return None
    except MissingFact as missing:
        trial.note(NAME, f"{missing.code}: {missing}")
        return None
    cold = measured(trial, roof_of(device))
    if cold is None:
        trial.note(NAME, f"the sets of some cases take more than {MOST_BYTES} bytes, or half of what is free")
        return None
    if cold.seconds < cold.least_s:
        return Outcome(
            NAME,
            "error",
            f"a run took {cold.seconds:.3g} s on {cold.sets} sets of operands beyond the caches, and the least cost "
            f"takes {cold.least_s:.3g} s: the work was not done",
        )
    return Outcome(NAME, "fail" if cold.wrong else "pass", cold.wrong and f"on operands that take turns: {cold.wrong}")


def record(trial: Trial) -> Mapping[str, float]:
    """Return the cold time of a trial as plain data; empty where none was taken."""
    cold: Cold | None = trial.memo(NAME, lambda: None)
    return {} if cold is None else {"seconds": cold.seconds, "least_s": cold.least_s, "sets": cold.sets}


def measured(trial: Trial, roof: Roof) -> Cold | None:
    """Return the trial's cold time; None where its sets do not fit into memory."""
    return trial.memo(NAME, lambda: _measure(trial, roof))


def _measure(trial: Trial, roof: Roof) -> Cold | None:
    cost = trial.problem.op.cost(trial.problem.signature)
    count = sets(cost.least_bytes, roof)
    benches = _benches(trial, count)
    if benches is None:
        return None
    runtime, index = trial.bench.runtime, trial.bench.index
    stream = runtime.default_stream(index)
    operands: list[list[Any]] = []

    def fill(turn: int) -> None:
        """Give every set inputs of the repetition that it did not have before, and poison for outputs."""
        operands.clear()
        for number, bench in enumerate(benches):
            bench.prepare(trial.problem.inputs((number + turn) % 2), guard=PATTERNS[turn], poison=POISON[turn])
            bench.upload(stream)
            operands.append(bench.operands())
        runtime.synchronize(index)

    def window(rounds: int) -> float:
        began, ended = runtime.event(index), runtime.event(index)
        began.record(stream)
        for _ in range(rounds):
            for bench, given in zip(benches, operands, strict=True):
                bench.launch(given, stream)
        ended.record(stream)
        runtime.synchronize(index)
        return ended.elapsed_s(began) / (rounds * count)

    # Every set is met twice, with other contents the second time: whatever was remembered of it is wrong by then.
    fill(0)
    times = [window(1)]
    fill(1)
    times.append(window(1))
    rounds, soonest = 1, min(times)
    if soonest < _SOON * roof.least_s(cost, count):
        rounds = min(max(int(_WINDOW_S / max(soonest * count, 1e-9)), 1), _MOST_ROUNDS)
        times = [window(rounds) for _ in range(_WINDOWS)]
    wrong = "" if trial.bench.mutable else _wrong(trial, benches)
    return Cold(statistics.median(times), roof.least_s(cost, count, rounds), count, wrong)


def _benches(trial: Trial, count: int) -> list[Bench] | None:
    """Return the sets, the trial's own buffers first; None where they do not fit."""
    first = trial.bench
    more = (count - 1) * sum(buffer.nbytes for buffer in first.buffers.values())
    available = first.runtime.memory(first.index).available
    if more > MOST_BYTES or (available is not None and more > available // 2):
        return None
    return [first, *(Bench(trial.bound, trial.problem.sample) for _ in range(count - 1))]


def _wrong(trial: Trial, benches: list[Bench]) -> str:
    """Return what is wrong with the results that the timed runs left in the first set and in the last."""
    stream = trial.bench.runtime.default_stream(trial.bench.index)
    for number in sorted({0, len(benches) - 1}):
        wrong = judge(trial, benches[number].read(stream), (number + 1) % 2).wrong
        if wrong:
            return wrong
    return ""
