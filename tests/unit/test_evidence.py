"""Bundles strictly read; levels, staleness and the gate; nothing read before it is asked for."""

from __future__ import annotations

import hashlib
import itertools
import json
import os
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nbx_registry import bundle, jsonfile
from nbx_registry.decision import Evidence
from nbx_registry.device import Device
from nbx_registry.devicefile import Fact, Schema
from nbx_registry.errors import FileError, UnknownName
from nbx_registry.evidence import EvidenceStore, gate, weakest
from nbx_registry.kernel import Kernel
from nbx_registry.runtime import LiveDevice

OP, CODE, OTHER = "a" * 64, "b" * 64, "c" * 64
KERNEL = Kernel(id="p/add/tile", op="add@1", backend="triton", runtimes=("cuda",), bind="p:bind")
CASE = {"case": "awkward", "check": "numbers", "verdict": "pass"}


def record(**changes: Any) -> dict[str, Any]:
    built = [{"arch": "sm_90", "toolkit": "triton 3.6.0", "shared_bytes": 0, "registers": 32}]
    return {
        "op": "add@1",
        "op_digest": OP,
        "kernel_digest": CODE,
        "backend": "triton",
        "toolkit": "triton 3.6.0",
        "built": built,
        "verdict": "pass",
        "expected": 1,
        "cases": [CASE],
        **changes,
    }


def content(kernels: Mapping[str, Any] | None = None, **changes: Any) -> dict[str, Any]:
    device = {"id": "n/h", "evidence_class": "sm_90-132", "digest": OTHER, "handles": ["cuda:0"], "detected": {}}
    return {
        "format": 2,
        "suite": {"version": "0.1.0", "digest": OTHER},
        "created": "2026-11-30T06:00:00+00:00",
        "seconds": 1.5,
        "selection": {"size": "full", "plugins": [], "ops": [], "kernels": []},
        "device": {**device, **changes.pop("device", {})},
        "runtime": {"name": "cuda", "versions": {"driver": "580.1"}},
        "reach": "here",
        "via": "device",
        "distributions": {"p": "0.1.0"},
        "kernels": {KERNEL.id: record()} if kernels is None else kernels,
        "plugins": {},
        "waivers": [],
        **changes,
    }


def elsewhere(kernels: Mapping[str, Any] | None = None, **changes: Any) -> dict[str, Any]:
    given = {"reach": "elsewhere", "via": "interpreter", **changes}
    given["device"] = {"handles": [], **given.get("device", {})}
    return content(kernels, **given)


def only_built(*arches: str, **entry: Any) -> dict[str, Any]:
    built = [{"arch": arch, **entry} for arch in arches]
    return elsewhere(
        {KERNEL.id: record(verdict="built", cases=[], expected=0, built=built)}, reach="built", via="compiler"
    )


def device(arch: str = "sm_90", evidence_class: str = "sm_90-132", runtime: str = "cuda", **facts: Any) -> Device:
    head = {"arch": arch, "targets": (arch, arch + "a"), "runtime": runtime, "evidence_class": evidence_class}
    path = Path("d.yml")
    known = {key.replace("__", "."): Fact(value, "S", path, 1) for key, value in facts.items()}
    return Device("n/d", [path], head, known, lambda: Schema({}))


@pytest.fixture(autouse=True)
def versions(monkeypatch):
    """The versions that are installed."""
    found = {"triton": "3.6.0", "nbx-conformance": "0.1.0"}
    monkeypatch.setattr(EvidenceStore, "_version", lambda _, name: found.get(name))
    return found


@pytest.fixture(params=["laid-out", "canonical"])
def folder(tmp_path: Path, request: pytest.FixtureRequest) -> Callable[..., EvidenceStore]:
    def write(*bundles: dict[str, Any], **named: dict[str, Any]) -> EvidenceStore:
        for name, data in [*((f"b{i}", data) for i, data in enumerate(bundles)), *named.items()]:
            path = tmp_path / f"{name}.json"
            lay_out(path, data)
            if request.param == "canonical":
                seal(path, data)
        return EvidenceStore([tmp_path])

    return write


def lay_out(path: Path, data: Mapping[str, Any]) -> None:
    """Write the same as a person would: with its digest, but not canonical."""
    jsonfile.write(path, {**data, "digest": jsonfile.digest(data, path)})


