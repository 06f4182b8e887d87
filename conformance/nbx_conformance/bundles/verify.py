"""Verification of bundles: is the file whole, do its records bear it out, and is it about what is installed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final, Literal

from nbx_conformance.bundles import bundle as bundles
from nbx_conformance.bundles import consistency, shape, signing
from nbx_conformance.cases import FOLDER, SIZES, Case, CaseTable
from nbx_conformance.checks import replay
from nbx_conformance.runs import profiles
from nbx_conformance.runs.profiles import Judged
from nbx_registry import bundle, digest, jsonfile
from nbx_registry.bundle import Bundle
from nbx_registry.errors import FileError, NbxError
from nbx_registry.registry import Registry

VERIFIED: Final = 0
NOT_VERIFIED: Final = 3

_CLOCKS: Final = timedelta(days=1)
"""By how much the clocks of two machines may differ."""

Signature = Literal["unsigned", "trusted", "unknown", "broken", "unchecked"]
"""Nobody signed; a key that is trusted did; another one did; the signature does not hold; nothing here can tell."""


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
    unproven
        By kernel, why what the bundle holds about it proves nothing; ``*`` for all of them.
    signer
        The name of the key that signed, where it is trusted; else the key.
    """

    path: Path
    problems: tuple[str, ...] = ()
    stale: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    unproven: Mapping[str, str] = field(default_factory=dict[str, str])
    signature: Signature = "unsigned"
    signer: str = ""
    bundle: Bundle | None = None
    data: Mapping[str, Any] = field(default_factory=dict[str, Any], repr=False)

    @property
    def code(self) -> int:
        """The exit code."""
        return NOT_VERIFIED if self.problems or self.stale else VERIFIED

    @property
    def label(self) -> str:
        """Whether it verifies, and on whose word."""
        if self.code:
            return "NOT verified: signature does not hold" if self.signature == "broken" else "NOT verified"
        if self.signature == "trusted":
            return f"verified (signed by {self.signer})"
        said = {
            "unknown": f"signed by an unknown key, {self.signer}",
            "unchecked": "its signature was not checked",
        }
        return f"verified (self-reported, {said.get(self.signature, 'unsigned')})"

    def to_dict(self) -> dict[str, Any]:
        """Return plain data for JSON."""
        return {
            "bundle": str(self.path),
            "verified": self.code == VERIFIED,
            "signature": self.signature,
            "signer": self.signer or None,
            "problems": list(self.problems),
            "stale": list(self.stale),
            "notes": list(self.notes),
        }


@dataclass(frozen=True)
class Trusted:
    """Keys that are trusted: names by key, and the file that they are from."""

    path: Path
    names: Mapping[str, str]


def verify(
    path: Path, registry: Registry | None = None, cases: CaseTable | None = None, trusted: Trusted | None = None
) -> Verification:
    """Check a bundle: its form, digest and consistency; with a registry, that it is about what is installed.

    Unsigned, a bundle is its maker's word; what is verified is that nothing was changed since, and that its records
    bear its verdicts out. With ``trusted`` it must be signed by one of these keys.
    """
    try:
        content = jsonfile.read(path)
        found = bundle.parse(content, path)
        data = jsonfile.parse(content, path)
    except FileError as error:
        return Verification(path=path, problems=(str(error),))
    problems: list[str] = []
    if not _is_canonical(content, data):
        problems.append(f"{path}: not canonical JSON: the file was changed after it was written")
    signature, signer, said = _signature(data, trusted)
    problems += said if signature != "unchecked" or trusted is not None else ()
    problems += consistency.of_file(data, found)
    stale: list[str] = []
    notes: list[str] = list(said) if signature == "unchecked" and trusted is None else []
    of_kernels: list[tuple[str, str]] = []
    catalog = None if registry is None else registry.catalog
    for kernel, entry in data["kernels"].items():
        op = None if catalog is None else catalog.ops.get(entry["op"])
        known = None if catalog is None else catalog.kernels.get(kernel)
        of_kernels += ((kernel, text) for text in consistency.of_kernel(kernel, data, found, op, known))
    changed: list[tuple[str, str]] = []
    if registry is not None:
        changed += _stale(found, registry)
        stale += _moved(found, registry)
        notes += _notes(data, found, registry)
        if found.suite_digest == bundles.suite_digest():
            problems += _unchecked(data, registry)
        if cases is not None and found.suite_digest == bundles.suite_digest():
            for kernel, text, ours in _missing(data, found, cases):
                (of_kernels if ours else changed).append((kernel, text))
    of_all = [*problems, *stale]
    unproven = {"*": of_all[0]} if of_all else {}
    for kernel, text in (*of_kernels, *changed):
        unproven.setdefault(kernel, text)
    problems += (f"{kernel}: {text}" for kernel, text in of_kernels)
    stale += (f"{kernel}: {text}" for kernel, text in changed)
    return Verification(
        path=path,
        problems=tuple(problems),
        stale=tuple(stale),
        notes=tuple(notes),
        unproven=unproven,
        signature=signature,
        signer=signer,
        bundle=found,
        data=data,
    )


