"""Calls: a bound program together with how one caller's arrays become its operands.

What the kind of call settles is settled when the call is made; what is left out of ``run`` is what cannot matter.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from nbx_registry.counters import Counter
from nbx_registry.dtypes import DType
from nbx_registry.errors import SignatureError
from nbx_registry.guards import OverlapGuard, check_index_bounds, overlap_refusal
from nbx_registry.interop import Adapter
from nbx_registry.program import BoundProgram
from nbx_registry.runtime import Buffer, Slot

if TYPE_CHECKING:
    from nbx_registry.registry import Registry

Guard = Callable[[list[Any]], None]


@dataclass(eq=False, slots=True)
class CallShape:
    """What the kind of a call settles.

    Attributes
    ----------
    adapters
        One a tensor argument as given, None for scalars and for those left out.
    out_adapters
        One an output.
    out_given
        Whether the caller brings the outputs.
    """

    bound: BoundProgram
    counter: Counter
    adapters: Sequence[Adapter | None]
    out_adapters: Sequence[Adapter]
    place: str
    out_given: bool


class Call(Protocol):
    """A kind of call, ready to be repeated."""

    bound: BoundProgram

    def run(self, args: Sequence[Any], out: Any) -> Any:
        """Run on arrays of this kind; return the outputs."""
        ...

    def fix(self, args: Sequence[Any], out: Any) -> tuple[Any, Callable[[], Any]]:
        """Return the outputs (allocated where ``out`` is None) and a function that runs on these arrays again."""
        ...


def make_call(registry: Registry, shape: CallShape) -> Call:
    """Return the shortest call for a shape."""
    bound = shape.bound
    if bound.view is not None:
        return ViewCall(shape)
    function = getattr(bound.program, "function", None)
    guards = _guards(registry, shape)
    numpy_only = all(a is None or a.name == "numpy" for a in (*shape.adapters, *shape.out_adapters))
    alone = not guards and not bound.workspace and not bound.derived and len(shape.out_adapters) == 1
    if function is not None and numpy_only and alone:
        return DirectCall(registry, shape, function)
    if _compilable(shape):
        return AddressCall(registry, shape, guards)
    return GeneralCall(registry, shape, guards)


class DirectCall:
    """NumPy arrays straight into one function of the host."""

    __slots__ = ("_advance", "_dtype", "_extent", "_function", "_registry", "_whole", "bound")

    def __init__(self, registry: Registry, shape: CallShape, function: Callable[..., Any]) -> None:
        self.bound = shape.bound
        self._registry = registry
        self._function = function
        self._advance = shape.counter.advance
        spec = shape.bound.signature.outputs[0]
        self._extent, self._dtype = spec.shape, spec.dtype.numpy
        self._whole = None not in shape.bound.signature.tensors[: len(shape.adapters)]

    def run(self, args: Sequence[Any], out: Any) -> Any:
        """Run on arrays of this kind; return the output."""
        self._advance()
        if out is None:
            out = np.empty(self._extent, self._dtype)
        if not self._whole:
            args = [array for array in args if array is not None]
        try:
            self._function(*args, out)
        except (ValueError, OverflowError) as error:
            raise self._diagnose(error, args, out) from error
        return out

    def fix(self, args: Sequence[Any], out: Any) -> tuple[Any, Callable[[], Any]]:
        """Return the output and a function that runs on these arrays again."""
        advance, function, diagnose = self._advance, self._function, self._diagnose
        target = np.empty(self._extent, self._dtype) if out is None else out
        given = [array for array in args if array is not None]

        def again() -> None:
            advance()
            try:
                function(*given, target)
            except (ValueError, OverflowError) as error:
                raise diagnose(error, given, target) from error

        return target, again

    def _diagnose(self, error: Exception, args: Sequence[Any], out: Any) -> Exception:
        """Tell the caller's mistake, which NumPy found, from the kernel's."""
        signature = self.bound.signature
        if not out.flags.writeable:
            return SignatureError(f"{signature.op.name}: out= is read-only")
        if isinstance(error, OverflowError):
            return out_of_range(signature.op.name, args, signature.outputs[0].dtype.name)
        return self._registry.fault(self.bound.choice.kernel, error)


def out_of_range(op: str, args: Sequence[Any], dtype: str) -> SignatureError:
    """Return the error for a Python integer that the array's dtype cannot hold."""
    scalars = ", ".join(str(array) for array in args if type(array) is int)
    return SignatureError(f"{op}: the Python integer {scalars} is outside the range of {dtype}; nothing was written")


