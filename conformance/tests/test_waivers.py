"""Waivers: what they cover, what of them fails a run, and what is said of them; malformed files."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable
from dataclasses import replace
from datetime import date
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from test_pytest import conformance, pytest_on

from nbx_conformance.bundles import bundle as bundles
from nbx_conformance.bundles.verify import verify
from nbx_conformance.cases import CaseTable
from nbx_conformance.report import table, waived
from nbx_conformance.runs import runner
from nbx_conformance.runs.options import Options
from nbx_conformance.runs.runner import Record
from nbx_conformance.runs.session import Session
from nbx_conformance.runs.waivers import Waivers, read, wrong
from nbx_registry import bundle
from nbx_registry.errors import FileError
from nbx_registry.hookspecs import hookimpl
from nbx_registry.kernel import Kernel
from nbx_registry.launch import Launch
from nbx_registry.registry import Registry, load

LINK = "https://example.com/issues/7"
BAD = "awkward-f32-N63"


def bind(context: Any) -> Launch:
    """Bind a square root that is off by a third of an ulp too many for one size, and raises for another."""
    size = context.signature.tensors[0].size

    def run(x: Any, out: Any) -> None:
        np.sqrt(x, out=out)
        if x.dtype == np.float32 and x.shape[-1:] == (63,):
            out *= np.float32(1 + 2**-20)
        if size == 1:
            raise ValueError("by design")

    return Launch(function=run, args=("x", "out"))


def faulty(folder: Path | None = None, reference: bool = False) -> Any:
    kernel = Kernel(
        id="made/sqrt/x",
        op="sqrt@1",
        backend="numpy",
        runtimes=("host",),
        bind=f"{__name__}:bind" if reference else bind,
        when=("x.dtype == float32",),
        overlap="same",
    )
    hooks = {"kernels": [kernel], **({} if folder is None else {"waivers": [folder]})}
    return SimpleNamespace(
        name="made",
        NBX_HOOKS=1,
        **{
            f"nbx_register_{kind}": hookimpl(lambda values=values: values, specname=f"nbx_register_{kind}")
            for kind, values in hooks.items()
        },
    )


@cache
def registry() -> Registry:
    return load(plugins=[faulty()])


@cache
def case_table() -> CaseTable:
    return runner.case_table(registry())


@cache
def failing() -> tuple[str, ...]:
    """Return the checks that fail on one case: what is wrong is wrong whenever it is looked at."""
    _, (record,) = ran()
    assert {"numbers", "fresh", "aliasing"} <= set(record.checks["fail"])
    return tuple(record.checks["fail"])


def entry(**changes: Any) -> dict[str, Any]:
    found = {
        "id": "SQRT-7",
        "kernel": "made/sqrt/x",
        "case": "awkward-f32-N63*",
        "check": list(failing()),
        "device": "host/cpu",
        "reason": "an ulp too many",
        "link": LINK,
        "expires": "2999-12-31",
        **changes,
    }
    return {key: value for key, value in found.items() if value is not None}


def written(folder: Path, *entries: dict[str, Any], name: str = "waivers.yml") -> Path:
    (folder / name).write_text(json.dumps({"waivers": entries}), "utf-8")
    return folder / name


def ran(
    *files: Path, cases: Iterable[str] | None = (BAD,), folder: Path | None = None, **options: Any
) -> tuple[Session, list[Record]]:
    """Try the faulty kernel on cases (None: all of smoke) under files of waivers."""
    given = {"kernels": ("made/sqrt/x",), "waivers": tuple(map(str, files)), **options}
    session = Session(Options(device="cpu", **given), registry() if folder is None else load(plugins=[faulty(folder)]))
    session.cases = case_table()
    wanted = None if cases is None else set(cases)
    return session, [session.run(item) for item in session.items if wanted is None or item.case.id in wanted]


def test_what_a_waiver_covers_is_waived_and_names_it(tmp_path: Path) -> None:
    session, (record,) = ran(written(tmp_path, entry()))
    assert record.verdict == "waived"
    assert tuple(record.checks["waived"]) == failing()
    assert record.waivers == dict.fromkeys(failing(), ("SQRT-7", "fail"))
    assert "must be" in record.details["numbers"]
    assert list(wrong(session)) == []


def test_checks_that_it_does_not_name_still_fail(tmp_path: Path) -> None:
    _, (record,) = ran(written(tmp_path, entry(check="fresh")))
    assert record.verdict == "fail"
    assert record.checks["waived"] == ["fresh"]
    assert record.checks["fail"] == [check for check in failing() if check != "fresh"]


@pytest.mark.parametrize(
    "change",
    [
        {"kernel": "made/sqrt/y*"},
        {"case": "awkward-f16*"},
        {"device": "nvidia/*"},
        {"via": "triton-interpreter"},
        {"check": "special"},
        {"expires": "2020-01-31"},
        {"share": 1.001, "check": "numbers"},
    ],
    ids=lambda change: next(iter(change)),
)
def test_what_it_is_not_about_it_does_not_cover(tmp_path: Path, change: dict[str, Any]) -> None:
    _, (record,) = ran(written(tmp_path, entry(**change)))
    assert record.verdict == "fail"
    assert record.waivers == {}


@pytest.mark.parametrize("device", ["host/*", "host", "*"])
def test_a_device_is_a_product_a_class_or_a_pattern(tmp_path: Path, device: str) -> None:
    _, (record,) = ran(written(tmp_path, entry(device=device)))
    assert record.waivers


def test_a_looser_bound_is_a_waiver_and_beyond_it_a_case_fails(tmp_path: Path) -> None:
    _, (plain,) = ran()
    share = plain.profile["share"]
    assert share > 1
    session, (within,) = ran(written(tmp_path, entry(share=share * 1.1, check="numbers")))
    # Every check looks at numbers within the looser bound.
    assert (within.verdict, within.checks["waived"]) == ("waived", ["numbers"])
    assert within.profile["share"] == share
    assert list(wrong(session)) == []
    session, (beyond,) = ran(written(tmp_path, entry(share=share * 0.9, check="numbers")))
    assert tuple(beyond.checks["fail"]) == failing()
    assert beyond.profile["share"] == share
    assert list(wrong(session)) == []
    device = session.site.target.device
    bare = Waivers([], device, "device").apply(within)
    assert (bare.verdict, bare.checks["fail"]) == ("fail", ["numbers"])
    assert bare.details["numbers"] == f"an error is {share:g} times what is allowed"


def test_what_only_a_later_run_needs_of_a_looser_bound_shows_as_waived(tmp_path: Path) -> None:
    turns = iter((1, *(1 + 2**-20 for _ in range(10_000))))

    def bind_later(context: Any) -> Launch:
        def run(x: Any, out: Any) -> None:
            out[...] = np.sqrt(x) * np.float32(next(turns))

        return Launch(function=run, args=("x", "out"))

    plugin = SimpleNamespace(name="made", NBX_HOOKS=1)
    kernel = replace(faulty().nbx_register_kernels()[0], bind=bind_later, deterministic=False)
    plugin.nbx_register_kernels = hookimpl(lambda: [kernel], specname="nbx_register_kernels")
    file = written(tmp_path, entry(check="numbers", share=20))
    options = Options(device="cpu", kernels=("made/sqrt/x",), waivers=(str(file),))
    session = Session(options, load(plugins=[plugin]))
    record = session.run(next(item for item in session.items if item.case.id == BAD))
    assert (record.verdict, record.checks["waived"]) == ("waived", ["numbers"])
    assert 1 < record.profile["share"] <= 20


def test_a_kernel_that_raises_may_be_waived(tmp_path: Path) -> None:
    _, records = ran(cases=None)
    raising = [record.case for record in records if record.verdict == "error"]
    assert raising
    _, (record,) = ran(written(tmp_path, entry(case=raising[0], check="numbers")), cases=raising[:1])
    assert (record.verdict, record.waivers) == ("waived", {"numbers": ("SQRT-7", "error")})


def test_a_record_is_judged_anew_under_other_waivers(tmp_path: Path) -> None:
    session, (record,) = ran(written(tmp_path, entry()))
    device = session.site.target.device
    kept = Record(**json.loads(json.dumps(vars(record))))
    (other,) = read(written(tmp_path, entry(id="OTHER")))
    assert Waivers([other], device, "device").apply(kept).waivers == dict.fromkeys(failing(), ("OTHER", "fail"))
    bare = Waivers([], device, "device").apply(kept)
    assert (bare.verdict, bare.waivers) == ("fail", {})
    assert tuple(bare.checks["fail"]) == failing()


# What of a waiver fails a run.


def complaints(path: Path, **keywords: Any) -> list[str]:
    session, _ = ran(path, **keywords)
    return list(wrong(session))


def test_one_that_matches_nothing_is_told_with_the_nearest(tmp_path: Path) -> None:
    path = written(tmp_path, entry(case="awkward-f32-N64"))
    (found,) = complaints(path)
    assert found.startswith(f"waiver SQRT-7 ({path}:1) matches nothing: no case is awkward-f32-N64; did you mean")
    path = written(tmp_path, entry(kernel="made/sqrt/y"))
    assert complaints(path) == []
    (found,) = complaints(path, kernels=(), plugins=("made",))
    assert "matches nothing: no kernel is made/sqrt/y; did you mean 'made/sqrt/x'?" in found
    assert complaints(written(tmp_path, entry(kernel="other/sqrt/y")), kernels=(), plugins=("made",)) == []


def test_one_that_has_expired_is_told(tmp_path: Path) -> None:
    (found,) = complaints(written(tmp_path, entry(expires="2020-02-29")))
    assert "expired on 2020-02-29: mend the kernel" in found
    assert complaints(written(tmp_path, entry(expires="2020-02-29", device="nvidia/*"))) == []


def test_it_counts_on_its_last_day(tmp_path: Path) -> None:
    session, (record,) = ran()
    (waiver,) = read(written(tmp_path, entry(expires="2026-11-30")))
    device = session.site.target.device
    assert Waivers([waiver], device, "device", date(2026, 11, 30)).apply(record).waivers
    assert not Waivers([waiver], device, "device", date(2026, 12, 1)).apply(record).waivers


def test_one_whose_case_passes_is_told(tmp_path: Path) -> None:
    good = "awkward-f32-N1000"
    (found,) = complaints(written(tmp_path, entry(case="awkward-f32-*")), cases=(BAD, good))
    assert f"case {good} of made/sqrt/x passes {', '.join(failing())}: remove or narrow the waiver" in found
    # A case that was left out says nothing, nor does one that the kernel refuses.
    assert complaints(written(tmp_path, entry(case="awkward-f32-*")), cases=(BAD,)) == []
    assert complaints(written(tmp_path, entry(case="awkward-*-N63")), cases=(BAD, "awkward-f16-N63")) == []


def test_a_check_that_fails_in_none_of_its_cases_is_told_where_all_were_tried(tmp_path: Path) -> None:
    path = written(tmp_path, entry(case=BAD, check=[*failing(), "special"]))
    (found,) = complaints(path)
    assert "matches nothing: special: no failure in its 1 cases" in found
    assert complaints(path, cases=()) == []


def test_cases_that_are_all_refused_waive_nothing(tmp_path: Path) -> None:
    (found,) = complaints(written(tmp_path, entry(case="awkward-f16-N63")), cases=("awkward-f16-N63",))
    assert f"matches nothing: {', '.join(failing())}: no failure in its 1 cases" in found


def test_what_is_in_a_larger_size_is_left_to_it(tmp_path: Path) -> None:
    session, _ = ran(cases=())
    full = next(case.id for case in session.cases.of("sqrt@1", "full") if case.size == "full")
    assert complaints(written(tmp_path, entry(case=full)), cases=None) == []


# Where they come from.


def test_a_plugins_folder_is_read_and_only_for_its_own_kernels(tmp_path: Path) -> None:
    written(tmp_path, entry())
    _, (record,) = ran(folder=tmp_path)
    assert record.verdict == "waived"
    written(tmp_path, entry(kernel="nbx-host/sqrt/*"))
    with pytest.raises(FileError, match="made waives its own kernels alone: begin it with made/"):
        ran(folder=tmp_path)


def test_a_malformed_file_of_a_plugin_that_is_not_tried_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "bad.yml").write_text("waivers: 4", "utf-8")
    session, _ = ran(folder=tmp_path, kernels=("nbx-host/sqrt/numpy",), cases=())
    assert session.waivers.here == []


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"id": None}, "entry 1: id is missing"),
        ({"case": 4}, "entry 1: case is an integer; write a string"),
        ({"check": "number"}, "entry 1: check names 'number', no check; did you mean 'numbers'?"),
        ({"check": []}, "entry 1: check is a list of other things; write strings"),
        ({"expires": "soon"}, "entry 1: expires is 'soon', no day; write YYYY-MM-DD"),
        ({"expires": 2027}, "entry 1: expires is an integer"),
        ({"link": "issue 7"}, "entry 1: link is 'issue 7'; write the address"),
        ({"share": 0.5}, "entry 1: share is 0.5; write how many times the bound"),
        ({"share": True}, "entry 1: share is True"),
        ({"share": 2, "check": ["numbers", "special"]}, "entry 1: share is of the check numbers alone"),
        ({"until": "2027-01-01"}, "entry 1: until is no key of an entry"),
    ],
    ids=lambda value: "-".join(value) if isinstance(value, dict) else "",
)
def test_a_malformed_entry_is_refused_by_file_entry_and_key(tmp_path: Path, change: dict[str, Any], why: str) -> None:
    path = written(tmp_path, entry(**change))
    with pytest.raises(FileError) as raised:
        read(path)
    assert str(raised.value).startswith(f"{path}:1: {why}")


def test_an_id_given_twice_is_refused_naming_both(tmp_path: Path) -> None:
    first = written(tmp_path, entry(), name="a.yml")
    second = written(tmp_path, entry(case="special-*"), name="b.yml")
    with pytest.raises(FileError, match=f"{second}:1: id 'SQRT-7' is given twice; first in {first}:1"):
        ran(first, second)


# What is said of them.


def test_the_table_and_the_lines_behind_it_show_what_is_waived(tmp_path: Path) -> None:
    path = written(tmp_path, entry())
    session, _ = ran(path, cases=(BAD, "awkward-f32-N1000"))
    row = next(line for line in table(session) if line.startswith("made/sqrt/x"))
    assert row.endswith("pass, waived")
    (line,) = waived(session)
    assert line.startswith(f"waived by SQRT-7: {', '.join(failing())} in 1 case of made/sqrt/x")
    assert f"in 1 case of made/sqrt/x: an ulp too many ({LINK}; until 2999-12-31)" in line


def test_a_bundle_holds_them_and_verifies(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # Under this name evidence can name the binder.
    monkeypatch.setitem(sys.modules, __name__, sys.modules[__name__])
    _, records = ran(cases=None)
    wrong_ones = {record.case: record for record in records if record.verdict in ("fail", "error")}
    rows = [
        entry(id=f"W{number}", case=case, check=[*record.checks.get("fail", ()), *record.checks.get("error", ())])
        for number, (case, record) in enumerate(sorted(wrong_ones.items()))
    ]
    path = written(tmp_path, *rows)
    options = Options(device="cpu", kernels=("made/sqrt/x",), waivers=(str(path),), extra=(faulty(reference=True),))
    session = Session(options)
    for item in session.items:
        session.run(item)
    assert session.verdicts() == {"made/sqrt/x": "pass"}
    data, _ = bundles.compose(session)
    assert [waiver["id"] for waiver in data["waivers"]] == sorted(row["id"] for row in rows)
    assert all((case["verdict"] == "waived") == ("waiver" in case) for case in data["kernels"]["made/sqrt/x"]["cases"])
    out = tmp_path / "bundle.json"
    out.write_bytes(bundles.seal(data))
    assert bundle.read(out).records["made/sqrt/x"].verdict == "pass"
    assert verify(out).problems == ()


IN_PYTEST = """
import sys
sys.path[:0] = [{tests!r}]
from test_waivers import faulty
from nbx_conformance import suite

