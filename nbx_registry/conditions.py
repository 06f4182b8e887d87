"""Conditions: a kernel's ``when`` and ``key`` compiled against its op, and what a failed clause says.

A clause is static where dtypes, ranks, given tensors, non-integer attributes and the device settle it, so that one
answer serves every size; the others are dynamic. A clause that reads an optional tensor left out is passed over, unless
it asks for ``.given``: then the tensor's other fields are None to it.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from types import CodeType
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from nbx_registry import expr
from nbx_registry.contradiction import contradiction
from nbx_registry.decision import Refusal
from nbx_registry.dtypes import DType
from nbx_registry.errors import ExpressionError, MissingFact, PluginFault
from nbx_registry.expr import Expr
from nbx_registry.kernel import Kernel
from nbx_registry.op import Op, Signature
from nbx_registry.signature import FIELDS, unknown

if TYPE_CHECKING:
    from nbx_registry.device import Device

Specificity = Literal["arch", "fact", "nothing"]
_Runner = Callable[[Signature, "Device | None"], int]

# Names of ``device.`` that say which product or compile target it is, rather than what it can do.
_IDENTITY = frozenset({"id", "vendor", "arch", "runtime", "evidence_class"})


@dataclass(frozen=True, slots=True)
class Clause:
    """One condition: it holds, or the kernel is refused with its code."""

    index: int
    """Its place among the kernel's clauses."""
    rule: Expr
    code: str
    """One of `nbx_registry.decision.CODES`."""
    static: bool
    """Whether no size, layout or integer attribute enters."""

    @property
    def text(self) -> str:
        """The clause as written."""
        return self.rule.text


class _Failed(NamedTuple):
    """A clause that does not hold, with what it raised; or that there is none."""

    clause: Clause | None
    error: Exception | None = None

    @property
    def order(self) -> int:
        return sys.maxsize if self.clause is None else self.clause.index


_NOTHING_FAILED = _Failed(None)


