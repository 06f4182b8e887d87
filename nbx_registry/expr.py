"""The one expression language: arithmetic, comparison, logic over named values, for schemas, costs and conditions.

Text is tokenised and parsed by `nbx_registry.syntax`, never by Python, so that nothing written in it can reach an
object: a name is a dotted path that the user of the expression resolves, and the functions are those of `FUNCTIONS`.
Only then is it turned into Python source, which is fast to run. Text, nesting and the size of numbers are bounded.
"""

from __future__ import annotations

import builtins
import math
from collections.abc import Callable, Iterator, Mapping
from functools import cached_property, lru_cache
from typing import Any

from nbx_registry import dtypes
from nbx_registry.dtypes import DType
from nbx_registry.errors import ExpressionError, MissingFact, NbxError, nearest
from nbx_registry.syntax import ARITHMETIC, MAX_BITS, Node, parse_tree, walk

Environment = Mapping[str, Any] | Callable[[str], Any]


def _cdiv(a: int, b: int) -> int:
    return -(-a // b)


def _clamp(x: int, low: int, high: int) -> int:
    return max(low, min(x, high))


def _prod(values: Any) -> Any:
    result = 1
    for value in values:
        result = _bounded(result * +value)
    return result


def _bits(dtype: object) -> int:
    if not isinstance(dtype, DType):
        raise TypeError(f"bits() takes a dtype, not {dtype!r}")
    return dtype.bits


def _power(base: Any, exponent: Any) -> Any:
    base, exponent = +base, +exponent
    if isinstance(base, int) and isinstance(exponent, int):
        if exponent >= 0 and (base.bit_length() - 1) * exponent >= MAX_BITS and base not in (-1, 0, 1):
            raise OverflowError(f"{base} ** {exponent} passes 2**{MAX_BITS}")
        if base in (-1, 0, 1) and exponent > 1:
            exponent = 2 - exponent % 2
    elif base < 0 and exponent != math.floor(exponent):
        raise ValueError(f"{base} ** {exponent} is no real number")
    return _bounded(base**exponent)


def _bounded(value: Any) -> Any:
    if isinstance(value, int) and value.bit_length() > MAX_BITS:
        raise OverflowError(f"a number passes 2**{MAX_BITS}")
    return value


FUNCTIONS: dict[str, Callable[..., Any]] = {
    "min": builtins.min,
    "max": builtins.max,
    "cdiv": _cdiv,
    "clamp": _clamp,
    "prod": _prod,
    "len": builtins.len,
    "bits": _bits,
}
"""The functions of the language, and nothing else."""


def namespace() -> dict[str, Any]:
    """Return fresh globals for Python source made by `Expr.source`: the functions and dtypes it refers to."""
    return dict(_namespace(len(dtypes.TABLE)))


@lru_cache(maxsize=2)
def _namespace(_dtypes: int) -> dict[str, Any]:
    # Dtypes are only ever added, so their number tells one table from the next.
    named = {f"dtype_{name}": dtype for name, dtype in dtypes.TABLE.items()}
    return {"__builtins__": {}, "_power": _power, **FUNCTIONS, **named}


class Expr:
    """A parsed expression.

    Attributes
    ----------
    text : str
    names : frozenset of str
        The dotted paths it reads: ``C``, ``x.dtype``, ``device.memory.bytes``.
    """

    def __init__(self, text: str, node: Node, whole: str) -> None:
        self.text = text
        self.node = node
        self._whole = whole
        self.names: frozenset[str] = frozenset(n.value for n in walk(node) if n.kind == "name")

    def __repr__(self) -> str:
        return f"Expr({self.text!r})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Expr) and other.text == self.text

    def __hash__(self) -> int:
        return hash(self.text)

    @cached_property
    def truths(self) -> frozenset[str]:
        """The names whose truth is asked for, rather than a value compared or computed with."""
        return frozenset(_truths(self.node))

    @cached_property
    def containers(self) -> frozenset[str]:
        """The names in which something is looked for with ``in``."""
        found: set[str] = set()
        for node in walk(self.node):
            if node.kind == "compare":
                pairs = zip(node.value, node.children[1:], strict=True)
                found.update(n.value for word, n in pairs if word in ("in", "not in") and n.kind == "name")
        return frozenset(found)

    @cached_property
    def kinds(self) -> frozenset[str]:
        """The kinds of nodes it has; see `Node`."""
        return frozenset(n.kind for n in walk(self.node))

    def clauses(self) -> tuple[Expr, ...]:
        """Split at the top-level ``and``; an expression without one is its only clause."""
        if self.node.kind != "and":
            return (self,)
        parts: list[Expr] = []
        for child in self.node.children:
            parts.extend(Expr(self._whole[child.start : child.end], child, self._whole).clauses())
        return tuple(parts)

    def source(self, resolve: Callable[[str], str], number: Callable[[int | float], str] = repr) -> str:
        """Return Python source that computes it, each name path replaced by ``resolve(path)``.

        Numbers outside lists are written as ``number`` has them. The source refers to what `namespace` returns. It may
        raise TypeError, ValueError, ZeroDivisionError, OverflowError or IndexError, and whatever the resolved names
        raise.
        """
        return _source(self.node, resolve, number)

    def evaluate(self, env: Environment) -> Any:
        """Compute it. ``env`` maps name paths to values, or is called with them.

        Raises `ExpressionError` naming the expression and the cause; errors of ours that ``env`` raises pass.
        """
        get = self._getter(env)
        try:
            return _bounded(self._function(get))
        except NbxError:
            raise
        except (TypeError, ValueError, ZeroDivisionError, OverflowError, IndexError) as error:
            raise ExpressionError(f"{self.explain(env)}: {error}") from error

    def explain(self, env: Environment) -> str:
        """Return the text with the values of its names: ``D <= 256 (D = 320)``."""
        get = self._getter(env)
        values: list[str] = []
        for name in sorted(self.names, key=self._first):
            try:
                values.append(f"{name} = {_shown(get(name))}")
            except MissingFact:
                values.append(f"{name} unknown")
        return f"{self.text} ({', '.join(values)})" if values else self.text

    def constant(self) -> tuple[Any] | None:
        """Return its value, in a tuple, where it is the same whatever the names are; else None."""
        return _constant(self.node)

    @cached_property
    def _function(self) -> Callable[[Callable[[str], Any]], Any]:
        code = f"lambda get: {self.source(lambda path: f'get({path!r})')}"
        return eval(code, namespace())

    def _first(self, name: str) -> int:
        return next(n.start for n in walk(self.node) if n.kind == "name" and n.value == name)

    def _getter(self, env: Environment) -> Callable[[str], Any]:
        if callable(env):
            return env
        known: Mapping[str, Any] = env

        def get(path: str) -> Any:
            try:
                return known[path]
            except KeyError:
                raise ExpressionError(
                    f"expression {self.text!r} reads the unknown name {path!r}{nearest(path, known)}"
                ) from None

        return get


@lru_cache(maxsize=4096)
def parse(text: str) -> Expr:
    """Parse an expression. Raises `ExpressionError` with the text and the position of what is wrong."""
    return Expr(text.strip(" \t\n"), parse_tree(text), text)


def _truths(node: Node) -> Iterator[str]:
    if node.kind == "name":
        yield node.value
    elif node.kind in ("and", "or", "not"):
        for child in node.children:
            yield from _truths(child)


def _source(node: Node, resolve: Callable[[str], str], number: Callable[[int | float], str] = repr) -> str:
    kind = node.kind
    if kind == "constant":
        return number(node.value) if type(node.value) in (int, float) else repr(node.value)
    if kind == "dtype":
        return f"dtype_{node.value.name}"
    if kind == "name":
        return resolve(node.value)
    # Python keeps a list of literals as it is; one of variables it would make anew each time.
    inner = repr if kind == "sequence" else number
    parts = [_source(child, resolve, inner) for child in node.children]
    if kind == "index":
        return f"{parts[0]}[{node.value}]"
    if kind == "sequence":
        return f"({''.join(part + ', ' for part in parts)})"
    if kind == "call":
        return f"{node.value}({', '.join(parts)})"
    if kind == "compare":
        return f"({parts[0]}{''.join(f' {o} {p}' for o, p in zip(node.value, parts[1:], strict=True))})"
    if kind in ("and", "or"):
        return f"({f' {kind} '.join(parts)})"
    if kind == "not":
        return f"(not {parts[0]})"
    # Unary plus is what refuses strings, tuples and dtypes in arithmetic: '-' * 10**12 must not allocate.
    numbers = [part if _numeric(child) else f"+{part}" for child, part in zip(node.children, parts, strict=True)]
    if kind == "**":
        return f"_power({numbers[0]}, {numbers[1]})"
    if kind in ("negative", "positive"):
        return f"({'-' if kind == 'negative' else '+'}{parts[0]})"
    return f"({numbers[0]} {kind} {numbers[1]})"


def _numeric(node: Node) -> bool:
    """Whether the node's value can only be a number."""
    if node.kind == "constant":
        return isinstance(node.value, (int, float))
    return node.kind in ARITHMETIC or node.kind in ("negative", "positive")


def _constant(node: Node) -> tuple[Any] | None:
    """Fold what does not depend on names: literals, logic decided by one side, membership in nothing."""
    if node.kind in ("and", "or"):
        decided = node.kind == "or"
        values = [_constant(child) for child in node.children]
        if any(value is not None and bool(value[0]) is decided for value in values):
            return (decided,)
        return (not decided,) if all(value is not None for value in values) else None
    if node.kind == "not":
        value = _constant(node.children[0])
        return None if value is None else (not value[0],)
    if node.kind == "compare" and node.value[0] in ("in", "not in") and len(node.value) == 1:
        container = node.children[1]
        if container.kind == "sequence" and not container.children:
            return (node.value[0] == "not in",)
    if any(child.kind == "name" for child in walk(node)):
        return None
    try:
        return (eval(_source(node, str), namespace()),)
    except (TypeError, ValueError, ZeroDivisionError, OverflowError, IndexError):
        return None


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 80 else text[:77] + "..."
