from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import nbx_conformance
import nbx_registry as nbx
from nbx_conformance.bundles import bundle
from nbx_conformance.bundles.verify import NOT_VERIFIED, VERIFIED, verify
from nbx_conformance.runs import runner
from nbx_conformance.runs.options import Options
from nbx_conformance.runs.session import Session
from nbx_registry import sourcetree
from nbx_registry.compare import allowed, compare
from nbx_registry.errors import FileError, shortened
from nbx_registry.hookspecs import hookimpl
from nbx_registry.kernel import Kernel
from nbx_registry.sourcegraph import Graph

KERNEL = "nbx-host/sqrt/numpy"


@pytest.fixture(scope="session")
def registry() -> nbx.Registry:
    return nbx.load()


@pytest.fixture
def file(sqrt_session: Session, tmp_path: Path) -> Path:
    path = tmp_path / "bundle.json"
    bundle.write(sqrt_session, path)
    return path


def resealed(file: Path, change: Callable[[dict[str, Any]], None]) -> Path:
    """Write a bundle again with a change and a digest that fits: what a careful forger would do."""
    data = json.loads(file.read_bytes())
    change(data)
    file.write_bytes(bundle.seal(data))
    return file


def cases_of(data: dict[str, Any]) -> list[dict[str, Any]]:
    return data["kernels"][KERNEL]["cases"]


def test_a_bundle_of_a_run_verifies(file: Path, registry: nbx.Registry) -> None:
    found = verify(file, registry, runner.case_table(registry))
    assert (found.problems, found.stale, found.notes, found.code) == ((), (), (), VERIFIED)


def test_a_bundle_says_what_ran_where_and_with_which_versions(file: Path) -> None:
    data = json.loads(file.read_bytes())
    assert (data["reach"], data["via"], data["device"]["id"], data["device"]["handles"]) == (
        "here",
        "device",
        "host/cpu",
        ["cpu"],
    )
    assert set(data["distributions"]) >= {"nbx-registry", "nbx-conformance", "nbx-devices", "numpy"}
    assert data["runtime"]["name"] == "host"
    entry = data["kernels"][KERNEL]
    assert (entry["op"], entry["verdict"], entry["backend"]) == ("sqrt@1", "pass", "numpy")
    assert entry["toolkit"] == f"numpy {np.__version__}"
    measured = next(case for case in entry["cases"] if case["case"] == "awkward-f32-N63")
    assert {"numbers", "poison", "guards", "inputs", "fresh", "allocation"} <= set(measured["check"].split())
    assert len(measured["output_digest"]) == 16
    assert measured["profile"]["share"] <= 1
    refused = next(case for case in entry["cases"] if case["case"] == "integer")
    assert (refused["verdict"], refused["check"]) == ("refused", "refusals")


def test_the_registry_takes_a_bundle_as_evidence(file: Path, registry: nbx.Registry) -> None:
    from nbx_registry import digest
    from nbx_registry.evidence import EvidenceStore

    kernel = registry.kernels[KERNEL]
    target = registry.target("cpu")
    assert target.device is not None
    level = EvidenceStore([file.parent]).level(
        kernel,
        op_digest=registry.ops["sqrt"].digest,
        kernel_digest=digest.source_digest(str(kernel.bind)),
        device=target.device,
        live=target.live,
    )
    assert (level.level, level.where, level.stale) == ("here", "device", None)


def test_a_bundle_is_compact(file: Path) -> None:
    entries = len(cases_of(json.loads(file.read_bytes())))
    assert file.stat().st_size / entries < 350


def test_a_bundle_with_any_byte_changed_does_not_verify(file: Path) -> None:
    content = file.read_bytes()
    rng = np.random.default_rng(5)
    for position in [*range(0, len(content), 37), len(content) - 1]:
        for byte in {content[position] ^ (1 << int(rng.integers(8))), 0x20, 0x30}:
            if byte != content[position]:
                file.write_bytes(content[:position] + bytes([byte]) + content[position + 1 :])
                assert verify(file).code == NOT_VERIFIED, (position, byte)


