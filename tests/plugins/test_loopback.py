"""Dispatch itself, on two devices that are not there: what arrives where, in which order, in whose memory."""

from __future__ import annotations

import gc
import threading
import time
from types import SimpleNamespace

import numpy as np
import pytest

import nbx_registry as nbx
import nbx_simulated.plugin
from nbx_registry import dtypes
from nbx_registry.contracts import ALL
from nbx_registry.errors import OutOfMemory, Refused, SignatureError
from nbx_registry.hookspecs import hookimpl
from nbx_registry.kernel import Kernel, Workspace
from nbx_registry.registry import set_default
from nbx_registry.rounding import round_to_float
from nbx_simulated.memory import MemoryFault
from nbx_simulated.runtime import CAPACITY


class Extras:
    """Kernels over the loopback binder whose data is what a test is about."""

    NBX_HOOKS = 1
    name = "nbx-extras"

    @hookimpl
    def nbx_register_kernels(self):
        loopback = {"backend": "loopback", "runtimes": ("sim",), "overlap": "any", "deterministic": True}
        return [
            Kernel(
                id="nbx-extras/sqrt/tma",
                op="sqrt@1",
                when=("device.async_copy.tma",),
                bind="nbx_simulated.kernels:bind",
                **loopback,
            ),
            Kernel(
                id="nbx-extras/gelu/scratch",
                op="gelu@1",
                preference=1,
                when=("x.contiguous", "x.dtype == float32"),
                workspace=(Workspace(name="scratch", dtype="float32", shape=("3", "x.size")),),
                bind="nbx_simulated.kernels:bind_by_workspace",
                **loopback,
            ),
            Kernel(
                id="nbx-extras/softmax/strict",
                op="softmax@1",
                preference=1,
                bind="nbx_simulated.kernels:bind",
                **{**loopback, "overlap": "refuse"},
            ),
        ]


@pytest.fixture(scope="module")
def registry():
    made = nbx.load(plugins=[nbx_simulated.plugin, Extras()], require="any")
    before = set_default(made)
    yield made
    set_default(before)


@pytest.fixture
def sim(registry):
    runtime = registry.runtime("sim")
    yield runtime
    gc.collect()
    for device in (0, 1):
        runtime.synchronize(device)


def numbers(*shape: int, seed: int = 0, dtype=np.float32) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(dtype)


def on(device: int, array: np.ndarray) -> nbx.Tensor:
    return nbx.asarray(array, device=f"sim:{device}")


