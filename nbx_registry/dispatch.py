"""Dispatch: from a caller's arrays to a bound program, remembered so that the same kind of call goes straight to it.

One `Dispatcher` an op. A call makes a key from dtypes, shapes, strides and places of its arrays and its attributes; a
known key finds a `Call`, whose ``run`` does what is left: guards, outputs, operands, launch.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from nbx_registry import interop
from nbx_registry.bound import BoundProgram
from nbx_registry.composite import weak_spec
from nbx_registry.counters import Counter
from nbx_registry.errors import SignatureError
from nbx_registry.guards import OverlapGuard, check_index_bounds, overlap_refusal
from nbx_registry.interop import Adapter
from nbx_registry.op import Op, Signature
from nbx_registry.runtime import Slot
from nbx_registry.spec import TensorSpec

if TYPE_CHECKING:
    from nbx_registry.registry import Registry

CALL_LIMIT = 2048
"""How many kinds of call are remembered for an op."""

_ndarray = np.ndarray
_WEAK = (bool, int, float)


class Call:
    """A kind of call, ready to be repeated.

    Attributes
    ----------
    run
        ``run(tensors, out)``: guards, outputs, launch; returns the outputs.
    bound
        The program it runs.
    """

    __slots__ = ("bound", "counter", "run")

    def __init__(self, bound: BoundProgram, counter: Counter, run: Callable[[Sequence[Any], Any], Any]) -> None:
        self.bound = bound
        self.counter = counter
        self.run = run


class Dispatcher:
    """Calls one op of one registry."""

    def __init__(self, registry: Registry, op: Op) -> None:
        self.op = op
        self._registry = registry
        self._calls: dict[tuple[Any, ...], Call] = {}
        self._lock = threading.Lock()
        self._tensor_names = tuple(param.name for param in op.tensors)
        self._positions = {name: index for index, name in enumerate(self._tensor_names)}

    def call(
        self,
        args: tuple[Any, ...],
        attributes: dict[str, Any],
        out: Any = None,
        device: str | None = None,
        kernel: str | None = None,
        require: str | None = None,
    ) -> Any:
        """Run the op; return its outputs in the caller's library."""
        call, args = self.prepare(args, attributes, out, device, kernel, require)
        observer = self._registry.observer
        if observer is not None:
            return observer.observe(call, args, out)
        return call.run(args, out)

    def prepare(
        self,
        args: tuple[Any, ...],
        attributes: dict[str, Any],
        out: Any = None,
        device: str | None = None,
        kernel: str | None = None,
        require: str | None = None,
    ) -> tuple[Call, tuple[Any, ...]]:
        """Return the remembered call for these arguments, made if new, and all tensors by position."""
        key: list[Any] = []
        for array in args:
            kind = type(array)
            if kind is _ndarray:
                key += (array.dtype, array.shape, array.strides)
            else:
                key.append(_key(array))
        if out is not None:
            key.append("out")
            if type(out) is _ndarray:
                key += (out.dtype, out.shape, out.strides)
            else:
                key.append(_key(out))
        if attributes:
            for name, value in attributes.items():
                if name in self._positions:
                    args, attributes = self._by_position(args, attributes)
                    return self.prepare(args, attributes, out, device, kernel, require)
                key.append(name)
                key.append(_attribute_key(value))
        if device is not None or kernel is not None or require is not None:
            key += ("policy", device, kernel, require)
        found = tuple(key)
        call = self._calls.get(found)
        if call is None:
            call = self._make(args, attributes, out, device, kernel, require)
            with self._lock:
                while len(self._calls) >= CALL_LIMIT:
                    self._calls.pop(next(iter(self._calls)))
                self._calls[found] = call
        return call, args

    def _by_position(
        self, args: tuple[Any, ...], attributes: dict[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Move tensors given by keyword to their places."""
        rest = dict(attributes)
        tensors: list[Any] = list(args)
        for index, name in enumerate(self._tensor_names):
            if name not in rest:
                continue
            if index < len(args):
                raise SignatureError(f"{self.op.name}: {name} is given twice, by position and by keyword")
            while len(tensors) <= index:
                tensors.append(None)
            tensors[index] = rest.pop(name)
        return tuple(tensors), rest

    # A call of a new kind.

    def _make(
        self,
        args: tuple[Any, ...],
        attributes: dict[str, Any],
        out: Any,
        device: str | None,
        kernel: str | None,
        require: str | None,
    ) -> Call:
        registry, op = self._registry, self.op
        adapters = [self._adapter(name, array) for name, array in self._named(args)]
        place = self._place(args, adapters, device)
        signature = op.signature(self.specs(args, adapters), attributes)
        outs = self._outs(out, signature, place)
        target = registry.target(place)
        bound = registry.program(signature, target, registry.require(require), kernel)
        counter = registry.counters.counter(op.id, bound.choice.kernel.id, target.name, bound.choice.evidence)
        runner = _Runner(registry, bound, counter, args, adapters, outs, place)
        return Call(bound, counter, runner.best())

    def _named(self, args: Sequence[Any]) -> list[tuple[str, Any]]:
        names = self._tensor_names
        if len(args) > len(names):
            raise SignatureError(
                f"{self.op.name} takes {len(names)} tensors ({', '.join(names)}), not {len(args)}; attributes are given by "
                "keyword"
            )
        return list(zip(names, args, strict=False))

    def _adapter(self, name: str, array: Any) -> Adapter | None:
        if array is None or type(array) in _WEAK:
            return None
        adapter = interop.adapter(array)
        if adapter is None:
            raise SignatureError(
                f"{self.op.name}: {name} is a {type(array).__name__}; it must be an array of NumPy, torch, CuPy, an "
                "nbx.Tensor or anything with DLPack (np.asarray makes one of a list)"
            )
        return adapter

    def _place(self, args: Sequence[Any], adapters: Sequence[Adapter | None], device: str | None) -> str:
        places = {
            adapter.place(array): name
            for (name, array), adapter in zip(self._named(args), adapters, strict=True)
            if adapter is not None
        }
        if len(places) > 1:
            where = ", ".join(f"{name} on {place}" for place, name in places.items())
            raise SignatureError(f"{self.op.name}: tensors on several devices ({where}); nothing is copied unless asked")
        place = next(iter(places), device or "cpu")
        if device is not None and device != place and not (device == "host:0" and place == "cpu"):
            raise SignatureError(
                f"{self.op.name}: device={device!r}, but the tensors are on {place}; move them (t.to({device!r}))"
            )
        return place

    def specs(self, args: Sequence[Any], adapters: Sequence[Adapter | None]) -> list[TensorSpec | None]:
        """Describe tensors; those left out at the end are None."""
        specs = [
            adapter.spec(array) if adapter is not None else weak_spec(array)
            for array, adapter in zip(args, adapters, strict=True)
        ]
        return specs + [None] * (len(self._tensor_names) - len(specs))

    def _outs(self, out: Any, signature: Signature, place: str) -> list[tuple[Any, Adapter]] | None:
        """Check ``out`` against the inferred outputs."""
        if out is None:
            return None
        given = out if isinstance(out, tuple) else (out,)
        declared = list(zip(self.op.outputs, signature.outputs, strict=True))
        if len(given) != len(declared):
            raise SignatureError(f"{self.op.name} has {len(declared)} outputs; out= gives {len(given)}")
        checked: list[tuple[Any, Adapter]] = []
        for array, (output, spec) in zip(given, declared, strict=True):
            adapter = self._adapter("out", array)
            if adapter is None:
                raise SignatureError(f"{self.op.name}: out= must be an array, not {array!r}")
            found = adapter.spec(array)
            if found.dtype is not spec.dtype or found.shape != spec.shape:
                raise SignatureError(f"{self.op.name}: out= is {found}; output {output.name!r} is {spec}")
            if adapter.place(array) != place:
                raise SignatureError(f"{self.op.name}: out= is on {adapter.place(array)}, the tensors on {place}")
            if found.distinct != found.size:
                raise SignatureError(f"{self.op.name}: out= is expanded ({found}): its elements share memory")
            if not adapter.writable(array):
                raise SignatureError(f"{self.op.name}: out= is read-only")
            checked.append((array, adapter))
        signature.outputs = tuple(adapter.spec(array) for array, adapter in checked)
        return checked


class _Runner:
    """Makes the function that repeats a call, leaving out what cannot matter for it."""

    def __init__(
        self,
        registry: Registry,
        bound: BoundProgram,
        counter: Counter,
        args: Sequence[Any],
        adapters: Sequence[Adapter | None],
        outs: list[tuple[Any, Adapter]] | None,
        place: str,
    ) -> None:
        self.registry = registry
        self.bound = bound
        self.advance = counter.advance
        self.place = place
        op = bound.signature.op
        self.given = [index for index, array in enumerate(args) if array is not None]
        self.adapters = [adapters[index] for index in self.given]
        self.outs = outs
        first = next((a for a in self.adapters if a is not None), interop.numpy_adapter())
        self.out_adapters = [adapter for _, adapter in outs] if outs else [first.producer()] * len(op.outputs)
        self.array = bound.runtime is not None and bound.runtime.operands == "array"
        mutable = [n for n, index in enumerate(self.given) if op.tensors[index].mutable]
        for n in mutable:
            adapter = self.adapters[n]
            name = op.tensors[self.given[n]].name
            if adapter is None or not adapter.writable(args[self.given[n]]):
                raise SignatureError(f"{op.name}: {name} is written in place, but it is read-only")
        written = mutable + (list(range(len(self.given), len(self.given) + len(op.outputs))) if outs else [])
        slots = bound.slots[: len(self.given) + len(op.outputs)]
        self.guard = OverlapGuard(bound.choice.kernel, slots, written)
        self.guarded = bool(self.guard) and bound.choice.kernel.overlap != "any"
        self.indices = place == "cpu" and bool(op.index_bounds)

    def best(self) -> Callable[[Sequence[Any], Any], Any]:
        """Return the shortest way to run this call."""
        if self.bound.view is not None:
            return self._view()
        direct = getattr(self.bound.program, "function", None)
        plain = all(adapter is None or adapter.name == "numpy" for adapter in (*self.adapters, *self.out_adapters))
        if self.array and direct is not None and plain and len(self.out_adapters) == 1 and not self.indices:
            if not self.guarded:
                return self._direct(direct)
        return self._general()

    def _direct(self, function: Callable[..., Any]) -> Callable[[Sequence[Any], Any], Any]:
        """NumPy arrays straight into a host function."""
        advance = self.advance
        spec = self.bound.signature.outputs[0]
        shape, dtype, empty = spec.shape, spec.dtype.numpy, np.empty
        dense = len(self.given)
        diagnose = self._diagnose

        def run(args: Sequence[Any], out: Any) -> Any:
            advance()
            if out is None:
                out = empty(shape, dtype)
            try:
                function(*args, out)
            except (ValueError, OverflowError) as error:
                raise diagnose(error, args, out) from error
            return out

        def run_some(args: Sequence[Any], out: Any) -> Any:
            return run([array for array in args if array is not None], out)

        return run if self.given == list(range(dense)) else run_some

    def _diagnose(self, error: Exception, args: Sequence[Any], out: Any) -> Exception:
        """Turn NumPy's complaint about the caller's arguments into ours; anything else is the kernel's fault."""
        op = self.bound.signature.op.name
        if not out.flags.writeable:
            return SignatureError(f"{op}: out= is read-only")
        if isinstance(error, OverflowError):
            scalars = [array for array in args if type(array) is int]
            return SignatureError(
                f"{op}: {scalars} is outside the range of {self.bound.signature.outputs[0].dtype}; nothing was written"
            )
        return self.registry.fault(self.bound.choice.kernel, error)

    def _view(self) -> Callable[[Sequence[Any], Any], Any]:
        view = self.bound.view
        assert view is not None
        op = self.bound.signature.op
        if self.outs:
            raise SignatureError(f"{op.name}: the result is a view of {view.of}; out= needs a copy (copy=True)")
        position = [param.name for param in op.tensors].index(view.of)
        adapter = self.adapters[self.given.index(position)]
        assert adapter is not None
        advance, make = self.advance, adapter.view
        shape, strides, offset = view.shape, view.strides, view.offset

        def run(args: Sequence[Any], out: Any) -> Any:  # noqa: ARG001 - the common form of a call
            advance()
            return make(args[position], shape, strides, offset)

        return run

    def _general(self) -> Callable[[Sequence[Any], Any], Any]:
        """Any library, workspace, guards: operands by adapter, then the program."""
        bound, place, advance = self.bound, self.place, self.advance
        array = self.array
        outputs, out_adapters = bound.signature.outputs, self.out_adapters
        take = [
            (index, _itself if adapter is None else adapter.array if array else adapter.address)
            for index, adapter in zip(self.given, self.adapters, strict=True)
        ]
        give = [adapter.array if array else adapter.address for adapter in out_adapters]
        like, first = next(
            ((i, a) for i, a in zip(self.given, self.adapters, strict=True) if a is not None), (None, None)
        )
        current_stream = first.current_stream if first is not None else out_adapters[0].current_stream
        single = len(out_adapters) == 1
        launch = _Launcher(self.registry, bound)
        checks = self._checks()
        addressed = [] if array else [n for n, slot in enumerate(bound.slots) if _has_address(slot)]

        def run(args: Sequence[Any], out: Any) -> Any:
            advance()
            operands = [fetch(args[index]) for index, fetch in take]
            if out is None:
                model = None if like is None else args[like]
                made = [a.empty(spec, place, model) for a, spec in zip(out_adapters, outputs, strict=True)]
            else:
                made = [out] if single else out
            for fetch, result in zip(give, made, strict=True):
                operands.append(fetch(result))
            for check in checks:
                check(operands)
            low = 0
            for n in addressed:
                low |= operands[n]
            launch(operands, current_stream(place), low & 15)
            return made[0] if single else tuple(made) if made else None

        return run

    def _checks(self) -> list[Callable[[list[Any]], None]]:
        """Return the guards that can matter for this call, each over the operands."""
        bound, registry = self.bound, self.registry
        signature, kernel = bound.signature, bound.choice.kernel
        checks: list[Callable[[list[Any]], None]] = []
        if self.indices:
            names = [signature.op.tensors[index].name for index in self.given]
            checks.append(lambda operands: check_index_bounds(signature, dict(zip(names, operands, strict=False))))
        if self.guarded:
            guard, locate = self.guard, _array_address if self.array else _itself

            def overlap(operands: list[Any]) -> None:
                clash = guard.find([locate(operand) for operand in operands])
                if clash is not None:
                    raise overlap_refusal(registry.decide_again(bound), kernel, *clash)

            checks.append(overlap)
        return checks


class _Launcher:
    """Runs a bound program, or for operands aligned worse than assumed the program bound for those."""

    def __init__(self, registry: Registry, bound: BoundProgram) -> None:
        self._registry = registry
        self._bound = bound
        self._program = bound.program
        self._simple = not bound.workspace and not bound.derived
        self._unaligned: dict[tuple[int, ...], BoundProgram] = {}

    def __call__(self, operands: list[Any], stream: Any, low: int) -> None:
        if low:
            self._launch_unaligned(operands, stream)
        elif self._program is None:
            return
        elif self._simple:
            self._program.run(operands, stream)
        else:
            self._launch(self._bound, operands, stream)

    def _launch(self, bound: BoundProgram, operands: list[Any], stream: Any) -> None:
        if bound.program is not None:
            workspace = bound.allocate_workspace(self._registry.stream_of(bound, stream))
            bound.program.run(bound.operands(operands, workspace), stream)

    def _launch_unaligned(self, operands: list[Any], stream: Any) -> None:
        aligns = tuple(16 if type(v) is not int or not v & 15 else v & -v for v in operands)
        bound = self._unaligned.get(aligns)
        if bound is None:
            bound = self._unaligned[aligns] = self._registry.realigned(self._bound, aligns)
        self._launch(bound, operands, stream)


def _has_address(slot: Slot) -> bool:
    return slot.kind in ("input", "output") and not slot.spec.weak


def _itself(value: Any) -> Any:
    return value


def _array_address(value: Any) -> int:
    return value.__array_interface__["data"][0] if isinstance(value, np.ndarray) else 0


def _key(array: Any) -> Any:
    """Return what a call's kind depends on of one argument that is no plain NumPy array."""
    kind = type(array)
    if array is None or kind in _WEAK:
        return kind
    adapter = interop.adapter(array)
    # Anything else is told apart by its type alone: describing it raises the error that names it.
    return adapter.key(array) if adapter is not None else kind


def _attribute_key(value: Any) -> Any:
    """Return a key under which 1, 1.0 and True, 0.0 and -0.0, (1, 2) and [1, 2] differ as far as contracts care."""
    kind = type(value)
    if kind is int or kind is str or kind is bool or value is None:
        return (kind, value)
    if kind is tuple or kind is list:
        return (kind, *map(_attribute_key, value))
    if kind is float:
        return (kind, value, str(value)) if value == 0 else (kind, value)
    return (kind, str(value))