@pytest.mark.parametrize(
    "change",
    [lambda c: c[:-1], lambda c: c + b"\n", lambda c: c.replace(b",", b", ", 1), lambda c: b"", lambda c: c[:100]],
    ids=["no-newline", "two-newlines", "space", "empty", "truncated"],
)
def test_a_bundle_in_another_form_does_not_verify(file: Path, change: Callable[[bytes], bytes]) -> None:
    file.write_bytes(change(file.read_bytes()))
    assert verify(file).code == NOT_VERIFIED


def drop(check: str) -> Callable[[dict[str, Any]], None]:
    def change(data: dict[str, Any]) -> None:
        for case in cases_of(data):
            case["check"] = " ".join(name for name in case["check"].split() if name != check) or "special"

    return change


def fail_one(data: dict[str, Any]) -> None:
    cases_of(data)[0]["verdict"] = "fail"


def without_case(data: dict[str, Any]) -> None:
    cases_of(data).pop(3)
    data["kernels"][KERNEL]["expected"] -= 1


def invented(data: dict[str, Any]) -> None:
    cases_of(data)[0]["check"] += " vibes"


def twice(data: dict[str, Any]) -> None:
    cases_of(data).append(dict(cases_of(data)[0]))


def without_output(data: dict[str, Any]) -> None:
    del cases_of(data)[0]["output_digest"]


def only_built(data: dict[str, Any]) -> None:
    data.update(reach="built", via="build")
    data["kernels"][KERNEL]["verdict"] = "built"


def failed(data: dict[str, Any]) -> None:
    fail_one(data)
    data["kernels"][KERNEL]["verdict"] = "fail"


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (drop("fresh"), "verdict pass, but no case passed fresh"),
        (drop("numbers"), "no case passed numbers"),
        (drop("allocation"), "no case passed allocation"),
        (drop("determinism"), "no case passed determinism"),
        (drop("batch"), "no case passed batch"),
        (fail_one, "verdict: is 'pass', but a case failed"),
        (failed, "verdict fail: it proves nothing"),
        (without_case, "is missing of the cases of sqrt@1"),
        (invented, "'vibes' is no check of the suite"),
        (twice, "check numbers is recorded twice"),
        (without_output, "no digest of the output is recorded"),
        (only_built, "nothing that was built is recorded"),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_a_bundle_that_does_not_bear_out_its_verdict_does_not_verify(
    file: Path, registry: nbx.Registry, change: Callable[[dict[str, Any]], None], why: str
) -> None:
    found = verify(resealed(file, change), registry, runner.case_table(registry))
    assert found.code == NOT_VERIFIED
    assert any(why in problem for problem in found.problems), found.problems


def test_a_claim_to_replay_that_no_case_tried_is_noted(file: Path, registry: nbx.Registry) -> None:
    cases = runner.case_table(registry)
    assert not [note for note in verify(file, registry, cases).notes if "replay" in note]
    found = verify(resealed(file, drop("replay")), registry, cases)
    assert f"replayable, they claim, but no case passed replay: {KERNEL}" in found.notes
    assert found.code != NOT_VERIFIED


@pytest.mark.parametrize(
    ("key", "why"),
    [("op_digest", "the contract sqrt@1 changed since it was checked"), ("kernel_digest", "its code changed")],
)
def test_what_changed_since_is_stale_and_named(file: Path, registry: nbx.Registry, key: str, why: str) -> None:
    def change(data: dict[str, Any]) -> None:
        data["kernels"][KERNEL][key] = "0" * 64

    found = verify(resealed(file, change), registry, runner.case_table(registry))
    assert found.problems == ()
    assert found.code == NOT_VERIFIED
    assert [line for line in found.stale if line.startswith(KERNEL)] == list(found.stale)
    assert why in found.stale[0]


def test_another_version_of_a_contract_is_stale(file: Path, registry: nbx.Registry) -> None:
    def change(data: dict[str, Any]) -> None:
        data["kernels"][KERNEL]["op"] = "sqrt@2"

    assert "implements sqrt@1 now" in verify(resealed(file, change), registry).stale[0]


