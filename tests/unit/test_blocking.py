"""Blocks are held against what there is: a name that nobody has is refused, with the nearest."""

from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from making import add, host_kernel, made

import nbx_registry as nbx
from nbx_registry.errors import UnknownName
from nbx_registry.tuning import processes

OWN = made("made", host_kernel("made/add/x", add), host_kernel("made/add/wide", add))
NAMES = SimpleNamespace(name="broken", NBX_HOOKS=99)


@pytest.mark.parametrize(
    ("name", "kind", "near"),
    [
        ("nbx-hots", "plugin", "nbx-host"),
        ("mad", "plugin", "made"),
        ("nbx-cdua", "plugin", "nbx-cuda"),
        ("nbx-host/add/nunpy", "kernel", "nbx-host/add/numpy"),
        ("made/add/wyde", "kernel", "made/add/wide"),
        ("MADE/add/x", "kernel", "made/add/x"),
        ("zzzzz", "plugin", None),
        ("zzzzz/qqq/www", "kernel", None),
        ("", "plugin", None),
    ],
)
def test_a_name_that_nobody_has_is_refused_with_the_nearest(name: str, kind: str, near: str | None) -> None:
    with pytest.raises(UnknownName) as caught:
        nbx.load(block=[name], plugins=[OWN])
    message = str(caught.value)
    assert message.startswith(f"unknown {kind} in block=: {name!r}")
    assert (f"did you mean {near!r}?" if near else "it would block nothing") in message


@pytest.mark.parametrize("name", ["made/*", "nbx-*", "made/add/?", "made/add/[x]"])
def test_a_pattern_is_refused_as_one(name: str) -> None:
    with pytest.raises(UnknownName, match=r"no patterns; of a pattern, make names: block=\["):
        nbx.load(block=[name], plugins=[OWN])


@pytest.mark.parametrize("name", ["made", "MADE", "made/add/x", "nbx-host/add/numpy", "nbx_host", "broken"])
def test_what_is_here_may_be_blocked(name: str) -> None:
    assert name in nbx.load(block=[name], plugins=[OWN, NAMES]).catalog.blocked


def test_kernels_of_a_plugin_that_brings_none_now_may_be_blocked() -> None:
    # Of a quarantined or blocked plugin nobody can tell which kernels it has.
    reg = nbx.load(block=["made", "made/add/whatever", "broken/add/x"], plugins=[OWN, NAMES])
    assert {name: reg.plugins[name].state for name in ("made", "broken")} == {
        "made": "blocked",
        "broken": "quarantined",
    }


def test_what_the_extras_install_may_be_blocked_where_it_is_not_installed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # One program blocks nbx-far wherever it runs, also where that plugin has no wheel.
    metadata = tmp_path / "nbx_registry-0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text(
        "Metadata-Version: 2.1\nName: nbx-registry\nVersion: 0\nRequires-Dist: needed>=1\n"
        "Requires-Dist: NBX_Far[x]>=2; (platform_system == 'Linux') and extra == 'far'\n"
    )
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    assert nbx.load(block=["nbx-far", "nbx-far/add/x"]).catalog.blocked == {"nbx-far", "nbx-far/add/x"}
    with pytest.raises(UnknownName, match="did you mean 'nbx-far'"):
        nbx.load(block=["nbx-fra"])
    with pytest.raises(UnknownName, match="'needed'"):
        nbx.load(block=["needed"])


def test_a_process_that_tunes_is_told_of_the_blocks_that_it_knows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NBX_BLOCK", "nbx-far")
    with pytest.warns(UserWarning, match="NBX_BLOCK names 'nbx-far', a plugin that nobody has"):
        reg = nbx.load(block=["made/add/x", "nbx-host/add/numpy", "nbx-sdm"], plugins=[OWN])
    known = processes.blocked_of(reg.catalog)
    assert known == ["nbx-host/add/numpy", "nbx-sdm"]
    monkeypatch.delenv("NBX_BLOCK")
    nbx.load(block=known)
