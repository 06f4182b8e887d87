"""Replay: some trials of a bundle run again here, by the same route, and compared with what it says of them."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from nbx_conformance.bundles import bundle as bundles
from nbx_conformance.bundles.verify import Verification
from nbx_conformance.cases import Case
from nbx_conformance.runs.options import Options
from nbx_conformance.runs.runner import Item, Record
from nbx_conformance.runs.session import Session
from nbx_registry import digest
from nbx_registry.bundle import Bundle
from nbx_registry.errors import NbxError
from nbx_registry.kernel import Kernel
from nbx_registry.registry import Registry


@dataclass(frozen=True, kw_only=True)
class Repeated:
    """One trial, run again.

    Attributes
    ----------
    bits
        Whether the output's bits were compared, beside the verdicts.
    differs
        How it came out otherwise; empty where it did not.
    """

    kernel: str
    case: str
    bits: bool
    differs: str


@dataclass(frozen=True, kw_only=True)
class Replay:
    """What a replay of a bundle found.

    Attributes
    ----------
    seed
        Of the choice.
    eligible
        How many trials could be run again here.
    why_not
        Why others could not, a sentence each.
    """

    bundle: str
    asked: int
    seed: int
    eligible: int
    repeated: tuple[Repeated, ...]
    why_not: tuple[str, ...]

    @property
    def passed(self) -> bool:
        """Whether anything was run again, and all of it came out as recorded."""
        return bool(self.repeated) and not any(one.differs for one in self.repeated)

    def to_dict(self) -> dict[str, Any]:
        """Return plain data for JSON."""
        return {
            **{name: value for name, value in vars(self).items() if name not in ("repeated", "why_not")},
            "passed": self.passed,
            "repeated": [vars(one) for one in self.repeated],
            "why_not": list(self.why_not),
        }

    def lines(self) -> Iterator[str]:
        """Yield what a person reads."""
        if not self.repeated:
            yield f"{self.bundle}: nothing could be replayed here"
        else:
            differing = [one for one in self.repeated if one.differs]
            how = f"{len(differing)} came out otherwise" if differing else "all came out as recorded"
            bits = sum(one.bits for one in self.repeated)
            yield (
                f"{self.bundle}: replayed {len(self.repeated)} of {self.eligible} trials (seed {self.seed}): {how}; "
                f"bits were compared in {bits}"
            )
            yield from (f"  {one.kernel} on {one.case}: {one.differs}" for one in differing)
        yield from (f"  not replayed: {reason}" for reason in self.why_not)


def replay(verified: Verification, registry: Registry, count: int, seed: int, *, isolated: bool = False) -> Replay:
    """Run ``count`` trials of a bundle again, chosen at random; ``isolated``, in a process that a kernel may end.

    Only what is the same here can be: kernels, contracts and cases, reached by the route of the bundle. The verdict of
    every check must come out the same; for a kernel that claims determinism, with the same versions of everything on
    a device of which the same was detected, also the bits of the output.
    """
    name, found = str(verified.path), verified.bundle
    if found is None:
        return _none(name, count, seed, "it is no bundle that can be read")
    if found.suite_digest != bundles.suite_digest():
        return _none(name, count, seed, "it was made by another state of the suite, whose cases may be others")
    session = Session(Options(device=found.device, via=found.via, size="large", isolated=isolated), registry)
    try:
        if session.route.reach != found.reach:
            return _none(name, count, seed, f"its reach is {found.reach}, here it is {session.route.reach}")
        eligible, why_not = _eligible(session, verified.data)
        chosen = random.Random(seed).sample(eligible, min(count, len(eligible)))
        same = _same_versions(session, found, verified.data)
        repeated = tuple(_repeat(session, item, verified.data, same) for item in chosen)
    except NbxError as error:
        return _none(name, count, seed, str(error))
    finally:
        session.close()
    return Replay(
        bundle=name, asked=count, seed=seed, eligible=len(eligible), repeated=repeated, why_not=tuple(why_not)
    )


def _none(name: str, count: int, seed: int, why: str) -> Replay:
    return Replay(bundle=name, asked=count, seed=seed, eligible=0, repeated=(), why_not=(why,))


def _eligible(session: Session, data: Mapping[str, Any]) -> tuple[list[Item], list[str]]:
    """Return the recorded trials that can be run again here, and why others cannot."""
    catalog = session.registry.catalog
    items: list[Item] = []
    why_not: list[str] = []
    for identifier, entry in data["kernels"].items():
        kernel = catalog.kernels.get(identifier)
        reason = _other(session, kernel, entry)
        if reason or kernel is None:
            why_not.append(f"{identifier} {reason}")
            continue
        known = {case.id: case for case in session.cases.of(kernel.op, "large")}
        recorded = {case["case"]: case for case in entry["cases"]}
        same = [name for name in recorded if _is_same(known.get(name), recorded[name])]
        items += (Item(kernel, known[name]) for name in same)
        if len(same) < len(recorded):
            why_not.append(f"{len(recorded) - len(same)} trials of {identifier}, whose cases are not here")
    return items, why_not


def _other(session: Session, kernel: Kernel | None, entry: Mapping[str, Any]) -> str:
    """Return why what is installed is not the kernel that was tried, or cannot be reached; empty where it can."""
    if kernel is None:
        return "is not installed here"
    if kernel.op != entry["op"] or session.registry.catalog.op(kernel.op).digest != entry["op_digest"]:
        return f"was checked against another contract {entry['op']}"
    if not isinstance(kernel.bind, str) or digest.source_digest(kernel.bind) != entry["kernel_digest"]:
        return "has other code here"
    if not session.site.reaches(kernel):
        return f"cannot be reached on {session.route}"
    return ""


def _is_same(case: Case | None, recorded: Mapping[str, Any]) -> bool:
    return case is not None and case.seed == recorded["seed"]


def _same_versions(session: Session, found: Bundle, data: Mapping[str, Any]) -> bool:
    """Return whether everything that may decide an output's bits is what it was."""
    live = session.site.target.live if session.site.reach == "here" else None
    return (
        dict(session.versions) == dict(found.versions)
        and bundles.versions(found.distributions) == dict(found.distributions)
        and bundles.detected(live) == data["device"]["detected"]
    )


def _repeat(session: Session, item: Item, data: Mapping[str, Any], same: bool) -> Repeated:
    entries = [case for case in data["kernels"][item.kernel.id]["cases"] if case["case"] == item.case.id]
    record = session.run(item)
    recorded = next((case["output_digest"] for case in entries if "output_digest" in case), None)
    bits = same and item.kernel.deterministic and recorded is not None and record.output is not None
    differs = list(_differences(entries, record))
    if bits and record.output != recorded:
        differs.append(f"the output's bits are others ({record.output}, recorded {recorded})")
    return Repeated(kernel=item.kernel.id, case=item.case.id, bits=bits, differs="; ".join(differs))


def _differences(entries: Sequence[Mapping[str, Any]], record: Record) -> Iterator[str]:
    recorded = {name: case["verdict"] for case in entries for name in case["check"].split(" ")}
    here = {name: verdict for verdict, names in record.checks.items() for name in names}
    for name in dict.fromkeys((*recorded, *here)):
        before, now = recorded.get(name), here.get(name)
        # What a waiver expects is a failure.
        if _plain(before) != _plain(now):
            why = record.details.get(name, "")
            yield f"{name}: {now or 'not checked'}, recorded {before or 'not checked'}{': ' if why else ''}{why}"


def _plain(verdict: str | None) -> str | None:
    return "fail" if verdict == "waived" else verdict