def test_what_is_not_installed_is_noted(file: Path, registry: nbx.Registry) -> None:
    def change(data: dict[str, Any]) -> None:
        data["kernels"]["nbx-other/sqrt/fast"] = data["kernels"].pop(KERNEL)
        data["selection"]["kernels"] = []
        data["suite"]["digest"] = "0" * 64

    found = verify(resealed(file, change), registry, runner.case_table(registry))
    assert found.code == VERIFIED
    assert len(found.notes) == 2
    assert "nbx-other/sqrt/fast" in found.notes[0]
    assert "another state of the suite" in found.notes[1]


def test_a_run_of_some_cases_is_incomplete(registry: nbx.Registry, tmp_path: Path) -> None:
    session = Session(Options(device="cpu", kernels=(KERNEL,)), registry)
    session.run(session.items[0])
    written, _ = bundle.write(session, tmp_path / "bundle.json")
    assert written.records[KERNEL].verdict == "incomplete"
    assert verify(tmp_path / "bundle.json", registry).code == NOT_VERIFIED


def test_code_that_changes_while_it_is_tried_is_in_no_bundle(
    registry: nbx.Registry, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = Session(Options(device="cpu", kernels=(KERNEL,)), registry)
    session.run(session.items[0])
    monkeypatch.setattr(bundle.digest, "source_digest", lambda reference: "0" * 64)
    with pytest.raises(FileError, match=f"the code of kernel '{KERNEL}' was changed while it was tried"):
        bundle.write(session, tmp_path / "bundle.json")


def test_nothing_measured_is_no_bundle(registry: nbx.Registry, tmp_path: Path) -> None:
    with pytest.raises(FileError, match="nothing was measured"):
        bundle.write(Session(Options(device="cpu", kernels=(KERNEL,)), registry), tmp_path / "bundle.json")
    assert not list(tmp_path.iterdir())


def test_a_kernel_without_code_that_a_digest_can_name_is_left_out_by_name(tmp_path: Path) -> None:
    class Plugin:
        NBX_HOOKS = 1
        name = "nbx-local"

        @hookimpl
        def nbx_register_kernels(self) -> list[Kernel]:
            return [
                Kernel(
                    id="nbx-local/sqrt/function",
                    op="sqrt@1",
                    backend="numpy",
                    runtimes=("host",),
                    bind=lambda context: None,
                )
            ]

    session = Session(Options(device="cpu", ops=("sqrt",), plugins=("nbx-local", "nbx-host"), extra=(Plugin(),)))
    for item in session.items:
        if item.case.id == "minilm":
            session.run(item)
    written, left_out = bundle.write(session, tmp_path / "bundle.json")
    assert list(written.records) == [KERNEL]
    assert len(left_out) == 1
    assert "nbx-local/sqrt/function" in left_out[0]


def test_the_suites_digest_is_of_what_decides_a_verdict() -> None:
    package = Path(nbx_conformance.__file__).parent
    counted = {path.relative_to(package).as_posix() for path in _stamps("nbx_conformance.bundles.bundle:compose")}
    assert {path.relative_to(package).as_posix() for path in package.glob("checks/*.py")} <= counted
    assert {"runs/runner.py", "cases/values.py", "cases/casefile.py"} <= counted
    assert {f"trials/{name}.py" for name in ("trial", "bench", "buffers")} <= counted
    assert {f"{of.__module__}:{of.__name__}" for of in (compare, allowed)} <= set(bundle.DECIDING)
    others = ("report.py", "bundles/verify.py", "lint.py", "pytest_plugin.py")
    assert all((package / path).is_file() for path in others)
    assert not [path for path in counted if path in others or path.startswith("cli/")]


def _stamps(reference: str) -> list[Path]:
    module, _, name = reference.partition(":")
    found = sourcetree.module(module)
    assert found is not None
    return list(Graph(["nbx_conformance"]).closure(found, name).stamps)


def test_a_reason_that_is_too_long_ends_behind_a_word() -> None:
    assert shortened("one two three", 13) == "one two three"
    assert shortened("one two three", 12) == "one two..."
    assert shortened("x" * 20, 12) == "x" * 9 + "..."
