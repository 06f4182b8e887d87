"""Programs without a device: what a launch is given, byte for byte, by a launch call that only looks."""

from __future__ import annotations

import ctypes
import struct
import threading
import time
from unittest.mock import MagicMock

import ml_dtypes
import numpy as np
import pytest

from nbx_cuda.runtime import code
from nbx_cuda.runtime.code import Function
from nbx_cuda.runtime.launch import _Config
from nbx_cuda.runtime.program import CudaProgram, lay_out
from nbx_registry import dtypes
from nbx_registry.errors import NbxError
from nbx_registry.launch import NULL, Launch, Scalar, ScalarOf
from nbx_registry.runtime import Slot
from nbx_registry.spec import TensorSpec, parse


def function(*sizes: int, threads: int = 1024, limit: int = 232448) -> Function:
    made = Function.__new__(Function)
    made.entry, made.device, made.handle = "kernel", 0, 0xF00D
    made.sizes, made.parameters, made.threads = sizes, len(sizes), threads
    made.static_shared_bytes, made._allowed, made._limit = 0, min(limit, 49152), limit
    return made


def slot(name: str, kind: str = "input", weak: bool = False) -> Slot:
    spec = parse("float32[7]")
    return Slot(name, TensorSpec(spec.dtype, (), weak=True) if weak else spec, kind)


class Driver:
    """A launch call that keeps what it was given, as the driver would read it."""

    def __init__(self, *sizes: int, codes: tuple[int, ...] = ()) -> None:
        self.sizes = sizes
        self.codes = list(codes)
        self.seen: list[tuple[_Config, int, list[bytes]]] = []

    def __call__(self, config, handle, pointers, extra) -> int:
        assert extra is None
        values = [ctypes.string_at(pointers[i], size) for i, size in enumerate(self.sizes)]
        self.seen.append((config._obj.stream, handle.value, values))
        self.config = config._obj
        return self.codes.pop(0) if self.codes else 0


def unexpected(launch, arguments, code):
    raise AssertionError(f"code {code}")


def program(launches, slots, driver, failed=unexpected) -> CudaProgram:
    return CudaProgram(launches, slots, launch=driver, failed=failed, default_stream=0xDEF)


X, Y, OUT = slot("x"), slot("y"), slot("out", "output")


def test_arguments_arrive_in_the_order_of_the_launch():
    driver = Driver(8, 8, 4, 8, 8)
    launch = Launch(
        function=function(8, 8, 4, 8, 8),
        args=("out", "x", Scalar(-3, "int32"), "y", NULL),
        grid=(5, 2, 1),
        block=(128, 1, 1),
        shared_bytes=1024,
    )
    program([launch], [X, Y, OUT], driver).run((0x100, 0x200, 0x300), 77)
    ((stream, handle, values),) = driver.seen
    assert (stream, handle) == (77, 0xF00D)
    assert values == [
        struct.pack("<Q", 0x300),
        struct.pack("<Q", 0x100),
        b"\xfd\xff\xff\xff",
        struct.pack("<Q", 0x200),
        bytes(8),
    ]
    config = driver.config
    assert (tuple(config.grid), tuple(config.block), config.shared_bytes) == ((5, 2, 1), (128, 1, 1), 1024)
    assert (config.attributes, config.attribute_count) == (None, 0)


@pytest.mark.parametrize(
    ("value", "ctype", "expected"),
    [
        (-1, "int8", b"\xff"),
        (65535, "uint16", b"\xff\xff"),
        (2**31 - 1, "int32", b"\xff\xff\xff\x7f"),
        (-(2**63), "int64", struct.pack("<q", -(2**63))),
        (2**64 - 1, "uint64", b"\xff" * 8),
        (True, "bool", b"\x01"),
        (0.1, "float32", np.float32(0.1).tobytes()),
        (0.1, "float64", np.float64(0.1).tobytes()),
        (0.1, "float16", np.float16(0.1).tobytes()),
        (0.1, "bfloat16", ml_dtypes.bfloat16(0.1).tobytes()),
        (3.0, "float8_e4m3fn", ml_dtypes.float8_e4m3fn(3.0).tobytes()),
    ],
)
def test_scalars_have_the_bytes_of_their_type(value, ctype, expected):
    size = len(expected)
    fixed = Driver(size)
    program([Launch(function=function(size), args=(Scalar(value, ctype),))], [], fixed).run(())
    assert fixed.seen[0][2] == [expected]

    at_call = Driver(size)
    launch = Launch(function=function(size), args=(ScalarOf("a", ctype),))
    program([launch], [slot("a", weak=True)], at_call).run((value,))
    assert at_call.seen[0][2] == [expected]


