"""Repeats beside other work: a rare race, what is shared between runs at a time, and numbers that only wander."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Callable
from typing import Any, ClassVar

import numpy as np
import pytest
from test_checks_host import Hostile, flagged, honest_add, tried

from nbx_conformance.runs.runner import Record, verdict_of
from nbx_conformance.trials import repeats
from nbx_conformance.trials.repeats import REPEATS

Array = np.ndarray
Run = Callable[..., list[Record]]

CASE = ("awkward-f32-N63",)


@pytest.fixture(autouse=True)
def unhurried(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let every repeat be made, however busy the machine: which run is the fiftieth must not depend on it."""
    monkeypatch.setattr(repeats, "STREAM_SECONDS", (60, 60))
    monkeypatch.setattr(repeats, "THREAD_SECONDS", (60, 60))


class Turns(threading.local):
    """Counts a thread's own runs: how many the thread beside it makes meanwhile is the machine's affair."""

    def __init__(self) -> None:
        self._count = itertools.count(1)

    def fiftieth(self) -> bool:
        """Whether this run of the thread is one that goes wrong."""
        return next(self._count) % 50 == 0


def rarely(wrong: Callable[[Array, Array], object]) -> Callable[..., None]:
    """Return an exponential of which one run in fifty is ``wrong(x, out)``."""
    turns = Turns()

    def exp(x: Array, out: Array) -> None:
        if not turns.fiftieth():
            honest_exp(x, out)
        else:
            wrong(x, out)

    return exp


def honest_exp(x: Array, out: Array) -> None:
    np.exp(x, out=out)


def one_unit_off(x: Array, out: Array) -> None:
    np.multiply(np.exp(x), np.float32(1 + 2**-23), out=out)


def one_percent_off(x: Array, out: Array) -> None:
    np.multiply(np.exp(x), np.float32(1.01), out=out)


def nothing(x: Array, out: Array) -> None:
    pass


def test_a_representative_is_repeated_so_often_that_a_rare_race_shows_beside_another_thread(try_kernel: Run) -> None:
    assert 0.98**REPEATS < 0.001
    (record,) = tried(try_kernel, "add@1", honest_add, CASE)
    assert record.details["determinism"] == f"{REPEATS} repeats with another thread busy"
    (other,) = tried(try_kernel, "add@1", honest_add, ("awkward-f32-N1000",))
    assert "determinism" in other.checks["pass"]
    assert "determinism" not in other.details


def test_determinism_catches_a_race_that_shows_in_one_run_of_fifty(try_kernel: Run) -> None:
    (record,) = tried(try_kernel, "exp@1", rarely(one_unit_off), CASE)
    assert flagged([record]) == {"determinism"}
    assert "repeats with another thread busy gave other bits, the first: out[" in record.details["determinism"]


def test_determinism_catches_an_output_left_as_it_was_in_one_run_of_fifty(try_kernel: Run) -> None:
    records = tried(try_kernel, "exp@1", rarely(nothing), CASE)
    assert flagged(records) == {"determinism", "numbers"}


def test_a_race_in_a_parameter_that_is_written_is_caught(try_kernel: Run) -> None:
    turns = Turns()

    def advance(lens: Array) -> None:
        lens += 2 if turns.fiftieth() else 1

    case = ("batch-B63-n1",)
    assert flagged(tried(try_kernel, "paged_lens_advance@1", advance, case)) == {"determinism", "numbers"}

    def honest(lens: Array) -> None:
        lens += 1

    assert verdict_of(tried(try_kernel, "paged_lens_advance@1", honest, case)) == "pass"


def test_what_claims_no_determinism_is_held_to_its_bounds_in_every_repeat(try_kernel: Run) -> None:
    (wanders,) = tried(try_kernel, "exp@1", rarely(one_unit_off), CASE, deterministic=False)
    assert wanders.verdict == "pass"
    assert "determinism" not in wanders.checks["pass"]
    (wrong,) = tried(try_kernel, "exp@1", rarely(one_percent_off), CASE, deterministic=False)
    assert flagged([wrong]) == {"numbers"}
    assert f"of {REPEATS} repeats" in wrong.details["numbers"]


def test_scratch_shared_by_runs_at_the_same_time_is_caught(try_kernel: Run) -> None:
    kept = np.empty((3, 63), np.float32)

    def shares(x1: Array, x2: Array, out: Array) -> None:
        np.add(x1, x2, out=kept)
        out[...] = kept

    alone = Hostile("add@1", shares)
    records = try_kernel("nbx-hostile/kernel", alone, cases=CASE)
    assert {"determinism", "numbers"} <= flagged(records)


def test_a_kernel_that_writes_its_input_is_not_accused_of_being_unsteady(try_kernel: Run) -> None:
    def writes(x1: Array, x2: Array, out: Array) -> None:
        honest_add(x1, x2, out)
        x2[0, 0] += 1

    assert flagged(tried(try_kernel, "add@1", writes, CASE)) == {"inputs"}


def test_what_the_other_thread_raises_is_an_error(try_kernel: Run) -> None:
    seen: set[int] = set()

    def raises(x1: Array, x2: Array, out: Array) -> None:
        seen.add(x1.ctypes.data)
        if len(seen) > 1:
            raise RuntimeError("two at a time")
        honest_add(x1, x2, out)

    (record,) = tried(try_kernel, "add@1", raises, CASE)
    assert record.verdict == "error"
    assert "two at a time" in record.details["numbers"]


def test_on_streams_scratch_shared_by_runs_at_the_same_time_is_caught(try_kernel: Run) -> None:
    pytest.importorskip("nbx_simulated", reason="the simulation lives beside the core's tests")
    import nbx_simulated.plugin as simulation
    from nbx_registry.launch import BindContext, Launch
    from nbx_simulated.kernels import Loopback, Written, launch_of
    from nbx_simulated.memory import Memory

    class Shares(Loopback):
        kept: ClassVar[Written] = []

        def run(self, memory: Memory, *operands: Any) -> None:
            given = self.operands(operands)
            Shares.kept = self.compute(given, self.read(memory, given))
            time.sleep(0)
            targets = [(address, spec) for address, spec in zip(given.outputs, self.signature.outputs, strict=True)]
            self.write(memory, [(*to, values) for to, (*_, values) in zip(targets, Shares.kept, strict=True)])

    def bind(context: BindContext) -> Launch:
        return launch_of(context.signature, Shares(context.signature).run)

    hostile = Hostile("add@1", bind=bind, backend="loopback", runtimes=("sim",))
    (record,) = try_kernel("nbx-hostile/kernel", simulation, hostile, device="sim:0", cases=CASE)
    assert {"determinism", "numbers"} <= flagged([record])
    assert "with other streams busy" in record.details["determinism"]


def test_an_input_that_is_written_in_one_run_of_fifty_is_caught(try_kernel: Run) -> None:
    def writes(x: Array, out: Array) -> None:
        honest_exp(x, out)
        x[0] += 1

    (record,) = tried(try_kernel, "exp@1", rarely(writes), CASE)
    assert flagged([record]) == {"inputs"}
    assert "was written in one of " in record.details["inputs"]


def test_an_input_that_is_written_and_mended_by_the_next_run_is_caught(try_kernel: Run) -> None:
    kept: dict[int, Array] = {}
    turns = itertools.count(1)

    def writes(x: Array, out: Array) -> None:
        x[0] = kept.pop(x.ctypes.data, x[0])
        honest_exp(x, out)
        if next(turns) > 5:
            kept[x.ctypes.data] = x[0].copy()
            x[0] += 1

    assert "inputs" in flagged(tried(try_kernel, "exp@1", writes, CASE))
