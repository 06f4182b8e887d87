"""The host's runtime: memory that is accounted, streams that are honest, programs, and graphs."""

import gc
import threading
import time
from typing import Any

import numpy as np
import pytest

from nbx_registry.errors import NbxError, OutOfMemory
from nbx_registry.host.program import HostProgram
from nbx_registry.host.runtime import HostRuntime, host_runtime
from nbx_registry.interop.memory import address_of
from nbx_registry.launch import Artifact, Launch, Scalar, ScalarOf
from nbx_registry.runtime import Runtime, Slot
from nbx_registry.spec import parse


@pytest.fixture
def host() -> HostRuntime:
    return HostRuntime()


def slots(*names: str) -> list[Slot]:
    return [Slot(name, parse("float32[4]"), "input") for name in names]


def test_it_is_a_runtime_and_one_a_process(host: HostRuntime) -> None:
    assert isinstance(host, Runtime)
    assert host_runtime() is host_runtime()
    (device,) = host.devices()
    assert (device.handle, host.why_absent()) == ("cpu", "")
    assert device.name
    assert device.versions["numpy"] == np.__version__


def test_memory_is_aligned_and_accounted(host: HostRuntime) -> None:
    buffers = [host.allocate(0, size) for size in (1, 1000, 0)]
    assert all(buffer.address % 256 == 0 for buffer in buffers)
    memory = host.memory(0)
    assert (memory.live, memory.pooled, memory.allocations, memory.allocated_bytes) == (1001, 0, 3, 1001)
    assert memory.free is None or memory.free > 0
    del buffers
    gc.collect()
    memory = host.memory(0)
    assert (memory.live, memory.allocations, memory.allocated_bytes) == (0, 3, 1001)


def test_a_buffer_may_be_dropped_anywhere(host: HostRuntime) -> None:
    held = [host.allocate(0, 100)]

    def dropped() -> None:
        with host._lock:
            held.clear()

    thread = threading.Thread(target=dropped, daemon=True)
    thread.start()
    thread.join(30)
    assert not thread.is_alive(), "waits for itself"
    assert host.memory(0).live == 0


def test_what_does_not_fit_is_told_with_its_figures(host: HostRuntime) -> None:
    kept = host.allocate(0, 100)
    for nbytes in (1 << 62, 1 << 70):
        with pytest.raises(OutOfMemory, match=f"{nbytes} bytes.*100 live") as caught:
            host.allocate(0, nbytes)
        assert (caught.value.requested, caught.value.live, caught.value.pooled) == (nbytes, kept.nbytes, 0)


def test_copies(host: HostRuntime) -> None:
    buffer = host.allocate(0, 24)
    host.copy_in(0, buffer.address, np.arange(6, dtype=np.int32))
    host.copy(0, buffer.address + 4, buffer.address, 16)
    host.fill(0, buffer.address + 20, 0xFF, 4)
    found = np.empty(6, np.int32)
    host.copy_out(0, found, buffer.address)
    assert found.tolist() == [0, 0, 1, 2, 3, -1]
    with pytest.raises(NbxError, match="contiguous"):
        host.copy_in(0, buffer.address, np.zeros((4, 2), np.int32)[:, 0])


def test_there_is_one_device(host: HostRuntime) -> None:
    for use in (lambda: host.allocate(1, 8), lambda: host.stream(1), lambda: host.program(1, [], [])):
        with pytest.raises(NbxError, match="no index 1"):
            use()


def test_work_is_done_when_it_is_enqueued(host: HostRuntime) -> None:
    stream, start, end = host.stream(0), host.event(0), host.event(0)
    start.record(stream)
    host.delay(0, stream, 0.02)
    end.record(stream)
    stream.wait(end)
    stream.synchronize()
    host.synchronize(0)
    assert 0.02 <= end.elapsed_s(start) < 5


def test_events_that_were_not_recorded_are_refused(host: HostRuntime) -> None:
    event = host.event(0)
    for use in (event.synchronize, lambda: event.elapsed_s(event), lambda: host.stream(0).wait(event)):
        with pytest.raises(NbxError, match="never recorded"):
            use()


def test_no_compiled_code_is_loaded(host: HostRuntime) -> None:
    artifact = Artifact(image=b"", kind="cubin", entry="add", arch="sm_90", toolkit="triton 3.6.0")
    with pytest.raises(NbxError, match="'add' is for sm_90"):
        host.load(0, artifact)


def test_one_launch_over_the_slots_in_order_is_its_own_function(host: HostRuntime) -> None:
    program = host.program(0, [Launch(function=np.add, args=("a", "b", "out"))], slots("a", "b", "out"))
    assert program.function is np.add
    a, out = np.arange(4.0), np.empty(4)
    program.run([a, a, out], None)
    assert out.tolist() == [0, 2, 4, 6]


