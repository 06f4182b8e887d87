"""The syntax of expressions: tokens, the tree, and the parser that makes it, within limits."""

from __future__ import annotations

import keyword
import math
import re
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from nbx_registry import dtypes
from nbx_registry.errors import ExpressionError, nearest

MAX_TEXT = 2000
MAX_DEPTH = 40
MAX_BITS = 128
"""Literals, powers, products and results stay below ``2**MAX_BITS`` in magnitude."""

_ARGUMENTS = {
    "min": (1, 32),
    "max": (1, 32),
    "cdiv": (2, 2),
    "clamp": (3, 3),
    "prod": (1, 1),
    "len": (1, 1),
    "bits": (1, 1),
}
"""The functions of the language, each with how many arguments it takes at least and at most."""

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
ARITHMETIC = frozenset({"+", "-", "*", "/", "//", "%", "**"})


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


def error_at(text: str, position: int, why: str) -> ExpressionError:
    """Build the error for what is wrong at a position."""
    shown = text if len(text) <= 200 else text[:200] + "..."
    return ExpressionError(f"expression {shown!r}, position {position}: {why}")


def _tokens(text: str) -> list[_Token]:
    found: list[_Token] = []
    position = 0
    while not _BLANK.match(text, position):
        match = _TOKEN.match(text, position)
        if match is None:
            at = position + len(text[position:]) - len(text[position:].lstrip(" \t\n"))
            raise error_at(text, at, f"{text[at]!r} is not understood")
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
        return error_at(self.text, token.start, f"expected {wanted}, not {got}")

    def _node(self, kind: str, value: Any, children: tuple[Node, ...], start: int, end: int) -> Node:
        depth = 1 + max((child.depth for child in children), default=0)
        if depth > MAX_DEPTH:
            raise error_at(self.text, start, f"nested more than {MAX_DEPTH} deep")
        return Node(kind, value, children, start, end, depth)

    def _enter(self) -> None:
        self.nesting += 1
        if self.nesting > MAX_DEPTH:
            raise error_at(self.text, self.tokens[self.at].start, f"nested more than {MAX_DEPTH} deep")

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
                raise error_at(self.text, token.start, "the number is out of range")
            return value
        if len(token.text) > 39 or int(token.text).bit_length() > MAX_BITS:
            raise error_at(self.text, token.start, f"the number passes 2**{MAX_BITS}")
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
                raise error_at(self.text, token.start, f"{part!r} is no name")
        if path in dtypes.TABLE:
            return self._node("dtype", dtypes.TABLE[path], (), token.start, token.end)
        return self._node("name", path, (), token.start, token.end)

    def _call(self, token: _Token) -> Node:
        limits = _ARGUMENTS.get(token.text)
        if limits is None:
            known = ", ".join(_ARGUMENTS)
            hint = nearest(token.text, _ARGUMENTS)
            raise error_at(self.text, token.start, f"unknown function {token.text!r}{hint}; the functions are {known}")
        arguments, end, _ = self._items(")")
        if not limits[0] <= len(arguments) <= limits[1]:
            least, most = limits
            wanted = f"{least}" if least == most else f"{least} to {most}"
            raise error_at(self.text, token.start, f"{token.text}() takes {wanted} arguments, not {len(arguments)}")
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


def parse_tree(text: str) -> Node:
    """Parse an expression. Raises `ExpressionError` with the text and the position of what is wrong."""
    if len(text) > MAX_TEXT:
        raise ExpressionError(f"expression of {len(text)} characters; at most {MAX_TEXT}")
    if not text.isascii():
        at = next(i for i, character in enumerate(text) if not character.isascii())
        raise error_at(text, at, f"{text[at]!r} is not ASCII")
    return _Parser(text).parse()


def walk(node: Node) -> Iterator[Node]:
    """Yield the node and all below it."""
    yield node
    for child in node.children:
        yield from walk(child)
