"""Calls by operands: arrays of any library become NumPy arrays or addresses, which a program runs on."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from types import NoneType
from typing import Any, cast

import numpy as np

from nbx_registry.call import Call, CallShape, DirectCall, Fixed, ListCall, ViewCall, flat
from nbx_registry.errors import CaptureError, NbxError, SignatureError
from nbx_registry.guards import Guard, guards_of
from nbx_registry.interop.memory import address_of
from nbx_registry.interop.numpy_arrays import NumpyAdapter
from nbx_registry.memory.allocation import own_allocator
from nbx_registry.packing import PackedCall, packs
from nbx_registry.program import BoundProgram
from nbx_registry.programs import Programs
from nbx_registry.runtime import Slot


def make_call(programs: Programs, shape: CallShape, *, aligned: bool = False) -> Call:
    """Return the shortest call for a shape; ``aligned`` as for `_flat_call`."""
    call = _flat_call(programs, shape, aligned=aligned)
    return ListCall(call) if tuple in map(type, shape.bound.signature.tensors) else call


def _flat_call(programs: Programs, shape: CallShape, *, aligned: bool = False) -> Call:
    """Return the call that takes the tensors of lists in a row with the others.

    ``aligned`` says that the program was bound for the alignment its operands have, so that they need no look.
    """
    bound = shape.bound
    if bound.view is not None:
        return ViewCall(shape)
    if packs(shape):
        return PackedCall(shape, partial(_flat_call, programs))
    decide = partial(programs.decision, bound)
    guards = guards_of(bound, place=shape.place, out_given=shape.out_given, decide=decide)
    function = getattr(bound.program, "function", None)
    if (
        function is not None
        and all(guard.told_by_numpy for guard in guards)
        and _plain(shape)
        and not _aligns(programs, shape)
    ):
        return DirectCall(programs, shape, function)
    doubts = [guard.doubt() for guard in guards]
    if not aligned and None not in doubts and _compilable(shape):
        return AddressCall(programs, shape, guards)
    return GeneralCall(programs, shape, guards, aligned=aligned)


class GeneralCall:
    """Any library: operands by adapter, guards, workspace, launch."""

    __slots__ = (
        "_address",
        "_addressed",
        "_asks",
        "_capturable",
        "_count",
        "_fetch_out",
        "_guards",
        "_like",
        "_others",
        "_programs",
        "_shape",
        "_simple",
        "_stream",
        "_take",
        "_written",
        "bound",
    )

    def __init__(self, programs: Programs, shape: CallShape, guards: Sequence[Guard], *, aligned: bool = False) -> None:
        self.bound = bound = shape.bound
        self._programs = programs
        self._shape = shape
        self._guards = guards
        array = bound.runtime is not None and bound.runtime.operands == "array"
        self._take = [
            (index, _itself if adapter is None else adapter.array if array else adapter.address)
            for index, (spec, adapter) in enumerate(zip(flat(bound.signature.tensors), shape.adapters, strict=False))
            if spec is not None
        ]
        self._fetch_out = [adapter.array if array else adapter.address for adapter in shape.out_adapters]
        mutable = {param.name for param in bound.signature.op.tensors if param.mutable}
        self._written = [
            (index, name, adapter.writable)
            for index, (name, adapter) in enumerate(zip(shape.names, shape.adapters, strict=True))
            if name in mutable and adapter is not None
        ]
        self._like = next((index for index, adapter in enumerate(shape.adapters) if adapter is not None), None)
        teller = shape.out_adapters[0] if self._like is None else shape.adapters[self._like]
        assert teller is not None
        self._stream = teller.streams(shape.place)
        self._simple = not bound.workspace and not bound.derived
        self._capturable = _capturable(bound)
        self._asks = not self._capturable or (bool(bound.workspace) and not array)
        slots = [slot for slot in bound.slots if slot.kind in ("input", "output")]
        self._count = len(slots)
        looked_at = not aligned and _aligns(programs, shape)
        self._addressed = [n for n, slot in enumerate(slots) if _has_address(slot)] if looked_at else []
        self._address: Callable[[Any], int] = address_of if array else _itself
        self._others: dict[tuple[int, ...], Call] = {}

    def run(self, args: Sequence[Any], out: Any, /) -> Any:
        """Run on arrays of this kind; return the outputs."""
        made, operands = self._operands(args, out)
        if self._unaligned(operands):
            return self._other(operands).run(args, _result(made))
        for guard in self._guards:
            guard(operands)
        self._shape.counter.advance()
        bound, program = self.bound, self.bound.program
        if program is not None:
            stream = self._stream()
            if self._asks:
                check_capture(bound, stream, allocates=bool(bound.workspace))
            # Held until all is enqueued: dropped before, it would be freed ahead of the launches that use it.
            workspace = [] if self._simple else bound.allocate_workspace(stream)
            complete = operands if self._simple else bound.operands(operands, workspace)
            try:
                program.run(complete, stream)
            except (NbxError, MemoryError):
                raise
            except Exception as error:
                raise self._diagnose(error, operands) from error
        return _result(made)

    def program_for(self, args: Sequence[Any], out: Any, /) -> BoundProgram:
        """Return the program that these arrays run on; fresh outputs are aligned."""
        operands = [fetch(args[index]) for index, fetch in self._take]
        given = cast("Sequence[Any]", out) if isinstance(out, tuple) else () if out is None else (out,)
        operands += (fetch(array) for fetch, array in zip(self._fetch_out, given, strict=False))
        return self.bound if set(self._alignments(operands)) <= {16} else self._other(operands).bound

    def fix(self, args: Sequence[Any], out: Any, /) -> Fixed:
        """Settle arrays of this kind, with workspace of their own; nothing runs yet."""
        made, operands = self._operands(args, out)
        if self._unaligned(operands):
            return self._other(operands).fix(args, _result(made))
        for guard in self._guards:
            guard(operands)
        # Addresses stay as they are, so of the guards only those on values are asked again.
        guards = [guard for guard in self._guards if guard.reads_values]
        advance, stream, program = self._shape.counter.advance, self._stream, self.bound.program
        if self._asks and self.bound.workspace:
            check_capture(self.bound, stream(), allocates=True)
        workspace = self.bound.allocate_workspace(stream()) if program is not None else []
        complete = self.bound.operands(operands, workspace) if program is not None else operands
        pin = getattr(program, "fixed", None)
        launch: Callable[[Any], object] = (
            _nothing if program is None else pin(complete) if pin is not None else partial(program.run, complete)
        )

        capturable, bound = self._capturable, self.bound

        def again(_held: object = workspace) -> None:
            for guard in guards:
                guard(operands)
            if not capturable:
                check_capture(bound, stream(), allocates=False)
            advance()
            try:
                launch(stream())
            except (NbxError, MemoryError):
                raise
            except Exception as error:
                raise self._diagnose(error, operands) from error

        return Fixed(bound, _result(made), again, launch if program is not None else None)

    def _diagnose(self, error: Exception, operands: Sequence[Any]) -> NbxError:
        """Tell the caller's mistake, which NumPy found, from the kernel's."""
        for operand in operands[len(operands) - len(self._fetch_out) :]:
            if isinstance(operand, np.ndarray) and not operand.flags.writeable:
                return SignatureError(f"{self.bound.signature.op.name}: out= is read-only")
        return self._programs.fault(self.bound.choice.kernel, error)

    def _operands(self, args: Sequence[Any], out: Any) -> tuple[Sequence[Any], list[Any]]:
        """Return the outputs, and the operands of parameters and outputs."""
        shape = self._shape
        for index, name, writable in self._written:
            if not writable(args[index]):
                raise SignatureError(f"{self.bound.signature.op.name}: {name} is written in place, but it is read-only")
        operands = [fetch(args[index]) for index, fetch in self._take]
        made: Sequence[Any]
        if out is None:
            like = None if self._like is None else args[self._like]
            pairs = zip(shape.out_adapters, self.bound.signature.outputs, strict=True)
            made = [adapter.empty(spec, shape.place, like) for adapter, spec in pairs]
        else:
            made = cast("Sequence[Any]", out) if isinstance(out, tuple) else (out,)
            if not all(adapter.writable(array) for adapter, array in zip(shape.out_adapters, made, strict=True)):
                raise SignatureError(f"{self.bound.signature.op.name}: out= is read-only")
        operands += (fetch(array) for fetch, array in zip(self._fetch_out, made, strict=True))
        return made, operands

    def _unaligned(self, operands: Sequence[Any]) -> bool:
        low = 0
        for n in self._addressed:
            low |= self._address(operands[n])
        return low & 15 != 0

    def _alignments(self, operands: Sequence[Any]) -> tuple[int, ...]:
        """Return the alignment of every operand, at most 16; outputs that are not there yet will have that."""
        aligns = [16] * self._count
        for n in self._addressed:
            if n < len(operands):
                address = self._address(operands[n])
                aligns[n] = min(16, address & -address) or 16
        return tuple(aligns)

    def _other(self, operands: Sequence[Any]) -> Call:
        """Return the call for operands that are aligned worse than every spec without a word about it says."""
        key = self._alignments(operands)
        call = self._others.get(key)
        if call is None:
            programs = self._programs
            bound = programs.realigned(self.bound, key)
            shape = replace(self._shape, bound=bound, counter=programs.counter(bound))
            call = self._others[key] = _flat_call(programs, shape, aligned=True)
        return call


class AddressCall(GeneralCall):
    """Addresses straight into a program: the whole of a call compiled into one function."""

    __slots__ = ("run",)

    def __init__(self, programs: Programs, shape: CallShape, guards: Sequence[Guard]) -> None:
        super().__init__(programs, shape, guards)
        bound = shape.bound
        assert bound.program is not None
        outputs = bound.signature.outputs
        scope: dict[str, Any] = {
            "advance": shape.counter.advance,
            "launch": bound.program.run,
            "stream": self._stream,
            "place": shape.place,
            "checked": super().run,
        }
        arguments = [f"a{n}" for n in range(len(shape.adapters))]
        results = [f"r{n}" for n in range(len(outputs))]
        code = ["def run(args, out):"]
        if arguments:
            code.append(f"    {', '.join(arguments)}, = args")
        if shape.out_given:
            code.append(f"    {results[0]} = out" if len(results) == 1 else f"    {', '.join(results)}, = out")
        else:
            like = "None" if self._like is None else f"a{self._like}"
            for n, adapter in enumerate(shape.out_adapters):
                scope.update({f"empty{n}": adapter.empty, f"spec{n}": outputs[n]})
                code.append(f"    r{n} = empty{n}(spec{n}, place, {like})")
        values = [
            f"a{index}" if adapter is None else adapter.address_code.format(x=f"a{index}")
            for index, (spec, adapter) in enumerate(zip(flat(bound.signature.tensors), shape.adapters, strict=False))
            if spec is not None
        ]
        values += [a.address_code.format(x=r) for a, r in zip(shape.out_adapters, results, strict=True)]
        code += [f"    p{n} = {value}" for n, value in enumerate(values)]
        given = f"({', '.join(results)}{',' if len(results) > 1 else ''})" if results else "None"
        addresses = [f"p{n}" for n in self._addressed]
        # No address at all is a tensor without memory: describing it again raises the error that says so.
        doubts = [f"({' | '.join(addresses)}) & 15", f"not ({' and '.join(addresses)})"] if addresses else []
        doubts += (str(guard.doubt()) for guard in guards)
        # Whether torch's tensors may be written needs no look.
        written = [(f"a{n}", shape.adapters[n]) for n, *_ in self._written]
        written += zip(results, shape.out_adapters, strict=True) if shape.out_given else ()
        for n, (name, adapter) in enumerate(written):
            if adapter is not None and adapter.name != "torch":
                scope[f"writable{n}"] = adapter.writable
                doubts.append(f"not writable{n}({name})")
        if doubts:
            code += [f"    if {' or '.join(doubts)}:", f"        return checked(args, {given})"]
        operands = "".join(f"p{n}, " for n in range(len(values)))
        code += ["    advance()", f"    launch(({operands}), stream())", f"    return {given}"]
        exec("\n".join(code), scope)
        self.run = scope["run"]


def _plain(shape: CallShape) -> bool:
    """Return whether a function over NumPy arrays takes the caller's as they are, and makes one output."""
    adapters = (*shape.adapters, *shape.out_adapters)
    simple = not shape.bound.workspace and not shape.bound.derived and len(shape.out_adapters) == 1
    # Subclasses and NumPy's scalars have adapters of their own: they become plain arrays first.
    return simple and set(map(type, adapters)) <= {NumpyAdapter, NoneType}


