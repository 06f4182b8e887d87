"""Plans: which kernel serves which signature on which device, written down so that it can be bound ahead."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from math import isfinite
from pathlib import Path
from typing import Any, cast

from nbx_registry import digest, dtypes, jsonfile
from nbx_registry.dtypes import DType
from nbx_registry.jsonfile import Reader
from nbx_registry.op import Op
from nbx_registry.policy import REQUIRE
from nbx_registry.program import BoundProgram
from nbx_registry.signature import Operand, Signature
from nbx_registry.spec import TensorSpec, parse

FORMAT = 1
_NO_NUMBERS = ("nan", "inf", "-inf")

Text = str | list[str] | None
"""An operand in a plan: a spec string (``weak int64`` for a Python scalar), a list of them, None for one left out."""


@dataclass(frozen=True, kw_only=True)
class PlanEntry:
    """One request of a plan and its answer."""

    op: str
    """Op id, with version."""
    tensors: list[Text]
    """In parameter order."""
    outputs: list[str]
    """Spec strings: ``out=`` may have strides of its own."""
    attributes: dict[str, Any]
    device: str
    """Product id."""
    require: str
    """The policy it was asked for under."""
    pin: str | None
    """The kernel that was asked for."""
    kernel: str
    op_digest: str
    kernel_digest: str | None
    """None where the kernel's function was registered in its process, without a source to digest."""
    settings: dict[str, Any]

    @classmethod
    def of(cls, bound: BoundProgram) -> PlanEntry:
        """Write down a bound program."""
        signature, kernel, device = bound.signature, bound.choice.kernel, bound.target.device
        assert device is not None
        return cls(
            op=signature.op.id,
            tensors=[_text(operand) for operand in signature.tensors],
            outputs=[str(spec) for spec in signature.outputs],
            attributes={name: _plain(value) for name, value in signature.attributes.items()},
            device=device.id,
            require=bound.require,
            pin=bound.pin,
            kernel=kernel.id,
            op_digest=signature.op.digest,
            kernel_digest=digest.source_digest(kernel.bind) if isinstance(kernel.bind, str) else None,
            settings={name: _plain(value) for name, value in bound.settings.items()},
        )

    @classmethod
    def read(cls, reader: Reader) -> PlanEntry:
        """Check one entry of a file. Raises `FileError` naming file and key."""
        reader.known(*cls.__dataclass_fields__)
        return cls(
            op=reader.string("op"),
            tensors=[_known_text(reader, "tensors", item) for item in _list(reader, "tensors")],
            outputs=[_known_string(reader, "outputs", item) for item in _list(reader, "outputs")],
            attributes=dict(reader.object("attributes").data),
            device=reader.string("device"),
            require=reader.choice("require", REQUIRE),
            pin=reader.optional_string("pin"),
            kernel=reader.string("kernel"),
            op_digest=reader.string("op_digest"),
            kernel_digest=reader.optional_string("kernel_digest"),
            settings=dict(reader.object("settings").data),
        )

    def signature(self, op: Op) -> Signature:
        """Check the entry against its contract again. Raises `SignatureError`, or `SpecError` for no spec string."""
        floats = {attribute.name for attribute in op.attributes if "float" in attribute.kinds}
        # JSON has no infinity: such floats are strings in a plan.
        given = {n: float(v) if n in floats and v in _NO_NUMBERS else v for n, v in self.attributes.items()}
        found = op.signature([_operand(text) for text in self.tensors], given)
        found.outputs = tuple(map(parse, self.outputs))
        return found

    def differences(self, other: PlanEntry) -> list[str]:
        """Return the fields that differ, each as ``field: the plan has ..., here it is ...``."""
        mine, theirs = asdict(self), asdict(other)
        return [
            f"{name}: the plan has {mine[name]!r}, here it is {theirs[name]!r}"
            for name in mine
            if mine[name] != theirs[name]
        ]


@dataclass
class Plan:
    """An ordered set of entries."""

    entries: list[PlanEntry] = field(default_factory=list[PlanEntry])

    def add(self, entry: PlanEntry) -> None:
        """Append an entry unless it is there."""
        if entry not in self.entries:
            self.entries.append(entry)

    def __iter__(self) -> Iterator[PlanEntry]:
        return iter(self.entries)

    def __len__(self) -> int:
        return len(self.entries)

    def save(self, path: Path | str) -> None:
        """Write the plan as JSON."""
        jsonfile.write(Path(path), {"format": FORMAT, "entries": [asdict(entry) for entry in self.entries]})

    @classmethod
    def load(cls, path: Path | str) -> Plan:
        """Read a plan. Raises `FileError` naming the file and what is wrong."""
        file = Path(path)
        root = Reader(file, jsonfile.parse(jsonfile.read(file), file))
        root.known("format", "entries")
        if root.integer("format") != FORMAT:
            root.refuse("format", f"is {root.data['format']}; this version reads format {FORMAT}")
        return cls([PlanEntry.read(reader) for reader in root.objects("entries")])


def _list(reader: Reader, name: str) -> list[object]:
    value = reader.data.get(name)
    if not isinstance(value, list):
        reader.refuse(name, "must be a list")
    return cast("list[object]", value)


def _known_string(reader: Reader, name: str, value: object) -> str:
    if not isinstance(value, str):
        reader.refuse(name, f"{value!r} is no spec string")
    return value


def _known_text(reader: Reader, name: str, value: object) -> Text:
    if isinstance(value, list):
        return [_known_string(reader, name, item) for item in cast("list[object]", value)]
    return None if value is None else _known_string(reader, name, value)


def _text(operand: Operand) -> Text:
    if isinstance(operand, tuple):
        return [str(spec) for spec in operand]
    if operand is None:
        return None
    return f"weak {operand.dtype}" if operand.weak else str(operand)


def _operand(text: Text) -> Operand:
    if isinstance(text, list):
        return tuple(map(parse, text))
    if text is None:
        return None
    return TensorSpec(dtypes.get(text[5:]), (), weak=True) if text.startswith("weak ") else parse(text)


def _plain(value: Any) -> Any:
    """Return a value as JSON gives it back."""
    if isinstance(value, DType):
        return value.name
    if isinstance(value, (tuple, list)):
        return [_plain(item) for item in cast("Sequence[Any]", value)]
    return str(value) if isinstance(value, float) and not isfinite(value) else value
