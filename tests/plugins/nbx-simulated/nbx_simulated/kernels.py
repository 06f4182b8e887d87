"""Loopback kernels: an op's own oracle over simulated memory, whatever the op."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from nbx_registry.dtypes import DType
from nbx_registry.infer import scalar_dtype
from nbx_registry.launch import BindContext, Launch, ScalarOf
from nbx_registry.op import Op
from nbx_registry.rounding import round_to_float
from nbx_registry.signature import Signature
from nbx_registry.spec import TensorSpec
from nbx_simulated.memory import Memory

COPIES = frozenset({"embedding@1", "permute_dims@1", "pixel_shuffle@1"})
"""Ops that move elements and compute nothing: the same bits, those of every NaN included."""

Array = np.ndarray
Written = list[tuple[int, TensorSpec, Array]]
"""What a kernel is about to write: address, spec and values of each output and of each ``mut`` parameter."""


def bind(context: BindContext) -> Launch:
    """Return one launch that runs the oracle over the memory of all operands."""
    return launch_of(context.signature, Loopback(context.signature).run)


def bind_by_workspace(context: BindContext) -> list[Launch]:
    """Return two launches for an op of one contiguous ``x``: into the workspace ``scratch``, and from there on."""
    signature = context.signature
    (x,) = signature.tensors

    def move(memory: Memory, source: int, scratch: int) -> None:
        memory.view(scratch, x.nbytes)[...] = memory.view(source, x.nbytes)

    return [
        Launch(function=move, args=("x", "scratch")),
        Launch(function=Loopback(signature).run, args=("scratch", *(output.name for output in signature.op.outputs))),
    ]


def launch_of(signature: Signature, function: Callable[..., object]) -> Launch:
    """Return a launch of ``function(memory, *operands)`` over every operand of a signature, in slot order."""
    return Launch(
        function=function,
        args=tuple(ScalarOf(name, _ctype(signature, name)) if spec.weak else name for name, spec in signature.slots()),
    )


def _ctype(signature: Signature, name: str) -> str:
    """Return how a Python scalar is passed: an integer beside floating tensors, which may be large, as a float."""
    adopted = scalar_dtype(signature, name)
    return "float64" if adopted.floating else signature.tensor(name).dtype.name


@dataclass(frozen=True)
class Operands:
    """Operands of one run: the parameters in order (None where one is left out, a tuple for a list), the outputs."""

    tensors: tuple[Any, ...]
    outputs: tuple[int, ...]


class Loopback:
    """The computation of one signature, in steps that a hostile kernel can get wrong one at a time."""

    def __init__(self, signature: Signature) -> None:
        self.signature = signature

    def run(self, memory: Memory, *operands: Any) -> None:
        """Read, compute, write."""
        given = self.operands(operands)
        self.write(memory, self.compute(given, self.read(memory, given)))

    def operands(self, operands: Sequence[Any]) -> Operands:
        """Sort operands, given in slot order."""
        rest = iter(operands)
        tensors: list[Any] = []
        for spec in self.signature.tensors:
            if isinstance(spec, tuple):
                tensors.append(tuple(next(rest) for _ in spec))
            else:
                tensors.append(None if spec is None else next(rest))
        return Operands(tuple(tensors), tuple(rest))

    def read(self, memory: Memory, given: Operands) -> list[Any]:
        """Return the parameters as arrays, copied: what happens to memory afterwards does not change them."""
        return [
            tuple(self.load(memory, item, part) for item, part in zip(operand, spec, strict=True))
            if isinstance(spec, tuple)
            else None
            if spec is None
            else self.load(memory, operand, spec)
            for operand, spec in zip(given.tensors, self.signature.tensors, strict=True)
        ]

    def load(self, memory: Memory, operand: Any, spec: TensorSpec) -> Any:
        """Return one tensor, or the Python scalar given for it."""
        return operand if spec.weak else memory.array(operand, spec).copy()

    def compute(self, given: Operands, arrays: list[Any]) -> Written:
        """Run the oracle; return what is to be written where."""
        signature = self.signature
        op = signature.op
        results = copied(op, signature, arrays) if op.id in COPIES else op.run_oracle(signature, arrays)
        targets = list(zip(given.outputs, signature.outputs, strict=True))
        targets += [
            (operand, spec)
            for param, operand, spec in zip(op.tensors, given.tensors, signature.tensors, strict=True)
            if param.mutable and spec is not None
        ]
        return [
            (address, spec, rounded(values, spec.dtype))
            for (address, spec), values in zip(targets, results, strict=True)
        ]

    def write(self, memory: Memory, written: Written) -> None:
        """Write every result."""
        for address, spec, values in written:
            memory.array(address, spec)[...] = values


def copied(op: Op, signature: Signature, arrays: list[Any]) -> tuple[Array, ...]:
    """Run the oracle of a copy over words of the elements' width: through float64 a signalling NaN would turn quiet."""
    (out,) = signature.outputs
    words = [a.view(f"u{a.dtype.itemsize}") if a.dtype == out.dtype.numpy else a for a in arrays]
    return (np.ascontiguousarray(op.oracle(*words, **signature.attributes)).view(out.dtype.numpy),)


def rounded(values: Array, dtype: DType) -> Array:
    """Return float64 results in the output's dtype, rounded once; others as they are."""
    if values.dtype == dtype.numpy:
        return values
    if dtype.floating:
        return np.asarray(round_to_float(values, dtype)).astype(dtype.numpy)
    return values.astype(dtype.numpy)
