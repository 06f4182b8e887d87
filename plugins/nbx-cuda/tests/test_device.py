"""The runtime on a real device."""

from __future__ import annotations

import gc
import struct
import subprocess
import sys
import textwrap
import threading
import time
from pathlib import Path

import numpy as np
import pytest

from nbx_cuda.runtime import CudaError
from nbx_cuda.runtime.context import Context
from nbx_registry.errors import NbxError, OutOfMemory
from nbx_registry.launch import Artifact, Launch, Scalar, ScalarOf
from nbx_registry.runtime import Runtime, Slot
from nbx_registry.spec import TensorSpec, parse

pytestmark = pytest.mark.gpu

COUNT = 1000
"""Not a multiple of the block."""


def adder(cuda, kernels, value: float = 1.0, device: int = 0):
    function = cuda.load(device, kernels("add_value", 4))
    launch = Launch(
        function=function,
        args=("x", "y", Scalar(value, "float32"), Scalar(COUNT, "uint32")),
        grid=(-(-COUNT // 128), 1, 1),
        block=(128, 1, 1),
    )
    spec = parse(f"float32[{COUNT}]")
    return cuda.program(device, [launch], [Slot("x", spec, "input"), Slot("y", spec, "output")])


def numbers(seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(COUNT).astype(np.float32)


def test_it_is_a_runtime_with_devices_described_in_the_words_of_device_files(cuda):
    assert isinstance(cuda, Runtime)
    assert cuda.why_absent() == ""
    for index, live in enumerate(cuda.devices()):
        assert (live.runtime, live.index, live.handle) == ("cuda", index, f"cuda:{index}")
        assert live.name.startswith("NVIDIA")
        assert live.arch.startswith("sm_")
        for fact in ("memory.bytes", "l2.bytes", "multiprocessors", "shared.bytes_per_block_optin", "warp.width"):
            assert live.detected[fact] > 0
        assert set(live.versions) == {"driver", "cuda-core", "cuda-bindings"}


def test_a_device_that_is_not_there_is_refused_by_name(cuda):
    with pytest.raises(CudaError, match=rf"there is no cuda:99: the driver shows {len(cuda.devices())}"):
        cuda.allocate(99, 16)


@pytest.mark.parametrize("count", [1, 63, 1000, 1_000_003])
def test_bytes_come_back_as_they_went(cuda, placed, count):
    sent = np.random.default_rng(count).integers(0, 256, count, dtype=np.uint8)
    buffer = placed.put(sent)
    assert buffer.address % 256 == 0
    assert np.array_equal(placed.get(buffer, np.uint8), sent)


def test_copies_and_fills_reach_exactly_the_bytes_asked_for(cuda, placed):
    source, target = placed.put(np.arange(200, dtype=np.uint8)), placed.empty(200)
    cuda.fill(0, target.address, 0xA5, 200)
    cuda.copy(0, target.address + 3, source.address + 1, 7)
    expected = np.full(200, 0xA5, np.uint8)
    expected[3:10] = np.arange(1, 8)
    assert np.array_equal(placed.get(target, np.uint8), expected)


def test_empty_copies_do_nothing_and_empty_buffers_have_an_address(cuda, placed):
    buffer = placed.empty(0)
    assert buffer.address
    assert buffer.nbytes == 0
    cuda.copy_in(0, buffer.address, np.empty(0, np.float32))
    cuda.copy_out(0, np.empty(0, np.float32), buffer.address)
    cuda.copy(0, buffer.address, buffer.address, 0)
    cuda.fill(0, buffer.address, 1, 0)


def test_host_arrays_that_cannot_be_copied_are_refused(cuda, placed):
    buffer = placed.empty(400)
    with pytest.raises(NbxError, match="only contiguous"):
        cuda.copy_in(0, buffer.address, np.zeros((10, 20), np.float32)[:, ::2])
    frozen = np.zeros(4, np.float32)
    frozen.flags.writeable = False
    with pytest.raises(NbxError, match="read-only"):
        cuda.copy_out(0, frozen, buffer.address)


def test_memory_is_accounted_and_returns_to_the_pool(cuda, placed):
    before = cuda.memory(0)
    buffer = placed.empty(1 << 20)
    during = cuda.memory(0)
    assert during.live - before.live == 1 << 20
    assert during.allocations - before.allocations == 1
    assert during.allocated_bytes - before.allocated_bytes == 1 << 20
    del buffer
    gc.collect()
    cuda.synchronize(0)
    after = cuda.memory(0)
    assert after.live == before.live
    assert after.allocations == during.allocations
    assert after.pooled >= 1 << 20
    cuda.trim(0)
    assert cuda.memory(0).pooled < after.pooled


def test_out_of_memory_says_its_figures_and_the_caller_goes_on(cuda, placed):
    kept = placed.put(numbers())
    total = cuda.devices()[0].detected["memory.bytes"]
    with pytest.raises(OutOfMemory, match=f"{2 * total} bytes requested") as raised:
        cuda.allocate(0, 2 * total)
    error = raised.value
    assert error.requested == 2 * total
    assert error.live >= kept.nbytes
    assert error.pooled >= 0
    assert 0 < error.free <= total
    again = placed.empty(1 << 20)
    cuda.fill(0, again.address, 7, again.nbytes)
    assert set(placed.get(again, np.uint8)) == {7}
    assert np.array_equal(placed.get(kept, np.float32), numbers())


def test_a_buffer_is_freed_behind_the_work_that_uses_it(cuda, placed, kernels):
    stream = cuda.stream(0)
    result = placed.empty(4 * COUNT)
    operand = cuda.allocate(0, 4 * COUNT, stream)
    cuda.copy_in(0, operand.address, numbers(), stream)
    cuda.delay(0, stream, 0.05)
    adder(cuda, kernels).run((operand.address, result.address), stream.handle)
    del operand
    gc.collect()
    # Would take the operand's memory and overwrite it, if it had been freed at once.
    other = cuda.allocate(0, 4 * COUNT, stream)
    cuda.fill(0, other.address, 0xFF, 4 * COUNT, stream)
    assert np.array_equal(placed.get(result, np.float32, stream), numbers() + 1)


def test_a_kernel_runs(cuda, placed, kernels):
    x, y = placed.put(numbers()), placed.put(np.full(COUNT + 1, -5, np.float32))
    adder(cuda, kernels, 0.5).run((x.address, y.address))
    result = placed.get(y, np.float32)
    assert np.array_equal(result[:-1], numbers() + np.float32(0.5))
    assert result[-1] == -5


def test_parameters_arrive_byte_for_byte(cuda, placed, kernels):
    out = placed.empty(40)
    launch = Launch(
        function=cuda.load(0, kernels("dump", 6)),
        args=(
            "out",
            "x",
            Scalar(-2, "int32"),
            ScalarOf("h", "float16"),
            Scalar(200, "uint8"),
            ScalarOf("d", "float64"),
        ),
        offsets=(("x", 5),),
    )
    weak = TensorSpec(parse("float64[]").dtype, (), weak=True)
    slots = [
        Slot("out", parse("uint64[5]"), "output"),
        Slot("x", parse("uint8[9]"), "input"),
        Slot("h", weak, "input"),
        Slot("d", weak, "input"),
    ]
    cuda.program(0, [launch], slots).run((out.address, 0x1234_5678_9ABC, 1.5, 0.1))
    half, double = struct.unpack("<H", struct.pack("<e", 1.5))[0], struct.unpack("<Q", struct.pack("<d", 0.1))[0]
    assert placed.get(out, np.uint64).tolist() == [0x1234_5678_9AC1, 2**32 - 2, half, 200, double]


def test_dynamic_shared_memory_beyond_the_default_is_asked_for(cuda, placed, kernels):
    nbytes = 64 * 1024
    out = placed.empty(4)
    args = ("out", Scalar(nbytes, "uint32"), Scalar(12345, "uint32"))
    launch = Launch(function=cuda.load(0, kernels("far_shared", 3)), args=args, shared_bytes=nbytes)
    cuda.program(0, [launch], [Slot("out", parse("uint32[1]"), "output")]).run((out.address,))
    assert placed.get(out, np.uint32).tolist() == [12345]
    limit = cuda.devices()[0].detected["shared.bytes_per_block_optin"]
    with pytest.raises(NbxError, match=f"asks for {limit + 1} bytes of dynamic shared memory"):
        cuda.load(0, kernels("far_shared", 3, limit + 1))


def test_code_that_cannot_be_loaded_is_refused_with_its_name(cuda, kernels):
    good = kernels("add_value", 4)
    with pytest.raises(NbxError, match="said to take 5 parameters; its ptx takes 4"):
        cuda.load(0, kernels("add_value", 5))
    with pytest.raises(CudaError, match="loading absent for sm_70 on cuda:0"):
        cuda.load(0, kernels("absent", 4))
    with pytest.raises(NbxError, match="hsaco code for gfx942"):
        cuda.load(0, Artifact(image=b"", kind="hsaco", entry="k", arch="gfx942", toolkit="triton 3.6.0"))
    empty = b"\x7fELF\x02\x01\x01" + bytes(8192)
    with pytest.raises(CudaError, match="loading nothing for sm_90"):
        cuda.load(0, Artifact(image=empty, kind="cubin", entry="nothing", arch="sm_90", toolkit="none"))
    assert cuda.load(0, good) is cuda.load(0, good)


def test_one_too_few_arguments_are_refused_before_the_launch(cuda, kernels):
    function = cuda.load(0, kernels("add_value", 4))
    with pytest.raises(NbxError, match="takes 4 parameters, the launch gives 3"):
        cuda.program(0, [Launch(function=function, args=("x", "y", Scalar(1.0, "float32")))], [])


def test_a_pointer_that_nobody_allocated_is_told_apart(cuda, placed):
    buffer = placed.empty(100)
    cuda.check_pointer(0, buffer.address + 99)
    for address in (0x10, id(buffer), 1 << 60):
        with pytest.raises(NbxError, match=f"{address:#x} was made by no allocator of cuda:0"):
            cuda.check_pointer(0, address)


def test_streams_run_behind_the_host_and_keep_their_order(cuda, placed, kernels):
    stream = cuda.stream(0)
    x, y = placed.put(numbers()), placed.put(np.zeros(COUNT, np.float32))
    run = adder(cuda, kernels).run
    run((x.address, y.address), stream.handle)
    cuda.fill(0, y.address, 0, y.nbytes, stream)
    stream.synchronize()
    cuda.delay(0, stream, 0.2)
    started = time.perf_counter()
    run((x.address, y.address), stream.handle)
    assert time.perf_counter() - started < 0.1
    # Another stream does not wait, and sees what was there before.
    assert np.all(placed.get(y, np.float32, cuda.stream(0)) == 0)
    assert np.array_equal(placed.get(y, np.float32, stream), numbers() + 1)
    assert time.perf_counter() - started > 0.1


def test_an_event_carries_order_and_time_between_streams(cuda, placed, kernels):
    first, second = cuda.stream(0), cuda.stream(0)
    x, y, z = placed.put(numbers()), placed.empty(4 * COUNT), placed.empty(4 * COUNT)
    program = adder(cuda, kernels)
    start, done = cuda.event(0), cuda.event(0)
    start.record(first)
    cuda.delay(0, first, 0.05)
    program.run((x.address, y.address), first.handle)
    done.record(first)
    second.wait(done)
    program.run((y.address, z.address), second.handle)
    assert np.array_equal(placed.get(z, np.float32, second), numbers() + 1 + 1)
    done.synchronize()
    assert 0.05 <= done.elapsed_s(start) < 1


def test_a_delay_lasts_about_as_long_as_asked(cuda):
    stream = cuda.stream(0)
    cuda.delay(0, stream, 0.001)
    before, after = cuda.event(0), cuda.event(0)
    before.record(stream)
    cuda.delay(0, stream, 0.02)
    after.record(stream)
    after.synchronize()
    assert 0.019 < after.elapsed_s(before) < 0.1


def test_a_raw_handle_is_a_stream_too(cuda, placed, kernels):
    stream = cuda.stream(0)
    for handle in (stream.handle, 0, 1, 2):
        buffer = cuda.allocate(0, 4 * COUNT, handle)
        cuda.copy_in(0, buffer.address, numbers(), handle)
        result = placed.empty(4 * COUNT)
        cuda.default_stream(0).synchronize()
        adder(cuda, kernels).run((buffer.address, result.address), handle)
        assert np.array_equal(placed.get(result, np.float32, handle), numbers() + 1)
        del buffer


def test_a_graph_replays_on_new_contents(cuda, placed, kernels):
    stream = cuda.stream(0)
    x, y, z = placed.put(numbers()), placed.put(np.zeros(COUNT, np.float32)), placed.empty(4 * COUNT)
    cuda.fill(0, z.address, 0, z.nbytes)
    cuda.synchronize(0)
    program = adder(cuda, kernels)
    with cuda.capture(0, stream) as capture:
        program.run((x.address, y.address), stream.handle)
        cuda.copy(0, z.address, y.address, 4 * COUNT, stream)
    cuda.synchronize(0)
    assert np.all(placed.get(z, np.float32) == 0), "a capture runs nothing"
    other = cuda.stream(0)
    for seed, replay_on in ((0, stream), (1, other), (2, stream)):
        cuda.copy_in(0, x.address, numbers(seed))
        capture.graph.replay(replay_on)
        assert np.array_equal(placed.get(z, np.float32, replay_on), numbers(seed) + 1)


def test_what_is_dropped_during_a_capture_lives_with_the_graph(cuda, placed, kernels):
    stream = cuda.stream(0)
    x, y = placed.put(numbers()), placed.empty(4 * COUNT)
    between = cuda.allocate(0, 4 * COUNT, stream)
    program = adder(cuda, kernels)
    with cuda.capture(0, stream) as capture:
        program.run((x.address, between.address), stream.handle)
        program.run((between.address, y.address), stream.handle)
        del between
        gc.collect()
    taken = cuda.allocate(0, 4 * COUNT, stream)
    cuda.fill(0, taken.address, 0xFF, 4 * COUNT, stream)
    capture.graph.replay(stream)
    assert np.array_equal(placed.get(y, np.float32, stream), numbers() + 1 + 1)
    assert set(placed.get(taken, np.uint8, stream)) == {0xFF}
    capture.graph.replay(cuda.default_stream(0))
    capture.graph = None
    assert np.array_equal(placed.get(y, np.float32), numbers() + 1 + 1)


def test_a_capture_that_fails_leaves_the_stream_usable(cuda, placed, kernels):
    stream = cuda.stream(0)
    x, y = placed.put(numbers()), placed.empty(4 * COUNT)
    capture = cuda.capture(0, stream)

    def fail() -> None:
        with capture:
            adder(cuda, kernels).run((x.address, y.address), stream.handle)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert capture.graph is None
    with pytest.raises(NbxError, match="on a stream under capture"), cuda.capture(0, stream):
        cuda.allocate(0, 16, stream)
    adder(cuda, kernels).run((x.address, y.address), stream.handle)
    assert np.array_equal(placed.get(y, np.float32, stream), numbers() + 1)


def test_threads_that_never_touched_the_device_run_one_program_at_once(cuda, placed, kernels):
    program = adder(cuda, kernels)
    wrong: list[object] = []
    start = threading.Barrier(16)

    def work(seed: int) -> None:
        try:
            start.wait(timeout=60)
            # The launch comes first: no other call has given this thread a context.
            program.run((shared[0].address, shared[1].address), 0)
            stream = cuda.stream(0)
            x, y = cuda.allocate(0, 4 * COUNT, stream), cuda.allocate(0, 4 * COUNT, stream)
            for turn in range(20):
                expected = numbers(seed * 100 + turn)
                cuda.copy_in(0, x.address, expected, stream)
                program.run((x.address, y.address), stream.handle)
                if not np.array_equal(placed.get(y, np.float32, stream), expected + 1):
                    wrong.append((seed, turn))
        except Exception as error:  # noqa: BLE001 (a thread's failure is the test's)
            wrong.append(error)

    shared = placed.put(numbers()), placed.empty(4 * COUNT)
    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_a_launch_from_a_thread_on_another_device_runs_where_its_code_is(cuda, placed, kernels, second_device):
    elsewhere = Context(second_device)
    x, y = placed.put(numbers()), placed.empty(4 * COUNT)
    program = adder(cuda, kernels)
    cuda.default_stream(0).synchronize()
    with elsewhere.current():
        inside = elsewhere._current()
        for handle in (0, cuda.default_stream(0).handle):
            program.run((x.address, y.address), handle)
            assert elsewhere._current() == inside, "the thread's own context is back"
            assert np.array_equal(placed.get(y, np.float32, handle), numbers() + 1)
            cuda.fill(0, y.address, 0, y.nbytes)
            cuda.synchronize(0)


def test_devices_do_not_mix(cuda, kernels, second_device):
    x, y = cuda.allocate(0, 4 * COUNT), cuda.allocate(second_device, 4 * COUNT)
    cuda.copy_in(0, x.address, numbers())
    cuda.copy(second_device, y.address, x.address, 4 * COUNT)
    back = np.empty(COUNT, np.float32)
    cuda.copy_out(second_device, back, y.address)
    assert np.array_equal(back, numbers())
    with pytest.raises(NbxError, match=f"memory of cuda:{second_device}, not of cuda:0"):
        cuda.check_pointer(0, y.address)
    with pytest.raises(NbxError, match=f"no stream of cuda:{second_device}"):
        cuda.allocate(second_device, 16, cuda.stream(0))
    function = cuda.load(0, kernels("add_value", 4))
    with pytest.raises(NbxError, match=f"cannot be launched on cuda:{second_device}"):
        cuda.program(second_device, [Launch(function=function, args=())], [])


@pytest.mark.filterwarnings("default")  # torch's own, at import
def test_torch_shares_the_context_and_its_streams(cuda, kernels, torch):
    x = torch.randn(COUNT, device="cuda:0")
    y = torch.empty_like(x)
    program = adder(cuda, kernels)
    for stream in (torch.cuda.default_stream(0), torch.cuda.Stream(0)):
        with torch.cuda.stream(stream):
            stream.wait_stream(torch.cuda.default_stream(0))
            x.copy_(torch.randn(COUNT, device="cuda:0"))
            cuda.check_pointer(0, x.data_ptr())
            program.run((x.data_ptr(), y.data_ptr()), torch.cuda.current_stream(0).cuda_stream)
            assert torch.equal(y, x + 1)


def test_a_kernel_that_faults_is_reported_where_the_host_waits(cuda):
    # In a process of its own: the fault takes the context with it.
    script = """
        import re, sys
        sys.path.insert(0, {folder!r})
        from conftest import ptx
        from nbx_cuda.runtime import CudaError, create
        from nbx_registry.launch import Launch, Scalar
        cuda = create()
        args = (Scalar(0x10, "uint64"), Scalar(0x10, "uint64"), Scalar(1.0, "float32"), Scalar(1, "uint32"))
        launch = Launch(function=cuda.load(0, ptx("add_value", 4)), args=args)
        cuda.program(0, [launch], ()).run(())
        try:
            cuda.synchronize(0)
        except CudaError as error:
            assert re.search("waiting for cuda:0: CUDA_ERROR_ILLEGAL_ADDRESS", str(error)), error
        else:
            raise AssertionError("no error")
    """
    code = textwrap.dedent(script).format(folder=str(Path(__file__).parent))
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
