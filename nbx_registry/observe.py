"""Observers of calls: a profile that times each call against its floor, and a recorder that makes a plan."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from nbx_registry import interop
from nbx_registry.call import flat
from nbx_registry.catalog import Catalog
from nbx_registry.decision import Evidence
from nbx_registry.errors import MissingFact
from nbx_registry.plan import Plan, Step, Value
from nbx_registry.planentry import PlanEntry
from nbx_registry.price import floor
from nbx_registry.program import BoundProgram
from nbx_registry.regions import Regions

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
        bound = call.program_for(args, out)
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
    """Makes a plan of the calls it sees: each kind once, and all of them in order over the memory they touch.

    Calls of several threads are taken in the order in which they return. The plan's steps are there once the recorder
    is closed.
    """

    def __init__(self, plan: Plan, catalog: Catalog) -> None:
        self.plan = plan
        self._catalog = catalog
        self._entries: dict[BoundProgram, int] = {}
        self._regions: dict[str, Regions] = {}
        self._devices: dict[str, str] = {}
        self._steps: list[tuple[int, str, list[int | None], list[int]]] = []
        self._lock = threading.Lock()
        self._closed = False

    def observe(self, call: Call, args: Sequence[Any], out: Any) -> Any:
        """Run one call and note it."""
        program = call.program_for(args, out)
        result = call.run(args, out)
        with self._lock:
            if self._closed:
                # Of another thread, and still running when the block ended.
                return result
            # What the call was bound as before its operands' addresses were known is needed ahead of it too.
            self._entry(call.bound)
            entry, place = self._entry(program), program.target.name
            regions = self._regions.setdefault(place, Regions())
            device = program.target.device
            assert device is not None
            self._devices[place] = device.id
            operands = flat(program.signature.tensors)
            given = [*flat(args), *(None,) * len(operands)][: len(operands)]
            inputs = [_region(array) for array in given]
            read = [None if one is None else regions.read(*one) for one in inputs]
            written = [
                self._output(array, regions, inputs, fresh=out is None and program.view is None, view=program.view)
                for array in _several(result, len(program.signature.outputs))
            ]
            self._steps.append((entry, place, read, written))
        return result

    def close(self) -> None:
        """Put the steps into the plan, to which nothing is added from then on."""
        with self._lock:
            self._closed = True
            numbers: dict[tuple[str, int], int] = {}
            values = {place: regions.values() for place, regions in self._regions.items()}

            def number(place: str, own: int) -> int:
                own = self._regions[place].final(own)
                if (place, own) not in numbers:
                    nbytes, given = values[place][own]
                    numbers[place, own] = len(self.plan.values)
                    self.plan.values.append(Value(nbytes, self._devices[place], given))
                return numbers[place, own]

            for entry, place, read, written in self._steps:
                inputs = tuple(None if one is None else number(place, one) for one in read)
                self.plan.steps.append(Step(entry, inputs, tuple(number(place, one) for one in written)))
            self._steps.clear()

    def _entry(self, bound: BoundProgram) -> int:
        # Programs are told apart by identity; two of one request are made only where the first was forgotten.
        place = self._entries.get(bound)
        if place is None:
            entry = PlanEntry.of(self._catalog, bound.signature, bound.choice, bound.target, bound.require, bound.pin)
            place = self._entries[bound] = self.plan.add(entry)
        return place

    def _output(
        self,
        array: Any,
        regions: Regions,
        inputs: Sequence[tuple[int, int] | None],
        *,
        fresh: bool,
        view: object,
    ) -> int:
        where = _region(array)
        assert where is not None
        start, nbytes = where
        if view is not None:
            return regions.read(start, nbytes)
        in_place = any(one is not None and one[0] < start + nbytes and start < sum(one) for one in inputs)
        # Between the elements of one with gaps the value before lives on.
        if fresh or (not in_place and _gapless(array) and regions.overwritten(start, nbytes)):
            return regions.made(start, nbytes)
        return regions.written(start, nbytes)


def _several(result: Any, count: int) -> Sequence[Any]:
    return () if not count else result if count > 1 else (result,)


def _region(array: Any) -> tuple[int, int] | None:
    """Return where an array begins, and how many bytes it reaches over; None for scalars and what is left out."""
    adapter = None if array is None else interop.adapter(array)
    if adapter is None:
        return None
    spec = adapter.spec(array)
    return adapter.address(array), spec.dtype.nbytes(spec.extent)


def _gapless(array: Any) -> bool:
    adapter = interop.adapter(array)
    spec = None if adapter is None else adapter.spec(array)
    return spec is not None and spec.size == spec.extent