def test_a_scalar_that_does_not_fit_is_refused_when_packed_and_when_run():
    with pytest.raises(NbxError, match="a launch passes 300 as int8"):
        program([Launch(function=function(1), args=(Scalar(300, "int8"),))], [], Driver(1))
    launch = Launch(function=function(1), args=(ScalarOf("a", "int8"),))
    packed = program([launch], [slot("a", weak=True)], Driver(1))
    with pytest.raises(NbxError, match="operands \\(a\\) cannot be \\[300\\]"):
        packed.run((300,))


@pytest.mark.parametrize(
    ("value", "ctype"), [(1e39, "float32"), (-1e39, "float32"), (65520.0, "float16"), (1e39, "bfloat16")]
)
def test_a_number_beyond_a_floating_type_is_infinity(value, ctype):
    size = 2 if "16" in ctype else 4
    driver = Driver(size)
    launch = Launch(function=function(size), args=(ScalarOf("a", ctype),))
    program([launch], [slot("a", weak=True)], driver).run((value,))
    expected = np.asarray(np.copysign(np.inf, value), dtypes.get(ctype).numpy).tobytes()
    assert driver.seen[0][2] == [expected]


@pytest.mark.parametrize("ctype", ["float16", "bfloat16", "float32", "float64"])
def test_a_zero_keeps_its_sign(ctype):
    kind = np.dtype(dtypes.get(ctype).numpy)
    driver = Driver(8, kind.itemsize)
    # Behind another argument's offset nothing is packed as it comes.
    launch = Launch(function=function(8, kind.itemsize), args=("x", ScalarOf("a", ctype)), offsets=(("x", 8),))
    program([launch], [X, slot("a", weak=True)], driver).run((0x1000, -0.0))
    assert driver.seen[0][2][1] == np.asarray(-0.0, kind).tobytes()


def test_offsets_move_one_argument_of_one_launch():
    driver = Driver(8, 8)
    first = Launch(function=function(8, 8), args=("x", "out"), offsets=(("x", 24),))
    second = Launch(function=function(8, 8), args=("x", "out"))
    program([first, second], [X, OUT], driver).run((0x1000, 0x2000), 1)
    assert [struct.unpack("<QQ", b"".join(values)) for _, _, values in driver.seen] == [
        (0x1018, 0x2000),
        (0x1000, 0x2000),
    ]


def test_an_operand_no_launch_takes_is_still_an_operand():
    driver = Driver(8)
    program([Launch(function=function(8), args=("out",))], [X, OUT], driver).run((1, 2))
    assert driver.seen[0][2] == [struct.pack("<Q", 2)]


def test_an_empty_grid_launches_nothing():
    driver = Driver(8)
    launches = [Launch(function=function(8), args=("x",), grid=grid) for grid in ((0, 1, 1), (1, 1, 1), (3, 0, 1))]
    program(launches, [X], driver).run((5,))
    assert len(driver.seen) == 1


def test_the_stream_may_change_at_each_run_and_defaults_to_the_runtimes():
    driver = Driver(8)
    run = program([Launch(function=function(8), args=("x",))], [X], driver).run
    for stream in (11, 12, None, 11, 0):
        run((1,), stream)
    # A null handle, the driver's default stream, reads back as None.
    assert [stream for stream, _, _ in driver.seen] == [11, 12, 0xDEF, 11, None]


@pytest.mark.parametrize("operands", [(), (1,), (1, 2, 3)], ids=len)
def test_a_wrong_number_of_operands_is_refused_before_the_launch(operands):
    driver = Driver(8, 8)
    packed = program([Launch(function=function(8, 8), args=("x", "out"))], [X, OUT], driver)
    with pytest.raises(NbxError, match=rf"takes 2 operands \(x, out\), got {len(operands)}"):
        packed.run(operands, 1)
    with pytest.raises(NbxError, match="cannot be"):
        packed.run((1, None), 1)
    packed.run((1, 2), 1)
    assert len(driver.seen) == 1


@pytest.mark.parametrize(
    ("launch", "message"),
    [
        (Launch(function=function(8, 8, 4), args=("x", "out")), "takes 3 parameters, the launch gives 2"),
        (Launch(function=function(8, 8), args=("x", Scalar(1, "int32"))), "parameter 1 of kernel has 8 bytes"),
        (Launch(function=function(8, 4), args=("x", "out")), "parameter 1 of kernel has 4 bytes"),
        (Launch(function=function(8), args=("z",)), "'z', which is none of its slots: x, out"),
        (Launch(function=function(8), args=("x",), offsets=(("out", 4),)), "offsets 'out'"),
        (Launch(function=function(8, threads=256), args=("x",), block=(512, 1, 1)), "1 to 256 threads"),
        (Launch(function=function(8), args=("x",), grid=(1, 65536, 1)), "beyond"),
        (Launch(function=function(8, limit=1000), args=("x",), shared_bytes=1001), "1001 bytes of dynamic shared"),
        (Launch(function=print, args=("x",)), "takes what its load"),
    ],
    ids=["too-few", "narrow", "wide", "unknown", "offset", "threads", "grid", "shared", "function"],
)
def test_a_launch_that_does_not_fit_is_refused_when_packed(launch, message):
    with pytest.raises(NbxError, match=message):
        program([launch], [X, OUT], Driver(8))