class Conditions:
    """The compiled conditions and launch key of one kernel.

    Attributes
    ----------
    clauses, static, dynamic : tuple of Clause
        All of them in the kernel's order, and the two kinds.
    reads : frozenset of str
        Every name that conditions and key read.
    """

    def __init__(self, kernel: Kernel, op: Op) -> None:
        self.kernel = kernel
        self.op = op
        rules = [clause for text in kernel.when for clause in self._parse(text, "condition").clauses()]
        self._keys = tuple(self._parse(text, "key") for text in kernel.key)
        self.clauses = tuple(_classify(i, rule, op) for i, rule in enumerate(rules))
        self.static = tuple(clause for clause in self.clauses if clause.static)
        self.dynamic = tuple(clause for clause in self.clauses if not clause.static)
        self.reads: frozenset[str] = frozenset().union(*(rule.names for rule in (*rules, *self._keys)))

    def __repr__(self) -> str:
        return f"<Conditions of {self.kernel.id}: {', '.join(clause.text for clause in self.clauses) or 'none'}>"

    @cached_property
    def specificity(self) -> Specificity:
        """What conditions name: an arch, a product or a capability; else a device fact; else nothing of the device."""
        found: Specificity = "nothing"
        for clause in self.clauses:
            for name in clause.rule.names:
                if not name.startswith("device.") or name == "device.runtime":
                    continue
                if name[7:] in _IDENTITY or name.startswith("device.target.") or name in _capabilities(clause.rule):
                    return "arch"
                found = "fact"
        return found

    @cached_property
    def always_refuses(self) -> str | None:
        """Why the conditions refuse every request; None where they do not, as far as can be seen."""
        return contradiction([clause.rule for clause in self.clauses], self.op)

    def failed(self, signature: Signature, device: Device | None) -> Refusal | None:
        """Return the refusal of the first clause, in the kernel's order, that does not hold; None where all do.

        A clause on a device fact that nobody stated is refused with ``FACT_MISSING``. Raises `PluginFault` where a
        clause raises anything else.
        """
        first = min(
            self._first(True, signature, device), self._first(False, signature, device), key=lambda failed: failed.order
        )
        return self._refusal(first, signature, device)

    def static_failed(self, signature: Signature, device: Device | None) -> Refusal | None:
        """Return the refusal of the first static clause that does not hold; as `failed`."""
        return self._refusal(self._first(True, signature, device), signature, device)

    def dynamic_ok(self, signature: Signature, device: Device | None) -> bool:
        """Return whether every dynamic clause holds. Raises `PluginFault` where one raises."""
        try:
            return self._dynamic(signature, device) < 0
        except MissingFact:
            return False
        except Exception as error:
            raise self._fault(self.dynamic[_line_of(error)], error) from error

    def key(self, signature: Signature, device: Device | None) -> tuple[Any, ...]:
        """Return the values of the launch key, as plain data: a dtype is its short key, what is left out None.

        Raises `PluginFault` where an expression of the key raises, a missing fact included.
        """
        try:
            return self._key(signature, device)
        except Exception as error:
            raise PluginFault(
                f"the key {self.kernel.key!r} of kernel {self.kernel.id!r} raised {type(error).__name__}: {error}",
                plugin=self.kernel.id.partition("/")[0],
                where=f"key of {self.kernel.id}",
            ) from error

    # Compiling.

    def _parse(self, text: str, place: str) -> Expr:
        try:
            rule = expr.parse(text)
            for name in sorted(rule.names):
                if not name.startswith("device.") and name not in self.op.names:
                    raise unknown(self.op, name)
        except ExpressionError as error:
            raise PluginFault(
                f"{place} {text!r} of kernel {self.kernel.id!r}: {error}",
                plugin=self.kernel.id.partition("/")[0],
                where=f"{place} {text!r} of {self.kernel.id}",
            ) from error
        return rule

    @cached_property
    def _static(self) -> _Runner:
        return _compile_clauses(self.op, self.static)

    @cached_property
    def _dynamic(self) -> _Runner:
        return _compile_clauses(self.op, self.dynamic)

    @cached_property
    def _key(self) -> Callable[[Signature, Device | None], tuple[Any, ...]]:
        return _compile_key(self.op, self._keys)

    # What a clause that does not hold says.

    def _first(self, static: bool, signature: Signature, device: Device | None) -> _Failed:
        """Find the first clause of a kind that does not hold or that raises."""
        clauses = self.static if static else self.dynamic
        try:
            position = (self._static if static else self._dynamic)(signature, device)
        except Exception as error:  # noqa: BLE001 - kept: `_refusal` raises it, unless an earlier clause does not hold
            return _Failed(clauses[_line_of(error)], error)
        return _Failed(clauses[position]) if position >= 0 else _NOTHING_FAILED

    def _refusal(self, failed: _Failed, signature: Signature, device: Device | None) -> Refusal | None:
        clause, error = failed.clause, failed.error
        if clause is None:
            return None
        if isinstance(error, MissingFact):
            return Refusal(
                code="FACT_MISSING",
                reason=f"{clause.text}: {error}",
                would_run_if=f"the fact were stated, and {clause.text}",
            )
        if error is not None:
            raise self._fault(clause, error) from error
        if clause.rule.node.kind == "name" and clause.code == "CAPABILITY" and device is not None:
            (name,) = clause.rule.names
            capability = name.removeprefix("device.")
            return Refusal(
                code=clause.code,
                reason=f"device {device.id} has no {capability}",
                would_run_if=f"the device had {capability}",
            )

        def value(path: str) -> Any:
            if not path.startswith("device."):
                return signature.value(path)
            assert device is not None
            return device.values[path[7:]]

        return Refusal(code=clause.code, reason=clause.rule.explain(value), would_run_if=clause.text)

    def _fault(self, clause: Clause, error: Exception) -> PluginFault:
        return PluginFault(
            f"condition {clause.text!r} of kernel {self.kernel.id!r} raised {type(error).__name__}: {error}",
            plugin=self.kernel.id.partition("/")[0],
            where=f"condition {clause.text!r} of {self.kernel.id}",
        )


def compile_conditions(kernel: Kernel, op: Op) -> Conditions:
    """Compile a kernel's conditions and key.

    Raises `PluginFault` naming the kernel, the clause and the nearest name where one does not parse, or reads what the
    op does not have.
    """
    return Conditions(kernel, op)


def _capabilities(rule: Expr) -> frozenset[str]:
    """Return the names of the device whose truth is asked for, or in which something is looked for."""
    return frozenset(name for name in rule.truths | rule.containers if name.startswith("device."))


def _classify(index: int, rule: Expr, op: Op) -> Clause:
    kinds: set[str] = set()
    for path in rule.names:
        if path.startswith("device."):
            if path[7:] in _IDENTITY or path.startswith("device.target."):
                kinds.add("arch")
            else:
                kinds.add("capability" if path in _capabilities(rule) else "fact")
            continue
        name = op.names[path]
        if name.kind == "attribute":
            attribute = op.schema.attribute(name.base)
            assert attribute is not None
            # A dtype attribute is a dtype like any other.
            kinds.add("number" if attribute.integral else "dtype" if attribute.type == "dtype" else "attribute")
        elif name.kind in ("param", "output"):
            field = FIELDS[name.field]
            # An inferred output's rank may depend on integer attributes; a parameter's is a shape's all the same.
            kinds.add("output rank" if field == "rank" and name.kind == "output" else field)
        else:
            kinds.add({"axis": "size", "letter": "dtype", "list": "given"}[name.kind])
    static = not kinds & {"size", "layout", "number", "output rank"}
    codes = {
        "arch": "ARCH",
        "capability": "CAPABILITY",
        "fact": "DEVICE",
        "layout": "LAYOUT",
        "size": "SHAPE",
        "rank": "SHAPE",
        "output rank": "SHAPE",
        "number": "ATTRIBUTE",
        "attribute": "ATTRIBUTE",
        "given": "ATTRIBUTE",
        "dtype": "DTYPE",
    }
    code = next((code for kind, code in codes.items() if kind in kinds), "ATTRIBUTE")
    return Clause(index, rule, code, static)