class ViewCall:
    """An output that is one of the inputs seen otherwise: nothing runs."""

    __slots__ = ("_advance", "_view", "bound")

    def __init__(self, shape: CallShape) -> None:
        self.bound = shape.bound
        self._advance = shape.counter.advance
        view, op = shape.bound.view, shape.bound.signature.op
        assert view is not None
        if shape.out_given:
            raise SignatureError(f"{op.name}: the result is a view of {view.of}; out= needs a copy (copy=True)")
        position = [param.name for param in op.tensors].index(view.of)
        adapter = shape.adapters[position]
        assert adapter is not None
        self._view = lambda args: adapter.view(args[position], view.shape, view.strides, view.offset)

    def run(self, args: Sequence[Any], out: Any) -> Any:  # noqa: ARG002 - the protocol's form
        """Return the view."""
        self._advance()
        return self._view(args)

    def fix(self, args: Sequence[Any], out: Any) -> tuple[Any, Callable[[], Any]]:  # noqa: ARG002 - as above
        """Return the view, and the counting of another look at it."""
        return self._view(args), self._advance


class GeneralCall:
    """Any library: operands by adapter, guards, workspace, launch."""

    __slots__ = ("_guards", "_launch", "_like", "_registry", "_shape", "_stream", "_take", "bound")

    def __init__(self, registry: Registry, shape: CallShape, guards: Sequence[Guard]) -> None:
        self.bound = bound = shape.bound
        self._registry = registry
        self._shape = shape
        self._guards = guards
        array = bound.runtime is not None and bound.runtime.operands == "array"
        self._take = [
            (index, _scalar if adapter is None else adapter.array if array else adapter.address)
            for index, (spec, adapter) in enumerate(zip(bound.signature.tensors, shape.adapters, strict=False))
            if spec is not None
        ]
        first = next((index for index, adapter in enumerate(shape.adapters) if adapter is not None), None)
        self._like = first
        teller = (shape.out_adapters[0] if first is None else shape.adapters[first]) or shape.out_adapters[0]
        self._stream = teller.streams(shape.place)
        self._launch = _Launcher(registry, bound, array)

    def run(self, args: Sequence[Any], out: Any) -> Any:
        """Run on arrays of this kind; return the outputs."""
        self._shape.counter.advance()
        made = self._outputs(args, out)
        operands = self._operands(args, made)
        for guard in self._guards:
            guard(operands)
        self._launch(operands, self._stream())
        return _result(made)

    def fix(self, args: Sequence[Any], out: Any) -> tuple[Any, Callable[[], Any]]:
        """Return the outputs and a function that launches on these arrays again, with workspace of its own."""
        made = self._outputs(args, out)
        operands = self._operands(args, made)
        for guard in self._guards:
            guard(operands)
        # Addresses stay as they are, so of the guards only those on values are asked again.
        guards = [guard for guard in self._guards if getattr(guard, "reads_values", False)]
        advance, stream = self._shape.counter.advance, self._stream
        launch = self._launch.fixed(operands, stream())
        keep = (args, made)

        def again() -> None:
            advance()
            for guard in guards:
                guard(operands)
            launch(stream())

        again.keep = keep  # type: ignore[attr-defined]  # the arrays live as long as their addresses are used
        return _result(made), again

    def _outputs(self, args: Sequence[Any], out: Any) -> Sequence[Any]:
        shape = self._shape
        if out is None:
            model = None if self._like is None else args[self._like]
            pairs = zip(shape.out_adapters, self.bound.signature.outputs, strict=True)
            return [adapter.empty(spec, shape.place, model) for adapter, spec in pairs]
        made = out if type(out) is tuple else (out,)
        for adapter, array in zip(shape.out_adapters, made, strict=True):
            if not adapter.writable(array):
                raise SignatureError(f"{self.bound.signature.op.name}: out= is read-only")
        return made

    def _operands(self, args: Sequence[Any], made: Sequence[Any]) -> list[Any]:
        operands = [fetch(args[index]) for index, fetch in self._take]
        for adapter, array in zip(self._shape.out_adapters, made, strict=True):
            operands.append(adapter.array(array) if self._launch.array else adapter.address(array))
        return operands


