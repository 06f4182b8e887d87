"""Dispatch: from a caller's arrays to a bound program, remembered so that the same kind of call goes straight to it.

One `Dispatcher` an op. A call makes a key from dtypes, shapes, strides and places of its arrays and its attributes; a
known key finds a `Call`, which does what is left: guards, outputs, operands, launch.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Sequence
from functools import partial
from itertools import chain, islice, repeat
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from nbx_registry import interop, tensor
from nbx_registry.call import Call, CallShape
from nbx_registry.describe import WEAK
from nbx_registry.errors import PluginFault, Refused, SignatureError
from nbx_registry.interop import Adapter
from nbx_registry.interop.nbx_tensors import NbxAdapter
from nbx_registry.interop.numpy_arrays import NumpyAdapter
from nbx_registry.op import Op
from nbx_registry.operands import make_call
from nbx_registry.param import Param
from nbx_registry.policy import check_asked
from nbx_registry.signature import Signature
from nbx_registry.spec import TensorSpec, weak_spec

if TYPE_CHECKING:
    from nbx_registry.registry import Registry

CALL_LIMIT = 2048
"""How many kinds of call are remembered for an op."""

_ndarray = np.ndarray
# What makes outputs where no array says in which library.
_NBX: Adapter = NbxAdapter(tensor)
_PLAIN = interop.adapter(np.empty(0))
"""That of NumPy's own arrays."""


