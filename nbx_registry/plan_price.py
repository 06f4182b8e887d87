"""The price of a plan: its floor, what lives at a time, and the slab that it needs. Nothing need be present."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cached_property

from nbx_registry.catalog import Catalog
from nbx_registry.cost import Cost
from nbx_registry.decision import Decision
from nbx_registry.device import Device
from nbx_registry.memory.layout import best_layout
from nbx_registry.memory.slab import Event, Layout, first_fit_extent
from nbx_registry.plan import Plan, Value
from nbx_registry.planentry import PlanEntry
from nbx_registry.price import floor
from nbx_registry.program import workspace_of
from nbx_registry.programs import why_not
from nbx_registry.selection import Selector
from nbx_registry.target import Target


@dataclass(frozen=True)
class PlanRow:
    """What one entry of a plan costs. Bytes and operations are those of one call."""

    entry: PlanEntry
    calls: int
    """How often it is called."""
    cost: Cost
    device: Device
    kernel: str | None
    """The kernel that would run; None where none may."""
    workspace: tuple[int, ...]
    """Bytes of each piece of that kernel's workspace."""

    @cached_property
    def floor_s(self) -> float:
        """Seconds below which one call cannot go. Raises `MissingFact` for a fact not stated."""
        return floor(self.cost, self.device)[0]


@dataclass(frozen=True)
class PlanPrice:
    """The price of a plan. Sums are over its steps; bytes and operations are exact integers.

    Memory is that of the values the plan makes, each from the call that makes it to its last use (a result to the end),
    and of workspace during its call; what is given (weights, inputs) is counted apart. A plan for several devices has
    a slab on each, and the figures are their sums.

    Attributes
    ----------
    rows : tuple of PlanRow
        One an entry, in the plan's order.
    refused : tuple of Decision
        Why entries have no kernel on the device; floors are told all the same.
    """

    rows: tuple[PlanRow, ...]
    refused: tuple[Decision, ...]
    _plan: Plan = field(repr=False)
    """Whose values and steps are priced, on the devices they are priced for."""
    _traces: dict[str, list[Event]] = field(default_factory=dict[str, list[Event]], repr=False, compare=False)

    @property
    def flops(self) -> int:
        """Operations, nominal."""
        return sum(row.calls * row.cost.flops for row in self.rows)

    @property
    def bytes_read(self) -> int:
        """Bytes read, nominal."""
        return sum(row.calls * row.cost.bytes_read for row in self.rows)

    @property
    def bytes_written(self) -> int:
        """Bytes written, nominal."""
        return sum(row.calls * row.cost.bytes_written for row in self.rows)

    @property
    def least_flops(self) -> int:
        """The fewest operations any implementations of the ops do."""
        return sum(row.calls * row.cost.least_flops for row in self.rows)

    @property
    def least_bytes(self) -> int:
        """The fewest bytes any implementations of the ops move."""
        return sum(row.calls * row.cost.least_bytes for row in self.rows)

    @property
    def floor_s(self) -> float:
        """Seconds below which the calls, one after the other, cannot go. Raises `MissingFact` for a fact not stated."""
        return sum(row.calls * row.floor_s for row in self.rows if row.calls)

    @property
    def given_bytes(self) -> int:
        """Bytes of the values that are there before the plan."""
        return sum(value.nbytes for value in self._plan.values if value.given)

    @property
    def peak_live_bytes(self) -> int:
        """The most bytes of values made and workspace that live at a time. As `trace` raises."""
        return sum(_peak(self.trace(device)) for device in self.devices)

    @property
    def slab_bytes(self) -> int:
        """Bytes of the slab that holds all of that, laid out by first fit as the plan goes. As `trace` raises."""
        return sum(first_fit_extent(self.trace(device)) for device in self.devices)

    @property
    def devices(self) -> list[str]:
        """Ids of the products that its values are on."""
        return self._plan.devices

    def trace(self, device: str | None = None) -> list[Event]:
        """Return the allocations and frees behind the figures, for `nbx_registry.memory.slab`.

        ``device`` can be left out where there is only one. Raises `Refused` where a kernel is missing, whose workspace
        nobody knows.
        """
        if self.refused:
            raise why_not(self.refused[0])
        device = self._plan.only(device)
        found = self._traces.get(device)
        if found is None:
            found = self._plan.trace(device, workspace=tuple(row.workspace for row in self.rows))
            self._traces[device] = found
        return list(found)

    def best_layout(self, *, seconds: float = 0.5, device: str | None = None) -> Layout:
        """Return the layout with the least extent that is found in that time; never larger than ``slab_bytes``."""
        return best_layout(self.trace(device), seconds=seconds)


def price_plan(
    plan: Plan, catalog: Catalog, selector: Selector, target_of: Callable[[str], Target], device: Device | None = None
) -> PlanPrice:
    """Price a plan, each entry decided anew on the target that ``target_of`` gives its device.

    Parameters
    ----------
    device
        The one that all of it is priced for; None: each entry's own.

    Raises
    ------
    SignatureError
        An entry does not fit its contract.
    """
    calls = [0] * len(plan.entries)
    for step in plan.steps:
        calls[step.entry] += 1
    rows: list[PlanRow] = []
    refused: list[Decision] = []
    for (entry, signature), count in zip(plan.requests(catalog), calls, strict=True):
        target = target_of(entry.device)
        choice = selector.choose(signature, target, entry.require, entry.pin)
        if choice is None:
            refused.append(selector.decide(signature, target, entry.require, entry.pin))
        where = target.device
        assert where is not None
        rows.append(
            PlanRow(
                entry=entry,
                calls=count,
                cost=signature.op.cost(signature),
                device=where,
                kernel=None if choice is None else choice.kernel.id,
                workspace=() if choice is None else tuple(s.spec.nbytes for s in workspace_of(choice, signature)),
            )
        )
    if device is not None:
        moved = [replace(entry, device=device.id) for entry in plan.entries]
        plan = Plan(moved, [Value(v.nbytes, device.id, v.given) for v in plan.values], plan.steps)
    return PlanPrice(tuple(rows), tuple(refused), plan)


def _peak(trace: list[Event]) -> int:
    live: dict[object, int] = {}
    now = most = 0
    for event in trace:
        if event[0] == "alloc":
            live[event[1]] = event[2]
            now += event[2]
            most = max(most, now)
        else:
            now -= live.pop(event[1])
    return most
