"""Kinds: what cases are there to find, and to which ops each applies; the vocabulary is ``kinds.yml``.

Most are derived from a case: its shapes, layouts, values and attributes show them. The others are written in the
workload that has them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, Final, Literal, cast

from nbx_conformance.cases import values
from nbx_conformance.cases.casefile import Case
from nbx_registry import yamlfile
from nbx_registry.errors import FileError, nearest
from nbx_registry.op import Op, Signature
from nbx_registry.param import CLASSES
from nbx_registry.spec import TensorSpec

FILE: Final = Path(__file__).parents[1] / "kinds.yml"

MANY: Final = 2**31
"""Elements that a signed 32-bit index cannot count."""

Outcome = Literal["computed", "refused", "either"]


@dataclass(frozen=True, kw_only=True)
class Kind:
    """One kind.

    Attributes
    ----------
    means
        What a case of the kind has.
    source
        Where it has gone wrong.
    applies
        The name of a rule of `RULES`, or names of ops.
    outcome
        Which cases can cover it.
    derived
        Whether a case shows it by itself.
    """

    name: str
    means: str
    source: str
    applies: str | tuple[str, ...]
    outcome: Outcome
    derived: bool

    def applies_to(self, op: Op) -> bool:
        """Return whether an op needs a case of the kind."""
        return RULES[self.applies](op) if isinstance(self.applies, str) else op.name in self.applies

    def counts(self, case: Case) -> bool:
        """Return whether a case is computed, or refused, as the kind wants it."""
        return self.outcome == "either" or (case.refuses is not None) == (self.outcome == "refused")


@dataclass(frozen=True)
class Looked:
    """A case beside its op, as predicates see it; without a signature where it is refused."""

    op: Op
    case: Case
    signature: Signature | None

    def specs(self) -> Iterator[TensorSpec]:
        """Yield the specs of the arrays given, then those of the outputs."""
        yield from self.case.specs()
        if self.signature is not None:
            yield from self.signature.outputs

    def axis(self, name: str) -> int:
        """Return the extent of a named axis, -1 where the op has none, or the case gives none."""
        extent = None if self.signature is None else self.signature.axes.get(name)
        return extent if isinstance(extent, int) else -1

    def attribute(self, name: str) -> Any:
        """Return an attribute as the case gives it, else its default; None where the op has none."""
        return self.case.attributes.get(name, self.op.defaults.get(name))

    def strategies(self) -> Iterator[tuple[str, str, Mapping[str, Any]]]:
        """Yield, for each array given, its name and its value strategy with parameters."""
        for name, value in self.case.tensors.items():
            if isinstance(value, TensorSpec | tuple):
                yield name, *values.split(self.case.strategy(name))

    def filled(self, *names: str) -> Iterator[tuple[TensorSpec, Mapping[str, Any]]]:
        """Yield spec and parameters of each array filled by one of these strategies."""
        for tensor, name, parameters in self.strategies():
            if name in names:
                given = self.case.tensors[tensor]
                for spec in given if isinstance(given, tuple) else (given,):
                    yield cast("TensorSpec", spec), parameters


@lru_cache(maxsize=1)
def vocabulary() -> Mapping[str, Kind]:
    """Return all kinds by name. Raises `FileError` where ``kinds.yml`` and the predicates of this module differ."""
    content = cast("dict[str, Any]", yamlfile.load(FILE))
    found: dict[str, Kind] = {}
    for section in ("derived", "written"):
        for name, entry in content[section].items():
            applies = entry["applies"]
            if isinstance(applies, str) and applies not in RULES:
                raise FileError(f"{FILE}: {name} applies to {applies!r}, no rule{nearest(applies, RULES)}")
            found[name] = Kind(
                name=name,
                means=entry["means"],
                source=entry["from"],
                applies=applies if isinstance(applies, str) else tuple(applies),
                outcome=entry.get("outcome", "computed"),
                derived=section == "derived",
            )
    if set(content["derived"]) != set(PREDICATES):
        raise FileError(f"{FILE}: derived kinds and predicates differ: {set(content['derived']) ^ set(PREDICATES)}")
    return found


def of_case(op: Op, case: Case, signature: Signature | None) -> frozenset[str]:
    """Return the kinds that a case covers, of those that apply to its op.

    ``signature`` is None where the contract refuses the case.
    """
    looked = Looked(op, case, signature)
    return frozenset(
        name
        for name, kind in vocabulary().items()
        if kind.applies_to(op)
        and kind.counts(case)
        and (PREDICATES[name](looked) if kind.derived else name in case.kinds)
    )


def _awkward(c: Looked) -> bool:
    return any(extent > 32 and extent % 16 for spec in c.specs() for extent in spec.shape)


def _many_rows(c: Looked) -> bool:
    given = ((c.case.tensors.get(name), axis) for name, axis in c.case.batch.items())
    return any(isinstance(s, TensorSpec) and -s.rank <= axis < s.rank and s.shape[axis] > 32 for s, axis in given)


def _broadcast(c: Looked) -> bool:
    return len({spec.shape for spec in c.case.specs()}) > 1


def _promoted(c: Looked) -> bool:
    return len({spec.dtype for spec in c.case.specs() if spec.dtype.kind != "bool"}) > 1


def _special_pairs(c: Looked) -> bool:
    return sum("every" in parameters for _, parameters in c.filled("special")) > 1


def _steps(spec: TensorSpec) -> list[tuple[int, int]]:
    """Return stride, as a magnitude, and extent of the axes that take one anywhere, outermost first."""
    return [(abs(s), n) for s, n in zip(spec.strides, spec.shape, strict=True) if n > 1 and s]


def _transposed(spec: TensorSpec) -> bool:
    strides = [stride for stride, _ in _steps(spec)]
    return spec.size > 0 and strides != sorted(strides, reverse=True)


def _strided(spec: TensorSpec) -> bool:
    return spec.size > 0 and min(_steps(spec), default=(1, 1))[0] > 1


def _gap(spec: TensorSpec, level: int) -> bool:
    """Return whether the axis of that level, from the innermost in memory, begins later than it must."""
    steps = sorted(_steps(spec))
    if spec.size == 0 or len(steps) <= level:
        return False
    return steps[level][0] > steps[level - 1][0] * steps[level - 1][1]


def _beyond(spec: TensorSpec) -> bool:
    return spec.distinct > MANY


def _axes(c: Looked) -> tuple[int, ...] | None:
    """Return the axes that are named, or None where none is."""
    given = c.attribute("axis" if c.attribute("axes") is None else "axes")
    if isinstance(given, int):
        return (given,)
    return None if given is None else tuple(given)


def _empty_axis(c: Looked) -> bool:
    shape = next(c.case.specs(), TensorSpec).shape if c.case.tensors else ()
    axes = _axes(c)
    reduced = range(len(shape)) if axes is None else [axis for axis in axes if -len(shape) <= axis < len(shape)]
    return any(shape[axis] == 0 for axis in reduced)


def _stalling(c: Looked) -> bool:
    return any(s.dtype.name in ("float16", "bfloat16") and max(s.shape) >= 4096 for s, _ in c.filled("ones"))


def _lengths(c: Looked) -> list[int]:
    return [length for _, given in c.filled("listed") for length in given["values"]]


def _transform(c: Looked) -> int:
    given = c.attribute("n")
    return c.axis("N") if given is None else given


def _pairs(value: Any) -> tuple[int, ...]:
    return (value,) if isinstance(value, int) else tuple(value or ())


def _depth(c: Looked) -> int:
    return c.axis("K") if c.axis("K") >= 0 else 8 * c.axis("R")


def _padded(c: Looked) -> bool:
    return any(_pairs(c.attribute("padding")))


PREDICATES: Final[Mapping[str, Callable[[Looked], bool]]] = {
    "awkward": _awkward,
    "whole_blocks": lambda c: any(spec.size and spec.shape and spec.shape[-1] % 256 == 0 for spec in c.specs()),
    "many_axes": lambda c: any(spec.size and spec.rank >= 5 for spec in c.specs()),
    "many_rows": _many_rows,
    "special": lambda c: any(spec.dtype.floating for spec, _ in c.filled("special", "bits")),
    "special_pairs": _special_pairs,
    "integer_ends": lambda c: any(True for _ in c.filled("extremes")),
    "bits": lambda c: any(True for _ in c.filled("bits")),
    "scalar": lambda c: any(spec.rank == 0 for spec in c.case.specs()),
    "python_scalar": lambda c: any(isinstance(value, bool | int | float) for value in c.case.tensors.values()),
    "broadcast": _broadcast,
    "promoted": _promoted,
    "empty": lambda c: any(spec.size == 0 for spec in c.specs()),
    "expanded": lambda c: any(s == 0 and n > 1 for spec in c.case.specs() for s, n in _layout(spec)),
    "offset": lambda c: any(spec.offset > 0 and min(spec.strides, default=0) >= 0 for spec in c.case.specs()),
    "strided": lambda c: any(map(_strided, c.case.specs())),
    "reversed": lambda c: any(s < 0 for spec in c.case.specs() for s, _ in _layout(spec)),
    "transposed": lambda c: any(map(_transposed, c.case.specs())),
    "pitched": lambda c: any(_gap(spec, 1) for spec in c.case.specs()),
    "prefix": lambda c: any(_gap(spec, 2) for spec in c.case.specs()),
    "beyond_2_31": lambda c: any(map(_beyond, c.specs())),
    "beyond_2_31_transposed": lambda c: any(_beyond(spec) and _transposed(spec) for spec in c.case.specs()),
    "epilogue_beyond_2_31": lambda c: c.signature is not None and any(map(_beyond, c.signature.outputs)),
    "negative_axis": lambda c: any(axis < 0 for axis in _axes(c) or ()),
    "axis_out_of_range": lambda c: c.case.refuses == "AXIS",
    "several_axes": lambda c: len(_axes(c) or ()) > 1,
    "all_axes": lambda c: _axes(c) is None,
    "no_axes": lambda c: _axes(c) == (),
    "empty_axis": _empty_axis,
    "stalling": _stalling,
    "large_mean": lambda c: any(True for _ in c.filled("large_mean")),
    "equal_large": lambda c: any(abs(given["value"]) >= 1000 for _, given in c.filled("constant")),
    "leading_mask": lambda c: any(given.get("leading") for _, given in c.filled("mask")),
    "masked_row": lambda c: any(given.get("empty") for _, given in c.filled("mask")),
    "ragged": lambda c: len(set(_lengths(c)) - {0}) > 1,
    "empty_sequence": lambda c: 0 in _lengths(c),
    "beyond_length": lambda c: any(True for _ in c.filled("paged")),
    "odd_pages": lambda c: c.axis("page_tokens") > 0 and c.axis("page_tokens").bit_count() > 1,
    "head_127": lambda c: c.axis("D") == 127,
    "head_128": lambda c: c.axis("D") == 128,
    "head_129": lambda c: c.axis("D") == 129,
    "head_256": lambda c: c.axis("D") == 256,
    "value_width": lambda c: c.axis("Dv") != c.axis("D"),
    "grouped_heads": lambda c: c.axis("Hq") > c.axis("Hkv") > 0,
    "causal_offset": lambda c: bool(c.attribute("causal")) and c.axis("Tq") != c.axis("Tk"),
    "top_nibble": lambda c: any(spec.dtype.name == "int32" for spec, _ in c.filled("bits")),
    "constant_group": lambda c: any(True for _ in c.filled("constant", "ones")),
    "ragged_groups": lambda c: _depth(c) > 0 and _depth(c) % 128 != 0,
    "dft_4096": lambda c: _transform(c) == 4096,
    "dft_6000": lambda c: _transform(c) == 6000,
    "odd_length": lambda c: _transform(c) > 1 and _transform(c) % 2 == 1,
    "nonsquare": lambda c: c.axis("H") != c.axis("W"),
    "one_row": lambda c: c.axis("H") == 1 and c.axis("W") > 1,
    "padding": _padded,
    "padding_bfloat16": lambda c: _padded(c) and any(spec.dtype.name == "bfloat16" for spec in c.case.specs()),
    "stride": lambda c: any(step > 1 for step in _pairs(c.attribute("stride"))),
    "dilation": lambda c: any(step > 1 for step in _pairs(c.attribute("dilation"))),
    "bias": lambda c: "bias" in c.case.tensors,
}
"""By derived kind, whether a case shows it; asked only about ops that the kind applies to."""


def _layout(spec: TensorSpec) -> Iterator[tuple[int, int]]:
    return zip(spec.strides, spec.shape, strict=True)


def _may_float(op: Op) -> bool:
    return any("float" in CLASSES.get(param.dtype[:1], (param.dtype.rstrip("0123456789"),)) for param in op.tensors)


RULES: Final[Mapping[str, Callable[[Op], bool]]] = {
    "all": lambda _: True,
    "tensors": lambda op: bool(op.tensors),
    "floating": _may_float,
    "rankless": lambda op: any(param.broadcast and not param.is_list for param in op.tensors),
    "matrices": lambda op: any(param.broadcast or len(param.axes) > 1 for param in op.tensors),
    "broadcasting": lambda op: len({param.axes for param in op.tensors if param.broadcast}) > 1,
    "axes": lambda op: any(attribute.name in ("axis", "axes") for attribute in op.attributes),
}
"""Which ops a kind applies to, where it is no list: by what their schemas say."""
