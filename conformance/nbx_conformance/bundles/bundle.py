"""Bundles: what a run found, in one file that another machine can verify.

The form is that of `nbx_registry.bundle`, which reads them. One record says what one case came to: ``check`` names the
checks that came to the same verdict, separated by spaces. Files hold canonical JSON and one newline, nothing else.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any, Final

from nbx_conformance import plugin_checks
from nbx_conformance.cases import FOLDER
from nbx_conformance.runs.runner import KernelVerdict, Record, verdict_of
from nbx_conformance.runs.session import Session
from nbx_conformance.trials.trial import LONGEST_REASON
from nbx_registry import bundle, digest, jsonfile
from nbx_registry.bundle import Bundle
from nbx_registry.errors import FileError, NbxError, shortened
from nbx_registry.kernel import Kernel
from nbx_registry.runtime import LiveDevice

DISTRIBUTION: Final = "nbx-conformance"

DECIDING: Final = (
    "nbx_conformance.bundles.bundle:compose",
    "nbx_registry.compare:compare",
    "nbx_registry.compare:allowed",
    "nbx_registry.bands:damage",
    "nbx_registry.bands:BAND",
    "nbx_registry.bands:PATTERNS",
    "nbx_registry.bands:POISON",
)
"""Every trial, check and judgement is reached from the first; commands and reports are not. Of the core, whose code a
digest of the suite's does not follow, what holds results against the oracle, and memory against what it was."""

_VERDICTS: Final[Mapping[KernelVerdict, str]] = {
    "pass": "pass",
    "fail": "fail",
    "error": "fail",
    "unmeasured": "incomplete",
}


def write(session: Session, path: Path) -> tuple[Bundle, list[str]]:
    """Write what a session found; return it as it will be read, and which kernels are not in it and why.

    Raises `FileError`, and writes nothing, if nothing was measured.
    """
    data, left_out = compose(session)
    return put(data, path), left_out


def put(data: Mapping[str, Any], path: Path) -> Bundle:
    """Seal and write a bundle; return it as it will be read. Raises `FileError`, and writes nothing, for no bundle."""
    content = seal(data)
    found = bundle.parse(content, path)
    jsonfile.replace(path, content)
    return found


def seal(data: Mapping[str, Any]) -> bytes:
    """Return a bundle's bytes, its digest put in: the only form that verifies."""
    rest = {key: value for key, value in data.items() if key != "digest"}
    return canonical({**rest, "digest": hashlib.sha256(jsonfile.canonical(rest)).hexdigest()})


def canonical(data: Mapping[str, Any]) -> bytes:
    """Return the bytes of a file that holds the data."""
    return jsonfile.canonical(data) + b"\n"


def compose(session: Session) -> tuple[dict[str, Any], list[str]]:
    """Return what a session found as plain data, unsealed, and which kernels are not in it and why."""
    catalog = session.registry.catalog
    expected = Counter(item.kernel.id for item in session.whole)
    kernels: dict[str, dict[str, Any]] = {}
    left_out: list[str] = []
    for kernel, records in session.by_kernel().items():
        said = stated(records, expected[kernel], session.site.reach)
        # What a kernel for other devices refuses here says nothing about it; of a shard's, others may say more.
        if said is None and session.options.shard is None:
            continue
        try:
            kernels[kernel] = _kernel(session, catalog.kernel(kernel), records, said or "incomplete", expected[kernel])
        except NbxError as error:
            left_out.append(f"{kernel}: {error}")
    if not kernels:
        raise FileError("; ".join(["nothing was measured that a bundle could hold", *left_out]))
    found = about(session, kernels)
    live = session.site.target.live if session.site.reach == "here" else None
    found["device"] |= {
        "handles": [] if live is None else session.handles(),
        "detected": detected(live),
    }
    data: dict[str, Any] = {
        **found,
        "format": bundle.FORMAT,
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
        "seconds": round(session.seconds, 1),
        "kernels": kernels,
        "plugins": plugin_checks.to_dict(session),
        "waivers": [waiver.to_dict() for waiver in session.waivers.used(session.records.values())],
    }
    return data, left_out


def about(session: Session, kernels: Iterable[str]) -> dict[str, Any]:
    """Return what a run of these kernels rests on: parts of one run have it in common."""
    catalog = session.registry.catalog
    device = session.site.target.device
    assert device is not None
    owners = {catalog.plugins[catalog.owners[kernel]].distribution for kernel in kernels}
    backends = {catalog.kernel(kernel).backend for kernel in kernels} & catalog.backends.keys()
    toolkits = {catalog.backends[backend].distribution for backend in backends}
    return {
        "suite": {"version": importlib.metadata.version(DISTRIBUTION), "digest": suite_digest()},
        "selection": session.options.selection(),
        "device": {"id": device.id, "evidence_class": device.evidence_class, "digest": device.digest},
        "runtime": {"name": session.site.target.runtime_name, "versions": dict(session.versions)},
        "reach": session.site.reach,
        "via": session.site.via,
        "distributions": versions({"nbx-registry", DISTRIBUTION, "nbx-devices", *owners, *toolkits}),
    }


