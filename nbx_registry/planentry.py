"""Entries of a plan: one request, and the kernel that answers it with everything that identifies it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, lru_cache
from importlib import metadata
from math import isfinite
from typing import Any, cast

from nbx_registry import digest, dtypes, jsonfile
from nbx_registry.call import flat
from nbx_registry.catalog import Catalog
from nbx_registry.choice import Choice
from nbx_registry.dtypes import DType
from nbx_registry.errors import NbxError, SignatureError
from nbx_registry.jsonfile import Reader
from nbx_registry.kernel import Kernel
from nbx_registry.op import Op
from nbx_registry.policy import REQUIRE
from nbx_registry.program import workspace_of
from nbx_registry.signature import Operand, Signature
from nbx_registry.spec import TensorSpec, contiguous_strides, parse
from nbx_registry.target import Target

_NO_NUMBERS = ("nan", "inf", "-inf")

Text = str | list[str] | None
"""An operand in a plan: a spec string (``weak int64`` for a Python scalar), a list of them, None for one left out."""

Reached = tuple[list[int | None], list[int | None]]
"""Bytes that operands and outputs reach over; None for scalars and what is left out."""


@dataclass(frozen=True, kw_only=True)
class PlanKernel:
    """A kernel as a plan holds it: what must be the same wherever the plan is used."""

    op: str
    """Op id, with version."""
    kernel: str
    op_digest: str
    kernel_digest: str | None
    """None where the kernel's function was registered in its process, without a source to digest."""
    toolkit: str | None
    """Distribution and version of the toolkit that makes it; None where the device was absent, and for none."""
    settings: dict[str, Any]
    parts: list[PlanKernel] = field(default_factory=list["PlanKernel"])
    """Of a composite, in order."""

    def differences(self, here: PlanKernel, where: str = "") -> list[str]:
        """Return the fields that differ, each as ``field: the plan has ..., here it is ...``."""
        found: list[str] = []
        for name in self.__dataclass_fields__:
            mine, theirs = getattr(self, name), getattr(here, name)
            if name == "parts" and len(mine) == len(theirs):
                for n, (part, other) in enumerate(zip(self.parts, here.parts, strict=True)):
                    found += part.differences(other, f"{where}parts[{n}].")
            elif mine != theirs and (name != "toolkit" or mine is not None):
                shown = [[part.kernel for part in parts] for parts in (mine, theirs)] if name == "parts" else None
                mine, theirs = shown or (mine, theirs)
                found.append(f"{where}{name}: the plan has {mine!r}, here it is {theirs!r}")
        return found


@dataclass(frozen=True, kw_only=True)
class PlanEntry(PlanKernel):
    """One request of a plan and its answer."""

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
    workspace: list[int]
    """Bytes of each piece of workspace of the kernel, temporaries of a composite included."""
    written: list[int]
    """Which of its operands, counted as `inputs` counts them, are written in place."""

    @classmethod
    def of(
        cls, catalog: Catalog, signature: Signature, choice: Choice, target: Target, require: str, pin: str | None
    ) -> PlanEntry:
        """Write down a choice. Nothing is loaded."""
        assert target.device is not None
        return cls(
            **_identity(catalog, choice, present=target.present),
            tensors=[_text(operand) for operand in signature.tensors],
            outputs=[_spec_text(spec) for spec in signature.outputs],
            attributes={name: _plain(value) for name, value in signature.attributes.items()},
            device=target.device.id,
            require=require,
            pin=pin,
            workspace=[slot.spec.nbytes for slot in workspace_of(choice, signature)],
            written=_written(signature),
        )

    @property
    def inputs(self) -> int:
        """How many operands its tensors are, those of lists one by one."""
        return sum(len(text) if isinstance(text, list) else 1 for text in self.tensors)

    def reached(self) -> Reached:
        """Return how many bytes each operand, as `inputs` counts them, and each output reaches over."""
        read = [None if text is None else _reached(_parsed(text)) for text in flat(self.tensors)]
        return read, [_reached(parse(text)) for text in self.outputs]

    def changed(self, catalog: Catalog) -> list[str]:
        """Return the digests that differ, as `differences` does, of contract and kernel as far as they are here."""
        op, kernel = catalog.ops.get(self.op), catalog.kernels.get(self.kernel)
        here = replace(
            self,
            op_digest=self.op_digest if op is None else op.digest,
            kernel_digest=self.kernel_digest if kernel is None else kernel_digest(kernel),
        )
        return self.differences(here)

    @classmethod
    def read(cls, reader: Reader) -> PlanEntry:
        """Check one entry of a file. Raises `FileError` naming file and key."""
        reader.known(*cls.__dataclass_fields__)
        return cls(
            **_read_identity(reader),
            tensors=[_known_text(reader, "tensors", item) for item in _list(reader, "tensors")],
            outputs=[_known_spec(reader, "outputs", item, parse) for item in _list(reader, "outputs")],
            attributes=_known_values(reader, "attributes"),
            device=reader.string("device"),
            require=reader.choice("require", REQUIRE),
            pin=reader.optional_string("pin"),
            workspace=[_known_bytes(reader, "workspace", item) for item in _list(reader, "workspace")],
            written=_known_written(reader),
        )

    def signature(self, op: Op) -> Signature:
        """Check the entry against its contract again.

        Raises `SignatureError`, also for outputs that are not those the contract infers, or `SpecError` for no spec
        string.
        """
        floats = {attribute.name for attribute in op.attributes if "float" in attribute.kinds}
        # JSON has no infinity: such floats are strings in a plan.
        given = {n: float(v) if n in floats and v in _NO_NUMBERS else v for n, v in self.attributes.items()}
        found = op.signature([_operand(text) for text in self.tensors], given)
        outputs = tuple(map(parse, self.outputs))
        if [(spec.dtype, spec.shape) for spec in outputs] != [(spec.dtype, spec.shape) for spec in found.outputs]:
            inferred = ", ".join(map(str, found.outputs)) or "nothing"
            raise SignatureError(
                f"outputs: the plan has {', '.join(self.outputs) or 'nothing'}; {found} gives {inferred}"
            )
        found.outputs = outputs
        return found