# The file name of generated functions, and the line of one on which its first clause stands.
_FILE = "<conditions>"
_FIRST_LINE = 3


class _Locals:
    """The local variables of a generated function: each name of the op read once, whatever the clauses make of it."""

    def __init__(self, op: Op) -> None:
        self.op = op
        self.lines: dict[str, str] = {}
        self.device = False
        required = [p for p in op.tensors if not p.optional]
        certain = {axis for p in required for axis in p.axes}
        certain |= op.where.keys() | {axis for output in op.outputs for axis in output.axes}
        self._certain = {str(axis) for axis in certain} | {
            item.letter for item in (*required, *op.outputs) if item.letter
        }
        self._optional = {p.name for p in op.tensors if p.optional}

    def resolve(self, path: str) -> str:
        if path.startswith("device."):
            self.device = True
            return f"values[{path[7:]!r}]"
        name = self.op.names[path]
        base = name.base.lstrip("*")
        if name.kind in ("axis", "letter"):
            variable, table = (f"a_{base}", "axes") if name.kind == "axis" else (f"d_{base}", "letters")
            get = f"[{name.base!r}]" if name.base in self._certain else f".get({name.base!r})"
            self.lines[variable] = f"signature.{table}{get}"
            return variable
        if name.kind == "attribute":
            self.lines[f"v_{base}"] = f"signature.attributes[{base!r}]"
            return f"v_{base}"
        variable, position = f"t_{base}", self.op.positions[base]
        if name.kind == "output":
            self.lines[variable] = f"signature.outputs[{position - len(self.op.tensors)}]"
        else:
            self.lines[variable] = f"signature.tensors[{position}]"
        if name.kind == "list":
            return variable
        if name.field == "given":
            return f"({variable} is not None)"
        if base in self._optional:
            return f"(None if {variable} is None else {variable}.{name.field})"
        return f"{variable}.{name.field}"

    def absent(self, rule: Expr) -> list[str]:
        """Return the variables of a rule that are None where an optional tensor is left out, unless it asks."""
        asked = {path.partition(".")[0] for path in rule.names if path.endswith(".given")}
        found: dict[str, None] = {}
        for path in sorted(rule.names):
            if path.startswith("device."):
                continue
            name = self.op.names[path]
            if name.kind in ("param", "list"):
                if name.base in self._optional and name.base not in asked:
                    found[f"t_{name.base}"] = None
            elif name.kind in ("axis", "letter") and name.base not in self._certain:
                found[self.resolve(path)] = None
        return list(found)


def _compile_clauses(op: Op, clauses: Sequence[Clause]) -> _Runner:
    """Compile clauses into one function: the position of the first that does not hold, or -1."""
    if not clauses:
        return _nothing_fails
    names = _Locals(op)
    body: list[str] = []
    for position, clause in enumerate(clauses):
        skipped = "".join(f"{variable} is None or " for variable in names.absent(clause.rule))
        body.append(f"    if not ({skipped}{clause.rule.source(names.resolve)}): return {position}")
    return _function(names, [*body, "    return -1"])


def _nothing_fails(_signature: Signature, _device: Device | None) -> int:
    return -1


def _compile_key(op: Op, keys: Sequence[Expr]) -> Callable[[Signature, Device | None], tuple[Any, ...]]:
    names = _Locals(op)
    values: list[str] = []
    for rule in keys:
        absent = " or ".join(f"{variable} is None" for variable in names.absent(rule))
        source = rule.source(names.resolve)
        values.append(f"plain(None if {absent} else {source}), " if absent else f"plain({source}), ")
    return _function(names, [f"    return ({''.join(values)})"])


def _function(names: _Locals, body: list[str]) -> Any:
    # One line for all of them, however many names are read: the line number of what raises gives the clause.
    setup = [f"{variable} = {source}" for variable, source in names.lines.items()]
    if names.device:
        setup.append("values = device.values")
    scope = {**expr.namespace(), "plain": _plain}
    exec(_code("\n".join(["def run(signature, device):", f"    {'; '.join(setup) or 'pass'}", *body])), scope)
    return scope["run"]


@lru_cache(maxsize=1024)
def _code(source: str) -> CodeType:
    # Kernels of one op share many conditions, and compiling is most of the cost.
    return compile(source, _FILE, "exec")


def _line_of(error: Exception) -> int:
    """Return the position of the clause that raised, from the line of the generated function."""
    traceback = error.__traceback__
    while traceback is not None and traceback.tb_frame.f_code.co_filename != _FILE:
        traceback = traceback.tb_next
    assert traceback is not None
    return max(0, traceback.tb_lineno - _FIRST_LINE)


def _plain(value: Any) -> Any:
    if isinstance(value, DType):
        return value.key
    return tuple(map(_plain, value)) if isinstance(value, tuple) else value  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType]