def judge(name: str, found: Iterable[Verification], registry: Registry, cases: CaseTable) -> list[Judged]:
    """Return how a profile stands on each device that bundles are about, by all of them together.

    What does not verify counts for nothing. A view runs nothing: what one bundle shows about it holds on every device.
    """
    profile = profiles.load(name)
    given = [(one, one.bundle) for one in found if one.bundle is not None]
    judged: list[Judged] = []
    for device in sorted({made.device for _, made in given}):
        runtime = next(made.runtime for _, made in given if made.device == device)
        findings = [
            finding
            for one, made in given
            for finding in profiles.of_bundle(one.data, one.unproven)
            if made.device == device or one.data["kernels"][finding.kernel]["backend"] == "view"
        ]
        judged.append(profiles.judge(profile, device, runtime, cases, registry.catalog.ops, findings))
    return judged


def _is_canonical(content: bytes, data: Mapping[str, Any]) -> bool:
    try:
        return content == bundles.canonical(data)
    except (ValueError, RecursionError):
        # A number beyond float64, which reads as infinity, or half of a surrogate pair.
        return False


def _signature(data: Mapping[str, Any], trusted: Trusted | None) -> tuple[Signature, str, list[str]]:
    """Return the state of a bundle's signature, who signed, and what is wrong with that."""
    if "signature" not in data:
        lacking = f"unsigned; {trusted.path} is of those whose signature is asked for" if trusted is not None else ""
        return "unsigned", "", [lacking] if lacking else []
    key = data["signature"]["key"]
    try:
        holds = signing.holds(data)
    except signing.Absent as error:
        return "unchecked", key, [f"its signature was not checked: {error}"]
    if not holds:
        return "broken", key, ["signature does not hold: it is not that of its key over this content"]
    if trusted is None:
        return "unknown", key, []
    if key not in trusted.names:
        return "unknown", key, [f"signed by a key that {trusted.path} does not have: {key}"]
    return "trusted", trusted.names[key], []


def _stale(found: Bundle, registry: Registry) -> Iterator[tuple[str, str]]:
    """Yield, by kernel, what changed since the bundle was made."""
    catalog = registry.catalog
    for identifier, record in found.records.items():
        kernel = catalog.kernels.get(identifier)
        if kernel is None:
            continue
        if kernel.op != record.op:
            yield identifier, f"implements {kernel.op} now; it was checked as {record.op}"
            continue
        if catalog.op(kernel.op).digest != record.op_digest:
            yield identifier, f"the contract {kernel.op} changed since it was checked"
        if kernel.backend != record.backend:
            yield identifier, f"is of the backend {kernel.backend} now; it was checked as one of {record.backend}"
        try:
            current = digest.source_digest(kernel.bind) if isinstance(kernel.bind, str) else ""
        except NbxError as error:
            yield identifier, f"its code cannot be read: {error}"
            continue
        if current != record.kernel_digest:
            yield identifier, "its code changed since it was checked"


def _moved(found: Bundle, registry: Registry) -> Iterator[str]:
    device = registry.devices.get(found.device)
    if device is not None and device.evidence_class != found.evidence_class:
        yield f"device {found.device} is of the evidence class {device.evidence_class}, not {found.evidence_class}"