def test_launches_run_in_order_on_their_own_arguments(host: HostRuntime) -> None:
    def scale(x: np.ndarray, factor: float, out: np.ndarray) -> None:
        np.multiply(x, factor, out)

    launches = [
        Launch(function=scale, args=("x", ScalarOf("s", "float32"), "work")),
        Launch(function=scale, args=("work", Scalar(10, "int32"), "out")),
    ]
    program = host.program(0, launches, slots("x", "s", "out", "work"))
    out = np.empty(3)
    program.function(np.arange(3.0), 2.0, out, np.empty(3))
    assert out.tolist() == [0, 20, 40]


def test_slot_names_are_no_source_code() -> None:
    names = ("x; import os", "class", "1")
    seen: list[Any] = []
    launch = Launch(function=lambda *given: seen.extend(given), args=(names[2], names[0]))
    HostProgram([launch], slots(*names)).run(["a", "b", "c"], None)
    assert seen == ["c", "a"]


def test_malformed_launches_are_refused() -> None:
    with pytest.raises(NbxError, match=r"'y' is no slot.*there are x"):
        HostProgram([Launch(function=np.add, args=("x", "y"))], slots("x"))
    with pytest.raises(NbxError, match="no slot"):
        HostProgram([Launch(function=np.add, args=(ScalarOf("s", "int32"),))], slots("x"))
    with pytest.raises(NbxError, match="not 3"):
        HostProgram([Launch(function=3, args=("x",))], slots("x"))
    with pytest.raises(NbxError, match="byte offsets"):
        HostProgram([Launch(function=np.add, args=("x",), offsets=(("x", 4),))], slots("x"))


def test_no_launches_do_nothing() -> None:
    HostProgram([], slots("x")).run([np.zeros(1)], None)


def test_a_capture_runs_nothing_and_its_graph_runs_on_what_the_arrays_hold_then(host: HostRuntime) -> None:
    program = host.program(0, [Launch(function=np.add, args=("a", "b", "out"))], slots("a", "b", "out"))
    a, b, out = np.ones(3), np.ones(3), np.zeros(3)
    stream, other = host.stream(0), np.zeros(3)
    with host.capture(0, stream) as capture:
        program.run([a, b, out], stream.handle)
        program.run([out, b, out], stream.handle)
        program.run([a, b, other], None)  # another stream, which runs as ever
        with pytest.raises(NbxError, match="has not ended"):
            _ = capture.graph
    assert (out.tolist(), other.tolist()) == ([0, 0, 0], [2, 2, 2])
    a[...] = 5
    capture.graph.replay(stream)
    assert out.tolist() == [7, 7, 7]
    b[...] = 2
    capture.graph.replay(host.default_stream(0))
    assert out.tolist() == [9, 9, 9]
    program.run([a, b, out], stream.handle)  # the stream is itself again
    assert out.tolist() == [7, 7, 7]


def test_copies_and_other_graphs_are_captured_too(host: HostRuntime) -> None:
    stream, buffer = host.stream(0), host.allocate(0, 12)
    source, found = np.arange(3, dtype=np.int32), np.zeros(3, np.int32)
    with host.capture(0, stream) as inner:
        host.copy_in(0, buffer.address, source, stream)
    with host.capture(0, stream) as outer:
        inner.graph.replay(stream)
        host.copy_out(0, found, buffer.address, stream)
    assert found.tolist() == [0, 0, 0]
    outer.graph.replay(stream)
    assert found.tolist() == [0, 1, 2]


def test_captures_that_cannot_be(host: HostRuntime) -> None:
    with pytest.raises(NbxError, match="stream of its own"), host.capture(0, host.default_stream(0)):
        pass
    stream = host.stream(0)
    with host.capture(0, stream):
        with pytest.raises(NbxError, match="already in a capture"), host.capture(0, stream):
            pass
        with pytest.raises(NbxError, match="cannot be recorded in a capture"):
            host.event(0).record(stream)
    with pytest.raises(KeyError), host.capture(0, stream) as capture:
        raise KeyError
    with pytest.raises(NbxError, match="ended in an error"):
        _ = capture.graph
    assert stream.recording is None


def test_the_default_stream_has_no_handle(host: HostRuntime) -> None:
    assert host.default_stream(0).handle is None
    assert host.stream(0).handle is not None


def test_arrays_over_buffers_are_the_buffers_memory(host: HostRuntime) -> None:
    buffer = host.allocate(0, 16)
    assert address_of(buffer.array) == buffer.address
    assert buffer.array.nbytes == buffer.nbytes == 16


def test_a_program_costs_next_to_nothing_beside_its_function(host: HostRuntime) -> None:
    program = host.program(0, [Launch(function=lambda _: None, args=("x",))], slots("x"))
    operands = [np.zeros(1)]
    begin = time.perf_counter()
    for _ in range(1000):
        program.run(operands, None)
    assert (time.perf_counter() - begin) / 1000 < 50e-6