class AddressCall(GeneralCall):
    """Addresses straight into a program: the whole of a call compiled into one function."""

    __slots__ = ("run",)

    def __init__(self, registry: Registry, shape: CallShape, guards: Sequence[Guard]) -> None:
        super().__init__(registry, shape, guards)
        bound = shape.bound
        program = bound.program
        assert program is not None
        scope: dict[str, Any] = {
            "advance": shape.counter.advance,
            "launch": program.run,
            "stream": self._stream,
            "empty": shape.out_adapters[0].empty,
            "spec": bound.signature.outputs[0],
            "place": shape.place,
            "checked": super().run,
        }
        code: list[str] = ["def run(args, out):"]
        values: list[str] = []
        names: list[str] = []
        for index, (operand, adapter) in enumerate(zip(bound.signature.tensors, shape.adapters, strict=False)):
            names.append(f"a{index}")
            if operand is not None:
                values.append(f"a{index}" if adapter is None else adapter.address_code.format(x=f"a{index}"))
        code.append(f"    {', '.join(names)}, = args" if names else "    pass")
        if not shape.out_given:
            like = "None" if self._like is None else f"a{self._like}"
            code.append(f"    out = empty(spec, place, {like})")
        values.append(shape.out_adapters[0].address_code.format(x="out"))
        code += [f"    p{n} = {value}" for n, value in enumerate(values)]
        addressed = [f"p{n}" for n in self._launch.addressed]
        doubts = [f"({' | '.join(addressed)}) & 15"] if addressed else []
        for guard in self._guards:
            if isinstance(guard, _RangeGuard):
                doubts.append(f"not {guard.low} <= p{guard.index} <= {guard.high}")
            elif isinstance(guard, _MemoryGuard):
                # Spans that might overlap: the guard itself then looks again, and refuses.
                doubts += (
                    f"p{w} < p{other} + {bytes_other} and p{other} < p{w} + {bytes_w}"
                    for w, other, bytes_w, bytes_other, _ in guard.overlap.pairs
                )
        if doubts:
            code += [f"    if {' or '.join(doubts)}:", "        return checked(args, out)"]
        operands = ", ".join(f"p{n}" for n in range(len(values)))
        code += ["    advance()", f"    launch(({operands},), stream())", "    return out"]
        exec("\n".join(code), scope)
        self.run = scope["run"]


def _compilable(shape: CallShape) -> bool:
    bound = shape.bound
    adapters = [adapter for adapter in (*shape.adapters, *shape.out_adapters) if adapter is not None]
    return (
        bound.runtime is not None
        and bound.runtime.operands == "address"
        and bound.program is not None
        and not (bound.workspace or bound.derived)
        and len(shape.out_adapters) == 1
        and all(adapter.address_code for adapter in adapters)
        # Whether torch's tensors may be written needs no look; others' outputs are looked at each time.
        and (not shape.out_given or shape.out_adapters[0].name == "torch")
    )


class _Launcher:
    """Runs a bound program, or for operands aligned worse than assumed the program bound for those."""

    __slots__ = ("_bound", "_program", "_registry", "_simple", "_unaligned", "addressed", "array")

    def __init__(self, registry: Registry, bound: BoundProgram, array: bool) -> None:
        self.array = array
        self._registry = registry
        self._bound = bound
        self._program = bound.program
        self._simple = not bound.workspace and not bound.derived
        self.addressed = [] if array else [n for n, slot in enumerate(bound.slots) if _has_address(slot)]
        self._unaligned: dict[tuple[int, ...], BoundProgram] = {}

    def __call__(self, operands: list[Any], stream: Any) -> None:
        low = 0
        for n in self.addressed:
            low |= operands[n]
        if low & 15:
            self._start(self._realigned(operands), operands, stream)
        elif self._simple:
            if self._program is not None:
                self._program.run(operands, stream)
        else:
            self._start(self._bound, operands, stream)

    def fixed(self, operands: list[Any], stream: Any) -> Callable[[Any], None]:
        """Return a launch of these operands, with workspace allocated once."""
        low = 0
        for n in self.addressed:
            low |= operands[n]
        bound = self._realigned(operands) if low & 15 else self._bound
        program = bound.program
        if program is None:
            return _nothing
        workspace = bound.allocate_workspace(stream)
        complete = bound.operands(operands, workspace)
        pin = getattr(program, "fixed", None)
        run = pin(complete) if pin is not None else lambda stream: program.run(complete, stream)
        return _Holding(run, workspace).launch if workspace else run

    def _start(self, bound: BoundProgram, operands: list[Any], stream: Any) -> None:
        if bound.program is not None:
            # Held until all is enqueued: dropped before, it would be freed ahead of the launches that use it.
            workspace = bound.allocate_workspace(stream)
            bound.program.run(bound.operands(operands, workspace), stream)

    def _realigned(self, operands: list[Any]) -> BoundProgram:
        aligns = [16] * len(operands)
        for n in self.addressed:
            aligns[n] = min(16, operands[n] & -operands[n]) if operands[n] else 16
        key = tuple(aligns)
        bound = self._unaligned.get(key)
        if bound is None:
            bound = self._unaligned[key] = self._registry.realigned(self._bound, key)
        return bound


