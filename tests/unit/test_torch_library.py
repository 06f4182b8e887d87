"""Ops as torch's own: schemas from contracts, checked by torch, and compiled without a break."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from making import host_kernel, made, plugin

import nbx_registry as nbx
from nbx_registry.op import op
from nbx_registry.registry import set_default

# Importing what torch compiles with warns of torch's own.
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning", "ignore::UserWarning")

import torch_ops  # noqa: E402 (it imports torch)

from nbx_registry.interop.torch import Registered, register  # noqa: E402 (as above)
from nbx_registry.interop.torch import _state as state  # noqa: E402 (as above)


@pytest.fixture(scope="module")
def reg() -> Iterator[nbx.Registry]:
    made_here = nbx.load(require="any")
    before = set_default(made_here)
    yield made_here
    set_default(before)


@pytest.fixture(scope="module")
def found(reg: nbx.Registry) -> Registered:
    return register()


# One of each kind: lists, in place, several outputs, no tensors, views, dtypes, optional tensors.
OPS = ("concat", "paged_kv_append_step", "topk", "full", "permute_dims", "astype", "layer_norm")


@pytest.mark.parametrize("name", OPS)
def test_torch_finds_nothing_wrong_with_an_op(reg: nbx.Registry, found: Registered, name: str) -> None:
    assert set(torch_ops.opcheck(reg, found, name).values()) == {"SUCCESS"}


def test_a_function_of_several_ops_compiles_without_a_break(found: Registered) -> None:
    torch_ops.compiled("aot_eager")


def test_every_op_is_known_to_torch_in_its_namespace(reg: nbx.Registry, found: Registered) -> None:
    assert sorted(found.ops) == sorted(reg.ops)
    assert not found.refused
    assert found.softmax is torch.ops.nbx.softmax
    assert found.sdm.wy_solve is torch.ops.sdm.wy_solve
    assert {"add", "sdm", "refused"} <= set(dir(found))
    with pytest.raises(AttributeError, match="'sofmax' is no op that was registered"):
        found.sofmax  # noqa: B018 (that it is looked up is what is tested)


def test_schemas_are_the_contracts(found: Registered) -> None:
    def text(overload: Any) -> str:
        return str(overload._schema)

    ops = torch.ops.nbx
    assert text(ops.linear.default) == (
        "nbx::linear(Tensor x, Tensor w, Tensor? bias=None, *, str? activation=None) -> Tensor"
    )
    assert text(ops.paged_kv_append.default) == (
        "nbx::paged_kv_append(Tensor new, Tensor slot, Tensor(a2!) pool, *, bool saturate=False) -> ()"
    )
    assert set(ops.add.overloads()) == {"Scalar_x1", "Scalar_x2", "default"}
    assert ops.matmul.overloads() == ["default"]


def test_python_scalars_stay_weak_and_dtypes_are_torch_s(found: Registered) -> None:
    ops, x = torch.ops.nbx, torch.arange(7, dtype=torch.float16)
    assert torch.equal(ops.add(x, 2), x + 2)
    assert torch.equal(ops.subtract(2.0, x), 2 - x)
    assert ops.add(x, 2.0).dtype is torch.float16
    assert torch.equal(ops.clip(x, max=3), x.clip(max=3))
    assert torch.equal(ops.clip(x, torch.ones_like(x), 3), x.clip(1, 3))
    assert torch.equal(ops.where(x > 3, x, 0.0), torch.where(x > 3, x, 0))
    assert ops.full(shape=9, fill_value=True).dtype is torch.bool
    assert ops.normal(shape=[9], seed=63).dtype is torch.float32
    assert ops.astype(x, dtype=torch.float8_e4m3fn).dtype is torch.float8_e4m3fn
    assert torch.equal(ops.sum(x.reshape(7, 1), axis=0), x.sum(0, keepdim=True))


def test_results_are_no_views(found: Registered) -> None:
    x = torch.arange(6.0).reshape(2, 3)
    for y in (torch.ops.nbx.permute_dims(x, axes=[1, 0]), torch.ops.nbx.broadcast_to(x, shape=[2, 3])):
        y.zero_()
    assert torch.equal(x, torch.arange(6.0).reshape(2, 3))


def test_gradients_are_refused_unless_they_are_off(found: Registered) -> None:
    x = torch.ones(9, requires_grad=True)
    with pytest.raises(nbx.SignatureError, match="requires grad"):
        torch.ops.nbx.negative(x)
    with torch.no_grad():
        assert torch.equal(torch.ops.nbx.negative(x), -x)
    with torch.inference_mode():
        assert torch.equal(torch.ops.nbx.add(x, torch.ones(9)), torch.full((9,), 2.0))


@pytest.mark.parametrize(
    "ask",
    [
        lambda f, x: torch.func.grad(f)(x),
        lambda f, x: torch.func.jvp(f, (x,), (x,)),
        lambda f, x: torch.func.vmap(torch.func.grad(f))(torch.stack([x, x])),
        lambda f, x: torch.compile(f, backend="eager", fullgraph=True)(x.clone().requires_grad_()),
    ],
    ids=["grad", "jvp", "vmap of grad", "compile"],
)
def test_gradients_are_refused_under_every_transform(found: Registered, ask: Any) -> None:
    with pytest.raises(Exception, match=r"sum: a torch tensor of shape .* requires grad, and no gradient is recorded"):
        ask(torch.ops.nbx.sum, torch.ones(9))


def test_vmap_calls_once_for_each(found: Registered) -> None:
    x = torch.arange(6.0).reshape(2, 3)
    assert torch.equal(torch.func.vmap(torch.ops.nbx.negative)(x), -x)


def test_what_is_written_in_place_is_no_longer_what_a_gradient_needs(found: Registered) -> None:
    pool, w = torch.zeros(1, 1, 4, 3), torch.ones(3, requires_grad=True)
    y = (pool * w).sum()
    torch.ops.nbx.paged_kv_append(torch.ones(1, 1, 3), torch.zeros(1, dtype=torch.int32), pool)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.backward()


def test_what_does_not_fit_the_contract_is_refused_while_shapes_are_inferred(found: Registered) -> None:
    x = torch.ones(2, 3, device="meta")
    assert torch.ops.nbx.matmul(x, x.T).shape == (2, 2)
    assert torch.ops.nbx.full(shape=[3], fill_value=1.0, device="meta").is_meta
    with pytest.raises(nbx.SignatureError, match="matmul"):
        torch.ops.nbx.matmul(x, x)
    with pytest.raises(nbx.SignatureError, match="complex32 is not in the dtype table"):
        torch.ops.nbx.exp(torch.ones(2, dtype=torch.complex32, device="meta"))


def test_compiled_for_one_size_it_is_compiled_anew_for_another(found: Registered) -> None:
    function = torch.compile(lambda x: torch.ops.nbx.softmax(x) * 2, fullgraph=True, backend="aot_eager", dynamic=True)
    for size in (63, 127):
        x = torch.ones(2, size)
        assert torch.equal(function(x), torch.ops.nbx.softmax(x) * 2)


def test_python_numbers_that_change_are_left_open(found: Registered) -> None:
    @torch.compile(fullgraph=True, backend="eager", dynamic=True)
    def function(x: Any, n: Any) -> Any:
        return torch.ops.nbx.full(shape=[3], fill_value=n), torch.ops.nbx.add(x, n * x.shape[0])

    x = torch.arange(4.0)
    for n in (2, 3, 2.5, 0.1):
        full, added = function(x, n)
        assert torch.equal(full, torch.full((3,), n))
        assert torch.equal(added, x + n * 4)


def test_the_registry_given_last_runs_an_op(reg: nbx.Registry, found: Registered) -> None:
    kernel = host_kernel("made/sqrt/nine", lambda x, out: out.fill(9))
    other = nbx.load(plugins=[made("made", kernel)], require="any", block=["nbx-host/sqrt/numpy"])
    x = torch.ones(1, 1, 2)
    try:
        assert register(other, ["sqrt"]).sqrt(x).tolist() == [[[9, 9]]]
    finally:
        register(None, ["sqrt"])
    assert torch.ops.nbx.sqrt(x).tolist() == [[[1, 1]]]
    with pytest.raises(nbx.UnknownName, match="did you mean 'sqrt'"):
        register(ops=["sqr"])
    with pytest.raises(nbx.SignatureError, match=r"write ops=\['sqrt'\]"):
        register(ops="sqrt")
    with pytest.raises(nbx.SignatureError, match="'sqrt' is no registry"):
        register("sqrt")  # type: ignore[arg-type]


def test_what_cannot_be_registered_says_why(found: Registered) -> None:
    @op("aten::mine@1(x: F[*X]) -> F[*X]")
    def mine(x: Any) -> Any:
        """Take a name of torch's."""

    @op("made::unpack@1(x: float4_e2m1fn[N]) -> float16[N]")
    def unpack(x: Any) -> Any:
        """Take what torch has not."""

    odd = nbx.load(plugins=[plugin("odd", ops=[mine, unpack])], require="any")
    refused = register(odd, ["aten::mine", "made::unpack", "add"])
    register(None, ["add"])
    assert "namespace 'aten'" in refused.refused["aten::mine"]
    assert refused.refused["made::unpack"] == "made::unpack: x is float4_e2m1fn, a dtype that torch lacks"
    with pytest.raises(AttributeError, match="ops of its own"):
        refused.aten.mine  # noqa: B018 (that it is looked up is what is tested)


def test_an_op_that_torch_knows_otherwise_is_refused(found: Registered, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(state.schemas, "sqrt", ("sqrt(Tensor x, *, bool fast=False) -> Tensor",))
    with pytest.raises(nbx.NbxError, match=r"torch knows sqrt as .*fast.* and not as sqrt\(Tensor x\)"):
        register(None, ["sqrt"])


def test_no_tensor_is_printed_to_find_the_overload(monkeypatch: pytest.MonkeyPatch) -> None:
    # On a card that waits for the device, and ends a capture.
    def printed(self: Any, **_: Any) -> str:
        raise AssertionError("a tensor was printed")

    found = register(ops=["add", "where", "clip"])
    x, y = torch.full((9,), 2.0), torch.full((9,), 3.0)
    kept = x > y
    monkeypatch.setattr(torch.Tensor, "__repr__", printed)
    for first, second in ((x, y), (2.0, y), (x, 3.0)):
        assert torch.equal(found.add(first, second), torch.full((9,), 5.0))
        assert torch.equal(found.where(kept, first, second), y)
        assert torch.equal(found.clip(y, first, second), y)
    assert torch.equal(found.clip(x, 3.0, 4.0), y)