def stated(records: Sequence[Record], expected: int, reach: str) -> str | None:
    """Return what a bundle says of a kernel; None where it is for other devices, as it says."""
    found = verdict_of(records)
    if found == "elsewhere":
        return None
    said = _VERDICTS[found]
    if said == "pass" and len(records) < expected:
        return "incomplete"
    return "built" if said == "pass" and reach == "built" else said


@cache
def suite_digest() -> str:
    """Return a digest of what decides the suite's verdicts: the code that a bundle comes from, and the cases."""
    hasher = hashlib.sha256("".join(map(digest.source_digest, DECIDING)).encode())
    for file in sorted(FOLDER.glob("*.yml")):
        hasher.update(f"{file.name}\0{file.read_text('utf-8')}\0".encode())
    return hasher.hexdigest()


def _kernel(session: Session, kernel: Kernel, records: Sequence[Record], said: str, expected: int) -> dict[str, Any]:
    catalog = session.registry.catalog
    if not isinstance(kernel.bind, str):
        raise FileError(
            f"kernel {kernel.id!r} is bound by a function of this process, whose code no bundle can name; register it "
            "as 'module:function'"
        )
    code = digest.source_digest(kernel.bind)
    if code != session.digests[kernel.id]:
        raise FileError(f"the code of kernel {kernel.id!r} was changed while it was tried; run the suite again")
    backend = catalog.backends.get(kernel.backend)
    toolkit = versions({backend.distribution}) if backend is not None else {}
    entry: dict[str, Any] = {
        "op": kernel.op,
        "op_digest": catalog.op(kernel.op).digest,
        "kernel_digest": code,
        "backend": kernel.backend,
        "toolkit": next((f"{name} {version}" for name, version in toolkit.items()), None),
        "built": _built(records),
        "verdict": said,
        "expected": expected,
        # Processes that share a run finish their trials in any order.
        "cases": [entry for record in sorted(records, key=lambda record: record.case) for entry in _entries(record)],
    }
    if parts := sorted({part for record in records for part in record.parts}):
        entry["parts"] = parts
    return entry


_FOLDERS: Final = re.compile(r"(?<![\w.:/])/(?:[^\s/:;,'\"]+/)+")


def portable(text: str) -> str:
    """Return text without the folders of absolute paths: a bundle goes to machines that have others."""
    return _FOLDERS.sub("", text)


def _entries(record: Record) -> Iterable[dict[str, Any]]:
    """Yield a record's entries, one a verdict (and waiver); the first carries what was measured."""
    measured: dict[str, Any] = {"seconds": round(record.seconds, 3)}
    if record.profile:
        measured["profile"] = dict(record.profile)
    if record.output is not None:
        measured["output_digest"] = record.output
    if record.handle is not None:
        measured["handle"] = record.handle
    if record.cold:
        measured["cold"] = dict(record.cold)
    silent = [why for check, why in record.details.items() if not any(check in said for said in record.checks.values())]
    for verdict, waiver, checks in _by_verdict(record):
        reasons = [*(record.details[check] for check in checks if check in record.details), *silent]
        entry = {"case": record.case, "seed": record.seed, "check": " ".join(checks), "verdict": verdict, **measured}
        if reasons:
            entry["reason"] = shortened(portable("; ".join(reasons)), LONGEST_REASON)
        if waiver is not None:
            entry["waiver"] = waiver
        yield entry
        measured, silent = {}, []


def _by_verdict(record: Record) -> Iterable[tuple[str, str | None, Sequence[str]]]:
    """Yield verdict, waiver and checks of what came to the same."""
    for verdict, checks in record.checks.items():
        if verdict != "waived":
            yield verdict, None, checks
    for identifier in sorted({identifier for identifier, _ in record.waivers.values()}):
        yield "waived", identifier, [check for check, (by, _) in record.waivers.items() if by == identifier]


def _built(records: Sequence[Record]) -> list[dict[str, Any]]:
    """Return what was compiled: for each entry point the most that any of its images takes, and which they are."""
    found: dict[tuple[str, str, str], list[Mapping[str, Any]]] = {}
    for record in records:
        for facts in record.built:
            found.setdefault((facts["arch"], facts["toolkit"], facts["entry"]), []).append(facts)
    entries: list[dict[str, Any]] = []
    for (arch, toolkit, name), launches in sorted(found.items()):
        images = {facts["image"] for facts in launches}
        entry: dict[str, Any] = {"arch": arch, "toolkit": toolkit, "entry": name, "kind": launches[0]["kind"]}
        for field in ("shared_bytes", "registers", "spills", "threads"):
            known = [facts[field] for facts in launches if field in facts]
            if known:
                entry[field] = max(known)
        entry["images"] = sorted(images)
        entries.append(entry)
    return entries


def detected(live: LiveDevice | None) -> dict[str, Any]:
    """Return what was detected of a device, as a bundle states it; nothing where nothing runs on one."""
    return {} if live is None else {key: _plain(value) for key, value in sorted(live.detected.items())}


def versions(names: Iterable[str | None]) -> dict[str, str]:
    """Return the versions of those distributions that are installed."""
    found: dict[str, str] = {}
    for name in sorted({name for name in names if name}):
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found


def _plain(value: object) -> object:
    return value if isinstance(value, bool | int | float | str) or value is None else str(value)
