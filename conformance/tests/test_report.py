"""The report: what bundles come to, as Markdown and as a page."""

from __future__ import annotations

from pathlib import Path

import pytest
from bundles_made import PROFILE, case, kernel, write
from click.testing import CliRunner

from nbx_conformance.bundles.matrix import gather, markdown
from nbx_conformance.cli import conformance
from nbx_conformance.page import page
from nbx_registry.errors import FileError

ELSEWHERE = {"reach": "elsewhere", "via": "emulator", "device": {"handles": []}}
BUILT = {"reach": "built", "via": "build", "device": {"handles": []}}


def add(verdict: str = "pass", **entry: object) -> dict[str, object]:
    said = "fail" if verdict == "fail" else "pass"
    return {"nbx-acme/add/plain": kernel("add@1", case("a", said), verdict=verdict, **entry)}


@pytest.mark.parametrize(
    ("bundles", "state"),
    [
        ([({}, "pass")], "here"),
        ([({}, "fail")], "failed"),
        ([({}, "incomplete")], "incomplete"),
        ([(ELSEWHERE, "pass")], "unbuilt"),
        ([(BUILT, "built")], "built"),
        ([(ELSEWHERE, "pass"), (BUILT, "built")], "elsewhere"),
        ([({}, "pass"), (ELSEWHERE, "fail")], "failed"),
        ([({}, "fail"), ({"created": "2026-12-01T06:00:00+00:00"}, "pass")], "here"),
        ([({}, "pass"), ({"created": "2026-12-01T06:00:00+00:00"}, "fail")], "failed"),
        ([({}, "fail"), ({"created": "2026-12-01T06:00:00+00:00"}, "incomplete")], "failed"),
        ([({}, "pass"), ({"created": "2026-12-01T06:00:00+00:00"}, "incomplete")], "here"),
    ],
)
def test_the_state_of_a_kernel_is_what_its_latest_bundles_come_to(tmp_path: Path, bundles, state) -> None:
    paths = [write(tmp_path / f"{i}.json", add(verdict), **dict(more)) for i, (more, verdict) in enumerate(bundles)]
    for given in (paths, paths[::-1]):
        assert gather(given).best("add@1", "acme/one") == state


def test_the_best_kernel_speaks_for_an_op_and_a_failed_one_is_shown_beside_it(tmp_path: Path) -> None:
    kernels = {**add(), "nbx-acme/add/wrong": kernel("add@1", case("a", "fail"), verdict="fail")}
    text = markdown(gather([write(tmp_path / "b.json", kernels)]))
    assert "| add@1 | **checked** (2), 1 **FAILS** |" in text


def test_waivers_are_shown_with_what_they_allow(tmp_path: Path) -> None:
    waiver = {
        "id": "w1",
        "kernel": "nbx-acme/*",
        "case": "a",
        "check": "numbers",
        "device": "acme/one",
        "reason": "rounds down",
        "link": "https://example.org/1",
        "expires": "2027-01-01",
        "share": 2,
    }
    kernels = {"nbx-acme/add/plain": kernel("add@1", case("a", "waived", waiver="w1"), case("b"))}
    matrix = gather([write(tmp_path / "b.json", kernels, waivers=[waiver])])
    text = markdown(matrix)
    assert "| add@1 | **checked**, w |" in text
    assert "w1: nbx-acme/*, case a, numbers on acme/one, up to 2 times the bound: rounds down" in text
    assert "rounds down" in page(matrix, {})


def test_what_is_wrong_with_a_plugin_is_shown(tmp_path: Path) -> None:
    checks = [{"check": "ids", "verdict": "pass"}, {"check": "docs", "verdict": "fail", "reason": "says <nothing>"}]
    plugin = {"distribution": "nbx-acme", "version": "0.1.0", "verdict": "fail", "checks": checks}
    text = page(gather([write(tmp_path / "b.json", add(), plugins={"nbx-acme": plugin})]), {})
    assert '<span class="fail">docs</span> says &lt;nothing&gt;' in text


def test_a_changed_bundle_is_refused_by_name(tmp_path: Path) -> None:
    path = write(tmp_path / "b.json", add())
    path.write_bytes(path.read_bytes().replace(b"acme/one", b"acme/two"))
    with pytest.raises(FileError, match=r"b\.json: digest"):
        gather([path])


