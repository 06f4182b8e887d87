"""Calls on the host with packed tensors: unpacked for the kernel, and packed again where it wrote.

The host's kernels are given NumPy arrays, which hold one element of less than a byte in each byte. Of an nbx.Tensor of
such a dtype they are given a copy in that form, the only one that a call makes by itself.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, cast

from nbx_registry.call import Call, CallShape, Fixed, flat
from nbx_registry.errors import SignatureError
from nbx_registry.interop import Adapter
from nbx_registry.interop.nbx_tensors import NbxAdapter
from nbx_registry.interop.numpy_arrays import NumpyAdapter
from nbx_registry.program import BoundProgram
from nbx_registry.spec import TensorSpec

_NUMPY = NumpyAdapter()


def packs(shape: CallShape) -> bool:
    """Return whether a call on arrays has packed tensors among them."""
    bound = shape.bound
    if bound.runtime is None or bound.runtime.operands != "array":
        return False
    if NbxAdapter not in map(type, (*shape.adapters, *shape.out_adapters)):
        return False
    operands = zip(flat(bound.signature.tensors), shape.adapters, strict=False)
    outputs = zip(bound.signature.outputs, shape.out_adapters, strict=True)
    return any(_packed(spec, adapter) for spec, adapter in (*operands, *outputs))


def _packed(spec: TensorSpec | None, adapter: Adapter | None) -> bool:
    return spec is not None and spec.dtype.packed and type(adapter) is NbxAdapter


class PackedCall:
    """A call some of whose tensors are packed: another one on arrays, between unpacking and packing."""

    __slots__ = ("_call", "_inputs", "_mutable", "_outputs", "_shape", "bound")

    def __init__(self, shape: CallShape, make: Callable[[CallShape], Call]) -> None:
        self.bound = bound = shape.bound
        self._shape = shape
        operands = list(zip(flat(bound.signature.tensors), shape.adapters, strict=False))
        mutable = {param.name for param in bound.signature.op.tensors if param.mutable}
        self._inputs = [n for n, pair in enumerate(operands) if _packed(*pair)]
        self._mutable = [n for n in self._inputs if shape.names[n] in mutable]
        outputs = zip(bound.signature.outputs, shape.out_adapters, strict=True)
        self._outputs = [n for n, pair in enumerate(outputs) if _packed(*pair)]
        adapters = [_NUMPY if n in self._inputs else adapter for n, adapter in enumerate(shape.adapters)]
        out_adapters = [_NUMPY if n in self._outputs else adapter for n, adapter in enumerate(shape.out_adapters)]
        self._call = make(replace(shape, adapters=adapters, out_adapters=out_adapters, out_given=True))

    def run(self, args: Sequence[Any], out: Any, /) -> Any:
        """Run on arrays of this kind; return the outputs."""
        arrays, outputs, targets = self._unpacked(args, out)
        self._call.run(arrays, _result(targets))
        self._pack(args, arrays, outputs, targets)
        return _result(outputs)

    def program_for(self, args: Sequence[Any], out: Any, /) -> BoundProgram:  # noqa: ARG002 - the protocol's form
        """Return the program: what is unpacked is aligned."""
        return self.bound

    def fix(self, args: Sequence[Any], out: Any, /) -> Fixed:
        """Settle arrays of this kind, with workspace of their own; nothing runs yet."""
        arrays, outputs, targets = self._unpacked(args, out)
        fixed = self._call.fix(arrays, _result(targets))

        def again() -> None:
            for n in self._inputs:
                arrays[n][...] = args[n].unpacked()
            fixed.again()
            self._pack(args, arrays, outputs, targets)

        return Fixed(self.bound, _result(outputs), again)

    def _unpacked(self, args: Sequence[Any], out: Any) -> tuple[list[Any], list[Any], list[Any]]:
        """Return the arguments with arrays for packed tensors; the outputs; and these likewise."""
        op = self.bound.signature.op.name
        for n in self._mutable:
            if args[n].readonly:
                raise SignatureError(f"{op}: {self._shape.names[n]} is written in place, but it is read-only")
        arrays = [array.unpacked() if n in self._inputs else array for n, array in enumerate(args)]
        if out is None:
            pairs = zip(self._shape.out_adapters, self.bound.signature.outputs, strict=True)
            outputs = [adapter.empty(spec, self._shape.place) for adapter, spec in pairs]
        else:
            outputs = list(cast("Sequence[Any]", out)) if isinstance(out, tuple) else [out]
        if any(outputs[n].readonly for n in self._outputs):
            raise SignatureError(f"{op}: out= is read-only")
        targets = [array.unpacked() if n in self._outputs else array for n, array in enumerate(outputs)]
        return arrays, outputs, targets

    def _pack(self, args: Sequence[Any], arrays: Sequence[Any], outputs: Sequence[Any], targets: Sequence[Any]) -> None:
        for n in self._mutable:
            args[n].assign(arrays[n])
        for n in self._outputs:
            outputs[n].assign(targets[n])


def _result(arrays: Sequence[Any]) -> Any:
    if len(arrays) == 1:
        return arrays[0]
    return tuple(arrays) if arrays else None
