"""The checker of an op: its schema and rules compiled, once, into a Python function that makes signatures.

The function unifies axes and dtype letters across tensors, normalises attributes, computes axes, tests constraints and
infers outputs. Names in its source are those of the schema with a prefix (``a_`` axes, ``s_`` leading axes, ``d_``
letters, ``t_`` tensors, ``v_`` attributes), so that none can meet a word of Python or a helper.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from nbx_registry import dtypes, expr
from nbx_registry.attributes import normaliser
from nbx_registry.errors import ExpressionError, NbxError, SchemaError
from nbx_registry.expr import Expr
from nbx_registry.mismatch import Mismatch, local
from nbx_registry.schema import CLASSES, REQUIRED, Output, Param
from nbx_registry.signature import Signature
from nbx_registry.spec import MAX_EXTENT, TensorSpec

if TYPE_CHECKING:
    from nbx_registry.op import Op

Checker = Callable[[Sequence[Any], Mapping[str, Any]], Signature]

# What a Python scalar may stand for: an int is welcome where floats are.
_WEAK = {
    "F": frozenset({"int", "float"}),
    "I": frozenset({"int"}),
    "N": frozenset({"int", "float", "complex"}),
    "B": frozenset({"bool"}),
    "T": frozenset({"bool", "int", "float", "complex"}),
}
_ARITHMETIC_ERRORS = (ArithmeticError, TypeError, ValueError, IndexError)


def compile_checker(op: Op) -> Checker:
    """Compile an op's checker. Raises `SchemaError` where its rules do not fit its schema."""
    return _Generator(op).function()


