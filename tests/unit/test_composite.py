"""Composites: traced, nested, looked at sideways; on NumPy arrays and over addresses."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from making import plugin
from ops_made import OPS, made_ops

import nbx_registry as nbx
import nbx_simulated.plugin
from nbx_registry.kernel import Backend, Kernel, Workspace
from nbx_registry.launch import BindContext, Launch
from nbx_registry.program import workspace_of
from nbx_registry.registry import set_default

Place = Callable[[Any], Any]


def composite(identifier: str, op: str, function: Callable[..., Any], *parts: str, **changes: Any) -> Kernel:
    return Kernel(id=identifier, op=op, backend="composite", runtimes=(), bind=function, parts=parts, **changes)


def linear_of_parts(trace: Any, x: Any, w: Any, bias: Any, *, activation: Any) -> Any:
    y = trace.call("matmul", x, trace.permute(w, (1, 0)))
    return y if bias is None else trace.call("add", y, bias)


def twice_by_linear(trace: Any, x: Any, *, approximate: str) -> Any:
    """2 x, by way of a linear with twice the unit matrix's first column: nested, with a slice and a constant."""
    column = trace.index(trace.reshape(x, (-1, 1)), (slice(None), slice(0, 1)))
    weight = trace.call("add", trace.index(trace.call("multiply", column, 0.0), (slice(0, 1), slice(0, 1))), 2)
    return trace.call("linear", x, weight)


def gelu_twice(trace: Any, x: Any, *, axis: int) -> Any:
    return trace.call("gelu", trace.call("gelu", x))


def spread_of_halves(trace: Any, x: Any, low: Any, high: Any) -> Any:
    """Least and most of each row: of each half, then of both, from slices that begin in the middle."""
    half = x.shape[1] // 2
    parts = [trace.index(x, (slice(None), slice(0, half))), trace.index(x, (slice(None), slice(half, None)))]
    ends = [trace.call("made::spread", part, None, None) for part in parts]
    least = trace.call("made::concat", [trace.reshape(e[0], (1, -1)) for e in ends])
    most = trace.call("made::concat", xs=[trace.reshape(e[1], (1, -1)) for e in ends])
    return (
        trace.call("made::spread", trace.permute(least, (1, 0)))[0],
        trace.call("made::spread", trace.permute(most, (1, 0)))[1],
    )


def accumulate_by_parts(trace: Any, x: Any, total: Any) -> None:
    half = x.shape[0] // 2
    for part in (slice(0, half), slice(half, None)):
        trace.call("made::accumulate", trace.index(x, part), trace.index(total, part))


KERNELS = (
    composite("made/linear/parts", "linear@1", linear_of_parts, "matmul@1", "add@1", when=("activation == None",)),
    composite(
        "made/gelu/parts",
        "gelu@1",
        twice_by_linear,
        "multiply@1",
        "add@1",
        "linear@1",
        when=("x.rank == 2", "x.shape[1] == 1"),
    ),
    composite("made/spread/parts", "made::spread@1", spread_of_halves, "made::spread@1", "made::concat@1"),
    composite("made/accumulate/parts", "made::accumulate@1", accumulate_by_parts, "made::accumulate@1"),
    composite("made/softmax/scratch", "softmax@1", gelu_twice, "gelu@1"),
)


def scratch_kernel(runtime: str) -> Kernel:
    """Return a kernel of gelu that adds 1 by way of workspace."""

    def on_arrays(x: Any, out: Any, scratch: Any) -> None:
        scratch[...] = x + 1
        out[...] = scratch

    def bind(context: BindContext) -> Launch:
        spec = context.signature.tensor("x")
        out = context.signature.outputs[0]

        def on_addresses(memory: Any, x: int, out_: int, scratch: int) -> None:
            on_arrays(memory.array(x, spec), memory.array(out_, out), memory.array(scratch, spec.dense()))

        function = on_arrays if runtime == "host" else on_addresses
        return Launch(function=function, args=("x", "out", "scratch"))

    shape = tuple(f"x.shape[{axis}]" for axis in range(2))
    workspace = (Workspace(name="scratch", dtype="float32", shape=shape),)
    backend = "made" if runtime == "host" else "loopback"
    return Kernel(
        id=f"made/gelu/scratch-{runtime}", op="gelu@1", backend=backend, runtimes=(runtime,), bind=bind,
        workspace=workspace, preference=5, when=("x.rank == 2",), overlap="any",
    )  # fmt: skip