def seal(path: Path, data: Mapping[str, Any]) -> None:
    """Write what the suite writes, checked or not: canonical JSON with its digest."""
    path.write_bytes(jsonfile.canonical({**data, "digest": jsonfile.digest(data, path)}) + b"\n")


def level(store: EvidenceStore, where: Device | None = None, kernel: Kernel = KERNEL, **changes: Any) -> Evidence:
    given: dict[str, Any] = {"op_digest": OP, "kernel_digest": CODE, "toolkit": "triton", **changes}
    return store.level(kernel, device=where or device(), **given)


DELETE = object()


def changed(data: Any, path: str, value: Any) -> Any:
    """Return a copy with the value at a slashed path replaced or left out."""
    copy = json.loads(json.dumps(data))
    *parents, last = path.split("/")
    inner = copy
    for name in parents:
        inner = inner[KERNEL.id if name == "K" else int(name) if name.isdecimal() else name]
    if value is DELETE:
        del inner[last]
    else:
        inner[last] = value
    return copy


# Levels.


def test_a_pass_on_a_device_of_the_class_is_here(folder, tmp_path):
    assert level(folder(content())) == Evidence("here", bundle=str(tmp_path / "b0.json"), where="device")


def test_a_kernel_no_bundle_names_has_none_and_no_digest_is_made(folder):
    def never() -> str:
        raise AssertionError("no bundle names the kernel")

    other = replace(KERNEL, id="p/add/other")
    assert level(folder(content()), kernel=other, kernel_digest=never, op_digest=never) == Evidence("none")
    assert level(EvidenceStore([Path("/nowhere")])) == Evidence("none")


def test_digests_are_made_once_a_kernel(folder):
    store = folder(content())
    made: list[int] = []
    for _ in range(3):
        assert level(store, kernel_digest=lambda: made.append(1) or CODE).level == "here"
    assert len(made) == 1


def test_an_interpreter_is_elsewhere(folder):
    found = level(folder(elsewhere()))
    assert (found.level, found.where) == ("elsewhere", "interpreter")


def test_elsewhere_needs_a_build_for_the_device(folder):
    data = elsewhere({KERNEL.id: record(built=[{"arch": "sm_80"}])})
    found = level(folder(data))
    assert (found.level, found.where) == ("none", "checked elsewhere (interpreter), but not built for sm_90")
    found = level(folder(data, only_built("sm_90a")))
    assert (found.level, found.where) == ("elsewhere", "interpreter")


def test_a_build_beyond_the_devices_limits_does_not_count(folder):
    store = folder(only_built("sm_90", shared_bytes=1000, registers=100, threads=128))
    assert level(store).level == "built"
    assert level(store, device(shared__bytes_per_block_optin=1000, registers__per_thread=100)).level == "built"
    for limit in ("shared__bytes_per_block_optin", "registers__per_thread", "threads__per_block"):
        assert level(store, device(**{limit: 99})).level == "none"


def test_a_build_alone_is_built_for_its_targets_whatever_the_class(folder):
    store = folder(only_built("sm_70", "sm_90"))
    assert level(store).level == "built"
    assert level(store, device("sm_70", "sm_70-80")).level == "built"
    assert level(store, device("sm_80", "sm_80-108")).level == "none"


def test_of_another_class_a_bundle_says_what_was_built_and_no_more(folder):
    # One binary may run on both; what it was bound with there (grids, splits) is of the other product.
    other = device("sm_90", "sm_90-114")
    assert level(folder(content())).level == "here"
    assert level(folder(content()), other).level == "built"
    assert level(folder(content()), device("sm_70", "sm_70-80")).level == "none"


def test_another_runtime_says_nothing(folder):
    assert level(folder(content()), device(runtime="wgpu")).level == "none"


