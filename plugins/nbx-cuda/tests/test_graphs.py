"""Graphs of a registry's calls on a card, and calls inside a graph of torch's. Kernels are PTX."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import nbx_registry as nbx
from nbx_registry import BindContext, Kernel, Launch, Scalar, ScalarOf, Workspace, hookimpl
from nbx_registry.launch import Artifact
from nbx_registry.registry import set_default
from nbx_registry.streams import current_stream

SIZE = 1000
X = np.linspace(-3, 3, SIZE, dtype=np.float32)


def kernel(name: str, artifact: Artifact, *, through: str = "", replayable: bool = True) -> Kernel:
    """Return a kernel of a vector and a Python float: their sum, by way of workspace ``through``."""

    def bind(context: BindContext) -> list[Launch]:
        function, count = context.load(artifact), Scalar(SIZE, "uint32")
        common: dict[str, Any] = {"function": function, "grid": (-(-SIZE // 128), 1, 1), "block": (128, 1, 1)}
        first = Launch(args=("x1", through or "out", ScalarOf("x2", "float32"), count), **common)
        return [first, Launch(args=(through, "out", Scalar(0.0, "float32"), count), **common)] if through else [first]

    return Kernel(
        id=f"ptx/add/{name}", op="add@1", backend="ptx", runtimes=("cuda",), bind=bind, key=("out.size", "x1.dtype"),
        when=("x2.weak", "x1.shape == [1000]", "x1.contiguous", "x1.dtype == float32"), overlap="same",
        workspace=(Workspace(name=through, dtype="float32", shape=("out.size",)),) if through else (),
        deterministic=True, replayable=replayable,
    )  # fmt: skip


@pytest.fixture
def reg(cuda: Any, kernels: Any) -> Iterator[nbx.Registry]:
    del cuda
    artifact = kernels("add_value", 4)
    own = [
        kernel("plain", artifact),
        kernel("scratch", artifact, through="scratch"),
        kernel("once", artifact, replayable=False),
    ]
    plugin = SimpleNamespace(
        name="ptx",
        NBX_HOOKS=1,
        nbx_register_backends=hookimpl(lambda: [nbx.Backend(name="ptx")], specname="nbx_register_backends"),
        nbx_register_kernels=hookimpl(lambda: own, specname="nbx_register_kernels"),
    )
    made = nbx.load(plugins=[plugin], require="any")
    if made.target("cuda:0").device is None:
        pytest.skip("no device file describes this card")
    before = set_default(made)
    yield made
    set_default(before)


def add(reg: nbx.Registry, x: Any, value: float, kernel: str = "plain", **options: Any) -> Any:
    return reg.call("add", x, value, kernel=f"ptx/add/{kernel}", **options)


def test_calls_and_bound_calls_replay_as_one_graph(reg: nbx.Registry, cuda: Any) -> None:
    x = nbx.asarray(X, device="cuda:0")
    bound = reg.bind("add", x, 1.0, kernel="ptx/add/scratch")
    graph = reg.capture(lambda: add(reg, add(reg, bound(), 2.0), 3.0, "scratch"))
    assert [name.rpartition("/")[2] for name in graph.kernels] == ["scratch", "plain", "scratch"]
    np.testing.assert_array_equal(graph.outputs.numpy(), X + 1 + 2 + 3)
    allocated = cuda.memory(0).allocations
    other = cuda.stream(0)
    for stream, scale in ((None, 3), (other, 5), (other.handle, 7)):
        cuda.copy_in(0, x.address, X * scale)
        graph.replay(stream)
        cuda.synchronize(0)
        np.testing.assert_array_equal(graph.outputs.numpy(), X * scale + 1 + 2 + 3)
    assert cuda.memory(0).allocations == allocated


def test_what_is_written_in_place_goes_on_from_where_the_last_replay_ended(reg: nbx.Registry) -> None:
    total = nbx.asarray(X, device="cuda:0")
    graph = reg.capture(lambda: add(reg, total, 1.0, out=total), steps=3)
    np.testing.assert_array_equal(total.numpy(), X)
    for _ in range(3):
        graph.replay()
    np.testing.assert_array_equal(total.numpy(), X + 1 + 1 + 1)


def test_inputs_are_copied_from_the_host_and_from_the_card(reg: nbx.Registry) -> None:
    graph = reg.capture(lambda x: add(reg, x, 1.0), nbx.asarray(X, device="cuda:0"))
    np.testing.assert_array_equal(graph(X * 2).numpy(), X * 2 + 1)
    np.testing.assert_array_equal(graph(nbx.asarray(X * 3, device="cuda:0")).numpy(), X * 3 + 1)


@pytest.mark.parametrize(
    ("act", "code"),
    [
        (lambda reg, y: y.numpy(), "HOST_READ"),
        (lambda reg, y: reg.runtime("cuda").synchronize(0), "HOST_READ"),
        (lambda reg, y: reg.runtime("cuda").trim(0), "HOST_READ"),
        (lambda reg, y: reg.runtime("cuda").default_stream(0).synchronize(), "HOST_READ"),
        (lambda reg, y: reg.runtime("cuda").copy_in(0, y.address, X), "HOST_READ"),
        (lambda reg, y: nbx.empty((9,), device="cuda:0"), "MOVED"),
        (lambda reg, y: add(reg, y, 1.0, "once"), "NOT_REPLAYABLE"),
    ],
)
def test_what_no_graph_holds_is_refused_and_the_card_goes_on(
    reg: nbx.Registry, act: Callable[..., Any], code: str
) -> None:
    x = nbx.asarray(X, device="cuda:0")

    def function() -> Any:
        y = add(reg, x, 1.0)
        act(reg, y)
        return y

    with pytest.raises(nbx.CaptureError) as caught:
        reg.capture(function)
    assert caught.value.code == code
    np.testing.assert_array_equal(add(reg, x, 1.0).numpy(), X + 1)


def test_a_wait_that_only_the_driver_sees_is_refused_in_its_words(reg: nbx.Registry, cuda: Any) -> None:
    from nbx_cuda.runtime.driver import call

    x = nbx.asarray(X, device="cuda:0")

    def function() -> Any:
        y = add(reg, x, 1.0)
        stream = current_stream("cuda:0") or cuda.default_stream(0)
        call("waiting behind everybody's back", "cuStreamSynchronize", stream.handle)
        return y

    with pytest.raises(nbx.CaptureError, match="waiting behind everybody's back"):
        reg.capture(function)
    np.testing.assert_array_equal(add(reg, x, 1.0).numpy(), X + 1)


def test_whether_a_stream_is_captured_is_told_of_everybody_s(cuda: Any, torch: Any) -> None:
    own = cuda.stream(0)
    assert not cuda.capturing(0)
    assert not cuda.capturing(0, 0)
    with cuda.capture(0, own):
        assert cuda.capturing(0, own)
        assert cuda.capturing(0, own.handle)
        assert not cuda.capturing(0, cuda.stream(0))
    graph, x = torch.cuda.CUDAGraph(), torch.ones(9, device="cuda")
    with torch.cuda.graph(graph):
        x.add_(1)
        assert cuda.capturing(0, torch.cuda.current_stream().cuda_stream)
    assert not cuda.capturing(0, torch.cuda.current_stream().cuda_stream)


def test_calls_are_part_of_a_graph_of_torch_s(reg: nbx.Registry, torch: Any) -> None:
    x = torch.from_numpy(X).cuda()
    out = torch.empty_like(x)
    bound = reg.bind("add", x, 1.0, out=out, kernel="ptx/add/scratch")
    add(reg, bound(), 2.0)  # what is bound for the first time loads code, which no capture may hold
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        y = add(reg, bound(), 2.0) * 2
    out.zero_()
    for scale in (1, 3):
        x.copy_(torch.from_numpy(X * scale))
        graph.replay()
        torch.cuda.synchronize()
        np.testing.assert_array_equal(out.cpu().numpy(), X * scale + 1)
        np.testing.assert_array_equal(y.cpu().numpy(), (X * scale + 1 + 2) * 2)


def test_decode_attention_bound_before_is_part_of_a_graph_of_torch_s(reg: nbx.Registry, cuda: Any, torch: Any) -> None:
    kernel = "nbx-triton/decode_attention/split"
    if kernel not in reg.kernels:
        pytest.skip("nbx-triton is not installed")
    generator = torch.Generator("cuda").manual_seed(63)

    def drawn(*shape: int) -> Any:
        return torch.randn(shape, generator=generator, device="cuda", dtype=torch.float16)

    # More keys than one split takes: partial results go through workspace, and a second launch adds them up.
    q, k, v = drawn(2, 8, 64), drawn(2, 2, 1000, 64), drawn(2, 2, 1000, 64)
    bound = reg.bind("decode_attention", q, k, v, kernel=kernel)
    assert len(bound.launches) == 2
    bound()
    torch.cuda.synchronize()
    allocated, graph = cuda.memory(0).allocations, torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        y = bound() * 1
        for ask in (reg.call, reg.bind):
            with pytest.raises(nbx.CaptureError, match="bind the op before") as caught:
                ask("decode_attention", q, k, v, kernel=kernel)
            assert caught.value.code == "MOVED"
    assert cuda.memory(0).allocations == allocated
    for _ in range(2):
        q.copy_(drawn(2, 8, 64))
        graph.replay()
        torch.cuda.synchronize()
        assert torch.equal(y, reg.call("decode_attention", q, k, v, kernel=kernel))


def test_workspace_of_torch_s_ops_is_part_of_its_graph(reg: nbx.Registry, torch: Any) -> None:
    from nbx_registry.interop.torch import register

    kernel = "nbx-triton/decode_attention/split"
    if kernel not in reg.kernels:
        pytest.skip("nbx-triton is not installed")
    found = register(reg, ["decode_attention", "add"])
    q, k, v = (torch.randn(shape, device="cuda").half() for shape in ((2, 8, 64), (2, 2, 1000, 64), (2, 2, 1000, 64)))
    assert reg.bind("decode_attention", q, k, v).program.workspace
    found.add(found.decode_attention(q, k, v), q)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        y = found.add(found.decode_attention(q, k, v), q)
    for _ in range(3):
        k.copy_(torch.randn_like(k))
        graph.replay()
        expected = found.add(found.decode_attention(q, k, v), q)
        torch.cuda.synchronize()
        assert torch.equal(y, expected)


@pytest.mark.parametrize(("kernel", "code"), [("scratch", "MOVED"), ("once", "NOT_REPLAYABLE")])
def test_what_a_graph_of_torch_s_cannot_hold_is_refused(reg: nbx.Registry, torch: Any, kernel: str, code: str) -> None:
    x = torch.from_numpy(X).cuda()
    out = torch.empty_like(x)
    again = reg.bind("add", x, 1.0, out=out, kernel=f"ptx/add/{kernel}")
    add(reg, x, 1.0, kernel, out=out)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        with pytest.raises(nbx.CaptureError) as caught:
            add(reg, x, 1.0, kernel, out=out)
        assert caught.value.code == code
        if kernel == "once":
            with pytest.raises(nbx.CaptureError):
                again()
        with pytest.raises(nbx.CaptureError, match="captured already"):
            reg.capture(lambda: add(reg, x, 1.0, out=out))
        add(reg, x, 5.0, out=out)
    graph.replay()
    torch.cuda.synchronize()
    np.testing.assert_array_equal(out.cpu().numpy(), X + 5)


def test_torch_s_tensors_are_captured_and_replayed_on_its_stream(reg: nbx.Registry, torch: Any) -> None:
    x = torch.from_numpy(X).cuda()
    graph = reg.capture(lambda x: add(reg, add(reg, x, 1.0), 2.0), x)
    np.testing.assert_array_equal(graph.outputs.cpu().numpy(), X + 1 + 2)
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        y = graph(torch.from_numpy(X * 2).cuda())
        np.testing.assert_array_equal(y.cpu().numpy(), X * 2 + 1 + 2)
    with pytest.raises(nbx.CaptureError, match="lies elsewhere"):
        reg.capture(lambda: add(reg, x * 2, 1.0))