PACKED = [
    np.arange(-40, 45, dtype=np.int32).reshape(17, 5) * 50_000_017,
    *(abs(numbers(2, 5, seed=seed, dtype=np.float16)) for seed in (1, 2)),
]
POOL = [numbers(5, 2, 4, 9, seed=seed) for seed in (1, 2)]
TABLE = np.array([[3, 0, -1], [4, 1, 2], [-1, -1, -1]], np.int32)
LENS = np.array([6, 11, 0], np.int32)
REQUESTS = {
    "add@1": ([numbers(9, 7), numbers(7)], {}),
    "multiply@1": ([numbers(9, 7), 2.5], {}),
    "divide@1": ([numbers(63), numbers(63, seed=1)], {}),
    "astype@1": ([numbers(127)], {"dtype": "bfloat16"}),
    "sum@1": ([numbers(3, 5, 7)], {"axis": (0, 2)}),
    "sqrt@1": ([abs(numbers(65))], {}),
    "gelu@1": ([numbers(129, dtype=np.float16)], {"approximate": "tanh"}),
    "subtract@1": ([numbers(9, 7), numbers(7)], {}),
    "negative@1": ([numbers(65)], {}),
    "abs@1": ([numbers(65)], {}),
    "reciprocal@1": ([numbers(65)], {}),
    "pow@1": ([abs(numbers(9, 7)), numbers(7)], {}),
    "rsqrt@1": ([abs(numbers(65))], {}),
    "exp@1": ([numbers(65)], {}),
    "log@1": ([abs(numbers(65))], {}),
    "tanh@1": ([numbers(65)], {}),
    "erf@1": ([numbers(65)], {}),
    "relu@1": ([numbers(65)], {}),
    "sigmoid@1": ([numbers(65)], {}),
    "silu@1": ([numbers(65)], {}),
    "maximum@1": ([numbers(9, 7), numbers(7)], {}),
    "minimum@1": ([numbers(9, 7), 0.25], {}),
    "clip@1": ([numbers(9, 7), numbers(7), 1.5], {}),
    "where@1": ([np.arange(7) % 3 > 0, numbers(9, 7), numbers(7)], {}),
    "embedding@1": ([numbers(11, 5), np.array([[3, 0], [10, 3], [7, 7]])], {}),
    "layer_norm@1": ([numbers(5, 31), None, numbers(31)], {"eps": 1e-6}),
    "softmax@1": ([numbers(5, 63)], {"axis": 0}),
    "matmul@1": ([numbers(2, 1, 7, 9), numbers(3, 9, 5)], {}),
    "linear@1": ([numbers(3, 7), numbers(5, 7), numbers(5)], {"activation": "gelu"}),
    "scaled_dot_product_attention@1": (
        [numbers(2, 4, 7, 9), numbers(2, 2, 11, 9), numbers(2, 2, 11, 5), np.arange(11) % 3 > 0],
        {"causal": True},
    ),
    "permute_dims@1": ([numbers(2, 3, 5)], {"axes": (2, 0, 1), "copy": True}),
    "pixel_shuffle@1": ([numbers(2, 12, 3, 5)], {"r": 2}),
    "paged_kv_append@1": ([numbers(3, 2, 5), np.array([7, -1, 0], np.int32), numbers(2, 2, 4, 5)], {}),
    "decode_attention@1": ([numbers(2, 4, 9), numbers(2, 2, 13, 9), numbers(2, 2, 13, 5), None], {}),
    "decode_attention_reduce@1": ([numbers(6, 3, 5), numbers(6, 3), abs(numbers(6, 3))], {}),
    "full@1": ([], {"shape": (3, 7), "fill_value": 2.5, "dtype": "bfloat16"}),
    "arange@1": ([], {"start": 3, "stop": 66, "step": 5}),
    "random_bits@1": ([], {"shape": 63, "seed": 7, "offset": 3}),
    "uniform@1": ([], {"shape": (3, 7), "seed": 7}),
    "normal@1": ([], {"shape": (3, 7), "seed": 7, "dtype": "float16"}),
    "quantize_int4@1": ([numbers(136, 5)], {}),
    "dequant_int4@1": (PACKED, {}),
    "dequant_gemv_int4@1": ([numbers(136), *PACKED], {}),
    "dequant_matmul_int4@1": ([numbers(3, 136), *PACKED], {}),
    "mean@1": ([numbers(3, 5, 7)], {"axis": 1}),
    "prod@1": ([numbers(3, 5, 7)], {"axis": (0, 2)}),
    "max@1": ([numbers(3, 5, 7)], {"axis": -1, "keepdims": True}),
    "argmax@1": ([numbers(3, 5, 7)], {"axis": 1}),
    "rms_norm@1": ([numbers(5, 31), numbers(31)], {}),
    "group_norm@1": ([numbers(2, 6, 5), numbers(6), numbers(6, seed=1)], {"groups": 3}),
    "conv2d@1": ([numbers(2, 4, 7, 9), numbers(6, 2, 3, 2), numbers(6)], {"groups": 2, "padding": 1}),
    "depthwise_conv2d@1": ([numbers(2, 5, 7, 9), numbers(5, 1, 3, 3), None], {"stride": 2, "padding": 1}),
    "pixel_unshuffle@1": ([numbers(2, 3, 4, 10)], {"r": 2}),
    "concat@1": ([[numbers(3, 5), numbers(1, 5, dtype=np.float16)]], {"axis": 0}),
    "broadcast_to@1": ([numbers(3, 1, 5)], {"shape": (2, 3, 4, 5), "copy": True}),
    "take@1": ([numbers(7, 5), np.array([6, 0, 3])], {"axis": 0}),
    "topk@1": ([numbers(5, 31)], {"k": 7}),
    "rotary_embedding@1": ([numbers(2, 3, 5, 8), np.arange(10).reshape(2, 5), numbers(11, 4), numbers(11, 4)], {}),
    "paged_kv_append_step@1": ([numbers(3, 2, 9), numbers(3, 2, 9, seed=1), *POOL, TABLE, LENS], {}),
    "paged_lens_advance@1": ([LENS], {"n": 2}),
    "paged_decode_attention@1": ([numbers(3, 4, 9), *POOL, TABLE, LENS], {"longest": 12}),
    "rfft_basis@1": ([], {"n": 30}),
    "irfft_basis@1": ([], {"n": 31}),
    "rfft@1": ([numbers(3, 31)], {}),
    "irfft@1": ([numbers(3, 16) + 1j * numbers(3, 16, seed=1)], {"n": 31}),
}


