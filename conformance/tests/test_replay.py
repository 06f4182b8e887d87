"""Replay: what a bundle says, tried again."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

import nbx_registry as nbx
from nbx_conformance import cli
from nbx_conformance.bundles import bundle as bundles
from nbx_conformance.bundles.replay import Replay, replay
from nbx_conformance.bundles.verify import verify
from nbx_conformance.runs.session import Session

KERNEL = "nbx-host/sqrt/numpy"


@pytest.fixture(scope="session")
def registry() -> nbx.Registry:
    return nbx.load()


@pytest.fixture
def again(sqrt_session: Session, tmp_path: Path, registry: nbx.Registry) -> Callable[..., Replay]:
    """Give a function that changes a bundle and replays it."""

    def run(change: Callable[[dict[str, Any]], Any] = lambda data: None, count: int = 1000, seed: int = 5) -> Replay:
        data = copy.deepcopy(bundles.compose(sqrt_session)[0])
        change(data)
        path = tmp_path / "bundle.json"
        path.write_bytes(bundles.seal(data))
        return replay(verify(path), registry, count, seed)

    return run


def entry(data: dict[str, Any]) -> dict[str, Any]:
    return data["kernels"][KERNEL]


def test_all_trials_come_out_as_recorded_to_the_bit(again: Callable[..., Replay], sqrt_session: Session) -> None:
    found = again()
    assert (found.passed, found.eligible, len(found.repeated)) == (True, *[len(sqrt_session.records)] * 2)
    assert not found.why_not
    assert sum(one.bits for one in found.repeated) == sum(r.output is not None for r in sqrt_session.records.values())


def test_as_many_as_asked_for_are_chosen_by_the_seed(again: Callable[..., Replay]) -> None:
    first, same, other = (again(count=5, seed=seed) for seed in (1, 1, 2))
    assert len(first.repeated) == 5
    assert first.repeated == same.repeated
    assert {one.case for one in first.repeated} != {one.case for one in other.repeated}


def test_another_output_is_found(again: Callable[..., Replay]) -> None:
    found = again(lambda data: entry(data)["cases"][0].update(output_digest="0" * 16))
    (differing,) = [one for one in found.repeated if one.differs]
    assert not found.passed
    assert "the output's bits are others (" in differing.differs
    assert "1 came out otherwise" in next(found.lines())
    assert f"  {KERNEL} on {differing.case}: the output's bits" in list(found.lines())[1]


def test_a_check_that_never_ran_is_found(again: Callable[..., Replay]) -> None:
    found = again(lambda data: entry(data)["cases"][0].update(check="numbers poison guards inputs fresh stream"))
    (differing,) = [one.differs for one in found.repeated if one.differs]
    assert "stream: not checked, recorded pass" in differing
    assert "allocation: pass, recorded not checked" in differing


def test_a_verdict_that_does_not_come_out_is_found(again: Callable[..., Replay]) -> None:
    def change(data: dict[str, Any]) -> None:
        entry(data)["cases"][0]["verdict"] = "fail"
        entry(data)["verdict"] = "fail"

    (differing,) = [one.differs for one in again(change).repeated if one.differs]
    assert "numbers: pass, recorded fail" in differing


@pytest.mark.parametrize(
    "change",
    [
        lambda data: data["distributions"].update(numpy="1.0"),
        lambda data: data["runtime"]["versions"].update(numpy="1.0"),
        lambda data: data["device"]["detected"].update({"memory.bytes": 1}),
    ],
    ids=["distribution", "runtime", "device"],
)
def test_bits_are_compared_where_nothing_else_may_decide_them(
    again: Callable[..., Replay], change: Callable[[dict[str, Any]], Any]
) -> None:
    def both(data: dict[str, Any]) -> None:
        change(data)
        entry(data)["cases"][0]["output_digest"] = "0" * 16

    found = again(both)
    assert found.passed
    assert not any(one.bits for one in found.repeated)


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (lambda d: entry(d).update(kernel_digest="0" * 64), f"{KERNEL} has other code here"),
        (lambda d: entry(d).update(op_digest="0" * 64), "was checked against another contract sqrt@1"),
        (lambda d: d["suite"].update(digest="0" * 64), "made by another state of the suite"),
        (lambda d: d["device"].update(id="nvidia/b200"), "nvidia/b200 is not here"),
        (lambda d: d.update(via="simulator"), "unknown route 'simulator'"),
        (lambda d: d["kernels"].update({"nbx-x/sqrt/y": d["kernels"].pop(KERNEL)}), "nbx-x/sqrt/y is not installed"),
        (lambda d: [case.update(seed=9) for case in entry(d)["cases"]], "whose cases are not here"),
    ],
    ids=["code", "contract", "suite", "device", "route", "kernel", "seed"],
)
def test_what_cannot_be_replayed_is_no_pass(
    again: Callable[..., Replay], change: Callable[[dict[str, Any]], Any], why: str
) -> None:
    found = again(change)
    assert (found.passed, found.repeated) == (False, ())
    assert any(why in reason for reason in found.why_not), found.why_not
    assert next(found.lines()).endswith("nothing could be replayed here")


def test_what_is_no_bundle_cannot_be_replayed(tmp_path: Path, registry: nbx.Registry) -> None:
    (tmp_path / "b.json").write_text("{}\n", "utf-8")
    assert not replay(verify(tmp_path / "b.json"), registry, 3, 0).passed


def test_the_command_replays_and_shows_the_seed(sqrt_session: Session, tmp_path: Path) -> None:
    bundles.write(sqrt_session, tmp_path / "b.json")
    path = str(tmp_path / "b.json")
    done = CliRunner().invoke(cli.conformance, ["verify", path, "--replay", "3", "--seed", "17"])
    assert done.exit_code == 0, done.output
    assert "replayed 3 of " in done.output
    assert "(seed 17): all came out as recorded" in done.output
    done = CliRunner().invoke(cli.conformance, ["verify", path, "--replay", "1", "--json"])
    (told,) = json.loads(done.output)["replays"]
    assert (told["passed"], len(told["repeated"]), type(told["seed"])) == (True, 1, int)
    done = CliRunner().invoke(cli.conformance, ["verify", path, "--seed", "17"])
    assert (done.exit_code, "--seed chooses what --replay" in done.output) == (2, True)
