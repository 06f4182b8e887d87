"""Waivers: failures that are known, each for a kernel, cases, checks and a device, with a reason, a link and an expiry.

What a waiver covers is ``waived`` and fails nothing. One that is about a run and matches nothing in it, has expired, or
whose case passes fails the run: what is mended is not waived any longer.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from nbx_conformance import checks
from nbx_conformance.checks import numbers
from nbx_conformance.runs.runner import Record, worst
from nbx_conformance.trials.trial import Verdict
from nbx_registry import entryfile
from nbx_registry.device import Device
from nbx_registry.entryfile import Entry
from nbx_registry.errors import FileError, UnknownName, nearest

if TYPE_CHECKING:
    from nbx_conformance.cases import Case
    from nbx_conformance.runs.session import Session

HEADING: Final = "waivers"
"""The one key of a file."""

_KEYS: Final = ("id", "kernel", "case", "check", "device", "via", "reason", "link", "expires", "share")
_FAILING: Final[tuple[Verdict, ...]] = ("fail", "error")


@dataclass(frozen=True, kw_only=True)
class Waiver:
    """One entry of a file. ``kernel``, ``case``, ``device`` and ``via`` are patterns: ``*`` stands for anything."""

    id: str
    kernel: str
    case: str
    checks: Sequence[str]
    device: str
    """A product or an evidence class."""
    reason: str
    link: str
    expires: date
    """The last day on which it counts."""
    where: str
    """File and line."""
    via: str = "*"
    """How the device is reached: ``device``, an emulator's name, ``build``."""
    share: float | None = None
    """Of `numbers`: how many times the bound an error may be; None for any number."""
    plugin: str | None = None
    """Who brought it; None for a file that the run was given."""

    def of_place(self, device: Device, via: str) -> bool:
        """Return whether it is about a device that is reached in some way."""
        places = (device.id, device.evidence_class)
        return fnmatchcase(via, self.via) and any(fnmatchcase(place, self.device) for place in places)

    def of_kernel(self, kernel: str) -> bool:
        """Return whether it is about a kernel."""
        return fnmatchcase(kernel, self.kernel)

    def of_case(self, case: str) -> bool:
        """Return whether it is about a case."""
        return fnmatchcase(case, self.case)

    def covers(self, record: Record, check: str) -> bool:
        """Return whether it waives that a check failed in a trial."""
        if check not in self.checks or not self.of_kernel(record.kernel) or not self.of_case(record.case):
            return False
        # What is within the bound failed for another reason than its size.
        return self.share is None or 1 < record.profile.get("share", 0) <= self.share

    def to_dict(self) -> dict[str, Any]:
        """Return plain data, as a bundle holds it."""
        found: dict[str, Any] = {
            "id": self.id,
            "kernel": self.kernel,
            "case": self.case,
            "check": " ".join(self.checks),
            "device": self.device,
            "reason": self.reason,
            "link": self.link,
            "expires": self.expires.isoformat(),
        }
        if self.via != "*":
            found["via"] = self.via
        if self.share is not None:
            found["share"] = self.share
        return found

    def __str__(self) -> str:
        return f"waiver {self.id} ({self.where})"


class Waivers:
    """The waivers that are about one run's device.

    Attributes
    ----------
    here
        Those about the device and the way to it, by id; also those that have expired.
    """

    def __init__(self, waivers: Iterable[Waiver], device: Device, via: str, today: date | None = None) -> None:
        self.today = today or datetime.now(UTC).date()
        self.here = sorted((one for one in waivers if one.of_place(device, via)), key=lambda one: one.id)
        self._valid = [one for one in self.here if not self.expired(one)]

    def expired(self, waiver: Waiver) -> bool:
        """Return whether a waiver counts no longer."""
        return waiver.expires < self.today

    def looser(self, kernel: str, case: str) -> float:
        """Return how many times its bound an error may be in a trial, in all of its checks."""
        about = (one for one in self._valid if one.share is not None and one.of_kernel(kernel) and one.of_case(case))
        return max((one.share for one in about if one.share is not None), default=1)

    def apply(self, record: Record) -> Record:
        """Return a trial's record as these waivers leave it, whichever were applied to it before."""
        record = _restored(record)
        covered: dict[str, tuple[str, Verdict]] = {}
        for verdict in _FAILING:
            for check in record.checks.get(verdict, ()):
                waiver = next((one for one in self._valid if one.covers(record, check)), None)
                if waiver is not None:
                    covered[check] = (waiver.id, verdict)
        if not covered:
            return record
        left = {said: [name for name in names if name not in covered] for said, names in record.checks.items()}
        return _with(record, {**left, "waived": list(covered)}, covered)

    def used(self, records: Iterable[Record]) -> list[Waiver]:
        """Return those by which something is waived."""
        used = {identifier for record in records for identifier, _ in record.waivers.values()}
        return [waiver for waiver in self.here if waiver.id in used]


