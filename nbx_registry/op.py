"""Ops: contracts that can be read. The `op` decorator makes one of a schema string, rules, and an oracle.

The function under the decorator is the oracle: plain NumPy, slow and obvious, in float64 for floating inputs and in
their own dtype for others; its docstring documents the op.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal, cast

import numpy as np

from nbx_registry import rounding
from nbx_registry.dtypes import DType
from nbx_registry.errors import ExpressionError, PluginFault, SchemaError, SignatureError, nearest
from nbx_registry.head import split_head
from nbx_registry.infer import scalar_dtype
from nbx_registry.signature import Name, Signature, names_of
from nbx_registry.spec import TensorSpec

if TYPE_CHECKING:
    from nbx_registry import checker
    from nbx_registry.cost import Cost
    from nbx_registry.expr import Expr
    from nbx_registry.param import Attribute, Output, Param
    from nbx_registry.schema import Schema

__all__ = ["Op", "Signature", "op"]

Array = Any
"""A NumPy array, of any dtype of the table."""


class Op:
    """A contract: what is computed, on what, at what cost, and how exactly.

    Made by the `op` decorator, whose parameters are attributes here. The schema string is parsed at first use.

    Attributes
    ----------
    id, name, namespace, version
        ``sdm::wy_solve@1``, ``sdm::wy_solve``, ``sdm``, 1; the namespace of the core's ops is empty.
    oracle : callable
    doc : str
        The oracle's docstring.
    """

    def __init__(
        self,
        schema: str,
        oracle: Callable[..., Any],
        *,
        where: Mapping[str, str | None],
        require: Sequence[str],
        infer: Callable[[Signature], Any] | None,
        cost: Callable[[Signature], Any] | None,
        cost_at: Callable[..., Any] | None,
        cost_values: Sequence[str],
        flops: str | None,
        least_flops: str | None,
        unit: Literal["vector", "matrix"],
        bytes_read: str | None,
        least_bytes: str | None,
        accumulation: str,
        magnitude: Callable[..., Any] | None,
        exact: bool,
        ulp: float,
        signed_zeros: bool | None,
        index_bounds: Mapping[str, str | tuple[str, str | None]],
        views: bool,
    ) -> None:
        self.text = schema
        self.name, self.version = split_head(schema)
        self.id = f"{self.name}@{self.version}"
        self.namespace = self.name.partition("::")[0] if "::" in self.name else ""
        self.oracle = oracle
        self.doc = (oracle.__doc__ or "").strip()
        self._where = dict(where)
        self._require = (require,) if isinstance(require, str) else tuple(require)
        self.infer = infer
        self.cost_function = cost
        self.cost_at = cost_at
        self.cost_values = tuple(cost_values)
        self.flops = flops
        self.least_flops = least_flops
        self.unit: Literal["vector", "matrix"] = unit
        self.bytes_read = bytes_read
        self.least_bytes = least_bytes
        self.accumulation = accumulation
        self.magnitude = magnitude
        self.exact = exact
        self.ulp = ulp
        self._signed_zeros = signed_zeros
        self._index_bounds = dict(index_bounds)
        self.views = views

    def __repr__(self) -> str:
        return f"<Op {self.id}>"

    @cached_property
    def schema(self) -> Schema:
        """The parsed schema. Raises `SchemaError`."""
        from nbx_registry.schema import parse  # not needed to register an op

        return parse(self.text)

    @cached_property
    def tensors(self) -> tuple[Param, ...]:
        """The tensor parameters, in order."""
        return self.schema.params

    @cached_property
    def attributes(self) -> tuple[Attribute, ...]:
        """The keywords that are no tensors, in order."""
        return self.schema.attributes

    @cached_property
    def outputs(self) -> tuple[Output, ...]:
        """The outputs, in order."""
        return self.schema.outputs

    @cached_property
    def where(self) -> dict[str, Expr | None]:
        """Axes that the op computes, by name; None for those that its infer rule binds."""
        return {
            name: None if text is None else self._rule(text, f"where={{{name!r}: ...}}")
            for name, text in self._where.items()
        }

    @cached_property
    def require(self) -> tuple[Expr, ...]:
        """Constraints: what must hold beside matching axes and dtypes."""
        return tuple(self._rule(text, "require=") for text in self._require)

    @cached_property
    def index_bounds(self) -> dict[str, tuple[Expr, Expr | None]]:
        """By parameter that holds indices: the least one allowed, and what they stay below (None: anything)."""
        pairs = {n: ("0", b) if isinstance(b, str) else b for n, b in self._index_bounds.items()}
        return {
            n: (self._rule(low, "index_bounds="), None if high is None else self._rule(high, "index_bounds="))
            for n, (low, high) in pairs.items()
        }

    @property
    def signed_zeros(self) -> bool:
        """Whether a result of zero must have the oracle's sign."""
        if self._signed_zeros is not None:
            return self._signed_zeros
        # Behind an accumulation the sign of a zero is an accident of the order.
        return self.exact or (self.accumulation.strip() == "1" and self.unit == "vector")

    def _rule(self, text: str, place: str) -> Expr:
        from nbx_registry.expr import parse  # as above

        try:
            return parse(text)
        except ExpressionError as error:
            raise SchemaError(f"{place} of {self.id}: {error}") from error

    @cached_property
    def positions(self) -> dict[str, int]:
        """Where each parameter, then each output, stands among all of them."""
        return {item.name: i for i, item in enumerate((*self.tensors, *self.outputs))}

    @cached_property
    def names(self) -> dict[str, Name]:
        """What each name means in an expression over this op: a rule's, a condition's or a cost's."""
        return names_of(self.schema, self.where)

    @cached_property
    def always_bound(self) -> frozenset[str]:
        """The axes (``*B`` included) and dtype letters that every signature has, whichever tensors are given."""
        items = (*(p for p in self.tensors if not p.optional), *self.outputs)
        axes = {axis for item in items for axis in item.axes if isinstance(axis, str)}
        return frozenset({*axes, *self.where, *(item.letter for item in items if item.letter is not None)})

    @cached_property
    def defaults(self) -> dict[str, Any]:
        """Normalised defaults of the attributes that have one."""
        from nbx_registry import checker  # as above
        from nbx_registry.param import REQUIRED

        given = (a for a in self.attributes if a.default is not REQUIRED)
        return {a.name: checker.normaliser(a, self.name)(a.default) for a in given}

    @cached_property
    def static_attributes(self) -> tuple[str, ...]:
        """Names of the attributes that hold no integers: a few values, on which no size depends."""
        return tuple(a.name for a in self.attributes if not a.integral)

    @cached_property
    def united_attributes(self) -> tuple[str, ...]:
        """Names of the attributes that are any of several types."""
        return tuple(a.name for a in self.attributes if len(a.kinds) > 1)

    @cached_property
    def signature(self) -> checker.Checker:
        """Check specs and attributes against the contract: ``signature(tensors, attributes) -> Signature``.

        ``tensors`` holds a `TensorSpec` for each parameter in order, None for an optional one left out (at the end they
        may be missing), a tuple of specs for a list. Raises `SignatureError` naming the tensors and the values that
        disagree, `SchemaError` where the contract itself is wrong.
        """
        from nbx_registry import checker  # as above

        return checker.compile_checker(self)

    def arguments(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> tuple[list[Any], dict[str, Any]]:
        """Sort a call's arguments into tensors, in parameter order, and attributes.

        Tensors may be given by position or keyword. Raises `SignatureError` for too many, for one given twice, for the
        keywords of every call, and for unknown ones with the nearest name.
        """
        params = self.tensors
        if len(args) > len(params):
            names = ", ".join(p.name for p in params) or "none"
            raise SignatureError(
                f"{self.name}: {len(args)} positional arguments given, but it takes {len(params)} tensors ({names});"
                f" attributes are given by keyword",
                code="ARGUMENTS",
            )
        tensors = [*args, *(None,) * (len(params) - len(args))]
        attributes: dict[str, Any] = {}
        known = {a.name for a in self.attributes}
        for name, value in kwargs.items():
            if name in known:
                attributes[name] = value
                continue
            position = self.positions.get(name, len(params))
            if position < len(args):
                raise SignatureError(f"{self.name}: {name} is given twice", code="ARGUMENTS")
            if position >= len(params):
                hint = nearest(name, [*known, *(p.name for p in params)])
                raise SignatureError(f"{self.name}: unknown argument {name!r}{hint}", code="ARGUMENTS")
            tensors[position] = value
        return tensors, attributes

    def cost(self, signature: Signature, values: Mapping[str, Array] | None = None) -> Cost:
        """Return what the op costs on a signature: nominal and least, as exact integers.

        Parameters
        ----------
        values
            Arrays by parameter, at which it is the cost: those that `cost_values` names decide it, others are passed
            over. Where one of these is not given it is the cost whatever the values.
        """
        from nbx_registry.cost import cost_of  # it knows ops

        return cost_of(self, signature, values)

    def bound(
        self, signature: Signature, arrays: Sequence[Array], reference: Sequence[Array]
    ) -> tuple[np.ndarray[Any, Any], ...]:
        """Return, for each output, the largest error allowed per element, float64; 0 where results are exact."""
        from nbx_registry.tolerance import bound_of  # it knows ops

        return bound_of(self, signature, arrays, reference)

    def run_oracle(
        self, signature: Signature, arrays: Sequence[Any], attributes: Mapping[str, Any] | None = None
    ) -> tuple[np.ndarray[Any, Any], ...]:
        """Compute the op by its oracle.

        Parameters
        ----------
        signature
            What `Op.signature` made of the arrays' specs.
        arrays
            NumPy arrays in parameter order, in their own dtypes; None for a tensor left out, a sequence for a list.
            Python scalars where the signature says so.
        attributes
            Those of the signature, unless given.

        Returns
        -------
        The outputs, then the new values of ``mut`` parameters in order: float64 (complex128) where their dtype is
        floating (complex), else in it. Raises `PluginFault` where the oracle gives what its contract does not say.
        """
        with np.errstate(all="ignore"):
            operands = self.upcast(signature, arrays)
            result = self.oracle(*operands, **(signature.attributes if attributes is None else attributes))
        results = () if result is None else cast("tuple[Any, ...]", result if isinstance(result, tuple) else (result,))
        specs = list(zip((o.name for o in self.outputs), signature.outputs, strict=True))
        for param, spec in zip(self.tensors, signature.tensors, strict=True):
            if param.mutable and isinstance(spec, TensorSpec):
                specs.append((param.name, spec))
        if len(results) != len(specs):
            names = ", ".join(name for name, _ in specs) or "nothing"
            raise PluginFault(
                f"the oracle of {self.id} gave {len(results)} arrays; its contract has {names}", where=self.id
            )
        return tuple(self._result(value, name, spec) for value, (name, spec) in zip(results, specs, strict=True))

    def upcast(self, signature: Signature, arrays: Sequence[Any]) -> list[Any]:
        """Return what the oracle is given: copies, floating ones in float64, complex ones in complex128.

        A ``mut`` parameter keeps its dtype: what is written into it is rounded to that. A Python scalar is rounded to
        the dtype it takes beside the arrays.
        """
        operands: list[Any] = []
        for param, spec, value in zip(self.tensors, signature.tensors, arrays, strict=True):
            if isinstance(spec, tuple):
                operands.append([_upcast(item, s.dtype) for item, s in zip(value, spec, strict=True)])
            elif spec is None:
                operands.append(None)
            elif spec.weak:
                adopted = scalar_dtype(signature, param.name)
                exact = adopted.floating and adopted.bits < 64
                operands.append(rounding.round_to_float(float(value), adopted) if exact else _upcast(value, adopted))
            else:
                own = param.mutable
                operands.append(np.array(value, spec.dtype.numpy) if own else _upcast(value, spec.dtype))
        return operands

    def _result(self, value: Any, name: str, spec: TensorSpec) -> np.ndarray[Any, Any]:
        found = np.asarray(value)
        if found.shape != spec.shape:
            raise PluginFault(f"the oracle of {self.id} gave {name} of shape {found.shape} for {spec}", where=self.id)
        return found.astype(_wide(spec.dtype))

    @cached_property
    def digest(self) -> str:
        """A digest of the contract: schema, rules, and what the code of its oracle and functions computes."""
        import hashlib

        from nbx_registry import digest  # reads sources: not needed to register an op

        rules: list[object] = [str(self.schema), sorted(self._where.items()), self._require]
        rules += [self.flops, self.least_flops, self.unit, self.bytes_read, self.least_bytes, self.accumulation]
        rules += [self.exact, self.ulp, self._signed_zeros, sorted(self._index_bounds.items()), self.views]
        # What it costs at some values decides neither what may run nor what is right.
        for function in (self.oracle, self.infer, self.cost_function, self.magnitude):
            rules.append(digest.function_digest(function) if callable(function) else function)
        return hashlib.sha256(repr(rules).encode()).hexdigest()


def _wide(dtype: DType) -> np.dtype[Any]:
    if dtype.kind == "float":
        return np.dtype(np.float64)
    return np.dtype(np.complex128) if dtype.kind == "complex" else dtype.numpy


def _upcast(value: Any, dtype: DType) -> np.ndarray[Any, Any]:
    return np.array(value, dtype=_wide(dtype))


def op(
    schema: str,
    *,
    where: Mapping[str, str | None] | None = None,
    require: Sequence[str] | str = (),
    infer: Callable[[Signature], Any] | None = None,
    cost: Callable[[Signature], Any] | None = None,
    cost_at: Callable[..., Any] | None = None,
    cost_values: Sequence[str] = (),
    flops: str | None = None,
    least_flops: str | None = None,
    unit: Literal["vector", "matrix"] = "vector",
    bytes_read: str | None = None,
    least_bytes: str | None = None,
    accumulation: str = "1",
    magnitude: Callable[..., Any] | None = None,
    exact: bool = False,
    ulp: float = 0.5,
    signed_zeros: bool | None = None,
    index_bounds: Mapping[str, str | tuple[str, str | None]] | None = None,
    views: bool = False,
) -> Callable[[Callable[..., Any]], Op]:
    """Make an `Op` of the function below: its oracle, whose docstring documents the op.

    Parameters
    ----------
    schema
        The schema string; see `nbx_registry.schema`.
    where
        Axes that are computed: name to expression, in order; later ones may read earlier ones. None stands for an axis
        that ``infer`` binds.
    require
        Constraints as expressions. One that reads a tensor left out is passed over, unless it asks for ``.given``.
    infer
        For what the string cannot say: takes the signature so far (no outputs), returns a `TensorSpec` for each output,
        and puts the axes that ``where`` leaves to it into ``signature.axes``.
    cost
        Takes a signature, returns a `Cost`, for what the expressions below cannot say.
    cost_at, cost_values
        Where values decide what is looked at: the parameters that hold them (indices, lengths, masks), and what takes
        the signature, the cost without them, and the array of each by keyword, and returns the `Cost` at these values.
    flops, least_flops, bytes_read, least_bytes
        Expressions over axes, attributes and tensors.
    unit
        What does the work.
    accumulation
        Expression: how many roundings in float32 (float64 where float64 comes out) stand behind an output element, as
        many as there are terms in a sum; the last is the output's own where that is in the same dtype.
    magnitude
        What each of these roundings is relative to: takes the signature, then what the oracle takes, returns for each
        output the sum of its terms' magnitudes. The reference's own magnitude unless given.
    exact
        Whether every kernel must give the oracle's result to the bit (but for the payload of a NaN).
    ulp
        Units in the last place of the output allowed beside accumulation: a half for rounding once.
    signed_zeros
        Whether a result of zero must have the oracle's sign. It must where the op is ``exact``, or works on the vector
        unit with an ``accumulation`` of 1, unless this says otherwise.
    index_bounds
        By parameter that holds indices: an expression they stay below, or the least one allowed and that expression,
        which may be None. Python integers are held against it on every device, floating tensors never.
    views
        Whether the output may be a view of an input.
    """

    def decorate(oracle: Callable[..., Any]) -> Op:
        return Op(
            schema,
            oracle,
            where=where or {},
            require=require,
            infer=infer,
            cost=cost,
            cost_at=cost_at,
            cost_values=cost_values,
            flops=flops,
            least_flops=least_flops,
            unit=unit,
            bytes_read=bytes_read,
            least_bytes=least_bytes,
            accumulation=accumulation,
            magnitude=magnitude,
            exact=exact,
            ulp=ulp,
            signed_zeros=signed_zeros,
            index_bounds=index_bounds or {},
            views=views,
        )

    return decorate
