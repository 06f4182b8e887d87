"""Conditions that no request can meet, found without one: such a kernel is a plugin's mistake."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from nbx_registry import dtypes
from nbx_registry.dtypes import DType
from nbx_registry.errors import ExpressionError
from nbx_registry.expr import Expr
from nbx_registry.schema import CLASSES
from nbx_registry.signature import FIELDS
from nbx_registry.syntax import Node, walk

if TYPE_CHECKING:
    from nbx_registry.op import Op

_COMPARED = frozenset({"compare", "and", "or", "not", "constant", "dtype", "sequence", "name", "negative"})
"""Kinds of nodes under which a name is only compared, so that a few values of it tell all there is to tell."""
_LETTERS_AT_ONCE = 2
_MOST_TRIED = 20_000
"""How often the clauses on one name are tried at most: where that would not do, they are passed over."""
_WORDS = frozenset({"device.id", "device.vendor", "device.arch", "device.evidence_class"})
"""What is a string of every device."""


def contradiction(rules: Sequence[Expr], op: Op, runtimes: Sequence[str] = ()) -> str | None:
    """Return in words why ``rules`` cannot all hold, or None where that is not evident.

    Looked at are clauses that are false whatever their names are, clauses on dtypes alone against what the schema's
    classes allow, and clauses that compare one name with constants.

    Parameters
    ----------
    runtimes
        What ``device.runtime`` may be; anything where there are none.
    """
    for rule in rules:
        value = rule.constant()
        if value is not None and not value[0]:
            return f"{rule.text!r} never holds"
    return _dtypes(rules, op) or _values(rules, op, runtimes)


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
    """Return the letter or dtype name that stands for a path's dtype, or None where the path is no required dtype.

    What a Python scalar may stand for has a dtype that the letter does not tell: the path stands for itself.
    """
    name = op.names.get(path)
    if name is None:
        return None
    if name.kind == "letter":
        return name.base
    if name.field != "dtype":
        return None
    param = op.schema.param(name.base)
    if param is not None:
        return None if param.optional else path if param.broadcast else param.dtype
    return next(output.dtype for output in op.outputs if output.name == name.base)


def _allowed(letter: str) -> tuple[DType, ...]:
    if letter in dtypes.TABLE:
        return (dtypes.get(letter),)
    if "." in letter:
        return tuple(dtypes.TABLE.values())
    return tuple(dtype for dtype in dtypes.TABLE.values() if dtype.kind in CLASSES[letter[0]])


def _values(rules: Sequence[Expr], op: Op, runtimes: Sequence[str]) -> str | None:
    """Try, for each name, a value of every kind that clauses on that name alone can tell apart."""
    by_path: dict[str, list[Expr]] = {}
    for rule in rules:
        if len(rule.names) == 1 and rule.kinds <= _COMPARED and not _more_than_compares(rule):
            (path,) = rule.names
            by_path.setdefault(path, []).append(rule)
    for path, concerned in by_path.items():
        possible = _possible(path, op, _constants(concerned), runtimes)
        if not possible or len(possible) * len(concerned) > _MOST_TRIED:
            continue
        for count, rule in enumerate(concerned, 1):
            possible = [value for value in possible if _holds(rule, path, value)]
            if not possible:
                return f"no {path} meets {' and '.join(repr(rule.text) for rule in concerned[:count])}"
    return None


def _more_than_compares(rule: Expr) -> bool:
    """Return whether something other than a constant is negated, or a sequence holds sequences."""
    return any(
        child.kind == "sequence" if node.kind == "sequence" else child.kind != "constant"
        for node in walk(rule.node)
        if node.kind in ("sequence", "negative")
        for child in node.children
    )


def _holds(rule: Expr, path: str, value: object) -> bool:
    try:
        return bool(rule.evaluate({path: value}))
    except ExpressionError:
        # Not of a type that the clauses compare: values of other types are tried beside it.
        return False


def _constants(rules: Sequence[Expr]) -> set[object]:
    found: set[object] = set()
    for node in (node for rule in rules for node in walk(rule.node)):
        if node.kind in ("constant", "dtype", "negative"):
            found.add(_literal(node))
        elif node.kind == "sequence":
            found.add(tuple(_literal(child) for child in node.children))
    return found


def _literal(node: Node) -> Any:
    return -node.children[0].value if node.kind == "negative" else node.value


def _possible(path: str, op: Op, constants: set[object], runtimes: Sequence[str]) -> list[object]:
    """Return values that a name may have, at least one of each kind that comparisons with ``constants`` tell apart.

    Empty where nothing is known of the name, or its clauses may be passed over.
    """
    integers, numbers, words = _representatives(constants)
    if path == "device.runtime":
        return list(runtimes) or words
    if path in _WORDS:
        return words
    if path.startswith("device."):
        # A capability may be a table, in which something is looked for.
        return [*numbers, *words, True, False, *constants, tuple(constants)]
    name = op.names.get(path)
    if name is None or name.kind in ("letter", "list"):
        return []
    if name.kind == "attribute":
        attribute = op.schema.attribute(name.base)
        of_type = {
            "int": integers,
            "float": numbers,
            "bool": [True, False],
            "str": words,
            "dtype": list(dtypes.TABLE.values()),
        }
        if attribute is None or any(kind not in of_type for kind in attribute.kinds):
            return []
        found = [value for kind in attribute.kinds for value in of_type[kind]]
        return [*found, None] if attribute.nullable else found
    if name.kind == "axis":
        having = [param for param in op.tensors if name.base in param.axes]
        return [] if having and all(param.optional for param in having) else _within(integers, 0, math.inf)
    param = op.schema.param(name.base)
    if param is not None and param.optional:
        return []
    field = FIELDS[name.field]
    if field == "rank":
        item = param or next(output for output in op.outputs if output.name == name.base)
        star = bool(item.axes) and str(item.axes[0]).startswith("*")
        return _within(integers, len(item.axes) - star, math.inf if star else len(item.axes))
    if name.field in ("weak", "contiguous", "given"):
        return [True, False]
    if field not in ("size", "layout") or name.field in ("shape", "strides"):
        return []
    return list(integers) if name.field == "offset" else _within(integers, 0, math.inf)


def _representatives(constants: set[object]) -> tuple[list[object], list[object], list[object]]:
    """Return integers, numbers and words: the constants, and one between and beyond them."""
    known = sorted({c for c in constants if isinstance(c, (int, float)) and not isinstance(c, bool)} or {0})
    between = [(low + high) / 2 for low, high in itertools.pairwise(known)]
    integers = sorted({math.floor(c) + step for c in known for step in (-1, 0, 1, 2)})
    words = sorted(c for c in constants if isinstance(c, str))
    # The next word behind each, none, and one that holds them all.
    others = [*(f"{word}\0" for word in words), "", "\0".join(["\0", *words])]
    return list(integers), [*integers, *known, *between], [*words, *others]


def _within(integers: Sequence[object], low: float, high: float) -> list[object]:
    return [
        low,
        *(n for n in integers if isinstance(n, int) and low <= n <= high),
        *([high] if high != math.inf else []),
    ]