def _identity(catalog: Catalog, choice: Choice, *, present: bool) -> dict[str, Any]:
    kernel = choice.kernel
    return {
        "op": kernel.op,
        "kernel": kernel.id,
        "op_digest": catalog.op(kernel.op).digest,
        "kernel_digest": kernel_digest(kernel),
        "toolkit": toolkit(catalog, kernel) if present else None,
        "settings": {name: _plain(value) for name, value in choice.settings.items()},
        "parts": [PlanKernel(**_identity(catalog, part, present=present)) for part in choice.parts],
    }


def kernel_digest(kernel: Kernel) -> str | None:
    """Return the digest of a kernel's code; None for a function that was registered in its process."""
    return digest.source_digest(kernel.bind) if isinstance(kernel.bind, str) else None


def toolkit(catalog: Catalog, kernel: Kernel) -> str | None:
    """Return distribution and version of the toolkit that makes a kernel; None where it has none, or it is not here."""
    backend = catalog.backends.get(kernel.backend)
    name = None if backend is None else backend.distribution
    return None if name is None else _version(name)


@cache
def _version(distribution: str) -> str | None:
    try:
        return f"{distribution} {metadata.version(distribution)}"
    except metadata.PackageNotFoundError:
        return None


def _read_identity(reader: Reader) -> dict[str, Any]:
    parts: list[PlanKernel] = []
    for part in reader.objects("parts"):
        part.known(*PlanKernel.__dataclass_fields__)
        parts.append(PlanKernel(**_read_identity(part)))
    return {
        "op": reader.string("op"),
        "kernel": reader.string("kernel"),
        "op_digest": reader.string("op_digest"),
        "kernel_digest": reader.optional_string("kernel_digest"),
        "toolkit": reader.optional_string("toolkit"),
        "settings": _known_values(reader, "settings"),
        "parts": parts,
    }


def _list(reader: Reader, name: str) -> list[object]:
    value = reader.data.get(name)
    if not isinstance(value, list):
        reader.refuse(name, "must be a list")
    return cast("list[object]", value)


def _known_values(reader: Reader, name: str) -> dict[str, Any]:
    found = dict(reader.object(name).data)
    try:
        jsonfile.canonical(found)
    except ValueError as error:
        # A number beyond float64, which reads as infinity, or half of a surrogate pair.
        reader.refuse(name, f"holds what JSON has no word for: {error}")
    return found


def _known_written(reader: Reader) -> list[int]:
    tensors = _list(reader, "tensors")
    count = sum(len(cast("list[object]", item)) if isinstance(item, list) else 1 for item in tensors)
    found = _list(reader, "written")
    for value in found:
        if type(value) is not int or not 0 <= value < count:
            reader.refuse("written", f"holds {value!r}, which is none of the {count} operands")
    return cast("list[int]", found)


def _known_spec(reader: Reader, name: str, value: object, read: Callable[[str], TensorSpec] | None = None) -> str:
    if not isinstance(value, str):
        reader.refuse(name, f"{value!r} is no spec string")
    try:
        (read or _parsed)(value)
    except NbxError as error:
        reader.refuse(name, str(error))
    return value


def _known_text(reader: Reader, name: str, value: object) -> Text:
    if isinstance(value, list):
        return [_known_spec(reader, name, item) for item in cast("list[object]", value)]
    return None if value is None else _known_spec(reader, name, value)


def _known_bytes(reader: Reader, name: str, value: object) -> int:
    if type(value) is not int or value < 0:
        reader.refuse(name, f"holds {value!r}; it must hold bytes, integers from 0 on")
    return value


def _written(signature: Signature) -> list[int]:
    mutable: list[bool] = []
    for param, operand in zip(signature.op.tensors, signature.tensors, strict=True):
        mutable += [param.mutable] * (len(operand) if isinstance(operand, tuple) else 1)
    return [position for position, is_written in enumerate(mutable) if is_written]


def _reached(spec: TensorSpec) -> int | None:
    return None if spec.weak else spec.dtype.nbytes(spec.extent)


def _text(operand: Operand) -> Text:
    if isinstance(operand, tuple):
        return [_spec_text(spec) for spec in operand]
    if operand is None:
        return None
    return f"weak {operand.dtype}" if operand.weak else _spec_text(operand)


def _spec_text(spec: TensorSpec) -> str:
    """Return a spec string that gives the very same spec: strides that move nothing are said too."""
    text = str(spec)
    if not spec.contiguous or spec.strides == contiguous_strides(spec.shape):
        return text
    head, bracket, rest = text.partition("]")
    return f"{head}{bracket};strides={list(spec.strides)}{rest}"


@lru_cache(maxsize=4096)
def _parsed(text: str) -> TensorSpec:
    return TensorSpec(dtypes.get(text[5:]), (), weak=True) if text.startswith("weak ") else parse(text)


def _operand(text: Text) -> Operand:
    if isinstance(text, list):
        return tuple(map(_parsed, text))
    return None if text is None else _parsed(text)


def _plain(value: Any) -> Any:
    """Return a value as JSON gives it back."""
    if isinstance(value, DType):
        return value.name
    if isinstance(value, (tuple, list)):
        return [_plain(item) for item in cast("Sequence[Any]", value)]
    return str(value) if isinstance(value, float) and not isfinite(value) else value
