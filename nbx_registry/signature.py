"""Signatures: an op applied to specs, every axis and attribute settled; and what an expression's names mean there."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from nbx_registry.dtypes import DType
from nbx_registry.errors import ExpressionError, nearest
from nbx_registry.schema import Schema
from nbx_registry.spec import TensorSpec

if TYPE_CHECKING:
    from nbx_registry.op import Op

Operand = TensorSpec | tuple[TensorSpec, ...] | None
"""What stands for a tensor parameter: its spec, a tuple of specs for a list, None for an optional one left out."""

FIELDS: dict[str, Literal["dtype", "rank", "size", "layout", "given"]] = {
    "dtype": "dtype",
    "weak": "dtype",
    "rank": "rank",
    "shape": "size",
    "size": "size",
    "nbytes": "size",
    "distinct": "layout",
    "distinct_bytes": "layout",
    "extent": "layout",
    "strides": "layout",
    "contiguous": "layout",
    "align": "layout",
    "offset": "layout",
    "given": "given",
}
"""What an expression may ask of a tensor, and what kind of thing that is."""


class Signature:
    """An op with specs and attributes that fit it.

    Attributes
    ----------
    op : Op
    tensors : tuple
        One `Operand` a parameter, in order.
    attributes : dict
        Complete with defaults and normalised: ``int[2]`` given 3 is ``(3, 3)``.
    axes : dict
        Extents by name, those of ``where=`` and of named outputs included; ``*B`` is a tuple. Axes that only an
        optional tensor has are absent when it is.
    letters : dict
        Dtypes by letter.
    outputs : tuple of TensorSpec
    """

    __slots__ = ("_kind", "attributes", "axes", "letters", "op", "outputs", "tensors")

    def __init__(
        self,
        op: Op,
        tensors: tuple[Operand, ...],
        attributes: dict[str, Any],
        axes: dict[str, Any],
        letters: dict[str, DType],
        outputs: tuple[TensorSpec, ...],
    ) -> None:
        self.op = op
        self.tensors = tensors
        self.attributes = attributes
        self.axes = axes
        self.letters = letters
        self.outputs = outputs
        self._kind: tuple[object, ...] | None = None

    def tensor(self, name: str) -> Any:
        """Return the spec of a parameter or output: None for one left out, a tuple for a list. Raises KeyError."""
        position = self.op.positions[name]
        count = len(self.tensors)
        return self.tensors[position] if position < count else self.outputs[position - count]

    def slots(self) -> tuple[tuple[str, TensorSpec], ...]:
        """Return name and spec of every operand: the parameters given, then outputs; of a list, ``xs.0``, ``xs.1``."""
        found: list[tuple[str, TensorSpec]] = []
        for param, operand in zip(self.op.tensors, self.tensors, strict=True):
            if isinstance(operand, tuple):
                found += ((f"{param.name}.{i}", spec) for i, spec in enumerate(operand))
            elif operand is not None:
                found.append((param.name, operand))
        found += zip((output.name for output in self.op.outputs), self.outputs, strict=True)
        return tuple(found)

    @property
    def names(self) -> tuple[str, ...]:
        """The names of `slots`."""
        return tuple(name for name, _ in self.slots())

    @property
    def kind(self) -> tuple[object, ...]:
        """What static conditions may depend on, hashable: dtypes, ranks, which are given, non-integer attributes."""
        if self._kind is None:
            parts: list[object] = []
            for operand in self.tensors:
                if isinstance(operand, tuple):
                    parts.append(tuple((s.dtype, len(s.shape)) for s in operand))
                elif operand is not None:
                    parts.append((operand.dtype, len(operand.shape), operand.weak))
                else:
                    parts.append(None)
            values = self.attributes
            # 1, 1.0 and True are equal as keys: a value is told from another's by its attribute's type, None by itself.
            parts += (values[name] for name in self.op.static_attributes)
            self._kind = tuple(parts)
        return self._kind

    @property
    def key(self) -> tuple[object, ...]:
        """What tells this signature from every other of its op, hashable."""
        return (self.tensors, tuple(self.attributes.values()), self.outputs)

    def value(self, path: str) -> Any:
        """Return what a name of an expression is here: an axis, attribute, dtype letter, or a tensor's field.

        A field of an optional tensor left out, and an axis that only such a tensor has, is None. Raises
        `ExpressionError` with the nearest name for one that the op lacks.
        """
        name = look_up(self.op.schema, self.op.where, path)
        if name is None:
            raise unknown(self.op.schema, self.op.where, path)
        if name.kind == "axis":
            return self.axes.get(name.base)
        if name.kind == "attribute":
            return self.attributes[name.base]
        if name.kind == "letter":
            return self.letters.get(name.base)
        operand = self.tensor(name.base)
        if name.kind == "list":
            return operand
        if name.field == "given":
            return operand is not None
        return None if operand is None else getattr(operand, name.field)

    def index_limits(self) -> dict[str, tuple[int, int, str]]:
        """Return, by parameter that holds indices, the least one allowed, the first one too large, and what that is."""
        return {
            name: (low.evaluate(self.value), high.evaluate(self.value), high.text)
            for name, (low, high) in self.op.index_bounds.items()
        }

    def __str__(self) -> str:
        parts: list[str] = []
        for param, operand in zip(self.op.tensors, self.tensors, strict=True):
            if isinstance(operand, tuple):
                parts.append(f"{param.name}: [{', '.join(map(str, operand))}]")
            elif operand is not None:
                parts.append(f"{param.name}: {f'Python {operand.dtype.kind}' if operand.weak else operand}")
        defaults = self.op.defaults
        for name, value in self.attributes.items():
            if name not in defaults or defaults[name] != value:
                parts.append(f"{name}={str(value) if isinstance(value, DType) else repr(value)}")
        return f"{self.op.name}({', '.join(parts)})"

    def __repr__(self) -> str:
        return f"<Signature {self}>"


class Name(NamedTuple):
    """What a path of an expression means over an op."""

    kind: Literal["axis", "attribute", "letter", "list", "param", "output"]
    base: str
    """The axis (``C``, ``*B``), attribute, dtype letter, parameter or output."""
    field: str = ""


def look_up(schema: Schema, where: Mapping[str, object], path: str) -> Name | None:
    """Return what ``path`` means over an op, or None. ``where`` holds the axes the op computes."""
    base, _, field = path.partition(".")
    if field:
        if field not in FIELDS:
            return None
        param = schema.param(base)
        if param is not None:
            return None if param.is_list and field != "given" else Name("param", base, field)
        if field != "given" and any(output.name == base for output in schema.outputs):
            return Name("output", base, field)
        return None
    axes = axis_names(schema, where)
    if base in axes:
        return Name("axis", base)
    if "*" + base in axes:
        return Name("axis", "*" + base)
    if schema.attribute(base) is not None:
        return Name("attribute", base)
    if any(item.letter == base for item in (*schema.params, *schema.outputs)):
        return Name("letter", base)
    param = schema.param(base)
    return Name("list", base) if param is not None and param.is_list else None


def axis_names(schema: Schema, where: Mapping[str, object]) -> dict[str, None]:
    """Return every named axis, ``*B`` included: the parameters', those of ``where``, the outputs'."""
    names = dict.fromkeys(schema.input_axes())
    names.update(dict.fromkeys(where))
    for output in schema.outputs:
        names.update((axis, None) for axis in output.axes if isinstance(axis, str))
    return names


def unknown(schema: Schema, where: Mapping[str, object], path: str) -> ExpressionError:
    """Build the error for a path that means nothing over the op, with the nearest that does."""
    known = [name.lstrip("*") for name in axis_names(schema, where)]
    known += (attribute.name for attribute in schema.attributes)
    known += (f"{item.name}.{field}" for item in (*schema.params, *schema.outputs) for field in FIELDS)
    base, _, field = path.partition(".")
    if field and any(item.name == base for item in (*schema.params, *schema.outputs)):
        hint = nearest(path, known) or f"; known of a tensor: {', '.join(FIELDS)}"
    else:
        hint = nearest(path, known)
    return ExpressionError(f"{schema.name}@{schema.version} has no {path!r}{hint}")