test_conformance = suite("made", extra=(faulty(),))
"""


@pytest.fixture
def under(tmp_path: Path) -> Callable[..., Any]:
    """Give a function that runs pytest on the faulty kernel's one case under waivers."""

    def run(*entries: dict[str, Any], keyword: str = BAD) -> Any:
        path = written(tmp_path, *entries)
        (tmp_path / "suite").mkdir(exist_ok=True)
        source = IN_PYTEST.format(tests=str(Path(__file__).parent))
        return pytest_on(tmp_path / "suite", source, *(["-k", keyword] if keyword else []), f"--nbx-waivers={path}")

    return run


def test_a_run_under_waivers_passes_and_an_idle_one_fails_it(under: Callable[..., Any]) -> None:
    both = f"{BAD} or N1000"
    done = under(entry(), keyword=both)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "waived by SQRT-7" in done.stdout
    done = under(entry(), entry(id="IDLE", case="*-N1000*"), keyword=both)
    assert done.returncode == 1
    assert "waiver IDLE" in done.stdout
    assert "remove or narrow the waiver" in done.stdout


def test_a_malformed_file_fails_before_anything_is_tried(under: Callable[..., Any], tmp_path: Path) -> None:
    done = under(entry(expires="soon"), keyword="")
    assert done.returncode == 1
    assert "no day; write YYYY-MM-DD" in done.stdout
    told = conformance(tmp_path, "run", "--op", "sqrt", "--waivers", "waivers.yml")
    assert told.returncode == 2
    assert "entry 1: expires is 'soon'" in told.stderr


def test_the_waiver_of_the_documentation_can_be_read(tmp_path: Path) -> None:
    page = (Path(__file__).parents[2] / "docs/how-to/prove-kernels.md").read_text("utf-8")
    text = "waivers:\n" + page.partition("```yaml\nwaivers:\n")[2].partition("```")[0]
    (tmp_path / "page.yml").write_text(text, "utf-8")
    (waiver,) = read(tmp_path / "page.yml", "nbx-acme")
    assert (waiver.id, waiver.share, waiver.expires) == ("ACME-12", 4, date(2027, 3, 31))