def _notes(data: Mapping[str, Any], found: Bundle, registry: Registry) -> Iterator[str]:
    absent = sorted(set(found.records) - set(registry.catalog.kernels))
    if absent:
        yield f"not installed here, so not compared: {', '.join(absent)}"
    ahead = found.created - datetime.now(UTC)
    if ahead > _CLOCKS:
        yield f"made on {found.created:%Y-%m-%d}, which is to come by the clock here"
    if found.suite_digest != bundles.suite_digest():
        yield f"made by another state of the suite ({found.suite}), whose cases are not compared with those here"
    # Some runtimes capture nothing: the claim then says nothing there.
    if unproven := sorted(_not_replayed(data, registry)):
        yield f"replayable, they claim, but no case passed replay: {', '.join(unproven)}"
    device = registry.devices.get(found.device)
    if device is None:
        yield f"device {found.device} is not described here"
    elif device.digest != data["device"]["digest"]:
        yield f"what is stated about {found.device} here is not what was stated when it was checked"


def _not_replayed(data: Mapping[str, Any], registry: Registry) -> Iterator[str]:
    for identifier, entry in data["kernels"].items():
        kernel = registry.catalog.kernels.get(identifier)
        if kernel is None or not kernel.replayable or entry["verdict"] != "pass" or entry["backend"] == "view":
            continue
        passed = {name for case in entry["cases"] if case["verdict"] == "pass" for name in case["check"].split(" ")}
        if replay.NAME not in passed:
            yield identifier


def _unchecked(data: Mapping[str, Any], registry: Registry) -> Iterator[str]:
    """Yield which plugins a run did not look at as wholes: of all that they have, or one that names them."""
    selection = data["selection"]
    if any(selection.get(name) for name in ("keyword", "shards")):
        return
    owners = registry.catalog.owners
    tried = {owners[kernel] for kernel in data["kernels"] if kernel in owners}
    if selection.get("ops") or selection.get("kernels"):
        tried &= set(selection["plugins"] if shape.strings(selection.get("plugins")) else ())
    for plugin in sorted(tried - data["plugins"].keys()):
        yield f"plugin {plugin}: kernels of it were tried, but not the checks of the plugin"


def _missing(data: Mapping[str, Any], found: Bundle, cases: CaseTable) -> Iterator[tuple[str, str, bool]]:
    """Yield, by kernel, how its cases are not those of its op; and whether those come with the suite, or a plugin."""
    size = data["selection"].get("size")
    if size not in SIZES:
        return
    for identifier, record in found.records.items():
        if record.verdict not in ("pass", "built") or record.op not in cases.ops:
            continue
        known = {case.id: case for case in cases.of(record.op, "large")}
        ours = next(iter(known.values())).file.parent == FOLDER
        recorded = {case["case"]: case for case in data["kernels"][identifier]["cases"]}
        if unknown := sorted(recorded.keys() - known.keys()):
            yield identifier, f"{_some(unknown)} not among the cases of {record.op}", ours
        wanted = {
            case.id
            for case in cases.of(record.op, size)
            if case.runtime in (None, found.runtime) and not (case.refuses and found.reach == "built")
        }
        if missing := sorted(wanted - recorded.keys()):
            yield identifier, f"{_some(missing)} missing of the cases of {record.op}", ours
        for name in recorded.keys() & known.keys():
            yield from ((identifier, text, ours) for text in _unlike(recorded[name], known[name]))


def _some(names: list[str]) -> str:
    return (
        f"{', '.join(names[:3])}{' and more' if len(names) > 3 else ''} ({len(names)}) {'are' if names[1:] else 'is'}"
    )


def _unlike(entry: Mapping[str, Any], case: Case) -> Iterator[str]:
    if entry.get("seed") != case.seed:
        yield f"case {case.id}: was run with the seed {entry.get('seed')}; it has the seed {case.seed}"
    if case.refuses and entry["verdict"] == "pass":
        yield f"case {case.id}: passed, but must be refused as {case.refuses}"
