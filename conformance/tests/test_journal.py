"""Journals: what a run that was broken off leaves, and what a run that goes on from it keeps."""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from nbx_conformance.bundles import journal
from nbx_conformance.bundles.journal import Journal, Key, keep
from nbx_conformance.cli import conformance
from nbx_conformance.runs.options import Options
from nbx_conformance.runs.runner import Record
from nbx_conformance.runs.session import Session
from nbx_conformance.runs.worker import Worker
from nbx_registry import jsonfile
from nbx_registry.errors import FileError

KERNEL = "nbx-host/sqrt/numpy"


def again(sqrt_session: Session, **options: Any) -> Session:
    """Return another run of the same kernel."""
    session = Session(Options(**{"device": "cpu", "kernels": (KERNEL,), **options}), sqrt_session.registry)
    session.cases = sqrt_session.cases
    return session


def plain(records: Mapping[Key, Record]) -> list[Any]:
    return [json.loads(jsonfile.canonical(asdict(record))) for record in records.values()]


@pytest.fixture
def file(sqrt_session: Session, tmp_path: Path) -> Path:
    """The journal of a run that was killed after five trials."""
    path = tmp_path / "bundle.json.partial"
    written = Journal(path, sqrt_session)
    for record in list(sqrt_session.records.values())[:5]:
        written.append(record)
    written.close()
    return path


def changed(file: Path, change: Callable[[dict[str, Any]], None]) -> Path:
    head, *rest = file.read_bytes().split(b"\n")
    data = json.loads(head)
    change(data)
    file.write_bytes(b"\n".join([json.dumps(data).encode(), *rest]))
    return file


def test_records_are_kept_as_they_were_and_not_tried_again(sqrt_session: Session, file: Path) -> None:
    run = again(sqrt_session)
    run.kept = keep(file, run).records
    assert plain(run.kept) == plain(sqrt_session.records)[:5]
    for item in run.items[:5]:
        assert run.run(item) is run.kept[item.kernel.id, item.case.id]


@pytest.mark.parametrize("cut", [1, 20, 200])
def test_a_line_that_was_not_finished_is_left_out(sqrt_session: Session, file: Path, cut: int) -> None:
    file.write_bytes(file.read_bytes()[:-cut])
    assert len(keep(file, again(sqrt_session)).records) == 4


def test_records_of_a_kernel_that_changed_are_tried_again(sqrt_session: Session, file: Path) -> None:
    def change(head: dict[str, Any]) -> None:
        head["kernels"][KERNEL][1] = "0" * 64

    found = keep(changed(file, change), again(sqrt_session))
    assert (found.records, found.changed) == ({}, (KERNEL,))


def another_suite(head: dict[str, Any]) -> None:
    head["suite"]["digest"] = "0" * 64


def another_driver(head: dict[str, Any]) -> None:
    head["runtime"]["versions"]["numpy"] = "1.0"


def another_device(head: dict[str, Any]) -> None:
    head["device"]["id"] = "nvidia/b200"


def other_facts(head: dict[str, Any]) -> None:
    head["device"]["digest"] = "0" * 64


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (another_suite, r"suite\.digest was \"0000"),
        (another_driver, r"runtime\.versions\.numpy was \"1\.0\" and is"),
        (other_facts, r"the facts of host/cpu changed since: device\.digest was \"0{16}\.\.\.\" and is"),
        (another_device, r"device\.id was \"nvidia/b200\" and is \"host/cpu\""),
    ],
    ids=["suite", "driver", "facts", "device"],
)
def test_the_journal_of_another_run_is_refused_by_name(
    sqrt_session: Session, file: Path, change: Callable[[dict[str, Any]], None], why: str
) -> None:
    with pytest.raises(FileError, match=rf"{file.name} is the journal of another run: {why}.*leave out --resume"):
        keep(changed(file, change), again(sqrt_session))


def test_the_journal_of_another_selection_is_refused_by_name(sqrt_session: Session, file: Path) -> None:
    with pytest.raises(FileError, match=r'selection\.size was "smoke" and is "full"'):
        keep(file, again(sqrt_session, size="full"))


def test_a_process_that_was_only_asked_for_its_versions_is_ended(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    closed: list[Worker] = []
    monkeypatch.setattr(Worker, "versions", lambda worker: {})
    monkeypatch.setattr(Worker, "close", lambda worker: closed.append(worker))
    route = ("--device", "nvidia/h200-sxm", "--via", "interpreter", "--kernel", "nbx-triton/sqrt/strided")
    out = file.with_name("bundle.json")
    done = CliRunner().invoke(conformance, ["run", *route, "--out", str(out), "--resume"])
    assert done.exit_code == 2, done.output
    assert "is the journal of another run" in done.output
    assert len(closed) == 1


@pytest.mark.parametrize("content", [b"", b"{}\n", b"no\n", b'{"journal":2,"kernels":{}}\n'])
def test_what_is_no_journal_is_refused(sqrt_session: Session, tmp_path: Path, content: bytes) -> None:
    (tmp_path / "x").write_bytes(content)
    with pytest.raises(FileError, match="leave out --resume to begin anew"):
        keep(tmp_path / "x", again(sqrt_session))


def test_a_line_within_that_is_no_record_is_refused_with_its_number(sqrt_session: Session, file: Path) -> None:
    lines = file.read_bytes().split(b"\n")
    file.write_bytes(b"\n".join([*lines[:2], b'{"at":1,"record":{}}', *lines[3:]]))
    with pytest.raises(FileError, match=r"partial:3 is no record"):
        keep(file, again(sqrt_session))


def test_a_journal_that_is_gone_on_with_holds_what_was_kept_once(sqrt_session: Session, file: Path) -> None:
    run = again(sqrt_session)
    kept = keep(file, run)
    run.kept, run.before = kept.records, 100.0
    written = Journal(file, run)
    for record in sqrt_session.records.values():
        written.append(record)
    written.close()
    assert len(file.read_bytes().split(b"\n")) == 1 + len(sqrt_session.records) + 1
    found = keep(file, again(sqrt_session))
    assert plain(found.records) == plain(sqrt_session.records)
    assert found.seconds > 100


def test_a_journal_is_not_removed_with_that_of_another_run(sqrt_session: Session, file: Path) -> None:
    first = Journal(file, sqrt_session)
    second = Journal(file, sqrt_session)
    first.remove()
    assert file.exists()
    second.remove()
    assert not file.exists()
    assert not list(file.parent.iterdir())


def test_a_journal_that_cannot_be_begun_leaves_what_was_there(
    sqrt_session: Session, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    content = file.read_bytes()

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(Journal, "_write", full)
    with pytest.raises(OSError, match="No space left"):
        Journal(file, sqrt_session)
    assert file.read_bytes() == content
    assert [path.name for path in file.parent.iterdir()] == [file.name]


def test_it_lies_beside_the_bundle() -> None:
    assert journal.beside(Path("out/bundle.json")) == Path("out/bundle.json.partial")


def test_what_was_judged_within_a_looser_bound_is_tried_again(sqrt_session: Session, file: Path) -> None:
    lines = file.read_bytes().split(b"\n")
    loose = json.loads(lines[2])
    loose["record"]["looser"] = 2
    file.write_bytes(b"\n".join([*lines[:2], json.dumps(loose).encode(), *lines[3:]]))
    found = keep(file, again(sqrt_session)).records
    assert len(found) == 4
    assert loose["record"]["case"] not in {case for _, case in found}
