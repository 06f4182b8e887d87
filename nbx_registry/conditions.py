"""Conditions: a kernel's ``when`` and ``key`` compiled against its op, and what a failed clause says.

A clause is static where dtypes, ranks, given tensors, non-integer attributes and the device settle it, so that one
answer serves every size; the others are dynamic. A clause that reads an optional tensor left out is passed over, unless
it asks for ``.given``: then the tensor's other fields are None to it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from nbx_registry import dtypes, expr
from nbx_registry.contradiction import contradiction
from nbx_registry.decision import Refusal
from nbx_registry.dtypes import DType
from nbx_registry.errors import ExpressionError, MissingFact, PluginFault
from nbx_registry.expr import Expr
from nbx_registry.items import shown
from nbx_registry.kernel import Kernel
from nbx_registry.op import Op, Signature
from nbx_registry.signature import FIELDS, unknown

if TYPE_CHECKING:
    from nbx_registry.device import Device

Specificity = Literal["arch", "fact", "nothing"]
Made = TypeVar("Made")
_Test = Callable[[Signature, "Device | None"], Any]

# Names of ``device.`` that say which product or compile target it is, rather than what it can do.
_IDENTITY = frozenset({"id", "vendor", "arch", "runtime", "evidence_class"})


@dataclass(frozen=True, slots=True)
class Clause:
    """One condition: it holds, or the kernel is refused with its code."""

    rule: Expr
    code: str
    """One of `nbx_registry.decision.CODES`."""
    static: bool
    """Whether no size, layout or integer attribute enters."""

    @property
    def text(self) -> str:
        """The clause as written."""
        return self.rule.text


class Conditions:
    """The compiled conditions and launch key of one kernel.

    Attributes
    ----------
    clauses, static, dynamic : tuple of Clause
        All of them in the kernel's order, and the two kinds.
    """

    def __init__(self, kernel: Kernel, op: Op, plugin: str | None = None) -> None:
        self.kernel = kernel
        self._plugin = plugin
        self.op = op
        clauses: list[Clause] = []
        for text in kernel.when:
            clauses += self._made(_clauses, text, "condition")
        self._keys = tuple([self._made(rule_of, text, "key") for text in kernel.key])
        self.clauses = tuple(clauses)
        self.static = tuple([clause for clause in clauses if clause.static])
        self.dynamic = tuple([clause for clause in clauses if not clause.static])

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
    def reads(self) -> frozenset[str]:
        """Every name that conditions and key read."""
        rules = (*(clause.rule for clause in self.clauses), *self._keys)
        return frozenset(name for rule in rules for name in rule.names)

    @cached_property
    def always_refuses(self) -> str | None:
        """Why the conditions refuse every request; None where they do not, as far as can be seen."""
        return contradiction([clause.rule for clause in self.clauses], self.op, self.kernel.runtimes)

    def failed(self, signature: Signature, device: Device | None) -> Refusal | None:
        """Return the refusal of the first clause, in the kernel's order, that does not hold; None where all do.

        A clause on a device fact that nobody stated is refused with ``FACT_MISSING``. Raises `PluginFault` where a
        clause raises anything else.
        """
        return self._run(self.clauses, self._tests, signature, device)

    def static_failed(self, signature: Signature, device: Device | None) -> Refusal | None:
        """Return the refusal of the first static clause that does not hold; as `failed`."""
        return self._run(self.static, self._static, signature, device)

    def unmet(self, signature: Signature, device: Device | None) -> tuple[str, ...]:
        """Return in words what would have to be otherwise for each clause that does not hold.

        A clause that raises is left out, and so are those on the device where there is none. Where the conditions
        refuse every request, no other request would do.
        """
        if self.always_refuses is not None:
            return (f"{self._plugin or 'its plugin'} corrected when=, which refuses every request",)
        found: list[str] = []
        for clause, test in zip(self.clauses, self._tests, strict=True):
            if device is None and any(name.startswith("device.") for name in clause.rule.names):
                continue
            try:
                refusal = self._run((clause,), (test,), signature, device)
            except PluginFault:
                continue
            if refusal is not None:
                found.append(refusal.would_run_if)
        return tuple(found)

    def dynamic_ok(self, signature: Signature, device: Device | None) -> bool:
        """Return whether every dynamic clause holds. Raises `PluginFault` where one raises."""
        position = 0
        try:
            for test in self._dynamic:
                if not test(signature, device):
                    return False
                position += 1
        except MissingFact:
            return False
        except Exception as error:
            raise self._fault(self.dynamic[position], error) from error
        return True

    def key(self, signature: Signature, device: Device | None) -> tuple[Any, ...]:
        """Return the values of the launch key, as plain data: a dtype is its short key, what is left out None.

        Raises `PluginFault` where an expression of the key raises, a missing fact included.
        """
        try:
            return self._key(signature, device)
        except Exception as error:
            raise PluginFault(
                f"the key {self.kernel.key!r} of kernel {self.kernel.id!r} raised {type(error).__name__}: {error}",
                plugin=self._plugin,
                where=f"key of {self.kernel.id}",
            ) from error

    # Compiling.

    def _made(self, make: Callable[[str, Op], Made], text: str, place: str) -> Made:
        try:
            return make(text, self.op)
        except ExpressionError as error:
            raise PluginFault(
                f"{place} {shown(text)} of kernel {self.kernel.id!r}: {error}",
                plugin=self._plugin,
                where=f"{place} {shown(text)} of {self.kernel.id}",
            ) from error

    @cached_property
    def _tests(self) -> tuple[_Test, ...]:
        return self._compiled(self.clauses)

    @cached_property
    def _static(self) -> tuple[_Test, ...]:
        return self._compiled(self.static)

    @cached_property
    def _dynamic(self) -> tuple[_Test, ...]:
        return self._compiled(self.dynamic)

    def _compiled(self, clauses: tuple[Clause, ...]) -> tuple[_Test, ...]:
        known = len(dtypes.TABLE)
        return tuple([_compile_clause(self.op, clause.rule, known) for clause in clauses])

    @cached_property
    def _key(self) -> Callable[[Signature, Device | None], tuple[Any, ...]]:
        return _compile_key(self.op, self._keys)

    # What a clause that does not hold says.

    def _run(
        self, clauses: tuple[Clause, ...], tests: tuple[_Test, ...], signature: Signature, device: Device | None
    ) -> Refusal | None:
        position = 0
        try:
            for test in tests:
                if not test(signature, device):
                    return self._refusal(clauses[position], signature, device)
                position += 1
        except MissingFact as error:
            text = clauses[position].text
            return Refusal(
                code="FACT_MISSING", reason=f"{text}: {error}", would_run_if=f"the fact were stated, and {text}"
            )
        except Exception as error:
            raise self._fault(clauses[position], error) from error
        return None

    def _refusal(self, clause: Clause, signature: Signature, device: Device | None) -> Refusal:
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
            plugin=self._plugin,
            where=f"condition {clause.text!r} of {self.kernel.id}",
        )


def compile_conditions(kernel: Kernel, op: Op, plugin: str | None = None) -> Conditions:
    """Compile a kernel's conditions and key. ``plugin`` brought the kernel: faults name it.

    Raises `PluginFault` naming the kernel, the clause and the nearest name where one does not parse, or reads what the
    op does not have.
    """
    return Conditions(kernel, op, plugin)


def _capabilities(rule: Expr) -> frozenset[str]:
    """Return the names of the device whose truth is asked for, or in which something is looked for."""
    return frozenset(name for name in rule.truths | rule.containers if name.startswith("device."))


# Kernels of one op share many conditions, and most of the cost of a first look at them is here.


@lru_cache(maxsize=4096)
def rule_of(text: str, op: Op) -> Expr:
    """Parse a condition over an op and device facts. Raises `ExpressionError`, with the nearest of an unknown name."""
    rule = expr.parse(text)
    for name in sorted(rule.names):
        if not name.startswith("device.") and name not in op.names:
            raise unknown(op, name)
    return rule


@lru_cache(maxsize=4096)
def _clauses(text: str, op: Op) -> tuple[Clause, ...]:
    return tuple(_classify(rule, op) for rule in rule_of(text, op).clauses())


def _classify(rule: Expr, op: Op) -> Clause:
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
    return Clause(rule, code, static)


def _resolve(op: Op, path: str, asked: frozenset[str]) -> str:
    """Return the source that reads a name from ``s``, the signature, or ``d``, the device."""
    if path.startswith("device."):
        return f"d.values[{path[7:]!r}]"
    name = op.names[path]
    if name.kind in ("axis", "letter"):
        table = "axes" if name.kind == "axis" else "letters"
        return f"s.{table}[{name.base!r}]" if name.base in op.always_bound else f"s.{table}.get({name.base!r})"
    if name.kind == "attribute":
        return f"s.attributes[{name.base!r}]"
    position = op.positions[name.base]
    if name.kind == "output":
        return f"s.outputs[{position - len(op.tensors)}].{name.field}"
    tensor = f"s.tensors[{position}]"
    if name.kind == "list":
        return tensor
    if name.field == "given":
        return f"({tensor} is not None)"
    return f"(None if {tensor} is None else {tensor}.{name.field})" if name.base in asked else f"{tensor}.{name.field}"


def _source(op: Op, rule: Expr, numbers: list[int | float]) -> tuple[str, list[str]]:
    """Return a rule's source, and what is None where an optional tensor is absent that the rule does not ask for.

    The rule's numbers are added to ``numbers``; the source calls them ``n0``, ``n1``.
    """
    asked = frozenset(path.partition(".")[0] for path in rule.names if path.endswith(".given"))
    absent: dict[str, None] = {}
    for path in sorted(rule.names):
        name = op.names.get(path)
        if name is None or name.base in asked:
            continue
        if name.kind in ("param", "list"):
            param = op.schema.param(name.base)
            if param is not None and param.optional:
                absent[f"s.tensors[{op.positions[name.base]}] is None"] = None
        elif name.kind in ("axis", "letter") and name.base not in op.always_bound:
            absent[f"{_resolve(op, path, asked)} is None"] = None

    def number(value: int | float) -> str:
        numbers.append(value)
        return f"n{len(numbers) - 1}"

    return rule.source(lambda path: _resolve(op, path, asked), number), list(absent)


@lru_cache(maxsize=4096)
def _compile_clause(op: Op, rule: Expr, known: int) -> _Test:
    numbers: list[int | float] = []
    source, absent = _source(op, rule, numbers)
    return _compiled(f"{''.join([f'{test} or ' for test in absent])}{source}", numbers, known)


def _compile_key(op: Op, rules: Sequence[Expr]) -> Callable[[Signature, Device | None], tuple[Any, ...]]:
    values: list[str] = []
    numbers: list[int | float] = []
    for rule in rules:
        source, absent = _source(op, rule, numbers)
        values.append(f"plain(None if {' or '.join(absent)} else {source}), " if absent else f"plain({source}), ")
    return _compiled(f"({''.join(values)})", numbers, len(dtypes.TABLE))


def _compiled(source: str, numbers: Sequence[int | float], known: int) -> Any:
    """Return a function of signature and device that gives what a source computes with its numbers."""
    if not numbers:
        return _function(f"lambda s, d: {source}", known)
    # Kernels of one kind differ in numbers alone, and compiling takes long: once for all of them.
    names = ", ".join([f"n{index}" for index in range(len(numbers))])
    return _function(f"lambda {names}: lambda s, d: {source}", known)(*numbers)


@lru_cache(maxsize=4096)
def _function(source: str, known: int) -> Any:
    return eval(source, _namespace(known))


@lru_cache(maxsize=2)
def _namespace(_dtypes: int) -> dict[str, Any]:
    # The number of dtypes tells one table of names from the next.
    return {**expr.namespace(), "plain": _plain}


def _plain(value: Any) -> Any:
    if isinstance(value, DType):
        return value.key
    return tuple(map(_plain, value)) if isinstance(value, tuple) else value  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType]
