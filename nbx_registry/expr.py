"""The one expression language: arithmetic, comparison, logic over named values, for schemas, costs and conditions.

Text is tokenised and parsed here, never by Python, so that nothing written in it can reach an object: a name is a
dotted path that the user of the expression resolves, and the functions are those of `FUNCTIONS`. Only then is it
turned into Python source, which is fast to run. Text, nesting and the size of numbers are bounded.
"""

from __future__ import annotations

import builtins
import keyword
import math
import re
from collections.abc import Callable, Iterator, Mapping
from functools import cached_property, lru_cache
from typing import Any, NamedTuple

from nbx_registry import dtypes
from nbx_registry.dtypes import DType
from nbx_registry.errors import ExpressionError, MissingFact, NbxError, nearest

MAX_TEXT = 2000
MAX_DEPTH = 40
MAX_BITS = 128
"""Literals, powers, products and results stay below ``2**MAX_BITS`` in magnitude."""

Environment = Mapping[str, Any] | Callable[[str], Any]


# The functions of the language --------------------------------------------------------------------------------------


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

_ARGUMENTS = {"min": (1, 32), "max": (1, 32), "cdiv": (2, 2), "clamp": (3, 3), "prod": (1, 1), "len": (1, 1)}
_ARGUMENTS["bits"] = (1, 1)


def namespace() -> dict[str, Any]:
    """Return fresh globals for Python source made by `Expr.source`: the functions and dtypes it refers to."""
    return dict(_namespace(len(dtypes.TABLE)))


@lru_cache(maxsize=2)
def _namespace(_dtypes: int) -> dict[str, Any]:
    # Dtypes are only ever added, so their number tells one table from the next.
    named = {f"dtype_{name}": dtype for name, dtype in dtypes.TABLE.items()}
    return {"__builtins__": {}, "_power": _power, **FUNCTIONS, **named}


# Tokens and the tree ------------------------------------------------------------------------------------------------

_TOKEN = re.compile(
    r"[ \t\n]*(?:"
    r"(?P<number>(?:[0-9]+\.[0-9]*|\.[0-9]+|[0-9]+)(?:[eE][-+]?[0-9]+)?)"
    r"|(?P<name>[A-Za-z_][A-Za-z0-9_]*(?:\.[A-Za-z_][A-Za-z0-9_]*)*)"
    r"|(?P<string>'[^'\\\n]*'|\"[^\"\\\n]*\")"
    r"|(?P<operator>\*\*|//|<=|>=|==|!=|[-+*/%<>()\[\],])"
    r")"
)
_BLANK = re.compile(r"[ \t\n]*\Z")
_COMPARISONS = frozenset({"<", "<=", ">", ">=", "==", "!="})
_CONSTANTS = {"True": True, "False": False, "None": None}
_WORDS = frozenset({"and", "or", "not", "in"})
_KEYWORDS = frozenset(keyword.kwlist) - _WORDS - _CONSTANTS.keys()
# Precedence of the binary arithmetic operators; all but ** associate to the left.
_PRECEDENCE = {"+": 1, "-": 1, "*": 2, "/": 2, "//": 2, "%": 2}
_ARITHMETIC = frozenset({"+", "-", "*", "/", "//", "%", "**"})


class Node(NamedTuple):
    """One node of the tree.

    ``kind`` is constant, dtype, name, index, sequence, call, negative, positive, not, and, or, compare, or an
    arithmetic operator; ``value`` the constant, dtype, path, index, function name or comparison operators.
    """

    kind: str
    value: Any
    children: tuple[Node, ...]
    start: int
    end: int
    depth: int


class _Token(NamedTuple):
    kind: str
    text: str
    start: int
    end: int


def _fail(text: str, position: int, why: str) -> ExpressionError:
    shown = text if len(text) <= 200 else text[:200] + "..."
    return ExpressionError(f"expression {shown!r}, position {position}: {why}")


def _tokens(text: str) -> list[_Token]:
    found: list[_Token] = []
    position = 0
    while not _BLANK.match(text, position):
        match = _TOKEN.match(text, position)
        if match is None:
            at = position + len(text[position:]) - len(text[position:].lstrip(" \t\n"))
            raise _fail(text, at, f"{text[at]!r} is not understood")
        kind = match.lastgroup or ""
        found.append(_Token(kind, match[kind], match.start(kind), match.end()))
        position = match.end()
    found.append(_Token("end", "", len(text), len(text)))
    return found


