"""The rules of selection, written down a second time: slowly, over plain values, sharing nothing with the registry.

A request is a dictionary of what it is (``{"x1.dtype": "float32", "x1.rank": 2, ...}``), a device a dictionary of what
is stated of it, and a condition a Python function of the two.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

Facts = Mapping[str, Any]

LEVELS = ("none", "built", "elsewhere", "here")
POLICIES = {"any": "none", "checked": "elsewhere", "checked_here": "here", "tuned": "here"}


class Missing(Exception):
    """A condition asks for a device fact that nobody stated."""


class Faulty(Exception):
    """A plugin is at fault where it matters: nothing may run."""


@dataclass(frozen=True)
class Clause:
    """One condition, as the registry reads it and as anybody would."""

    text: str
    holds: Callable[[Facts, Facts], bool]
    code: str
    static: bool = False
    """Whether dtypes, ranks, what is given and the device settle it."""
    names: str = "nothing"
    """``arch`` (an arch or a capability), ``fact`` or ``nothing`` of the device."""
    reads: tuple[str, ...] = ()
    """Optional tensors without which the clause is passed over."""


@dataclass(frozen=True)
class Advisory:
    """One reason to revoke a kernel."""

    current: bool
    """Whether it is about the version that is here."""
    device: str | None
    """What it is about; None for every device."""
    when: Clause | None


@dataclass(frozen=True)
class Made:
    """One kernel."""

    id: str
    op: str
    runtimes: tuple[str, ...]
    when: tuple[Clause, ...]
    preference: int
    level: str
    composite_of: str | None = None
    blocked: bool = False
    advisories: tuple[Advisory, ...] = ()
    seconds: Mapping[tuple[str, int], float] = field(default_factory=dict)
    """Where it was timed: by device and ``out.size``."""

    @property
    def specificity(self) -> int:
        return min((("arch", "fact", "nothing").index(clause.names) for clause in self.when), default=2)


@dataclass(frozen=True)
class Answer:
    """What should come out: accepted kernels, best first, each with its level and part; codes of the others."""

    accepted: tuple[tuple[Made, str, Made | None], ...]
    refused: Mapping[str, str]
    faulty: bool

    @property
    def best(self) -> Made | None:
        return None if self.faulty or not self.accepted else self.accepted[0][0]


def answer(made: list[Made], op: str, request: Facts, device: Facts, require: str, pin: str | None) -> Answer:
    """Apply the rules to every kernel of an op."""
    refused: dict[str, str] = {}
    accepted: list[tuple[Made, str, Made | None]] = []
    faults: list[Made] = []
    composites: list[Made] = []
    for one in made:
        if one.op != op:
            continue
        try:
            code = _refusal(one, request, device, pin)
        except Faulty:
            faults.append(one)
            refused[one.id] = "FAULT"
            continue
        if code is not None:
            refused[one.id] = code
        elif one.composite_of is not None:
            composites.append(one)
        elif LEVELS.index(one.level) < LEVELS.index(POLICIES[require]):
            refused[one.id] = "EVIDENCE"
        elif require == "tuned" and _time(one, request, device) is None:
            refused[one.id] = "KEY_NOT_TUNED"
        else:
            accepted.append((one, one.level, None))
    blamed = bool(faults)
    for one in sorted(composites, key=lambda one: _rank((one, "here", None))):
        # The parts get the same operands, and a result of the same size.
        parts = answer(made, str(one.composite_of), request, device, require, None)
        if parts.faulty:
            refused[one.id] = "FAULT"
            # A part's fault counts where the composite, at its best, would have been the one.
            best = min(accepted, key=_rank, default=None)
            blamed = blamed or best is None or _rank((one, "here", None)) < _rank(best)
        elif parts.best is None:
            refused[one.id] = "PART_REFUSED"
        else:
            accepted.append((one, parts.accepted[0][1], parts.best))
    return Answer(tuple(_by_time(sorted(accepted, key=_rank), request, device)), refused, blamed)


def _refusal(one: Made, request: Facts, device: Facts, pin: str | None) -> str | None:
    """Return the code of the first thing that is in a kernel's way before evidence. Raises `Faulty`."""
    if one.blocked:
        return "BLOCKED"
    if pin is not None and pin != one.id:
        return "NOT_PINNED"
    if one.runtimes and device["runtime"] not in one.runtimes:
        return "RUNTIME"
    # What needs no sizes is looked at first; then everything, as written.
    for clauses in ([clause for clause in one.when if clause.static], one.when):
        for clause in clauses:
            if any(not request[f"{name}.given"] for name in clause.reads):
                continue
            try:
                if not clause.holds(request, device):
                    return clause.code
            except Missing:
                return "FACT_MISSING"
            except ZeroDivisionError as error:
                raise Faulty from error
    return "ADVISORY" if any(_revokes(advisory, request, device) for advisory in one.advisories) else None


def _revokes(advisory: Advisory, request: Facts, device: Facts) -> bool:
    if not advisory.current or advisory.device not in (None, device["id"]):
        return False
    clause = advisory.when
    if clause is None:
        return True
    # What it is about is not there.
    if any(not request[f"{name}.given"] for name in clause.reads):
        return False
    try:
        return clause.holds(request, device)
    except (Missing, ZeroDivisionError):
        # It might be so.
        return True


def _time(one: Made, request: Facts, device: Facts) -> float | None:
    return one.seconds.get((device["id"], request["out.size"]))


def _rank(one: tuple[Made, str, Made | None]) -> tuple[int, int, int, str]:
    kernel, level, _ = one
    return (-LEVELS.index(level), kernel.specificity, -kernel.preference, kernel.id)


def _by_time(
    ranked: list[tuple[Made, str, Made | None]], request: Facts, device: Facts
) -> list[tuple[Made, str, Made | None]]:
    """Those timed on this key stand, in the places they have, in the order of their times."""
    times = {
        one.id: time
        for one, _, _ in ranked
        if one.composite_of is None and (time := _time(one, request, device)) is not None
    }
    waiting = sorted((one for one in ranked if one[0].id in times), key=lambda one: (times[one[0].id], one[0].id))
    return [waiting.pop(0) if one[0].id in times else one for one in ranked]
