"""Ops without tensor parameters: where their result is made, and that all else of a request works as for any op."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from making import host_kernel, plugin

import nbx_registry as nbx
from nbx_registry.infer import given_shape
from nbx_registry.kernel import Backend
from nbx_registry.launch import BindContext, Launch
from nbx_registry.op import Signature, op
from nbx_registry.plan import Plan
from nbx_registry.spec import TensorSpec


def _shaped(signature: Signature) -> TensorSpec:
    return TensorSpec(signature.attributes["dtype"], given_shape(signature.attributes["shape"]))


@op("made::ramp@1(*, shape: int[], start: int = 0, dtype: dtype = 'int64') -> T[*S]", infer=_shaped)
def ramp(*, shape: tuple[int, ...], start: int, dtype: object) -> np.ndarray:
    """Count up from start."""
    return np.arange(start, start + int(np.prod(shape))).reshape(shape)


def bind_ramp(context: BindContext) -> Launch:
    """Bind the count."""
    start = context.signature.attributes["start"]

    def run(out: np.ndarray) -> None:
        out[...] = np.arange(start, start + out.size).reshape(out.shape)

    return Launch(function=run, args=context.signature.names)


@pytest.fixture(scope="module")
def reg() -> nbx.Registry:
    kernel = host_kernel("made/ramp/numpy", bind_ramp, op="made::ramp@1", bind=bind_ramp)
    return nbx.load(
        plugins=[plugin("made", ops=[ramp], backends=[Backend(name="made")], kernels=[kernel])], require="any"
    )


WANTED = np.arange(5, 17).reshape(3, 4)


def test_the_result_is_a_tensor_of_the_projects_own_on_the_host(reg: nbx.Registry) -> None:
    y = reg.call("made::ramp", shape=(3, 4), start=5)
    assert isinstance(y, nbx.Tensor)
    assert y.device == "cpu"
    np.testing.assert_array_equal(np.asarray(y), WANTED)
    np.testing.assert_array_equal(np.from_dlpack(y), WANTED)
    np.testing.assert_array_equal(reg.namespace.made.ramp(shape=[3, 4], start=5, device="cpu").numpy(), WANTED)


def test_out_decides_library_and_place(reg: nbx.Registry) -> None:
    import torch

    out = np.zeros((3, 4), np.int64)
    assert reg.call("made::ramp", shape=(3, 4), start=5, out=out) is out
    np.testing.assert_array_equal(out, WANTED)
    tensor = torch.zeros((4, 3), dtype=torch.int64).T
    assert reg.call("made::ramp", shape=(3, 4), start=5, out=tensor) is tensor
    np.testing.assert_array_equal(tensor.numpy(), WANTED)
    with pytest.raises(nbx.SignatureError, match="device='cuda:0', but out= is on cpu"):
        reg.call("made::ramp", shape=(3, 4), out=out, device="cuda:0")


@pytest.mark.parametrize(
    ("keywords", "message"),
    [
        ({}, "attribute shape is missing"),
        ({"shape": (2, -1)}, r"shape=\(2, -1\): axis 1 is -1"),
        ({"shape": (1,) * 33}, "33 axes; at most 32"),
        ({"shape": (2**40, 2**40)}, "more than 2\\*\\*62 elements"),
        ({"shape": (2,), "device": "nvidia/h200-sxm"}, "is a product"),
        ({"shape": (2,), "out": np.zeros(3, np.int64)}, r"out= is int64\[3\]"),
    ],
)
def test_bad_requests_are_named(reg: nbx.Registry, keywords: dict, message: str) -> None:
    with pytest.raises(nbx.SignatureError, match=message):
        reg.call("made::ramp", **keywords)


def test_a_positional_argument_is_one_too_many(reg: nbx.Registry) -> None:
    with pytest.raises(nbx.SignatureError, match="takes 0 tensors"):
        reg.call("made::ramp", 3)


def test_a_device_without_a_kernel_refuses(reg: nbx.Registry) -> None:
    decision = reg.decide("made::ramp", shape=(2,), device="nvidia/h200-sxm")
    assert decision.chosen is None
    assert decision.candidate("made/ramp/numpy").code == "RUNTIME"
    with pytest.raises(nbx.Refused):
        reg.call("made::ramp", shape=(2,), device="cuda:0")


def test_it_is_decided_priced_bound_and_planned(reg: nbx.Registry, tmp_path: Path) -> None:
    assert reg.decide("made::ramp", shape=(2, 3)).chosen == "made/ramp/numpy"
    price = reg.price("made::ramp", shape=(2, 3), dtype="int32", device="host/cpu")
    assert (price.bytes_read, price.bytes_written, price.least_bytes, str(*price.outputs)) == (0, 24, 24, "int32[2, 3]")
    bound = reg.bind("made::ramp", shape=6, start=1)
    assert bound() is bound.out
    out = np.zeros(6, np.int64)
    bound.rebind(out=out)
    bound()
    np.testing.assert_array_equal(out, np.arange(1, 7))
    with reg.record() as plan:
        reg.call("made::ramp", shape=(2, 3), start=2**62)
    file = tmp_path / "plan.json"
    plan.save(file)
    (entry,) = Plan.load(file)
    assert entry.attributes == {"shape": [2, 3], "start": 2**62, "dtype": "int64"}
    (program,) = reg.prepare(Plan.load(file))
    assert program.signature.attributes["shape"] == (2, 3)


def test_it_runs_on_a_device(reg: nbx.Registry) -> None:
    import nbx_simulated.plugin as simulated
    from nbx_registry.registry import set_default

    mine = nbx.load(
        plugins=[simulated, plugin("made", ops=[ramp], kernels=[simulated.loopback("made::ramp@1")])], require="any"
    )
    before = set_default(mine)
    try:
        y = mine.call("made::ramp", shape=(3, 4), start=5, device="sim:1")
        assert y.device == "sim:1"
        np.testing.assert_array_equal(y.numpy(), WANTED)
        out = nbx.empty((3, 4), "int64", device="sim:0")
        assert mine.call("made::ramp", shape=(3, 4), start=6, out=out) is out
        np.testing.assert_array_equal(out.numpy(), WANTED + 1)
    finally:
        set_default(before)
