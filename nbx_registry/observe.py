"""Observers of calls: a profile that times each call against its floor, and a recorder that makes a plan."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from nbx_registry.decision import Evidence
from nbx_registry.errors import MissingFact
from nbx_registry.plan import Plan, PlanEntry
from nbx_registry.price import floor

if TYPE_CHECKING:
    from nbx_registry.dispatch import Call


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


@dataclass
class Profile:
    """Times calls one by one. Each waits for the device, so the sum is no measure of a whole run."""

    _rows: dict[tuple[str, str, str], ProfileRow] = field(default_factory=dict)

    @property
    def rows(self) -> list[ProfileRow]:
        """By time, the longest first."""
        return sorted(self._rows.values(), key=lambda row: -row.seconds)

    def observe(self, call: Call, args: Sequence[Any], out: Any) -> Any:
        """Run and time one call."""
        bound = call.bound
        runtime, live = bound.runtime, bound.live
        wait = runtime is not None and live is not None and runtime.operands == "address"
        if wait:
            assert runtime is not None
            assert live is not None
            runtime.synchronize(live.index)
        start = time.perf_counter()
        result = call.run(args, out)
        if wait:
            assert runtime is not None
            assert live is not None
            runtime.synchronize(live.index)
        seconds = time.perf_counter() - start
        choice, op, target = bound.choice, bound.signature.op, bound.target
        key = (op.id, choice.kernel.id, target.name)
        row = self._rows.get(key)
        if row is None:
            row = ProfileRow(op=op.id, kernel=choice.kernel.id, device=target.name, evidence=choice.evidence)
            self._rows[key] = row
        row.calls += 1
        row.seconds += seconds
        if row.floor_s is not None and target.device is not None:
            try:
                row.floor_s += floor(op.cost(bound.signature), target.device)[0]
            except MissingFact as error:
                row.floor_s, row.floor_missing = None, str(error)
        return result


@dataclass
class Recorder:
    """Makes a plan of the calls it sees, each kind once, in order."""

    plan: Plan

    def observe(self, call: Call, args: Sequence[Any], out: Any) -> Any:
        """Run one call and note it."""
        result = call.run(args, out)
        self.plan.add(PlanEntry.of(call.bound))
        return result
