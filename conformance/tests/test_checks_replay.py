"""Replay: what is frozen when a run is captured shows when it is replayed on other contents of the same buffers."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import pytest
from test_checks_host import Hostile, flagged, honest_add, tried

from nbx_conformance.problems.problem import STEPS
from nbx_conformance.runs.options import Options
from nbx_conformance.runs.runner import Record, verdict_of
from nbx_conformance.runs.session import Session
from nbx_registry.errors import NbxError
from nbx_registry.host.runtime import HostRuntime
from nbx_registry.launch import BindContext, Launch

Array = np.ndarray
Run = Callable[..., list[Record]]

CASE = ("awkward-f32-N63",)
GROWING = ("growing",)


def advance(lens: Array) -> None:
    lens += 1


def test_a_case_that_grows_keeps_its_integers_but_for_what_they_grow_by() -> None:
    session = Session(Options(device="cpu"))
    (case,) = (case for case in session.cases.of("paged_kv_append@1") if case.id == "growing")
    problem = session.site.problem(case)
    first = problem.given(0)
    for step, repetition in enumerate(STEPS, 1):
        found = problem.given(repetition)
        assert (found["slot"] == first["slot"] + step).all()
        assert (found["new"] != first["new"]).any()
        assert (found["new"] != problem.given(1)["new"]).any()


def test_an_honest_kernel_is_replayed_also_while_lengths_grow(try_kernel: Run) -> None:
    records = tried(try_kernel, "add@1", honest_add, (*CASE, "scalar-f32-s-0.75"), replayable=True)
    records += tried(try_kernel, "paged_lens_advance@1", advance, GROWING, replayable=True)
    assert verdict_of(records) == "pass"
    assert all("replay" in record.checks["pass"] for record in records)


def test_what_claims_nothing_is_not_captured(try_kernel: Run) -> None:
    (record,) = tried(try_kernel, "add@1", honest_add, CASE)
    assert "replay" not in record.checks["pass"]


def test_replay_catches_pointers_kept_from_the_first_run(try_kernel: Run) -> None:
    def bind(context: BindContext) -> Launch:
        kept: list[Array] = []

        def stale(*operands: Array) -> None:
            kept[:] = kept or operands
            honest_add(*kept)

        return Launch(function=stale, args=("x1", "x2", "out"))

    (record,) = tried(try_kernel, "add@1", None, CASE, bind=bind, replayable=True)
    assert flagged([record]) == {"replay"}
    assert "on the contents it was captured with" in record.details["replay"]


def test_replay_catches_a_length_frozen_at_the_first_run_over_the_buffers(try_kernel: Run) -> None:
    kept: dict[int, Array] = {}

    def frozen(lens: Array) -> None:
        lens[...] = kept.setdefault(lens.ctypes.data, lens.copy()) + 1

    (record,) = tried(try_kernel, "paged_lens_advance@1", frozen, GROWING, replayable=True)
    assert "replay" in flagged([record])
    assert "run with lens grown by 1" in record.details["replay"]


def test_where_nothing_can_be_captured_nothing_is_said_with_the_reason(
    try_kernel: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    def capture(self: HostRuntime, device: int, stream: object) -> Any:
        raise NbxError("no graphs here")

    monkeypatch.setattr(HostRuntime, "capture", capture)
    (record,) = tried(try_kernel, "add@1", honest_add, CASE, replayable=True)
    assert record.verdict == "pass"
    assert "replay" not in record.checks["pass"]
    assert record.details["replay"] == "runtime host cannot capture: no graphs here"


def test_what_cannot_be_captured_though_the_runtime_can_is_at_fault(
    try_kernel: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    def bind(context: BindContext) -> Launch:
        return Launch(function=honest_add, args=("x1", "x2", "out"))

    class Program:
        function = staticmethod(honest_add)

        def run(self, operands: Iterable[Any], stream: Any) -> None:
            if stream is not None and stream.recording is not None:
                raise NbxError("it waits for the device, which a capture does not allow")
            honest_add(*operands)

    monkeypatch.setattr(HostRuntime, "program", lambda *_: Program())
    (record,) = tried(try_kernel, "add@1", None, CASE, bind=bind, replayable=True)
    assert "replay" in flagged([record])
    assert "cannot be captured: ERROR: it waits" in record.details["replay"]


class OnStreams:
    """Kernels of the simulation, whose launches a capture records without running them."""

    @staticmethod
    def plugin() -> Any:
        pytest.importorskip("nbx_simulated", reason="the simulation lives beside the core's tests")
        import nbx_simulated.plugin as simulation

        return simulation

    @staticmethod
    def reading_first(read: Callable[..., None], run: Callable[..., None]) -> Callable[[BindContext], list[Launch]]:
        """Return a binder of ``run``, before which ``read`` looks at memory as soon as the run is enqueued."""

        class Reads:
            at_once = True

            def __call__(self, memory: Any, *addresses: int) -> None:
                read(memory, *addresses)

        def bind(context: BindContext) -> list[Launch]:
            names = tuple(name for name, _ in context.signature.slots())
            return [Launch(function=Reads(), args=names), Launch(function=run, args=names)]

        return bind


@pytest.mark.parametrize("by_address", [True, False], ids=["by address", "the last one"])
def test_on_streams_a_length_read_when_the_run_is_enqueued_is_frozen_by_a_capture(
    try_kernel: Run, by_address: bool
) -> None:
    simulation = OnStreams.plugin()
    read: dict[int, Array] = {}

    def key(address: int) -> int:
        return address if by_address else 0

    def look(memory: Any, address: int) -> None:
        read[key(address)] = memory.view(address, 33 * 4).view(np.int32).copy()

    def run(memory: Any, address: int) -> None:
        memory.view(address, 33 * 4).view(np.int32)[...] = read[key(address)] + 1

    kernel = {"backend": "loopback", "runtimes": ("sim",), "replayable": True, "deterministic": False}
    hostile = Hostile("paged_lens_advance@1", bind=OnStreams.reading_first(look, run), **kernel)
    (record,) = try_kernel("nbx-hostile/kernel", simulation, hostile, device="sim:0", cases=GROWING)
    assert "replay" in flagged([record])


def test_on_streams_an_honest_kernel_is_replayed_while_lengths_grow(try_kernel: Run) -> None:
    simulation = OnStreams.plugin()

    def run(memory: Any, address: int) -> None:
        memory.view(address, 33 * 4).view(np.int32)[...] += 1

    def bind(context: BindContext) -> Launch:
        return Launch(function=run, args=("lens",))

    kernel = {"backend": "loopback", "runtimes": ("sim",), "replayable": True}
    honest = Hostile("paged_lens_advance@1", bind=bind, **kernel)
    (record,) = try_kernel("nbx-hostile/kernel", simulation, honest, device="sim:0", cases=GROWING)
    assert record.verdict == "pass"
    assert "replay" in record.checks["pass"]


def test_on_streams_what_runs_beside_its_stream_is_no_part_of_a_capture(try_kernel: Run) -> None:
    simulation = OnStreams.plugin()
    from nbx_simulated.hostile import hostile_kernels

    (hostile,) = (found for found in hostile_kernels("add@1") if found.name == "wrong_stream")
    (record,) = try_kernel(hostile.kernel.id, simulation, hostile.plugin, device="sim:0", cases=CASE)
    assert {"replay", "stream"} <= flagged([record])