@pytest.fixture(scope="module")
def reg() -> Iterator[nbx.Registry]:
    loopbacks = [nbx_simulated.plugin.loopback(f"made::{name}@1") for name in ("concat", "spread", "accumulate")]
    scratch = [scratch_kernel("host"), scratch_kernel("sim")]
    plugins = [nbx_simulated.plugin, made_ops(*KERNELS, *loopbacks, *scratch)]
    # So that the kernels of this module are the ones chosen for parts.
    others = [f"{owner}/{op}" for owner in ("nbx-host", "nbx-simulated") for op in ("linear", "gelu")]
    made = nbx.load(
        plugins=plugins,
        block=[k for k in nbx.load(plugins=plugins).kernels if k.rpartition("/")[0] in others],
        require="any",
    )
    before = set_default(made)
    yield made
    set_default(before)


@pytest.fixture(params=["cpu", "sim:0"])
def put(request: pytest.FixtureRequest, reg: nbx.Registry) -> Place:
    return (lambda x: x) if request.param == "cpu" else (lambda x: nbx.asarray(x, device=request.param))


def array(x: Any) -> np.ndarray:
    return x if isinstance(x, np.ndarray) else x.numpy()


def numbers(*shape: int, seed: int = 5) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


@pytest.mark.parametrize("bias", [False, True], ids=["alone", "bias"])
def test_a_composite_looks_at_its_inputs_sideways(reg: nbx.Registry, put: Place, bias: bool) -> None:
    x, w, b = numbers(3, 5, 7), numbers(4, 7), numbers(4)
    given = [put(x), put(w), put(b) if bias else None]
    y = reg.call("linear", *given, kernel="made/linear/parts")
    np.testing.assert_allclose(array(y), x @ w.T + (b if bias else 0), rtol=1e-5, atol=1e-5)


def test_an_output_with_strides_of_its_own_is_written_where_it_is(reg: nbx.Registry, put: Place) -> None:
    x, w, b = numbers(5, 7), numbers(4, 7), numbers(4)
    memory = put(np.full((9, 10), np.nan, np.float32))
    out = memory[:4, :5].T if isinstance(memory, np.ndarray) else memory[:4, :5].permute((1, 0))
    reg.call("linear", put(x), put(w), put(b), out=out, kernel="made/linear/parts")
    np.testing.assert_allclose(array(memory)[:4, :5].T, x @ w.T + b, rtol=1e-5, atol=1e-5)
    assert np.isnan(array(memory)[4:]).all()
    assert np.isnan(array(memory)[:, 5:]).all()


def test_composites_are_made_of_composites(reg: nbx.Registry, put: Place) -> None:
    x = numbers(6, 1)
    with_parts = reg.bind("gelu", put(x), kernel="made/gelu/parts")
    np.testing.assert_array_equal(array(with_parts()), 2 * x)
    assert with_parts.program.choice.parts[-1].kernel.id == "made/linear/parts"
    names = [slot.name for slot in with_parts.program.slots]
    assert len(set(names)) == len(names)


def test_slices_lists_and_several_outputs_are_traced(reg: nbx.Registry, put: Place) -> None:
    x = numbers(5, 9)
    least, most = reg.call("made::spread", put(x), kernel="made/spread/parts")
    np.testing.assert_array_equal(array(least), x.min(1))
    np.testing.assert_array_equal(array(most), x.max(1))


def test_parts_write_in_place_what_their_op_may(reg: nbx.Registry, put: Place) -> None:
    total = put(np.ones(9))
    reg.call("made::accumulate", put(numbers(9)), total, kernel="made/accumulate/parts")
    np.testing.assert_allclose(array(total), 1 + numbers(9).astype(np.float64))


def test_workspace_of_parts_is_their_own_and_priced_without_binding(reg: nbx.Registry, put: Place) -> None:
    x = put(numbers(5, 3))
    bound = reg.bind("softmax", x, kernel="made/softmax/scratch")
    for _ in range(2):
        np.testing.assert_array_equal(array(bound()), numbers(5, 3) + 1 + 1)
    program = bound.program
    assert [slot.name for slot in program.workspace] == ["#0", ".0.scratch", ".1.scratch"]
    assert tuple(workspace_of(program.choice, program.signature)) == program.workspace
    place = program.target.name
    price = reg.price("softmax", "float32[5, 3]", device=place, kernel="made/softmax/scratch")
    assert price.workspace == 3 * 5 * 3 * 4