@pytest.mark.parametrize(
    ("change", "where"),
    [
        ({"toolkit": "3.9.0"}, "device, with triton 3.6.0 (here: triton 3.9.0)"),
        ({"suite": "0.2.0"}, "device, with suite 0.1.0 (here: 0.2.0)"),
        ({"driver": "590.0"}, "device, with driver 580.1 (here: 590.0)"),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_another_version_makes_here_elsewhere(folder, versions, change, where):
    versions["triton"] = change.get("toolkit", "3.6.0")
    versions["nbx-conformance"] = change.get("suite", "0.1.0")
    driver = change.get("driver", "580.1")
    live = LiveDevice(runtime="cuda", index=0, name="H", arch="sm_90", versions={"driver": driver, "other": "1"})
    found = level(folder(content({KERNEL.id: record(built=[])})), live=live)
    assert (found.level, found.where) == ("elsewhere", where)


def test_an_absent_device_takes_the_bundles_versions_as_given(folder, versions):
    versions["triton"] = "9.9"
    assert level(folder(content()), toolkit=None).level == "here"


# Staleness.


def test_code_that_cannot_be_read_opens_nothing_and_is_told(folder):
    def missing() -> str:
        raise UnknownName("no module 'p' to read")

    found = level(folder(content()), kernel_digest=missing)
    assert (found.level, found.stale) == ("none", "the code that it rests on cannot be read: no module 'p' to read")


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"op_digest": OTHER}, "the contract add@1 changed (aaaaaaaa -> cccccccc)"),
        ({"kernel_digest": OTHER}, "the kernel's code changed (bbbbbbbb -> cccccccc)"),
        (
            {"kernel": Kernel(id=KERNEL.id, op="add@2", backend="t", runtimes=("cuda",), bind="p:b")},
            "was add@1, it is add@2",
        ),
    ],
    ids=["contract", "code", "version"],
)
def test_changed_contract_or_code_opens_nothing_and_is_told(folder, tmp_path, change, said):
    found = level(folder(content()), **change)
    assert found.level == "none"
    assert said in (found.stale or "")
    assert found.bundle == str(tmp_path / "b0.json")
    refusal = gate(found, "checked", kernel=KERNEL.id, device="n/d")
    assert refusal is not None
    assert refusal.reason.startswith("require='checked' but its evidence is stale: ")


def test_stale_evidence_is_not_mentioned_where_other_evidence_counts(folder):
    store = folder(content({KERNEL.id: record(kernel_digest=OTHER)}), elsewhere())
    assert level(store) == Evidence("elsewhere", bundle=level(store).bundle, where="interpreter")


# Several bundles.


def test_the_best_of_several_places_counts(folder):
    assert level(folder(elsewhere(), content(), only_built("sm_90"))).level == "here"


def later(data: dict[str, Any]) -> dict[str, Any]:
    return {**data, "created": "2026-12-01T00:00:00+00:00"}


FAILED = record(verdict="fail", cases=[CASE, {**CASE, "case": "extremes", "verdict": "fail"}])


def test_a_failure_here_is_not_made_good_by_a_pass_elsewhere(folder):
    found = level(folder(content({KERNEL.id: FAILED}), later(elsewhere())))
    assert (found.level, found.where) == ("built", "failed here: extremes, numbers")
    refusal = gate(found, "checked", kernel=KERNEL.id, device="n/d")
    assert refusal is not None
    assert refusal.reason == "require='checked' but it failed here: extremes, numbers, bundle b0.json"


def test_of_one_place_the_latest_counts(folder):
    failed = content({KERNEL.id: FAILED})
    assert level(folder(a=failed, b=later(content()))).level == "here"
    assert level(folder(a=content(), b=later(failed))).level == "built"
    # At the same time the failure.
    assert level(folder(a=content(), b=failed)).level == "built"


def test_a_failure_with_another_toolkit_does_not_speak_of_this_one(folder):
    failed = content({KERNEL.id: {**FAILED, "toolkit": "triton 3.5.0"}})
    assert level(folder(content(), later(failed))).level == "here"


def test_what_was_not_finished_opens_nothing(folder):
    assert level(folder(content({KERNEL.id: record(verdict="incomplete")}))).level == "built"


@settings(max_examples=30, deadline=None)
@given(st.permutations(range(4)))
def test_file_names_and_order_change_nothing(tmp_path_factory, order):
    root = tmp_path_factory.mktemp("evidence")
    data = [content(), elsewhere(), later(content({KERNEL.id: FAILED})), only_built("sm_90")]
    for place, index in enumerate(order):
        lay_out(root / f"{place}.json", data[index])
    found = level(EvidenceStore([root]))
    assert (found.level, found.where) == ("built", "failed here: extremes, numbers")


