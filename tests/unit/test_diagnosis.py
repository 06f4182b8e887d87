"""What `nbx doctor` tells of plugins: everything that can be seen without a request, each with its way out."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from making import add, host_kernel, made, plugin

import nbx_registry as nbx
from nbx_registry import dtypes
from nbx_registry.diagnosis import Finding
from nbx_registry.dtypes import DType
from nbx_registry.kernel import Kernel, Workspace
from nbx_registry.runtimespec import Emulator, RuntimeSpec


def diagnosed(*plugins: Any, block: tuple[str, ...] = ()) -> list[Finding]:
    before = {finding.text for finding in nbx.load().diagnostics()}
    return [f for f in nbx.load(plugins=plugins, block=block).diagnostics() if f.text not in before]


def of_kernel(**changes: Any) -> list[Finding]:
    found = diagnosed(made("made", host_kernel("made/add/x", add, **changes)))
    assert all(finding.about == "made/add/x" and finding.way_out for finding in found)
    return found


def test_a_sound_plugin_is_told_nothing_of() -> None:
    assert of_kernel(when=("x1.rank == 2",), key=("x1.size",)) == []


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"when": ("N <= 4",)}, "no 'N'"),
        ({"when": ("x1.colour == 4",)}, "no 'x1.colour'"),
        ({"when": ("x1.size <",)}, "expected a value"),
        ({"key": ("x1.sise",)}, "did you mean 'x1.size'"),
        ({"when": ("x1.dtype == float16 and x1.dtype == float32",)}, "refuses every request: no dtype meets"),
        ({"when": ("1 > 2",)}, "refuses every request: '1 > 2' never holds"),
        ({"when": ("x1.rank in (-1, -2)",)}, "refuses every request: no x1.rank meets"),
        ({"when": ("device.arch == 90",)}, "refuses every request: no device.arch meets"),
        ({"when": ("device.runtime == 'cuda'",)}, "refuses every request: no device.runtime meets"),
        ({"when": ("device.memory.bites > 4",)}, "no schema.yml describes; did you mean 'memory.bytes'?"),
        ({"when": ("device.made.scratchpad",)}, "device.made.scratchpad, a fact that no schema.yml describes"),
        ({"key": ("device.archs",)}, "did you mean 'arch'?"),
        ({"when": ("x1.size < 0",)}, "refuses every request: no x1.size meets"),
        ({"bind": "nowhere_at_all.kernels:bind"}, "no module 'nowhere_at_all.kernels'"),
        ({"bind": "nbx_registry.host.kernels.nowhere:bind"}, "no module 'nbx_registry.host.kernels.nowhere'"),
        ({"bind": "nbx_registry.host.kernels.elementwise:ad"}, "did you mean 'add'"),
        ({"settings": "nbx_registry.host.kernels.elementwise:SPACE"}, "binds no such name"),
        ({"workspace": (Workspace(name="s", dtype="float33", shape=("x1.size",)),)}, "did you mean 'float32'"),
        ({"workspace": (Workspace(name="s", dtype="int8", shape=("x1.sise",)),)}, "did you mean 'x1.size'"),
        ({"workspace": (Workspace(name="s", dtype="int8", shape=("2 *",)),)}, "expected a value"),
        ({"workspace": (Workspace(name="x1", dtype="int8", shape=("2",)),)}, "named as a tensor of add@1"),
        ({"workspace": (Workspace(name="s", dtype="int8", shape=("2",)),) * 2}, "'s' is named twice"),
        ({"workspace": (Workspace(name="s", dtype="int8", shape=("0 - 4",)),)}, "'0 - 4' is no extent"),
        ({"workspace": (Workspace(name="s", dtype="int8", shape=("1.5",)),)}, "'1.5' is no extent"),
        (
            {"workspace": (Workspace(name="s", dtype="int8", shape=("2",), lifetime=(5, 2)),)},
            "lives from launch 5 to launch 2",
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else None,
)
def test_what_is_wrong_with_a_kernel_is_told(changes: dict[str, Any], text: str) -> None:
    (finding,) = of_kernel(**changes)
    assert text in finding.text
    assert finding.kind == "problem"


@pytest.mark.parametrize(
    "when",
    [
        "device.target.sm_90 or device.matrix_unit.m16n8k16.float16 or device.async_copy.tma",
        "device.arch > 'sm_90'",
        "'sm_9' in device.arch",
        "device.runtime in ('host', 'cuda')",
        "x1.rank != -1",
        "-x1.rank < -1",
    ],
)
def test_conditions_that_a_request_may_meet_are_told_nothing_of(when: str) -> None:
    assert of_kernel(when=(when,)) == []


def test_many_conditions_on_one_name_are_looked_at_in_no_time() -> None:
    assert of_kernel(when=tuple(f"x1.size != {number}" for number in range(2000))) == []


def test_a_long_condition_is_told_by_its_beginning() -> None:
    (finding,) = of_kernel(when=("x1.size > 1 and " * 70_000 + "True",))
    assert "at most 2000" in finding.text
    assert len(finding.text) < 1000


def test_of_a_blocked_kernel_only_that_is_told() -> None:
    broken = made("made", host_kernel("made/add/x", add, when=("x1.sise > 4",), bind="nowhere:bind"))
    (finding,) = diagnosed(broken, block=("made/add/x",))
    assert (finding.kind, finding.about, finding.text) == ("note", "made/add/x", "blocked by the caller")


def test_a_refusal_of_what_always_refuses_names_no_request_that_would_do() -> None:
    kernel = host_kernel("made/add/x", add, when=("x1.dtype == float32", "x1.dtype == float16"))
    decision = nbx.load(plugins=[made("made", kernel)]).decide("add", "float32[3]", "float32[3]", require="any")
    assert "made corrected when=, which refuses every request" in decision.candidate("made/add/x").would_run_if


def test_a_compiled_module_is_found_and_its_names_are_not_asked_for() -> None:
    assert of_kernel(bind="math:sqrt") == []
    (finding,) = of_kernel(bind="math.nothing:sqrt")
    assert "'math.nothing'" in finding.text


def test_a_workspace_may_read_settings() -> None:
    workspace = Workspace(name="s", dtype="int8", shape=("cdiv(x1.size, block)",))
    assert of_kernel(workspace=(workspace,), defaults={"block": 128}) == []


def test_references_are_looked_for_and_not_imported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "diagnosed_package.py").write_text("raise SystemExit('imported')\n\ndef bind(): ...\n", "utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    assert of_kernel(bind="diagnosed_package:bind") == []
    (finding,) = of_kernel(bind="diagnosed_package:other")
    assert "'other'" in finding.text
    assert "diagnosed_package" not in sys.modules


def test_factories_are_looked_for() -> None:
    found = diagnosed(
        plugin(
            "made",
            runtimes=[RuntimeSpec(name="made", factory="nowhere_at_all:make")],
            emulators=[Emulator(name="other", backend="numpy", runtimes=(), factory="nbx_registry.host.runtime:mak")],
        )
    )
    assert [(f.about, f.way_out) for f in found] == [
        ("runtime made", "correct the factory in made"),
        ("emulator other", "correct the factory in made"),
    ]


def test_an_emulators_backend_and_a_dtypes_numpy_type_are_looked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    # The table is the process's, and what is in it stays.
    monkeypatch.setattr(dtypes, "register", lambda _: None)
    emulator = Emulator(name="other", backend="numpi", runtimes=(), factory="nbx_registry.host.runtime:HostRuntime")
    dtype = DType(name="made9", kind="int", bits=9, numpy_name="ml_dtypes:made9", key="made9")
    first, second = diagnosed(plugin("made", emulators=[emulator], dtypes=[dtype]))
    assert (first.about, "did you mean 'numpy'" in first.text) == ("emulator other", True)
    assert (second.about, "'made9'" in second.text) == ("dtype made9", True)


@pytest.mark.parametrize("kind", ["devices", "overlays", "evidence", "settings", "cases"])
def test_folders_that_are_not_there_are_told(kind: str, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    (tmp_path / "there").mkdir()
    folders = [tmp_path / "there", tmp_path / "absent", tmp_path / "file"]
    found = diagnosed(plugin("made", **{kind: folders}))
    assert [f.text.partition(" gives ")[2] for f in found] == [
        f"{tmp_path / 'absent'}, which is not there",
        f"{tmp_path / 'file'}, which is no folder",
    ]
    assert all(f.about == "made" for f in found)


def test_a_folder_that_may_not_be_looked_for_is_told() -> None:
    (finding,) = diagnosed(plugin("made", evidence=[Path("/" + "long" * 200)]))
    assert "is not there" in finding.text


DEVICE = "arch: a1\nruntime: made\nevidence_class: one\nmatch: {names: [One]}\nfacts: {}\n"
OVERLAY = "sources: {M1: {document: m, publisher: m, read: vendor}}\nfacts: {memory.bytes: {value: 1, source: M1}}\n"


def test_device_files_that_match_one_card_and_overlays_that_repeat_a_fact_are_told(tmp_path: Path) -> None:
    for name, text in (("devices/made/one", DEVICE), ("devices/made/two", DEVICE)):
        file = tmp_path / f"{name}.yml"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, "utf-8")
    for number in (1, 2):
        file = tmp_path / f"overlay{number}" / "made" / "one.yml"
        file.parent.mkdir(parents=True)
        file.write_text(OVERLAY, "utf-8")
    matched = nbx.load(plugins=[plugin("made", devices=[tmp_path / "devices"])]).devices.check()
    assert any("match the same card" in problem for problem in matched)
    overlays = [tmp_path / "overlay1", tmp_path / "overlay2"]
    given = nbx.load(plugins=[plugin("made", devices=[tmp_path / "devices"], overlays=overlays)]).devices.check()
    assert any("fact 'memory.bytes' is given twice" in problem for problem in given)


def test_tuned_settings_of_nothing_are_told(tmp_path: Path) -> None:
    def entry(kernel: str, key: dict[str, Any], settings: dict[str, Any]) -> dict[str, Any]:
        times = {"tuned_s": 1e-5, "default_s": 2e-5}
        proof = {"date": "2026-01-02", "toolkit": "t 1", "deviation": 0.0, "bound": 1.0, "times": times}
        return {"kernel": kernel, "key": key, "settings": settings, "proof": proof}

    entries = [
        entry("made/add/x", {"x1.size": 63}, {"block": 1}),
        entry("made/add/x", {"x1.rank": 2}, {"block": 1}),
        entry("made/add/x", {"x1.size": 64}, {"blok": 1}),
        entry("made/add/x", {"x1.size": 65}, {}),
        entry("made/add/x", {"x1.size": "66"}, {"block": 1}),
        entry("gone/add/x", {}, {}),
        {"kernel": 5},
    ]
    (tmp_path / "one.json").write_text(json.dumps({"format": 1, "device": "host/cpu", "entries": entries}))
    kernel = host_kernel("made/add/x", add, key=("x1.size",), defaults={"block": 128}, settings="making:add")
    bringing = made("made", kernel)
    bringing.nbx_register_settings = plugin("", settings=[tmp_path]).nbx_register_settings
    texts = [f.text for f in diagnosed(bringing)]
    assert len(texts) == 6
    for part in (
        "'blok' is no setting",
        "for {'x1.size': 65} leave out 'block'",
        "x1.size is '66'; an extent is an integer",
        "gone/add/x, which nobody registers",
        "whose key is x1.size",
        "key: is missing",
    ):
        assert any(part in text for text in texts), texts


def test_settings_that_nothing_takes_are_told(tmp_path: Path) -> None:
    proof = {"date": "2026-01-02", "toolkit": "t 1", "deviation": 0.0, "bound": 1.0, "times": {"tuned_s": 1e-5}}
    entry = {"kernel": "made/add/x", "key": {"x1.size": 63}, "settings": {"block": 1}, "proof": proof}
    (tmp_path / "one.json").write_text(json.dumps({"format": 1, "device": "host/cpi", "entries": [entry]}))
    bringing = made("made", host_kernel("made/add/x", add, key=("x1.size",), defaults={"block": 128}))
    bringing.nbx_register_settings = plugin("", settings=[tmp_path]).nbx_register_settings
    first, second = diagnosed(bringing)
    assert (first.kind, "states no settings=" in first.text) == ("problem", True)
    assert (second.kind, "no device file; did you mean 'host/cpu'?" in second.text) == ("note", True)


def test_a_vain_block_of_the_environment_is_told_with_the_nearest(monkeypatch: pytest.MonkeyPatch) -> None:
    own = made("made-one", host_kernel("made-one/add/x", add))
    monkeypatch.setenv("NBX_BLOCK", "made-tow")
    with pytest.warns(UserWarning, match="did you mean 'made-one'"):
        (finding,) = [f for f in nbx.load(plugins=[own]).diagnostics() if f.about == "block"]
    assert "'made-tow'" in finding.text
    assert "did you mean 'made-one'" in finding.text
    monkeypatch.setenv("NBX_BLOCK", "Made_One")
    assert not [f for f in nbx.load(plugins=[own]).diagnostics() if f.about == "block"]


def test_another_version_of_its_distribution_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for version in ("2.0", "1.0"):
        folder = tmp_path / version / f"nbx_made-{version}.dist-info"
        folder.mkdir(parents=True)
        (folder / "METADATA").write_text(f"Metadata-Version: 2.1\nName: nbx-made\nVersion: {version}\n")
        (folder / "entry_points.txt").write_text("[nbx_registry]\nnbx-made = nowhere_at_all\n")
        monkeypatch.syspath_prepend(tmp_path / version)
    (finding,) = [f for f in nbx.load().diagnostics() if f.about == "nbx-made"]
    assert "nbx-made 1.0 is used; also there: 2.0 in" in finding.text


def test_a_kernel_of_a_plugin_that_is_out_is_not_looked_at() -> None:
    broken = plugin("made", kernels=[Kernel(id="made/add/x", op="add@1", backend="b", runtimes=("host",), bind="a:b")])
    assert diagnosed(broken) == []


def test_a_tolerance_of_an_op_of_nobody_is_told(tmp_path: Path) -> None:
    path = tmp_path / "nvidia" / "h200-sxm.yml"
    path.parent.mkdir()
    path.write_text(
        "facts:\n  tolerance.matmull: {value: 0.5, source: N1}\n  tolerance.matmul: {value: 1, source: N1}\n"
    )
    found = diagnosed(plugin("made", overlays=[tmp_path]))
    assert [(f.kind, f.about) for f in found] == [("problem", "nvidia/h200-sxm")]
    assert "nobody registers an op matmull; did you mean 'matmul'?" in found[0].text
