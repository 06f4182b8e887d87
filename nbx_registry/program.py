"""Binding: a chosen kernel becomes launches over named slots, packed by its runtime; here toolkits load."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, cast

import numpy as np

from nbx_registry import dtypes, expr
from nbx_registry.choice import Choice
from nbx_registry.composite import Operand, Step, Traced
from nbx_registry.errors import NbxError, OutOfMemory, PluginFault
from nbx_registry.interop.memory import address_of, array_at
from nbx_registry.kernel import Workspace
from nbx_registry.launch import BindContext, Launch, ScalarOf, View
from nbx_registry.memory.allocation import allocate
from nbx_registry.runtime import Buffer, LiveDevice, Program, Runtime, Slot
from nbx_registry.signature import Signature
from nbx_registry.spec import MAX_EXTENT, TensorSpec
from nbx_registry.target import Target, load


@dataclass(frozen=True, slots=True)
class Derived:
    """Where the operand of a derived slot comes from: another slot, seen with other strides, or a constant."""

    base: int | None
    spec: TensorSpec
    shift: int = 0
    """Elements from the base's first element."""
    value: bool | int | float | complex | None = None


@dataclass(eq=False, slots=True)
class BoundProgram:
    """A kernel bound to a signature on a target: everything about a call but its operands.

    Attributes
    ----------
    require, pin
        The policy and the kernel asked for, under which it was chosen.
    slots
        Given parameters in order, outputs, workspace, derived slots: the order of ``program``'s operands.
    workspace
        The slots of workspace, temporaries of composites included.
    program
        None for a view, for an empty list of launches, and where the device is absent.
    """

    signature: Signature
    target: Target
    choice: Choice
    require: str
    pin: str | None
    slots: tuple[Slot, ...]
    launches: tuple[Launch, ...]
    view: View | None = None
    program: Program | None = None
    workspace: tuple[Slot, ...] = ()
    derived: tuple[Derived, ...] = ()
    runtime: Runtime | None = None
    live: LiveDevice | None = None

    @property
    def settings(self) -> Mapping[str, object]:
        """The launch settings in force."""
        return self.choice.settings

    def allocate_workspace(self, stream: Any = None) -> list[Buffer]:
        """Allocate the declared workspace, in slot order: from the block's allocator, else the runtime's pool."""
        if self.runtime is None or self.live is None:
            return []
        runtime, index = self.runtime, self.live.index
        # An array holds one element of less than a byte in each.
        array = runtime.operands == "array"
        sizes = [s.spec.size * s.spec.dtype.itemsize if array else s.spec.nbytes for s in self.workspace]
        return [allocate(runtime, index, nbytes, stream) for nbytes in sizes]

    def operands(self, arguments: Sequence[Any], workspace: Sequence[Buffer] = ()) -> list[Any]:
        """Complete the operands of parameters and outputs with those of workspace and derived slots."""
        operands = list(arguments)
        array = self.runtime is not None and self.runtime.operands == "array"
        for slot, buffer in zip(self.workspace, workspace, strict=True):
            operands.append(_as_array(buffer, slot.spec) if array else buffer.address)
        for derived in self.derived:
            if derived.base is None:
                operands.append(derived.value)
            elif array:
                operands.append(_restrided(operands[derived.base], derived))
            else:
                operands.append(operands[derived.base] + derived.spec.dtype.nbytes(derived.shift))
        return operands


def build(
    choice: Choice,
    signature: Signature,
    target: Target,
    require: str = "any",
    pin: str | None = None,
    runtime: Runtime | None = None,
) -> BoundProgram:
    """Bind a choice: load the kernel, evaluate its workspace, pack its launches.

    Parameters
    ----------
    require, pin
        Under which it was chosen.
    runtime
        Stands in for the target's own runtime (an emulator); its first device is used.

    Raises
    ------
    PluginFault
        The binder raised, or returned something else than launches or a view that fit the op.
    OutOfMemory
        Loading found no memory.
    NbxError
        ``runtime`` has no device.
    """
    live = target.live
    if runtime is None:
        runtime = target.runtime if live is not None else None
    else:
        live = next(iter(runtime.devices()), None)
        if live is None:
            raise NbxError(f"runtime {runtime.name} has no device: {runtime.why_absent()}")
    outputs = {output.name for output in signature.op.outputs}
    slots = [Slot(name, spec, "output" if name in outputs else "input") for name, spec in signature.slots()]
    workspace: tuple[Slot, ...] = ()
    derived: tuple[Derived, ...] = ()
    view: View | None = None
    if choice.expansion is None and not choice.kernel.workspace:
        answer = _bind(choice, signature, target, runtime, live)
        launches, view = ((), answer) if isinstance(answer, View) else (answer, None)
    else:
        workspace = tuple(workspace_of(choice, signature))
        builder = _Builder(target, runtime, live, {slot.name: slot.spec for slot in (*slots, *workspace)})
        view = builder.add(choice, signature, {slot.name: slot.name for slot in slots}, "")
        slots += (*workspace, *builder.derived_slots)
        position = {slot.name: index for index, slot in enumerate(slots)}
        derived = tuple(d if base is None else replace(d, base=position[base]) for d, base in builder.derived)
        launches = tuple(builder.launches)
    program = None
    if launches and runtime is not None and live is not None:
        try:
            program = runtime.program(live.index, launches, slots)
        except OutOfMemory:
            raise
        except NbxError as error:
            raise _fault(choice, f"the launches of {choice.kernel.id!r} do not fit: {error}") from error
    return BoundProgram(
        signature,
        target,
        choice,
        require,
        pin,
        tuple(slots),
        launches,
        view,
        program,
        workspace,
        derived,
        runtime,
        live,
    )


