"""The registry's face: arguments of the wrong kind are told by name; a broken runtime is its plugin's fault."""

from __future__ import annotations

import sys
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from making import plugin

import nbx_registry as nbx
from nbx_registry.runtime import LiveDevice
from nbx_registry.runtimespec import RuntimeSpec

X = np.arange(63, dtype=np.float32)


@pytest.fixture(scope="module")
def reg() -> nbx.Registry:
    return nbx.load(require="any")


@pytest.mark.parametrize(
    "arguments",
    [
        *({"block": value} for value in (None, "nbx-cuda", [5], 5, b"nbx-cuda", [[]])),
        *({"plugins": value} for value in (None, sys, "nbx_acme", {"a": 1})),
        *({"require": value} for value in (5, "chekced", [])),
    ],
    ids=str,
)
def test_loading_names_the_argument_that_is_of_another_kind(arguments: dict[str, Any]) -> None:
    (name,) = arguments
    with pytest.raises(nbx.SignatureError, match=rf"^{name}="):
        nbx.load(**arguments)


def test_any_list_of_names_will_do() -> None:
    assert nbx.load(block=(name for name in ["nbx-host"])).plugins["nbx-host"].state == "blocked"


def repr_or_type(value: object) -> str:
    return "object" if type(value) is object else repr(value)


@pytest.mark.parametrize("value", [5, "", [], b"cpu", 1.5, object()], ids=repr_or_type)
@pytest.mark.parametrize("name", ["device", "kernel", "require"])
@pytest.mark.parametrize("method", ["decide", "price", "call", "bind"])
def test_what_a_request_names_is_named_by_a_string(reg: nbx.Registry, method: str, name: str, value: Any) -> None:
    with pytest.raises(nbx.SignatureError, match=rf"^{name}="):
        getattr(reg, method)("add", X, X, **{name: value})


@pytest.mark.parametrize("value", [5, [], None, b"add"], ids=str)
@pytest.mark.parametrize("method", ["decide", "price", "call", "bind"])
def test_an_op_is_named_by_a_string(reg: nbx.Registry, method: str, value: Any) -> None:
    with pytest.raises(nbx.SignatureError, match="an op is named by a string"):
        getattr(reg, method)(value, X, X)


def test_other_names_are_told_too(reg: nbx.Registry) -> None:
    for ask in (reg.catalog.kernel, reg.emulator, reg.runtime, reg.devices.__getitem__):
        with pytest.raises(nbx.UnknownName, match="5"):
            ask(5)  # type: ignore[arg-type]
    for value in (5, "", None):
        with pytest.raises(nbx.SignatureError, match=rf"^device={value!r}"):
            reg.target(value)  # type: ignore[arg-type]


def broken() -> Any:
    """A runtime that has all methods, and no device it could tell."""
    methods = [name for name in dir(nbx.Runtime) if not name.startswith("_")]
    return SimpleNamespace(**dict.fromkeys(methods, lambda *_: "nothing"), name="broken", operands="array")


def raising() -> Any:
    def devices() -> list[LiveDevice]:
        raise RuntimeError("by design")

    made = broken()
    made.devices = devices
    return made


def leaving() -> Any:
    sys.exit(3)


def unfit() -> Any:
    return 5


@pytest.mark.parametrize(
    ("factory", "message"),
    [
        ("broken", "gave 'n', no LiveDevice"),
        ("raising", "raised RuntimeError: by design"),
        ("leaving", "raised SystemExit: 3"),
        ("unfit", "gave 5, which lacks methods"),
        ("absent", "AttributeError"),
    ],
)
def test_a_broken_runtime_is_the_fault_of_its_plugin(
    monkeypatch: pytest.MonkeyPatch, factory: str, message: str
) -> None:
    monkeypatch.setitem(sys.modules, "face_runtimes", sys.modules[__name__])
    made = plugin("made", runtimes=[RuntimeSpec(name="broken", factory=f"face_runtimes:{factory}")])
    reg = nbx.load(plugins=[made])
    with pytest.raises(nbx.PluginFault, match=message) as raised:
        reg.live("broken")
    assert raised.value.plugin == "made"
    with pytest.raises(nbx.PluginFault, match=message):
        reg.decide("add", X, X, device="broken:0")
