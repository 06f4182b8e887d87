"""The simulated runtime itself: what it catches, and that its streams really run behind."""

from __future__ import annotations

import gc
import threading
import time

import numpy as np
import pytest

from nbx_registry.errors import NbxError, OutOfMemory
from nbx_registry.launch import Artifact, Launch, Scalar, ScalarOf
from nbx_registry.runtime import Runtime, Slot
from nbx_registry.spec import TensorSpec, parse
from nbx_simulated.memory import MemoryFault
from nbx_simulated.runtime import SimulatedRuntime

SPEC = parse("float32[63]")


@pytest.fixture
def sim():
    return SimulatedRuntime(capacity=1 << 20)


def add_one(memory, x, y):
    memory.array(y, SPEC)[...] = memory.array(x, SPEC) + 1


def program(sim, function=add_one, args=("x", "y"), **stated):
    slots = [Slot("x", SPEC, "input"), Slot("y", SPEC, "output")]
    return sim.program(0, [Launch(function=function, args=args, **stated)], slots)


def put(sim, array, stream=None):
    buffer = sim.allocate(0, array.nbytes, stream)
    sim.copy_in(0, buffer.address, array, stream)
    return buffer


def get(sim, buffer, dtype=np.float32, stream=None):
    array = np.empty(buffer.nbytes // np.dtype(dtype).itemsize, dtype)
    sim.copy_out(0, array, buffer.address, stream)
    return array


NUMBERS = np.arange(63, dtype=np.float32)


def test_it_is_a_runtime_of_two_devices_that_share_nothing(sim):
    assert isinstance(sim, Runtime)
    assert [live.handle for live in sim.devices()] == ["sim:0", "sim:1"]
    address = sim.allocate(1, 16).address
    with pytest.raises(NbxError, match="no allocator of sim:0"):
        sim.check_pointer(0, address)
    with pytest.raises(NbxError, match="there is no sim:2"):
        sim.allocate(2, 16)
    with pytest.raises(NbxError, match="is no stream of sim:0"):
        sim.allocate(0, 16, sim.stream(1))


def test_fresh_memory_is_poisoned_and_aligned(sim):
    buffer = sim.allocate(0, 100)
    assert buffer.address % 256 == 0
    assert set(get(sim, buffer, np.uint8)) == {0xCB}


@pytest.mark.parametrize(
    ("offset", "nbytes", "message"),
    [(1, 100, "out of bounds by 1"), (100, 1, "out of bounds by 1"), (-1, 1, "never allocated"), (0, 300, "by 200")],
)
def test_an_access_outside_of_an_allocation_is_a_fault(sim, offset, nbytes, message):
    buffer = sim.allocate(0, 100)
    with pytest.raises(MemoryFault, match=message):
        sim.memory_of(0).view(buffer.address + offset, nbytes)
    sim.fill(0, buffer.address + offset, 0, nbytes)
    with pytest.raises(MemoryFault, match=message):
        sim.synchronize(0)
    sim.synchronize(0)


def test_negative_strides_are_checked_at_both_ends(sim):
    buffer = put(sim, NUMBERS)
    sim.synchronize(0)
    backwards = TensorSpec(SPEC.dtype, (63,), (-1,))
    last = buffer.address + 62 * 4
    assert np.array_equal(sim.memory_of(0).array(last, backwards), NUMBERS[::-1])
    with pytest.raises(MemoryFault):
        sim.memory_of(0).array(last - 4, backwards)


def test_a_buffer_is_freed_in_the_order_of_its_stream(sim):
    stream = sim.stream(0)
    buffer = put(sim, NUMBERS, stream)
    result = sim.allocate(0, buffer.nbytes)
    sim.delay(0, stream, 0.05)
    program(sim).run((buffer.address, result.address), stream.handle)
    address = buffer.address
    del buffer
    gc.collect()
    assert np.array_equal(get(sim, result, stream=stream), NUMBERS + 1)
    with pytest.raises(MemoryFault, match="use after free"):
        sim.memory_of(0).view(address, 1)
    with pytest.raises(MemoryFault, match="freed twice"):
        sim.memory_of(0).free(address)


def test_memory_is_accounted_pooled_and_runs_out(sim):
    kept, dropped = sim.allocate(0, 1000), sim.allocate(0, 600_000)
    before = sim.memory(0)
    assert (before.live, before.allocations, before.allocated_bytes) == (601_000, 2, 601_000)
    with pytest.raises(OutOfMemory) as raised:
        sim.allocate(0, 600_000)
    assert (raised.value.requested, raised.value.live, raised.value.pooled) == (600_000, 601_000, 0)
    sim.delay(0, dropped.stream, 0.05)
    del dropped
    # Still in use in stream order: the allocation waits for the stream rather than fail.
    again = sim.allocate(0, 900_000)
    assert again.nbytes == 900_000
    del again
    sim.synchronize(0)
    after = sim.memory(0)
    assert (after.live, after.allocations) == (kept.nbytes, 3)
    assert after.pooled >= 900_000
    assert after.free + after.pooled < 1 << 20


def test_streams_run_behind_the_host_and_beside_each_other(sim):
    first, second = sim.stream(0), sim.stream(0)
    x, y = put(sim, NUMBERS), put(sim, np.zeros(63, np.float32))
    sim.synchronize(0)
    sim.delay(0, first, 0.2)
    started = time.perf_counter()
    program(sim).run((x.address, y.address), first.handle)
    assert time.perf_counter() - started < 0.15
    assert np.all(get(sim, y, stream=second) == 0)
    assert np.array_equal(get(sim, y, stream=first), NUMBERS + 1)
    assert time.perf_counter() - started >= 0.19


def test_a_host_copy_takes_the_source_as_it_was(sim):
    stream = sim.stream(0)
    source = NUMBERS.copy()
    sim.delay(0, stream, 0.05)
    buffer = put(sim, source, stream)
    source[:] = -1
    assert np.array_equal(get(sim, buffer, stream=stream), NUMBERS)


def test_events_order_streams_and_tell_time(sim):
    first, second = sim.stream(0), sim.stream(0)
    x, y, z = put(sim, NUMBERS), sim.allocate(0, 252), sim.allocate(0, 252)
    sim.synchronize(0)
    begin, done = sim.event(0), sim.event(0)
    second.wait(done)
    begin.record(first)
    sim.delay(0, first, 0.05)
    program(sim).run((x.address, y.address), first.handle)
    done.record(first)
    with pytest.raises(NbxError, match="recorded and reached"):
        done.elapsed_s(begin)
    second.wait(done)
    program(sim).run((y.address, z.address), second.handle)
    assert np.array_equal(get(sim, z, stream=second), NUMBERS + 2)
    done.synchronize()
    assert 0.05 <= done.elapsed_s(begin) < 5


def test_a_capture_records_and_replays_on_new_contents(sim):
    stream = sim.stream(0)
    x, y = put(sim, NUMBERS), put(sim, np.zeros(63, np.float32))
    between = sim.allocate(0, 252, stream)
    sim.synchronize(0)
    with sim.capture(0, stream) as capture:
        program(sim).run((x.address, between.address), stream.handle)
        program(sim).run((between.address, y.address), stream.handle)
        with pytest.raises(NbxError, match="under capture"):
            sim.allocate(0, 16, stream)
        with pytest.raises(NbxError, match="under capture"):
            stream.synchronize()
        address = between.address
        del between
        gc.collect()
    assert np.all(get(sim, y) == 0)
    for scale in (1, 3):
        sim.copy_in(0, x.address, NUMBERS * scale)
        sim.synchronize(0)
        capture.graph.replay(stream)
        assert np.array_equal(get(sim, y, stream=stream), NUMBERS * scale + 2)
    capture.graph = None
    gc.collect()
    stream.synchronize()
    assert not sim.memory_of(0).holds(address)


def test_launches_take_scalars_offsets_and_loaded_source(sim):
    seen = []
    artifact = Artifact(
        image=b"def entry(memory, x, a, b, *rest):\n    rest[0].append((x, a, b))\n",
        kind="python",
        entry="entry",
        arch="sim_1",
        toolkit="python",
    )
    loaded = sim.load(0, artifact)

    def function(memory, x, a, b):
        loaded(memory, x, a, b, seen)

    launch = Launch(function=function, args=("x", Scalar(2.5, "float32"), ScalarOf("b", "int32")), offsets=(("x", 8),))
    slots = [Slot("x", SPEC, "input"), Slot("b", TensorSpec(SPEC.dtype, (), weak=True), "input")]
    packed = sim.program(0, [launch], slots)
    packed.run((0x100, 7))
    sim.synchronize(0)
    assert seen == [(0x108, 2.5, 7)]
    with pytest.raises(NbxError, match="takes 2 operands \\(x, b\\), got 1"):
        packed.run((0x100,))
    with pytest.raises(NbxError, match="loads python"):
        sim.load(0, Artifact(image=b"", kind="cubin", entry="k", arch="sm_90", toolkit="t"))


@pytest.mark.parametrize(
    ("stated", "message"),
    [
        ({"args": ("x",)}, "does not take 1 arguments"),
        ({"args": ("x", "z")}, "'z', which is none of its slots"),
        ({"offsets": (("z", 1),)}, "offsets 'z'"),
        ({"function": 3}, "is a Python function"),
    ],
    ids=["too-few", "unknown", "offset", "function"],
)
def test_a_launch_that_does_not_fit_is_refused_when_packed(sim, stated, message):
    with pytest.raises(NbxError, match=message):
        program(sim, **stated)


def test_an_empty_grid_launches_nothing(sim):
    x, y = put(sim, NUMBERS), put(sim, NUMBERS)
    program(sim, grid=(0, 1, 1)).run((x.address, y.address))
    assert np.array_equal(get(sim, y), NUMBERS)


def test_what_a_kernel_raises_is_told_once_where_the_host_waits(sim):
    def broken(memory, x, y):
        raise ValueError("no")

    x = put(sim, NUMBERS)
    program(sim, broken).run((x.address, x.address))
    with pytest.raises(MemoryFault, match="a kernel raised ValueError: no"):
        get(sim, x)
    assert np.array_equal(get(sim, x), NUMBERS)


def test_many_threads_use_one_program(sim):
    packed = program(sim)
    wrong = []

    def work(seed):
        stream = sim.stream(0)
        for turn in range(20):
            numbers = NUMBERS + seed * 100 + turn
            x, y = put(sim, numbers, stream), sim.allocate(0, 252, stream)
            packed.run((x.address, y.address), stream.handle)
            if not np.array_equal(get(sim, y, stream=stream), numbers + 1):
                wrong.append((seed, turn))

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
    del work
    gc.collect()
    sim.synchronize(0)
    assert sim.memory(0).live == 0


def test_workers_end_with_their_streams(sim):
    stream = sim.stream(0)
    stream.synchronize()
    workers = [thread for thread in threading.enumerate() if thread.name.endswith(f"{stream.handle:#x}")]
    assert len(workers) == 1
    del stream
    gc.collect()
    workers[0].join(5)
    assert not workers[0].is_alive()