def test_workspace_is_kept_from_call_to_call_by_a_bound_alone(reg: nbx.Registry) -> None:
    runtime = reg.runtime("sim")
    x = nbx.asarray(numbers(5, 3), device="sim:0")
    bound = reg.bind("gelu", x, kernel="made/gelu/scratch-sim")
    before = runtime.memory(0).allocations
    bound(), bound()
    assert runtime.memory(0).allocations == before
    reg.call("gelu", x, out=bound.out, kernel="made/gelu/scratch-sim")
    assert runtime.memory(0).allocations == before + 1
    np.testing.assert_array_equal(bound.out.numpy(), numbers(5, 3) + 1)


# What is wrong with one is its plugin's fault.


def broken(function: Callable[..., Any], *parts: str, op: str = "made::spread@1", **facts: Any) -> nbx.Decision:
    kernel = composite("made/broken/x", op, function, *parts, **facts)
    reg = nbx.load(plugins=[plugin("made", ops=OPS, kernels=[kernel])], require="any")
    specs = ("float32[9]", "float64[9]") if "accumulate" in op else ("float32[5, 9]",)
    return reg.decide(op, *specs, kernel=kernel.id)


def other_memory(trace: Any, x: Any, total: Any) -> None:
    trace.call("made::accumulate", x, x)


@pytest.mark.parametrize(
    ("function", "op", "message"),
    [
        (lambda trace, *_: trace.call("sqrt", 1.0), "made::spread@1", "calls sqrt@1, which its parts="),
        (lambda trace, x, *_: (x, x), "made::spread@1", "for output 'least': a fresh"),
        (lambda trace, x, *_: x, "made::spread@1", "returned 1 tensors; made::spread@1 has 2 outputs"),
        (lambda trace, *_: (1, 2), "made::spread@1", "returned 1 for output 'least'"),
        (lambda trace, *_: 1 / 0, "made::spread@1", "ZeroDivisionError"),
        (lambda trace, x, *_: trace.permute(x, (0, 2)), "made::spread@1", "no permutation"),
        (other_memory, "made::accumulate@1", "write 'x' in place, which its own op only reads"),
    ],
)
def test_a_broken_composite_is_a_fault(function: Callable[..., Any], op: str, message: str) -> None:
    decision = broken(function, "made::accumulate@1", op=op)
    assert decision.chosen is None
    assert message in decision.faults[0].message
    assert decision.faults[0].plugin == "made"


def test_a_composite_of_nothing_has_no_evidence() -> None:
    def nothing(trace: Any, x: Any, total: Any) -> None:
        return None

    kernel = composite("made/accumulate/nothing", "made::accumulate@1", nothing, "made::accumulate@1")
    reg = nbx.load(plugins=[plugin("made", ops=OPS, kernels=[kernel])])
    assert reg.decide("made::accumulate", "float32[9]", "float64[9]").candidate(kernel.id).code == "EVIDENCE"
    assert reg.decide("made::accumulate", "float32[9]", "float64[9]", require="any").chosen == kernel.id


def test_a_composite_that_contains_itself_is_refused() -> None:
    def itself(trace: Any, x: Any, low: Any, high: Any) -> Any:
        return trace.call("made::spread", x)

    decision = broken(itself, "made::spread@1")
    assert decision.candidate("made/broken/x").code == "PART_REFUSED"
    assert "contain itself" in decision.candidate("made/broken/x").reason


def test_a_part_that_is_a_view_is_the_composites_fault() -> None:
    def turned(trace: Any, x: Any, *, approximate: str) -> Any:
        return trace.call("permute_dims", x, axes=(1, 0))

    kernel = composite("made/gelu/turned", "gelu@1", turned, "permute_dims@1")
    reg = nbx.load(plugins=[plugin("made", kernels=[kernel])], require="any")
    with pytest.raises(nbx.PluginFault, match=r"made/gelu/turned' calls permute_dims.*trace\.permute") as caught:
        reg.call("gelu", numbers(3, 3), kernel=kernel.id)
    assert caught.value.plugin == "made"


def test_a_slice_is_aligned_as_far_as_it_is() -> None:
    def of_slice(trace: Any, x: Any, *, approximate: str) -> Any:
        assert trace.index(x, slice(2, 4)).spec.align == 8
        assert trace.index(x, slice(4, 6)).spec.align == 16
        assert trace.index(x, slice(1, None, 2)).spec.align == 4
        assert trace.expand(trace.index(x, slice(1, 2)), (9,)).spec.strides == (0,)
        return trace.call("sqrt", x)

    kernel = composite("made/gelu/sliced", "gelu@1", of_slice, "sqrt@1")
    reg = nbx.load(plugins=[plugin("made", kernels=[kernel])], require="any")
    assert reg.decide("gelu", "float32[9]", kernel=kernel.id).chosen == kernel.id


