"""Graphs: a function's calls replay as one, and a graph that is not what its calls are is refused by name."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from itertools import count
from typing import Any

import numpy as np
import pytest
import torch
from making import host_kernel, made

import nbx_registry as nbx
import nbx_simulated.plugin as simulation
from nbx_registry import streams
from nbx_registry.bound import recordings
from nbx_registry.contents import Contents
from nbx_registry.kernel import Kernel, Workspace
from nbx_registry.registry import set_default
from nbx_simulated.hostile import hostile_kernels

X = np.linspace(-2, 2, 63, dtype=np.float32)
RNG = np.random.default_rng(63)


@pytest.fixture(scope="module")
def host() -> nbx.Registry:
    return nbx.load(require="any", plugins=[])


def simulated(*plugins: Any) -> nbx.Registry:
    reg = nbx.load(plugins=[simulation, *plugins], require="any")
    set_default(reg)
    return reg


@pytest.fixture(autouse=True)
def default_registry() -> Iterator[None]:
    before = set_default(None)
    yield
    set_default(before)


def on_sim(array: Any) -> nbx.Tensor:
    return nbx.asarray(np.array(array), device="sim:0")


def sim_kernel(op: str, **changes: Any) -> Kernel:
    fields: dict[str, Any] = {"id": f"made/{op}/sim", "op": f"{op}@1", "backend": "loopback", "runtimes": ("sim",)}
    return Kernel(**fields | {"bind": "nbx_simulated.kernels:bind", "replayable": True, "preference": 9} | changes)


def refused(reg: nbx.Registry, function: Callable[..., Any], *inputs: Any, **options: Any) -> nbx.CaptureError:
    with pytest.raises(nbx.CaptureError) as caught:
        reg.capture(function, *inputs, **options)
    assert reg.observer is None
    assert reg not in recordings
    return caught.value


# On the host.


@pytest.mark.parametrize("run", range(4), ids=["first", "captured", "proven", "on-other-contents"])
def test_what_went_wrong_first_is_raised_where_nothing_can_be_put_back(
    host: nbx.Registry, monkeypatch: pytest.MonkeyPatch, run: int
) -> None:
    def gone(*_: Any) -> None:
        raise nbx.NbxError("the device is gone")

    runs = count()

    def function(x: np.ndarray) -> Any:
        y = host.call("gelu", x)
        if next(runs) == run:
            for name in ("undo", "restore"):
                monkeypatch.setattr(Contents, name, gone)
            raise ValueError("the function's own")
        return y

    with pytest.raises(ValueError, match="the function's own") as caught:
        host.capture(function, X.copy())
    notes = caught.value.__notes__
    assert set(notes) == {"what the arrays held before could not be put back: the device is gone"}
    assert host.observer is None


@pytest.mark.parametrize("library", ["numpy", "torch", "nbx"])
def test_calls_bound_calls_and_functions_replay_on_other_contents(host: nbx.Registry, library: str) -> None:
    x: Any = X.copy()
    if library == "torch":
        x = torch.from_numpy(x)
    elif library == "nbx":
        x = nbx.asarray(x)
    gelu = host.bind("gelu", x)

    def function() -> Any:
        y = host.namespace.multiply(gelu(), 3)
        return {"sum": host.call("sum", y), "all": [y, host.call("permute_dims", y, axes=(0,))]}

    graph = host.capture(function)
    assert [kernel.split("/")[1] for kernel in graph.kernels] == ["gelu", "multiply", "sum", "permute_dims"]
    assert "gelu(x: float32[63])" in graph.calls[0]
    np.testing.assert_array_equal(np.asarray(graph.outputs["all"][0]), np.asarray(function()["all"][0]))
    np.asarray(x)[...] = X[::-1]
    expected = {name: np.asarray(host.call("sum", function()["all"][0])) for name in ("sum",)}
    np.asarray(graph.outputs["sum"])[...] = 0
    graph.replay()
    np.testing.assert_array_equal(np.asarray(graph.outputs["sum"]), expected["sum"])


def test_a_graph_called_takes_arrays_in_the_place_of_its_inputs(host: nbx.Registry) -> None:
    graph = host.capture(lambda x, factor: host.call("multiply", x, factor), X.copy(), 3.0)
    for given in (X, -X):
        np.testing.assert_array_equal(graph(given, 3.0), given * np.float32(3))
    assert graph(graph.inputs[0], 3.0) is graph.outputs
    for wrong, words in ((X[:9], r"float32\[9\]"), (X.astype(np.float64), "float64"), (X[::1][None].T, "63, 1")):
        with pytest.raises(nbx.SignatureError, match=words):
            graph(wrong, 3.0)
    with pytest.raises(nbx.SignatureError, match=r"is 3\.0, for good"):
        graph(X, 4.0)
    with pytest.raises(nbx.SignatureError, match="2 inputs; 1"):
        graph(X)


def test_what_a_graph_is_called_with_is_told_from_other_values_and_never_written_over(host: nbx.Registry) -> None:
    def difference(*inputs: Any) -> Any:
        return host.call("subtract", *inputs[:2])

    graph = host.capture(difference, X.copy(), X * 2, (X,), 1, np.float32(2), float("nan"))
    a, b, *rest = graph.inputs
    locked = X.copy()
    locked.flags.writeable = False
    shared = X.copy()
    refusals: tuple[tuple[Any, tuple[Any, ...], str], ...] = (
        (graph, (b, a, *rest), "given as input 1 lies in input 0"),
        (graph, (X, X, (X.copy(),), *rest[1:]), "input 2 of the graph is this tuple, for good"),
        (graph, (X, X, rest[0], 1.0, *rest[2:]), "input 3 of the graph is 1, for good"),
        (graph, (X, X, *rest[:2], np.float32(3), rest[3]), r"input 4 of the graph is np\.float32\(2\.0\), for good"),
        (host.capture(difference, locked, X.copy()), (X * 3, X), "input 0 of the graph is read-only"),
        (host.capture(difference, shared, shared[::-1][::-1]), (X, X), "inputs 1 and 0 of the graph share memory"),
    )
    held = a.copy()
    for called, inputs, words in refusals:
        with pytest.raises(nbx.SignatureError, match=words):
            called(*inputs)
    np.testing.assert_array_equal(a, held)
    np.testing.assert_array_equal(locked, X)
    np.testing.assert_array_equal(graph(X * 3, X, rest[0], 1, np.float32(2), float("nan")), X * 3 - X)
    rank_0 = host.capture(lambda x: host.call("negative", x), np.array(1, np.float32))
    assert rank_0(np.float32(2)).item() == -2


def test_what_calls_write_in_place_is_as_it_was_when_the_graph_is_made(host: nbx.Registry) -> None:
    lens, total, out = np.array([3, 5], np.int32), np.zeros((2, 63), np.float32), X.copy()
    x, position = np.stack([X, -X]), np.array([0, 1], np.int32)
    pool = np.zeros((4, 1, 16, 63), np.float32)

    def function() -> Any:
        host.call("paged_kv_append", x[:, None], position, pool)
        host.call("paged_lens_advance", lens)
        host.call("add", x, total, out=total)
        return host.call("negative", X, out=out)

    graph = host.capture(function)
    assert lens.tolist() == [3, 5]
    assert not total.any()
    assert not pool.any()
    np.testing.assert_array_equal(out, X)
    for steps in (1, 2):
        assert graph.replay() is None
        assert lens.tolist() == [3 + steps, 5 + steps]
        np.testing.assert_array_equal(total, steps * x)
    np.testing.assert_array_equal(pool[0, 0, :2], x)
    np.testing.assert_array_equal(out, -X)


def test_steps_that_read_indices_out_of_range_are_left_out(host: nbx.Registry) -> None:
    index, w, runs = np.array([0, 3], np.int32), np.arange(20, dtype=np.float32).reshape(5, 4), count()

    def function() -> Any:
        next(runs)
        y = host.call("embedding", w, index)
        host.call("paged_lens_advance", index)
        return y

    graph = host.capture(function, steps=4)
    assert next(runs) == 2 + 1 + 3
    assert index.tolist() == [0, 3]
    graph.replay()
    graph.replay()
    with pytest.raises(nbx.SignatureError, match=r"index holds 5, outside 0\.\.4"):
        graph.replay()


@pytest.mark.parametrize(
    ("function", "code", "words"),
    [
        (lambda reg, turn: reg.call("exp", np.tanh(reg.call("exp", X))), "MOVED", "call 1, exp.*x lies elsewhere"),
        (lambda reg, turn: np.tanh(reg.call("exp", X)), "MOVED", r"array \(float32\[63\]\) that no recorded call read"),
        (lambda reg, turn: reg.bind("exp", X)(), "MOVED", "bind before the capture"),
        (lambda reg, turn: reg.call("exp", X, out=np.empty_like(X)), "MOVED", "out lies elsewhere"),
        (lambda reg, turn: reg.call("multiply", X, float(turn)), "CHANGED", r"x2 was 0\.0 the first time and is 1\.0"),
        (lambda reg, turn: reg.call("exp" if turn else "erf", X), "CHANGED", "call 0, erf.*, was made .* and exp"),
        (
            lambda reg, turn: reg.call("multiply", X, np.float32(turn)),
            "CHANGED",
            r"x2 was np\.float32\(0",
        ),
        (
            lambda reg, turn: float(reg.call("sum", X)),
            "CHANGED",
            "returned .* the first time and",
        ),
        (lambda reg, turn: [reg.call("exp", X) for _ in range(2 - turn)], "CHANGED", "call 1, .* and not again"),
        (lambda reg, turn: [reg.call("exp", X) for _ in range(1 + turn)], "CHANGED", "exp.* was not called the first"),
        (lambda reg, turn: None, "CHANGED", "made no call"),
        (lambda reg, turn: reg.call("exp", X if reg.call("exp", X)[0] == reg.call("exp", X)[0] else -X), "MOVED", "x"),
    ],
)
def test_a_function_that_is_not_the_same_each_time_is_refused(
    host: nbx.Registry, function: Callable[[nbx.Registry, int], Any], code: str, words: str
) -> None:
    turns = count()
    error = refused(host, lambda: function(host, next(turns)))
    assert error.code == code
    with pytest.raises(nbx.CaptureError, match=words):
        raise error


def test_what_raises_leaves_arrays_as_they_were(host: nbx.Registry) -> None:
    lens, broken = np.array([7], np.int32), [False, True]

    def function() -> None:
        host.call("paged_lens_advance", lens)
        if broken.pop(0):
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        host.capture(function)
    assert lens.tolist() == [7]
    assert host.observer is None
    with pytest.raises(nbx.SignatureError, match="is no function"):
        host.capture(lens)  # type: ignore[arg-type]
    with pytest.raises(nbx.SignatureError, match="steps=0"):
        host.capture(lambda: None, steps=0)


def test_a_function_that_does_more_than_its_calls_is_refused(host: nbx.Registry) -> None:
    x = X.copy()

    def function() -> Any:
        y = host.call("exp", x)
        x[...] += 1
        return y

    assert refused(host, function).code == "REPLAY_DIFFERS"


@pytest.mark.parametrize("named", ["another registry", "NumPy"])
def test_what_a_function_writes_beside_its_calls_is_found_on_other_contents(host: nbx.Registry, named: str) -> None:
    between, other = np.empty_like(X), nbx.load(require="any", plugins=[])

    def function(x: Any) -> Any:
        if named == "NumPy":
            np.exp(x, out=between)
        else:
            other.call("exp", x, out=between)
        return host.call("negative", between)

    error = refused(host, function, np.zeros_like(X))
    assert error.code == "REPLAY_DIFFERS"
    assert "on other contents" in str(error)


def test_indices_that_are_numpy_s_scalars_are_values(host: nbx.Registry) -> None:
    w, lens = np.arange(20, dtype=np.float32).reshape(5, 4), np.array([0], np.int32)

    def function() -> Any:
        y = host.call("embedding", w, np.int32(3))
        host.call("paged_lens_advance", lens)
        return y

    graph = host.capture(function, steps=3)
    graph.replay()
    np.testing.assert_array_equal(graph.outputs, w[3])


def test_calls_of_other_threads_are_none_of_the_graph_s(host: nbx.Registry) -> None:
    y, bound, others = X.copy(), host.bind("exp", X), []

    def elsewhere() -> None:
        others.append((host.call("exp", X), bound()))

    def function() -> Any:
        thread = threading.Thread(target=elsewhere)
        thread.start()
        thread.join()
        return host.call("negative", y)

    assert len(host.capture(function).calls) == 1
    assert all(np.array_equal(a, b) for a, b in others)


def test_a_kernel_that_does_not_say_it_can_be_replayed_is_refused_before_it_runs() -> None:
    ran: list[object] = []
    kernel = host_kernel("made/sqrt/once", lambda x, out: ran.append(x))
    reg = nbx.load(plugins=[made("made", kernel)], require="any")
    error = refused(reg, lambda: reg.call("sqrt", np.abs(X), kernel="made/sqrt/once"))
    assert (error.code, error.kernel, ran) == ("NOT_REPLAYABLE", "made/sqrt/once", [])


def test_a_kernel_that_is_another_each_time_is_named() -> None:
    turns = count()

    def function(x: Any, out: Any) -> None:
        out[...] = x + next(turns)

    kernel = host_kernel("made/sqrt/counts", function, replayable=True)
    reg = nbx.load(plugins=[made("made", kernel)], require="any")

    def run() -> Any:
        return reg.call("exp", reg.call("sqrt", reg.call("abs", X), kernel="made/sqrt/counts"))

    error = refused(reg, run)
    assert (error.code, error.kernel) == ("REPLAY_DIFFERS", "made/sqrt/counts")
    assert "call 1, sqrt(x: float32[63]) by made/sqrt/counts, leaves other bytes" in str(error)
    assert "does not say that it is deterministic" in str(error)


# On a device.


def test_a_decoding_loop_replays_as_one_graph() -> None:
    reg = simulated()
    heads, dim, pages, page_tokens, batch, vocabulary = 2, 8, 6, 4, 2, 37
    w = on_sim(RNG.standard_normal((vocabulary, heads * dim)).astype(np.float32))
    token = on_sim(np.array([3, 5], np.int64))
    pool = [on_sim(np.zeros((pages, heads, page_tokens, dim), np.float32)) for _ in range(2)]
    table, lens = on_sim(np.array([[0, 1, 2], [3, 4, 5]], np.int32)), on_sim(np.array([0, 2], np.int32))

    def step() -> nbx.Tensor:
        x = reg.call("embedding", w, token)
        k = x.reshape((batch, heads, dim))
        reg.call("paged_kv_append_step", k, k, *pool, table, lens)
        reg.call("paged_lens_advance", lens)
        y = reg.call("paged_decode_attention", k, *pool, table, lens, longest=12)
        logits = reg.call("linear", y.reshape((batch, heads * dim)), w)
        return reg.call("argmax", logits, axis=-1, out=token)

    graph = reg.capture(step)
    assert (lens.numpy().tolist(), token.numpy().tolist()) == ([0, 2], [3, 5])
    assert not pool[0].numpy().any()
    captured = [graph() is token and token.numpy().tolist() for _ in range(5)]
    held = pool[1].numpy()
    for tensor, start in ((lens, [0, 2]), (token, [3, 5])):
        reg.runtime("sim").copy_in(0, tensor.address, np.array(start, tensor.dtype.numpy))
    for tensor in pool:
        reg.runtime("sim").fill(0, tensor.address, 0, tensor.nbytes)
    assert captured == [step().numpy().tolist() for _ in range(5)]
    np.testing.assert_array_equal(held, pool[1].numpy())


def test_a_replay_goes_to_the_stream_that_calls_would_go_to() -> None:
    reg = simulated()
    sim, x = reg.runtime("sim"), on_sim(X)
    graph = reg.capture(lambda: reg.call("exp", x), device="sim")
    chosen = sim.stream(0)
    expected = graph.outputs.numpy()
    for enqueue in (lambda: graph.replay(chosen), lambda: graph.replay(chosen.handle), graph.replay):
        with nbx.stream(chosen):
            sim.fill(0, graph.outputs.address, 0, graph.outputs.nbytes, chosen)
            sim.delay(0, chosen, 0.02)
            enqueue()
            np.testing.assert_array_equal(graph.outputs.numpy(), expected)
    assert graph.device == "sim:0"


@pytest.mark.parametrize(
    ("act", "code"),
    [
        (lambda reg, y: y.numpy(), "HOST_READ"),
        (lambda reg, y: y.to("cpu"), "HOST_READ"),
        (lambda reg, y: reg.runtime("sim").copy_out(0, np.empty(252, np.uint8), y.address), "HOST_READ"),
        (lambda reg, y: reg.runtime("sim").synchronize(0), "HOST_READ"),
        (lambda reg, y: reg.runtime("sim").default_stream(0).synchronize(), "HOST_READ"),
        (lambda reg, y: nbx.empty((63,), device="sim:0"), "MOVED"),
        (lambda reg, y: nbx.asarray(X, device="sim:0"), "MOVED"),
        (lambda reg, y: reg.capture(lambda: reg.call("exp", y)).replay(), "ERROR"),
        (lambda reg, y: reg.call("exp", X), "CHANGED"),
        (lambda reg, y: reg.call("exp", nbx.asarray(X).to("sim:1")), "MOVED"),
    ],
)
def test_what_no_graph_holds_is_refused_while_calls_are_recorded(act: Callable[..., Any], code: str) -> None:
    reg = simulated()
    x = on_sim(X)

    def function() -> Any:
        y = reg.call("exp", x)
        act(reg, y)
        return y

    with pytest.raises(nbx.NbxError) as caught:
        reg.capture(function)
    assert caught.value.code == code
    assert reg.observer is None
    assert not streams.recording()
    np.testing.assert_array_equal(x.numpy(), X)


def test_what_the_runtime_alone_knows_to_refuse_is_told_in_its_words(monkeypatch: pytest.MonkeyPatch) -> None:
    reg = simulated()
    x, turns = on_sim(X), count()

    def function() -> Any:
        y = reg.call("exp", x)
        if next(turns):
            raise nbx.NbxError("the driver permits no such thing while a stream is captured")
        return y

    error = refused(reg, function)
    assert error.code == "NOT_CAPTURED"
    assert "the driver permits no such thing" in str(error)
    assert refused(reg, lambda: reg.call("exp", x), device="cpu").code == "CHANGED"


def test_a_kernel_beside_its_stream_is_found() -> None:
    (hostile,) = (found for found in hostile_kernels("add@1") if found.name == "wrong_stream")
    reg = simulated(hostile.plugin)
    x = on_sim(X)
    error = refused(reg, lambda: reg.call("exp", reg.call("add", x, x, kernel=hostile.kernel.id)))
    assert (error.code, error.kernel) == ("REPLAY_DIFFERS", hostile.kernel.id)


class Frozen:
    """A program of one launch from ``x`` to ``out`` that reads ``x`` when it is enqueued."""

    def __init__(self, sim: Any, function: Callable[..., Any], dtype: type = np.float32) -> None:
        self.sim = sim
        self.function = function
        self.dtype = dtype

    def run(self, operands: Any, stream: Any = None) -> None:
        if not self.sim.capturing(0, stream):
            self.sim.synchronize(0)
        memory, (x, out) = self.sim.memory_of(0), operands
        value = memory.view(x, X.nbytes).view(self.dtype).copy()

        def write() -> None:
            memory.view(out, X.nbytes).view(self.dtype)[...] = self.function(value)

        self.sim._stream(0, stream).enqueue(write)


@pytest.mark.parametrize(
    ("named", "held"),
    [(True, X), (False, X), (True, X * 0)],
    ids=["an input", "an array it reads", "an input of zeros"],
)
def test_a_kernel_that_reads_when_it_is_launched_is_found_on_other_contents(
    named: bool, held: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    reg = simulated()
    sim, x = reg.runtime("sim"), on_sim(held)
    monkeypatch.setattr(sim, "program", lambda *_: Frozen(sim, np.tanh), raising=False)
    bound = reg.bind("tanh", x)
    monkeypatch.undo()
    error = refused(reg, lambda x: bound(), x) if named else refused(reg, bound)
    assert (error.code, error.kernel) == ("REPLAY_DIFFERS", "nbx-simulated/tanh/loopback")
    assert "on other contents" in str(error)
    np.testing.assert_array_equal(x.numpy(), held)


def test_a_length_that_is_read_at_the_launch_is_found_in_the_second_step(monkeypatch: pytest.MonkeyPatch) -> None:
    reg = simulated()
    sim, x = reg.runtime("sim"), on_sim(np.arange(63, dtype=np.int32))
    monkeypatch.setattr(sim, "program", lambda *_: Frozen(sim, lambda value: value + 1, np.int32), raising=False)
    bound = reg.bind("negative", x, out=x)
    monkeypatch.undo()
    assert len(reg.capture(bound, steps=1).calls) == 1
    error = refused(reg, bound)
    assert error.code == "REPLAY_DIFFERS"
    assert "in 2 steps, each on what the last one left" in str(error)


def test_a_captured_stream_takes_bound_calls_and_refuses_what_allocates_or_cannot_be_replayed() -> None:
    scratch = (Workspace(name="scratch", dtype="float32", shape=("x.size",)),)
    own = [
        sim_kernel("sqrt", bind="nbx_simulated.kernels:bind_by_workspace", workspace=scratch),
        sim_kernel("exp", replayable=False),
    ]
    reg = simulated(made("made", *own))
    sim, x, out = reg.runtime("sim"), on_sim(np.abs(X)), on_sim(X)
    bound, again = reg.bind("sqrt", x, out=out), reg.bind("exp", x)
    chosen, allocated = sim.stream(0), sim.memory(0).allocations
    assert len(bound.launches) == 2
    assert (bound.kernel, again.kernel) == ("made/sqrt/sim", "made/exp/sim")
    assert not sim.capturing(0, chosen)
    with sim.capture(0, chosen) as capture, nbx.stream(chosen):
        assert sim.capturing(0, chosen.handle)
        bound()
        reg.call("negative", out, out=out)
        for ask, code in (
            (lambda: reg.call("sqrt", x, out=out), "MOVED"),
            (lambda: reg.call("exp", x, out=out), "NOT_REPLAYABLE"),
            (again, "NOT_REPLAYABLE"),
            (lambda: reg.capture(bound), "NOT_CAPTURED"),
            (lambda: reg.bind("sqrt", x, out=out), "MOVED"),
            (lambda: bound.rebind(x), "MOVED"),
        ):
            with pytest.raises(nbx.CaptureError) as caught:
                ask()
            assert caught.value.code == code
        with pytest.raises(nbx.NbxError, match="under capture; allocate before"):
            reg.call("negative", out)
    assert sim.memory(0).allocations == allocated
    np.testing.assert_array_equal(out.numpy(), X)
    for scale in (1, 4):
        sim.copy_in(0, x.address, np.abs(X) * np.float32(scale), chosen)
        capture.graph.replay(chosen)
        chosen.synchronize()
        np.testing.assert_array_equal(out.numpy(), -np.sqrt(np.abs(X) * np.float32(scale)))
