"""Plans: which kernel serves which signature on which device, written down so that it can be bound ahead."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from nbx_registry import digest, dtypes
from nbx_registry.dtypes import DType
from nbx_registry.errors import FileError
from nbx_registry.op import Op
from nbx_registry.program import BoundProgram
from nbx_registry.signature import Signature
from nbx_registry.spec import TensorSpec, parse

FORMAT = 1


@dataclass(frozen=True, kw_only=True)
class PlanEntry:
    """One request of a plan and its answer."""

    op: str
    """Op id, with version."""
    tensors: tuple[str | None, ...]
    """Spec strings in parameter order; ``weak int64`` for a Python scalar, None for a tensor left out."""
    attributes: dict[str, Any]
    device: str
    """Product id."""
    kernel: str
    op_digest: str
    kernel_digest: str
    """Empty where the kernel's function was registered in its process, without a source to digest."""
    settings: dict[str, Any] = field(default_factory=dict)

    @classmethod
    def of(cls, bound: BoundProgram) -> PlanEntry:
        """Write down a bound program."""
        signature, kernel, device = bound.signature, bound.choice.kernel, bound.target.device
        assert device is not None
        return cls(
            op=signature.op.id,
            tensors=tuple(None if spec is None else _text(spec) for spec in signature.tensors),
            attributes={name: _plain(value) for name, value in signature.attributes.items()},
            device=device.id,
            kernel=kernel.id,
            op_digest=signature.op.digest,
            kernel_digest=digest.source_digest(kernel.bind) if isinstance(kernel.bind, str) else "",
            settings=dict(bound.settings),
        )

    def signature(self, op: Op) -> Signature:
        """Check the entry against its contract again."""
        return op.signature([None if text is None else _spec(text) for text in self.tensors], self.attributes)

    def differences(self, other: PlanEntry) -> list[str]:
        """Return the fields that differ, each as ``field: ours is ..., theirs ...``."""
        mine, theirs = asdict(self), asdict(other)
        return [
            f"{name}: the plan has {mine[name]!r}, here it is {theirs[name]!r}"
            for name in mine
            if mine[name] != theirs[name]
        ]


@dataclass
class Plan:
    """An ordered set of entries."""

    entries: list[PlanEntry] = field(default_factory=list)

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
        document = {"format": FORMAT, "entries": [asdict(entry) for entry in self.entries]}
        Path(path).write_text(json.dumps(document, indent=1, sort_keys=True) + "\n", "utf-8")

    @classmethod
    def load(cls, path: Path | str) -> Plan:
        """Read a plan. Raises `FileError` naming the file and what is wrong."""
        try:
            document = json.loads(Path(path).read_text("utf-8"))
            if document["format"] != FORMAT:
                raise FileError(f"{path}: plan format {document['format']!r}; this version reads {FORMAT}")
            entries = [PlanEntry(**{**row, "tensors": tuple(row["tensors"])}) for row in document["entries"]]
        except (OSError, json.JSONDecodeError, KeyError, TypeError, UnicodeDecodeError) as error:
            raise FileError(f"{path} is no plan: {type(error).__name__}: {error}") from error
        return cls(entries)


def _text(spec: TensorSpec) -> str:
    return f"weak {spec.dtype}" if spec.weak else str(spec)


def _spec(text: str) -> TensorSpec:
    if text.startswith("weak "):
        return TensorSpec(dtypes.get(text[5:]), (), weak=True)
    return parse(text)


def _plain(value: Any) -> Any:
    if isinstance(value, DType):
        return value.name
    return list(value) if isinstance(value, tuple) else value