def test_a_failed_launch_is_handed_on_with_its_arguments():
    seen = []
    driver = Driver(8, codes=(0, 201))
    launches = [Launch(function=function(8), args=(name,)) for name in ("x", "out")]
    failed = lambda launch, arguments, code: seen.append((launch, arguments, code))  # noqa: E731
    program(launches, [X, OUT], driver, failed).run((1, 2), 5)
    ((launch, arguments, code),) = seen
    assert launch is launches[1]
    assert code == 201
    assert arguments[0]._obj.stream == 5


def test_fixed_operands_are_written_once_and_launch_on_any_stream():
    driver = Driver(8, 8)
    launches = [Launch(function=function(8, 8), args=("x", "out")), Launch(function=function(8, 8), args=("out", "x"))]
    launch = program(launches, [X, OUT], driver).fixed((0x10, 0x20))
    for stream in (5, 6, None, 5):
        launch(stream)
    forth, back = struct.pack("<QQ", 0x10, 0x20), struct.pack("<QQ", 0x20, 0x10)
    assert [b"".join(values) for _, _, values in driver.seen] == [forth, back] * 4
    assert [stream for stream, _, _ in driver.seen] == [5, 5, 6, 6, 0xDEF, 0xDEF, 5, 5]
    with pytest.raises(NbxError, match="takes 2 operands"):
        program(launches, [X, OUT], driver).fixed((0x10,))


def test_a_launch_begins_early_where_it_says_so_and_another_is_before_it():
    seen = []

    def launch(config, handle, pointers, extra) -> int:
        config = config._obj
        words = ctypes.string_at(config.attributes, 72) if config.attribute_count else bytes(72)
        seen.append((config.attribute_count, *struct.unpack("<3i", words[:12])))
        return 0

    early = Launch(function=function(8), args=("x",), early=True)
    plain = Launch(function=function(8), args=("x",))
    nothing = Launch(function=function(8), args=("x",), grid=(0, 1, 1))
    program([early, plain, early], [X], launch).run((0x10,), None)
    # CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION, allowed.
    assert seen == [(0, 0, 0, 0), (0, 0, 0, 0), (1, 6, 0, 1)]
    program([nothing, early], [X], launch).run((0x10,), None)
    assert seen[3:] == [(0, 0, 0, 0)]


def test_equal_arguments_share_a_cell():
    launches = [Launch(function=function(8, 8, 4), args=("x", "out", Scalar(3, "int32"))) for _ in range(3)]
    layout = lay_out(launches, [X, OUT])
    assert len(layout.dynamic) + len(layout.static) == 3
    assert layout.direct(2)


def test_threads_never_see_each_others_operands():
    # The launch call waits for all threads to have packed theirs before it reads any.
    threads = 8
    meet = threading.Barrier(threads)
    wrong = []

    def launch(config, handle, pointers, extra) -> int:
        meet.wait(timeout=30)
        address, stream = struct.unpack("<Q", ctypes.string_at(pointers[0], 8))[0], config._obj.stream
        if address != stream * 16:
            wrong.append((address, stream))
        return 0

    packed = program([Launch(function=function(8), args=("x",))], [X], launch)

    def work(number: int) -> None:
        fixed = packed.fixed((number * 16,))
        for turn in range(50):
            fixed(number) if turn % 2 else packed.run((number * 16,), number)

    workers = [threading.Thread(target=work, args=(number,)) for number in range(1, threads + 1)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert not wrong


def test_a_thread_that_needs_less_shared_memory_takes_none_back(monkeypatch):
    given, asked = [], threading.Event()

    def call(doing, name, handle, attribute, nbytes):
        asked.set()
        # The driver takes its time with the larger one.
        time.sleep(0.2 if nbytes == 100_000 else 0)
        given.append(nbytes)

    monkeypatch.setattr(code, "call", call)
    monkeypatch.setattr(code, "bindings", MagicMock())
    shared = function(8)
    larger = threading.Thread(target=shared.allow_shared, args=(100_000,))
    larger.start()
    assert asked.wait(timeout=30)
    shared.allow_shared(60_000)
    larger.join()
    assert given[-1] == 100_000
    shared.allow_shared(120_000)
    assert given[-1] == 120_000
