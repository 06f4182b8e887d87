"""Observers of calls: a profile that times each call against its floor, and a recorder that makes a plan."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from nbx_registry.decision import Evidence
from nbx_registry.errors import MissingFact
from nbx_registry.plan import Plan, PlanEntry
from nbx_registry.price import floor
from nbx_registry.program import BoundProgram

if TYPE_CHECKING:
    from nbx_registry.call import Call


class Observer(Protocol):
    """Sees every call of a registry while it is installed."""

    def observe(self, call: Call, args: Sequence[Any], out: Any) -> Any:
        """Run the call and return its outputs."""
        ...


@dataclass(kw_only=True, slots=True)
class ProfileRow:
    """What one kernel did for one op during a profile.

    ``seconds`` is wall time including a synchronisation after each call; ``floor_s`` the sum of the calls' floors, or
    None where a device fact is missing, which ``floor_missing`` names.
    """

    op: str
    kernel: str
    device: str
    evidence: Evidence
    calls: int = 0
    seconds: float = 0.0
    floor_s: float | None = 0.0
    floor_missing: str = ""


class Profile:
    """Times calls one by one. Each waits for the device, so the sum is no measure of a whole run."""

    def __init__(self) -> None:
        self._rows: dict[tuple[str, str, str], ProfileRow] = {}
        self._lock = threading.Lock()

    @property
    def rows(self) -> list[ProfileRow]:
        """By time, the longest first."""
        with self._lock:
            return sorted(self._rows.values(), key=lambda row: -row.seconds)

    def observe(self, call: Call, args: Sequence[Any], out: Any) -> Any:
        """Run and time one call."""
        bound = call.bound
        _wait(bound)
        start = time.perf_counter()
        result = call.run(args, out)
        _wait(bound)
        seconds = time.perf_counter() - start
        choice, op, target = bound.choice, bound.signature.op, bound.target
        least, missing = _floor(bound)
        with self._lock:
            row = self._rows.get((op.id, choice.kernel.id, target.name))
            if row is None:
                row = ProfileRow(op=op.id, kernel=choice.kernel.id, device=target.name, evidence=choice.evidence)
                self._rows[op.id, choice.kernel.id, target.name] = row
            row.calls += 1
            row.seconds += seconds
            if least is None:
                row.floor_s, row.floor_missing = None, missing
            elif row.floor_s is not None:
                row.floor_s += least
        return result


def _wait(bound: BoundProgram) -> None:
    runtime, live = bound.runtime, bound.live
    # What runs over arrays has run when its call returns.
    if runtime is not None and live is not None and runtime.operands == "address":
        runtime.synchronize(live.index)


def _floor(bound: BoundProgram) -> tuple[float | None, str]:
    """Return the floor of one call, or None and what is missing."""
    device = bound.target.device
    assert device is not None
    try:
        return floor(bound.signature.op.cost(bound.signature), device)[0], ""
    except MissingFact as error:
        return None, str(error)


class Recorder:
    """Makes a plan of the calls it sees, each kind once, in order."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self._seen: set[BoundProgram] = set()
        self._lock = threading.Lock()

    def observe(self, call: Call, args: Sequence[Any], out: Any) -> Any:
        """Run one call and note it."""
        result = call.run(args, out)
        with self._lock:
            # Programs are told apart by identity; two of one request are made only where the first was forgotten.
            if call.bound not in self._seen:
                self._seen.add(call.bound)
                self.plan.add(PlanEntry.of(call.bound))
        return result
