"""Allocators of an engine: outputs and workspace come from them, and what they give is checked."""

from __future__ import annotations

import gc
import threading
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from making import host_kernel, made, plugin

import nbx_registry as nbx
import nbx_simulated.plugin
from nbx_registry.errors import OutOfMemory
from nbx_registry.host.runtime import host_runtime
from nbx_registry.kernel import Backend, Kernel, Workspace
from nbx_registry.memory.slab import UNIT, first_fit_extent
from nbx_registry.memory.slab_allocator import SlabAllocator
from nbx_registry.registry import set_default
from nbx_simulated.runtime import SimulatedRuntime, create

WORKSPACE = (Workspace(name="scratch", dtype="float32", shape=("x.shape[0]",)),)


def through_scratch(x: Any, out: Any, scratch: Any) -> None:
    scratch[...] = np.sqrt(x)
    out[...] = scratch


def bind_host(context: nbx.BindContext) -> nbx.Launch:
    return nbx.Launch(function=through_scratch, args=("x", "out", "scratch"))


SCRATCH = [
    Kernel(
        id="made/sqrt/sim", op="sqrt@1", backend="loopback", runtimes=("sim",), preference=9, workspace=WORKSPACE,
        bind="nbx_simulated.kernels:bind_by_workspace", when=("x.rank == 1", "x.dtype == float32"),
    ),
    host_kernel("made/sqrt/host", through_scratch, bind=bind_host, preference=9, workspace=WORKSPACE),
]  # fmt: skip