# Laziness.


def test_a_bundle_is_read_when_a_kernel_it_names_is_asked_for_and_once(folder, monkeypatch):
    store = folder(a=content(), b=content({"q/mul/tile": record()}))
    read: list[str] = []
    for name in ("parse", "glance"):
        real = getattr(bundle, name)
        monkeypatch.setattr(bundle, name, lambda data, path, real=real: read.append(path.name) or real(data, path))
    assert read == []
    for _ in range(3):
        level(store)
    assert set(read) == {"a.json"}
    assert [one.name for one in store.bundles()] == ["a.json", "b.json"]
    assert [sorted(one.records) for one in store.bundles()] == [[KERNEL.id], ["q/mul/tile"]]
    once = list(read)
    level(store)
    assert read == once


def test_of_a_sealed_bundle_only_records_asked_for_are_read(tmp_path, monkeypatch):
    others = {f"p/op{n}/tile": record(cases=[CASE] * 100) for n in range(9)}
    seal(tmp_path / "b.json", content({**others, KERNEL.id: record()}))
    decoded: list[int] = []
    real = jsonfile._object
    monkeypatch.setattr(
        jsonfile, "_DECODER", json.JSONDecoder(object_pairs_hook=lambda pairs: decoded.append(1) or real(pairs))
    )
    store = EvidenceStore([tmp_path])
    assert level(store).level == "here"
    assert len(decoded) < 20
    assert level(store, kernel=replace(KERNEL, id="p/op3/tile")).level == "here"
    assert 100 < len(decoded) < 150


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        ("kernels/K/verdict", "fail", "verdict: is 'fail', but no case failed"),
        ("kernels/K/cases/0/verdict", "good", "cases[0].verdict: 'good' is none of"),
        ("kernels/K/kernel_digest", "B", "kernel_digest: 'B' is no SHA-256"),
        ("reach", "her", "reach: 'her' is none of"),
        ("suite", DELETE, "suite: is missing"),
    ],
)
def test_a_sealed_bundle_with_a_malformed_record_opens_nothing_and_is_told(tmp_path, path, value, message):
    seal(tmp_path / "b.json", changed(content(), path, value))
    store = EvidenceStore([tmp_path])
    found = level(store)
    assert found.level == "none"
    assert message in (found.stale or "")
    assert [message in problem for problem in store.check()] == [True]


def test_names_inside_a_sealed_bundle_are_no_records(tmp_path):
    detected = {"kernels": {KERNEL.id: record()}, "note": f'"{KERNEL.id}":{{"backend":'}
    seal(tmp_path / "b.json", content({"q/mul/tile": record()}, device={"detected": detected}))
    assert level(EvidenceStore([tmp_path])) == Evidence("none")


def test_a_sealed_bundle_that_names_a_kernel_twice_opens_nothing(tmp_path):
    path = tmp_path / "b.json"
    one = jsonfile.canonical(record()).decode()
    twice = f'"{KERNEL.id}":{one},"{KERNEL.id}":{one}'
    text = (
        jsonfile.canonical({**content({}), "digest": "0" * 64})
        .decode()
        .replace('"kernels":{}', f'"kernels":{{{twice}}}')
    )
    digest = hashlib.sha256(text.replace(f'"digest":"{"0" * 64}",', "", 1).encode()).hexdigest()
    path.write_text(text.replace("0" * 64, digest))
    found = level(EvidenceStore([tmp_path]))
    assert (found.level, "is given twice" in (found.stale or "")) == ("none", True)


def test_a_pipe_among_bundles_is_told_and_not_waited_for(tmp_path):
    os.mkfifo(tmp_path / "p.json")
    seal(tmp_path / "b.json", content())
    store = EvidenceStore([tmp_path])
    assert level(store).level == "here"
    assert list(store.check()) == [f"{tmp_path / 'p.json'}: cannot be read: it is a pipe"]