def test_a_failure_comes_with_the_command_that_shows_it_again_quoted_for_a_shell(tmp_path: Path) -> None:
    failing = {"nbx-acme/add/plain": kernel("add@1", case("a", "fail", reason="out[3] is 2"), verdict="fail")}
    path = write(tmp_path / "b.json", failing, device={"id": "acme/one;rm -rf"})
    ((result, found),) = gather([path]).failures()
    assert result.again(found) == (
        "nbx conformance run --device 'acme/one;rm -rf' --via device --size smoke --kernel nbx-acme/add/plain -k a"
    )


def test_what_a_bundle_says_is_text_on_the_page(tmp_path: Path) -> None:
    hostile = "<script>alert(1)</script>\"'&"
    kernels = {
        f"k{hostile}": kernel(f"o{hostile}", case(hostile, "fail", reason=hostile, profile=PROFILE), verdict="fail")
    }
    runtime = {"name": "x", "versions": {hostile: hostile}}
    path = write(tmp_path / "b.json", kernels, device={"id": hostile}, via=hostile, runtime=runtime)
    text = page(gather([path]), {})
    assert "<script>alert" not in text
    assert text.count("<script>") == 1


def test_the_page_needs_nothing_beside_itself(tmp_path: Path) -> None:
    text = page(gather([write(tmp_path / "b.json", add())]), {})
    assert "default-src &#x27;none&#x27;" in text
    for outside in ("src=", "<link", "@import", "url(", "http"):
        assert outside not in text.replace('http-equiv="Content', "")


def test_the_command_writes_both_forms_and_names_what_it_cannot_read(tmp_path: Path) -> None:
    path = write(tmp_path / "b.json", add())
    run = CliRunner().invoke
    html, text = tmp_path / "o.html", tmp_path / "o.md"
    found = run(conformance, ["report", str(path), "--html", str(html), "--markdown", str(text)])
    assert (found.exit_code, html.exists(), text.read_text()) == (0, True, markdown(gather([path])))
    assert run(conformance, ["report", str(path)]).exit_code == 2
    path.write_text("{}")
    found = run(conformance, ["report", str(path), "--html", str(html)])
    assert found.exit_code == 3
    assert "b.json" in found.output


def test_what_a_bundle_says_is_text_in_markdown(tmp_path: Path) -> None:
    path = write(tmp_path / "b.json", {"acme/add/x": kernel("<b>|op@1", case("a"))}, device={"id": "<i>|dev"})
    text = markdown(gather([path]))
    assert "| &lt;b>&#124;op@1 |" in text
    assert "<i>" not in text


def test_a_report_replaces_no_bundle_and_no_other_report(tmp_path: Path) -> None:
    path = write(tmp_path / "b.json", add())
    content, out = path.read_bytes(), str(tmp_path / "o")
    run = CliRunner().invoke
    found = run(conformance, ["report", str(path), "--html", str(path)])
    assert (found.exit_code, path.read_bytes()) == (2, content)
    assert f"would replace the bundle {path}" in found.output
    found = run(conformance, ["report", str(path), "--html", out, "--markdown", out])
    assert found.exit_code == 2
    assert "would replace what --html writes" in found.output


@pytest.mark.parametrize(
    "option", [["report", "--html"], ["report", "--markdown"], ["merge", "--out"], ["run", "--out"]]
)
def test_what_cannot_be_written_is_told_before_the_work(tmp_path: Path, option: list[str]) -> None:
    path = write(tmp_path / "b.json", add())
    given = [option[0], *([] if option[0] == "run" else [str(path)]), option[1]]
    for out in ("", "/dev/null", str(path / "below")):
        found = CliRunner().invoke(conformance, [*given, out])
        assert found.exit_code == 2, found.output
        assert "name another file" in found.output or "names no file" in found.output


def test_a_result_that_is_not_finite_has_no_profile_in_words(tmp_path: Path) -> None:
    endless = {"ulp": [0, 0, 0], "l2": 0, "share": 1e300, "worst": [2]}
    path = write(
        tmp_path / "b.json", {"nbx-acme/add/plain": kernel("add@1", case("a", "fail", profile=endless), verdict="fail")}
    )
    text = page(gather([path]), {})
    assert "not to be measured at [2]: not finite" in text
    assert "far beyond" not in text
    assert "1 op on 1 device: 1 case of 1 bundle, " in text