class _Parser:
    """Recursive descent; every level of nesting passes `_node` or `_deeper`, which bound it."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.tokens = _tokens(text)
        self.at = 0
        self.nesting = 0

    def parse(self) -> Node:
        node = self._or()
        if self.tokens[self.at].kind != "end":
            raise self._unexpected("an operator or the end")
        return node

    def _unexpected(self, wanted: str) -> ExpressionError:
        token = self.tokens[self.at]
        got = f"{token.text!r}" if token.kind != "end" else "the end"
        return _fail(self.text, token.start, f"expected {wanted}, not {got}")

    def _node(self, kind: str, value: Any, children: tuple[Node, ...], start: int, end: int) -> Node:
        depth = 1 + max((child.depth for child in children), default=0)
        if depth > MAX_DEPTH:
            raise _fail(self.text, start, f"nested more than {MAX_DEPTH} deep")
        return Node(kind, value, children, start, end, depth)

    def _enter(self) -> None:
        self.nesting += 1
        if self.nesting > MAX_DEPTH:
            raise _fail(self.text, self.tokens[self.at].start, f"nested more than {MAX_DEPTH} deep")

    def _take(self, text: str) -> bool:
        token = self.tokens[self.at]
        if token.text == text and token.kind in ("operator", "name"):
            self.at += 1
            return True
        return False

    def _or(self) -> Node:
        return self._joined("or", self._and)

    def _and(self) -> Node:
        return self._joined("and", self._not)

    def _joined(self, word: str, part: Callable[[], Node]) -> Node:
        first = part()
        if self.tokens[self.at].text != word:
            return first
        parts = [first]
        while self._take(word):
            parts.append(part())
        return self._node(word, None, tuple(parts), first.start, parts[-1].end)

    def _not(self) -> Node:
        start = self.tokens[self.at].start
        if not self._take("not"):
            return self._comparison()
        self._enter()
        child = self._not()
        self.nesting -= 1
        return self._node("not", None, (child,), start, child.end)

    def _comparison(self) -> Node:
        first = self._arithmetic(1)
        operators: list[str] = []
        parts = [first]
        while True:
            token = self.tokens[self.at]
            if token.kind == "operator" and token.text in _COMPARISONS:
                self.at += 1
                operators.append(token.text)
            elif token.text == "in" and token.kind == "name":
                self.at += 1
                operators.append("in")
            elif token.text == "not" and token.kind == "name" and self.tokens[self.at + 1].text == "in":
                self.at += 2
                operators.append("not in")
            else:
                break
            parts.append(self._arithmetic(1))
        if not operators:
            return first
        return self._node("compare", tuple(operators), tuple(parts), first.start, parts[-1].end)

    def _arithmetic(self, least: int) -> Node:
        left = self._unary()
        while True:
            token = self.tokens[self.at]
            precedence = _PRECEDENCE.get(token.text, 0) if token.kind == "operator" else 0
            if precedence < least:
                return left
            self.at += 1
            right = self._arithmetic(precedence + 1)
            left = self._node(token.text, None, (left, right), left.start, right.end)

    def _unary(self) -> Node:
        token = self.tokens[self.at]
        if token.kind == "operator" and token.text in ("-", "+"):
            self.at += 1
            self._enter()
            child = self._unary()
            self.nesting -= 1
            return self._node("negative" if token.text == "-" else "positive", None, (child,), token.start, child.end)
        base = self._indexed()
        if self._take("**"):
            self._enter()
            exponent = self._unary()
            self.nesting -= 1
            return self._node("**", None, (base, exponent), base.start, exponent.end)
        return base

    def _indexed(self) -> Node:
        node = self._atom()
        while node.kind in ("name", "index", "sequence") and self._take("["):
            negative = self._take("-")
            token = self.tokens[self.at]
            if token.kind != "number" or not token.text.isdigit() or len(token.text) > 9:
                raise self._unexpected("an integer index")
            self.at += 1
            if not self._take("]"):
                raise self._unexpected("']'")
            index = -int(token.text) if negative else int(token.text)
            node = self._node("index", index, (node,), node.start, self.tokens[self.at - 1].end)
        return node

    def _atom(self) -> Node:
        token = self.tokens[self.at]
        if token.kind == "number":
            self.at += 1
            return self._node("constant", self._number(token), (), token.start, token.end)
        if token.kind == "string":
            self.at += 1
            return self._node("constant", token.text[1:-1], (), token.start, token.end)
        if token.kind == "name" and token.text not in _WORDS:
            return self._named(token)
        if token.text in ("(", "["):
            return self._group(token)
        raise self._unexpected("a value")

    def _number(self, token: _Token) -> int | float:
        if not token.text.isdigit():
            value = float(token.text)
            if math.isinf(value):
                raise _fail(self.text, token.start, "the number is out of range")
            return value
        if len(token.text) > 39 or int(token.text).bit_length() > MAX_BITS:
            raise _fail(self.text, token.start, f"the number passes 2**{MAX_BITS}")
        return int(token.text)

    def _named(self, token: _Token) -> Node:
        self.at += 1
        path = token.text
        if path in _CONSTANTS:
            return self._node("constant", _CONSTANTS[path], (), token.start, token.end)
        if self._take("("):
            return self._call(token)
        for part in path.split("."):
            if part.startswith("_") or part in _KEYWORDS or part in _WORDS or part in _CONSTANTS:
                raise _fail(self.text, token.start, f"{part!r} is no name")
        if path in dtypes.TABLE:
            return self._node("dtype", dtypes.TABLE[path], (), token.start, token.end)
        return self._node("name", path, (), token.start, token.end)

    def _call(self, token: _Token) -> Node:
        limits = _ARGUMENTS.get(token.text)
        if limits is None:
            known = ", ".join(FUNCTIONS)
            hint = nearest(token.text, FUNCTIONS)
            raise _fail(self.text, token.start, f"unknown function {token.text!r}{hint}; the functions are {known}")
        arguments, end, _ = self._items(")")
        if not limits[0] <= len(arguments) <= limits[1]:
            least, most = limits
            wanted = f"{least}" if least == most else f"{least} to {most}"
            raise _fail(self.text, token.start, f"{token.text}() takes {wanted} arguments, not {len(arguments)}")
        return self._node("call", token.text, tuple(arguments), token.start, end)

    def _group(self, token: _Token) -> Node:
        self.at += 1
        closing = ")" if token.text == "(" else "]"
        items, end, comma = self._items(closing)
        if closing == ")" and len(items) == 1 and not comma:
            return items[0]._replace(start=token.start, end=end)
        return self._node("sequence", None, tuple(items), token.start, end)

    def _items(self, closing: str) -> tuple[list[Node], int, bool]:
        self._enter()
        items: list[Node] = []
        comma = True
        while not self._take(closing):
            if not comma:
                raise self._unexpected(f"',' or {closing!r}")
            items.append(self._or())
            comma = self._take(",")
        self.nesting -= 1
        return items, self.tokens[self.at - 1].end, comma and bool(items)


# What users of the language hold ------------------------------------------------------------------------------------


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
        self.names: frozenset[str] = frozenset(n.value for n in _walk(node) if n.kind == "name")

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
        for node in _walk(self.node):
            if node.kind == "compare":
                pairs = zip(node.value, node.children[1:], strict=True)
                found.update(n.value for word, n in pairs if word in ("in", "not in") and n.kind == "name")
        return frozenset(found)

    @cached_property
    def kinds(self) -> frozenset[str]:
        """The kinds of nodes it has; see `Node`."""
        return frozenset(n.kind for n in _walk(self.node))

    def clauses(self) -> tuple[Expr, ...]:
        """Split at the top-level ``and``; an expression without one is its only clause."""
        if self.node.kind != "and":
            return (self,)
        parts: list[Expr] = []
        for child in self.node.children:
            parts.extend(Expr(self._whole[child.start : child.end], child, self._whole).clauses())
        return tuple(parts)

    def source(self, resolve: Callable[[str], str]) -> str:
        """Return Python source that computes it, each name path replaced by ``resolve(path)``.

        The source refers to what `namespace` returns. It may raise TypeError, ValueError, ZeroDivisionError,
        OverflowError or IndexError, and whatever the resolved names raise.
        """
        return _source(self.node, resolve)

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
        return next(n.start for n in _walk(self.node) if n.kind == "name" and n.value == name)

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
    if len(text) > MAX_TEXT:
        raise ExpressionError(f"expression of {len(text)} characters; at most {MAX_TEXT}")
    if not text.isascii():
        at = next(i for i, character in enumerate(text) if not character.isascii())
        raise _fail(text, at, f"{text[at]!r} is not ASCII")
    return Expr(text.strip(" \t\n"), _Parser(text).parse(), text)


def _walk(node: Node) -> Iterator[Node]:
    yield node
    for child in node.children:
        yield from _walk(child)


def _truths(node: Node) -> Iterator[str]:
    if node.kind == "name":
        yield node.value
    elif node.kind in ("and", "or", "not"):
        for child in node.children:
            yield from _truths(child)


def _source(node: Node, resolve: Callable[[str], str]) -> str:
    kind = node.kind
    if kind == "constant":
        return repr(node.value)
    if kind == "dtype":
        return f"dtype_{node.value.name}"
    if kind == "name":
        return resolve(node.value)
    parts = [_source(child, resolve) for child in node.children]
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
    return node.kind in _ARITHMETIC or node.kind in ("negative", "positive")


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
    if any(child.kind == "name" for child in _walk(node)):
        return None
    try:
        return (eval(_source(node, str), namespace()),)
    except (TypeError, ValueError, ZeroDivisionError, OverflowError, IndexError):
        return None


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 80 else text[:77] + "..."
