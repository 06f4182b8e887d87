"""Verification of bundles: is the file whole, do its records bear it out, and is it about what is installed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from nbx_conformance import bundle as bundles
from nbx_conformance import checks
from nbx_conformance.cases import CaseTable
from nbx_registry import bundle, digest, jsonfile
from nbx_registry.bundle import Bundle
from nbx_registry.errors import FileError, NbxError
from nbx_registry.op import Op
from nbx_registry.registry import Registry

VERIFIED: Final = 0
NOT_VERIFIED: Final = 3


@dataclass(frozen=True, kw_only=True)
class Verification:
    """What was found, a sentence each.

    Attributes
    ----------
    problems
        What is wrong with the file: it does not verify.
    stale
        What was checked is no longer what is installed: it proves nothing about that.
    notes
        What could not be compared here.
    """

    path: Path
    problems: tuple[str, ...] = ()
    stale: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    bundle: Bundle | None = None

    @property
    def code(self) -> int:
        """The exit code."""
        return NOT_VERIFIED if self.problems or self.stale else VERIFIED

    def to_dict(self) -> dict[str, Any]:
        """Return plain data for JSON."""
        return {
            "bundle": str(self.path),
            "verified": self.code == VERIFIED,
            "problems": list(self.problems),
            "stale": list(self.stale),
            "notes": list(self.notes),
        }


def verify(path: Path, registry: Registry | None = None, cases: CaseTable | None = None) -> Verification:
    """Check a bundle: its form, digest and consistency; with a registry, that it is about what is installed.

    Unsigned as it is, a bundle is its maker's word; what is verified is that nothing was changed since, and that its
    records bear its verdicts out.
    """
    try:
        content = jsonfile.read(path)
        found = bundle.parse(content, path)
    except FileError as error:
        return Verification(path=path, problems=(str(error),))
    data = jsonfile.parse(content, path)
    problems: list[str] = []
    if content != bundles.canonical(data):
        problems.append(f"{path}: not canonical JSON: the file was changed after it was written")
    stale: list[str] = []
    notes: list[str] = []
    for kernel, entry in data["kernels"].items():
        op = None if registry is None else registry.catalog.ops.get(entry["op"])
        problems += (f"{kernel}: {problem}" for problem in _inconsistent(entry, found, op))
    if registry is not None:
        stale += _stale(found, registry)
        notes += _notes(found, registry)
        if cases is not None and found.suite_digest == bundles.suite_digest():
            problems += _missing(data, found, cases)
    return Verification(path=path, problems=tuple(problems), stale=tuple(stale), notes=tuple(notes), bundle=found)


def _inconsistent(entry: Mapping[str, Any], found: Bundle, op: Op | None) -> Iterator[str]:
    """Yield how a kernel's verdict is not borne out by its cases; of an op that is not known everything is asked."""
    seen: set[tuple[str, str]] = set()
    passed: set[str] = set()
    launched = False
    for case in entry["cases"]:
        names = case["check"].split(" ")
        for name in names:
            if name not in checks.NAMES:
                yield f"case {case['case']}: {name!r} is no check of the suite"
            if (case["case"], name) in seen:
                yield f"case {case['case']}: check {name} is recorded twice"
            seen.add((case["case"], name))
        if case["verdict"] == "pass":
            passed.update(names)
            launched = launched or "poison" in names
        if "numbers" in names and case["verdict"] == "pass" and "output_digest" not in case:
            yield f"case {case['case']}: numbers passed, but no digest of the output is recorded"
    if entry["verdict"] == "pass":
        launched = launched or entry["backend"] != "view"
        required = checks.REQUIRED | checks.REQUIRED_OF_LAUNCHES if launched else checks.REQUIRED
        if op is not None and not op.tensors:
            # What is given nothing can neither write it nor answer for what it was given before.
            required -= {"inputs", "fresh"}
        elif op is not None and all(param.mutable for param in op.tensors):
            required -= {"inputs"}
        if missing := sorted(required - passed):
            yield f"verdict pass, but no case passed {', '.join(missing)}"
    if entry["verdict"] in ("fail", "incomplete"):
        yield f"verdict {entry['verdict']}: it proves nothing about this kernel"
    if entry["verdict"] == "built":
        if not entry["built"]:
            yield "verdict built, but nothing that was built is recorded"
        if "built" not in passed:
            yield "verdict built, but no case passed the check built"
    if entry["verdict"] in ("pass", "built") and any(case["verdict"] in ("fail", "error") for case in entry["cases"]):
        yield f"verdict {entry['verdict']}, but a case failed"
    if found.reach == "built" and passed - {"built"}:
        yield f"nothing was run, yet {', '.join(sorted(passed - {'built'}))} passed"


def _stale(found: Bundle, registry: Registry) -> Iterator[str]:
    """Yield what changed since the bundle was made."""
    catalog = registry.catalog
    for identifier, record in found.records.items():
        kernel = catalog.kernels.get(identifier)
        if kernel is None:
            continue
        if kernel.op != record.op:
            yield f"{identifier}: implements {kernel.op} now; it was checked as {record.op}"
            continue
        if catalog.op(kernel.op).digest != record.op_digest:
            yield f"{identifier}: the contract {kernel.op} changed since it was checked"
        try:
            current = digest.source_digest(kernel.bind) if isinstance(kernel.bind, str) else ""
        except NbxError as error:
            yield f"{identifier}: its code cannot be read: {error}"
            continue
        if current != record.kernel_digest:
            yield f"{identifier}: its code changed since it was checked"


def _notes(found: Bundle, registry: Registry) -> Iterator[str]:
    absent = sorted(set(found.records) - set(registry.catalog.kernels))
    if absent:
        yield f"not installed here, so not compared: {', '.join(absent)}"
    if found.suite_digest != bundles.suite_digest():
        yield f"made by another state of the suite ({found.suite}), whose cases are not compared with those here"
    if found.device not in registry.devices:
        yield f"device {found.device} is not described here"


def _missing(data: Mapping[str, Any], found: Bundle, cases: CaseTable) -> Iterator[str]:
    """Yield which cases of the suite a kernel's record lacks."""
    for identifier, record in found.records.items():
        if record.verdict not in ("pass", "built") or record.op not in cases.ops:
            continue
        recorded = {case["case"] for case in data["kernels"][identifier]["cases"]}
        known = {case.id for case in cases.of(record.op)}
        if unknown := sorted(recorded - known):
            yield f"{identifier}: {len(unknown)} cases are not the suite's: {', '.join(unknown[:3])}"
        wanted = {
            case.id
            for case in cases.of(record.op, "smoke")
            if case.runtime in (None, found.runtime) and not (case.refuses and found.reach == "built")
        }
        if missing := sorted(wanted - recorded):
            yield f"{identifier}: {len(missing)} of the suite's cases are missing: {', '.join(missing[:3])}"
