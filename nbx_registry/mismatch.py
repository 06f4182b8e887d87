"""What a checker says when arguments do not fit: each error names the tensors, the values and the way out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NoReturn

from nbx_registry.attributes import short
from nbx_registry.dtypes import DType
from nbx_registry.errors import NbxError, PluginFault, SignatureError, nearest
from nbx_registry.expr import Expr
from nbx_registry.param import CLASS_NAMES, CLASSES, LETTER, Output, Param
from nbx_registry.signature import Operand, Signature, unknown
from nbx_registry.spec import TensorSpec

if TYPE_CHECKING:
    from nbx_registry.op import Op


def local(op: Op, path: str) -> str:
    """Return the local variable (and field) that holds a name of an expression. Raises `ExpressionError`."""
    name = op.names.get(path)
    if name is None or name.kind == "output":
        raise unknown(op, path)
    if name.kind == "axis":
        return f"s_{name.base[1:]}" if name.base.startswith("*") else f"a_{name.base}"
    if name.kind == "param":
        return f"(t_{name.base} is not None)" if name.field == "given" else f"t_{name.base}.{name.field}"
    return {"attribute": "v_", "letter": "d_", "list": "t_"}[name.kind] + name.base


class Mismatch:
    """Builds the errors that a checker raises; its methods are called by the generated function."""

    def __init__(self, op: Op) -> None:
        self.op = op
        # Constraints, by index, on what the infer rule binds.
        self.pending: tuple[int, ...] = ()

    def fail(self, message: str, code: str) -> NoReturn:
        """Raise `SignatureError` in the op's name."""
        raise SignatureError(f"{self.op.name}: {message}", code=code)

    def pad(self, tensors: Sequence[Any]) -> tuple[Any, ...]:
        """Complete the operands with those left out at the end; too many are an error."""
        params = self.op.tensors
        if len(tensors) > len(params):
            names = ", ".join(p.name for p in params) or "none"
            self.fail(f"{len(tensors)} tensors given, but it takes {len(params)}: {names}", "ARGUMENTS")
        return (*tensors, *(None,) * (len(params) - len(tensors)))

    def operand(self, index: int, value: Any) -> NoReturn:
        """A required tensor is missing, or an operand is no tensor where one is wanted, no list where a list is."""
        param = self.op.tensors[index]
        if value is None:
            self.fail(f"tensor {param.name} is missing; the call is {self.op.name}({self._call()})", "ARGUMENTS")
        if param.is_list:
            self.fail(f"{param.name} takes a list of at least one tensor, not {short(value)}", "ARGUMENTS")
        self.fail(f"{param.name} takes one tensor, not {short(value)}", "ARGUMENTS")

    def _call(self) -> str:
        return ", ".join(f"{p.name}=None" if p.optional else p.name for p in self.op.tensors)

    def weak(self, index: int, spec: TensorSpec) -> NoReturn:
        """A Python scalar where none may stand, or of a kind that does not fit."""
        param, kind = self.op.tensors[index], spec.dtype.kind
        if param.broadcast and not param.is_list and self.op.schema.scalars:
            self.fail(f"{param.name} is a Python {kind}, but must be {self._wanted(param)}", "DTYPE")
        self.fail(f"{param.name} is a Python {kind}; only arrays are taken there", "DTYPE")

    def _wanted(self, item: Param | Output) -> str:
        return CLASS_NAMES[item.dtype[0]] if LETTER.match(item.dtype) else item.dtype

    def dtype(self, index: int, name: str, spec: TensorSpec) -> NoReturn:
        """A dtype outside the parameter's class."""
        param = self.op.tensors[index]
        self.fail(f"{name} is {spec.dtype}, but must be {self._wanted(param)}; convert it with astype", "DTYPE")

    def letter(self, index: int, name: str, spec: TensorSpec, bound: DType, tensors: Sequence[Any]) -> NoReturn:
        """A dtype that differs from the one its letter is bound to."""
        letter = self.op.tensors[index].letter
        owner = next(n for p, n, s in self._operands(tensors) if p.letter == letter and s.dtype is bound)
        self.fail(f"{name} is {spec.dtype}, but {owner} is {bound}; they must be equal", "DTYPE")

    def rank(self, index: int, name: str, spec: TensorSpec) -> NoReturn:
        """A rank that does not fit the parameter's axes."""
        param = self.op.tensors[index]
        axes = f"[{', '.join(map(str, param.axes))}]"
        star = bool(param.axes) and str(param.axes[0]).startswith("*")
        wanted = f"at least {len(param.axes) - 1}" if star else f"{len(param.axes)}"
        self.fail(f"{name} has rank {spec.rank} ({spec}), but must have rank {wanted}: {axes}", "SHAPE")

    def literal(self, index: int, name: str, position: int, spec: TensorSpec) -> NoReturn:
        """An extent that differs from the literal in the schema."""
        param = self.op.tensors[index]
        axes = f"[{', '.join(map(str, param.axes))}]"
        at = position if position >= 0 else spec.rank + position
        wanted = param.axes[position]
        self.fail(f"axis {at} of {name} is {spec.shape[position]}, but must be {wanted}: {axes}", "SHAPE")

    def axis(self, axis: str, name: str, value: Any, bound: Any, tensors: Sequence[Any]) -> NoReturn:
        """An extent that differs from the one its axis is bound to."""
        for param, owner, spec in self._operands(tensors):
            if axis not in param.axes:
                continue
            position = param.axes.index(axis)
            if axis.startswith("*"):
                found = spec.shape[: spec.rank + 1 - len(param.axes)]
            else:
                star = bool(param.axes) and str(param.axes[0]).startswith("*")
                found = spec.shape[position - len(param.axes) if star else position]
            if found == bound:
                kind = "leading axes" if axis.startswith("*") else "axis"
                where = f"the first {axis} of it" if owner == name else f"{axis} of {owner}"
                self.fail(f"{kind} {axis} of {name} is {value}, but {where} is {bound}", "SHAPE")
        raise AssertionError(f"axis {axis} of {self.op.id} is bound by no tensor")

    def _operands(self, tensors: Sequence[Operand]) -> list[tuple[Param, str, TensorSpec]]:
        found: list[tuple[Param, str, TensorSpec]] = []
        for param, operand in zip(self.op.tensors, tensors, strict=True):
            if isinstance(operand, tuple):
                found += ((param, f"{param.name}[{i}]", spec) for i, spec in enumerate(operand))
            elif operand is not None and not operand.weak:
                found.append((param, param.name, operand))
        return found

    def attributes(self, given: Mapping[str, Any]) -> NoReturn:
        """An attribute the op lacks."""
        known = [attribute.name for attribute in self.op.attributes]
        for name in given:
            if name not in known:
                hint = nearest(name, known) or f"; known: {', '.join(known) or 'none'}"
                self.fail(f"unknown attribute {name!r}{hint}", "ATTRIBUTE")
        raise AssertionError(f"attributes {list(given)} of {self.op.id} are known")

    def required(self, name: str) -> NoReturn:
        """An attribute without default that is not given."""
        self.fail(f"attribute {name} is missing; it has no default", "ATTRIBUTE")

    def explain(self, rule: Expr, variables: Mapping[str, Any]) -> str:
        """Return a rule with the values of its names, from the checker's local variables."""
        return rule.explain(lambda path: self.variable(path, variables))

    def variable(self, path: str, variables: Mapping[str, Any]) -> Any:
        """Return the value of an expression's name, from the checker's local variables."""
        source = local(self.op, path)
        base, _, field = source.partition(".")
        value = variables.get(base)
        if path.endswith(".given"):
            return variables.get(f"t_{path.partition('.')[0]}") is not None
        return getattr(value, field, None) if field else value

    def constraint(self, index: int, variables: Mapping[str, Any]) -> NoReturn:
        """A constraint that does not hold."""
        self.fail(f"needs {self.explain(self.op.require[index], variables)}", "CONSTRAINT")

    def extent(self, name: str, rule: Expr, value: Any, variables: Mapping[str, Any]) -> NoReturn:
        """A computed axis that is no extent."""
        why = "no extent" if type(value) is int else "no integer"
        self.fail(f"axis {name} comes out as {value!r}, which is {why}: {self.explain(rule, variables)}", "SHAPE")

    def arithmetic(self, rule: Expr, error: Exception, variables: Mapping[str, Any]) -> NoReturn:
        """A rule that divides by zero, or the like."""
        raise SignatureError(f"{self.op.name}: {self.explain(rule, variables)}: {error}", code="CONSTRAINT") from error

    def infer(self, signature: Signature) -> Signature:
        """Run the op's infer rule, and hold what it gives against the schema."""
        op = self.op
        assert op.infer is not None
        try:
            outputs = op.infer(signature)
        except NbxError as error:
            if not str(error).startswith((f"{op.name}:", f"{op.name} ")):
                error.args = (f"{op.name}: {error}",)
            raise
        except Exception as error:
            raise PluginFault(
                f"the infer rule of {op.id} raised {type(error).__name__}: {error} (for {signature})", where=op.id
            ) from error
        if isinstance(outputs, TensorSpec):
            outputs = (outputs,)
        if len(outputs) != len(op.outputs):
            raise PluginFault(
                f"the infer rule of {op.id} gave {len(outputs)} outputs; its schema has {len(op.outputs)}", where=op.id
            )
        signature.outputs = tuple(outputs)
        for name, rule in op.where.items():
            if rule is None and signature.axes.get(name).__class__ is not int:
                raise PluginFault(f"the infer rule of {op.id} did not bind axis {name} (for {signature})", where=op.id)
        for output, spec in zip(op.outputs, signature.outputs, strict=True):
            self._settle(signature, output, spec)
        for index in self.pending:
            if not op.require[index].evaluate(signature.value):
                self.fail(f"needs {op.require[index].explain(signature.value)}", "CONSTRAINT")
        return signature

    def _settle(self, signature: Signature, output: Output, spec: TensorSpec) -> None:
        """Bind what an inferred output names, or hold it against what is bound."""
        op, letter = self.op, output.letter

        def wrong(more: str = "") -> PluginFault:
            return PluginFault(f"the infer rule of {op.id} gave {spec} for {output}{more}", where=op.id)

        if letter is None:
            if spec.dtype.name != output.dtype:
                raise wrong()
        elif spec.dtype.kind not in CLASSES[letter[0]]:
            raise wrong()
        elif signature.letters.setdefault(letter, spec.dtype) is not spec.dtype:
            raise wrong(f", where {letter} is {signature.letters[letter]}")
        axes, shape = list(output.axes), spec.shape
        if axes and isinstance(axes[0], str) and axes[0].startswith("*"):
            lead = len(shape) - len(axes) + 1
            if lead < 0 or signature.axes.setdefault(axes[0], shape[:lead]) != shape[:lead]:
                raise wrong(f", where {axes[0]} is {signature.axes.get(axes[0])}")
            axes, shape = axes[1:], shape[lead:]
        if len(axes) != len(shape):
            raise wrong()
        for axis, extent in zip(axes, shape, strict=True):
            if isinstance(axis, Expr):
                expected = axis.evaluate(signature.value)
            else:
                expected = axis if isinstance(axis, int) else signature.axes.setdefault(axis, extent)
            if expected != extent:
                raise wrong(f", where {axis} is {expected}")