def test_every_op_of_the_core_has_a_request_here_and_a_loopback_kernel():
    assert set(REQUESTS) == {op.id for op in ALL} == set(nbx_simulated.plugin.OPS)


@pytest.mark.parametrize("device", [0, 1])
@pytest.mark.parametrize("op", REQUESTS, ids=lambda op: op.partition("@")[0])
def test_every_op_arrives_whole_and_its_result_comes_back(registry, sim, op, device):
    tensors, attributes = REQUESTS[op]
    name = op.partition("@")[0]
    placed = [
        on(device, t) if isinstance(t, np.ndarray) else [on(device, item) for item in t] if isinstance(t, list) else t
        for t in tensors
    ]
    signature, place = registry.signature(name, *placed, **attributes)
    # Where nothing says so, a result is on the host.
    assert place == (f"sim:{device}" if tensors else "cpu")
    expected = signature.op.run_oracle(signature, tensors)
    mutable = [value for param, value in zip(signature.op.tensors, placed, strict=False) if param.mutable]
    returned = registry.call(name, *placed, device=f"sim:{device}", **attributes)
    outputs = returned if isinstance(returned, tuple) else () if returned is None else (returned,)
    specs = [*signature.outputs, *(tensor.spec for tensor in mutable)]
    assert len(outputs) + len(mutable) == len(expected)
    for result, spec, wide in zip((*outputs, *mutable), specs, expected, strict=True):
        assert (result.device, result.dtype, result.shape) == (f"sim:{device}", spec.dtype, spec.shape)
        exact = round_to_float(wide, spec.dtype) if spec.dtype.floating else np.asarray(wide, spec.dtype.numpy)
        common = np.complex128 if spec.dtype.kind == "complex" else np.float64
        assert np.array_equal(result.numpy().astype(common), np.asarray(exact, common), equal_nan=True)


def test_a_view_is_read_through_its_strides(registry, sim):
    x = numbers(6, 8)
    tensor = on(0, x)
    for view, same in (
        (tensor.permute((1, 0)), x.T),
        (tensor[1:, ::3], x[1:, ::3]),
        (tensor[:, 3:4].expand((6, 5)), np.broadcast_to(x[:, 3:4], (6, 5))),
    ):
        assert np.array_equal(registry.call("sqrt", registry.call("multiply", view, view)).numpy(), np.abs(same))


def test_out_is_written_in_place_and_returned(registry, sim):
    x = numbers(63)
    tensor, out = on(0, x), nbx.empty(63, device="sim:0")
    before = sim.memory(0).allocations
    assert registry.call("add", tensor, tensor, out=out) is out
    assert sim.memory(0).allocations == before
    assert np.array_equal(out.numpy(), x + x)
    assert registry.call("add", tensor, tensor, out=tensor) is tensor
    assert np.array_equal(tensor.numpy(), x + x)


