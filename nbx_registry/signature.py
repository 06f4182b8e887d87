"""Signatures: an op applied to specs, every axis and attribute settled; and what an expression's names mean there."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from nbx_registry.dtypes import DType
from nbx_registry.errors import ExpressionError, nearest
from nbx_registry.spec import TensorSpec

if TYPE_CHECKING:
    from nbx_registry.op import Op
    from nbx_registry.schema import Schema

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

    @property
    def operands(self) -> tuple[Any, ...]:
        """`tensors`, for rules that know from the schema which of them are lists and which may be left out."""
        return self.tensors

    def slots(self) -> tuple[tuple[str, TensorSpec], ...]:
        """Return name and spec of every operand: the parameters given, then outputs; of a list, ``xs.0``, ``xs.1``."""
        found: list[tuple[str, TensorSpec]] = []
        for name, operand in zip(self.op.positions, (*self.tensors, *self.outputs), strict=True):
            if isinstance(operand, tuple):
                found += ((f"{name}.{i}", spec) for i, spec in enumerate(operand))
            elif operand is not None:
                found.append((name, operand))
        return tuple(found)

    @property
    def names(self) -> tuple[str, ...]:
        """The names of `slots`."""
        return tuple([name for name, _ in self.slots()])

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
        # 0.0 and -0.0 are equal, and may be two results; NaN is unequal to itself.
        values = [str(v) if v.__class__ is float and (not v or v != v) else v for v in self.attributes.values()]
        # 1, 1.0 and True are equal too.
        kinds = [self.attributes[name].__class__ for name in self.op.united_attributes]
        return (self.tensors, *values, *kinds, self.outputs)

    def value(self, path: str) -> Any:
        """Return what a name of an expression is here: an axis, attribute, dtype letter, or a tensor's field.

        A field of an optional tensor left out, and an axis that only such a tensor has, is None. Raises
        `ExpressionError` with the nearest name for one that the op lacks.
        """
        name = self.op.names.get(path)
        if name is None:
            raise unknown(self.op, path)
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

    def index_limits(self) -> dict[str, tuple[int, int | None, str]]:
        """Return, by parameter that holds indices, the least one allowed, the first one too large, and what that is.

        None and no words stand for the latter two where no index is too large.
        """
        return {
            name: (
                low.evaluate(self.value),
                None if high is None else high.evaluate(self.value),
                "" if high is None else high.text,
            )
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


def results_of(signature: Signature) -> dict[str, TensorSpec]:
    """Return the specs of the outputs, then of the parameters written in place, by name."""
    op = signature.op
    found = dict(zip((output.name for output in op.outputs), signature.outputs, strict=True))
    for param, spec in zip(op.tensors, signature.tensors, strict=True):
        if param.mutable and isinstance(spec, TensorSpec):
            found[param.name] = spec
    return found


def names_of(schema: Schema, where: Mapping[str, object]) -> dict[str, Name]:
    """Return what each name means that an expression over an op may use.

    ``where`` holds the axes the op computes. Leading axes ``*B`` are called ``B``; a name that is an axis is no letter.
    """
    found: dict[str, Name] = {}
    for param in schema.params:
        if param.is_list:
            found[param.name] = Name("list", param.name)
            found[f"{param.name}.given"] = Name("param", param.name, "given")
        else:
            found.update((f"{param.name}.{field}", Name("param", param.name, field)) for field in FIELDS)
    for output in schema.outputs:
        fields = (field for field in FIELDS if field != "given")
        found.update((f"{output.name}.{field}", Name("output", output.name, field)) for field in fields)
    for item in (*schema.params, *schema.outputs):
        if item.letter is not None:
            found[item.letter] = Name("letter", item.letter)
    found.update((attribute.name, Name("attribute", attribute.name)) for attribute in schema.attributes)
    # Each tensor of a list has leading axes of its own: they have no one value.
    lists = {id(param) for param in schema.params if param.is_list}
    axes = (
        axis
        for item in (*schema.params, *schema.outputs)
        for axis in item.axes
        if isinstance(axis, str) and not (axis.startswith("*") and id(item) in lists)
    )
    found.update((axis.removeprefix("*"), Name("axis", axis)) for axis in (*axes, *where))
    return found


def unknown(op: Op, path: str) -> ExpressionError:
    """Build the error for a path that means nothing over the op, with the nearest that does."""
    base, _, field = path.partition(".")
    hint = nearest(path, op.names)
    if not hint and field and any(item.name == base for item in (*op.tensors, *op.outputs)):
        hint = f"; known of a tensor: {', '.join(FIELDS)}"
    return ExpressionError(f"{op.id} has no {path!r}{hint}")