def _aligns(programs: Programs, shape: CallShape) -> bool:
    """Return whether the alignment of operands may matter: to a launch over addresses always."""
    runtime = shape.bound.runtime
    return runtime is not None and (runtime.operands == "address" or programs.reads_alignment(runtime.name))


def _compilable(shape: CallShape) -> bool:
    bound = shape.bound
    adapters = [adapter for adapter in (*shape.adapters, *shape.out_adapters) if adapter is not None]
    return (
        bound.runtime is not None
        and bound.runtime.operands == "address"
        and bound.program is not None
        and not (bound.workspace or bound.derived)
        and _capturable(bound)
        and all(adapter.address_code for adapter in adapters)
    )


def _capturable(bound: BoundProgram) -> bool:
    """Return whether its launches may be captured with whatever stream they are enqueued on."""
    # Over arrays everything runs when it is called.
    array = bound.runtime is None or bound.runtime.operands == "array"
    return array or not bound.choice.unreplayable()


def check_capture(bound: BoundProgram, stream: Any, *, allocates: bool) -> None:
    """Raise `CaptureError` where the stream is being captured, by whomever, and a call cannot be part of that.

    ``allocates`` says whether it allocates workspace as it runs.
    """
    runtime, live = bound.runtime, bound.live
    if runtime is None or live is None or runtime.operands == "array" or not runtime.capturing(live.index, stream):
        return
    kernels = bound.choice.unreplayable()
    if kernels:
        raise unreplayable(bound, kernels[0])
    if allocates and not own_allocator():
        kernel = bound.choice.kernel.id
        raise CaptureError(
            f"{bound.signature}: {kernel} takes workspace, and its stream is being captured; bind the op before "
            "(reg.bind allocates once), or give memory by nbx.allocating",
            code="MOVED",
            kernel=kernel,
        )


def unreplayable(bound: BoundProgram, kernel: str) -> CaptureError:
    """Return the error for a kernel that does not say that it can be replayed."""
    return CaptureError(
        f"{bound.signature}: {kernel} does not say that it can be replayed; pin a kernel that does (kernel=...): "
        f"nbx kernels --op {bound.signature.op.name} tells which",
        code="NOT_REPLAYABLE",
        kernel=kernel,
    )


def _has_address(slot: Slot) -> bool:
    return not slot.spec.weak and slot.spec.size > 0


def _itself(value: Any) -> Any:
    return value


def _nothing(stream: Any) -> None:
    """An op without work: no launch."""


def _result(made: Sequence[Any]) -> Any:
    if len(made) == 1:
        return made[0]
    return tuple(made) if made else None