def workspace_of(choice: Choice, signature: Signature, prefix: str = "") -> Iterator[Slot]:
    """Yield the slots of workspace that a choice takes, temporaries of composites included; nothing is loaded.

    Raises `PluginFault` where a declared extent cannot be told, or is none.
    """
    if choice.expansion is None:
        for declared in choice.kernel.workspace:
            spec = _workspace_spec(choice, declared, signature)
            yield Slot(_inner(prefix, declared.name), spec, "workspace")
        return
    for name, spec in choice.expansion.temporaries.items():
        yield Slot(prefix + name, spec, "workspace")
    for number, (step, part) in enumerate(zip(choice.expansion.steps, choice.parts, strict=True)):
        yield from workspace_of(part, step.signature, f"{prefix}.{number}")


@dataclass
class _Builder:
    """Collects the slots and launches of a choice, whose parts are under ``.0``, ``.1``, ``.1.0``."""

    target: Target
    runtime: Runtime | None
    live: LiveDevice | None
    specs: dict[str, TensorSpec]
    """Of every slot so far, by name."""
    derived_slots: list[Slot] = field(default_factory=list[Slot])
    derived: list[tuple[Derived, str | None]] = field(default_factory=list[tuple[Derived, str | None]])
    launches: list[Launch] = field(default_factory=list[Launch])

    def add(self, choice: Choice, signature: Signature, names: dict[str, str], prefix: str) -> View | None:
        """Add a choice's launches; ``names`` maps its own slot names to the program's."""
        if choice.expansion is not None:
            self._composite(choice, names, prefix)
            return None
        result = _bind(choice, signature, self.target, self.runtime, self.live)
        if isinstance(result, View):
            return result
        for declared in choice.kernel.workspace:
            if declared.name in names:
                raise _fault(choice, f"workspace {declared.name!r} of {choice.kernel.id!r} is named as a tensor")
            names[declared.name] = _inner(prefix, declared.name)
        self.launches += (_renamed(choice, launch, names) for launch in result) if prefix else result
        return None

    def _composite(self, choice: Choice, names: dict[str, str], prefix: str) -> None:
        expansion = choice.expansion
        assert expansion is not None
        names.update((local, prefix + local) for local in expansion.temporaries)
        for number, (step, part) in enumerate(zip(expansion.steps, choice.parts, strict=True)):
            inner_prefix = f"{prefix}.{number}"
            inner = dict(self._inputs(step, names, inner_prefix))
            for output, slot in zip(step.signature.op.outputs, step.outputs, strict=True):
                inner[output.name] = names[slot]
            if self.add(part, step.signature, inner, inner_prefix) is not None:
                raise _fault(
                    choice,
                    f"{choice.kernel.id!r} calls {step.signature}, which {part.kernel.id!r} answers with a view; "
                    "in a composite use trace.permute, trace.reshape, trace.expand or trace.index",
                )

    def _inputs(self, step: Step, names: Mapping[str, str], prefix: str) -> Iterator[tuple[str, str]]:
        """Yield a step's own slot names with the program's; looks at other slots become slots themselves."""
        for param, operand in zip(step.signature.op.tensors, step.inputs, strict=True):
            items: list[tuple[str, Operand]] = (
                [(f"{param.name}.{i}", item) for i, item in enumerate(operand)]
                if isinstance(operand, tuple)
                else [(param.name, operand)]
            )
            for own, item in items:
                if isinstance(item, Traced):
                    base = names[item.slot]
                    if item.spec == self.specs[base]:
                        yield own, base
                        continue
                    shift = item.spec.offset - self.specs[base].offset
                    source, spec = (Derived(None, item.spec, shift), base), item.spec
                elif item is not None and not isinstance(item, tuple):
                    spec = step.signature.tensor(own)
                    source = (Derived(None, spec, value=item), None)
                else:
                    continue
                name = f"{prefix}.{own}"
                self.derived.append(source)
                self.derived_slots.append(Slot(name, spec, "derived"))
                self.specs[name] = spec
                yield own, name