class _Generator:
    """Writes the checker's source, line by line."""

    def __init__(self, op: Op) -> None:
        self.op = op
        self.lines: list[str] = []
        self.errors = Mismatch(op)
        self.globals: dict[str, Any] = {
            **expr.namespace(),
            "Signature": Signature,
            "TensorSpec": TensorSpec,
            "MISSING": REQUIRED,
            "errors": self.errors,
            "op": op,
            "locals": locals,
            "enumerate": enumerate,
            "tuple": tuple,
            "int": int,
            "OurErrors": NbxError,
            "ArithmeticErrors": _ARITHMETIC_ERRORS,
        }
        # Variables by whether they always have a value once bound; an optional tensor may leave its own at None.
        self.bound: dict[str, bool] = {}
        self.initial: list[str] = []

    def function(self) -> Checker:
        op = self.op
        self._check_rules()
        body: list[str] = []
        self.lines = body
        names = [param.name for param in op.tensors]
        self._line(1, f"if len(tensors) != {len(names)}: tensors = errors.pad(tensors)")
        self._line(1, f"{''.join(f't_{name}, ' for name in names) or '()'} = tensors = tuple(tensors)")
        for index, param in enumerate(op.tensors):
            self._param(index, param)
        self._scalars()
        self._attributes()
        self._rules()
        self._outputs()
        head = ["def check(tensors, attributes):", *(f"    {name} = None" for name in self.initial)]
        source = "\n".join([*head, *body])
        exec(compile(source, f"<checker of {op.id}>", "exec"), self.globals)
        return self.globals["check"]

    def _line(self, indent: int, text: str) -> None:
        self.lines.append("    " * indent + text)

    def _param(self, index: int, param: Param) -> None:
        tensor = f"t_{param.name}"
        if param.is_list:
            self._line(1, f"if {tensor} is not None:" if param.optional else "if True:")
            self._line(2, f"if {tensor}.__class__ is not tuple or not {tensor}: errors.operand({index}, {tensor})")
            self._line(2, f"for i, t in enumerate({tensor}):")
            self._line(3, f"if t.__class__ is not TensorSpec: errors.operand({index}, {tensor})")
            self._line(3, f"if t.weak: errors.weak({index}, t)")
            self._tensor(3, index, param, "t", f"'{param.name}[' + '%d' % i + ']'", certain=False)
            return
        if param.optional:
            self._line(1, f"if {tensor} is not None:")
        else:
            self._line(1, f"if {tensor} is None: errors.operand({index}, {tensor})")
        indent = 2 if param.optional else 1
        self._line(indent, f"if {tensor}.__class__ is not TensorSpec: errors.operand({index}, {tensor})")
        if param.broadcast and self.op.schema.scalars:
            accepted = _WEAK[param.dtype[0]] if param.letter else frozenset({dtypes.get(param.dtype).kind})
            self.globals[f"weak_{index}"] = accepted
            self._line(indent, f"if {tensor}.weak:")
            self._line(indent + 1, f"if {tensor}.dtype.kind not in weak_{index}: errors.weak({index}, {tensor})")
            self._line(indent, "else:")
            indent += 1
        else:
            self._line(indent, f"if {tensor}.weak: errors.weak({index}, {tensor})")
        certain = not param.optional and not (param.broadcast and self.op.schema.scalars)
        self._tensor(indent, index, param, tensor, repr(param.name), certain=certain)

    def _tensor(self, indent: int, index: int, param: Param, tensor: str, name: str, *, certain: bool) -> None:
        self._dtype(indent, index, param, tensor, name, certain)
        axes = list(param.axes)
        self._line(indent, f"shape = {tensor}.shape")
        if axes and isinstance(axes[0], str) and axes[0].startswith("*"):
            star = axes.pop(0)
            if axes:
                self._line(indent, f"lead = len(shape) - {len(axes)}")
                self._line(indent, f"if lead < 0: errors.rank({index}, {name}, {tensor})")
            # The leading axes of a list's items are their own: concat joins what differs.
            if not param.is_list:
                self._bind(indent, str(star), "shape[:lead]" if axes else "shape", name, certain)
            if axes:
                self._line(indent, "shape = shape[lead:]")
        else:
            self._line(indent, f"if len(shape) != {len(axes)}: errors.rank({index}, {name}, {tensor})")
        targets: list[str] = []
        checks: list[tuple[str, str] | tuple[int, int, str]] = []
        for position, axis in enumerate(axes):
            variable = f"a_{axis}"
            if isinstance(axis, str) and certain and variable not in self.bound:
                self.bound[variable] = True
                targets.append(variable)
                continue
            targets.append(f"e{position}")
            if isinstance(axis, int):
                checks.append((axis, position - len(axes), f"e{position}"))
            else:
                checks.append((str(axis), f"e{position}"))
        if targets:
            self._line(indent, f"{', '.join(targets)}, = shape")
        for check in checks:
            if len(check) == 3:
                literal, position, variable = check
                message = f"errors.literal({index}, {name}, {position}, {tensor})"
                self._line(indent, f"if {variable} != {literal}: {message}")
            else:
                self._bind(indent, check[0], check[1], name, certain)

    def _bind(self, indent: int, axis: str, value: str, name: str, certain: bool) -> None:
        """Bind an axis or leading axes to a value, or hold the value against what is bound."""
        variable = f"s_{axis[1:]}" if axis.startswith("*") else f"a_{axis}"
        always = self.bound.get(variable)
        if always is None and certain:
            self._line(indent, f"{variable} = {value}")
        else:
            keyword = "if"
            if not always:
                if variable not in self.initial:
                    self.initial.append(variable)
                self._line(indent, f"if {variable} is None: {variable} = {value}")
                keyword = "elif"
            error = f"errors.axis({axis!r}, {name}, {value}, {variable}, tensors)"
            self._line(indent, f"{keyword} {variable} != {value}: {error}")
        self.bound[variable] = bool(always) or certain

    def _dtype(self, indent: int, index: int, param: Param, tensor: str, name: str, certain: bool) -> None:
        letter = param.letter
        if param.mixed:
            self._class(indent, index, param.dtype, tensor, name)
            return
        if letter is None:
            self.globals[f"literal_{index}"] = dtypes.get(param.dtype)
            error = f"errors.dtype({index}, {name}, {tensor})"
            self._line(indent, f"if {tensor}.dtype is not literal_{index}: {error}")
            return
        variable = f"d_{letter}"
        always = self.bound.get(variable)
        if always is None and certain:
            self._line(indent, f"{variable} = {tensor}.dtype")
            self._class(indent, index, letter, tensor, name)
        else:
            self._class(indent, index, letter, tensor, name)
            keyword = "if"
            if not always:
                if variable not in self.initial:
                    self.initial.append(variable)
                self._line(indent, f"if {variable} is None: {variable} = {tensor}.dtype")
                keyword = "elif"
            error = f"errors.letter({index}, {name}, {tensor}, {variable}, tensors)"
            self._line(indent, f"{keyword} {tensor}.dtype is not {variable}: {error}")
        self.bound[variable] = bool(always) or certain

    def _class(self, indent: int, index: int, letter: str, tensor: str, name: str) -> None:
        kinds = CLASSES[letter[0]]
        if letter[0] != "T":
            test = f"!= {kinds[0]!r}" if len(kinds) == 1 else f"not in {kinds!r}"
            self._line(indent, f"if {tensor}.dtype.kind {test}: errors.dtype({index}, {name}, {tensor})")

    def _scalars(self) -> None:
        """Bind what no array bound where a Python scalar stands: its dtype, and no leading axes."""
        for param in self.op.tensors:
            if not param.broadcast or param.is_list:
                continue
            tensor = f"t_{param.name}"
            variables = {f"d_{param.letter}": f"{tensor}.dtype"} if param.letter else {}
            variables[f"s_{str(param.axes[0])[1:]}"] = "()"
            for variable, value in variables.items():
                if not self.bound[variable]:
                    self._line(1, f"if {variable} is None and {tensor} is not None: {variable} = {value}")
                    self.bound[variable] = not param.optional

    def _attributes(self) -> None:
        attributes = self.op.attributes
        self._line(1, "given = 0")
        for attribute in attributes:
            name, variable = attribute.name, f"v_{attribute.name}"
            self.globals[f"normalise_{name}"] = normaliser(attribute, self.op.name)
            self._line(1, f"{variable} = attributes.get({name!r}, MISSING)")
            if attribute.default is REQUIRED:
                self._line(1, f"if {variable} is MISSING: errors.required({name!r})")
                self._line(1, f"given += 1; {variable} = normalise_{name}({variable})")
            else:
                self.globals[f"default_{name}"] = self.op.defaults[name]
                self._line(1, f"if {variable} is MISSING: {variable} = default_{name}")
                self._line(1, f"else: given += 1; {variable} = normalise_{name}({variable})")
        self._line(1, "if given != len(attributes): errors.attributes(attributes)")
        items = ", ".join(f"{a.name!r}: v_{a.name}" for a in attributes)
        self._line(1, f"values = {{{items}}}")

    # Rules

    def _check_rules(self) -> None:
        op = self.op
        inputs = {axis.lstrip("*") for axis in op.schema.input_axes()}
        for name, rule in op.where.items():
            if name in inputs:
                raise SchemaError(f"where={{{name!r}: ...}} of {op.id}: {name} is an axis of a parameter already")
            if rule is not None:
                self._check_expression(rule, f"where={{{name!r}: ...}}", extent=True)
            elif op.infer is None:
                raise SchemaError(f"where={{{name!r}: None}} of {op.id}: only an infer= rule could bind it")
        for rule in op.require:
            self._check_expression(rule, "require=")
        for output in op.outputs:
            for axis in output.axes:
                if isinstance(axis, Expr):
                    self._check_expression(axis, f"output {output.name}", extent=True)

    def _check_expression(self, rule: Expr, place: str, extent: bool = False) -> None:
        for path in sorted(rule.names):
            try:
                local(self.op, path)
            except ExpressionError as error:
                raise SchemaError(f"{place} of {self.op.id}, {rule.text!r}: {error}") from error
        if extent and "/" in rule.kinds:
            raise SchemaError(f"{place} of {self.op.id}, {rule.text!r}: extents are integers; divide with // or cdiv")

    def _source(self, rule: Expr) -> str:
        return rule.source(lambda path: local(self.op, path))

    def _absent(self, rule: Expr) -> list[str]:
        """Return the variables a rule reads that an optional tensor left out leaves at None.

        A rule that asks whether the tensor is given looks after that itself.
        """
        op, found = self.op, dict[str, None]()
        asked = {path.partition(".")[0] for path in rule.names if path.endswith(".given")}
        for path in sorted(rule.names):
            name = op.names[path]
            if name.kind == "param":
                param = op.schema.param(name.base)
                if param is not None and param.optional and name.base not in asked:
                    found[f"t_{name.base}"] = None
            elif name.kind in ("axis", "letter"):
                variable = local(op, path)
                if variable in self.bound and not self.bound[variable] and variable in self.initial:
                    found[variable] = None
        return list(found)

    def _rules(self) -> None:
        op = self.op
        unbound = {path for path, name in op.names.items() if name.kind == "axis"}
        unbound -= {axis.removeprefix("*") for axis in op.schema.input_axes()}
        early = [i for i, rule in enumerate(op.require) if not rule.names & unbound]
        late = [i for i in range(len(op.require)) if i not in early]
        computed = {name: rule for name, rule in op.where.items() if rule is not None}
        if op.infer is not None:
            # What infer alone binds is looked at after it.
            inferred = unbound - computed.keys()
            self.errors.pending = tuple(i for i in late if op.require[i].names & inferred)
            late = [i for i in late if i not in self.errors.pending]
        if not early and not late and not computed:
            return
        self._line(1, "try:")
        for i in early:
            self._constraint(i)
        for number, (name, rule) in enumerate(computed.items()):
            self.globals[f"where_{number}"] = rule
            if self._absent(rule):
                raise SchemaError(f"where={{{name!r}: ...}} of {op.id} reads what an optional tensor alone has")
            self._line(2, f"rule = where_{number}")
            self._line(2, f"a_{name} = {self._source(rule)}")
            self._extent(2, f"a_{name}", name)
            self.bound[f"a_{name}"] = True
        for i in late:
            self._constraint(i)
        self._line(1, "except OurErrors: raise")
        self._line(1, "except ArithmeticErrors as error: errors.arithmetic(rule, error, locals())")

    def _constraint(self, index: int) -> None:
        rule = self.op.require[index]
        self.globals[f"require_{index}"] = rule
        for path in rule.names:
            variable = local(self.op, path)
            if variable.startswith(("a_", "s_", "d_")) and variable not in self.bound:
                raise SchemaError(f"require={rule.text!r} of {self.op.id} reads {path}, which nothing binds")
        skipped = "".join(f"{variable} is None or " for variable in self._absent(rule))
        self._line(2, f"rule = require_{index}")
        self._line(2, f"if not ({skipped}{self._source(rule)}): errors.constraint({index}, locals())")

    def _extent(self, indent: int, variable: str, name: str) -> None:
        test = f"{variable}.__class__ is not int or not 0 <= {variable} <= {MAX_EXTENT}"
        self._line(indent, f"if {test}: errors.extent({name!r}, rule, {variable}, locals())")

    def _outputs(self) -> None:
        op = self.op
        if op.infer is not None:
            self._line(1, f"return errors.infer(Signature(op, tensors, values, {self._axes()}, {self._letters()}, ()))")
            return
        specs: list[str] = []
        for index, output in enumerate(op.outputs):
            letter = output.letter
            if letter is None:
                self.globals[f"result_{index}"] = dtypes.get(output.dtype)
            elif not self.bound.get(f"d_{letter}") and f"d_{letter}" not in self.bound:
                raise SchemaError(f"dtype {letter} of output {output.name} of {op.id} is no parameter's; give infer=")
            dtype = f"result_{index}" if letter is None else f"d_{letter}"
            specs.append(f"TensorSpec({dtype}, ({''.join(f'{a}, ' for a in self._shape(index, output))}))")
        outputs = f"({''.join(f'{spec}, ' for spec in specs)})"
        self._line(1, f"return Signature(op, tensors, values, {self._axes()}, {self._letters()}, {outputs})")

    def _shape(self, index: int, output: Output) -> list[str]:
        shape: list[str] = []
        for position, axis in enumerate(output.axes):
            if isinstance(axis, int):
                shape.append(str(axis))
            elif isinstance(axis, Expr):
                variable = f"o_{index}_{position}"
                self.globals[f"rule_{index}_{position}"] = axis
                if self._absent(axis):
                    raise SchemaError(f"output {output.name} of {self.op.id} reads what an optional tensor alone has")
                self._line(1, f"rule = rule_{index}_{position}")
                self._line(1, f"try: {variable} = {self._source(axis)}")
                self._line(1, "except OurErrors: raise")
                self._line(1, "except ArithmeticErrors as error: errors.arithmetic(rule, error, locals())")
                self._extent(1, variable, f"{position} of {output.name}")
                shape.append(variable)
            else:
                star = axis.startswith("*")
                variable = f"s_{axis[1:]}" if star else f"a_{axis}"
                if not self.bound.get(variable):
                    way = "give infer=" if star else f"give where={{{axis!r}: ...}} or infer="
                    raise SchemaError(f"axis {axis} of output {output.name} of {self.op.id} is no parameter's; {way}")
                shape.append(f"*{variable}" if star else variable)
        return shape

    def _axes(self) -> str:
        axes = {v: k for v, k in self.bound.items() if v.startswith(("a_", "s_"))}
        items = [f"{('*' if v.startswith('s_') else '') + v[2:]!r}: {v}" for v in axes]
        return self._dict(items, [v for v, always in axes.items() if not always])

    def _letters(self) -> str:
        letters = {v: always for v, always in self.bound.items() if v.startswith("d_")}
        return self._dict([f"{v[2:]!r}: {v}" for v in letters], [v for v, always in letters.items() if not always])

    def _dict(self, items: list[str], uncertain: list[str]) -> str:
        text = f"{{{', '.join(items)}}}"
        if not uncertain:
            return text
        self.globals["given_only"] = _given_only
        return f"given_only({text})"


def _given_only(values: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in values.items() if value is not None}
