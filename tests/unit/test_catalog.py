"""The catalog: names to things, and looking for toolkits without importing them."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from making import add, host_kernel, made, plugin

import nbx_registry as nbx
from nbx_registry.kernel import Backend
from nbx_registry.op import op


@op("made::twice@1(x: F[N]) -> F[N]")
def twice_1(x):
    """Double."""
    return 2 * x


@op("made::twice@2(x: F[N], *, times: int = 2) -> F[N]")
def twice_2(x, *, times):
    """Multiply."""
    return times * x


def test_a_bare_name_is_the_highest_version() -> None:
    reg = nbx.load(plugins=[plugin("made", ops=[twice_2, twice_1])])
    assert reg.catalog.op("made::twice") is twice_2
    assert reg.catalog.op("made::twice@1") is twice_1
    assert reg.ops["made::twice"] is twice_2
    assert "made::twice@1" not in reg.ops


@pytest.mark.parametrize("kind", ["op", "kernel"])
def test_an_unknown_name_tells_of_plugins_that_are_not_active(kind: str) -> None:
    catalog = nbx.load(plugins=[plugin("made", ops=[object()])]).catalog
    with pytest.raises(nbx.UnknownName, match=f"unknown {kind} 'made/x'.*plugins not active: made"):
        getattr(catalog, kind)("made/x")


def test_kernels_are_listed_by_id_whoever_brings_them() -> None:
    one, two = (made(name, host_kernel(f"{name}/add/x", add, backend=name)) for name in ("b", "a"))
    for extra in (one, two):
        extra.nbx_register_backends = plugin(extra.name, backends=[Backend(name=extra.name)]).nbx_register_backends
    listed = list(nbx.load(plugins=[one, two]).kernels)
    assert listed == sorted(listed)
    assert {"a/add/x", "b/add/x"} <= set(listed)


@pytest.mark.parametrize(
    ("modules", "present"),
    [
        (("numpy",), True),
        (("numpy", "no_such_module"), False),
        (("no_such_module.inner",), False),
        (("outer.inner",), True),
        (("outer.absent",), False),
        (("outer.inner.deeper",), False),
        ((), True),
    ],
)
def test_a_toolkit_is_looked_for_and_not_imported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, modules: tuple[str, ...], present: bool
) -> None:
    (tmp_path / "outer").mkdir()
    (tmp_path / "outer" / "__init__.py").write_text("raise SystemExit('imported')")
    (tmp_path / "outer" / "inner.py").write_text("raise SystemExit('imported')")
    monkeypatch.syspath_prepend(tmp_path)
    catalog = nbx.load(plugins=[plugin("made", backends=[Backend(name="made", modules=modules)])]).catalog
    assert catalog.toolkit_present("made") is present
    assert "outer" not in sys.modules