def read(path: Path, plugin: str | None = None) -> list[Waiver]:
    """Read a file of waivers; a plugin's are about its own kernels.

    Raises `FileError` for anything malformed, naming file, entry and key.
    """
    return [_waiver(entry, plugin) for entry in entryfile.entries(path, HEADING)]


def of_session(session: Session) -> Waivers:
    """Read the waivers of the plugins whose kernels are tried, and of the files that the run was given.

    Raises `FileError` for a malformed file, and for one id given twice.
    """
    catalog = session.registry.catalog
    found: list[Waiver] = []
    for name in sorted({catalog.owners[kernel] for kernel in _tried(session)}):
        for folder in catalog.plugins[name].waivers:
            for path in entryfile.files(folder):
                found += read(path, name)
    for given in session.options.waivers:
        found += read(Path(given))
    check_ids(found)
    device = session.site.target.device
    assert device is not None
    return Waivers(found, device, session.site.via)


def check_ids(waivers: Iterable[Waiver]) -> None:
    """Raise `FileError` where two waivers have one id, naming both."""
    seen: dict[str, Waiver] = {}
    for waiver in waivers:
        first = seen.setdefault(waiver.id, waiver)
        if first is not waiver:
            raise FileError(f"{waiver.where}: id {waiver.id!r} is given twice; first in {first.where}")


def wrong(session: Session) -> Iterator[str]:
    """Yield what is wrong with the waivers that are about a run, as far as it covers what they are about."""
    waivers, catalog = session.waivers, session.registry.catalog
    ops = _tried(session)
    for waiver in waivers.here:
        kernels = [kernel for kernel in ops if waiver.of_kernel(kernel)]
        if not kernels:
            if _of_all_kernels(session, waiver) and not any(map(waiver.of_kernel, catalog.kernels)):
                yield f"{waiver} matches nothing: no kernel is {waiver.kernel}{nearest(waiver.kernel, catalog.kernels)}"
            continue
        if waivers.expired(waiver):
            yield f"{waiver} expired on {waiver.expires}: mend the kernel, or give the waiver another date"
            continue
        keys = {(kernel, case.id) for kernel in kernels for case in _cases(session, ops[kernel], waiver)}
        if not keys:
            known = {case.id for kernel in kernels for case in session.cases.of(ops[kernel], "large")}
            yield f"{waiver} matches nothing: no case is {waiver.case}{nearest(waiver.case, known)}"
            continue
        yield from _idle(waiver, [session.records[key] for key in sorted(keys) if key in session.records], len(keys))


def _tried(session: Session) -> dict[str, str]:
    """Return the op of each kernel that is tried."""
    try:
        return {item.kernel.id: item.kernel.op for item in session.whole}
    except UnknownName:
        # Plugin objects of the processes that share a run are not in this one; what waives their failures was there.
        return {}


def _idle(waiver: Waiver, records: Sequence[Record], expected: int) -> Iterator[str]:
    """Yield which of what a waiver names does not fail."""
    passing = [f"{record.case} of {record.kernel}" for record in records if _passes(waiver, record)]
    if passing:
        said = f", and {len(passing) - 1} more pass" if len(passing) > 1 else " passes"
        yield f"{waiver}: case {passing[0]}{said} {', '.join(waiver.checks)}: remove or narrow the waiver"
        return
    if len(records) < expected:
        return
    waived = {check for record in records for check, (by, _) in record.waivers.items() if by == waiver.id}
    failing = {check for record in records for said in _FAILING for check in record.checks.get(said, ())}
    # What fails beyond the waiver's share has told so itself.
    idle = [check for check in waiver.checks if check not in waived and check not in failing]
    if idle:
        yield f"{waiver} matches nothing: {', '.join(idle)}: no failure in its {expected} cases; remove it"


