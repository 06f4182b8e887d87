"""Schema strings: an op's name, version, tensors, attributes and outputs, as one readable line.

::

    depthwise_conv2d@1(x: F[N, C, H, W], w: F[C, 1, KH, KW], bias: F[C]? = None, *,
                       stride: int[2] = 1, padding: int[2] = 0, dilation: int[2] = 1) -> F[N, C, OH, OW]
    paged_kv_append@1(new: F1[N, H, D], slot: int32[N], pool: mut F2[P, H, T, D], *, saturate: bool = False) -> ()
    concat@1(arrays: list[*T1[*X]], *, axis: int? = 0) -> T2[*Y]
    sdm::wy_solve@1(A: float32[N, C, C], ...) -> (X: float32[N, C, C], QX: float32[N, C, C])

A dtype is a class letter, with digits where one schema needs several of a class, or a name of the dtype table. The
tensors of a list have one dtype, unless ``*`` stands before its letter: then each has its own of that class. An axis
is a name, a literal, or (first only) ``*B``: any number of leading axes; an output's may be an expression. An
attribute's type is ``int``, ``float``, ``bool``, ``str``, ``dtype``, ``int[]``, ``int[2]``, or several of the first
three (``int|float``), whose values are told apart: ``full`` of 1, of 1.0 and of True differ.
"""

from __future__ import annotations

import keyword
import re
from dataclasses import dataclass
from typing import NamedTuple

from nbx_registry import dtypes, expr
from nbx_registry.errors import ExpressionError, SchemaError, nearest
from nbx_registry.head import HEAD, NAME
from nbx_registry.param import (
    CLASS_NAMES,
    CLASSES,
    LETTER,
    REQUIRED,
    Attribute,
    Axis,
    Default,
    Output,
    Param,
    tensor_text,
)
from nbx_registry.spec import MAX_RANK

__all__ = [
    "CLASSES",
    "CLASS_NAMES",
    "REQUIRED",
    "RESERVED",
    "Attribute",
    "Axis",
    "Output",
    "Param",
    "Schema",
    "parse",
]

MAX_TEXT = 4000
MAX_ITEMS = 64

RESERVED = frozenset({"out", "device", "kernel", "require"})
"""Keywords of every call; no op may name anything so."""


@dataclass(frozen=True, slots=True)
class Schema:
    """A parsed schema string."""

    name: str
    """``add``, or with a namespace ``sdm::wy_solve``."""
    version: int
    params: tuple[Param, ...]
    attributes: tuple[Attribute, ...]
    outputs: tuple[Output, ...]

    def param(self, name: str) -> Param | None:
        """Return the tensor parameter of that name, or None."""
        return next((p for p in self.params if p.name == name), None)

    def attribute(self, name: str) -> Attribute | None:
        """Return the attribute of that name, or None."""
        return next((a for a in self.attributes if a.name == name), None)

    @property
    def scalars(self) -> bool:
        """Whether a Python scalar may stand for a tensor that broadcasts: its dtype is that of an array beside it."""
        return sum(p.broadcast for p in self.params) > 1

    def input_axes(self) -> tuple[str, ...]:
        """Names of the axes that the parameters bind, in order; leading axes as ``*B``."""
        seen: dict[str, None] = {}
        for param in self.params:
            seen.update((axis, None) for axis in param.axes if isinstance(axis, str))
        return tuple(seen)

    def __str__(self) -> str:
        items = [str(p) for p in self.params]
        if self.attributes:
            items += ["*", *(str(a) for a in self.attributes)]
        if len(self.outputs) == 1 and self.outputs[0].name == "out":
            result = tensor_text(self.outputs[0].dtype, self.outputs[0].axes)
        else:
            result = f"({', '.join(str(o) for o in self.outputs)})"
        return f"{self.name}@{self.version}({', '.join(items)}) -> {result}"


def parse(text: str) -> Schema:
    """Parse a schema string. Raises `SchemaError` naming the schema, the position and the way out."""
    if len(text) > MAX_TEXT:
        raise SchemaError(f"schema of {len(text)} characters; at most {MAX_TEXT}")
    return _Parser(text).schema()


