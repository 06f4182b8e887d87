"""Composites: an op made of other ops. The kernel's function is traced once a signature into a list of steps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

from nbx_registry import views
from nbx_registry.catalog import Catalog
from nbx_registry.dtypes import DType
from nbx_registry.errors import PluginFault, SignatureError
from nbx_registry.interop.base import alignment
from nbx_registry.kernel import Kernel
from nbx_registry.signature import Signature
from nbx_registry.spec import TensorSpec, weak_spec
from nbx_registry.target import load


@dataclass(frozen=True, slots=True)
class Traced:
    """A tensor while a composite is traced: a spec, and the slot whose memory it looks at."""

    spec: TensorSpec
    slot: str

    @property
    def shape(self) -> tuple[int, ...]:
        """Its extents."""
        return self.spec.shape

    @property
    def dtype(self) -> DType:
        """Its dtype."""
        return self.spec.dtype


Scalar = bool | int | float | complex
Operand = Traced | Scalar | tuple[Traced, ...] | None
"""What a step is given for a parameter: a tensor, a Python scalar, a list's tensors, None for one left out."""


@dataclass(frozen=True, slots=True)
class Step:
    """One op of a composite."""

    signature: Signature
    inputs: tuple[Operand, ...]
    outputs: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Expansion:
    """What a composite does for one signature: its steps in order, and the memory between them."""

    steps: tuple[Step, ...]
    temporaries: Mapping[str, TensorSpec]


class Looks:
    """Ways to look at a traced tensor; nothing moves."""

    def permute(self, tensor: Traced, axes: Sequence[int]) -> Traced:
        """Look at a tensor with its axes in another order; nothing moves."""
        return _look(tensor, views.permute(tensor.shape, tensor.spec.strides, axes))

    def reshape(self, tensor: Traced, shape: Sequence[int]) -> Traced:
        """Look at a tensor in another shape (one extent may be -1). Raises `SignatureError` where that needs a copy."""
        target = views.resolve(shape, tensor.spec.size)
        strides = views.reshape(tensor.shape, tensor.spec.strides, target)
        if strides is None:
            raise SignatureError(f"{tensor.spec} cannot be seen as {target} without a copy")
        return _look(tensor, views.Layout(target, strides, 0))

    def expand(self, tensor: Traced, shape: Sequence[int]) -> Traced:
        """Look at a tensor with axes of extent 1 repeated, and leading axes added; nothing moves."""
        return _look(tensor, views.expand(tensor.shape, tensor.spec.strides, shape))

    def index(self, tensor: Traced, item: Any) -> Traced:
        """Look at a part of a tensor: ``item`` holds integers, slices, ``...`` and None, as NumPy reads them."""
        return _look(tensor, views.index(tensor.shape, tensor.spec.strides, item))


