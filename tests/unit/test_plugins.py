"""Discovery and quarantine: whatever is wrong with a plugin is said by name, and the rest goes on."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pluggy
import pytest

from nbx_registry import dtypes, entrypoints, plugins
from nbx_registry.dtypes import DType
from nbx_registry.entrypoints import Source
from nbx_registry.hookspecs import hookimpl
from nbx_registry.kernel import Backend, Kernel, Workspace
from nbx_registry.op import Op, op
from nbx_registry.runtimespec import Emulator, RuntimeSpec


def hook(name: str, items: Any) -> Any:
    return hookimpl(lambda: items, specname=f"nbx_register_{name}")


def make(name: str, version: object = 1, **items: Any) -> SimpleNamespace:
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


def quarantined(*extra: Any) -> plugins.Plugin:
    """Return the one plugin that is out; the rest of the registry works all the same."""
    states = found(*extra)
    assert states["nbx-host"].state == "active"
    (bad,) = [plugin for plugin in states.values() if plugin.state == "quarantined"]
    assert bad.reason
    assert bad.way_out
    return bad


WRONG_KERNELS: dict[str, tuple[dict[str, Any], str]] = {
    "id-number": ({"id": 5}, "id is 5"),
    "id-of-one-part": ({"id": "bad"}, "kernel id 'bad'"),
    "id-of-dots": ({"id": "bad/../x"}, "kernel id 'bad/../x'"),
    "when-a-string": ({"when": "x1.rank == 2"}, "when is 'x1.rank == 2'"),
    "when-of-numbers": ({"when": (5,)}, "when is (5,)"),
    "when-a-list": ({"when": ["x1.rank == 2"]}, "when is ['x1.rank == 2']"),
    "key-a-string": ({"key": "x1.size"}, "key is 'x1.size'"),
    "runtimes-a-string": ({"runtimes": "host"}, "runtimes is 'host'"),
    "runtimes-none": ({"runtimes": ()}, "names no runtime"),
    "parts-a-string": ({"parts": "add@1"}, "parts is 'add@1'"),
    "parts-of-no-composite": ({"parts": ("add@1",)}, "names parts, which only a composite has"),
    "composite-without-parts": ({"backend": "composite"}, "names no parts"),
    "bind-number": ({"bind": 5}, "bind is 5"),
    "bind-no-reference": ({"bind": "nbx_registry.host.kernels.elementwise.add"}, "bind is"),
    "settings-a-dict": ({"settings": {}}, "settings is {}"),
    "defaults-a-list": ({"defaults": ["a"]}, "defaults is ['a']"),
    "defaults-of-numbers": ({"defaults": {1: 2}}, "defaults is {1: 2}"),
    "preference-text": ({"preference": "-1"}, "preference is '-1'"),
    "preference-bool": ({"preference": True}, "preference is True"),
    "preference-fraction": ({"preference": -1.5}, "preference is -1.5"),
    "deterministic-number": ({"deterministic": 1}, "deterministic is 1"),
    "overlap-unknown": ({"overlap": "some"}, "overlap is 'some'"),
    "workspace-text": ({"workspace": ("N",)}, "workspace is ('N',)"),
    "workspace-shape": ({"workspace": (Workspace(name="s", dtype="int8", shape="N"),)}, "workspace 0: shape is 'N'"),  # type: ignore[arg-type]
    "doc-none": ({"doc": None}, "doc is None"),
    "op-none": ({"op": None}, "op is None"),
}


@pytest.mark.parametrize(("changes", "reason"), WRONG_KERNELS.values(), ids=WRONG_KERNELS)
def test_a_kernel_with_a_field_of_the_wrong_form_is_quarantined(changes: dict[str, Any], reason: str) -> None:
    bad = quarantined(make("bad", kernels=[kernel("bad/add/x", **changes)]))
    assert reason in bad.reason


WRONG_ITEMS: dict[str, tuple[str, Any, str]] = {
    "backend-name": ("backends", Backend(name=""), "name is ''"),
    "backend-modules": ("backends", Backend(name="b", modules="numpy"), "modules is 'numpy'"),  # type: ignore[arg-type]
    "backend-install": ("backends", Backend(name="b", install=None), "install is None"),  # type: ignore[arg-type]
    "runtime-name": ("runtimes", RuntimeSpec(name="my-runtime", factory="m:f"), "name is 'my-runtime'"),
    "runtime-cpu": ("runtimes", RuntimeSpec(name="cpu", factory="m:f"), "name is 'cpu'"),
    "runtime-factory": ("runtimes", RuntimeSpec(name="r", factory=print), "factory is <built-in"),  # type: ignore[arg-type]
    "emulator": ("emulators", Emulator(name="e", backend="b", runtimes=(), factory="m"), "factory is 'm'"),
    "emulator-environment": (
        "emulators",
        Emulator(name="e", backend="b", runtimes=(), factory="m:f", environment={"A": 1}),  # type: ignore[dict-item]
        "environment is {'A': 1}",
    ),
    "dtype-bits": ("dtypes", DType(name="odd", kind="int", bits=0, key="odd"), "bits is 0"),
    "dtype-kind": ("dtypes", DType(name="odd", kind="fixed", bits=8, key="odd"), "kind is 'fixed'"),  # type: ignore[arg-type]
    "dtype-key": ("dtypes", DType(name="odd", kind="int", bits=8, key="o d"), "key is 'o d'"),
    "dtype-like-an-axis": ("dtypes", DType(name="N8", kind="int", bits=8, key="n8"), "'N8' is no lower-case word"),
    "dtype-like-a-word": ("dtypes", DType(name="scale", kind="int", bits=8, key="sc"), "with its 8 bits in it"),
    "device-folder-text": ("devices", "/devices", "a str; it must return Path objects"),
    "evidence-relative": ("evidence", Path("evidence"), "relative path"),
}


@pytest.mark.parametrize(("kind", "item", "reason"), WRONG_ITEMS.values(), ids=WRONG_ITEMS)
def test_anything_of_the_wrong_form_is_quarantined(kind: str, item: Any, reason: str) -> None:
    assert reason in quarantined(make("bad", **{kind: [item]})).reason


class Liar(str):
    """A string that is not what it says."""

    __slots__ = ()

    def __eq__(self, other: object) -> bool:
        raise RuntimeError("by design")

    def __hash__(self) -> int:
        raise RuntimeError("by design")


@pytest.mark.parametrize("value", [Liar("x1"), (Liar("x1"),)], ids=["string", "tuple"])
@pytest.mark.parametrize("field", ["id", "op", "backend", "bind", "overlap", "when", "key", "runtimes", "parts"])
def test_strings_are_of_the_very_type(field: str, value: Any) -> None:
    bad = quarantined(make("bad", kernels=[kernel("bad/add/x", **{field: value})]))
    assert f"{field} is " in bad.reason


class Shifting(Kernel):
    """A kernel whose data change as they are read."""


class Claiming:
    """Something that says it is an op."""

    __class__ = Op  # type: ignore[assignment]


@pytest.mark.parametrize(
    ("kind", "item"),
    [
        ("kernels", Shifting(id="bad/add/x", op="add@1", backend="numpy", runtimes=("host",), bind="m:f")),
        ("ops", Claiming()),
        ("evidence", type("Folder", (type(Path()),), {})("/evidence")),
    ],
    ids=["subclass", "claim", "path"],
)
def test_what_is_registered_is_of_the_very_class(kind: str, item: Any) -> None:
    assert f"a {type(item).__name__}; it must return" in quarantined(make("bad", **{kind: [item]})).reason


def test_the_name_of_a_class_need_not_be_askable() -> None:
    class Nameless(type):
        @property
        def __name__(cls) -> str:  # type: ignore[override]
            raise RuntimeError("by design")

    class Bad(metaclass=Nameless):
        NBX_HOOKS = 2
        name = "bad"

    assert "an object of the class Bad was written for hook version 2" in quarantined(Bad()).reason


def test_a_hook_with_arguments_is_quarantined() -> None:
    bad = quarantined(SimpleNamespace(name="bad", NBX_HOOKS=1, nbx_register_kernels=hookimpl(lambda registry: [])))
    assert bad.reason.endswith("nbx_register_kernels takes arguments, which no hook does")


@pytest.mark.parametrize("version", [None, "1", 1.0, True])
def test_without_a_hook_version_the_way_out_is_to_state_it(version: object) -> None:
    assert quarantined(make("bad", version)).way_out == "write NBX_HOOKS = 1 in it"


def test_a_kernel_whose_backend_is_blocked_may_have_it_unblocked() -> None:
    toolkit = make("toolkit", backends=[Backend(name="kit")])
    user = make("user", kernels=[kernel("user/add/x", backend="kit")])
    assert "unblock the plugin" in found(toolkit, user, block=("toolkit",))["user"].way_out


@pytest.mark.parametrize("result", [None, "nbx", {"id": "x"}, 5, b""], ids=repr)
def test_a_hook_that_returns_no_list_is_quarantined(result: Any) -> None:
    bad = quarantined(make("bad", kernels=result))
    assert f"nbx_register_kernels returned {result!r}" in bad.reason
    assert "Kernel objects" in bad.reason


def test_a_hook_that_raises_midway_leaves_nothing_of_its_plugin() -> None:
    def some() -> Iterator[Kernel]:
        yield kernel("bad/add/x")
        raise ZeroDivisionError("by design")

    bad = quarantined(
        SimpleNamespace(name="bad", NBX_HOOKS=1, nbx_register_kernels=hookimpl(some, specname="nbx_register_kernels"))
    )
    assert "nbx_register_kernels raised ZeroDivisionError: by design" in bad.reason
    assert bad.kernels == ()


@pytest.mark.parametrize("name", ["nbx_register_kernels", "nbx_register_kernel"])
def test_a_hook_that_nobody_marked_is_quarantined(name: str) -> None:
    bad = quarantined(SimpleNamespace(name="bad", NBX_HOOKS=1, **{name: list}))
    assert f"{name} is not marked" in bad.reason
    assert "@hookimpl" in bad.way_out


def test_a_wrapper_of_hooks_is_quarantined() -> None:
    @hookimpl(wrapper=True)
    def nbx_register_kernels() -> Any:
        return (yield)

    bad = quarantined(SimpleNamespace(name="bad", NBX_HOOKS=1, nbx_register_kernels=nbx_register_kernels))
    assert "nothing to wrap" in bad.reason


class Raises:
    """Raises whatever it is asked."""

    def __init__(self, what: str, error: BaseException) -> None:
        object.__getattribute__(self, "__dict__").update(what=what, error=error)

    def __getattribute__(self, name: str) -> Any:
        own = object.__getattribute__(self, "__dict__")
        if name == own["what"] or (own["what"] == "*" and not name.startswith("__")):
            raise own["error"]
        return {"NBX_HOOKS": 1, "name": "bad"}.get(name) or object.__getattribute__(self, name)

    def __dir__(self) -> list[str]:
        if self.__dict__["what"] == "__dir__":
            raise self.__dict__["error"]
        return ["NBX_HOOKS", "name"]


class Unprintable(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no")

    __repr__ = __str__


class Leaving(BaseException):
    """Neither an error nor a key."""


@pytest.mark.parametrize("error", [ValueError("by design"), Unprintable()], ids=["plain", "unprintable"])
@pytest.mark.parametrize("what", ["name", "__name__", "__dir__", "NBX_HOOKS", "*"])
def test_a_plugin_that_raises_when_looked_at_is_quarantined(what: str, error: BaseException) -> None:
    assert type(error).__name__ in quarantined(Raises(what, error)).reason


def test_what_a_hook_returns_need_not_be_printable() -> None:
    assert "repr raises RuntimeError" in quarantined(make("bad", kernels=[Unprintable()])).reason
    assert "repr raises RuntimeError" in quarantined(make("bad", Unprintable())).reason


@pytest.mark.parametrize("error", [Leaving(), SystemExit(3), GeneratorExit()], ids=lambda error: type(error).__name__)
def test_whatever_a_hook_raises_is_told(error: BaseException) -> None:
    def leave() -> list[Kernel]:
        raise error

    hooks = {"nbx_register_kernels": hookimpl(leave, specname="nbx_register_kernels")}
    assert type(error).__name__ in quarantined(SimpleNamespace(name="bad", NBX_HOOKS=1, **hooks)).reason


def test_the_users_interrupt_is_the_users() -> None:
    def wait() -> list[Kernel]:
        raise KeyboardInterrupt

    hooks = {"nbx_register_kernels": hookimpl(wait, specname="nbx_register_kernels")}
    with pytest.raises(KeyboardInterrupt):
        found(SimpleNamespace(name="bad", NBX_HOOKS=1, **hooks))


@pytest.mark.parametrize("name", ["my plugin", "a/b", "", "ä"])
def test_a_name_that_could_not_be_blocked_is_no_name(name: str) -> None:
    if name:
        assert repr(name) in quarantined(make(name)).reason
    else:
        assert found(make(name))["SimpleNamespace"].state == "active"


def test_names_that_differ_in_spelling_alone_are_one() -> None:
    bad = quarantined(make("nbx-twin"), make("NBX_Twin"))
    assert "'NBX_Twin' and 'nbx-twin'" in bad.reason
    assert found(make("NBX_Twin"), block=("nbx.twin",))["NBX_Twin"].state == "blocked"
    assert found(make("NBX-Host"))["nbx-host"].state == "active"


def test_a_plugin_quarantined_for_what_others_bring_adds_no_dtype() -> None:
    odd = DType(name="odd7", kind="int", bits=7, key="o7")
    states = found(make("a", dtypes=[odd], kernels=[kernel("a/add/x", op="adds@1")]))
    assert states["a"].state == "quarantined"
    assert "odd7" not in dtypes.TABLE


def test_two_dtypes_of_one_name_take_out_both_who_claim_it() -> None:
    states = found(
        make("a", dtypes=[DType(name="odd7", kind="int", bits=7, key="o7")]),
        make("b", dtypes=[DType(name="odd7", kind="uint", bits=7, key="ou7")]),
    )
    assert states["a"].state == states["b"].state == "quarantined"
    assert "'odd7'" in states["a"].reason
    assert "odd7" not in dtypes.TABLE


def test_a_dtype_with_other_facts_than_the_tables_is_quarantined() -> None:
    odd = DType(name="float32", kind="int", bits=32, key="o32")
    assert "'float32' is already in the table" in quarantined(make("bad", dtypes=[odd])).reason


class Equal:
    """Equal to whatever it is compared with, and brings kernels by two functions."""

    NBX_HOOKS = 1

    def __init__(self, name: str) -> None:
        self.name = name
        for part in ("x", "y"):
            setattr(self, f"more_{part}", hook("kernels", [kernel(f"{name}/add/{part}")]))

    def __eq__(self, other: object) -> bool:
        return True

    def __hash__(self) -> int:
        return 0


def test_each_plugin_brings_its_own_whatever_it_is_equal_to() -> None:
    states = found(Equal("one"), Equal("two"), make("three", kernels=[kernel("three/add/x")]), make("four"))
    brought = {name: sorted(k.id for k in states[name].kernels) for name in ("one", "two", "three", "four")}
    assert {name: states[name].reason for name in brought} == dict.fromkeys(brought, "")
    assert brought == {
        "one": ["one/add/x", "one/add/y"],
        "two": ["two/add/x", "two/add/y"],
        "three": ["three/add/x"],
        "four": [],
    }


def test_the_hooks_are_read_once_for_all_plugins(monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[object] = []
    add = pluggy.PluginManager.add_hookspecs
    monkeypatch.setattr(pluggy.PluginManager, "add_hookspecs", lambda self, of: (read.append(of), add(self, of)))
    assert len(found(make("one"), make("two"), make("three"))) > 3
    assert len(read) == 1
