"""Advisories: what they refuse and what not, whatever the policy, and files that cannot be read."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from making import add, host_kernel, made, plugin

import nbx_registry as nbx
from nbx_registry.advisory import read
from nbx_registry.errors import FileError
from nbx_registry.kernel import Kernel

SPECS = ("float32[63, 127]", "float32[127]")
LINK = "https://example.com/advisories/7"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Give the user's folder of advisories."""
    monkeypatch.setenv("NBX_CONFIG_DIR", str(tmp_path))
    (tmp_path / "advisories").mkdir()
    return tmp_path / "advisories"


def advise(folder: Path, *entries: dict[str, Any], name: str = "seven.yml") -> Path:
    rows = [{"kernel": "made/add/x", "reason": "wrong sums", "link": LINK, **entry} for entry in entries]
    (folder / name).write_text(json.dumps({"advisories": rows}), "utf-8")
    return folder / name


def load(*kernels: Kernel, **keywords: Any) -> nbx.Registry:
    block = [k for k in nbx.load().kernels if "/add/" in k]
    return nbx.load(plugins=[made("made", *(kernels or (host_kernel("made/add/x", add),)))], block=block, **keywords)


def asked(reg: nbx.Registry, *specs: str, **keywords: Any) -> nbx.Candidate:
    return reg.decide("add", *(specs or SPECS), require="any", **keywords).candidate("made/add/x")


def test_a_revoked_kernel_is_refused_with_reason_link_and_way_out(folder: Path) -> None:
    path = advise(folder, {})
    candidate = asked(load())
    assert candidate.code == "ADVISORY"
    assert candidate.reason == f"wrong sums ({LINK}; {path}:1)"
    assert candidate.would_run_if == f"the advisory {path}:1 is withdrawn"


def test_neither_a_pin_nor_a_policy_overrides_it(folder: Path) -> None:
    advise(folder, {})
    reg = load()
    x = np.ones((3, 5), np.float32)
    for require in ("any", "checked", "tuned"):
        decision = reg.decide("add", x, x, require=require, kernel="made/add/x")
        assert decision.candidate("made/add/x").code == "ADVISORY"
        with pytest.raises(nbx.Refused, match="ADVISORY: wrong sums"):
            reg.call("add", x, x, require=require, kernel="made/add/x")


def test_another_kernel_takes_its_place(folder: Path) -> None:
    advise(folder, {})
    reg = load(host_kernel("made/add/x", add, preference=9), host_kernel("made/add/y", add))
    x = np.ones((3, 5), np.float32)
    np.testing.assert_array_equal(reg.call("add", x, x, require="any"), x + x)
    assert [row.kernel for row in reg.ran()] == ["made/add/y"]


@pytest.mark.parametrize(("kernel", "code"), [("made/*", "ADVISORY"), ("*/add/?", "ADVISORY"), ("made/add", None)])
def test_a_pattern_names_kernels(folder: Path, kernel: str, code: str | None) -> None:
    advise(folder, {"kernel": kernel})
    assert asked(load()).code == code


@pytest.mark.parametrize(
    ("version", "versions", "code"),
    [
        ("0.2.0", ">=0.1,<0.3", "ADVISORY"),
        ("0.2.0rc1", ">=0.1,<0.3", "ADVISORY"),
        ("0.2.0+cu130", "==0.2.0", "ADVISORY"),
        ("0.3.0", ">=0.1,<0.3", None),
        ("0.10", "<=0.9", None),
        ("unknown", "<0.3", "ADVISORY"),
        (None, "<0.3", "ADVISORY"),
    ],
)
def test_versions_are_those_of_the_kernels_distribution(
    folder: Path, version: str | None, versions: str, code: str | None
) -> None:
    advise(folder, {"versions": versions})
    reg = load()
    reg.catalog.plugins["made"].version = version
    candidate = asked(reg)
    assert candidate.code == code
    if code is not None:
        here = f" (here: {version})" if version else ""
        assert candidate.would_run_if == f"a version of made outside {versions} is installed{here}"


@pytest.mark.parametrize(
    ("device", "codes"),
    [
        ("nvidia/h200-sxm", ["ADVISORY", None]),
        ("*-sm_70-*", [None, "ADVISORY"]),
        ("nvidia/*", ["ADVISORY", "ADVISORY"]),
        ("amd/*", [None, None]),
    ],
)
def test_a_device_is_a_product_a_class_or_a_pattern(folder: Path, device: str, codes: list[str | None]) -> None:
    advise(folder, {"device": device})
    reg = load(host_kernel("made/add/x", add, runtimes=("cuda",)))
    places = ("nvidia/h200-sxm", "nvidia/v100-sxm2-16gb")
    found = [asked(reg, device=place) for place in places]
    assert [candidate.code for candidate in found] == codes
    assert all(one.code is None or one.would_run_if == f"the device were not of {device}" for one in found)