def test_a_refused_bundle_opens_nothing_and_is_told(folder, tmp_path):
    store = folder(content())
    path = tmp_path / "b0.json"
    path.write_text(path.read_text().replace('"device"', '"devise"').replace('"devise":', '"device":'))
    found = level(store)
    assert found.level == "none"
    assert "the bundle is refused" in (found.stale or "")
    assert store.check() == (
        f"{path}: digest: does not fit the content: the file was changed after it was written; run the suite again",
    )
    assert level(store, kernel=replace(KERNEL, id="p/x/y")) == Evidence("none")


# Reading.


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        ("format", 1, "format: is 1; this version reads format 2"),
        ("format", True, "format: is True; it must be an integer"),
        ("formt", 1, "formt: unknown key; did you mean 'format'"),
        ("suite", DELETE, "suite: is missing"),
        ("suite/version", "", "suite.version: is an empty string; it must be a string"),
        ("suite/digest", "abc", "suite.digest: 'abc' is no SHA-256"),
        ("created", "yesterday", "created: 'yesterday' is no ISO 8601 time"),
        ("created", "2026-11-30T06:00:00", "created: '2026-11-30T06:00:00' has no time zone"),
        ("device", [], "device: is a list; it must be an object"),
        ("device/handles", [], "device.handles: is empty; what was checked here was checked on a device"),
        ("device/detected", DELETE, "device.detected: is missing"),
        ("device/idd", 1, "device.idd: unknown key; did you mean 'id'"),
        ("runtime/versions/driver", 580, "runtime.versions.driver: is a number; it must be a string"),
        ("reach", "her", "reach: 'her' is none of here, elsewhere, built; did you mean 'here'"),
        ("via", DELETE, "via: is missing"),
        ("kernels", [], "kernels: is a list"),
        ("kernels/K/verdict", "passed", "kernels.p/add/tile.verdict: 'passed' is none of pass"),
        ("kernels/K/verdict", "built", "verdict: is 'built' in a bundle whose reach is 'here'"),
        ("kernels/K/verdict", "fail", "verdict: is 'fail', but no case failed"),
        ("kernels/K/cases", [], "verdict: is 'pass', but no case passed"),
        ("kernels/K/cases", [{**CASE, "verdict": "error"}], "is 'pass', but a case failed (awkward, numbers)"),
        ("kernels/K/cases", [{**CASE, "verdict": "refused"}], "is 'pass', but no case passed"),
        ("kernels/K/cases/0/check", DELETE, "kernels.p/add/tile.cases[0].check: is missing"),
        ("kernels/K/cases/0/chek", 1, "kernels.p/add/tile.cases[0].chek: unknown key; did you mean 'check'"),
        ("kernels/K/built/0/registers", -1, "kernels.p/add/tile.built[0].registers: is -1"),
        ("kernels/K/built", [3], "kernels.p/add/tile.built[0]: is a number; it must be an object"),
        ("kernels/K/kernel_digest", "B" * 64, "kernel_digest: 'BBB"),
        ("kernels/K/bakend", "t", "kernels.p/add/tile.bakend: unknown key; did you mean 'backend'"),
        ("digest", "0" * 64, "digest: does not fit the content"),
    ],
)
def test_a_malformed_bundle_is_refused_naming_file_and_key(tmp_path, path, value, message):
    data = changed(content(), path, value)
    file = tmp_path / "b.json"
    jsonfile.write(file, data if path == "digest" else {**data, "digest": jsonfile.digest(data, file)})
    with pytest.raises(FileError) as caught:
        bundle.read(file)
    assert str(caught.value).startswith(f"{file}: ")
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (b"", "b.json:1: not JSON"),
        (b"[]", "b.json:1: the file must be an object"),
        (b'{\n"a": 1,\n"a": 2}', "b.json: key 'a' is given twice"),
        (b'{"a": NaN}', "b.json: NaN is no JSON number"),
        (b'{"format": 2, "digest": "' + b"0" * 64 + b'", "x": 1e999}', "x: unknown key"),
        (b'{"a":' * 100_000, "b.json: nested too deeply"),
        (b'{"a": "\xff"}', "b.json:1: not UTF-8"),
        (b'{"a": ' + b"9" * 10_000 + b"}", "b.json: "),
        (b'{"format": 2', "b.json:1: not JSON"),
    ],
)
def test_what_is_not_strict_json_is_refused(tmp_path, text, message):
    file = tmp_path / "b.json"
    file.write_bytes(text)
    with pytest.raises(FileError) as caught:
        bundle.read(file)
    assert message in str(caught.value)


