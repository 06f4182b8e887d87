"""Looking for a faulty kernel, on the host and on a device that the host cannot see into."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from making import add, host_kernel, plugin
from ops_made import made_ops

import nbx_registry as nbx
import nbx_simulated.plugin
from nbx_registry.bisect import Bisection
from nbx_registry.kernel import Backend, Kernel
from nbx_registry.registry import set_default
from nbx_simulated.kernels import Loopback, launch_of

WRONG: set[str] = set()
"""Ops whose kernels of this module are wrong now."""
CALLS: dict[str, int] = {}
"""How often each was called, since the run began."""
FROM: dict[str, int] = {}
"""From which call on one is wrong; 0 for those not named."""


def is_wrong(op: str) -> bool:
    CALLS[op] = CALLS.get(op, 0) + 1
    return op in WRONG and CALLS[op] > FROM.get(op, 0)


def hostile(op: str, runtime: str, **changes: Any) -> Kernel:
    """Return a kernel that adds 1 to the first element of the oracle's result when it is wrong."""

    def bind(context: nbx.BindContext) -> nbx.Launch:
        signature = context.signature
        loopback = Loopback(signature)

        def on_host(*operands: Any) -> None:
            values = dict(zip(signature.names, operands, strict=True))
            arrays = [
                tuple(values[f"{p.name}.{i}"] for i in range(len(spec)))
                if isinstance(spec, tuple)
                else values.get(p.name)
                for p, spec in zip(signature.op.tensors, signature.tensors, strict=True)
            ]
            results = signature.op.run_oracle(signature, [a.copy() if isinstance(a, np.ndarray) else a for a in arrays])
            names = [output.name for output in signature.op.outputs]
            names += [param.name for param in signature.op.tensors if param.mutable]
            for name, result in zip(names, results, strict=True):
                values[name][...] = result
                if is_wrong(op) and result.size:
                    values[name].flat[0] += 1

        def on_device(memory: Any, *operands: Any) -> None:
            given = loopback.operands(operands)
            written = loopback.compute(given, loopback.read(memory, given))
            loopback.write(memory, written)
            address, spec, _ = written[0]
            if is_wrong(op) and spec.size:
                memory.array(address, spec).flat[0] += 1

        if runtime == "host":
            return nbx.Launch(function=on_host, args=signature.names)
        return launch_of(signature, on_device)

    backend = "hostile" if runtime == "host" else "loopback"
    return host_kernel(
        f"hostile/{op.rpartition('::')[2]}/{runtime}", add, bind=bind, runtimes=(runtime,), op=f"{op}@1", overlap="any",
        backend=backend, preference=9, **changes,
    )  # fmt: skip


OPS = ("add", "sqrt", "multiply", "softmax", "matmul", "made::concat")


