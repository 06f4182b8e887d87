"""Costs: what an op must do and move, nominally and at the least, as exact integers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING, Any, Literal

from nbx_registry import dtypes
from nbx_registry.dtypes import DType
from nbx_registry.errors import PluginFault
from nbx_registry.spec import TensorSpec

if TYPE_CHECKING:
    from nbx_registry.op import Op
    from nbx_registry.signature import Signature


@dataclass(frozen=True, kw_only=True, slots=True)
class Cost:
    """The cost of an op on a signature.

    *Nominal* is what the op does as its contract is written: every operand read once in full, every output written
    once. *Least* is what no implementation can go below, whatever its algorithm and whatever the values: an expanded
    (stride-0) axis is read once, of a triangle only the half that counts, and where values say what is looked at
    (indices, lengths, slots, masks) they are taken to be those that ask for least, unless it is the cost at given
    values. A kernel's workspace is not in it.
    """

    flops: int
    """Nominal operations of the unit that does the work; a multiplication and an addition count two. Work that rides
    along on another unit (a softmax between two matrix products, an epilogue) is not counted."""
    unit: Literal["vector", "matrix"]
    """Which unit does the work."""
    dtype: DType
    """The dtype in which that unit works: a matrix unit's operands'; on the vector unit float32 for everything
    narrower."""
    bytes_read: int
    """Nominal bytes read: of each input every element, an expanded axis counted in full; no Python scalars."""
    bytes_written: int
    """Nominal bytes written: the outputs, and what is written in place."""
    least_flops: int
    """The fewest operations: those of `flops` that some output depends on, whatever the values (a causal mask hides
    some, any other mask may hide all)."""
    least_bytes: int
    """The fewest bytes moved, reads and writes together."""


def cost_of(op: Op, signature: Signature, values: Mapping[str, Any] | None = None) -> Cost:
    """Return what an op costs on a signature: by its own rule, else `default_cost` with its expressions.

    With ``values``, arrays by parameter, what it costs at these, where the op has a rule for that.

    Raises `PluginFault` where a rule gives anything but exact, non-negative integers.
    """
    if op.cost_function is not None:
        cost = op.cost_function(signature)
    else:
        from nbx_registry import expr  # contracts import this module: it stays light

        texts = {name: getattr(op, name) for name in ("flops", "least_flops", "bytes_read", "least_bytes")}
        given = {n: expr.parse(text).evaluate(signature.value) for n, text in texts.items() if text is not None}
        cost = default_cost(signature, **given)
    _check(op, signature, cost)
    if op.cost_at is None or values is None or any(name not in values for name in op.cost_values):
        return cost
    at = op.cost_at(signature, cost, **{name: values[name] for name in op.cost_values})
    _check(op, signature, at)
    return at


def _check(op: Op, signature: Signature, cost: object) -> None:
    if not isinstance(cost, Cost):
        raise PluginFault(f"the cost rule of {op.id} gave {cost!r}, no Cost (for {signature})", where=op.id)
    for name in ("flops", "bytes_read", "bytes_written", "least_flops", "least_bytes"):
        value = getattr(cost, name)
        if type(value) is not int or value < 0:
            raise PluginFault(f"{name} of {op.id} comes out as {value!r}, no count (for {signature})", where=op.id)


def default_cost(
    signature: Signature,
    *,
    flops: int = 0,
    least_flops: int | None = None,
    bytes_read: int | None = None,
    bytes_written: int | None = None,
    least_bytes: int | None = None,
    dtype: DType | None = None,
) -> Cost:
    """Return a cost with whatever is not given at its default.

    Operations: none, and the least are the nominal ones. Bytes read: all of the inputs. Bytes written: all of the
    outputs and of what is written in place. Least bytes: the distinct elements of the inputs (or the bytes read, if
    given and fewer), and the bytes written; where none is written none need be read.
    """
    if bytes_written is None:
        in_place = (spec for spec, mutable in inputs(signature) if mutable)
        bytes_written = sum(spec.nbytes for spec in (*signature.outputs, *in_place))
    distinct = sum(spec.distinct_bytes for spec, _ in inputs(signature))
    if least_bytes is None:
        least_read = distinct if bytes_read is None else min(distinct, bytes_read)
        least_bytes = least_read + bytes_written if bytes_written else 0
    if bytes_read is None:
        bytes_read = sum(spec.nbytes for spec, _ in inputs(signature))
    return Cost(
        flops=flops,
        unit=signature.op.unit,
        dtype=working_dtype(signature) if dtype is None else dtype,
        bytes_read=bytes_read,
        bytes_written=bytes_written,
        least_flops=flops if least_flops is None else least_flops,
        least_bytes=least_bytes,
    )


def inputs(signature: Signature) -> Iterator[tuple[TensorSpec, bool]]:
    """Yield the spec of every array an op is given, and whether it is written in place."""
    for param, operand in zip(signature.op.tensors, signature.tensors, strict=True):
        for spec in operand if isinstance(operand, tuple) else (operand,):
            if spec is not None and not spec.weak:
                yield spec, param.mutable


def working_dtype(signature: Signature) -> DType:
    """Return the dtype an op's unit works in.

    A matrix unit works in the dtype of its operands, taken to be the first floating input's. The vector unit works in
    that of the first output (the first input, where there is none), float32 if that is a narrower floating dtype.
    """
    arrays = [spec for spec, _ in inputs(signature)]
    if signature.op.unit == "matrix":
        return next(spec.dtype for spec in arrays if spec.dtype.floating)
    dtype = (signature.outputs or arrays)[0].dtype
    return dtypes.get("float32") if dtype.floating and dtype.bits < 32 else dtype


def distinct_elements(spec: TensorSpec, shape: tuple[int, ...]) -> int:
    """Return how many elements of a tensor a part of it has, of the extents ``shape``: an expanded axis counts once."""
    return prod(n if stride else min(n, 1) for n, stride in zip(shape, spec.strides, strict=True))


def distinct_bytes(spec: TensorSpec, shape: tuple[int, ...]) -> int:
    """Return the bytes of `distinct_elements`."""
    return spec.dtype.nbytes(distinct_elements(spec, shape))


def distinct_positions(specs: list[TensorSpec], shape: tuple[int, ...]) -> int:
    """Return how many elements of an elementwise result over ``shape`` can differ.

    An axis along which every operand is constant (extent 1, or stride 0) counts once.
    """
    count = 1
    for axis, extent in enumerate(shape, start=-len(shape)):
        varies = any(-axis <= spec.rank and spec.shape[axis] != 1 and spec.strides[axis] != 0 for spec in specs)
        count *= extent if varies or extent == 0 else 1
    return count