def test_an_output_over_an_input_is_refused_where_the_kernel_says_so(registry, sim):
    x = numbers(3, 21)
    tensor = on(0, x)
    with pytest.raises(Refused, match="OVERLAP"):
        registry.call("softmax", tensor, out=tensor)
    with pytest.raises(Refused, match="OVERLAP"):
        registry.call("softmax", tensor[:2], out=tensor[1:])
    assert np.array_equal(tensor.numpy(), x)
    registry.call("softmax", tensor[:1], out=tensor[1:2])


def test_memory_taken_is_outputs_and_declared_workspace(registry, sim):
    x = on(0, numbers(63))
    assert registry.bind("gelu", x).kernel == "nbx-extras/gelu/scratch"
    registry.call("gelu", x)
    sim.synchronize(0)
    before = sim.memory(0)
    result = registry.call("gelu", x)
    sim.synchronize(0)
    after = sim.memory(0)
    assert after.allocations - before.allocations == 2
    assert after.allocated_bytes - before.allocated_bytes == result.nbytes + 63 * 3 * 4
    assert after.live - before.live == result.nbytes, "workspace is back"


def test_workspace_is_there_until_the_last_launch_is_through(registry, sim):
    stream = sim.stream(0)
    x = on(0, numbers(63))
    sim.synchronize(0)
    with nbx.stream(stream):
        sim.delay(0, stream, 0.02)
        called = registry.call("gelu", x)
        out = nbx.empty(63, device="sim:0")
        bound = registry.bind("gelu", x, out=out)
        for _ in range(3):
            bound()
        del bound
        gc.collect()
        pinned = registry.call("gelu", x, kernel="nbx-simulated/gelu/loopback")
        assert np.array_equal(called.numpy(), pinned.numpy())
        assert np.array_equal(out.numpy(), pinned.numpy())


def test_capabilities_decide_which_device_a_kernel_runs_on(registry, sim):
    kernel = "nbx-extras/sqrt/tma"
    small = registry.decide("sqrt", "float32[3]", device="sim:0")
    assert small.chosen == "nbx-simulated/sqrt/loopback"
    assert small.candidate(kernel).code == "CAPABILITY"
    large = registry.decide("sqrt", "float32[3]", device="sim:1")
    assert large.chosen == kernel
    assert registry.decide("sqrt", "float32[3]", device="sim/loopback-large").chosen == kernel
    x = on(1, np.array([4.0], np.float32))
    bound = registry.bind("sqrt", x)
    assert bound.kernel == kernel
    with pytest.raises(Refused, match="CAPABILITY"):
        registry.call("sqrt", on(0, numbers(3)), kernel=kernel)


def test_tensors_of_two_devices_are_not_mixed(registry, sim):
    with pytest.raises(SignatureError, match=r"several devices.*sim:0.*sim:1"):
        registry.call("add", on(0, numbers(3)), on(1, numbers(3)))
    with pytest.raises(SignatureError):
        registry.call("add", on(0, numbers(3)), numbers(3))
    moved = on(0, numbers(3)).to("sim:1")
    assert moved.device == "sim:1"
    assert np.array_equal(moved.numpy(), numbers(3))


def test_work_goes_to_the_stream_that_was_chosen_behind_what_is_on_it(registry, sim):
    x = on(0, numbers(63))
    registry.call("add", x, x)
    stream = sim.stream(0)
    with nbx.stream(stream):
        sim.delay(0, stream, 0.2)
        started = time.perf_counter()
        y = registry.call("add", x, x)
        z = registry.call("multiply", y, y)
        assert time.perf_counter() - started < 0.15
        assert np.array_equal(z.numpy(), (2 * numbers(63)) ** 2)
        assert time.perf_counter() - started > 0.15
    # The default stream was never held up.
    started = time.perf_counter()
    registry.call("add", x, x).numpy()
    assert time.perf_counter() - started < 0.15