class Dispatcher:
    """Calls one op of one registry, its ``registry``."""

    def __init__(self, registry: Registry, op: Op) -> None:
        self.op = op
        self.registry = registry
        self._calls: OrderedDict[tuple[Any, ...], Call] = OrderedDict()
        self._lock = threading.Lock()
        self._is_tensor = frozenset(param.name for param in op.tensors)
        self._mutable = frozenset(param.name for param in op.tensors if param.mutable)
        self._lists = any(param.is_list for param in op.tensors)

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
            kind = type(array)  # pyright: ignore[reportUnknownVariableType] - of Any there is no type to know
            if kind is _ndarray:
                key += (array.dtype, array.shape, array.strides)
            elif kind in _KEYS:
                key.append(_KEYS[kind](array))
            else:
                key.append(_key(array))
        if out is not None:
            key.append("out")
            kind = type(out)  # pyright: ignore[reportUnknownVariableType] - as above
            if kind is _ndarray:
                key += (out.dtype, out.shape, out.strides)
            elif kind in _KEYS:
                key.append(_KEYS[kind](out))
            else:
                key.append(_key(out))
        if attributes:
            for name, value in attributes.items():
                if name in self._is_tensor:
                    tensors, attributes = self.op.arguments(args, attributes)
                    return self.prepare(tuple(tensors), attributes, out, device, kernel, require)
                key.append(name)
                key.append(_attribute_key(value))
        if device is not None or kernel is not None or require is not None:
            check_asked(device, kernel, require)
            key += ("policy", device, kernel, require)
        found = tuple(key)
        call = self._calls.get(found)
        if call is None:
            taken = self._taken(args)
            if taken is not args and any(a is not b for a, b in zip(taken, args, strict=True)):
                for param, array in zip(self.op.tensors, args, strict=False):
                    if param.mutable:
                        self._check_ours(param.name, array)
                return self.prepare(taken, attributes, out, device, kernel, require)
            call, lasting = self._make(args, attributes, out, device, kernel, require)
            if not lasting:
                return call, args
            with self._lock:
                while len(self._calls) >= CALL_LIMIT:
                    self._calls.popitem(last=False)
                self._calls[found] = call
        return call, args

    # A call of a new kind.

    def _taken(self, args: tuple[Any, ...]) -> tuple[Any, ...]:
        """Return the arguments, with arrays that cannot be read where they are taken in."""
        if set(map(type, args)) <= {_ndarray}:
            return args
        names = chain((param.name for param in self.op.tensors), repeat("one too many"))
        return tuple([self._named(name, _take, array) for name, array in zip(names, args, strict=False)])

    def _named(self, name: str, read: Callable[..., Any], *args: Any) -> Any:
        """Read an argument. What its library's adapter refuses is told with the op and the argument's name."""
        try:
            return read(*args)
        except SignatureError as error:
            raise self._told(name, error) from None

    def _told(self, name: str, error: SignatureError) -> SignatureError:
        error.args = (f"{self.op.name}: {name}: {error}",)
        return error

    def _make(
        self,
        args: tuple[Any, ...],
        attributes: dict[str, Any],
        out: Any,
        device: str | None,
        kernel: str | None,
        require: str | None,
    ) -> tuple[Call, bool]:
        """Return the call, and whether it serves all arguments of this kind, however they are aligned."""
        registry, op = self.registry, self.op
        if len(args) > len(self._is_tensor):
            op.arguments(args, attributes)
        params = op.tensors
        given: list[tuple[str, Any]] = []
        for param, value in zip(params, args, strict=False):
            if param.is_list and isinstance(value, (list, tuple)):
                given += ((f"{param.name}.{i}", item) for i, item in enumerate(cast("Sequence[Any]", value)))
            else:
                given.append((param.name, value))
        adapters = [_PLAIN if type(value) is _ndarray else self._adapter(name, value) for name, value in given]
        outs = [] if out is None else self._outs(out)
        place = self._place(given, adapters, outs, device)
        specs: list[Any] = []
        for (name, value), adapter in zip(given, adapters, strict=True):
            try:
                specs.append(weak_spec(value) if adapter is None else adapter.spec(value))
            except SignatureError as error:
                raise self._told(name, error) from None
        if self._lists:
            specs = _structured(params, args, specs)
        signature = op.signature(specs, attributes)
        if self._mutable:
            self._check_written(signature, given, adapters)
        if outs:
            self._check_outs(outs, signature, place)
        target = registry.target(place)
        if target.live is None and target.device is not None:
            raise SignatureError(f"{op.name}: {place} is a product; a call runs on a live device (cpu, cuda:0)")
        lasting = True
        try:
            bound = registry.programs.get(signature, target, registry.require(require), kernel)
        except (Refused, PluginFault):
            # Decided as if aligned, which these may not be: what is in the way of others need not be in theirs.
            actual = self._as_aligned(specs, signature, given, adapters, outs)
            if actual.key == signature.key:
                raise
            signature, lasting = actual, False
            bound = registry.programs.get(signature, target, registry.require(require), kernel)
        if out is not None:
            out_adapters = [adapter for _, adapter in outs]
        else:
            like = next((adapter for adapter in adapters if adapter is not None), _NBX)
            out_adapters = [like] * len(op.outputs)
        names = [name for name, _ in given]
        counter = registry.programs.counter(bound)
        shape = CallShape(bound, counter, names, adapters, out_adapters, place, out is not None)
        return make_call(registry.programs, shape, aligned=not lasting), lasting

    def _as_aligned(
        self,
        specs: Sequence[Any],
        signature: Signature,
        given: Sequence[tuple[str, Any]],
        adapters: Sequence[Adapter | None],
        outs: Sequence[tuple[Any, Adapter]],
    ) -> Signature:
        """Return the signature of tensors that are aligned as these are: the same one where all are well aligned."""
        pairs = zip(given, adapters, strict=True)
        aligns = iter([16 if adapter is None else _align(adapter, array) for (_, array), adapter in pairs])
        changed: list[Any] = []
        for operand in specs:
            if isinstance(operand, tuple):
                items = cast("tuple[TensorSpec, ...]", operand)
                changed.append(tuple(spec.aligned(next(aligns)) for spec in items))
            else:
                align = next(aligns)
                changed.append(None if operand is None else operand.aligned(align))
        found = self.op.signature(changed, signature.attributes)
        of_outs = [_align(adapter, array) for array, adapter in outs] or [16] * len(signature.outputs)
        found.outputs = tuple(spec.aligned(align) for spec, align in zip(signature.outputs, of_outs, strict=True))
        return found

    def _adapter(self, name: str, array: Any) -> Adapter | None:
        if array is None or type(array) in WEAK:
            return None
        adapter = self._named(name.rstrip("="), interop.adapter, array)
        if adapter is None:
            raise interop.not_a_tensor(array, f"{self.op.name}: {name}")
        return adapter

    def _place(
        self,
        given: Sequence[tuple[str, Any]],
        adapters: Sequence[Adapter | None],
        outs: Sequence[tuple[Any, Adapter]],
        device: str | None,
    ) -> str:
        places: dict[str, str] = {}
        for (name, array), adapter in zip(given, adapters, strict=True):
            if adapter is not None:
                place = "cpu" if adapter is _PLAIN else self._named(name, adapter.place, array)
                places.setdefault(place, name)
        if len(places) > 1:
            where = ", ".join(f"{name} on {place}" for place, name in places.items())
            raise SignatureError(
                f"{self.op.name}: tensors on several devices ({where}); nothing is copied unless asked"
            )
        if not places:
            places = {self._named("out", adapter.place, array): "out=" for array, adapter in outs[:1]}
        wanted = None if device is None else self.registry.target(device).name
        place = next(iter(places), wanted or "cpu")
        if wanted is not None and wanted != place:
            what = "the tensors are" if any(adapters) else "out= is"
            raise SignatureError(
                f"{self.op.name}: device={device!r}, but {what} on {place}; nothing is copied unless asked "
                f"(nbx.asarray(x, device={device!r}) copies)"
            )
        return place

    def _check_written(
        self, signature: Signature, given: Sequence[tuple[str, Any]], adapters: Sequence[Adapter | None]
    ) -> None:
        """Refuse memory that an op which writes in place cannot write."""
        for (name, array), adapter in zip(given, adapters, strict=True):
            if name in self._mutable and adapter is not None:
                spec: TensorSpec = signature.tensor(name)
                if not spec.injective:
                    raise SignatureError(
                        f"{self.op.name}: {name} is written in place, but its elements share memory ({spec}), as an "
                        f"expanded tensor's do; give a copy"
                    )
                if not adapter.writable(array):
                    raise SignatureError(f"{self.op.name}: {name} is written in place, but it is read-only")

    def _check_ours(self, name: str, array: Any) -> None:
        """Refuse to write the arrays of a library that are only read here."""
        error = self._named(name.rstrip("="), interop.only_read, array, f"{self.op.name}: {name}")
        if error is not None:
            raise error

    def _outs(self, out: Any) -> list[tuple[Any, Adapter]]:
        """Return each array of ``out=`` with its adapter."""
        name, expected = self.op.name, len(self.op.outputs)
        if not expected:
            raise SignatureError(f"{name} has no outputs; it takes no out=")
        if isinstance(out, list):
            wanted = "the array itself" if expected == 1 else f"a tuple of {expected} arrays"
            raise SignatureError(f"{name}: out= is a list; give {wanted}")
        several = isinstance(out, tuple)
        given = cast("Sequence[Any]", out) if several else (out,)
        if len(given) != expected:
            raise SignatureError(f"{name} has {expected} outputs; out= gives {len(given)}")
        if several and expected == 1:
            raise SignatureError(f"{name} has one output: give out= the array itself, not a tuple of it")
        for array in given:
            self._check_ours("out=", array)
        adapters = [self._adapter("out=", array) for array in given]
        found = [(array, adapter) for array, adapter in zip(given, adapters, strict=True) if adapter is not None]
        if len(found) != expected:
            raise SignatureError(f"{name}: out= must be an array, not {out!r}")
        return found

    def _check_outs(self, outs: Sequence[tuple[Any, Adapter]], signature: Signature, place: str) -> None:
        """Check the arrays of ``out=`` against the inferred outputs, and make the outputs' specs theirs."""
        name = self.op.name
        specs: list[TensorSpec] = []
        for (array, adapter), output, spec in zip(outs, self.op.outputs, signature.outputs, strict=True):
            found = self._named("out", adapter.spec, array)
            if found.dtype is not spec.dtype or found.shape != spec.shape:
                raise SignatureError(f"{name}: out= is {found}; output {output.name!r} is {spec}")
            if self._named("out", adapter.place, array) != place:
                raise SignatureError(f"{name}: out= is on {adapter.place(array)}, the tensors on {place}")
            if not found.injective:
                raise SignatureError(
                    f"{name}: elements of out= share memory ({found}), as an expanded tensor's do; give a copy"
                )
            if not adapter.writable(array):
                raise SignatureError(f"{name}: out= is read-only")
            specs.append(found)
        signature.outputs = tuple(specs)


