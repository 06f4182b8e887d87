"""The support matrix: what bundles say of each op on each device, at its best and at its worst."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Final, Literal

from nbx_conformance.bundles import shape
from nbx_registry import bundle as bundles
from nbx_registry import jsonfile
from nbx_registry.bundle import Bundle
from nbx_registry.errors import FileError

State = Literal["here", "elsewhere", "built", "unbuilt", "incomplete", "failed"]
STATES: Final[Mapping[State, str]] = {
    "here": "checked on the device itself",
    "elsewhere": "its numbers checked elsewhere, and built for the device",
    "built": "built for the device, within its limits; its numbers checked nowhere",
    "unbuilt": "its numbers checked elsewhere, but not built for the device",
    "incomplete": "not every case was run",
    "failed": "a case failed",
}
"""What bundles come to for a kernel on a device, the best first. The first two open the gate."""


@dataclass(frozen=True, kw_only=True)
class CaseResult:
    """One case of one kernel in one bundle, all its checks together."""

    case: str
    verdict: str
    """The worst of its checks."""
    reasons: Sequence[tuple[str, str, str]]
    """Checks, verdict and reason, of what did not pass."""
    profile: Mapping[str, Any]
    waiver: str | None


@dataclass(frozen=True, kw_only=True)
class Result:
    """What one bundle says of one kernel."""

    kernel: str
    op: str
    bundle: Bundle
    selection: Mapping[str, Any]
    verdict: str
    expected: int
    cases: Sequence[CaseResult]

    def counted(self) -> Counter[str]:
        """Return how many cases came to each verdict."""
        return Counter(case.verdict for case in self.cases)

    def again(self, case: CaseResult) -> str:
        """Return the command that tries the case again."""
        options = {
            "--device": self.bundle.device,
            "--via": self.bundle.via,
            "--size": str(self.selection.get("size", "full")),
            "--kernel": self.kernel,
            "-k": case.case,
        }
        return shlex.join(["nbx", "conformance", "run", *(word for option in options.items() for word in option)])


@dataclass(frozen=True, kw_only=True)
class Support:
    """One kernel on one device, over all bundles: of one reach and means the latest whole run speaks."""

    kernel: str
    results: Sequence[Result]

    @cached_property
    def state(self) -> State:
        """What the results come to."""
        said = {(result.bundle.reach, result.verdict) for result in self.results}
        if any(verdict == "fail" for _, verdict in said):
            return "failed"
        if ("here", "pass") in said:
            return "here"
        built = ("built", "built") in said
        if ("elsewhere", "pass") in said:
            return "elsewhere" if built else "unbuilt"
        return "built" if built else "incomplete"

    @property
    def waived(self) -> Sequence[str]:
        """The waivers that its cases rest on."""
        return sorted({case.waiver for result in self.results for case in result.cases if case.waiver})


@dataclass(frozen=True, kw_only=True)
class Source:
    """One bundle, how many cases it holds, and what it says of plugins as wholes, by name."""

    bundle: Bundle
    cases: int
    plugins: Mapping[str, Mapping[str, Any]]


@dataclass(frozen=True, kw_only=True)
class Matrix:
    """Everything that some bundles say.

    Attributes
    ----------
    sources
        The bundles, by device and path.
    cells
        By op and device, the kernels that are spoken of.
    waivers
        By id, as the bundles give them.
    """

    sources: Sequence[Source]
    cells: Mapping[tuple[str, str], Sequence[Support]]
    waivers: Mapping[str, Mapping[str, Any]]

    @property
    def devices(self) -> Sequence[str]:
        """The devices spoken of: the host first, then by name."""
        return sorted(
            {source.bundle.device for source in self.sources}, key=lambda name: (not name.startswith("host/"), name)
        )

    @property
    def ops(self) -> Sequence[str]:
        """The ops spoken of: those of the core first, then by name."""
        return sorted({op for op, _ in self.cells}, key=lambda name: ("::" in name, name))

    def best(self, op: str, device: str) -> State | None:
        """Return the best that any kernel of the op comes to on the device; None where nothing is said."""
        states = {support.state for support in self.cells.get((op, device), ())}
        return next((state for state in STATES if state in states), None)

    def failures(self) -> Iterator[tuple[Result, CaseResult]]:
        """Yield every case that failed."""
        for supports in self.cells.values():
            for support in supports:
                for result in support.results:
                    yield from ((result, case) for case in result.cases if case.verdict in ("fail", "error"))


def gather(paths: Iterable[Path]) -> Matrix:
    """Read bundles. Raises `FileError` for one that is malformed or was changed, naming it."""
    sources: list[Source] = []
    latest: dict[tuple[str, str, str], dict[tuple[str, str], Result]] = {}
    waivers: dict[str, Mapping[str, Any]] = {}
    for path in paths:
        content = jsonfile.read(path)
        found = bundles.parse(content, path)
        data = jsonfile.parse(content, path)
        wrong = next(shape.of_bundle(data), None)
        if wrong is not None:
            raise FileError(f"{path}: {wrong}")
        waivers.update((waiver["id"], waiver) for waiver in data["waivers"])
        count = 0
        for kernel, entry in data["kernels"].items():
            result = Result(
                kernel=kernel,
                op=entry["op"],
                bundle=found,
                selection=data["selection"],
                verdict=entry["verdict"],
                expected=entry["expected"],
                cases=tuple(_cases(entry["cases"])),
            )
            count += len(result.cases)
            places = latest.setdefault((entry["op"], found.device, kernel), {})
            place = (found.reach, found.via)
            known = places.get(place)
            if known is None or _order(known) < _order(result):
                places[place] = result
        sources.append(Source(bundle=found, cases=count, plugins=data["plugins"]))
    cells: dict[tuple[str, str], list[Support]] = {}
    for (op, device, kernel), places in sorted(latest.items()):
        results = sorted(places.values(), key=lambda r: (bundles.REACHES.index(r.bundle.reach), r.bundle.via))
        cells.setdefault((op, device), []).append(Support(kernel=kernel, results=results))
    sources.sort(key=lambda source: (source.bundle.device, source.bundle.reach, source.bundle.digest))
    return Matrix(sources=sources, cells=cells, waivers=waivers)


def _order(result: Result) -> tuple[object, ...]:
    """Later is greater; what was not run whole takes nothing back."""
    return (result.verdict != "incomplete", result.bundle.created, result.bundle.digest)


_EXACT: Final[Mapping[str, Any]] = {}


def _cases(entries: Sequence[Mapping[str, Any]]) -> Iterator[CaseResult]:
    """Yield a kernel's cases, whose entries, one a verdict, stand in any order."""
    by_case: dict[str, list[Mapping[str, Any]]] = {}
    for entry in entries:
        by_case.setdefault(entry["case"], []).append(entry)
    for case, said in by_case.items():
        yield CaseResult(
            case=case,
            verdict=max((entry["verdict"] for entry in said), key=bundles.CASE_VERDICTS.index),
            reasons=[(e["check"], e["verdict"], e.get("reason", "")) for e in said if e["verdict"] != "pass"],
            profile=next((entry["profile"] for entry in said if "profile" in entry), _EXACT),
            waiver=next((entry["waiver"] for entry in said if "waiver" in entry), None),
        )


