"""Replay: a captured run, replayed on other contents of the same buffers, gives what a fresh run gives, byte for byte.

Where the case says what grows, while lengths grow: `nbx_conformance.problems.problem.STEPS`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from nbx_conformance.checks.judge import judge
from nbx_conformance.problems.problem import STEPS
from nbx_conformance.problems.tiled import Value
from nbx_conformance.trials.bench import Bench, Execution
from nbx_conformance.trials.trial import Outcome, Trial, differing, message
from nbx_registry.bands import POISON
from nbx_registry.errors import NbxError
from nbx_registry.runtime import Graph, Stream

NAME = "replay"


def check(trial: Trial) -> Outcome | None:
    """Capture the run on a stream of its own, over other buffers than those it ran on before, and replay it.

    None for a kernel that claims nothing or launches nothing, and, with a note why, where the runtime cannot capture.
    Tried on representatives and where something grows.
    """
    if not trial.kernel.replayable or trial.bound.program is None:
        return None
    if not trial.case.grows and not trial.site.representative(trial.kernel, trial.case):
        return None
    why_not = trial.site.cannot_capture(trial.bench)
    if why_not:
        trial.note(NAME, why_not)
        return None
    first = trial.first
    bench = trial.other_bench
    stream = bench.runtime.stream(bench.index)
    _upload(bench, trial.problem.inputs(0), 0)
    try:
        graph = _captured(bench, stream)
    except NbxError as error:
        return Outcome(NAME, "fail", f"claims to be replayable, but cannot be captured: {message(error)}")
    # All fresh runs come first: what they leave behind elsewhere must not help a replay.
    contents = {0: trial.problem.inputs(0)}
    contents |= {turn: _other_contents(trial, turn) for turn in (STEPS if trial.case.grows else (1,))}
    fresh = {turn: trial.bench.run(inputs) if turn else first for turn, inputs in contents.items()}
    for turn, inputs in contents.items():
        _upload(bench, inputs, turn)
        graph.replay(stream)
        stream.synchronize()
        wrong = _wrong(trial, fresh[turn], bench.read(stream), turn)
        if wrong:
            return Outcome(NAME, "fail", wrong)
    return Outcome(NAME, "pass")


def _upload(bench: Bench, inputs: Mapping[str, Value], turn: int) -> None:
    bench.prepare(inputs, poison=POISON[turn % 2])
    bench.upload(bench.runtime.default_stream(bench.index))
    bench.runtime.synchronize(bench.index)


def _captured(bench: Bench, stream: Stream) -> Graph:
    operands = bench.operands()
    with bench.runtime.capture(bench.index, stream) as capture:
        bench.launch(operands, stream)
    return capture.graph


def _other_contents(trial: Trial, repetition: int) -> dict[str, Any]:
    """Return the inputs of a repetition with the first one's scalars: what is captured holds those."""
    first = trial.problem.inputs(0)
    found = trial.problem.inputs(repetition)
    return {name: first[name] if isinstance(value, bool | int | float) else value for name, value in found.items()}


def _wrong(trial: Trial, fresh: Execution, replayed: Execution, repetition: int) -> str:
    """Return what is wrong with a replay, or with the fresh run in its stead.

    A kernel that may give other bits each time is held against the oracle, where that knows the scalars.
    """
    when = _when(trial, repetition)
    if repetition in STEPS:
        wrong = judge(trial, fresh, repetition).wrong
        if wrong:
            return f"run {when}: {wrong}"
    if trial.kernel.deterministic:
        changed = differing(fresh, replayed)
        return changed and f"replayed {when}: {changed} is not what a fresh run gives"
    if repetition == 1 and any(isinstance(value, bool | int | float) for value in trial.problem.inputs(0).values()):
        return ""
    wrong = judge(trial, replayed, repetition).wrong
    return wrong and f"replayed {when}: {wrong}"


def _when(trial: Trial, repetition: int) -> str:
    if repetition in STEPS:
        step = STEPS.index(repetition) + 1
        return f"with {', '.join(f'{name} grown by {by * step}' for name, by in trial.case.grows.items())}"
    return "on other contents" if repetition else "on the contents it was captured with"