def test_a_condition_on_sizes_is_looked_at_for_every_request(folder: Path) -> None:
    advise(folder, {"when": "out.size > 100 and x1.rank == 2", "versions": "<9"})
    reg = load()
    reg.catalog.plugins["made"].version = "2.1"
    codes = [asked(reg, f"float32[{n}, 10]", "float32[10]").code for n in (10, 11, 3, 129, 10)]
    assert codes == [None, "ADVISORY", None, "ADVISORY", None]
    candidate = asked(reg, "float32[11, 10]", "float32[10]")
    assert candidate.reason.startswith("out.size > 100 and x1.rank == 2 (out.size = 110, x1.rank = 2): wrong sums")
    assert candidate.would_run_if == (
        "a version of made outside <9 is installed (here: 2.1) or not (out.size > 100 and x1.rank == 2)"
    )
    for n in (10, 11, 10, 129):
        x = np.ones((n, 10), np.float32)
        if n == 10:
            np.testing.assert_array_equal(reg.call("add", x, x, require="any"), x + x)
        else:
            with pytest.raises(nbx.Refused, match="ADVISORY"):
                reg.call("add", x, x, require="any")


def test_a_condition_on_alignment_is_looked_at_in_calls(folder: Path) -> None:
    advise(folder, {"when": "x1.align < 16"})
    reg = load()
    memory = np.ones(64, np.float32)
    start = (-memory.ctypes.data // 4) % 4
    aligned, other = memory[start : start + 9], memory[start + 1 : start + 10]
    for _ in range(2):
        reg.call("add", aligned, aligned, require="any")
        with pytest.raises(nbx.Refused, match="ADVISORY"):
            reg.call("add", other, aligned, require="any")


@pytest.mark.parametrize(
    ("when", "given", "code"),
    [
        ("weight.size > 3", False, None),
        ("weight.size > 3", True, "ADVISORY"),
        ("not weight.size > 3", False, None),
        ("not weight.given", False, "ADVISORY"),
        ("not weight.given", True, None),
        ("weight.given and weight.size > 3", False, None),
    ],
)
def test_a_condition_on_a_tensor_left_out_does_not_hold(folder: Path, when: str, given: bool, code: str | None) -> None:
    advise(folder, {"kernel": "nbx-host/layer_norm/*", "when": when})
    weight = "float32[5]" if given else None
    decision = nbx.load().decide("layer_norm", "float32[3, 5]", weight, require="any")
    assert decision.candidate("nbx-host/layer_norm/numpy").code == code


@pytest.mark.parametrize(
    ("when", "why"),
    [
        ("device.multiprocessors > 80", "states no 'multiprocessors'"),
        ("1 // (out.size - 8001) > 1", "cannot be told"),
        ("Q > 4", "no 'Q'"),
        ("x1.shape > 4", "cannot be told"),
    ],
)
def test_what_cannot_be_told_is_taken_to_hold(folder: Path, when: str, why: str) -> None:
    advise(folder, {"when": when})
    candidate = asked(load())
    assert candidate.code == "ADVISORY"
    assert why in candidate.reason


def test_what_the_kernel_does_not_take_is_said_first_and_the_advisory_behind_it(folder: Path) -> None:
    advise(folder, {"versions": "<9"}, {"when": "x1.size > 4"})
    candidate = asked(load(host_kernel("made/add/x", add, when=("x1.rank == 1",))))
    assert candidate.code == "SHAPE"
    assert candidate.would_run_if == (
        "x1.rank == 1, and a version of made outside <9 is installed, and not (x1.size > 4)"
    )
    unchecked = load().decide("add", *SPECS, require="checked").candidate("made/add/x")
    assert unchecked.code == "ADVISORY"
    assert "nbx conformance run" in unchecked.would_run_if


def test_a_composite_lacks_a_part_that_is_revoked_and_may_be_revoked_itself(folder: Path) -> None:
    def parts(trace: Any, x1: Any, x2: Any) -> Any:
        return trace.call("subtract", x1, trace.call("negative", x2))

    whole = Kernel(
        id="made/add/x", op="add@1", backend="composite", runtimes=(), bind=parts, parts=("subtract@1", "negative@1")
    )
    assert asked(load(whole)).accepted
    advise(folder, {"kernel": "*/negative/*", "when": "out.size > 100"})
    refused = asked(load(whole))
    assert refused.code == "PART_REFUSED"
    assert "nbx-host/negative/numpy: ADVISORY: out.size > 100 (out.size = 127)" in refused.reason
    assert asked(load(whole), "float32[63]", "float32[63]").accepted
    advise(folder, {})
    assert asked(load(whole)).code == "ADVISORY"


def test_a_plan_and_its_keys_see_it(folder: Path) -> None:
    reg = load()
    x = np.ones((11, 10), np.float32)
    with reg.record() as plan:
        reg.call("add", x, x, require="any")
    assert not reg.keys(plan).refused
    advise(folder, {"when": "out.size > 100"})
    again = load()
    (refused,) = again.keys(plan).refused
    assert "ADVISORY" in str(refused)
    with pytest.raises(nbx.NbxError, match="ADVISORY"):
        again.prepare(plan)


def test_a_plugin_may_revoke_kernels_of_another(tmp_path: Path) -> None:
    advise(tmp_path, {})
    warns = plugin("warns", advisories=[tmp_path])
    reg = nbx.load(plugins=[made("made", host_kernel("made/add/x", add)), warns])
    assert asked(reg).code == "ADVISORY"
    kept = nbx.load(plugins=[made("made", host_kernel("made/add/x", add)), warns], block=["warns"])
    assert asked(kept).accepted


# Files that are malformed.


@pytest.mark.parametrize(
    ("entry", "why"),
    [
        ({"versions": ">>0.1"}, "versions is no version specifier"),
        ({"versions": 0.1}, "versions is a number; write a string"),
        ({"when": "x1.size >"}, "when is no condition"),
        ({"link": "ours"}, "link is 'ours'; write the address"),
        ({"reason": None}, "reason is empty; write a string"),
        ({"devise": "cpu"}, "devise is no key of an entry; did you mean 'device'?"),
    ],
)
def test_an_entry_that_is_malformed_revokes_the_kernel_it_names(folder: Path, entry: dict[str, Any], why: str) -> None:
    path = advise(folder, {"kernel": "made/other", "reason": "elsewhere"}, entry)
    candidate = asked(load())
    assert candidate.code == "ADVISORY"
    assert "taken to hold always" in candidate.reason
    assert f"{path}:1: entry 2: {why}" in candidate.reason


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("advisories: [", "not YAML"),
        ("advisories: {}", "is a mapping; write a list"),
        ("advisories: [x]", "entry 1 is a string"),
        ("advisory: []", "unknown key 'advisory'; did you mean 'advisories'?"),
        ("advisories: [{reason: r, link: 'https://x'}]", "kernel is missing"),
        ("advisories: [{kernel: 4}]", "kernel is an integer"),
        ("advisories:\n- {kernel: a}\nadvisories:\n- {kernel: b}", "given twice"),
    ],
)
def test_where_a_file_does_not_say_what_it_revokes_nothing_is_decided(folder: Path, text: str, why: str) -> None:
    (folder / "seven.yml").write_text(text, "utf-8")
    reg = load()
    for ask in (lambda: asked(reg), lambda: reg.call("multiply", np.ones(3), np.ones(3))):
        with pytest.raises(FileError, match="nobody can tell which kernels it revokes") as raised:
            ask()
        assert why in str(raised.value)
        assert str(folder / "seven.yml") in str(raised.value)