def _align(adapter: Adapter, array: Any) -> int:
    """Return how an array is aligned, as far as a call looks: what has no elements has no address."""
    spec = adapter.spec(array, measure_align=True)
    return min(16, spec.align) if spec.size else 16


def _structured(params: Sequence[Param], args: Sequence[Any], specs: Sequence[Any]) -> list[Any]:
    """Put the specs of the tensors of each list together again."""
    rest = iter(specs)
    found: list[Any] = []
    for param, value in zip(params, args, strict=False):
        if param.is_list and isinstance(value, (list, tuple)):
            found.append(tuple(islice(rest, len(cast("Sequence[Any]", value)))))
        else:
            found.append(next(rest))
    return found


def _take(array: object) -> Any:
    kind = type(array)
    if array is None or kind in WEAK or kind is _ndarray:
        return array
    if kind is list or kind is tuple:
        items = cast("Sequence[object]", array)
        taken = [_take(item) for item in items]
        return array if all(a is b for a, b in zip(taken, items, strict=True)) else taken
    adapter = interop.adapter(array)
    return array if adapter is None else adapter.take(array)


def _key(array: object) -> Any:
    """Return what a call's kind depends on of one argument that is no plain NumPy array."""
    kind = type(array)
    if array is None or kind in WEAK:
        return kind
    try:
        adapter = interop.adapter(array)
    except SignatureError:
        # As for the rest: told where the argument's name is known.
        return kind
    if adapter is None or adapter.foreign:
        # A foreign array is first taken in, then the call is one of nbx tensors; the rest have their errors in `_make`.
        return kind
    key: Callable[[Any], Any] = adapter.key
    if isinstance(adapter, NumpyAdapter) and kind is not _ndarray:
        # NumPy's scalars and subclasses are fetched in their own ways, which a rank-0 array's key does not tell.
        key = partial(_own_key, adapter)
    _KEYS[kind] = key
    return key(array)


def _own_key(adapter: Adapter, array: object) -> Any:
    return (type(array), adapter.key(array))


def _part(array: object) -> Any:
    return _KEYS.get(type(array), _key)(array)


def _list_key(arrays: Any) -> Any:
    # Several outputs are a tuple: a list in its place is refused.
    return (type(arrays), *map(_part, arrays))


_KEYS: dict[type, Callable[[Any], Any]] = {list: _list_key, tuple: _list_key}
"""How arrays of a type met before, and lists of them, give their part of a key."""


def _attribute_key(value: object) -> Any:
    """Return a key that tells 1, 1.0 and True, and 0.0 and -0.0, apart."""
    kind = type(value)
    if kind is int or kind is str or kind is bool or value is None:
        return (kind, value)
    if kind is tuple or kind is list:
        return (kind, *map(_attribute_key, cast("Sequence[object]", value)))
    if isinstance(value, float):
        # NaN is unequal to itself, and zeros are equal.
        return (kind, value) if value and value == value else (kind, str(value))
    try:
        hash(value)
    except TypeError:
        return (kind, str(value))
    return (kind, value)
