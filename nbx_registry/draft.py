"""Drafts: a plan from code. Ops are called on specs, and nothing runs; the device need not be there."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import count
from typing import Any, cast

from nbx_registry.call import flat
from nbx_registry.catalog import Catalog
from nbx_registry.choice import Choice
from nbx_registry.composite import Looks, Traced, operand, spec_of
from nbx_registry.errors import NbxError, SignatureError
from nbx_registry.interop.base import alignment
from nbx_registry.plan import Plan, Step, Value
from nbx_registry.planentry import PlanEntry
from nbx_registry.program import build
from nbx_registry.programs import Programs
from nbx_registry.signature import Signature
from nbx_registry.spec import TensorSpec, parse
from nbx_registry.target import Target

_names = count()


class Draft(Looks):
    """Makes a plan for one device, call by call.

    Calls take and return values, which know their ``shape`` and ``dtype``; `permute`, `reshape`, `expand` and `index`
    look at them in other ways.

    Attributes
    ----------
    plan : Plan
        What was called so far.
    """

    def __init__(self, catalog: Catalog, programs: Programs, target: Target, require: str) -> None:
        if target.device is None:
            raise NbxError(f"a plan needs the facts of a device: {target.why}; would do if {target.way}")
        self.plan = Plan()
        self._catalog = catalog
        self._programs = programs
        self._target = target
        self._device = target.device
        self._require = require
        # Begins the slots of its values: those of other drafts are told by it.
        self._name = f"{next(_names)}:"

    def given(self, spec: str | TensorSpec) -> Traced:
        """Return a value that is there before the plan: a weight, an input, a pool.

        Raises `SpecError` for a string that is no spec, `SignatureError` for what is neither string nor spec.
        """
        found = parse(spec) if isinstance(spec, str) else spec
        if not isinstance(found, TensorSpec) or found.weak:  # pyright: ignore[reportUnnecessaryIsInstance] - a caller may give anything
            raise SignatureError(f"{spec!r} is no spec of a tensor; write one like 'float16[2, 3]'")
        return self._value(found, given=True)

    def call(self, op: str, /, *tensors: Any, kernel: str | None = None, **attributes: Any) -> Any:
        """Call an op, as `Registry.call` does, on values, Python scalars, None and lists of values.

        A spec string stands for a value of its own that is given.

        Returns
        -------
        A value, a tuple of them for several outputs, None for none.

        Raises
        ------
        SignatureError
            The arguments do not fit the contract.
        Refused
            No kernel may run this on the device.
        """
        contract = self._catalog.op(op)
        found, attributes = contract.arguments(tensors, attributes)
        inputs = [self._operand(f"{op}: {p.name}", v) for p, v in zip(contract.tensors, found, strict=True)]
        signature = contract.signature([spec_of(value) for value in inputs], attributes)
        choice = self._programs.choose(signature, self._target, self._require, kernel)
        entry = PlanEntry.of(self._catalog, signature, choice, self._target, self._require, kernel)
        outputs = self._outputs(choice, signature, inputs, kernel)
        read = tuple(self._number(item) if isinstance(item, Traced) else None for item in flat(inputs))
        self.plan.steps.append(Step(self.plan.add(entry), read, tuple(map(self._number, outputs))))
        return outputs[0] if len(outputs) == 1 else outputs or None

    def _operand(self, what: str, value: Any) -> Any:
        if isinstance(value, (str, TensorSpec)):
            return self.given(value)
        if isinstance(value, (list, tuple)):
            items = cast("Sequence[Any]", value)
            return operand([self._operand(f"{what}[{n}]", item) for n, item in enumerate(items)])
        if isinstance(value, Traced):
            if not value.slot.startswith(self._name):
                raise SignatureError(f"{what} is a value of another draft; give this draft's own")
            return Traced(self._seen(value.spec), value.slot)
        if value is None or isinstance(value, (bool, int, float, complex)):
            return value
        raise SignatureError(f"{what} is a {type(value).__qualname__}; a draft takes values, spec strings and scalars")

    def _outputs(self, choice: Choice, signature: Signature, inputs: list[Any], pin: str | None) -> tuple[Traced, ...]:
        if choice.kernel.backend == "view":
            view = build(choice, signature, self._target, self._require, pin).view
            assert view is not None
            base = dict(zip(signature.op.positions, inputs, strict=False))[view.of]
            shift = view.offset * base.dtype.itemsize
            spec = TensorSpec(base.dtype, view.shape, view.strides, align=min(base.spec.align, alignment(shift)))
            return (Traced(self._seen(spec), base.slot),)
        return tuple(self._value(spec, given=False) for spec in signature.outputs)

    def _seen(self, spec: TensorSpec) -> TensorSpec:
        """Return what a call would find: an address is that of the first element, and looked at where that matters."""
        if not spec.offset and spec.align == 16:
            return spec
        looked_at = self._target.runtime_name != "host" or self._programs.reads_alignment("host")
        return TensorSpec(spec.dtype, spec.shape, spec.strides, align=min(spec.align, 16) if looked_at else 16)

    def _value(self, spec: TensorSpec, *, given: bool) -> Traced:
        self.plan.values.append(Value(spec.dtype.nbytes(spec.extent), self._device.id, given))
        return Traced(spec, f"{self._name}{len(self.plan.values) - 1}")

    def _number(self, value: Traced) -> int:
        return int(value.slot.removeprefix(self._name))
