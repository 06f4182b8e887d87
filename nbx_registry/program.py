"""Binding: a chosen kernel becomes launches over named slots, packed by its runtime; here toolkits load."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from nbx_registry import dtypes, expr
from nbx_registry.composite import Traced
from nbx_registry.errors import NbxError, OutOfMemory, PluginFault
from nbx_registry.kernel import BindContext, Launch, ScalarOf, View
from nbx_registry.runtime import Buffer, LiveDevice, Program, Runtime, Slot
from nbx_registry.selection import Choice
from nbx_registry.signature import Signature
from nbx_registry.spec import TensorSpec
from nbx_registry.target import Target, load


@dataclass(frozen=True, slots=True)
class Derived:
    """A slot whose operand comes from another slot (seen with other strides) or is a constant."""

    index: int
    base: int | None
    spec: TensorSpec
    shift: int = 0
    """Elements from the base's first element."""
    value: bool | int | float | None = None


@dataclass(eq=False, slots=True)
class BoundProgram:
    """A kernel bound to a signature on a target: everything about a call but its operands.

    Attributes
    ----------
    slots
        Given parameters in order, outputs, workspace, derived slots: the order of ``program``'s operands.
    program
        None for a view, for an empty list of launches, and where the device is absent.
    """

    signature: Signature
    target: Target
    choice: Choice
    slots: tuple[Slot, ...]
    launches: tuple[Launch, ...]
    view: View | None = None
    program: Program | None = None
    derived: tuple[Derived, ...] = ()
    runtime: Runtime | None = None
    live: LiveDevice | None = None

    @property
    def workspace(self) -> tuple[Slot, ...]:
        """The slots of workspace, temporaries of composites included."""
        return tuple(slot for slot in self.slots if slot.kind == "workspace")

    @property
    def settings(self) -> Mapping[str, object]:
        """The launch settings in force."""
        return self.choice.settings

    def allocate_workspace(self, stream: Any = None) -> list[Buffer]:
        """Allocate the declared workspace from the runtime's pool, in slot order."""
        if self.runtime is None or self.live is None:
            return []
        index = self.live.index
        return [self.runtime.allocate(index, slot.spec.nbytes, stream) for slot in self.workspace]

    def operands(self, arguments: Sequence[Any], workspace: Sequence[Buffer] = ()) -> list[Any]:
        """Complete the operands of parameters and outputs with those of workspace and derived slots."""
        operands = list(arguments)
        array = self.runtime is not None and self.runtime.operands == "array"
        if workspace:
            for slot, buffer in zip(self.workspace, workspace, strict=True):
                operands.append(_as_array(buffer, slot.spec) if array else buffer.address)
        for derived in self.derived:
            if derived.base is None:
                operands.append(derived.value)
            elif array:
                operands.append(_restride(operands[derived.base], derived))
            else:
                operands.append(operands[derived.base] + derived.shift * derived.spec.dtype.itemsize)
        return operands


def build(choice: Choice, signature: Signature, target: Target, runtime: Runtime | None = None) -> BoundProgram:
    """Bind a choice: load the kernel, evaluate its workspace, pack its launches.

    Parameters
    ----------
    runtime
        Stands in for the target's own runtime (an emulator); its first device is used.

    Raises
    ------
    PluginFault
        The binder raised, or returned something else than launches or a view.
    OutOfMemory
        Loading found no memory.
    """
    live = target.live
    if runtime is None:
        runtime = target.runtime if live is not None else None
    else:
        live = runtime.devices()[0]
    outputs = {output.name for output in signature.op.outputs}
    slots = [Slot(name, spec, "output" if name in outputs else "input") for name, spec in signature.slots()]
    derived: tuple[Derived, ...] = ()
    view: View | None = None
    if choice.expansion is None and not choice.kernel.workspace:
        bound = _bind(choice, signature, target, runtime, live)
        launches, view = ((), bound) if isinstance(bound, View) else (tuple(bound), None)
    else:
        builder = _Builder(target, runtime, live, slots)
        builder.add(choice, signature, {slot.name: slot.name for slot in slots}, "")
        slots += (*builder.workspace, *builder.derived_slots)
        position = {slot.name: index for index, slot in enumerate(slots)}
        derived = tuple(_with_base(d, base, position) for d, base in builder.derived)
        launches = tuple(builder.launches)
    program = None
    if launches and runtime is not None and live is not None:
        program = runtime.program(live.index, launches, slots)
    return BoundProgram(signature, target, choice, tuple(slots), launches, view, program, derived, runtime, live)


def _with_base(derived: Derived, base: str | None, position: Mapping[str, int]) -> Derived:
    """Fill in the index of a derived slot's base, known once all slots are."""
    return derived if base is None else replace(derived, base=position[base])


