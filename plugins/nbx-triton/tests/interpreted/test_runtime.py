"""The emulator as a runtime: memory, captures, refusals."""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

from nbx_registry.errors import NbxError, OutOfMemory
from nbx_registry.launch import Artifact, Launch, Scalar
from nbx_registry.runtime import Runtime, Slot
from nbx_triton import interpreter


def test_it_is_a_runtime(emulator: Runtime) -> None:
    assert isinstance(emulator, Runtime)
    (device,) = emulator.devices()
    assert device.versions.keys() == {"triton", "numpy"}
    assert emulator.why_absent() == ""


def test_memory_goes_in_and_out(emulator: Runtime) -> None:
    before = emulator.memory(0)
    buffer = emulator.allocate(0, 63)
    assert buffer.address % 256 == 0
    emulator.fill(0, buffer.address, 7, 63)
    emulator.copy_in(0, buffer.address + 3, np.arange(5, dtype=np.int16))
    emulator.copy(0, buffer.address + 20, buffer.address + 1, 13)
    out = np.empty(63, np.uint8)
    emulator.copy_out(0, out, buffer.address)
    expected = np.full(63, 7, np.uint8)
    expected[3:13] = np.arange(5, dtype=np.int16).view(np.uint8)
    expected[20:33] = expected[1:14]
    np.testing.assert_array_equal(out, expected)
    assert emulator.memory(0).live == before.live + 63
    del buffer
    after = emulator.memory(0)
    assert (after.live, after.allocations) == (before.live, before.allocations + 1)


def test_memory_that_is_not_there_is_told_with_its_figures(emulator: Runtime) -> None:
    buffer = emulator.allocate(0, 100)
    before = emulator.memory(0)
    with pytest.raises(OutOfMemory, match="cannot allocate") as raised:
        emulator.allocate(0, 2**62)
    assert (raised.value.requested, raised.value.live) == (2**62, before.live)
    assert emulator.memory(0) == before
    del buffer


class Doubler:
    """Stands in for a loaded kernel."""

    def run(self, grid: tuple[int, int, int], values: list[int]) -> None:
        address, amount = values
        interpreter._at(address, 4)[:] *= amount


def program(emulator: Runtime, name: str = "x") -> object:
    launch = Launch(function=Doubler(), args=(name, Scalar(2, "int32")), offsets=(("x", 4),))
    return emulator.program(0, [launch], [Slot("x", None, "input")])


def test_a_capture_records_and_replays_on_new_contents(emulator: Runtime) -> None:
    memory = np.ones(8, np.uint8)
    stream = emulator.default_stream(0)
    with emulator.capture(0, stream) as capture:
        program(emulator).run([memory.ctypes.data], None)
    assert memory.tolist() == [1] * 8
    memory[:] = 3
    capture.graph.replay(stream)
    assert memory.tolist() == [3] * 4 + [6] * 4


def test_threads_run_kernels_at_once(
    run: Callable[..., tuple[np.ndarray, ...]], monkeypatch: pytest.MonkeyPatch
) -> None:
    # Which program it is at, Triton's interpreter keeps for all threads: another one gets its turn right behind that.
    place = interpreter.interpreter_builder.set_grid_idx

    def placed(*index: int) -> None:
        place(*index)
        time.sleep(1e-4)

    monkeypatch.setattr(interpreter.interpreter_builder, "set_grid_idx", placed)
    drawn = np.random.default_rng(63).uniform(1, 2, (8, 30000)).astype(np.float32)

    def rooted(x: np.ndarray) -> Any:
        return run("nbx-triton/sqrt/strided", x)[0]

    with ThreadPoolExecutor(4) as threads:
        for x, found in zip(drawn, threads.map(rooted, drawn), strict=True):
            np.testing.assert_array_equal(found, np.sqrt(x))


def test_a_launch_of_an_unknown_operand_is_refused(emulator: Runtime) -> None:
    with pytest.raises(NbxError, match="takes 'y', which is no slot"):
        program(emulator, "y")


def test_machine_code_is_refused(emulator: Runtime) -> None:
    artifact = Artifact(image=b"", kind="cubin", entry="add", arch="sm_90", toolkit="triton 3.6.0")
    with pytest.raises(NbxError, match="cannot run 'add': it is a cubin"):
        emulator.load(0, artifact)


def test_torch_is_not_imported() -> None:
    import sys

    assert "torch" not in sys.modules
