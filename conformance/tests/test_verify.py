"""Verification: no byte may change, no other form will do, and all that a bundle says must fit together."""

from __future__ import annotations

import copy
import hashlib
import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

import nbx_registry as nbx
from nbx_conformance import plugin_checks
from nbx_conformance.bundles import bundle as bundles
from nbx_conformance.bundles import matrix
from nbx_conformance.bundles.verify import NOT_VERIFIED, VERIFIED, verify
from nbx_conformance.cli import conformance
from nbx_conformance.page import page
from nbx_conformance.runs.session import Session
from nbx_registry.errors import FileError

KERNEL = "nbx-host/sqrt/numpy"
Data = dict[str, Any]


@pytest.fixture(scope="module")
def whole(sqrt_session: Session) -> Data:
    return bundles.compose(sqrt_session)[0]


@pytest.fixture
def data(whole: Data) -> Data:
    """A bundle of two cases, one computed and one refused."""
    small = copy.deepcopy(whole)
    entry = small["kernels"][KERNEL]
    entry["cases"] = [case for case in entry["cases"] if case["case"] in ("awkward-f32-N63", "integer")]
    entry["expected"] = len({case["case"] for case in entry["cases"]})
    return small


def cases_of(data: Data) -> list[Data]:
    return data["kernels"][KERNEL]["cases"]


def written(path: Path, data: Data) -> Path:
    path.write_bytes(bundles.seal(data))
    return path


def forged(content: bytes) -> bytes:
    """Put in the digest of a text as it stands: what a reader of texts would be content with."""
    text = content.decode()
    digest = json.loads(text)["digest"]
    rest = text.removesuffix("\n").replace(f'"digest":"{digest}",', "", 1)
    return text.replace(digest, hashlib.sha256(rest.encode()).hexdigest(), 1).encode()


def test_the_small_bundle_verifies(data: Data, tmp_path: Path) -> None:
    found = verify(written(tmp_path / "b.json", data))
    assert (found.problems, found.code, found.label) == ((), VERIFIED, "verified (self-reported, unsigned)")


def test_no_byte_can_change_be_left_out_or_be_added(data: Data, tmp_path: Path) -> None:
    path = written(tmp_path / "b.json", data)
    content = path.read_bytes()
    assert len(content) < 4000
    for position in range(len(content) + 1):
        before, byte, after = content[:position], content[position : position + 1], content[position + 1 :]
        changed = [before + added + byte + after for added in (b" ", b"0", byte)]
        if byte:
            flipped = [bytes([byte[0] ^ 1 << bit]) for bit in range(8)]
            changed += [before + other + after for other in (*flipped, b"", b" ", b"0", b'"')]
            changed.append(before + after[:1] + byte + after[1:])
        for one in changed:
            if one != content:
                path.write_bytes(one)
                assert verify(path).code == NOT_VERIFIED, (position, one[max(0, position - 20) : position + 20])


def form(change: Callable[[str], str]) -> Callable[[bytes], bytes]:
    return lambda content: change(content.decode()).encode("utf-8", "surrogatepass")


FORMS = {
    "space": form(lambda t: t.replace(":", ": ", 1)),
    "indented": lambda c: json.dumps(json.loads(c), indent=1, sort_keys=True).encode() + b"\n",
    "key-twice": form(lambda t: t.replace('"format":2,', '"format":2,"format":2,', 1)),
    "other-order": lambda c: (json.dumps(dict(reversed(json.loads(c).items())), separators=(",", ":")) + "\n").encode(),
    "number-with-exponent": form(lambda t: t.replace('"format":2,', '"format":2e0,', 1)),
    "number-with-fraction": form(lambda t: t.replace('"format":2,', '"format":2.0,', 1)),
    "negative-zero": form(lambda t: t.replace('"seed":0', '"seed":-0', 1)),
    "longer-number": form(lambda t: t.replace('"seconds":0.', '"seconds":0.000', 1).replace("0.000", "0.0000", 1)),
    "infinite-number": form(lambda t: t.replace('"seed":0', '"seed":0,"seconds":1e400', 1)),
    "escaped-letter": form(lambda t: t.replace('"host/cpu"', '"host\\u002fcpu"', 1)),
    "escaped-slash": form(lambda t: t.replace('"host/cpu"', '"host\\/cpu"', 1)),
    "half-a-pair": form(lambda t: t.replace('"host/cpu"', '"\\ud800"', 1)),
    "byte-order-mark": lambda c: b"\xef\xbb\xbf" + c,
    "carriage-return": lambda c: c[:-1] + b"\r\n",
    "no-newline": lambda c: c[:-1],
    "two-newlines": lambda c: c + b"\n",
    "another-object": lambda c: c + c,
    "not-utf-8": lambda c: c.replace(b"host/cpu", b"host\xff cpu", 1),
    "utf-16": lambda c: c.decode().encode("utf-16"),
    "empty": lambda c: b"",
    "a-list": lambda c: b"[" + c[:-1] + b"]\n",
    "nested-deeply": lambda c: b"[" * 100_000 + b"]" * 100_000,
}