@dataclass
class _Builder:
    target: Target
    runtime: Runtime | None
    live: LiveDevice | None
    slots: list[Slot]
    workspace: list[Slot] = field(default_factory=list[Slot])
    derived_slots: list[Slot] = field(default_factory=list[Slot])
    derived: list[tuple[Derived, str | None]] = field(default_factory=list[Any])
    launches: list[Launch] = field(default_factory=list[Launch])

    def add(self, choice: Choice, signature: Signature, names: dict[str, str], prefix: str) -> None:
        """Add a choice's launches; ``names`` maps its own slot names to the program's."""
        if choice.expansion is not None:
            self._composite(choice, names, prefix)
            return
        kernel = choice.kernel
        result = _bind(choice, signature, self.target, self.runtime, self.live)
        if isinstance(result, View):
            raise PluginFault(
                f"{kernel.id!r} answers {signature} with a view, where a launch is wanted; in a composite use "
                "trace.permute or trace.reshape",
                where=str(kernel.bind),
            )
        if kernel.workspace:
            settings = choice.settings

            def look_up(path: str) -> Any:
                return settings[path] if path in settings else signature.value(path)

            for declared in kernel.workspace:
                shape = tuple(int(expr.parse(extent).evaluate(look_up)) for extent in declared.shape)
                names[declared.name] = prefix + declared.name
                self.workspace.append(
                    Slot(prefix + declared.name, TensorSpec(dtypes.get(declared.dtype), shape), "workspace")
                )
        for launch in result:
            self.launches.append(_renamed(launch, names) if prefix else launch)

    def _composite(self, choice: Choice, names: dict[str, str], prefix: str) -> None:
        expansion = choice.expansion
        assert expansion is not None
        specs = {slot.name: slot.spec for slot in (*self.slots, *self.workspace, *self.derived_slots)}
        for local, spec in expansion.temporaries.items():
            # The dot keeps temporaries apart from every parameter name.
            names[local] = f"{prefix}.{local}"
            specs[names[local]] = spec
            self.workspace.append(Slot(names[local], spec, "workspace"))
        for number, (step, part) in enumerate(zip(expansion.steps, choice.parts, strict=True)):
            inner: dict[str, str] = {}
            for param, operand in zip(step.signature.op.tensors, step.inputs, strict=True):
                if operand is None:
                    continue
                name = f"{prefix}.{number}.{param.name}"
                if isinstance(operand, Traced):
                    base = names[operand.slot]
                    if operand.spec == specs[base]:
                        inner[param.name] = base
                        continue
                    shift = operand.spec.offset - specs[base].offset
                    self.derived.append((Derived(len(self.derived_slots), None, operand.spec, shift), base))
                    spec = operand.spec
                else:
                    spec = step.signature.tensor(param.name)
                    assert spec is not None
                    self.derived.append((Derived(len(self.derived_slots), None, spec, value=operand), None))
                inner[param.name] = name
                specs[name] = spec
                self.derived_slots.append(Slot(name, spec, "derived"))
            for output, slot in zip(step.signature.op.outputs, step.outputs, strict=True):
                inner[output.name] = names[slot]
            self.add(part, step.signature, inner, f"{prefix}.{number}")


def _bind(
    choice: Choice, signature: Signature, target: Target, runtime: Runtime | None, live: LiveDevice | None
) -> View | Sequence[Launch]:
    kernel = choice.kernel
    binder = load(kernel.bind) if isinstance(kernel.bind, str) else kernel.bind
    assert target.device is not None
    context = BindContext(
        kernel=kernel,
        signature=signature,
        device=target.device,
        settings=choice.settings,
        runtime=runtime,
        live=live,
    )
    try:
        result = binder(context)
    except (OutOfMemory, PluginFault):
        raise
    except Exception as error:
        raise PluginFault(
            f"binding {kernel.id!r} to {signature} raised {type(error).__name__}: {error}", where=str(kernel.bind)
        ) from error
    if isinstance(result, Launch):
        return (result,)
    if isinstance(result, View) or (
        isinstance(result, Sequence) and all(isinstance(launch, Launch) for launch in result)
    ):
        return result
    raise PluginFault(
        f"binding {kernel.id!r} returned {result!r}; it must return a Launch, several, or a View",
        where=str(kernel.bind),
    )


def _renamed(launch: Launch, names: Mapping[str, str]) -> Launch:
    args = tuple(
        names[arg]
        if isinstance(arg, str)
        else ScalarOf(names[arg.name], arg.ctype)
        if isinstance(arg, ScalarOf)
        else arg
        for arg in launch.args
    )
    return replace(launch, args=args, offsets=tuple((names[name], offset) for name, offset in launch.offsets))


def _as_array(buffer: Buffer, spec: TensorSpec) -> np.ndarray:
    array: np.ndarray = buffer.array  # type: ignore[attr-defined]
    return array[: spec.nbytes].view(spec.dtype.numpy).reshape(spec.shape)


def _restride(base: np.ndarray, derived: Derived) -> np.ndarray:
    if derived.base is None or not isinstance(base, np.ndarray):
        raise NbxError(f"slot {derived.index} has no array to look at")
    step = base.dtype.itemsize
    start = base
    if derived.shift:
        flat = np.lib.stride_tricks.as_strided(base, (derived.shift + 1,), (step,))
        start = flat[derived.shift :]
    strides = tuple(stride * step for stride in derived.spec.strides)
    return np.lib.stride_tricks.as_strided(start, derived.spec.shape, strides)