def _bind(
    choice: Choice, signature: Signature, target: Target, runtime: Runtime | None, live: LiveDevice | None
) -> View | tuple[Launch, ...]:
    kernel = choice.kernel
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
        binder = load(kernel.bind) if isinstance(kernel.bind, str) else kernel.bind
        result: Any = binder(context)
    except OutOfMemory:
        raise
    except PluginFault as error:
        error.plugin = error.plugin or choice.plugin
        raise
    except (Exception, SystemExit) as error:
        message = f"binding {kernel.id!r} to {signature} raised {type(error).__name__}: {error}"
        raise _fault(choice, message) from error
    if isinstance(result, Launch):
        return (result,)
    if isinstance(result, View):
        _check_view(choice, result, signature)
        return result
    answers = cast("Sequence[object]", result) if isinstance(result, (list, tuple)) else (result,)
    launches = tuple(launch for launch in answers if isinstance(launch, Launch))
    if len(launches) != len(answers):
        raise _fault(choice, f"binding {kernel.id!r} returned {result!r}; it must return a Launch, several, or a View")
    unwritten = [str(spec) for spec in signature.outputs if spec.size]
    if unwritten and not launches:
        raise _fault(
            choice, f"binding {kernel.id!r} to {signature} returned no launch, so that nothing writes {unwritten[0]}"
        )
    return launches


def _fault(choice: Choice, message: str) -> PluginFault:
    return PluginFault(message, plugin=choice.plugin, where=str(choice.kernel.bind))


def _check_view(choice: Choice, view: View, signature: Signature) -> None:
    kernel = choice.kernel
    base = dict(signature.slots()).get(view.of)
    fits = [(view.shape, base.dtype)] if base is not None and not base.weak else []
    if fits != [(spec.shape, spec.dtype) for spec in signature.outputs]:
        raise _fault(choice, f"binding {kernel.id!r} to {signature} returned {view}, which is no view of its output")
    assert base is not None
    first, last = _reach(base.shape, base.strides, 0) if base.size else (0, -1)
    low, high = _reach(view.shape, view.strides, view.offset)
    if len(view.strides) != len(view.shape) or (0 not in view.shape and not first <= low <= high <= last):
        raise _fault(
            choice,
            f"binding {kernel.id!r} to {signature} returned {view}, which reaches elements {low} to {high} of "
            f"{view.of!r}: it has {first} to {last}",
        )


def _reach(shape: Sequence[int], strides: Sequence[int], offset: int) -> tuple[int, int]:
    """Return the least and the greatest element reached of a tensor that has some, counted from its first."""
    steps = [(extent - 1) * step for extent, step in zip(shape, strides, strict=False)]
    return offset + sum(min(s, 0) for s in steps), offset + sum(max(s, 0) for s in steps)


def _inner(prefix: str, name: str) -> str:
    return f"{prefix}.{name}" if prefix else name


def _workspace_spec(choice: Choice, declared: Workspace, signature: Signature) -> TensorSpec:
    settings, kernel = choice.settings, choice.kernel

    def look_up(path: str) -> Any:
        return settings[path] if path in settings else signature.value(path)

    shape: list[int] = []
    for text in declared.shape:
        try:
            extent = expr.parse(text).evaluate(look_up)
        except (NbxError, ArithmeticError, TypeError, ValueError, LookupError) as error:
            raise _fault(choice, f"workspace {declared.name!r} of {kernel.id!r}: {text}: {error}") from error
        if type(extent) is not int or not 0 <= extent <= MAX_EXTENT:
            raise _fault(choice, f"workspace {declared.name!r} of {kernel.id!r}: {text} is {extent!r}, no extent")
        shape.append(extent)
    dtype = dtypes.get(declared.dtype)
    if dtype.packed:
        raise _fault(
            choice,
            f"workspace {declared.name!r} of {kernel.id!r} is {dtype.name}, packed; declare its bytes as uint8",
        )
    return TensorSpec(dtype, tuple(shape))


def _renamed(choice: Choice, launch: Launch, names: Mapping[str, str]) -> Launch:
    def name(own: str) -> str:
        if own not in names:
            raise _fault(
                choice, f"a launch of {choice.kernel.id!r} takes {own!r}, none of its slots: {', '.join(names)}"
            )
        return names[own]

    args = tuple(
        name(arg) if isinstance(arg, str) else ScalarOf(name(arg.name), arg.ctype) if isinstance(arg, ScalarOf) else arg
        for arg in launch.args
    )
    return replace(launch, args=args, offsets=tuple((name(own), offset) for own, offset in launch.offsets))


def _as_array(buffer: Any, spec: TensorSpec) -> np.ndarray[Any, Any]:
    return array_at(buffer.address, spec.dtype.numpy, spec.shape, owner=buffer)


def _restrided(base: np.ndarray[Any, Any], derived: Derived) -> np.ndarray[Any, Any]:
    address = address_of(base) + derived.shift * base.dtype.itemsize
    readonly = not base.flags.writeable
    return array_at(address, base.dtype, derived.spec.shape, derived.spec.strides, owner=base, readonly=readonly)
