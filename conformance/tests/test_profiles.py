"""Profiles: what must pass, and what is said to be missing."""

from __future__ import annotations

import copy
from pathlib import Path

import pytest
from click.testing import CliRunner
from test_pytest import HOSTILE, conformance, pytest_on

import nbx_registry as nbx
from nbx_conformance import cli
from nbx_conformance.bundles import bundle as bundles
from nbx_conformance.bundles.verify import judge, verify
from nbx_conformance.cases import CaseTable
from nbx_conformance.runs import profiles, runner
from nbx_conformance.runs.profiles import Finding, Judged
from nbx_conformance.runs.session import Session
from nbx_registry.errors import FileError, UnknownName

KERNEL = "nbx-host/sqrt/numpy"

TINY = """
means: "square roots"
size: smoke
dtypes: [float32, float16]
layouts: [transposed, offset, expanded, strided]
ops:
  sqrt@1:
"""


@pytest.fixture(scope="module")
def registry() -> nbx.Registry:
    return nbx.load()


@pytest.fixture(scope="module")
def cases(registry: nbx.Registry) -> CaseTable:
    return runner.case_table(registry)


@pytest.fixture
def tiny(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with one profile, in place of those that are shipped."""
    folder = tmp_path / "profiles"
    folder.mkdir()
    (folder / "tiny-1.yml").write_text(TINY, "utf-8")
    monkeypatch.setattr(profiles, "FOLDER", folder)
    return folder


@pytest.fixture
def found(sqrt_session: Session) -> list[Finding]:
    return list(profiles.of_records(sqrt_session.records.values(), "here"))


def judged(found: list[Finding], registry: nbx.Registry, cases: CaseTable) -> Judged:
    return profiles.judge(profiles.load("tiny-1"), "host/cpu", "host", cases, registry.catalog.ops, found)


def test_the_profiles_that_are_shipped_fit_the_cases(registry: nbx.Registry, cases: CaseTable) -> None:
    assert profiles.names() == ("core-1", "llm-decode-1", "vision-1")
    assert profiles.lint(cases, registry.catalog.ops) == []


def test_a_profile_wants_dense_cases_and_the_layouts_that_it_names(
    tiny: Path, registry: nbx.Registry, cases: CaseTable
) -> None:
    wanted = {
        one.case: one.dtype for one in profiles.wanted(profiles.load("tiny-1"), cases, registry.catalog.ops, "host")
    }
    assert wanted["awkward-f16-N63"] == "float16"
    assert {"layout-transposed", "layout-offset", "layout-expanded", "layout-strided"} <= wanted.keys()
    # Right or refused: layouts that it does not name. Other dtypes, and what a contract refuses, are not its matter.
    assert not {"layout-reversed", "layout-pitched", "awkward-bf16-N63", "integer"} & wanted.keys()


def test_dtypes_of_a_case_are_the_floating_ones_of_inputs_and_outputs(registry: nbx.Registry, cases: CaseTable) -> None:
    profile = profiles.load("llm-decode-1")
    wanted = profiles.wanted(profile, cases, registry.catalog.ops, "cuda")
    dtypes = {(one.op, one.dtype) for one in wanted}
    assert ("rotary_embedding@1", "bfloat16/float32") in dtypes
    assert ("paged_lens_advance@1", "int32") in dtypes
    assert ("argmax@1", "float16") in dtypes


def test_what_passes_everything_satisfies(
    tiny: Path, found: list[Finding], registry: nbx.Registry, cases: CaseTable
) -> None:
    one = judged(found, registry, cases)
    assert (one.satisfied, one.missing, one.elsewhere) == (True, (), 0)
    assert list(one.lines()) == [f"tiny-1 on host/cpu: satisfied, all {one.wanted} cases that must pass do"]
    assert one.wanted > 10


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        (None, f"not run ({KERNEL})"),
        ({"verdict": "refused", "why": "refused as LAYOUT: x is strided"}, "refused as LAYOUT: x is strided"),
        ({"verdict": "fail", "why": "failed numbers: out[0] is 1"}, "failed numbers: out[0] is 1"),
        ({"verdict": "waived", "why": "waived numbers: known"}, "waived numbers: known"),
        ({"verdict": "unproven", "why": "passed, but its code changed"}, "passed, but its code changed"),
    ],
    ids=["not-run", "refused", "failed", "waived", "unproven"],
)
def test_what_is_missing_is_named_with_its_reason(
    tiny: Path, found: list[Finding], registry: nbx.Registry, cases: CaseTable, changes: dict[str, str] | None, why: str
) -> None:
    given = [one for one in found if one.case != "layout-strided"]
    if changes is not None:
        given += [Finding(**{**vars(one), **changes}) for one in found if one.case == "layout-strided"]
    (missing,) = judged(given, registry, cases).missing
    assert (missing.op, missing.dtype, missing.case) == ("sqrt@1", "float32", "layout-strided")
    assert (len(missing.why), missing.tried) == (1, changes is not None)
    assert why in missing.why[0]
    assert f"  sqrt@1 (float32): layout-strided: {missing.why[0]}" in judged(given, registry, cases).lines()


def test_one_kernel_that_passes_is_enough(
    tiny: Path, found: list[Finding], registry: nbx.Registry, cases: CaseTable
) -> None:
    refusing = [Finding(**{**vars(one), "kernel": "nbx-x/sqrt/y", "verdict": "refused", "why": "no"}) for one in found]
    assert judged([*refusing, *found], registry, cases).satisfied


def test_an_op_without_a_kernel_is_missing_whole(tiny: Path, registry: nbx.Registry, cases: CaseTable) -> None:
    one = judged([], registry, cases)
    assert len(one.missing) == one.wanted
    assert {missing.why for missing in one.missing} == {("no kernel has it",)}
    head, line = one.lines()
    assert head == f"tiny-1 on host/cpu: NOT satisfied, {one.wanted} of {one.wanted} cases that must pass do not"
    assert line.startswith("  sqrt@1 (float32, float16): awkward-f32-N63, ")
    assert line.endswith(f" and {one.wanted - 4} more: no kernel has it")


def test_what_was_not_tried_on_the_device_is_told_apart(
    tiny: Path, found: list[Finding], registry: nbx.Registry, cases: CaseTable
) -> None:
    one = judged([Finding(**{**vars(one), "reach": "elsewhere"}) for one in found], registry, cases)
    assert (one.satisfied, one.elsewhere) == (True, one.wanted)
    assert f", {one.wanted} of them not tried on the device itself" in next(one.lines())


def test_bundles_are_judged_together_and_by_device(
    tiny: Path, sqrt_session: Session, tmp_path: Path, registry: nbx.Registry, cases: CaseTable
) -> None:
    """Two halves make a whole; another device has one of them."""
    whole = bundles.compose(sqrt_session)[0]
    paths: list[Path] = []
    for part in (0, 1, 2):
        data = copy.deepcopy(whole)
        data["device"]["id"] = "nvidia/b200" if part == 2 else "host/cpu"
        entry = data["kernels"].pop(KERNEL)
        entry["cases"] = [case for case in entry["cases"] if ("layout" in case["case"]) == (part == 0)]
        entry["expected"] = len({case["case"] for case in entry["cases"]})
        data["kernels"][f"{KERNEL}{part}"] = entry
        data["selection"]["kernels"] = []
        paths.append(tmp_path / f"{part}.json")
        paths[-1].write_bytes(bundles.seal(data))
    host, other = judge("tiny-1", [verify(path) for path in paths], registry, cases)
    assert (host.device, host.satisfied, other.device, other.satisfied) == ("host/cpu", True, "nvidia/b200", False)
    assert {one.case for one in other.missing} == {f"layout-{name}" for name in profiles.LAYOUTS[:4]}


def test_what_does_not_verify_counts_for_nothing(
    tiny: Path, sqrt_session: Session, tmp_path: Path, registry: nbx.Registry, cases: CaseTable
) -> None:
    data = copy.deepcopy(bundles.compose(sqrt_session)[0])
    data["kernels"][KERNEL]["kernel_digest"] = "0" * 64
    path = tmp_path / "b.json"
    path.write_bytes(bundles.seal(data))
    (one,) = judge("tiny-1", [verify(path, registry, cases)], registry, cases)
    assert len(one.missing) == one.wanted
    assert "passed, but its code changed since it was checked" in one.missing[0].why[0]


def test_what_a_view_shows_on_one_device_holds_on_every_other(
    tiny: Path, sqrt_session: Session, tmp_path: Path, registry: nbx.Registry, cases: CaseTable
) -> None:
    data = copy.deepcopy(bundles.compose(sqrt_session)[0])
    data["kernels"][KERNEL]["backend"] = "view"
    host = tmp_path / "host.json"
    host.write_bytes(bundles.seal(data))
    empty = copy.deepcopy(data)
    empty["device"]["id"] = "nvidia/b200"
    empty["kernels"] = {"nbx-x/add/y": {**data["kernels"][KERNEL], "op": "add@1", "backend": "triton"}}
    there = tmp_path / "there.json"
    there.write_bytes(bundles.seal(empty))
    found = judge("tiny-1", [verify(host), verify(there)], registry, cases)
    assert [(one.device, one.satisfied) for one in found] == [("host/cpu", True), ("nvidia/b200", True)]


@pytest.mark.parametrize(
    ("old", "new", "why"),
    [
        ("sqrt@1", "sqrt@7", "sqrt@7: no op of that id has cases (did you mean 'sqrt@1'"),
        ("sqrt@1:", "sqrt@1: {cases: ['nothing-*']}", "no case is named like 'nothing-*'"),
        ("float16", "float23", "is of float23"),
        ("offset", "ofset", "unknown layout 'ofset' (did you mean 'offset'"),
        ("size: smoke", "size: tiny", "size 'tiny' is none of"),
        ("means", "meens", "unknown key 'meens' (did you mean 'means'"),
        ("size: smoke\n", "", "lacks 'size'"),
    ],
)
def test_a_profile_that_does_not_fit_the_cases_is_named(
    tiny: Path, registry: nbx.Registry, cases: CaseTable, old: str, new: str, why: str
) -> None:
    (tiny / "tiny-1.yml").write_text(TINY.replace(old, new), "utf-8")
    (problem,) = profiles.lint(cases, registry.catalog.ops)
    assert why.replace(" (did", "").split(" you")[0] in problem
    assert "tiny-1" in problem


def test_an_unknown_profile_is_named_with_the_nearest() -> None:
    with pytest.raises(UnknownName, match="did you mean 'core-1'"):
        profiles.load("core1")
    for command in (["verify", __file__, "--profile", "core1"], ["run", "--profile", "core1"]):
        done = CliRunner().invoke(cli.conformance, command)
        assert done.exit_code == 2, done.output
        assert "did you mean 'core-1'" in done.output


def test_a_malformed_profile_is_refused(tiny: Path) -> None:
    (tiny / "tiny-1.yml").write_text("[]\n", "utf-8")
    with pytest.raises(FileError, match="must be a mapping"):
        profiles.load("tiny-1")


def test_a_run_for_a_profile_takes_its_ops_and_its_size() -> None:
    ops, size = profiles.asked(["vision-1"], ["add", "conv2d@1"], None)
    assert (ops[:2], size) == (("add", "conv2d@1"), "full")
    assert set(profiles.load("vision-1").ops) < set(ops)
    assert profiles.asked(["vision-1"], [], "smoke")[1] == "smoke"
    assert profiles.asked([], ["add"], None) == (("add",), "smoke")


def test_a_run_for_a_profile_fails_where_what_must_pass_is_refused_and_says_what(tmp_path: Path) -> None:
    (tmp_path / "profiles").mkdir()
    (tmp_path / "profiles" / "tiny-1.yml").write_text(TINY, "utf-8")
    source = HOSTILE.format(when=", when=(x.dtype in (float32,),)").replace("out[...] = x", "np.sqrt(x, out=out)")
    source = source.replace("when=(x.dtype in (float32,),)", 'when=("x.dtype in (float32,)",)')
    source += "\nfrom pathlib import Path\nfrom nbx_conformance.runs import profiles\n"
    source += "profiles.FOLDER = Path(__file__).with_name('profiles')\n"
    done = pytest_on(tmp_path, source, "--nbx-profile=tiny-1", "-k", "awkward-f16-N63 or awkward-f32-N63", "-q")
    assert done.returncode == 1, done.stdout + done.stderr
    # Of a run of some of the cases only those count.
    assert "tiny-1 on host/cpu: NOT satisfied, 1 of 2 cases that must pass do not" in done.stdout
    assert "sqrt@1 (float16): awkward-f16-N63: nbx-wrong/sqrt/it: refused as DTYPE" in done.stdout


def test_a_profile_of_which_nothing_was_tried_is_not_satisfied(tmp_path: Path) -> None:
    profile = ("--profile", "vision-1", "-k", "pixel_shuffle and indivisible")
    done = conformance(tmp_path, "run", "--plugin", "nbx-host", *profile)
    assert done.returncode == 3, done.stdout + done.stderr
    assert "vision-1 on host/cpu: NOT satisfied, none of the cases that must pass was tried" in done.stdout


def test_the_host_satisfies_what_is_tried_of_a_profile(tmp_path: Path) -> None:
    done = conformance(tmp_path, "run", "--plugin", "nbx-host", "--profile", "vision-1", "-k", "pixel and factors")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "vision-1 on host/cpu: satisfied, all " in done.stdout