@pytest.fixture(params=["cpu", "sim:0"])
def place(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture
def reg(place: str) -> Iterator[nbx.Registry]:
    """Every kernel that would run is of the plugin ``hostile``; the host's own, which are trusted, stand behind."""
    runtime = "host" if place == "cpu" else "sim"
    kernels = [hostile(op, runtime) for op in OPS]
    made = plugin("hostile", backends=[Backend(name="hostile")], kernels=kernels)
    registry = nbx.load(plugins=[nbx_simulated.plugin, made_ops(), made], require="any")
    for table in (WRONG, CALLS, FROM):
        table.clear()
    before = set_default(registry)
    yield registry
    set_default(before)


X = np.arange(1, 64, dtype=np.float32)


class Client:
    """A function of a client: some ops, pinned to the kernels under suspicion."""

    def __init__(self, reg: nbx.Registry, place: str) -> None:
        self.reg, self.place = reg, place
        self.seen: list[set[str]] = []

    def put(self, x: np.ndarray) -> Any:
        return x.copy() if self.place == "cpu" else nbx.asarray(x, device=self.place)

    def call(self, op: str, *arrays: Any, **attributes: Any) -> Any:
        runtime = "host" if self.place == "cpu" else "sim"
        return self.reg.call(op, *arrays, kernel=f"hostile/{op.rpartition('::')[2]}/{runtime}", **attributes)

    def __call__(self) -> np.ndarray:
        CALLS.clear()
        x = self.put(X)
        for _ in range(5):
            x = self.call("add", x, 1.0)
            x = self.call("sqrt", x)
        y = self.call("made::concat", [x, self.call("multiply", x, x)])
        z = self.call("softmax", self.call("add", y, y), axis=0)
        out = self.put(np.zeros((2, 126), np.float32))
        self.call("add", z, 2.0, out=out[0])
        self.call("add", z, 3.0, out=out[1])
        return np.array(out if isinstance(out, np.ndarray) else out.numpy())


def close(reference: Any, result: Any) -> bool:
    return np.allclose(reference, result, rtol=1e-4, atol=1e-5)


def test_nothing_wrong_is_said(reg: nbx.Registry, place: str) -> None:
    found = reg.bisect(Client(reg, place), close)
    assert found.outcome == "right"
    assert (found.kernel, found.op, found.call) == (None, None, None)
    assert found.runs == 3
    assert len(found.suspects) == 5
    assert found.kept == ()
    assert str(found).startswith("the run is right with all its kernels")
    assert reg.observer is None


@pytest.mark.parametrize("op", ["add", "sqrt", "multiply", "softmax", "made::concat"])
def test_the_faulty_kernel_is_named(reg: nbx.Registry, place: str, op: str) -> None:
    WRONG.add(op)
    found = reg.bisect(Client(reg, place), close)
    assert found.outcome == "found"
    assert found.op == f"{op}@1"
    assert found.kernel == f"hostile/{op.rpartition('::')[2]}/{'host' if place == 'cpu' else 'sim'}"
    first = {"add": 0, "sqrt": 1, "multiply": 10, "made::concat": 11, "softmax": 13}
    assert found.call == first[op]
    assert found.faults[0].request.startswith(f"{op}(")
    assert found.kernel in str(found)
    assert f"from call {found.call} on" in str(found)
    assert found.runs < 20


@pytest.mark.parametrize(("good", "call"), [(0, 0), (3, 6), (5, 12), (7, 15)])
def test_the_first_call_that_goes_wrong_is_named(reg: nbx.Registry, place: str, good: int, call: int) -> None:
    WRONG.add("add")
    FROM["add"] = good
    found = reg.bisect(Client(reg, place), close)
    assert (found.op, found.call) == ("add@1", call)
    assert found.runs < 20


def test_several_faulty_kernels_are_all_named(reg: nbx.Registry, place: str) -> None:
    WRONG.update(("sqrt", "softmax"))
    found = reg.bisect(Client(reg, place), close)
    assert {(fault.op, fault.call) for fault in found.faults} == {("sqrt@1", 1), ("softmax@1", 13)}
    assert all(fault.together == () for fault in found.faults)


def test_kernels_that_are_wrong_together_are_told_as_such(reg: nbx.Registry, place: str) -> None:
    ran: set[str] = set()
    client = Client(reg, place)
    counts = {"sqrt": 5, "multiply": 1}

    def run() -> Any:
        result = client()
        ran.clear()
        ran.update(op for op, count in counts.items() if CALLS.get(op, 0) == count)
        return result, frozenset(ran)

    found = reg.bisect(run, lambda _, result: result[1] != {"sqrt", "multiply"})
    assert {fault.op for fault in found.faults} == {"sqrt@1", "multiply@1"}
    kernels = {fault.kernel for fault in found.faults}
    assert all(set(fault.together) == kernels - {fault.kernel} for fault in found.faults)
    assert "only together with" in str(found)


def test_a_comparison_that_refuses_the_reference_is_told(reg: nbx.Registry, place: str) -> None:
    found = reg.bisect(Client(reg, place), lambda _, result: bool(result.sum() < 0))
    assert (found.outcome, found.runs) == ("reference refused", 1)
    assert "the comparison refuses what the host's kernels give" in str(found)


def test_a_run_that_is_not_repeatable_is_told(reg: nbx.Registry, place: str) -> None:
    draws = iter(np.random.default_rng(1).standard_normal(100))
    found = reg.bisect(lambda: Client(reg, place)() + next(draws), close)
    assert (found.outcome, found.runs) == ("not repeatable", 2)


def test_a_fault_that_comes_and_goes_is_not_pinned_on_anybody(reg: nbx.Registry, place: str) -> None:
    client = Client(reg, place)
    state = {"runs": 0}

    def run() -> Any:
        state["runs"] += 1
        # Wrong once, in the run as it is.
        return client() + (1 if state["runs"] == 3 else 0)

    assert reg.bisect(run, close).outcome == "not repeatable"


def test_a_kernel_that_raises_makes_the_run_wrong() -> None:
    def boom(*_: Any) -> None:
        raise ZeroDivisionError("boom")

    made = plugin("boom", backends=[Backend(name="boom")], kernels=[host_kernel("boom/sqrt/x", boom, backend="boom")])
    registry = nbx.load(plugins=[made], require="any")
    found = registry.bisect(lambda: registry.call("sqrt", registry.call("add", X, 1.0), kernel="boom/sqrt/x"), close)
    assert (found.kernel, found.call) == ("boom/sqrt/x", 1)
    assert "boom" in found.faults[0].raised
    assert "the run raises PluginFault" in str(found)


def test_what_the_client_s_own_code_raises_is_wrong_too(reg: nbx.Registry, place: str) -> None:
    WRONG.add("softmax")
    client = Client(reg, place)

    def run() -> np.ndarray:
        result = client()
        if result[0, 0] > 2.9:
            raise LookupError("nothing has that index")
        return result

    found = reg.bisect(run, close)
    assert (found.op, found.call) == ("softmax@1", 13)
    assert found.faults[0].raised == "LookupError: nothing has that index"

    def always() -> None:
        raise LookupError("nothing has that index")

    with pytest.raises(LookupError):
        reg.bisect(always, close)


@pytest.mark.parametrize("nested", [False, True], ids=["array", "nested"])
def test_a_run_that_returns_the_same_memory_each_time_is_told(reg: nbx.Registry, place: str, nested: bool) -> None:
    WRONG.add("sqrt")
    client = Client(reg, place)
    x, buffer = client.put(X), client.put(np.zeros_like(X))

    def run() -> Any:
        client.call("sqrt", x, out=buffer)
        return {"results": (None, [buffer])} if nested else buffer

    with pytest.raises(nbx.NbxError, match="its next run writes to the same memory"):
        reg.bisect(run, lambda reference, result: True)


def test_a_run_that_drifts_is_pinned_on_nobody(reg: nbx.Registry, place: str) -> None:
    client = Client(reg, place)
    runs: list[int] = []

    def drifting(run: Any) -> Any:
        runs.append(1)
        return run() + (1 if len(runs) > 2 else 0)

    found = reg.bisect(lambda: drifting(client), close)
    assert (found.outcome, found.faults) == ("not repeatable", ())
    runs.clear()
    # The host alone: there is nothing to swap.
    host = nbx.load(require="any")
    found = host.bisect(lambda: drifting(lambda: host.call("sqrt", X)), close)
    assert (found.outcome, found.suspects) == ("not repeatable", ())


def test_a_kernel_that_is_not_called_each_time_is_not_repeatable(reg: nbx.Registry, place: str) -> None:
    client = Client(reg, place)
    runs: list[int] = []

    def run() -> np.ndarray:
        CALLS.clear()
        runs.append(1)
        x = client.call("sqrt", client.put(X))
        # As often as it takes to be found guilty, and no more.
        if len(runs) < 6:
            WRONG.add("add")
            x = client.call("add", x, 1.0)
        return np.array(x if isinstance(x, np.ndarray) else x.numpy())

    found = reg.bisect(run, close)
    assert (found.outcome, found.faults) == ("not repeatable", ())


def test_a_comparison_that_says_nothing_is_told(reg: nbx.Registry, place: str) -> None:
    says_nothing: Any = np.testing.assert_allclose
    with pytest.raises(nbx.SignatureError, match="compare returned None"):
        reg.bisect(Client(reg, place), says_nothing)


def test_what_the_host_cannot_stand_in_for_is_named(place: str) -> None:
    runtime = "host" if place == "cpu" else "sim"
    kernels = [hostile("made::spread", runtime), hostile("add", runtime)]
    made = plugin("hostile", backends=[Backend(name="hostile")], kernels=kernels)
    registry = nbx.load(
        plugins=[nbx_simulated.plugin, made_ops(), made],
        require="any",
        block=["made/spread/numpy", "made/concat/numpy"],
    )
    before = set_default(registry)
    for table in (WRONG, CALLS, FROM):
        table.clear()
    WRONG.add("add")

    def run() -> Any:
        CALLS.clear()
        x = X.reshape(7, 9) if place == "cpu" else nbx.asarray(X.reshape(7, 9), device=place)
        least, most = registry.call("made::spread", x, kernel=f"hostile/spread/{runtime}")
        sums = registry.call("add", least, most, kernel=f"hostile/add/{runtime}")
        return np.array(sums if isinstance(sums, np.ndarray) else sums.numpy())

    found = registry.bisect(run, close)
    set_default(before)
    assert found.op == "add@1"
    assert found.kept == (f"hostile/spread/{runtime}",)
    assert f"not swapped, as the host has no kernel for it: hostile/spread/{runtime}" in str(found)


def test_a_composite_is_named_as_a_whole_and_the_host_s_own_is_trusted() -> None:
    def wrong(trace: Any, x: Any, w: Any, bias: Any, *, activation: Any) -> Any:
        del bias, activation
        return trace.call("multiply", trace.call("matmul", x, trace.permute(w, (1, 0))), 2.0)

    composite = Kernel(
        id="made/linear/parts",
        op="linear@1",
        backend="composite",
        runtimes=(),
        bind=wrong,
        parts=("matmul@1", "multiply@1"),
    )
    registry = nbx.load(plugins=[plugin("made", kernels=[composite])], require="any")
    x = X.reshape(7, 9)

    def run() -> Any:
        y = registry.call("linear", x, x, kernel="made/linear/parts")
        return registry.call("permute_dims", registry.call("sqrt", y), axes=(1, 0))

    found = registry.bisect(run, close)
    assert (found.kernel, found.call, found.suspects) == ("made/linear/parts", 0, ("made/linear/parts",))


def test_what_is_written_in_place_and_over_inputs_is_swapped_too(reg: nbx.Registry, place: str) -> None:
    runtime = "host" if place == "cpu" else "sim"
    WRONG.add("softmax")

    def run() -> Any:
        CALLS.clear()
        x = X.copy() if place == "cpu" else nbx.asarray(X, device=place)
        total = np.ones(63, np.float32) if place == "cpu" else nbx.asarray(np.ones(63, np.float32), device=place)
        # The host's softmax tolerates no overlap; this one does.
        reg.call("softmax", x, axis=0, out=x, kernel=f"hostile/softmax/{runtime}")
        if place == "cpu":
            reg.call("made::accumulate", x, total)
        reg.call("add", x, total, out=total, kernel=f"hostile/add/{runtime}")
        return np.array(total if isinstance(total, np.ndarray) else total.numpy())

    found: Bisection = reg.bisect(run, close)
    assert (found.op, found.call) == ("softmax@1", 0)


def test_one_observer_at_a_time(reg: nbx.Registry, place: str) -> None:
    with reg.record(), pytest.raises(nbx.NbxError, match="one at a time"):
        reg.bisect(Client(reg, place), close)


def test_an_error_with_the_host_s_kernels_is_the_client_s(reg: nbx.Registry) -> None:
    def run() -> Any:
        return reg.call("add", X, np.ones(5, np.float32))

    with pytest.raises(nbx.SignatureError):
        reg.bisect(run, close)
    assert reg.observer is None