@pytest.mark.parametrize("change", FORMS.values(), ids=FORMS.keys())
def test_another_form_of_the_same_does_not_verify(data: Data, tmp_path: Path, change: Callable[[bytes], bytes]) -> None:
    path = written(tmp_path / "b.json", data)
    content = path.read_bytes()
    changed = change(content)
    assert changed != content
    path.write_bytes(changed)
    assert verify(path).code == NOT_VERIFIED
    try:
        path.write_bytes(forged(changed))
    except (ValueError, KeyError, TypeError, RecursionError):
        return
    assert verify(path).code == NOT_VERIFIED


VALUES: list[Any] = [None, True, 0, -1, 3.5, "", "x", [], ["x"], [{}], {}, {"x": 1}]


def places(value: Any) -> list[tuple[Any, Any]]:
    """Return every container of a value with each of its keys."""
    keys = value if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ()
    return [found for key in keys for found in ((value, key), *places(value[key]))]


def test_whatever_stands_where_it_should_not_verification_ends_in_words(data: Data, tmp_path: Path) -> None:
    path = tmp_path / "b.json"
    data["waivers"] = [waiver()]
    data["plugins"] = {"nbx-host": plugin()}
    cases_of(data)[0]["cold"] = {"seconds": 1.0, "least_s": 0.5, "sets": 4}
    rng = random.Random(7)
    for index in range(len(places(data))):
        for value in (*rng.sample(VALUES, 4), ...):
            changed = copy.deepcopy(data)
            container, key = places(changed)[index]
            if value is ...:
                del container[key]
            else:
                container[key] = value
            verify(written(path, changed))
            # A report shows what verifies and what does not, or refuses it in words.
            try:
                matrices = matrix.gather([path])
            except FileError:
                continue
            matrix.markdown(matrices)
            page(matrices, {})


def waiver(**changes: Any) -> Data:
    return {
        "id": "known",
        "kernel": "nbx-host/sqrt/*",
        "case": "awkward-*",
        "check": "aliasing",
        "device": "host/*",
        "reason": "it is known",
        "link": "https://example.org/1",
        "expires": "2999-01-01",
        **changes,
    }


def profile(size: float, **changes: Any) -> Data:
    return {"ulp": [0.25, 0.5, 1.5], "l2": 1e-7, "share": size, "worst": [3], **changes}


def plugin(**changes: Any) -> Data:
    checks = [{"check": name, "verdict": "pass"} for name in sorted(plugin_checks.ALWAYS)]
    return {"distribution": "nbx-absent", "version": "1", "verdict": "pass", "checks": checks, **changes}


def waive(data: Data, **changes: Any) -> None:
    """Split one check off a case that passed, and waive it."""
    case = cases_of(data)[0]
    case["check"] = case["check"].replace(" aliasing", "")
    entry = {"case": case["case"], "seed": case["seed"], "check": "aliasing", "verdict": "waived", "reason": "so"}
    cases_of(data).insert(1, {**entry, "waiver": "known"})
    data["waivers"] = [waiver(**changes)]


def test_what_is_waived_verifies(data: Data, tmp_path: Path) -> None:
    waive(data)
    assert verify(written(tmp_path / "b.json", data)).problems == ()


def test_an_error_that_a_waiver_allows_is_no_problem(data: Data, tmp_path: Path) -> None:
    waive_numbers(2.5)(data)
    (problem,) = verify(written(tmp_path / "b.json", data)).problems
    assert problem.endswith("no case passed numbers")


