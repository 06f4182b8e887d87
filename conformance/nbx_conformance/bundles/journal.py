"""Journals: what a run has found so far, on disk, so that what kills the run does not take it along.

``FILE.partial`` lies beside the bundle ``FILE`` while a run goes on. Its first line, the head, says what the run rests
on; each line behind it is a trial's record; all are canonical JSON. A run that goes on from a journal keeps the records
whose contract, kernel and cases are still what they were, as is the bound within which they were judged.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, cast

from nbx_conformance.bundles.agreement import difference
from nbx_conformance.bundles.bundle import about
from nbx_conformance.runs.runner import Record
from nbx_conformance.runs.session import Session
from nbx_registry import jsonfile
from nbx_registry.errors import FileError

FORMAT: Final = 1

Key = tuple[str, str]
"""Kernel and case."""

_RUN: Final = ("suite", "device", "runtime", "reach", "via", "distributions", "selection")
"""What two halves of one run have in common."""


def beside(bundle: Path) -> Path:
    """Return where the journal of a bundle's run lies."""
    return bundle.with_name(f"{bundle.name}.partial")


@dataclass(frozen=True)
class Kept:
    """What can be kept of a journal.

    Attributes
    ----------
    records
        By kernel and case.
    changed
        Kernels that are no longer what they were, or whose cases are not, so that their records are not kept.
    seconds
        How long the run took until it was broken off.
    """

    records: Mapping[Key, Record]
    changed: tuple[str, ...]
    seconds: float


def keep(path: Path, session: Session) -> Kept:
    """Return what a run keeps of a journal. A last line that was not finished is left out.

    Raises `FileError` for a file that is no journal, or is that of another run.
    """
    head, lines = _parse(path)
    # As it would be read.
    now = jsonfile.parse(jsonfile.canonical(_head(session)), path)
    found = difference({key: head.get(key) for key in _RUN}, {key: now[key] for key in _RUN})
    if found is not None:
        facts = f"the facts of {now['device']['id']} changed since: " if found.key == "device.digest" else ""
        raise FileError(
            f"{path} is the journal of another run: {facts}{found.key} was {found.first} and is {found.second}; "
            "leave out --resume to begin anew, or name another file with --out"
        )
    known = cast("dict[str, Any]", head["kernels"])
    changed = {kernel for kernel, digests in known.items() if now["kernels"].get(kernel) != digests}
    records: dict[Key, Record] = {}
    seconds = 0.0
    for number, line in enumerate(lines, 2):
        try:
            seconds = float(line["at"])
            record = Record(**line["record"])
        except (KeyError, TypeError, ValueError):
            raise FileError(f"{path}:{number} is no record; leave out --resume to begin anew") from None
        allowed = session.waivers.looser(record.kernel, record.case)
        if record.kernel in known and record.kernel not in changed and record.looser == allowed:
            records[record.kernel, record.case] = record
    return Kept(records, tuple(sorted(changed)), seconds)


class Journal:
    """A journal that is being written."""

    def __init__(self, path: Path, session: Session) -> None:
        """Begin one that holds what the session keeps, in the place of the one that is there.

        Raises `OSError`, and leaves what is there.
        """
        self.path = path
        self._session = session
        path.parent.mkdir(parents=True, exist_ok=True)
        # What is there is replaced as a whole: it may be what is kept.
        unfinished = path.with_name(f".{path.name}.{os.getpid()}")
        # Every line goes out at once, in one piece.
        self._file = open(unfinished, "wb", buffering=0)  # noqa: SIM115 - it is open as long as the run goes on
        try:
            self._write(_head(session))
            for record in session.kept.values():
                self._write({"at": session.before, "record": record.to_dict()})
            unfinished.replace(path)
        except OSError:
            self._file.close()
            unfinished.unlink(missing_ok=True)
            raise

    def append(self, record: Record) -> None:
        """Add a record. Raises `OSError`."""
        if (record.kernel, record.case) not in self._session.kept:
            self._write({"at": round(self._session.seconds, 3), "record": record.to_dict()})

    def close(self) -> None:
        """Leave it there."""
        self._file.close()

    def remove(self) -> None:
        """Remove it, unless another run has put its own in its place."""
        with suppress(FileNotFoundError):
            if os.path.samestat(os.fstat(self._file.fileno()), os.stat(self.path)):
                self.path.unlink()
        self._file.close()

    def _write(self, data: Mapping[str, Any]) -> None:
        self._file.write(jsonfile.canonical(data) + b"\n")


def _head(session: Session) -> dict[str, Any]:
    catalog = session.registry.catalog
    kernels = sorted({item.kernel.id for item in session.whole})
    # The suite's digest is of its own cases; a plugin brings others.
    files = {item.case.op: item.case.file for item in session.whole}
    cases = {op: hashlib.sha256(file.read_bytes()).hexdigest() for op, file in files.items()}
    digests = {
        kernel: [
            catalog.op(catalog.kernel(kernel).op).digest,
            session.digests[kernel],
            cases[catalog.kernel(kernel).op],
        ]
        for kernel in kernels
        # What is bound by a function of this process may be any other when it is resumed.
        if kernel in session.digests
    }
    return {"journal": FORMAT, **about(session, kernels), "kernels": digests}


def _parse(path: Path) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    try:
        content = path.read_bytes()
    except OSError as error:
        raise FileError(f"{path}: cannot be read: {error.strerror or error}") from error
    # What was killed while it wrote leaves a line without an end.
    lines = content.split(b"\n")[:-1]
    parsed: list[dict[str, Any]] = []
    for number, line in enumerate(lines, 1):
        try:
            parsed.append(jsonfile.parse(line, path))
        except FileError:
            raise FileError(f"{path}:{number} is not JSON; leave out --resume to begin anew") from None
    if not parsed or parsed[0].get("journal") != FORMAT or not jsonfile.is_object(parsed[0].get("kernels")):
        raise FileError(f"{path} is no journal of this version's; leave out --resume to begin anew")
    return parsed[0], parsed[1:]