_SHORT: Final[Mapping[State, str]] = {
    "here": "**checked**",
    "elsewhere": "elsewhere",
    "built": "built",
    "unbuilt": "not built",
    "incomplete": "incomplete",
    "failed": "**FAILS**",
}


def markdown(matrix: Matrix) -> str:
    """Return the matrix as a page of Markdown: the same text for the same bundles."""
    return "\n".join(_lines(matrix)) + "\n"


def _lines(matrix: Matrix) -> Iterator[str]:
    devices = matrix.devices
    yield "# Support matrix"
    yield ""
    yield "What the evidence that is shipped says of each op on each device: the best of its kernels, and how many"
    yield "there are where it is not one."
    yield "`nbx conformance report BUNDLE... --markdown FILE` makes this page; do not edit it."
    yield ""
    used = {s.state for supports in matrix.cells.values() for s in supports}
    for state, meaning in STATES.items():
        if state in used:
            yield f"- {_SHORT[state]}: {meaning}"
    yield "- w: rests on waivers, listed below"
    yield ""
    yield f"| op | {' | '.join(map(_text, devices))} |"
    yield f"|---|{'---|' * len(devices)}"
    for op in matrix.ops:
        yield f"| {_text(op)} | {' | '.join(_cell(matrix, op, device) for device in devices)} |"
    yield ""
    yield "## Waivers"
    yield ""
    if not matrix.waivers:
        yield "None."
    for name, waiver in sorted(matrix.waivers.items()):
        share = f", up to {waiver['share']} times the bound" if "share" in waiver else ""
        yield _text(
            f"- {name}: {waiver['kernel']}, case {waiver['case']}, {waiver['check']} on {waiver['device']}{share}: "
            f"{waiver['reason']} ({waiver['link']}; until {waiver['expires']})"
        )
    yield ""
    yield "## Bundles"
    yield ""
    yield "| device | reach | by | driver and toolkit | kernels | cases | made |"
    yield "|---|---|---|---|---|---|---|"
    for source in matrix.sources:
        bundle = source.bundle
        versions = ", ".join(f"{name} {version}" for name, version in sorted(bundle.versions.items())) or "-"
        device, via = _text(bundle.device), _text(bundle.via)
        yield (
            f"| {device} | {bundle.reach} | {via} | {_text(versions)} | {len(bundle.records)} | {source.cases} "
            f"| {bundle.created:%Y-%m-%d} |"
        )


def _text(said: str) -> str:
    """Return what a bundle says as text of one line: neither HTML nor the edge of a cell."""
    return " ".join(said.split()).replace("&", "&amp;").replace("<", "&lt;").replace("|", "&#124;")


def _cell(matrix: Matrix, op: str, device: str) -> str:
    supports = matrix.cells.get((op, device), ())
    best = matrix.best(op, device)
    if best is None:
        return ""
    count = f" ({len(supports)})" if len(supports) > 1 else ""
    failed = sum(support.state == "failed" for support in supports)
    mark = ", w" if any(support.waived for support in supports) else ""
    more = f", {failed} {_SHORT['failed']}" if failed and best != "failed" else ""
    return f"{_SHORT[best]}{count}{more}{mark}"
