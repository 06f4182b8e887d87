"""Discovery and quarantine: whatever is wrong with a plugin is said by name, and the rest goes on."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from nbx_registry import dtypes, entrypoints, plugins
from nbx_registry.dtypes import DType
from nbx_registry.entrypoints import Source
from nbx_registry.hookspecs import hookimpl
from nbx_registry.kernel import Backend, Kernel
from nbx_registry.op import op


def hook(name: str, items: list[Any]) -> Any:
    return hookimpl(lambda: items, specname=f"nbx_register_{name}")


def make(name: str, version: object = 1, **items: list[Any]) -> SimpleNamespace:
    hooks = {f"nbx_register_{kind}": hook(kind, values) for kind, values in items.items()}
    return SimpleNamespace(name=name, NBX_HOOKS=version, **hooks)


def kernel(identifier: str, **changes: Any) -> Kernel:
    return Kernel(
        **{
            "id": identifier,
            "op": "add@1",
            "backend": "numpy",
            "runtimes": ("host",),
            "bind": "nbx_registry.host.kernels.elementwise:add",
            **changes,
        }
    )


def found(*extra: Any, block: tuple[str, ...] = ()) -> dict[str, plugins.Plugin]:
    return {plugin.name: plugin for plugin in plugins.discover(block, extra)}


def install(monkeypatch: pytest.MonkeyPatch, load: Callable[[], Any]) -> None:
    source = Source(name="evil", load=load, distribution="nbx-evil", version="1.0", module="evil.plugin")
    monkeypatch.setattr(entrypoints, "installed", lambda: [source])


def test_an_object_of_this_process_is_a_plugin() -> None:
    plugin = found(make("mine", kernels=[kernel("mine/add/x")]))["mine"]
    assert plugin.state == "active"
    assert [k.id for k in plugin.kernels] == ["mine/add/x"]


@pytest.mark.parametrize("version", [0, 2, "1", None])
def test_another_hook_version_is_quarantined(version: object) -> None:
    plugin = found(make("old", version))["old"]
    assert plugin.state == "quarantined"
    assert "hook version" in plugin.reason or "NBX_HOOKS" in plugin.reason
    assert plugin.way_out


def test_a_hook_that_raises_is_quarantined_with_its_traceback() -> None:
    def broken() -> list[Kernel]:
        raise ZeroDivisionError("by design")

    bad = SimpleNamespace(
        name="bad", NBX_HOOKS=1, nbx_register_kernels=hookimpl(broken, specname="nbx_register_kernels")
    )
    plugin = found(bad)["bad"]
    assert plugin.state == "quarantined"
    assert "ZeroDivisionError: by design" in plugin.reason
    assert "broken" in plugin.traceback
    assert found(bad)["nbx-host"].state == "active"


def test_an_unknown_hook_names_the_nearest() -> None:
    @hookimpl
    def nbx_register_kernel() -> list[Kernel]:
        return []

    plugin = found(SimpleNamespace(name="bad", NBX_HOOKS=1, nbx_register_kernel=nbx_register_kernel))["bad"]
    assert plugin.state == "quarantined"
    assert "'nbx_register_kernels'" in plugin.reason


def test_a_hook_that_returns_something_else_is_quarantined() -> None:
    plugin = found(make("bad", kernels=[{"id": "bad/add/x"}]))["bad"]
    assert plugin.state == "quarantined"
    assert "Kernel objects" in plugin.reason


def test_a_kernel_id_claimed_by_its_owner_stays() -> None:
    both = found(make("thief", kernels=[kernel("nbx-host/add/numpy")]))
    assert both["nbx-host"].state == "active"
    assert both["thief"].state == "quarantined"
    assert "'nbx-host/add/numpy'" in both["thief"].reason
    assert "nbx-host and thief" in both["thief"].reason


@pytest.mark.parametrize("order", list(itertools.permutations("abc")), ids="".join)
def test_an_id_nobody_owns_takes_out_all_who_claim_it_in_any_order(order: tuple[str, ...]) -> None:
    made = {
        "a": make("a", kernels=[kernel("shared/add/x")]),
        "b": make("b", kernels=[kernel("shared/add/x")]),
        "c": make("c", kernels=[kernel("c/add/x")]),
    }
    states = found(*(made[name] for name in order))
    assert {name: states[name].state for name in "abc"} == {"a": "quarantined", "b": "quarantined", "c": "active"}
    assert states["a"].reason == states["b"].reason


def test_one_plugin_that_repeats_its_own_id_is_quarantined() -> None:
    plugin = found(make("bad", kernels=[kernel("bad/add/x"), kernel("bad/add/x")]))["bad"]
    assert plugin.state == "quarantined"
    assert "bad twice" in plugin.reason


def test_a_kernel_of_an_unknown_op_names_the_nearest() -> None:
    plugin = found(make("bad", kernels=[kernel("bad/add/x", op="ad@1")]))["bad"]
    assert plugin.state == "quarantined"
    assert "'ad@1'" in plugin.reason
    assert "'add@1'" in plugin.reason


def test_a_kernel_of_an_unknown_backend_is_quarantined() -> None:
    plugin = found(make("bad", kernels=[kernel("bad/add/x", backend="nunpy")]))["bad"]
    assert plugin.state == "quarantined"
    assert "'numpy'" in plugin.reason


def test_an_op_without_a_namespace_is_the_cores_alone() -> None:
    @op("bad_scale@1(x: F[N]) -> F[N]")
    def bad_scale(x: Any) -> Any:
        """Scale."""
        return x

    plugin = found(make("bad", ops=[bad_scale]))["bad"]
    assert plugin.state == "quarantined"
    assert "::bad_scale" in plugin.way_out


def test_a_kernel_whose_op_went_with_a_quarantined_plugin_goes_too() -> None:
    @op("gone::scale@1(x: F[N]) -> F[N]")
    def scale(x: Any) -> Any:
        """Scale."""
        return x

    brings = make("brings", 2, ops=[scale])
    uses = make("uses", kernels=[kernel("uses/scale/x", op="gone::scale@1")])
    states = found(brings, uses)
    assert states["uses"].state == "quarantined"
    assert "'gone::scale@1'" in states["uses"].reason


def test_a_blocked_plugin_is_never_imported(monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch, lambda: pytest.fail("it was imported"))
    plugin = found(block=("evil",))["evil"]
    assert plugin.state == "blocked"
    assert plugin.distribution == "nbx-evil"


@pytest.mark.parametrize("error", [ImportError("no toolkit"), SystemExit(3), SyntaxError("bad")])
def test_a_plugin_that_raises_on_import_is_quarantined(monkeypatch: pytest.MonkeyPatch, error: BaseException) -> None:
    def load() -> Any:
        raise error

    install(monkeypatch, load)
    plugin = found()["evil"]
    assert plugin.state == "quarantined"
    assert type(error).__name__ in plugin.reason
    assert "nbx-evil" in plugin.way_out


def test_two_plugins_of_one_name_are_both_out() -> None:
    plugin = found(make("twin"), make("twin"))["twin"]
    assert plugin.state == "quarantined"
    assert "'twin'" in plugin.reason


def test_a_composite_without_parts_is_quarantined() -> None:
    plugin = found(make("bad", kernels=[kernel("bad/linear/x", op="linear@1", backend="composite")]))["bad"]
    assert plugin.state == "quarantined"
    assert "parts" in plugin.way_out


def test_backends_of_two_plugins_may_not_share_a_name() -> None:
    states = found(make("a", backends=[Backend(name="new")]), make("b", backends=[Backend(name="new")]))
    assert states["a"].state == states["b"].state == "quarantined"


@pytest.mark.parametrize("name", ["composite", "view"])
def test_the_cores_own_backends_are_registered_by_nobody(name: str) -> None:
    plugin = found(make("bad", backends=[Backend(name=name)]))["bad"]
    assert plugin.state == "quarantined"
    assert repr(name) in plugin.reason


def test_a_quarantined_plugin_adds_no_dtype() -> None:
    odd = DType(name="odd7", kind="int", bits=7, key="o7")
    plugin = found(make("bad", dtypes=[odd], backends=[Backend(name="view")]))["bad"]
    assert plugin.state == "quarantined"
    assert "odd7" not in dtypes.TABLE


def test_the_cores_name_is_the_cores() -> None:
    states = found(make("nbx-host", kernels=[kernel("nbx-host/add/mine")]))
    assert states["nbx-host"].state == "active"
    (other,) = [p for name, p in states.items() if name.startswith("nbx-host of ")]
    assert other.state == "quarantined"
    assert "'nbx-host'" in other.reason


def test_a_hook_that_exits_is_quarantined() -> None:
    def leave() -> list[Kernel]:
        raise SystemExit(7)

    bad = SimpleNamespace(
        name="bad", NBX_HOOKS=1, nbx_register_kernels=hookimpl(leave, specname="nbx_register_kernels")
    )
    assert found(bad)["bad"].state == "quarantined"
