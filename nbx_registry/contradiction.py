"""Conditions that no request can meet, found without one: such a kernel is a plugin's mistake."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from nbx_registry import dtypes
from nbx_registry.dtypes import DType
from nbx_registry.errors import ExpressionError
from nbx_registry.expr import Expr
from nbx_registry.schema import CLASSES
from nbx_registry.signature import FIELDS

if TYPE_CHECKING:
    from nbx_registry.op import Op

_MIRRORED = {"<": ">", "<=": ">=", ">": "<", ">=": "<=", "==": "=="}
_LETTERS_AT_ONCE = 2


def contradiction(rules: Sequence[Expr], op: Op) -> str | None:
    """Return in words why ``rules`` cannot all hold, or None where that is not evident.

    Looked at are clauses that are false whatever their names are, clauses on dtypes alone against what the schema's
    classes allow, and comparisons of one name with integers.
    """
    for rule in rules:
        value = rule.constant()
        if value is not None and not value[0]:
            return f"{rule.text!r} never holds"
    return _dtypes(rules, op) or _ranges(rules, op)


def _dtypes(rules: Sequence[Expr], op: Op) -> str | None:
    """Try every dtype of the table that the schema allows on the clauses that read nothing but dtypes."""
    concerned: list[Expr] = []
    letters: dict[str, str] = {}
    for rule in rules:
        found = {path: _dtype_of(path, op) for path in rule.names}
        if not found or None in found.values():
            continue
        both = {**letters, **{path: dtype for path, dtype in found.items() if dtype is not None}}
        if len(set(both.values())) <= _LETTERS_AT_ONCE:
            letters = both
            concerned.append(rule)
    wanted = sorted(set(letters.values()))
    for chosen in itertools.product(*(_allowed(letter) for letter in wanted)):
        values = dict(zip(wanted, chosen, strict=True))
        env = {path: values[letter] for path, letter in letters.items()}
        try:
            if all(rule.evaluate(env) for rule in concerned):
                return None
        except ExpressionError:
            # A clause that raises is a fault to report when it is met, not a contradiction.
            return None
    return f"no dtype meets {' and '.join(repr(rule.text) for rule in concerned)}"


def _dtype_of(path: str, op: Op) -> str | None:
    """Return the letter or dtype name that stands for a path's dtype, or None where the path is no required dtype."""
    name = op.names.get(path)
    if name is None:
        return None
    if name.kind == "letter":
        return name.base
    if name.field != "dtype":
        return None
    param = op.schema.param(name.base)
    if param is not None:
        return None if param.optional or param.broadcast else param.dtype
    return next(output.dtype for output in op.outputs if output.name == name.base)


def _allowed(letter: str) -> tuple[DType, ...]:
    if letter in dtypes.TABLE:
        return (dtypes.get(letter),)
    return tuple(dtype for dtype in dtypes.TABLE.values() if dtype.kind in CLASSES[letter[0]])


def _ranges(rules: Sequence[Expr], op: Op) -> str | None:
    """Intersect what comparisons of one name with integers leave of it."""
    ranges: dict[str, tuple[float, float]] = {}
    clauses: dict[str, list[str]] = {}
    for rule in rules:
        compared = _comparison(rule)
        if compared is None:
            continue
        path, operator, number = compared
        natural = _natural(path, op)
        if natural is None:
            continue
        low, high = ranges.get(path) or natural
        if operator in (">", ">=", "=="):
            low = max(low, number + (operator == ">"))
        if operator in ("<", "<=", "=="):
            high = min(high, number - (operator == "<"))
        ranges[path] = (low, high)
        clauses.setdefault(path, []).append(repr(rule.text))
        if low > high:
            return f"no {path} meets {' and '.join(clauses[path])}"
    return None


def _comparison(rule: Expr) -> tuple[str, str, int] | None:
    node = rule.node
    if node.kind != "compare" or len(node.value) != 1 or node.value[0] not in _MIRRORED:
        return None
    operator, (left, right) = node.value[0], node.children
    if left.kind == "constant" and right.kind == "name":
        left, right, operator = right, left, _MIRRORED[operator]
    if left.kind != "name" or right.kind != "constant" or type(right.value) is not int:
        return None
    return left.value, operator, right.value


def _natural(path: str, op: Op) -> tuple[float, float] | None:
    """Return what a name can be at all; None where its clauses may be passed over, or it need not be a whole number."""
    everything = (-math.inf, math.inf)
    name = op.names.get(path)
    if name is None or name.kind in ("letter", "list"):
        return None
    if name.kind == "attribute":
        attribute = op.schema.attribute(name.base)
        return everything if attribute is not None and attribute.type == "int" else None
    if name.kind == "axis":
        optional = all(p.optional for p in op.tensors if name.base in p.axes)
        return None if optional and any(name.base in p.axes for p in op.tensors) else (0, math.inf)
    param = op.schema.param(name.base)
    if param is not None and param.optional:
        return None
    if name.field == "rank":
        item = param or next(output for output in op.outputs if output.name == name.base)
        star = bool(item.axes) and str(item.axes[0]).startswith("*")
        return (len(item.axes) - 1, math.inf) if star else (len(item.axes), len(item.axes))
    return (0, math.inf) if FIELDS[name.field] in ("size", "layout") and name.field != "offset" else everything
