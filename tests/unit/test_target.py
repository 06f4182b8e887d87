"""Targets: products, live handles, and what is said of those that are not there."""

from __future__ import annotations

import threading
from types import SimpleNamespace
from typing import Any

import pytest
from making import plugin

import nbx_registry as nbx
import nbx_simulated.plugin
from nbx_registry.kernel import Kernel
from nbx_registry.runtime import LiveDevice
from nbx_registry.runtimespec import RuntimeSpec
from nbx_simulated.runtime import SimulatedRuntime


class Unknown(SimulatedRuntime):
    """A runtime whose one device no file describes."""

    name = "odd"

    def devices(self) -> Any:
        return [LiveDevice(runtime="odd", index=0, name="Odd One", arch="odd_1")]


class Empty(SimulatedRuntime):
    """A runtime without a device."""

    name = "empty"

    def devices(self) -> Any:
        return []

    def why_absent(self) -> str:
        return "the driver is asleep; wake it"


def broken() -> Any:
    raise OSError("by design")


def nothing() -> Any:
    return SimpleNamespace(name="nothing")


@pytest.fixture(scope="module")
def reg() -> nbx.Registry:
    kernel = Kernel(
        id="made/sqrt/tma",
        op="sqrt@1",
        backend="loopback",
        runtimes=("sim",),
        bind="nbx_simulated.kernels:bind",
        when=("device.async_copy.tma",),
    )
    anywhere = Kernel(id="made/sqrt/any", op="sqrt@1", backend="view", runtimes=(), bind=broken)
    runtimes = [
        RuntimeSpec(name=name, factory=f"{__name__}:{factory}", install=install)
        for name, factory, install in (
            ("odd", "Unknown", ""),
            ("empty", "Empty", "pip install wakeful"),
            ("broken", "broken", ""),
            ("nothing", "nothing", ""),
        )
    ]
    extra = plugin("made", kernels=[kernel, anywhere], runtimes=runtimes)
    return nbx.load(plugins=[nbx_simulated.plugin, extra], require="any")


def test_two_live_devices_are_two_products(reg: nbx.Registry) -> None:
    decisions = {place: reg.decide("sqrt", "float32[63]", device=place) for place in ("sim:0", "sim:1")}
    assert decisions["sim:0"].device == "sim:0 (sim/loopback)"
    assert decisions["sim:1"].device == "sim:1 (sim/loopback-large)"
    assert decisions["sim:0"].candidate("made/sqrt/tma").code == "CAPABILITY"
    assert decisions["sim:1"].candidate("made/sqrt/tma").accepted
    assert [target.name for target in reg.live("sim")] == ["sim:0", "sim:1"]
    with pytest.raises(nbx.PluginFault, match="broken"):
        reg.live()


@pytest.mark.parametrize("place", ["sim:2", "sim:7"])
def test_a_handle_beyond_the_last_is_a_named_refusal(reg: nbx.Registry, place: str) -> None:
    decision = reg.decide("sqrt", "float32[63]", device=place)
    assert decision.chosen is None
    refused = decision.candidate("made/sqrt/tma")
    assert refused.code == "RUNTIME_MISSING"
    assert refused.reason == f"there is no {place}; sim:0 to sim:1 are present"
    assert refused.would_run_if == f"{place} is present, or another is asked for (sim:0 to sim:1)"


@pytest.mark.parametrize(
    ("place", "code", "reason", "way"),
    [
        ("empty:0", "RUNTIME_MISSING", "the driver is asleep; wake it", "pip install wakeful"),
        ("tpu:3", "RUNTIME_MISSING", "unknown runtime 'tpu'", "a plugin brings the runtime 'tpu'"),
        ("odd:0", "FACT_MISSING", "no device file matches 'Odd One' (odd_1); write one", "a device file describes it"),
    ],
)
def test_a_device_that_is_not_here_or_not_known_says_why(
    reg: nbx.Registry, place: str, code: str, reason: str, way: str
) -> None:
    candidate = reg.decide("sqrt", "float32[63]", device=place).candidate("made/sqrt/any")
    assert candidate.code == code
    assert candidate.reason.startswith(reason)
    assert candidate.would_run_if.startswith(way)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("nvidia/h200-sxmm", "did you mean 'nvidia/h200-sxm'"),
        ("acme/one", "unknown device 'acme/one'"),
        ("sim/loopbak", "did you mean 'sim/loopback'"),
        ("h200-sxm", "did you mean 'nvidia/h200-sxm'"),
        ("cpu:0", "did you mean 'cpu'"),
        ("simm", "did you mean 'sim:0'"),
        ("host", "write a product"),
        ("cuda:-1", "write a product"),
    ],
)
def test_a_name_of_no_device_is_an_error_with_the_nearest(reg: nbx.Registry, name: str, message: str) -> None:
    with pytest.raises(nbx.UnknownName, match=message):
        reg.decide("sqrt", "float32[63]", device=name)


def test_a_product_of_an_absent_plugin_is_unknown() -> None:
    with pytest.raises(nbx.UnknownName, match="unknown device 'sim/loopback'"):
        nbx.load().decide("sqrt", "float32[63]", device="sim/loopback")


@pytest.mark.parametrize(
    ("place", "message"),
    [("broken:0", "raised OSError: by design"), ("nothing:0", "lacks methods of a Runtime")],
)
def test_a_runtime_that_cannot_be_made_is_its_plugins_fault(reg: nbx.Registry, place: str, message: str) -> None:
    with pytest.raises(nbx.PluginFault, match=message):
        reg.decide("sqrt", "float32[63]", device=place)


def test_a_device_is_one_target_by_whatever_name_and_thread(reg: nbx.Registry) -> None:
    found: list[Any] = []
    start = threading.Barrier(64)

    def work(n: int) -> None:
        start.wait(30)
        found.append(mine.target("sim" if n % 2 else "sim:0"))

    mine = nbx.load(plugins=[nbx_simulated.plugin])
    threads = [threading.Thread(target=work, args=(n,)) for n in range(64)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 64
    assert len(set(map(id, found))) == 1


def test_an_unknown_emulator_or_runtime_names_the_nearest(reg: nbx.Registry) -> None:
    with pytest.raises(nbx.UnknownName, match="did you mean 'sim'"):
        reg.runtime("simm")
    with pytest.raises(nbx.UnknownName, match="unknown emulator 'wgpu-software'"):
        reg.emulator("wgpu-software")