def waive_numbers(share: float) -> Callable[[Data], None]:
    """Return what waives the numbers of the first case, whose error is so many times the bound; 3 are waived."""

    def change(data: Data) -> None:
        waive(data, check="numbers", share=3)
        first, waived = cases_of(data)[:2]
        first.update(check=first["check"].replace("numbers ", ""), profile=profile(share))
        waived.update(check="numbers")

    return change


def cold(seconds: float, verdict: str = "pass", **changes: Any) -> Callable[[Data], None]:
    def change(data: Data) -> None:
        case = cases_of(data)[0]
        case["cold"] = {"seconds": seconds, "least_s": 0.5, "sets": 4, **changes}
        case["check"] = case["check"].replace(" cold", "")
        entry = {"case": case["case"], "seed": 0, "check": "cold", "verdict": verdict, "reason": "so"}
        cases_of(data).insert(1, entry)

    return change


def change(key: str, value: Any) -> Callable[[Data], None]:
    """Return what changes one place, as ``selection.size``; 0 is the kernel's first case, 1 the refused one."""

    def made(data: Data) -> None:
        container: Any = data
        *path, last = key.split(".")
        for name in path:
            container = cases_of(data)[int(name)] if name in "01" else container[name]
        container[last] = value

    return made


INCONSISTENT: dict[str, tuple[Callable[[Data], None], str]] = {
    "fewer-cases": (lambda d: cases_of(d).pop(), "verdict: is 'pass', but 1 of 2 cases were run"),
    "more-cases": (lambda d: d["kernels"][KERNEL].update(expected=1), "2 cases are recorded, of 1 in the whole run"),
    "size": (change("selection.size", "huge"), "size 'huge' is none of"),
    "no-size": (lambda d: d["selection"].pop("size"), "size None is none of"),
    "other-kernels": (change("selection.kernels", ["nbx-host/add/numpy"]), f"{KERNEL} was not asked for"),
    "other-ops": (change("selection.ops", ["add"]), "sqrt@1, which nbx-host/sqrt/numpy implements, was not asked for"),
    "ops-no-list": (change("selection.ops", "sqrt"), "ops must be a list of strings"),
    "keyword": (change("selection.keyword", 3), "keyword must be a string or null"),
    "shards": (change("selection.shards", {"of": 2, "parts": [3]}), "shards must hold"),
    "shards-empty": (change("selection.shards", {"of": 2, "parts": []}), "shards must hold"),
    "another-handle": (change("0.handle", "cuda:0"), "cases ran on cuda:0, which handles does not name"),
    "unused-handle": (change("device.handles", ["cpu", "cpu:1"]), "handles names cpu:1, on which no case ran"),
    "handle-elsewhere": (lambda d: d.update(reach="elsewhere"), "cases ran on cpu, yet the reach is elsewhere"),
    "seed": (change("0.seed", "0"), "seed is '0'; it must be an integer"),
    "no-seed": (lambda d: cases_of(d)[0].pop("seed"), "has no seed"),
    "seconds": (change("0.seconds", -1), "seconds is '-1'; it must be a number"),
    "output": (change("0.output_digest", "XYZ"), "it must be 16 hexadecimal digits"),
    "profile": (change("0.profile", profile(1.5)), "the error is 1.5 times what the contract allows"),
    "profile-share": (change("0.profile", profile(0.5, share="nan")), "it must be an object of ulp"),
    "profile-falls": (change("0.profile", profile(0.5, ulp=[9, 5, 1])), "it must be an object of ulp"),
    "profile-short": (change("0.profile", profile(0.5, ulp=[0.5])), "it must be an object of ulp"),
    "profile-negative": (change("0.profile", profile(-1)), "it must be an object of ulp"),
    "profile-without-share": (change("0.profile", {"ulp": [0, 0, 0], "l2": 0, "worst": []}), "an object of ulp"),
    "profile-with-more": (change("0.profile", profile(0.5, trust="me")), "it must be an object of ulp"),
    "too-large": (change("0.seconds", 10**400), "10000000000000000000... is no integer of 64 bits"),
    "too-large-in-the-head": (change("seconds", 10**400), "10000000000000000000... is no integer of 64 bits"),
    "another-route": (change("via", "interpreter"), "reach: is here, yet the route interpreter is one to elsewhere"),
    "no-route": (change("via", "telepathy"), "reach: is here, yet the route telepathy is one to elsewhere"),
    "suite-version": (change("suite.version", "9.9"), "suite: its version is 9.9, of which"),
    "toolkit": (
        lambda d: d["kernels"][KERNEL].update(toolkit="numpy 1.0"),
        f"{KERNEL}: its toolkit is numpy 1.0, of which",
    ),
    "refused-twice": (
        lambda d: cases_of(d).append({**cases_of(d)[1], "check": "special"}),
        "is refused by the check special; only refusals refuses",
    ),
    "refused-silently": (lambda d: cases_of(d)[1].pop("reason"), "is refused without a reason"),
    "too-fast": (cold(0.25), "took 0.25 s cold, less than the least cost, 0.5 s, which is an error"),
    "too-fast-failed": (
        lambda d: (cold(0.25, "fail")(d), d["kernels"][KERNEL].update(verdict="fail")),
        "which is an error",
    ),
    "cold-without-sets": (cold(0.75, sets=0), "cold must hold seconds, least_s and sets"),
    "cold-without-time": (
        change("0.check", "cold numbers poison guards inputs fresh allocation"),
        "no time is recorded",
    ),
    "plugin-failed": (
        lambda d: d["plugins"].update(
            x=plugin(verdict="fail", checks=[{"check": "docs", "verdict": "fail", "reason": "none"}])
        ),
        "plugin x: docs failed: none",
    ),
    "plugin-verdict": (lambda d: d["plugins"].update(x=plugin(verdict="fail")), "its checks come to 'pass'"),
    "plugin-unchecked": (lambda d: d["plugins"].update(x=plugin(checks=[])), "there must be some"),
    "plugin-vibes": (
        lambda d: d["plugins"].update(x=plugin(checks=[{"check": "vibes", "verdict": "pass"}])),
        "plugin x: 'vibes' is no check of the suite",
    ),
    "plugin-checked-in-part": (
        lambda d: d["plugins"].update(x=plugin(checks=[{"check": "ids", "verdict": "pass"}])),
        "plugin x: docs, light_import, references is missing of its checks",
    ),
    "plugin-twice": (
        lambda d: d["plugins"].update(x=plugin(checks=[{"check": "ids", "verdict": "pass"}] * 2)),
        "a check is recorded twice",
    ),
    "plugin-version": (
        lambda d: d["plugins"].update(x=plugin(distribution="nbx-registry", version="9")),
        "version '9' of nbx-registry, of which",
    ),
    "waiver-unknown": (lambda d: (waive(d), d.update(waivers=[])), "which is no waiver of this bundle"),
    "waiver-unused": (lambda d: d.update(waivers=[waiver()]), "waiver known is listed, but no case is waived by it"),
    "waiver-expired": (lambda d: waive(d, expires="2001-01-01"), "waiver known expired on 2001-01-01"),
    "waiver-no-date": (lambda d: waive(d, expires="soon"), "expires 'soon', which is no date"),
    "waiver-other-device": (lambda d: waive(d, device="nvidia/*"), "is for nvidia/*, not for host/cpu"),
    "waiver-other-kernel": (lambda d: waive(d, kernel="nbx-acme/*"), "which is for the kernel nbx-acme/*"),
    "waiver-other-case": (lambda d: waive(d, case="minilm"), "which is for the case minilm"),
    "waiver-other-check": (lambda d: waive(d, check="numbers"), "which is for the check numbers, not for aliasing"),
    "waiver-other-route": (lambda d: waive(d, via="interpreter"), "is for the route interpreter, not for device"),
    "waiver-exceeded": (waive_numbers(3.5), "is waived by known up to 3 times the bound; the error takes 3.5"),
    "waiver-not-needed": (waive_numbers(0.5), "is waived by known up to 3 times the bound; the error takes 0.5"),
    "waiver-no-link": (lambda d: waive(d, link=""), "waiver 'known' lacks link"),
    "waiver-not-waived": (change("0.waiver", "known"), "is pass, yet names a waiver"),
}