def _passes(waiver: Waiver, record: Record) -> bool:
    """Return whether a trial passed some check that a waiver names, and failed none of them."""
    said = {name: verdict for verdict, names in record.checks.items() for name in names if name in waiver.checks}
    return "pass" in said.values() and not {"waived", *_FAILING} & set(said.values())


def _of_all_kernels(session: Session, waiver: Waiver) -> bool:
    """Return whether the kernels that a waiver names would be in a run, if there were any."""
    options, plugins = session.options, session.registry.catalog.active
    if options.ops or options.kernels:
        return False
    names = options.plugins or [plugin.name for plugin in plugins]
    return any(fnmatchcase(name, waiver.kernel.partition("/")[0]) for name in names)


def _cases(session: Session, op: str, waiver: Waiver) -> Iterator[Case]:
    for case in session.cases.of(op, "large"):
        reached = case.runtime in (None, session.site.target.runtime_name)
        if reached and waiver.of_case(case.id) and not (case.refuses and session.site.reach == "built"):
            yield case


def _restored(record: Record) -> Record:
    """Return a record as the trial would have left it without waivers."""
    found = {said: list(names) for said, names in record.checks.items() if said != "waived"}
    for check, (_, verdict) in record.waivers.items():
        found.setdefault(verdict, []).append(check)
    share = record.profile.get("share", 0)
    if record.looser == 1 or numbers.NAME not in found.get("pass", ()) or share <= 1:
        return _with(record, found, {}) if record.waivers else record
    found["pass"].remove(numbers.NAME)
    found.setdefault("fail", []).append(numbers.NAME)
    said = f"an error is {share:g} times what is allowed"
    return replace(_with(record, found, {}), details={**record.details, numbers.NAME: said})


def _with(record: Record, found: dict[str, list[str]], waivers: dict[str, tuple[str, Verdict]]) -> Record:
    left: dict[Any, list[str]] = {said: names for said, names in found.items() if names}
    return replace(record, verdict=worst(left), checks=left, waivers=waivers)


def _waiver(entry: Entry, plugin: str | None) -> Waiver:
    entry.known(*_KEYS)
    kernel, names = entry.text("kernel"), entry.texts("check")
    if plugin is not None and not kernel.startswith(f"{plugin}/"):
        entry.refuse("kernel", f"is {kernel!r}; {plugin} waives its own kernels alone: begin it with {plugin}/")
    for name in names:
        if name not in checks.NAMES:
            entry.refuse("check", f"names {name!r}, no check{nearest(name, checks.NAMES)}")
    return Waiver(
        id=entry.text("id"),
        kernel=kernel,
        case=entry.text("case"),
        checks=names,
        device=entry.text("device"),
        reason=entry.text("reason"),
        link=entry.link("link"),
        expires=_expires(entry),
        where=entry.where,
        via=entry.optional("via") or "*",
        share=_share(entry, names),
        plugin=plugin,
    )


def _expires(entry: Entry) -> date:
    text = entry.text("expires")
    try:
        return date.fromisoformat(text)
    except ValueError:
        entry.refuse("expires", f"is {text!r}, no day; write YYYY-MM-DD")


def _share(entry: Entry, names: Sequence[str]) -> float | None:
    share = entry.table.get("share")
    if "share" not in entry.table:
        return None
    if not isinstance(share, int | float) or isinstance(share, bool) or not 1 < share < float("inf"):
        entry.refuse("share", f"is {share!r}; write how many times the bound an error may be, above 1")
    if tuple(names) != (numbers.NAME,):
        entry.refuse("share", f"is of the check {numbers.NAME} alone; give the others an entry of their own")
    return share