_TOKEN = re.compile(
    r"[ \t\n]*(?:"
    r"(?P<number>-?(?:[0-9]+\.[0-9]*|\.[0-9]+|[0-9]+)(?:[eE][-+]?[0-9]+)?)"
    rf"|(?P<name>{NAME})"
    r"|(?P<string>'[^'\\\n]*'|\"[^\"\\\n]*\")"
    r"|(?P<operator>->|[-+*/%()\[\],:?=|])"
    r"|(?P<end>\Z)"
    r")"
)
_PLAIN = re.compile(NAME + r"\Z")


class _Token(NamedTuple):
    kind: str
    text: str
    start: int
    end: int


class _Parser:
    def __init__(self, text: str) -> None:
        self.text = text
        head = HEAD.match(text)
        if head is None:
            raise SchemaError(
                f"schema {text[:80]!r}, position 0: it must begin with 'name@version(' or 'namespace::name@version('"
            )
        self.name, self.version = head[1], int(head[2])
        self.position = head.end()
        self.token = self._scan()
        self.end_of_last = self.position
        # What each name of the schema is, so that no two things share one.
        self.taken: dict[str, str] = {}

    # Tokens

    def _scan(self) -> _Token:
        match = _TOKEN.match(self.text, self.position)
        if match is None:
            at = self.position + len(self.text[self.position :]) - len(self.text[self.position :].lstrip(" \t\n"))
            raise self._error(f"{self.text[at]!r} is not understood", at)
        kind = match.lastgroup or ""
        self.position = match.end()
        return _Token(kind, match[kind], match.start(kind), match.end())

    def _error(self, why: str, position: int | None = None) -> SchemaError:
        at = self.token.start if position is None else position
        around = self.text[max(0, at - 20) : at + 20]
        return SchemaError(f"schema of {self.name}@{self.version}, position {at} (near {around!r}): {why}")

    def _advance(self) -> _Token:
        token = self.token
        self.end_of_last = token.end
        self.token = self._scan()
        return token

    def _take(self, text: str) -> bool:
        if self.token.text == text and self.token.kind in ("operator", "name"):
            self._advance()
            return True
        return False

    def _expect(self, text: str) -> None:
        if not self._take(text):
            got = repr(self.token.text) if self.token.kind != "end" else "the end"
            raise self._error(f"expected {text!r}, not {got}")

    def _identifier(self, what: str) -> _Token:
        token = self.token
        if token.kind != "name":
            raise self._error(
                f"expected the name of {what}, not {token.text!r}" if token.text else f"{what} is missing"
            )
        return self._advance()

    def _claim(self, token: _Token, what: str) -> str:
        name = token.text
        if name in RESERVED:
            raise self._error(f"{name!r} is a keyword of every call ({', '.join(sorted(RESERVED))})", token.start)
        if keyword.iskeyword(name):
            raise self._error(f"{name!r} is a word of Python", token.start)
        if name in dtypes.TABLE:
            raise self._error(f"{name!r} is the name of a dtype", token.start)
        if name in self.taken:
            raise self._error(f"{name!r} is already {self.taken[name]}", token.start)
        self.taken[name] = what
        return name

    # The grammar

    def schema(self) -> Schema:
        params, attributes = self._inputs()
        outputs = self._outputs()
        if self.token.kind != "end":
            raise self._error(f"{self.token.text!r} follows the end of the schema")
        self._check_axes(params, attributes, outputs)
        return Schema(self.name, self.version, params, attributes, outputs)

    def _inputs(self) -> tuple[tuple[Param, ...], tuple[Attribute, ...]]:
        params: list[Param] = []
        attributes: list[Attribute] = []
        starred = False
        while not self._take(")"):
            if (params or attributes or starred) and not self._comma(")"):
                break
            if self._take("*"):
                if starred:
                    raise self._error("a second '*'")
                starred = True
            elif starred:
                attributes.append(self._attribute())
            else:
                param = self._param()
                if params and params[-1].optional and not param.optional:
                    raise self._error(f"{param.name} is required, but follows the optional {params[-1].name}")
                params.append(param)
            if len(params) + len(attributes) > MAX_ITEMS:
                raise self._error(f"more than {MAX_ITEMS} parameters")
        return tuple(params), tuple(attributes)

    def _comma(self, closing: str) -> bool:
        """Consume a comma, and the closing bracket after a trailing one; False where the list ended."""
        self._expect(",")
        return not self._take(closing)

    def _param(self) -> Param:
        token = self._identifier("a parameter")
        name = self._claim(token, "a parameter")
        self._expect(":")
        mutable = self._take("mut")
        is_list = self._take("list")
        if is_list:
            self._expect("[")
        mixed = is_list and self._take("*")
        if mixed and self.token.kind == "name" and not LETTER.match(self.token.text):
            raise self._error(f"'*{self.token.text}' is no class of dtypes; '*' stands before a letter")
        dtype, axes = self._tensor_type(output=False)
        if is_list:
            self._expect("]")
        optional = self._take("?")
        if self._take("="):
            if not optional:
                raise self._error(
                    f"{name} has a default but no '?'; write '{name}: {tensor_text(dtype, axes)}? = None'"
                )
            self._expect("None")
        elif optional:
            raise self._error(f"{name} is optional; write '? = None'")
        if is_list and mutable:
            raise self._error(f"the list {name} cannot be mut", token.start)
        return Param(name, dtype, axes, optional, mutable, is_list, mixed)

    def _tensor_type(self, *, output: bool) -> tuple[str, tuple[Axis, ...]]:
        token = self._identifier("a dtype")
        if not LETTER.match(token.text) and token.text not in dtypes.TABLE:
            if self.token.text == "[" or output:
                classes = "F floating, I integer, N numeric, B bool, T any"
                raise self._error(
                    f"unknown dtype {token.text!r}{nearest(token.text, dtypes.TABLE)}; class letters are {classes}",
                    token.start,
                )
            raise self._error(f"{token.text!r} is no tensor type; attributes come after '*'", token.start)
        self._expect("[")
        return token.text, self._axes(output)

    def _axes(self, output: bool) -> tuple[Axis, ...]:
        axes: list[Axis] = []
        while not self._take("]"):
            if axes and not self._comma("]"):
                break
            axes.append(self._axis(output, first=not axes))
            if len(axes) > MAX_RANK:
                raise self._error(f"more than {MAX_RANK} axes")
        return tuple(axes)

    def _axis(self, output: bool, first: bool) -> Axis:
        start = self.token.start
        if self.token.text == "*":
            self._advance()
            token = self._identifier("leading axes")
            if not first:
                raise self._error(f"'*{token.text}' must be the first of the axes", start)
            return "*" + self._axis_name(token.text, start)
        text = self._axis_text()
        if text.isdigit() and len(text) <= 18:
            return int(text)
        if _PLAIN.match(text):
            return self._axis_name(text, start)
        if not output:
            raise self._error(f"axis {text!r} of an input must be a name, a number or '*name'", start)
        try:
            return expr.parse(text)
        except ExpressionError as error:
            raise self._error(str(error), start) from error

    def _axis_name(self, name: str, position: int) -> str:
        if keyword.iskeyword(name) or name in dtypes.TABLE or _LETTER_DIGIT.match(name):
            raise self._error(f"{name!r} cannot name an axis", position)
        return name

    def _axis_text(self) -> str:
        start, depth = self.token.start, 0
        while self.token.kind != "end":
            text = self.token.text
            if depth == 0 and text in (",", "]", ")"):
                break
            depth += (text in ("(", "[")) - (text in (")", "]"))
            self._advance()
        found = self.text[start : self.end_of_last]
        if self.token.kind == "end" or self.token.start == start:
            raise self._error("an axis is missing" if self.token.start == start else "the axes have no end", start)
        return found

    def _attribute(self) -> Attribute:
        token = self._identifier("an attribute")
        name = self._claim(token, "an attribute")
        self._expect(":")
        kind = self._identifier("an attribute's type")
        known = ("int", "float", "bool", "str", "dtype")
        if kind.text not in known:
            hint = "; tensors come before '*'" if LETTER.match(kind.text) or kind.text in dtypes.TABLE else ""
            raise self._error(f"unknown attribute type {kind.text!r}; known: {', '.join(known)}, int[], int[2]{hint}")
        type_ = kind.text
        if kind.text == "int" and self._take("["):
            length = self._advance().text if self.token.kind == "number" else ""
            if length and not (length.isdigit() and 1 <= int(length[:4]) <= MAX_RANK and len(length) < 4):
                raise self._error(f"int[{length}]: the length is 1 to {MAX_RANK}")
            self._expect("]")
            type_ = f"int[{length}]"
        while self._take("|"):
            other = self._identifier("an attribute's type")
            if other.text not in _UNITED or type_.split("|")[0] not in _UNITED or other.text in type_.split("|"):
                raise self._error(f"'{type_}|{other.text}': different ones of {', '.join(_UNITED)} unite", other.start)
            type_ += f"|{other.text}"
        nullable = self._take("?")
        attribute = Attribute(name, type_, nullable)
        if not self._take("="):
            return attribute
        default = self._value()
        self._check_default(attribute, default)
        return Attribute(name, type_, nullable, default)

    def _value(self) -> Default:
        token = self.token
        if token.kind == "number":
            self._advance()
            if token.text.lstrip("-").isdigit():
                if len(token.text) > 20:
                    raise self._error(f"the number {token.text} is out of range", token.start)
                return int(token.text)
            return float(token.text)
        if token.kind == "string":
            self._advance()
            return token.text[1:-1]
        if token.text in ("(", "["):
            return self._integers()
        if token.text in ("None", "True", "False"):
            self._advance()
            return {"None": None, "True": True, "False": False}[token.text]
        raise self._error(f"{token.text!r} is no default; write a number, a string, True, False, None or a tuple")

    def _integers(self) -> tuple[int, ...]:
        closing = ")" if self._advance().text == "(" else "]"
        values: list[int] = []
        while not self._take(closing):
            if values and not self._comma(closing):
                break
            value = self._value() if self.token.kind == "number" else None
            if type(value) is not int or len(values) == MAX_ITEMS:
                raise self._error("a default in brackets holds integers")
            values.append(value)
        return tuple(values)

    def _check_default(self, attribute: Attribute, value: Default) -> None:
        fits = {
            "int": type(value) is int,
            "float": type(value) in (int, float),
            "bool": type(value) is bool,
            "str": type(value) is str,
            "dtype": type(value) is str and value in dtypes.TABLE,
        }
        if attribute.type.startswith("int["):
            length = attribute.type[4:-1]
            right = isinstance(value, tuple) and (not length or len(value) == int(length))
            fits[attribute.type] = right or type(value) is int
        if value is None:
            if not attribute.nullable:
                raise self._error(f"{attribute.name} may not be None; write '{attribute.type}? = None'")
        elif not any(fits[kind] for kind in attribute.kinds):
            raise self._error(f"the default {value!r} of {attribute.name} is no {attribute.type}")

    def _outputs(self) -> tuple[Output, ...]:
        if self.token.kind == "end":
            return ()
        self._expect("->")
        if not self._take("("):
            return (Output("out", *self._tensor_type(output=True)),)
        outputs: list[Output] = []
        while not self._take(")"):
            if outputs and not self._comma(")"):
                break
            name = self._claim(self._identifier("an output"), "an output")
            self._expect(":")
            outputs.append(Output(name, *self._tensor_type(output=True)))
            if len(outputs) > MAX_ITEMS:
                raise self._error(f"more than {MAX_ITEMS} outputs")
        return tuple(outputs)

    def _check_axes(
        self, params: tuple[Param, ...], attributes: tuple[Attribute, ...], outputs: tuple[Output, ...]
    ) -> None:
        names = {axis for item in (*params, *outputs) for axis in item.axes if isinstance(axis, str)}
        for name in names:
            if "*" + name in names:
                raise self._error(f"{name} is one axis, and *{name} several; give one another name", 0)
        for attribute in attributes:
            if {attribute.name, "*" + attribute.name} & names:
                raise self._error(f"{attribute.name!r} names an axis and an attribute", 0)
            if _LETTER_DIGIT.match(attribute.name):
                raise self._error(f"{attribute.name!r} cannot name an attribute: it is a dtype letter", 0)
        letters = {item.dtype for item in (*params, *outputs) if LETTER.match(item.dtype)}
        for letter in letters & ({n.lstrip("*") for n in names} | {a.name for a in attributes}):
            raise self._error(f"{letter!r} is a dtype letter and also names an axis or attribute", 0)


_UNITED = ("int", "float", "bool")

# N and B are natural names of axes; with a digit they can only be meant as dtypes.
_LETTER_DIGIT = re.compile(r"[FINBT][0-9]{1,2}\Z")