@pytest.mark.parametrize(("change", "why"), INCONSISTENT.values(), ids=INCONSISTENT.keys())
def test_what_does_not_fit_together_does_not_verify(
    data: Data, tmp_path: Path, change: Callable[[Data], Any], why: str
) -> None:
    change(data)
    found = verify(written(tmp_path / "b.json", data))
    assert found.code == NOT_VERIFIED
    assert any(why in problem for problem in found.problems), found.problems


FORGING = "x\nb.json: verified (signed by acme)"


@pytest.mark.parametrize(
    "change",
    [
        lambda d, text: d["kernels"].update({text: d["kernels"].pop(KERNEL)}),
        lambda d, text: d["kernels"][KERNEL].update(op=text),
        lambda d, text: cases_of(d)[0].update(case=text),
        lambda d, text: cases_of(d)[0].update(check=text),
        lambda d, text: d["device"].update(id=text),
        lambda d, text: d["device"].update(handles=[text]),
        lambda d, text: d["suite"].update(version=text),
        lambda d, text: d["runtime"]["versions"].update({text: "1"}),
        lambda d, text: d["plugins"].update({text: plugin()}),
        lambda d, text: d.update({text: 1}),
    ],
    ids=["kernel", "op", "case", "check", "device", "handle", "suite", "version", "plugin", "key"],
)
@pytest.mark.parametrize("text", [FORGING, "\x1b[2Kx", "\u202egnp"], ids=["newline", "escape", "direction"])
def test_no_name_forges_what_a_person_reads(
    data: Data, tmp_path: Path, change: Callable[[Data, str], Any], text: str
) -> None:
    change(data, text)
    found = verify(written(tmp_path / "b.json", data))
    assert found.code == NOT_VERIFIED
    assert all(problem.isprintable() for problem in found.problems), found.problems


