"""Plans: which kernel serves which signature on which device, and what lives from when to when, written down.

A plan comes from a recorded run, from a file, or from code (`nbx_registry.draft`). Its entries are requests with their
answers, each once; its steps are the calls in order, over values told apart by the memory they lie in.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from nbx_registry import jsonfile
from nbx_registry.errors import NbxError, SignatureError, UnknownName
from nbx_registry.jsonfile import Reader
from nbx_registry.memory.slab import Event
from nbx_registry.planentry import PlanEntry, Reached

if TYPE_CHECKING:
    from nbx_registry.catalog import Catalog
    from nbx_registry.signature import Signature

FORMAT = 2

Extents = tuple[Sequence[int], ...]
"""Bytes of the pieces of workspace of each entry."""


@dataclass(frozen=True, slots=True)
class Value:
    """Memory that steps read and write: a tensor, and whatever views there are of it."""

    nbytes: int
    device: str
    """Product id."""
    given: bool
    """Whether it was there before the plan: a weight, an input, a pool. What is not is made by the plan."""


@dataclass(frozen=True, slots=True)
class Step:
    """One call."""

    entry: int
    """Which of the plan's entries."""
    inputs: tuple[int | None, ...]
    """Values by parameter, those of a list in a row with the others; None for scalars and for what is left out."""
    outputs: tuple[int, ...]
    """Values by output; that of a view is the value it looks at."""


class Life(NamedTuple):
    """When a value that the plan makes is alive: from the step that makes it to the one after which it can go."""

    value: int
    start: int
    end: int | None
    """None: to the end of the plan."""


@dataclass
class Plan:
    """Requests with their answers, and the calls of them in order.

    Attributes
    ----------
    entries
        Each kind of request once, in the order of first need. What was bound on the way to a call, and did not run, is
        among them.
    values, steps
        What the calls read and write. Empty where nobody said.
    """

    entries: list[PlanEntry] = field(default_factory=list[PlanEntry])
    values: list[Value] = field(default_factory=list[Value])
    steps: list[Step] = field(default_factory=list[Step])
    _known: dict[str, int] = field(default_factory=dict[str, int], init=False, repr=False, compare=False)

    def add(self, entry: PlanEntry) -> int:
        """Append an entry unless it is there; return its place."""
        if len(self._known) != len(self.entries):
            self._known = {repr(known): place for place, known in enumerate(self.entries)}
        text = repr(entry)
        place = self._known.get(text)
        if place is None:
            place = self._known[text] = len(self.entries)
            self.entries.append(entry)
        return place

    def __iter__(self) -> Iterator[PlanEntry]:
        return iter(self.entries)

    def __len__(self) -> int:
        return len(self.entries)

    @property
    def devices(self) -> list[str]:
        """Ids of the products that it is for."""
        return sorted({entry.device for entry in self.entries})

    def requests(self, catalog: Catalog) -> Iterator[tuple[PlanEntry, Signature]]:
        """Yield the entries with their signatures.

        Raises `SignatureError` or `UnknownName`, naming the entry, for one that does not fit its contract, or whose op
        is not here.
        """
        for number, entry in enumerate(self.entries):
            try:
                signature = entry.signature(catalog.op(entry.op))
            except (SignatureError, UnknownName) as error:
                raise type(error)(f"entry {number} of the plan, {entry.op}: {error}", code=error.code) from error
            yield entry, signature

    # Lives.

    def lives(self) -> list[Life]:
        """Return the lives of the values that the plan makes, by the step that makes them.

        A value is made by the first step that writes it and lives to the last one that reads it. One that no step reads
        after it was last written, or looked at in another way, is a result: it lives to the end.
        """
        made: dict[int, int] = {}
        read: dict[int, int] = {}
        written: dict[int, int] = {}
        for number, step in enumerate(self.steps):
            for value in step.inputs:
                if value is not None:
                    read[value] = number
            for position in self.entries[step.entry].written:
                value = step.inputs[position]
                if value is not None:
                    written[value] = number
            for value in step.outputs:
                written[value] = number
                if not self.values[value].given:
                    made.setdefault(value, number)
        return [Life(v, start, read[v] if read.get(v, -1) > written[v] else None) for v, start in made.items()]

    def trace(self, device: str | None = None, *, workspace: Extents | None = None) -> list[Event]:
        """Return the allocations and frees of the plan, for `nbx_registry.memory.slab`.

        Each step allocates its new values, then the workspace of its kernel, which it frees again, then the values
        whose last use it was. Keys are the numbers of values, and for workspace ``(step, piece)``. What is given is not
        among them.

        Parameters
        ----------
        device
            Memory of which product; can be left out where there is only one.
        workspace
            Bytes of workspace by entry, in the place of the entries' own.

        Raises
        ------
        NbxError
            The plan is for several devices and none is named, or not for the one named.
        """
        device = self.only(device)
        pieces = tuple(entry.workspace for entry in self.entries) if workspace is None else workspace
        born: dict[int, list[int]] = {}
        last: dict[int, list[int]] = {}
        for value, start, end in self.lives():
            if self.values[value].device == device:
                born.setdefault(start, []).append(value)
                if end is not None:
                    last.setdefault(end, []).append(value)
        events: list[Event] = []
        for number, step in enumerate(self.steps):
            for value in born.get(number, ()):
                events.append(("alloc", value, self.values[value].nbytes))
            extents = pieces[step.entry] if self.entries[step.entry].device == device else ()
            for piece, nbytes in enumerate(extents):
                events.append(("alloc", (number, piece), nbytes))
            for piece in range(len(extents)):
                events.append(("free", (number, piece)))
            for value in last.get(number, ()):
                events.append(("free", value))
        return events

    def only(self, device: str | None) -> str:
        """Return the product named, or the only one there is. Raises `NbxError`."""
        devices = self.devices
        if device is None:
            if len(devices) > 1:
                raise NbxError(f"the plan is for {', '.join(devices)}; name one with device=")
            return devices[0] if devices else ""
        if device not in devices:
            raise NbxError(f"the plan is for {', '.join(devices) or 'no device'}, not for {device!r}")
        return device

    # Files.

    def save(self, path: Path | str) -> None:
        """Write the plan as JSON."""
        jsonfile.write(
            Path(path),
            {
                "format": FORMAT,
                "entries": [asdict(entry) for entry in self.entries],
                "values": [asdict(value) for value in self.values],
                "steps": [asdict(step) for step in self.steps],
            },
        )

    @classmethod
    def load(cls, path: Path | str) -> Plan:
        """Read a plan. Raises `FileError` naming the file and what is wrong."""
        file = Path(path)
        root = Reader(file, jsonfile.parse(jsonfile.read(file), file))
        root.known("format", "entries", "values", "steps")
        if root.integer("format") != FORMAT:
            root.refuse("format", f"is {root.data['format']}; this version reads format {FORMAT}")
        plan = cls([PlanEntry.read(reader) for reader in root.objects("entries")])
        plan.values = [_read_value(reader) for reader in root.objects("values")]
        reached = [entry.reached() for entry in plan.entries]
        made = {number for number, value in enumerate(plan.values) if value.given}
        for reader in root.objects("steps"):
            plan.steps.append(_read_step(reader, plan, reached, made))
        return plan


