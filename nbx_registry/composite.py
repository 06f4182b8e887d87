"""Composites: an op made of other ops. The kernel's function is traced once a signature into a list of steps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod

from nbx_registry.catalog import Catalog
from nbx_registry.dtypes import DType
from nbx_registry.errors import PluginFault, SignatureError
from nbx_registry.kernel import Kernel
from nbx_registry.signature import Signature
from nbx_registry.spec import TensorSpec
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


Operand = Traced | bool | int | float | None


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


class Trace:
    """What a composite's function is given: calls ops on traced tensors, and looks at them in other ways."""

    def __init__(self, catalog: Catalog, kernel: Kernel, signature: Signature) -> None:
        self._catalog = catalog
        self._kernel = kernel
        self._signature = signature
        self._steps: list[Step] = []
        self._temporaries: dict[str, TensorSpec] = {}

    def call(self, op: str, *tensors: Operand, **attributes: object) -> Traced | tuple[Traced, ...] | None:
        """Call an op by name; only the kernel's declared ``parts`` may be called.

        Raises
        ------
        SignatureError
            The tensors do not fit that op.
        PluginFault
            The op is not among the kernel's parts.
        """
        contract = self._catalog.op(op)
        if contract.id not in self._kernel.parts:
            raise PluginFault(
                f"composite {self._kernel.id!r} calls {contract.id}, which its parts={self._kernel.parts} do not name",
                where=str(self._kernel.bind),
            )
        specs = [t.spec if isinstance(t, Traced) else weak_spec(t) for t in tensors]
        specs += [None] * (len(contract.tensors) - len(specs))
        operands = (*tensors, *[None] * (len(specs) - len(tensors)))
        signature = contract.signature(specs, attributes)
        outputs: list[Traced] = []
        for spec in signature.outputs:
            slot = f"t{len(self._temporaries)}"
            self._temporaries[slot] = spec
            outputs.append(Traced(spec, slot))
        self._steps.append(Step(signature, operands, tuple(o.slot for o in outputs)))
        if len(outputs) == 1:
            return outputs[0]
        return tuple(outputs) or None

    def permute(self, tensor: Traced, axes: Sequence[int]) -> Traced:
        """Look at a tensor with its axes in another order; nothing moves."""
        spec = tensor.spec
        if sorted(axes) != list(range(spec.rank)):
            raise SignatureError(f"axes {tuple(axes)} are no order of the {spec.rank} axes of {spec}")
        shape, strides = tuple(spec.shape[a] for a in axes), tuple(spec.strides[a] for a in axes)
        return Traced(TensorSpec(spec.dtype, shape, strides, spec.offset, spec.align), tensor.slot)

    def reshape(self, tensor: Traced, shape: Sequence[int]) -> Traced:
        """Look at a contiguous tensor in another shape; nothing moves."""
        spec = tensor.spec
        if not spec.contiguous or prod(shape) != spec.size:
            raise SignatureError(f"{spec} cannot be seen as {tuple(shape)} without a copy")
        return Traced(TensorSpec(spec.dtype, tuple(shape), None, spec.offset, spec.align), tensor.slot)

    def finish(self, result: object) -> Expansion:
        """Make the slots of the returned tensors the op's outputs."""
        returned = result if isinstance(result, tuple) else () if result is None else (result,)
        names = [output.name for output in self._signature.op.outputs]
        if len(returned) != len(names) or not all(isinstance(t, Traced) for t in returned):
            raise PluginFault(
                f"composite {self._kernel.id!r} returned {len(returned)} tensors; {self._signature.op.id} has "
                f"{len(names)} outputs, each a tensor made by trace.call",
                where=str(self._kernel.bind),
            )
        rename: dict[str, str] = {}
        for tensor, name, declared in zip(returned, names, self._signature.outputs, strict=True):
            made = self._temporaries.pop(tensor.slot, None)
            if made is None or tensor.spec != made or made.dtype is not declared.dtype or made.shape != declared.shape:
                raise PluginFault(
                    f"composite {self._kernel.id!r} returned {tensor.spec} for output {name!r}, which must be a fresh "
                    f"{declared} made by one trace.call",
                    where=str(self._kernel.bind),
                )
            rename[tensor.slot] = name
        steps = tuple(
            Step(
                step.signature,
                tuple(Traced(t.spec, rename.get(t.slot, t.slot)) if isinstance(t, Traced) else t for t in step.inputs),
                tuple(rename.get(slot, slot) for slot in step.outputs),
            )
            for step in self._steps
        )
        return Expansion(steps, self._temporaries)


def expand(catalog: Catalog, kernel: Kernel, signature: Signature) -> Expansion:
    """Trace a composite for a signature.

    Raises whatever the composite's function raises; the caller turns that into a fault of its plugin.
    """
    trace = Trace(catalog, kernel, signature)
    function = load(kernel.bind) if isinstance(kernel.bind, str) else kernel.bind
    tensors = [
        None if spec is None else Traced(spec, param.name)
        for param, spec in zip(signature.op.tensors, signature.tensors, strict=True)
    ]
    return trace.finish(function(trace, *tensors, **signature.attributes))  # type: ignore[operator]


def weak_spec(value: object) -> TensorSpec | None:
    """Return the spec of a Python scalar given as a tensor (weak in promotion); None for None."""
    from nbx_registry import dtypes

    if value is None:
        return None
    if isinstance(value, bool):
        return TensorSpec(dtypes.get("bool"), (), weak=True)
    if isinstance(value, int):
        return TensorSpec(dtypes.get("int64"), (), weak=True)
    if isinstance(value, float):
        return TensorSpec(dtypes.get("float64"), (), weak=True)
    raise SignatureError(f"{value!r} is no tensor, scalar or None")