def test_what_a_bundle_says_in_words_is_told_in_one_line(data: Data, tmp_path: Path) -> None:
    failed = [{"check": "docs", "verdict": "fail", "reason": FORGING + "\x1b[2K"}]
    data["plugins"] = {"x": plugin(verdict="fail", checks=failed)}
    path = written(tmp_path / "b.json", data)
    told = CliRunner().invoke(conformance, ["verify", str(path)])
    assert told.exit_code == NOT_VERIFIED
    assert "  plugin x: docs failed: x\\nb.json: verified (signed by acme)\\x1b[2K" in told.stdout.splitlines()


def test_another_backend_than_the_kernel_has_is_stale(data: Data, tmp_path: Path) -> None:
    data["kernels"][KERNEL]["backend"] = "cuda"
    found = verify(written(tmp_path / "b.json", data), nbx.load())
    assert f"{KERNEL}: is of the backend numpy now; it was checked as one of cuda" in found.stale


def test_a_day_that_is_to_come_is_noted(data: Data, tmp_path: Path) -> None:
    data["created"] = "2999-01-01T00:00:00+00:00"
    found = verify(written(tmp_path / "b.json", data), nbx.load())
    assert "made on 2999-01-01, which is to come by the clock here" in found.notes


def test_a_run_that_names_a_plugin_looks_at_it(data: Data, tmp_path: Path) -> None:
    data["selection"].update(kernels=[KERNEL], plugins=["nbx-host"])
    found = verify(written(tmp_path / "b.json", data), nbx.load())
    assert "plugin nbx-host: kernels of it were tried, but not the checks of the plugin" in found.problems


def test_a_run_of_all_that_a_plugin_has_looks_at_the_plugin(data: Data, tmp_path: Path) -> None:
    data["selection"]["kernels"] = []
    found = verify(written(tmp_path / "b.json", data), nbx.load())
    assert "plugin nbx-host: kernels of it were tried, but not the checks of the plugin" in found.problems


@pytest.mark.parametrize("change", [cold(0.5), cold(0.75)], ids=["as-fast-as-can-be", "slower"])
def test_a_cold_time_that_the_least_cost_allows_verifies(
    data: Data, tmp_path: Path, change: Callable[[Data], None]
) -> None:
    change(data)
    found = verify(written(tmp_path / "b.json", data))
    assert not [problem for problem in found.problems if "no check of the suite" not in problem]