def _read_value(reader: Reader) -> Value:
    reader.known("nbytes", "device", "given")
    given = reader.data.get("given")
    if not isinstance(given, bool):
        reader.refuse("given", "must be true or false")
    return Value(reader.integer("nbytes"), reader.string("device"), given)


def _read_step(reader: Reader, plan: Plan, reached: Sequence[Reached], made: set[int]) -> Step:
    """Check one step; ``made`` are the values that are there before it, and after it."""
    reader.known("entry", "inputs", "outputs")
    place = reader.integer("entry")
    if place >= len(plan.entries):
        reader.refuse("entry", f"is {place}; there are {len(plan.entries)} entries")
    entry = plan.entries[place]
    inputs = [_number(reader, "inputs", item, plan, optional=True) for item in _items(reader, "inputs")]
    outputs = [_number(reader, "outputs", item, plan) for item in _items(reader, "outputs")]
    for name, found, expected in (("inputs", inputs, entry.inputs), ("outputs", outputs, len(entry.outputs))):
        if len(found) != expected:
            reader.refuse(name, f"has {len(found)} values; {entry.op} of entry {place} takes {expected}")
    read, written = reached[place]
    for value, nbytes in zip(inputs, read, strict=True):
        if (value is None) != (nbytes is None):
            what = "no tensor" if nbytes is None else "a tensor"
            reader.refuse("inputs", f"holds {value} where {entry.op} of entry {place} takes {what}")
        _check_value(reader, "inputs", plan, entry, value, nbytes)
        if value is not None and value not in made:
            reader.refuse("inputs", f"value {value} is read before a step makes it")
    for value, nbytes in zip(outputs, written, strict=True):
        # A view is told as large as a copy would be.
        _check_value(reader, "outputs", plan, entry, value, 0 if value in inputs else nbytes)
    made.update(value for value in outputs if value is not None)
    return Step(place, tuple(inputs), tuple(value for value in outputs if value is not None))


def _check_value(
    reader: Reader, name: str, plan: Plan, entry: PlanEntry, number: int | None, nbytes: int | None
) -> None:
    """Refuse a value that cannot be what a call reads or writes."""
    if number is None or nbytes is None:
        return
    value = plan.values[number]
    if value.nbytes < nbytes:
        reader.refuse(name, f"value {number} has {value.nbytes} bytes; {entry.op} reaches over {nbytes}")
    if value.device != entry.device:
        reader.refuse(name, f"value {number} is on {value.device}; {entry.op} runs on {entry.device}")


def _items(reader: Reader, name: str) -> list[object]:
    value = reader.data.get(name)
    if not isinstance(value, list):
        reader.refuse(name, "must be a list")
    return cast("list[object]", value)


def _number(reader: Reader, name: str, value: Any, plan: Plan, *, optional: bool = False) -> int | None:
    if value is None and optional:
        return None
    if type(value) is not int or not 0 <= value < len(plan.values):
        reader.refuse(name, f"holds {value!r}, which is none of the {len(plan.values)} values")
    return value