def test_a_bound_call_runs_again_on_new_contents_and_on_other_arrays(registry, sim):
    a, b = numbers(63), numbers(63, seed=1)
    x, other, out = on(0, a), on(0, b), nbx.empty(63, device="sim:0")
    bound = registry.bind("add", x, x, out=out)
    bound()
    assert np.array_equal(out.numpy(), a + a)
    sim.copy_in(0, x.address, b)
    bound()
    assert np.array_equal(out.numpy(), b + b)
    elsewhere = nbx.empty(63, device="sim:0")
    bound.rebind(other, x, out=elsewhere)
    bound()
    assert np.array_equal(elsewhere.numpy(), b + b)


def test_a_captured_sequence_replays_on_new_contents(registry, sim):
    stream = sim.stream(0)
    x, y, z = on(0, numbers(63)), nbx.empty(63, device="sim:0"), nbx.empty(63, device="sim:0")
    with nbx.stream(stream):
        first, second = registry.bind("add", x, x, out=y), registry.bind("sqrt", y, out=z)
        sim.synchronize(0)
        with sim.capture(0, stream) as capture:
            first()
            second()
        for seed in (1, 2):
            contents = abs(numbers(63, seed=seed))
            sim.copy_in(0, x.address, contents, stream)
            capture.graph.replay(stream)
            assert np.allclose(z.numpy(), np.sqrt(contents + contents), rtol=1e-6)


def test_out_of_memory_reaches_the_caller_with_figures_and_the_next_call_works(registry, sim):
    elements = CAPACITY // 4 // 2
    x = nbx.empty(elements, device="sim:0")
    # All that others have left of the process's one simulation.
    y = nbx.empty((sim.memory(0).available - 16384) // 4, device="sim:0")
    with pytest.raises(OutOfMemory) as raised:
        registry.call("astype", x, dtype="float16")
    assert raised.value.requested == 2 * elements
    assert raised.value.live >= x.nbytes + y.nbytes
    del y
    small = on(0, numbers(5))
    assert np.array_equal(registry.call("add", small, small).numpy(), 2 * numbers(5))


def test_a_tensor_dropped_while_work_on_it_is_queued_is_still_there_for_it(registry, sim):
    with nbx.stream(sim.stream(0)) as stream:
        x = on(0, numbers(63))
        stream.synchronize()
        sim.delay(0, stream, 0.05)
        result = registry.call("add", registry.call("add", x, x), x)
        del x
        gc.collect()
        assert np.allclose(result.numpy(), 3 * numbers(63), rtol=1e-6)


def test_a_kernel_that_leaves_its_memory_is_told_where_the_host_waits(registry, sim):
    x = on(0, numbers(63))
    beyond = SimpleNamespace(address=x.address, nbytes=x.nbytes, device=0)
    too_long = nbx.Tensor(beyond, nbx.empty(64, device="sim:0").spec, "sim:0", sim)
    result = registry.call("add", too_long, too_long)
    with pytest.raises(MemoryFault, match="out of bounds by 4"):
        result.numpy()


def test_dtypes_without_an_array_library_travel_as_tensors(registry, sim):
    x = numbers(4, 33)
    narrow = registry.call("astype", on(0, x), dtype="float8_e4m3fn", saturate=True)
    assert narrow.dtype is dtypes.get("float8_e4m3fn")
    back = registry.call("astype", narrow, dtype="float32").numpy()
    assert np.allclose(back, x, rtol=0.07, atol=0.02)


def test_threads_have_streams_of_their_own(registry, sim):
    wrong: list[object] = []

    def work(seed: int) -> None:
        with nbx.stream(sim.stream(seed % 2)):
            for turn in range(10):
                contents = numbers(63, seed=100 * seed + turn)
                x = on(seed % 2, contents)
                y = registry.call("multiply", registry.call("add", x, x), x)
                if not np.allclose(y.numpy(), 2 * contents**2, rtol=1e-6):
                    wrong.append((seed, turn))

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