class Trace(Looks):
    """What a composite's function is given: calls ops on traced tensors, and looks at them in other ways.

    Parameters
    ----------
    placed
        Specs of temporaries known to be outputs that are not dense: the caller's ``out=``.
    """

    def __init__(
        self, catalog: Catalog, kernel: Kernel, signature: Signature, placed: Mapping[str, TensorSpec] | None = None
    ) -> None:
        self._catalog = catalog
        self._kernel = kernel
        self._signature = signature
        self._placed = placed or {}
        self._steps: list[Step] = []
        self._temporaries: dict[str, TensorSpec] = {}

    def call(self, op: str, *tensors: Any, **attributes: Any) -> Any:
        """Call an op by name; only the kernel's declared ``parts`` may be called.

        Tensors are given as to `Registry.call`: traced ones, Python scalars, None, lists of traced ones.

        Returns
        -------
        A `Traced`, a tuple of them for several outputs, None for none.

        Raises
        ------
        SignatureError
            The tensors do not fit that op.
        PluginFault
            The op is not among the kernel's parts, or would write in place what the composite's op only reads.
        """
        contract = self._catalog.op(op)
        if contract.id not in self._kernel.parts:
            raise self._fault(f"calls {contract.id}, which its parts={self._kernel.parts} do not name")
        given, attributes = contract.arguments(tensors, attributes)
        inputs = tuple(operand(value) for value in given)
        signature = contract.signature([spec_of(value) for value in inputs], attributes)
        for param, value in zip(contract.tensors, inputs, strict=True):
            if param.mutable and isinstance(value, Traced) and not self._may_write(value.slot):
                raise self._fault(f"lets {contract.id} write {value.slot!r} in place, which its own op only reads")
        slots = tuple(f"#{len(self._temporaries) + n}" for n in range(len(signature.outputs)))
        signature.outputs = tuple(
            self._placed.get(slot, spec) for slot, spec in zip(slots, signature.outputs, strict=True)
        )
        self._temporaries.update(zip(slots, signature.outputs, strict=True))
        self._steps.append(Step(signature, inputs, slots))
        outputs = tuple(Traced(spec, slot) for spec, slot in zip(signature.outputs, slots, strict=True))
        return outputs[0] if len(outputs) == 1 else outputs or None

    def finish(self, result: object) -> tuple[Expansion, dict[str, TensorSpec]]:
        """Make the slots of the returned tensors the op's outputs.

        Returns
        -------
        The expansion, and by temporary the specs of those outputs that are not laid out as it took them to be.
        """
        returned = cast(
            "tuple[object, ...]", result if isinstance(result, tuple) else () if result is None else (result,)
        )
        outputs = self._signature.op.outputs
        if len(returned) != len(outputs):
            raise self._fault(f"returned {len(returned)} tensors; {self._signature.op.id} has {len(outputs)} outputs")
        rename: dict[str, str] = {}
        misplaced: dict[str, TensorSpec] = {}
        temporaries = dict(self._temporaries)
        for tensor, output, declared in zip(returned, outputs, self._signature.outputs, strict=True):
            made = temporaries.pop(tensor.slot, None) if isinstance(tensor, Traced) else None
            if not isinstance(tensor, Traced) or made is None or tensor.spec != made or not _fits(made, declared):
                shown = tensor.spec if isinstance(tensor, Traced) else repr(tensor)
                raise self._fault(
                    f"returned {shown} for output {output.name!r}: a fresh {declared} is wanted, made by one trace.call"
                )
            rename[tensor.slot] = output.name
            if made != declared:
                misplaced[tensor.slot] = declared

        def renamed(value: Operand) -> Operand:
            if isinstance(value, tuple):
                return tuple(Traced(item.spec, rename.get(item.slot, item.slot)) for item in value)
            return Traced(value.spec, rename.get(value.slot, value.slot)) if isinstance(value, Traced) else value

        steps = tuple(
            Step(step.signature, tuple(map(renamed, step.inputs)), tuple(rename.get(s, s) for s in step.outputs))
            for step in self._steps
        )
        return Expansion(steps, temporaries), misplaced

    def _may_write(self, slot: str) -> bool:
        if slot in self._temporaries:
            return True
        param = self._signature.op.schema.param(slot)
        return param is not None and param.mutable

    def _fault(self, what: str) -> PluginFault:
        return PluginFault(f"composite {self._kernel.id!r} {what}", where=str(self._kernel.bind))


def expand(catalog: Catalog, kernel: Kernel, signature: Signature) -> Expansion:
    """Trace a composite for a signature.

    Raises whatever the composite's function raises; the caller turns that into a fault of its plugin.
    """
    function = load(kernel.bind) if isinstance(kernel.bind, str) else kernel.bind
    tensors = [
        tuple(Traced(item, f"{param.name}.{i}") for i, item in enumerate(spec))
        if isinstance(spec, tuple)
        else None
        if spec is None
        else Traced(spec, param.name)
        for param, spec in zip(signature.op.tensors, signature.tensors, strict=True)
    ]

    def traced(placed: Mapping[str, TensorSpec] | None) -> tuple[Expansion, dict[str, TensorSpec]]:
        trace = Trace(catalog, kernel, signature, placed)
        return trace.finish(function(trace, *tensors, **signature.attributes))

    expansion, misplaced = traced(None)
    if misplaced:
        # Which temporary is which output is known only at the end; what is made of it must see its real layout.
        expansion, _ = traced(misplaced)
    return expansion


def operand(value: Any) -> Operand:
    """Return what a step is given for a parameter: a list's tensors as a tuple."""
    return tuple(cast("list[Traced]", value)) if isinstance(value, list) else value


def spec_of(value: Operand) -> Any:
    """Return the spec of an operand: a tuple of them for a list, a weak one for a scalar."""
    if isinstance(value, tuple):
        return tuple(map(spec_of, value))
    return value.spec if isinstance(value, Traced) else weak_spec(value)


def _fits(made: TensorSpec, declared: TensorSpec) -> bool:
    return made.dtype is declared.dtype and made.shape == declared.shape


def _look(tensor: Traced, layout: views.Layout) -> Traced:
    spec = tensor.spec
    align = min(spec.align, alignment(layout.offset * spec.dtype.itemsize))
    return Traced(TensorSpec(spec.dtype, layout.shape, layout.strides, spec.offset + layout.offset, align), tensor.slot)