class Outside:
    """Memory of the simulated device that its runtime did not hand out, and what was asked for."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, int]] = []
        self.live = 0

    def allocate(self, place: str, nbytes: int, stream: Any) -> Any:
        del stream
        self.asked.append((place, nbytes))
        self.live += 1
        return _Piece(self, create().memory_of(0).allocate(nbytes), nbytes)


class _Piece:
    def __init__(self, owner: Outside, address: int, nbytes: int) -> None:
        self.owner, self.address, self.nbytes, self.device = owner, address, nbytes, 0

    def __del__(self) -> None:
        self.owner.live -= 1


@pytest.fixture
def reg() -> Iterator[nbx.Registry]:
    made_ = plugin("made", backends=[Backend(name="made")], kernels=SCRATCH)
    registry = nbx.load(plugins=[nbx_simulated.plugin, made_], block=["nbx-host/sqrt/numpy"], require="any")
    before = set_default(registry)
    yield registry
    set_default(before)


X = np.arange(127, dtype=np.float32)


def owned() -> int:
    gc.collect()
    create().synchronize(0)
    live = create().memory(0).live
    assert live is not None
    return live


def test_in_steady_state_the_registry_owns_no_device_memory(reg: nbx.Registry) -> None:
    before = owned()
    outside = Outside()
    with nbx.allocating(outside):
        x = nbx.asarray(X, device="sim:0")
        bound = reg.bind("sqrt", x)
        for _ in range(5):
            y = reg.call("sqrt", x)
            z = reg.call("add", y, y)
            np.testing.assert_array_equal(bound().numpy(), np.sqrt(X))
            assert create().memory(0).live == before
        np.testing.assert_array_equal(z.numpy(), 2 * np.sqrt(X))
    # The array, the bound call's output and workspace, then an output with workspace and another each time.
    assert outside.asked == [("sim:0", 127 * 4)] * (3 + 5 * 3)
    assert owned() == before
    del bound, x, y, z
    create().synchronize(0)
    assert outside.live == 0


def test_without_an_allocator_the_runtime_is_asked_again(reg: nbx.Registry) -> None:
    outside = Outside()
    with nbx.allocating(outside):
        with nbx.allocating(None):
            nbx.empty(3, device="sim:0")
        other = threading.Thread(target=lambda: nbx.empty(3, device="sim:0"))
        other.start()
        other.join()
    nbx.empty(3, device="sim:0")
    assert outside.asked == []


def test_arrays_of_other_libraries_are_theirs_and_workspace_is_not(reg: nbx.Registry) -> None:
    class Counting:
        asked = 0

        def allocate(self, place: str, nbytes: int, stream: Any) -> Any:
            assert (place, nbytes, stream) == ("cpu", 127 * 4, None)
            self.asked += 1
            return host_runtime().allocate(0, nbytes)

    counting = Counting()
    with nbx.allocating(counting):
        y = reg.call("sqrt", X)
        np.testing.assert_array_equal(y, np.sqrt(X))
        np.testing.assert_array_equal(reg.bind("sqrt", X)(), np.sqrt(X))
    assert isinstance(y, np.ndarray)
    assert counting.asked == 2


class Answers:
    def __init__(self, answer: Any) -> None:
        self.answer = answer

    def allocate(self, place: str, nbytes: int, stream: Any) -> Any:
        if isinstance(self.answer, BaseException):
            raise self.answer
        return self.answer


def piece(**changes: Any) -> Any:
    found = _Piece(Outside(), 1 << 20, 64)
    vars(found).update(changes)
    return found


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (None, "gave None, whose 'address' is None"),
        (piece(address=1.0), "'address' is 1.0"),
        (piece(nbytes=63), "asked for 64 bytes on sim:0 and gave 63$"),
        (piece(device=1), "gave memory of device 1"),
        (piece(address=(1 << 20) + 128), "0x100080, which is no multiple of 256"),
        (piece(address=0), "the address 0x0"),
    ],
    ids=["none", "float", "short", "elsewhere", "unaligned", "null"],
)
def test_what_is_no_such_memory_is_named(reg: nbx.Registry, answer: Any, message: str) -> None:
    with nbx.allocating(Answers(answer)), pytest.raises(nbx.NbxError, match=message):
        nbx.empty(16, device="sim:0")


def test_an_allocator_without_memory_is_out_of_memory_with_figures(reg: nbx.Registry) -> None:
    for error in (MemoryError("the arena is full"), MemoryError()):
        with nbx.allocating(Answers(error)), pytest.raises(OutOfMemory, match="no 508 bytes on sim:0") as caught:
            reg.call("sqrt", nbx.asarray(X, device="sim:0"))
        assert caught.value.requested == 127 * 4
        assert caught.value.live == create().memory(0).live
    own = OutOfMemory("mine", requested=1, live=2, pooled=3, free=4)
    with nbx.allocating(Answers(own)), pytest.raises(OutOfMemory, match="mine"):
        nbx.empty(16, device="sim:0")


def test_what_has_no_allocate_is_no_allocator() -> None:
    with pytest.raises(nbx.SignatureError, match="no allocator"), nbx.allocating(object()):  # type: ignore[arg-type]
        pass


def test_a_slab_serves_a_run_and_reaches_what_first_fit_says(reg: nbx.Registry) -> None:
    sizes = [127 * 4] * 3 + [513 * 4, 4]
    slab = nbx.SlabAllocator(create().allocate(0, 16 * UNIT), "sim:0")
    events: list[Any] = []
    held: list[nbx.Tensor] = []
    with nbx.allocating(slab):
        for n, size in enumerate(sizes):
            held.append(nbx.empty(size // 4, device="sim:0"))
            events.append(("alloc", n, size))
            if n in (1, 3):
                held[n - 1] = held[n]
                events.append(("free", n - 1))
    assert slab.extent == first_fit_extent(events)
    assert slab.live == (1 + 5 + 1) * UNIT
    del held
    assert slab.live == 0


def test_a_full_slab_says_so_and_serves_again(reg: nbx.Registry) -> None:
    slab = SlabAllocator(create().allocate(0, 3 * UNIT + 1), "sim:0")
    with nbx.allocating(slab):
        first = nbx.empty(2 * UNIT // 4, device="sim:0")
        with pytest.raises(OutOfMemory, match=r"slab of 1537 bytes on sim:0 has no room for 1024 in a row: 1024 are"):
            nbx.empty(2 * UNIT // 4, device="sim:0")
        del first
        nbx.empty(3 * UNIT // 4, device="sim:0")
        nbx.empty(0, device="sim:0")
        with pytest.raises(nbx.NbxError, match="slab is of sim:0; memory was asked for on cpu"):
            nbx.empty(3)
        with nbx.stream(create().stream(0), "sim:0"), pytest.raises(nbx.NbxError, match="a slab serves one stream"):
            nbx.empty(3, device="sim:0")


def test_a_slab_is_asked_for_sizes() -> None:
    slab = SlabAllocator(host_runtime().allocate(0, 4096), "cpu")
    wrong: list[Any] = [-1, -1000, 5.5, None]
    for nbytes in wrong:
        with pytest.raises(nbx.NbxError, match="a size is an integer from 0 on"):
            slab.allocate("cpu", nbytes, None)
    assert (slab.live, slab.extent) == (0, 0)


def test_binders_that_leave_an_output_unwritten_or_look_outside_are_at_fault() -> None:
    x, empty = np.ones((3, 5), np.float32), np.ones((3, 0), np.float32)

    def ask(bind: Any, x: np.ndarray = x) -> Any:
        kernel = host_kernel("made/permute_dims/x", print, bind=bind)
        return nbx.load(plugins=[made("made", kernel)], require="any").call(
            "permute_dims", x, axes=(1, 0), kernel=kernel.id
        )

    with pytest.raises(nbx.PluginFault, match=r"no launch, so that nothing writes float32\[5, 3\]"):
        ask(lambda context: [])
    assert ask(lambda context: [], empty).shape == (0, 3)
    for strides, offset in (((1, 6), 0), ((1, 5), 1), ((-1, 5), 0), ((1, 5), -1), ((1,), 0)):
        view = nbx.View(of="x", shape=(5, 3), strides=strides, offset=offset)
        with pytest.raises(nbx.PluginFault, match="reaches elements"):
            ask(lambda context, view=view: view)
    backwards = nbx.View(of="x", shape=(5, 3), strides=(0, 5), offset=4)
    assert ask(lambda context: backwards)[0].tolist() == [1, 1, 1]


def test_the_simulation_of_a_small_device_runs_out_as_ever() -> None:
    runtime = SimulatedRuntime(capacity=1 << 12)
    with pytest.raises(OutOfMemory):
        runtime.allocate(0, 1 << 13)
