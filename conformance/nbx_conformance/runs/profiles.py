"""Profiles: what a device must be able to run to be of use for some purpose, as data, in ``profiles/*.yml``.

A profile names ops and, for each, dtypes and layouts. A case of the suite that has them must *pass* with at least one
kernel of the device: there, to be refused is to be missing. Every other case may be right or refused. The dtypes of a
case are the distinct floating ones of its tensors and outputs (``float16/float32``), or all where none is floating.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, Final, cast

from nbx_conformance.cases import SIZES, Case, CaseTable, Size, kinds
from nbx_conformance.cases.kinds import Looked
from nbx_conformance.problems.problem import Problem
from nbx_conformance.runs.runner import Record
from nbx_conformance.runs.session import Session
from nbx_registry import yamlfile
from nbx_registry.errors import FileError, UnknownName, nearest
from nbx_registry.op import Op

FOLDER: Final = Path(__file__).parents[1] / "profiles"

LAYOUTS: Final = ("transposed", "offset", "expanded", "strided", "reversed", "pitched", "prefix")
"""Kinds of layouts, as `nbx_conformance.cases.kinds` tells them, of which a profile says which must be accepted."""

_SHOWN: Final = 4
"""Cases of one reason that are named to a person."""


@dataclass(frozen=True, kw_only=True)
class Demand:
    """What a profile asks of one op.

    Attributes
    ----------
    op
        Its id.
    dtypes
        Of the cases that must pass.
    layouts
        That must be accepted; a case that has another may be refused.
    cases
        Patterns of the ids of the cases that must pass.
    """

    op: str
    dtypes: tuple[str, ...]
    layouts: tuple[str, ...]
    cases: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class Profile:
    """A profile.

    Attributes
    ----------
    means
        What a device that satisfies it is good for.
    size
        Up to which size cases must pass.
    """

    name: str
    means: str
    size: Size
    demands: tuple[Demand, ...]

    @property
    def ops(self) -> tuple[str, ...]:
        """Ids of its ops."""
        return tuple(demand.op for demand in self.demands)


@dataclass(frozen=True, kw_only=True)
class Wanted:
    """A case that must pass."""

    op: str
    dtype: str
    case: str


@dataclass(frozen=True, kw_only=True)
class Finding:
    """What one kernel came to on one case.

    Attributes
    ----------
    verdict
        That of the case, or ``unproven``: it passed, but what says so proves nothing.
    why
        In words, where it did not pass.
    reach
        ``here`` or ``elsewhere``.
    """

    op: str
    kernel: str
    case: str
    verdict: str
    why: str
    reach: str


@dataclass(frozen=True, kw_only=True)
class Missing:
    """A case that must pass and does not.

    Attributes
    ----------
    why
        A sentence for each kernel that was tried on it, or that none was.
    tried
        Whether any was.
    """

    op: str
    dtype: str
    case: str
    why: tuple[str, ...]
    tried: bool


@dataclass(frozen=True, kw_only=True)
class Judged:
    """A profile on a device.

    Attributes
    ----------
    wanted
        How many cases must pass.
    elsewhere
        How many of them pass, but were not tried on the device itself.
    """

    profile: str
    device: str
    wanted: int
    elsewhere: int
    missing: tuple[Missing, ...]

    @property
    def satisfied(self) -> bool:
        """Whether something was asked, and nothing of it is missing."""
        return bool(self.wanted) and not self.missing

    def to_dict(self) -> dict[str, Any]:
        """Return plain data for JSON."""
        return {
            "profile": self.profile,
            "device": self.device,
            "satisfied": self.satisfied,
            "wanted": self.wanted,
            "elsewhere": self.elsewhere,
            "missing": [{**vars(one), "why": list(one.why)} for one in self.missing],
        }

    def lines(self) -> Iterator[str]:
        """Yield what a person reads: first how it stands, then what is missing, cases of one reason together."""
        where = f"{self.profile} on {self.device}"
        if self.satisfied:
            how = f", {self.elsewhere} of them not tried on the device itself" if self.elsewhere else ""
            yield f"{where}: satisfied, all {self.wanted} cases that must pass do{how}"
            return
        if not self.wanted:
            yield f"{where}: NOT satisfied, none of the cases that must pass was tried"
            return
        yield f"{where}: NOT satisfied, {len(self.missing)} of {self.wanted} cases that must pass do not"
        grouped: dict[tuple[str, tuple[str, ...]], list[Missing]] = {}
        for one in self.missing:
            grouped.setdefault((one.op, one.why), []).append(one)
        for (op, why), group in grouped.items():
            dtypes = ", ".join(dict.fromkeys(one.dtype for one in group))
            shown = ", ".join(one.case for one in group[:_SHOWN])
            more = f" and {len(group) - _SHOWN} more" if len(group) > _SHOWN else ""
            yield f"  {op} ({dtypes}): {shown}{more}: {'; '.join(why)}"


def names() -> tuple[str, ...]:
    """Return the names of all profiles."""
    return tuple(sorted(file.stem for file in FOLDER.glob("*.yml")))


def load(name: str) -> Profile:
    """Read a profile. Raises `UnknownName`, and `FileError` for a malformed one."""
    if name not in names():
        raise UnknownName.of("profile", name, names(), "profiles are " + ", ".join(names()))
    file = FOLDER / f"{name}.yml"
    content = _mapping(yamlfile.load(file), f"{file}", ("means", "size", "dtypes", "layouts", "ops"))
    size = content["size"]
    if size not in SIZES:
        raise FileError(f"{file}: size {size!r} is none of {', '.join(SIZES)}")
    return Profile(
        name=name,
        means=str(content["means"]),
        size=size,
        demands=tuple(
            _demand(op, given or {}, content, f"{file}: {op}")
            for op, given in _mapping(content["ops"], f"{file}: ops").items()
        ),
    )


def asked(names: Iterable[str], ops: Iterable[str], size: str | None) -> tuple[tuple[str, ...], str]:
    """Return the ops and the size of a run for some profiles: theirs, beside the ops named; the size named, if any."""
    found = [load(name) for name in names]
    largest = max((profile.size for profile in found), key=SIZES.index, default=SIZES[0])
    return tuple(dict.fromkeys([*ops, *(op for profile in found for op in profile.ops)])), size or largest


def of_run(session: Session, name: str) -> Judged:
    """Return how a profile stands by what a run found; where it was of some of the cases only those count."""
    target = session.site.target
    assert target.device is not None
    found = of_records(session.records.values(), session.site.reach)
    device, runtime = target.device.id, target.runtime_name
    judged = judge(load(name), device, runtime, session.cases, session.registry.catalog.ops, found)
    if not session.options.narrowed:
        return judged
    tried = tuple(one for one in judged.missing if one.tried)
    return replace(judged, wanted=judged.wanted - len(judged.missing) + len(tried), missing=tried)


def _demand(op: str, given: object, head: Mapping[str, Any], where: str) -> Demand:
    entry = _mapping(given, where, ("dtypes", "layouts", "cases"), needed=False)
    layouts = _strings(entry.get("layouts", head["layouts"]), f"{where}: layouts")
    for layout in layouts:
        if layout not in LAYOUTS:
            raise FileError(
                f"{where}: unknown layout {layout!r}{nearest(layout, LAYOUTS)}; known: {', '.join(LAYOUTS)}"
            )
    return Demand(
        op=op,
        dtypes=_strings(entry.get("dtypes", head["dtypes"]), f"{where}: dtypes"),
        layouts=layouts,
        cases=_strings(entry.get("cases", ["*"]), f"{where}: cases"),
    )


def wanted(profile: Profile, table: CaseTable, ops: Mapping[str, Op], runtime: str) -> Iterator[Wanted]:
    """Yield every case that must pass on devices of a runtime."""
    for demand in profile.demands:
        for case in table.of(demand.op, profile.size):
            if case.refuses or case.runtime not in (None, runtime):
                continue
            if not any(fnmatchcase(case.id, pattern) for pattern in demand.cases):
                continue
            looked = _looked(ops[demand.op], case)
            dtype = _dtypes(looked)
            if dtype in demand.dtypes and _layouts(looked) <= set(demand.layouts):
                yield Wanted(op=demand.op, dtype=dtype, case=case.id)


def judge(
    profile: Profile, device: str, runtime: str, table: CaseTable, ops: Mapping[str, Op], found: Iterable[Finding]
) -> Judged:
    """Return how a profile stands on a device, by all that was found about it."""
    by_op: dict[str, set[str]] = {}
    by_case: dict[tuple[str, str], list[Finding]] = {}
    for finding in found:
        by_op.setdefault(finding.op, set()).add(finding.kernel)
        by_case.setdefault((finding.op, finding.case), []).append(finding)
    missing: list[Missing] = []
    elsewhere = count = 0
    for one in wanted(profile, table, ops, runtime):
        count += 1
        findings = by_case.get((one.op, one.case), [])
        reaches = {finding.reach for finding in findings if finding.verdict == "pass"}
        if not reaches:
            why = tuple(_why(findings, sorted(by_op.get(one.op, ()))))
            missing.append(Missing(op=one.op, dtype=one.dtype, case=one.case, why=why, tried=bool(findings)))
        elsewhere += bool(reaches) and "here" not in reaches
    return Judged(profile=profile.name, device=device, wanted=count, elsewhere=elsewhere, missing=tuple(missing))


def _why(findings: Iterable[Finding], kernels: list[str]) -> Iterator[str]:
    if not kernels:
        yield "no kernel has it"
        return
    said = Counter(f"{finding.kernel}: {finding.why}" for finding in findings)
    yield from sorted(said) or (f"not run ({', '.join(kernels)})",)


def of_bundle(data: Mapping[str, Any], unproven: Mapping[str, str]) -> Iterator[Finding]:
    """Yield the findings of a bundle; ``unproven`` says of kernels why what it holds about them proves nothing."""
    if data["reach"] == "built":
        # Nothing was run: what was built has passed no case.
        return
    for kernel, entry in data["kernels"].items():
        grouped: dict[str, list[Mapping[str, Any]]] = {}
        for case in entry["cases"]:
            grouped.setdefault(case["case"], []).append(case)
        for case, outcomes in grouped.items():
            verdict, why = _worst((o["verdict"], o["check"], o.get("reason", "")) for o in outcomes)
            if verdict == "pass" and (reason := unproven.get("*") or unproven.get(kernel)):
                verdict, why = "unproven", f"passed, but {reason}"
            yield Finding(op=entry["op"], kernel=kernel, case=case, verdict=verdict, why=why, reach=data["reach"])


def of_records(records: Iterable[Record], reach: str) -> Iterator[Finding]:
    """Yield the findings of a run."""
    for record in records if reach != "built" else ():
        verdict, why = _worst(
            (verdict, " ".join(checks), "; ".join(record.details[check] for check in checks if check in record.details))
            for verdict, checks in record.checks.items()
        )
        yield Finding(op=record.op, kernel=record.kernel, case=record.case, verdict=verdict, why=why, reach=reach)


_SAID: Final = {"error": "error in", "fail": "failed", "waived": "waived", "refused": "refused as"}


def _worst(outcomes: Iterable[tuple[str, str, str]]) -> tuple[str, str]:
    """Return the worst verdict of a case, and what it means in words, from verdicts, checks and reasons."""
    given = {verdict: (check, reason) for verdict, check, reason in outcomes}
    for verdict, said in _SAID.items():
        if verdict in given:
            check, reason = given[verdict]
            return verdict, f"{said} {reason}" if verdict == "refused" else f"{said} {check}: {reason}"
    return ("pass", "") if given else ("error", "nothing was measured")


def lint(table: CaseTable, ops: Mapping[str, Op]) -> list[str]:
    """Return what is wrong with the profiles, a sentence each: what they name has to be in the cases."""
    problems: list[str] = []
    for name in names():
        try:
            profile = load(name)
        except FileError as error:
            problems.append(f"{error}")
            continue
        for demand in profile.demands:
            problems += (f"profile {name}: {demand.op}: {problem}" for problem in _lint(profile, demand, table, ops))
    return problems


def _lint(profile: Profile, demand: Demand, table: CaseTable, ops: Mapping[str, Op]) -> Iterator[str]:
    if demand.op not in ops or demand.op not in table.ops:
        yield f"no op of that id has cases{nearest(demand.op, ops)}"
        return
    cases = [case for case in table.of(demand.op, profile.size) if not case.refuses]
    for pattern in demand.cases:
        if not any(fnmatchcase(case.id, pattern) for case in cases):
            yield f"no case is named like {pattern!r}"
    looked = [_looked(ops[demand.op], case) for case in cases]
    shown = {layout for one in looked for layout in _layouts(one)}
    # Of the layouts that hold for all ops some may not suit this one; of dtypes each is asked for on purpose.
    for dtype in demand.dtypes:
        if not any(_dtypes(one) == dtype and _layouts(one) <= set(demand.layouts) for one in looked):
            yield f"no case with a layout that must be accepted is of {dtype}"
    if demand.layouts and not shown & set(demand.layouts) and ops[demand.op].tensors:
        yield f"no case has any of the layouts {', '.join(demand.layouts)}"


def _looked(op: Op, case: Case) -> Looked:
    return Looked(op, case, Problem(op, case).signature)


def _dtypes(looked: Looked) -> str:
    found = {spec.dtype for spec in looked.specs()}
    floating = {dtype for dtype in found if dtype.floating}
    return "/".join(sorted(dtype.name for dtype in floating or found))


def _layouts(looked: Looked) -> set[str]:
    return {layout for layout in LAYOUTS if kinds.PREDICATES[layout](looked)}


def _mapping(value: object, where: str, keys: tuple[str, ...] = (), *, needed: bool = True) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise FileError(f"{where} must be a mapping, not {value!r}")
    content = cast("dict[str, Any]", value)
    for key in content if keys else ():
        if key not in keys:
            raise FileError(f"{where}: unknown key {key!r}{nearest(key, keys)}")
    for key in keys if needed else ():
        if key not in content:
            raise FileError(f"{where} lacks {key!r}")
    return content


def _strings(value: object, where: str) -> tuple[str, ...]:
    items = cast("list[object]", value) if isinstance(value, list) else None
    if items is None or not all(isinstance(item, str) for item in items):
        raise FileError(f"{where} must be a list of strings, not {value!r}")
    return tuple(cast("list[str]", items))