@pytest.mark.parametrize("value", ["\ud800", float("inf")])
def test_what_has_no_canonical_json_is_refused(tmp_path, value):
    file = tmp_path / "b.json"
    data = content(device={"detected": {"x": value}})
    file.write_text(json.dumps({**data, "digest": "0" * 64}).replace("Infinity", "1e999"))
    with pytest.raises(FileError, match="holds what has no canonical JSON"):
        bundle.read(file)


@settings(max_examples=100, deadline=None)
@given(st.data())
def test_a_changed_byte_never_opens_a_gate(tmp_path_factory, data):
    root = tmp_path_factory.mktemp("evidence")
    path = root / "b.json"
    data.draw(st.sampled_from([lay_out, seal]))(path, content())
    text = bytearray(path.read_bytes())
    place = data.draw(st.integers(0, len(text) - 1))
    text[place] = data.draw(st.integers(0, 255))
    path.write_bytes(text)
    store = EvidenceStore([root])
    found = level(store)
    # Layout between values is no content.
    if found.level == "here":
        assert store.bundles()[0].digest == jsonfile.digest(content(), path)


@pytest.mark.parametrize(("whole", "opens"), [("pass", True), ("fail", False)])
def test_a_later_run_of_some_cases_takes_nothing_back(folder, whole, opens):
    part = content({KERNEL.id: record(verdict="incomplete", expected=2)}, created="2026-12-01T06:00:00+00:00")
    store = folder(content({KERNEL.id: record(verdict=whole, cases=[{**CASE, "verdict": whole}])}), part)
    assert (level(store).level == "here") is opens
    assert opens or level(store).where == "failed here: awkward, numbers"


def test_a_verdict_over_fewer_cases_than_the_run_had_is_refused(folder, tmp_path):
    folder(content({KERNEL.id: record(expected=2)}))
    (problem,) = EvidenceStore([tmp_path]).check()
    assert "is 'pass', but 1 of 2 cases were run" in problem


# The gate.

LEVELS = ("none", "built", "elsewhere", "here")
OPENS = {"any": LEVELS, "checked": LEVELS[2:], "checked_here": LEVELS[3:], "tuned": LEVELS[3:]}


@pytest.mark.parametrize(("require", "at"), list(itertools.product(OPENS, LEVELS)))
def test_each_policy_opens_at_its_level(require, at):
    assert (gate(Evidence(at), require, kernel="k", device="d") is None) == (at in OPENS[require])


def test_the_gate_says_what_there_is_and_what_would_open_it():
    refusal = gate(
        Evidence("elsewhere", bundle="/x/b.json", where="interpreter"), "checked_here", kernel="k", device="d"
    )
    assert refusal is not None
    assert refusal.code == "EVIDENCE"
    assert refusal.reason == "require='checked_here' but it is checked elsewhere (interpreter, bundle b.json)"
    assert refusal.would_run_if == "nbx conformance run --device d --kernel k passes, or require='checked'"


@pytest.mark.parametrize(
    ("evidence", "what"),
    [
        (Evidence("none"), "nothing has been checked about it"),
        (Evidence("built", bundle="/x/b.json"), "it is only built (bundle b.json)"),
        (
            Evidence("none", bundle="/x/b.json", where="checked elsewhere (interpreter), but not built for sm_70"),
            "it is checked elsewhere (interpreter), but not built for sm_70, bundle b.json",
        ),
    ],
)
def test_the_gate_in_words(evidence, what):
    refusal = gate(evidence, "checked", kernel="k", device="d")
    assert refusal is not None
    assert refusal.reason == f"require='checked' but {what}"
    assert refusal.would_run_if.endswith("or require='any'")


def test_the_weakest_part_speaks_for_the_whole():
    here, other = Evidence("here", tuned=True, bundle="a"), Evidence("elsewhere", bundle="b", where="interpreter")
    assert weakest([here, other]) == other
    assert weakest([here, here]).tuned
    assert weakest([here, Evidence("here", bundle="c")]) == Evidence("here", tuned=False, bundle="a")
    assert weakest([]).level == "none"