def test_the_plugin_that_brings_an_unreadable_file_can_be_blocked(tmp_path: Path) -> None:
    (tmp_path / "bad.yaml").write_text("advisories: 4", "utf-8")
    bad = plugin("warns", advisories=[tmp_path])
    with pytest.raises(FileError, match=r"block=\['warns'\]"):
        nbx.load(plugins=[bad]).decide("add", *SPECS)
    assert nbx.load(plugins=[bad], block=["warns"]).decide("add", *SPECS, require="any").chosen


def test_a_file_of_no_entries_and_a_folder_that_is_not_there_revoke_nothing(folder: Path) -> None:
    (folder / "none.yml").write_text("advisories:\n", "utf-8")
    (folder / "README.md").write_text("not a file of advisories", "utf-8")
    assert read(folder / "none.yml") == []
    warns = plugin("warns", advisories=[folder / "absent"])
    assert nbx.load(plugins=[warns]).decide("add", *SPECS, require="any").chosen


# What the doctor says.


def told(reg: nbx.Registry) -> list[tuple[str, str, str]]:
    return [(f.kind, f.about, f.text) for f in reg.diagnostics() if "seven.yml" in f.text]


def test_the_doctor_tells_what_is_in_force_what_names_nothing_and_what_is_malformed(folder: Path) -> None:
    path = advise(
        folder,
        {"device": "host/cpu", "when": "out.size > 4"},
        {"kernel": "made/add/y"},
        {"device": "sm_91-*"},
        {"when": "Q > 4"},
        {"versions": "new"},
    )
    found = told(load())
    where = f"{path}:1"
    assert found[0][:2] == ("problem", "advisories")
    assert "versions is no version specifier" in found[0][2]
    assert ("note", "made/add/x", f"revoked on host/cpu where out.size > 4: wrong sums ({where})") in found
    assert (
        "note",
        "advisories",
        f"{where}: about made/add/y, which nobody registers; did you mean 'made/add/x'?",
    ) in found
    assert any(text.startswith(f"{where}: about the device sm_91-*, which no device file") for *_, text in found)
    assert any(kind == "problem" and "no 'Q'" in text for kind, _, text in found)


def test_the_doctor_tells_a_file_that_cannot_be_read(folder: Path) -> None:
    (folder / "seven.yml").write_text("advisories: 4", "utf-8")
    (finding,) = told(load())
    assert finding[0] == "problem"
    assert "advisories is an integer; write a list of entries" in finding[2]


def test_the_advisory_of_the_documentation_can_be_read(tmp_path: Path) -> None:
    page = (Path(__file__).parents[2] / "docs/explanation/evidence.md").read_text("utf-8")
    (tmp_path / "page.yml").write_text(page.partition("```yaml\n")[2].partition("```")[0], "utf-8")
    (advisory,) = read(tmp_path / "page.yml")
    assert (advisory.wrong, advisory.versions) == ("", ">=0.1,<0.3")