# Programs.


@pytest.mark.parametrize(
    ("workspace", "message"),
    [
        (Workspace(name="w", dtype="float32", shape=("Q",)), "has no 'Q'"),
        (Workspace(name="w", dtype="float32", shape=("x.size / 2",)), "no extent"),
        (Workspace(name="w", dtype="float32", shape=("x.size // (x.rank - 2)",)), "w' of 'made/gelu/w'"),
        (Workspace(name="x", dtype="float32", shape=("3",)), "named as a tensor"),
    ],
)
def test_workspace_that_cannot_be_told_is_a_fault(workspace: Workspace, message: str) -> None:
    def bind(context: BindContext) -> Launch:
        return Launch(function=print, args=("x", "out"))

    kernel = Kernel(
        id="made/gelu/w", op="gelu@1", backend="made", runtimes=("host",), bind=bind, workspace=(workspace,)
    )
    reg = nbx.load(plugins=[plugin("made", backends=[Backend(name="made")], kernels=[kernel])], require="any")
    with pytest.raises(nbx.PluginFault, match=message):
        reg.call("gelu", numbers(3, 3), kernel=kernel.id)


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (None, "must return a Launch, several, or a View"),
        ([Launch(function=print, args=()), 3], "must return a Launch, several, or a View"),
        (Launch(function=print, args=("x", "y")), "do not fit: launch argument 'y' is no slot"),
        (nbx.View(of="y", shape=(3, 3), strides=(3, 1)), "no view of its output"),
        (nbx.View(of="x", shape=(3, 4), strides=(3, 1)), "no view of its output"),
    ],
)
def test_a_binder_whose_answer_does_not_fit_is_at_fault(answer: Any, message: str) -> None:
    kernel = Kernel(id="made/gelu/b", op="gelu@1", backend="made", runtimes=("host",), bind=lambda context: answer)
    reg = nbx.load(plugins=[plugin("made", backends=[Backend(name="made")], kernels=[kernel])], require="any")
    with pytest.raises(nbx.PluginFault, match=message) as caught:
        reg.call("gelu", numbers(3, 3), kernel=kernel.id)
    assert caught.value.plugin == "made"


def test_several_launches_run_in_order() -> None:
    def bind(context: BindContext) -> list[Launch]:
        copy = Launch(function=lambda x, out: np.copyto(out, x), args=("x", "out"))
        double = Launch(function=lambda out: np.multiply(out, 2, out=out), args=("out",))
        return [copy, double, double]

    kernel = Kernel(id="made/gelu/b", op="gelu@1", backend="made", runtimes=("host",), bind=bind)
    reg = nbx.load(plugins=[plugin("made", backends=[Backend(name="made")], kernels=[kernel])], require="any")
    np.testing.assert_array_equal(reg.call("gelu", numbers(3, 3), kernel=kernel.id), 4 * numbers(3, 3))
    assert len(reg.bind("gelu", numbers(3, 3), kernel=kernel.id).launches) == 3


def test_a_price_binds_nothing_and_needs_no_toolkit() -> None:
    bound: list[Any] = []
    kernel = Kernel(
        id="made/gelu/w",
        op="gelu@1",
        backend="absent",
        runtimes=("cuda",),
        bind=bound.append,
        workspace=(Workspace(name="w", dtype="float16", shape=("2", "x.size")),),
    )
    absent = Backend(name="absent", modules=("not_installed",))
    reg = nbx.load(plugins=[plugin("made", backends=[absent], kernels=[kernel])], require="any")
    price = reg.price("gelu", "float32[63]", device="nvidia/h200-sxm", kernel=kernel.id)
    assert price.workspace == 2 * 63 * 2
    assert price.floor_s > 0
    assert not bound


def test_a_runtime_without_devices_stands_in_for_nothing() -> None:
    class Empty:
        name = "empty"

        def devices(self) -> list[Any]:
            return []

        def why_absent(self) -> str:
            return "by design"

    reg = nbx.load(require="any")
    signature, _ = reg.signature("sqrt", "float32[3]")
    runtime: Any = Empty()
    with pytest.raises(nbx.NbxError, match="runtime empty has no device: by design"):
        reg.bind_specs("sqrt", signature, device="host/cpu", runtime=runtime)