class _Holding:
    """A launch and the workspace that it uses, which lives as long."""

    __slots__ = ("_run", "_workspace")

    def __init__(self, run: Callable[[Any], None], workspace: list[Buffer]) -> None:
        self._run = run
        self._workspace = workspace

    def launch(self, stream: Any) -> None:
        self._run(stream)


class _IndexGuard:
    """Host indices stay within what the contract allows."""

    reads_values = True

    def __init__(self, shape: CallShape) -> None:
        self._signature = shape.bound.signature
        self._names = [slot.name for slot in shape.bound.slots if slot.kind == "input"]

    def __call__(self, operands: list[Any]) -> None:
        check_index_bounds(self._signature, dict(zip(self._names, operands, strict=False)))


class _RangeGuard:
    """A Python integer beside integer arrays is one that their dtype holds."""

    reads_values = True

    def __init__(self, shape: CallShape, index: int, dtype: DType) -> None:
        self._op = shape.bound.signature.op.name
        self._dtype = dtype.name
        self.index = index
        limits = np.iinfo(dtype.numpy) if dtype.bits >= 8 else None
        signed = dtype.kind == "int"
        self.low = int(limits.min) if limits else -(1 << (dtype.bits - 1)) if signed else 0
        self.high = int(limits.max) if limits else (1 << (dtype.bits - signed)) - 1

    def __call__(self, operands: list[Any]) -> None:
        value = operands[self.index]
        if not self.low <= value <= self.high:
            raise out_of_range(self._op, (value,), self._dtype)


class _MemoryGuard:
    """What is written shares no memory with what the kernel could not bear it to."""

    reads_values = False

    def __init__(self, registry: Registry, shape: CallShape, overlap: OverlapGuard) -> None:
        self._registry = registry
        self._bound = shape.bound
        self.overlap = overlap

    def __call__(self, operands: list[Any]) -> None:
        clash = self.overlap.find([_address(operand) for operand in operands])
        if clash is not None:
            raise overlap_refusal(self._registry.decide_again(self._bound), self._bound.choice.kernel, *clash)


def _guards(registry: Registry, shape: CallShape) -> list[Guard]:
    bound = shape.bound
    op, kernel = bound.signature.op, bound.choice.kernel
    guards: list[Guard] = []
    if op.index_bounds and shape.place == "cpu":
        guards.append(_IndexGuard(shape))
    slots = [slot for slot in bound.slots if slot.kind in ("input", "output")]
    beside = next((s.spec.dtype for s in slots if s.kind == "input" and not s.spec.weak), None)
    if beside is not None and beside.integral:
        scalars = [n for n, s in enumerate(slots) if s.spec.weak and s.spec.dtype.kind == "int"]
        guards += (_RangeGuard(shape, n, beside) for n in scalars)
    mutable = {param.name for param in op.tensors if param.mutable}
    written = [n for n, s in enumerate(slots) if s.name in mutable or (shape.out_given and s.kind == "output")]
    if written and kernel.overlap != "any":
        guards.append(_MemoryGuard(registry, shape, OverlapGuard(kernel, slots, written)))
    return guards


def _has_address(slot: Slot) -> bool:
    return slot.kind in ("input", "output") and not slot.spec.weak and slot.spec.size > 0


def _address(operand: Any) -> int:
    if isinstance(operand, np.ndarray):
        return operand.__array_interface__["data"][0]
    return operand if type(operand) is int else 0


def _scalar(value: Any) -> Any:
    return value


def _nothing(stream: Any) -> None:
    """An op without work: no launch."""


def _result(made: Sequence[Any]) -> Any:
    if len(made) == 1:
        return made[0]
    return tuple(made) if made else None
