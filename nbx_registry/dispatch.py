"""Dispatch: from a caller's arrays to a bound program, remembered so that the same kind of call goes straight to it.

One `Dispatcher` an op. A call makes a key from dtypes, shapes, strides and places of its arrays and its attributes; a
known key finds a `Call`, which does what is left: guards, outputs, operands, launch.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from nbx_registry import interop
from nbx_registry.call import Call, CallShape, make_call
from nbx_registry.composite import weak_spec
from nbx_registry.errors import SignatureError
from nbx_registry.interop import Adapter
from nbx_registry.op import Op
from nbx_registry.signature import Signature
from nbx_registry.spec import TensorSpec

if TYPE_CHECKING:
    from nbx_registry.registry import Registry

CALL_LIMIT = 2048
"""How many kinds of call are remembered for an op."""

WEAK = (bool, int, float)
_ndarray = np.ndarray
_NUMPY = interop.adapter(np.empty(0))


class Dispatcher:
    """Calls one op of one registry."""

    def __init__(self, registry: Registry, op: Op) -> None:
        self.op = op
        self._registry = registry
        self._calls: OrderedDict[tuple[Any, ...], Call] = OrderedDict()
        self._lock = threading.Lock()
        self._names = tuple(param.name for param in op.tensors)
        self._is_tensor = frozenset(self._names)

    def prepare(
        self,
        args: tuple[Any, ...],
        attributes: dict[str, Any],
        out: Any = None,
        device: str | None = None,
        kernel: str | None = None,
        require: str | None = None,
    ) -> tuple[Call, tuple[Any, ...]]:
        """Return the call for these arguments, made if new, and the tensors by position."""
        key: list[Any] = []
        for array in args:
            kind = type(array)
            if kind is _ndarray:
                key += (array.dtype, array.shape, array.strides)
            elif kind in _KEYS:
                key.append(_KEYS[kind](array))
            else:
                key.append(_key(array))
        if out is not None:
            key.append("out")
            if type(out) is _ndarray:
                key += (out.dtype, out.shape, out.strides)
            else:
                key.append(tuple(map(_key, out)) if type(out) is tuple else _KEYS.get(type(out), _key)(out))
        if attributes:
            for name, value in attributes.items():
                if name in self._is_tensor:
                    tensors, attributes = self.op.arguments(args, attributes)
                    return self.prepare(tuple(tensors), attributes, out, device, kernel, require)
                key.append(name)
                key.append(_attribute_key(value))
        if device is not None or kernel is not None or require is not None:
            key += ("policy", device, kernel, require)
        found = tuple(key)
        call = self._calls.get(found)
        if call is None:
            taken = tuple(_take(array) for array in args)
            if any(a is not b for a, b in zip(taken, args, strict=True)):
                return self.prepare(taken, attributes, out, device, kernel, require)
            call = self._make(args, attributes, out, device, kernel, require)
            with self._lock:
                while len(self._calls) >= CALL_LIMIT:
                    self._calls.popitem(last=False)
                self._calls[found] = call
        return call, args

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
        if len(args) > len(self._names):
            op.arguments(args, attributes)
        adapters = [self._adapter(name, array) for name, array in zip(self._names, args, strict=False)]
        place = self._place(args, adapters, device)
        specs = [
            weak_spec(array) if adapter is None else adapter.spec(array)
            for array, adapter in zip(args, adapters, strict=True)
        ]
        signature = op.signature([*specs, *[None] * (len(self._names) - len(specs))], attributes)
        out_adapters = self._outs(out, signature, place)
        target = registry.target(place)
        bound = registry.program(signature, target, registry.require(require), kernel)
        counter = registry.counters.counter(op.id, bound.choice.kernel.id, target.name, bound.choice.evidence)
        if not out_adapters:
            like = next((adapter for adapter in adapters if adapter is not None), None)
            made_by = like or _NUMPY
            assert made_by is not None
            out_adapters = [made_by] * len(op.outputs)
        for param, array, adapter in zip(op.tensors, args, adapters, strict=False):
            if param.mutable and (adapter is None or not adapter.writable(array)):
                raise SignatureError(f"{op.name}: {param.name} is written in place, but it is read-only")
        return make_call(registry, CallShape(bound, counter, adapters, out_adapters, place, out is not None))

    def _adapter(self, name: str, array: Any) -> Adapter | None:
        if array is None or type(array) in WEAK:
            return None
        adapter = interop.adapter(array)
        if adapter is None:
            raise interop.not_a_tensor(array, f"{self.op.name}: {name}")
        return adapter

    def _place(self, args: Sequence[Any], adapters: Sequence[Adapter | None], device: str | None) -> str:
        places: dict[str, str] = {}
        for name, array, adapter in zip(self._names, args, adapters, strict=False):
            if adapter is not None:
                places.setdefault(adapter.place(array), name)
        if len(places) > 1:
            where = ", ".join(f"{name} on {place}" for place, name in places.items())
            raise SignatureError(
                f"{self.op.name}: tensors on several devices ({where}); nothing is copied unless asked"
            )
        place = next(iter(places), device or "cpu")
        if device is not None and device != place:
            raise SignatureError(
                f"{self.op.name}: device={device!r}, but the tensors are on {place}; nothing is copied unless asked "
                f"(nbx.asarray(x, device={device!r}) copies)"
            )
        return place

    def _outs(self, out: Any, signature: Signature, place: str) -> list[Adapter]:
        """Check ``out`` against the inferred outputs, and make the outputs' specs those of ``out``."""
        if out is None:
            return []
        name = self.op.name
        given = out if isinstance(out, tuple) else (out,)
        if len(given) != len(signature.outputs):
            raise SignatureError(f"{name} has {len(signature.outputs)} outputs; out= gives {len(given)}")
        adapters: list[Adapter] = []
        specs: list[TensorSpec] = []
        for array, output, spec in zip(given, self.op.outputs, signature.outputs, strict=True):
            adapter = self._adapter("out", array)
            if adapter is None:
                raise SignatureError(f"{name}: out= must be an array, not {array!r}")
            found = adapter.spec(array)
            if found.dtype is not spec.dtype or found.shape != spec.shape:
                raise SignatureError(f"{name}: out= is {found}; output {output.name!r} is {spec}")
            if adapter.place(array) != place:
                raise SignatureError(f"{name}: out= is on {adapter.place(array)}, the tensors on {place}")
            if found.distinct != found.size:
                raise SignatureError(f"{name}: out= is expanded ({found}): its elements share memory")
            if not adapter.writable(array):
                raise SignatureError(f"{name}: out= is read-only")
            adapters.append(adapter)
            specs.append(found)
        signature.outputs = tuple(specs)
        return adapters


def _take(array: Any) -> Any:
    adapter = None if array is None or type(array) in WEAK else interop.adapter(array)
    return array if adapter is None else adapter.take(array)


def _key(array: Any) -> Any:
    """Return what a call's kind depends on of one argument that is no plain NumPy array."""
    kind = type(array)
    if array is None or kind in WEAK:
        return kind
    adapter = interop.adapter(array)
    if adapter is None or adapter.foreign:
        # A foreign array is first taken in, then the call is one of nbx tensors; the rest have their errors in `_make`.
        return kind
    _KEYS[kind] = adapter.key
    return adapter.key(array)


_KEYS: dict[type, Callable[[Any], Any]] = {}
"""How arrays of a type met before give their part of a key."""


def _attribute_key(value: Any) -> Any:
    """Return a key that tells 1, 1.0 and True, and 0.0 and -0.0, apart."""
    kind = type(value)
    if kind is int or kind is str or kind is bool or value is None:
        return (kind, value)
    if kind is tuple or kind is list:
        return (kind, *map(_attribute_key, value))
    if kind is float:
        return (kind, value, str(value)) if value == 0 else (kind, value)
    return (kind, str(value))
