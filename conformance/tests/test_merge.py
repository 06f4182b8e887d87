"""Merging: one bundle from parts, whatever their order, and what keeps parts from being one."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from itertools import permutations
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from nbx_conformance import cli
from nbx_conformance.bundles import bundle
from nbx_conformance.bundles.merge import merge
from nbx_conformance.bundles.verify import verify
from nbx_conformance.runs.options import Options
from nbx_conformance.runs.session import Session
from nbx_registry.errors import FileError

KERNEL = "nbx-host/sqrt/numpy"


def part(sqrt_session: Session, path: Path, **options: Any) -> Path:
    """Write the bundle of a run of some of the cases."""
    session = Session(Options(**{"device": "cpu", "kernels": (KERNEL,), **options}), sqrt_session.registry)
    session.cases = sqrt_session.cases
    session.kept = sqrt_session.records
    for item in session.items:
        session.run(item)
    bundle.write(session, path)
    return path


@pytest.fixture(scope="module")
def made(sqrt_session: Session, tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    folder = tmp_path_factory.mktemp("shards")
    return [part(sqrt_session, folder / f"{i}.json", shard=(i, 3)) for i in (1, 2, 3)]


@pytest.fixture
def parts(made: list[Path], tmp_path: Path) -> list[Path]:
    return [Path(shutil.copy(path, tmp_path)) for path in made]


def resealed(path: Path, change: Callable[[dict[str, Any]], None]) -> Path:
    data = json.loads(path.read_bytes())
    change(data)
    path.write_bytes(bundle.seal(data))
    return path


def first_case(data: dict[str, Any]) -> dict[str, Any]:
    return data["kernels"][KERNEL]["cases"][0]


def test_a_shard_is_incomplete_and_says_which_it_is(parts: list[Path]) -> None:
    data = json.loads(parts[1].read_bytes())
    assert data["selection"]["shards"] == {"of": 3, "parts": [2]}
    entry = data["kernels"][KERNEL]
    assert entry["verdict"] == "incomplete"
    assert len({case["case"] for case in entry["cases"]}) < entry["expected"]


def test_shards_come_to_the_whole_and_verify(parts: list[Path], sqrt_session: Session, tmp_path: Path) -> None:
    found = merge(parts)
    assert (found.missing, found.notes) == ((), ())
    bundle.put(found.data, tmp_path / "merged.json")
    registry = sqrt_session.registry
    assert verify(tmp_path / "merged.json", registry, sqrt_session.cases).problems == ()
    whole = json.loads(part(sqrt_session, tmp_path / "whole.json").read_bytes())
    for key in ("kernels", "selection", "device", "distributions", "runtime"):
        assert found.data[key] == whole[key], key


def test_order_does_not_matter(parts: list[Path]) -> None:
    def later(data: dict[str, Any]) -> None:
        data["created"] = "2031-01-01T00:00:00+02:00"
        first_case(data)["seconds"] = 100.0

    twice = parts[0].with_name("twice.json")
    twice.write_bytes(parts[0].read_bytes())
    resealed(twice, later)
    results = {bundle.seal(merge(order).data) for order in permutations([*parts, twice])}
    assert len(results) == 1
    (only,) = results
    assert json.loads(only)["created"] == "2031-01-01T00:00:00+02:00"


def test_merging_what_is_merged_changes_nothing(parts: list[Path], tmp_path: Path) -> None:
    bundle.put(merge(parts[:2]).data, tmp_path / "two.json")
    two = merge([tmp_path / "two.json"])
    assert bundle.seal(two.data) == (tmp_path / "two.json").read_bytes()
    stepwise, at_once = merge([tmp_path / "two.json", parts[2]]).data, merge(parts).data
    assert bundle.seal(stepwise) == bundle.seal(at_once)


def test_a_missing_shard_is_told(parts: list[Path]) -> None:
    found = merge([parts[0], parts[2]])
    assert found.missing == ("shard 2 of 3 is missing",)
    assert found.data["selection"]["shards"] == {"of": 3, "parts": [1, 3]}
    assert found.data["kernels"][KERNEL]["verdict"] == "incomplete"


def suite(data: dict[str, Any]) -> None:
    data["suite"]["digest"] = "0" * 64


def driver(data: dict[str, Any]) -> None:
    data["runtime"]["versions"]["numpy"] = "1.0"


def code(data: dict[str, Any]) -> None:
    data["kernels"][KERNEL]["kernel_digest"] = "1" * 64


def library(data: dict[str, Any]) -> None:
    data["distributions"]["numpy"] = "1.0"


@pytest.mark.parametrize(
    ("change", "key"),
    [
        (suite, "suite.digest"),
        (driver, "runtime.versions.numpy"),
        (code, f"kernels.{KERNEL}.kernel_digest"),
        (library, "distributions.numpy"),
    ],
    ids=["suite", "driver", "code", "library"],
)
def test_what_disagrees_is_refused_with_both_files_and_values(
    parts: list[Path], change: Callable[[dict[str, Any]], None], key: str
) -> None:
    resealed(parts[1], change)
    with pytest.raises(FileError) as refused:
        merge(parts)
    message = str(refused.value)
    assert key in message
    assert str(parts[1]) in message
    assert any(str(other) in message for other in (parts[0], parts[2]))


@pytest.mark.parametrize(
    ("key", "value"), [("output_digest", "0" * 16), ("verdict", "fail")], ids=["output", "verdict"]
)
def test_a_case_that_came_to_two_ends_is_refused_by_name(
    sqrt_session: Session, tmp_path: Path, key: str, value: str
) -> None:
    first, second = (part(sqrt_session, tmp_path / name) for name in ("a.json", "b.json"))

    def change(data: dict[str, Any]) -> None:
        case = next(case for case in data["kernels"][KERNEL]["cases"] if case["case"] == "minilm")
        case[key] = value
        data["kernels"][KERNEL]["verdict"] = "fail" if value == "fail" else "pass"

    with pytest.raises(FileError, match=f"{KERNEL}, case minilm.{key}.*run the suite again"):
        merge([first, resealed(second, change)])


def test_a_failure_in_any_shard_fails_the_whole(parts: list[Path]) -> None:
    def change(data: dict[str, Any]) -> None:
        first_case(data)["verdict"] = "fail"
        data["kernels"][KERNEL]["verdict"] = "fail"

    resealed(parts[2], change)
    assert merge(parts).data["kernels"][KERNEL]["verdict"] == "fail"


def test_shards_of_different_cuts_are_refused(sqrt_session: Session, parts: list[Path], tmp_path: Path) -> None:
    other = part(sqrt_session, tmp_path / "half.json", shard=(1, 2))
    with pytest.raises(FileError, match="shards of 2 and of 3 cut a run differently"):
        merge([*parts, other])


def test_runs_of_different_kernels_are_put_together(sqrt_session: Session, tmp_path: Path) -> None:
    session = Session(Options(device="cpu", ops=("negative",)), sqrt_session.registry)
    session.cases = sqrt_session.cases
    for item in session.items:
        session.run(item)
    bundle.write(session, tmp_path / "negative.json")
    whole = part(sqrt_session, tmp_path / "sqrt.json")

    def signed(data: dict[str, Any]) -> None:
        data["signature"] = {"algorithm": "ed25519", "key": "a" * 64, "value": "b" * 128}

    found = merge([resealed(tmp_path / "negative.json", signed), whole])
    kernels = sorted({KERNEL, *session.by_kernel()})
    assert list(found.data["kernels"]) == kernels
    assert found.data["selection"] == {
        "size": "smoke",
        "plugins": [],
        "ops": [],
        "kernels": kernels,
        "keyword": None,
        "shards": None,
    }
    assert "signature" not in found.data
    assert "signatures are dropped" in found.notes[0]
    bundle.put(found.data, tmp_path / "both.json")
    registry = sqrt_session.registry
    assert verify(tmp_path / "both.json", registry, sqrt_session.cases).problems == ()


def test_handles_of_all_machines_are_named(parts: list[Path]) -> None:
    def moved(data: dict[str, Any]) -> None:
        data["device"]["handles"] = ["cuda:3"]
        data["device"]["detected"]["cores"] = -1
        for case in data["kernels"][KERNEL]["cases"]:
            if "handle" in case:
                case["handle"] = "cuda:3"

    resealed(parts[0], moved)
    device = merge(parts).data["device"]
    assert device["handles"] == ["cpu", "cuda:3"]
    assert "cores" not in device["detected"]


def test_the_command_merges_refuses_and_tells_what_is_missing(parts: list[Path], tmp_path: Path) -> None:
    names = [str(path) for path in parts]
    out = str(tmp_path / "merged.json")
    done = CliRunner().invoke(cli.conformance, ["merge", *names, "--out", out])
    assert (done.exit_code, done.output.count("1 pass")) == (0, 1), done.output
    done = CliRunner().invoke(cli.conformance, ["merge", names[0], names[1], "--out", out])
    assert done.exit_code == 3
    assert "shard 3 of 3 is missing" in done.output
    resealed(parts[0], suite)
    done = CliRunner().invoke(cli.conformance, ["merge", *names, "--out", str(tmp_path / "none.json")])
    assert done.exit_code == 3
    assert "suite.digest" in done.output
    assert not (tmp_path / "none.json").exists()
