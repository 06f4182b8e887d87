"""For users of torch: ops as ``torch.library`` custom ops, which ``torch.compile`` sees through. Imported on request.

Everything else of the registry takes torch's tensors as they are and imports nothing; this module imports torch.
"""

from __future__ import annotations

import importlib
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from itertools import compress, product
from typing import TYPE_CHECKING, Any, cast

from nbx_registry import dtypes
from nbx_registry.errors import NbxError, SignatureError, UnknownName
from nbx_registry.spec import TensorSpec, weak_spec

if TYPE_CHECKING:
    from nbx_registry.op import Op
    from nbx_registry.param import Attribute, Param
    from nbx_registry.registry import Registry

# Without types: torch is no dependency, and is not there when types are checked.
torch: Any = importlib.import_module("torch")

NAMESPACE = "nbx"
"""Of the core's ops in ``torch.ops``; a plugin's ops are under its own."""

TORCH_S = frozenset(("aten", "prim", "prims", "quantized", "inductor", "higher_order", "c10d", "profiler"))
"""Namespaces in which torch has ops of its own."""

_OPEN: Mapping[str, Any] = {"SymInt": 0, "SymFloat": 0.0, "SymBool": False}
"""torch's types of numbers that it has left open, each with one of its kind."""

_TYPES = {"dtype": "ScalarType", "int[]": "int[1]"}
"""torch's types of attributes, where it calls them otherwise. One integer may stand for a list of one."""


class Registered:
    """Ops that torch knows, as attributes: ``found.softmax``, ``found.sdm.wy_solve``. They are those of ``torch.ops``.

    Attributes
    ----------
    ops : Mapping
        What ``torch.ops`` has of each op, by name (``softmax``, ``sdm::wy_solve``).
    refused : Mapping
        Ops that cannot be registered, by name, each with the reason.
    """

    def __init__(self, ops: Mapping[str, Any], refused: Mapping[str, str]) -> None:
        self.ops = ops
        self.refused = refused

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        if name in self.ops:
            return self.ops[name]
        inner = f"{name}::"
        ops, refused = ({n.removeprefix(inner): v for n, v in d.items() if n.startswith(inner)} for d in self._tables)
        if ops or refused:
            return Registered(ops, refused)
        raise AttributeError(self.refused.get(name) or f"{name!r} is no op that was registered for torch")

    @property
    def _tables(self) -> tuple[Mapping[str, Any], Mapping[str, Any]]:
        return self.ops, self.refused

    def __dir__(self) -> Iterator[str]:
        return iter(sorted({"ops", "refused", *(name.split("::")[0] for name in self.ops)}))

    def __repr__(self) -> str:
        return f"<{len(self.ops)} ops known to torch, {len(self.refused)} refused>"


@dataclass
class _State:
    """What torch was told in this process: it forgets nothing."""

    lock: threading.Lock = field(default_factory=threading.Lock)
    libraries: dict[str, Any] = field(default_factory=dict[str, Any])
    schemas: dict[str, tuple[str, ...]] = field(default_factory=dict[str, tuple[str, ...]])
    registries: dict[str, Any] = field(default_factory=dict[str, Any])
    """By op, the registry that runs it; None for the process's own."""


_state = _State()


def register(registry: Registry | None = None, ops: Iterable[str] | None = None) -> Registered:
    """Make ops known to torch, as ``torch.ops.nbx.softmax(x, axis=-1)``; those of plugins in namespaces of their own.

    A second time nothing is registered again; the registry given last is the one that runs an op.

    Parameters
    ----------
    registry
        Runs them; left out, the process's own (`nbx_registry.default`) at the time of each call.
    ops
        Names; left out, all ops of the registry.

    Raises
    ------
    UnknownName
        For an op that the registry lacks.
    SignatureError
        ``registry`` is no registry, ``ops`` no list of names.
    NbxError
        For an op of a contract with another schema than torch was told before.

    Notes
    -----
    An op is opaque to torch: its shapes come from the contract, its kernel from the registry. Attributes are keywords;
    a dtype is torch's. Where a Python scalar may stand for a tensor there is an overload for it. What is written in
    place is declared so. Results are never views: ``permute_dims`` and ``broadcast_to`` copy. Ops of no tensor take
    ``device``. Sizes must be integers when shapes are inferred, so that a compiled graph serves the sizes that it was
    compiled for, and others are compiled anew; Python scalars may change. No gradient is recorded: what requires one,
    or carries a tangent, is refused, but where gradients are off (``torch.no_grad``).
    """
    if registry is not None and not hasattr(registry, "catalog"):
        raise SignatureError(f"{registry!r} is no registry; give what nbx.load() returns, and names as ops=[...]")
    if isinstance(ops, str):
        raise SignatureError(f"ops={ops!r} is no list of names; write ops=[{ops!r}]")
    found: dict[str, Any] = {}
    refused: dict[str, str] = {}
    contracts = _process_registry().ops if registry is None else registry.ops
    for name in contracts if ops is None else ops:
        op = contracts.get(name)
        if op is None:
            raise UnknownName.of("op", name, contracts, "nbx ops lists them")
        why = _why_not(op)
        if why:
            refused[name] = why
            continue
        with _state.lock:
            _define(op)
            _state.registries[name] = registry
        space, _, short = _torch_name(op).partition("::")
        found[name] = getattr(getattr(torch.ops, space), short)
    return Registered(found, refused)


def _process_registry() -> Any:
    return _above("registry").default()


def _above(module: str) -> Any:
    # By reference: it stands above the adapters of libraries.
    return importlib.import_module(f"nbx_registry.{module}")


def _torch_name(op: Op) -> str:
    return op.name if op.namespace else f"{NAMESPACE}::{op.name}"


def _why_not(op: Op) -> str:
    """Return why torch can have no such op; empty where it can."""
    if op.namespace in (*TORCH_S, NAMESPACE):
        return f"{op.name}: torch, or this project, has ops of its own in namespace {op.namespace!r}"
    for item in (*op.tensors, *op.outputs):
        if item.dtype in dtypes.TABLE and _dtype(dtypes.get(item.dtype)) is None:
            return f"{op.name}: {item.name} is {item.dtype}, a dtype that torch lacks"
    return ""


def _define(op: Op) -> None:
    """Tell torch of an op, unless it knows it."""
    overloads = list(_overloads(op))
    schemas = tuple(_schema(op, scalars) for scalars in overloads)
    known = _state.schemas.get(op.name)
    if known is not None:
        if known != schemas:
            raise NbxError(f"torch knows {op.name} as {known[0]}, and not as {schemas[0]}; begin another process")
        return
    space, _, short = _torch_name(op).partition("::")
    library = _state.libraries.get(space)
    if library is None:
        library = _state.libraries[space] = torch.library.Library(space, "FRAGMENT")
    for scalars, schema in zip(overloads, schemas, strict=True):
        name = short + _suffix(scalars)
        library.define(schema, tags=(torch.Tag.pt2_compliant_tag,))
        library.impl(name, _runner(op), "CompositeExplicitAutograd")
        torch.library.register_fake(f"{space}::{name}", _shaper(op), lib=library)
        overload = getattr(getattr(getattr(torch.ops, space), short), name.partition(".")[2] or "default")
        if op.tensors:
            library.impl(name, _without_gradients(op, overload), "Autograd", with_keyset=True)
        written = [number for number, param in enumerate(op.tensors) if param.mutable]
        if written:
            library.impl(name, _noting_writes(overload, written), "ADInplaceOrView", with_keyset=True)
    _state.schemas[op.name] = schemas


# Schemas.


def _overloads(op: Op) -> Iterator[tuple[str, ...]]:
    """Yield the sets of parameters for which Python scalars may stand, those of later parameters first.

    torch takes the first that fits. A tensor in a scalar's place it prints into the error of the one that does not,
    which reads it on the host; in this order it first finds a scalar in a tensor's place.
    """
    names = [p.name for p in op.tensors if p.broadcast and p.letter and not (p.is_list or p.mutable)]
    if len(names) == 1:
        names = []
    for held in product((False, True), repeat=len(names)):
        chosen = tuple(compress(names, held))
        if not chosen or _takes_scalars(op, chosen):
            yield chosen


def _takes_scalars(op: Op, names: Sequence[str]) -> bool:
    specs: list[TensorSpec | None] = []
    for param in op.tensors:
        dtype = "bool" if param.dtype in ("bool", "B") else "float32"
        specs.append(weak_spec(1.0) if param.name in names else TensorSpec(dtypes.get(dtype), (2,)))
    try:
        op.signature(specs, {})
    except SignatureError:
        return False
    return not all(spec is None or spec.weak for spec in specs)


def _suffix(scalars: Sequence[str]) -> str:
    return f".Scalar_{'_'.join(scalars)}" if scalars else ""


def _schema(op: Op, scalars: Sequence[str]) -> str:
    parts = [_param(param, number, param.name in scalars) for number, param in enumerate(op.tensors)]
    keywords = [_attribute(op, attribute) for attribute in op.attributes]
    if not op.tensors:
        keywords.append("Device? device=None")
    if keywords:
        parts += ["*", *keywords]
    results = ", ".join("Tensor" for _ in op.outputs)
    short = op.name.rpartition("::")[2]
    returns = results if len(op.outputs) == 1 else f"({results})"
    return f"{short}{_suffix(scalars)}({', '.join(parts)}) -> {returns}"


def _param(param: Param, number: int, scalar: bool) -> str:
    kind = f"Tensor(a{number}!)" if param.mutable else "Scalar" if scalar else "Tensor[]" if param.is_list else "Tensor"
    return f"{kind}{'?' if param.optional else ''} {param.name}{'=None' if param.optional else ''}"


def _attribute_type(attribute: Attribute) -> str:
    kind = attribute.type
    # Of several types an attribute is one of numbers.
    return "Scalar" if len(attribute.kinds) > 1 else _TYPES.get(kind, kind)


def _attribute(op: Op, attribute: Attribute) -> str:
    kind, name = _attribute_type(attribute), attribute.name
    if name not in op.defaults:
        return f"{kind}{'?' if attribute.nullable else ''} {name}"
    default = op.defaults[name]
    if default is None or kind == "ScalarType":
        # torch writes no dtype as a default: without one it is the contract's.
        return f"{kind}? {name}=None"
    if isinstance(default, str):
        text = f'"{default}"'
    elif isinstance(default, tuple):
        text = str(list(cast("tuple[int, ...]", default)))
    else:
        text = str(default)
    return f"{kind}{'?' if attribute.nullable else ''} {name}={text}"


# What torch calls.


def _without_gradients(op: Op, overload: Any) -> Callable[..., Any]:
    """Return what refuses tensors that a gradient is asked for, under ``torch.func`` and while compiling too."""
    # By reference, as torch itself is.
    forward = importlib.import_module("torch.autograd.forward_ad")
    enabled, required, below = torch.is_grad_enabled, torch._C._any_requires_grad, torch._C._AutoDispatchBelowAutograd
    redispatch, mask = overload.redispatch, torch._C._after_autograd_keyset

    def check(keys: Any, *tensors: Any, **given: Any) -> Any:
        # A level of dual numbers is looked for first: asking each tensor for its tangent costs as much as all else.
        if enabled() and (required(*tensors) or forward._current_level >= 0):
            for x in _flat(tensors):
                if isinstance(x, torch.Tensor) and (x.requires_grad or forward.unpack_dual(x).tangent is not None):
                    raise SignatureError(
                        f"{op.name}: a torch tensor of shape {list(x.shape)} requires grad, and no gradient is "
                        "recorded here; give x.detach(), or call it under torch.no_grad()"
                    )
        with below():
            return redispatch(keys & mask, *tensors, **given)

    return check


def _noting_writes(overload: Any, written: Sequence[int]) -> Callable[..., Any]:
    """Return what tells torch that tensors were written: a gradient that needs what they held is then refused."""

    def note(keys: Any, *tensors: Any, **given: Any) -> Any:
        for number in written:
            torch.autograd.graph.increment_version(tensors[number])
        with torch._C._AutoDispatchBelowADInplaceOrView():
            return overload.redispatch(keys & torch._C._after_ADInplaceOrView_keyset, *tensors, **given)

    return note


def _attributes(op: Op, given: Mapping[str, Any]) -> dict[str, Any]:
    """Return attributes as a contract takes them; a dtype left out is the contract's."""
    found: dict[str, Any] = {}
    for attribute in op.attributes:
        if attribute.name not in given:
            continue
        value: Any = given[attribute.name]
        if value is None and not attribute.nullable:
            continue
        found[attribute.name] = _plain(value)
    if op.views and any(attribute.name == "copy" for attribute in op.attributes):
        found["copy"] = True
    return found


def _plain(value: Any) -> Any:
    """Return an attribute's value as a contract takes it."""
    if isinstance(value, torch.dtype):
        return _dtype_of(value).name
    # A number that torch has left open becomes a constant, as a size does: what is compiled is compiled for it.
    return (
        int(value) if isinstance(value, torch.SymInt) else float(value) if isinstance(value, torch.SymFloat) else value
    )


def _runner(op: Op) -> Callable[..., Any]:
    """Return what runs an op on tensors."""
    name, op_id = op.name, op.id

    def run(*tensors: Any, **given: Any) -> Any:
        registry = _state.registries[name] or _process_registry()
        attributes = _attributes(op, given)
        if not torch.is_grad_enabled():
            tensors = tuple(_detached(x) for x in tensors)
        with _workspace():
            if op.tensors:
                result = registry.call(op_id, *tensors, **attributes)
            else:
                device = given.get("device") or torch.device("cpu")
                signature = op.signature([], attributes)
                out = tuple(_empty(spec, device) for spec in signature.outputs)
                made: Any = out[0] if len(out) == 1 else out
                result = made if device.type == "meta" else registry.call(op_id, out=made, **attributes)
        # torch takes no result for one that lies in an argument's memory.
        return result.clone() if op.views and _shares(result, tensors) else result

    return run


@dataclass
class _Piece:
    """A buffer in a tensor's memory."""

    tensor: Any
    address: int
    nbytes: int
    device: int


class _GraphMemory:
    """Torch's own memory: while torch captures a graph, what it hands out stays the graph's."""

    def allocate(self, place: str, nbytes: int, stream: Any) -> _Piece:
        """Return memory for what torch's current stream does next, as an `nbx_registry.Allocator` does."""
        del stream
        tensor = torch.empty(nbytes, dtype=torch.uint8, device=place)
        return _Piece(tensor, tensor.data_ptr(), nbytes, tensor.device.index or 0)


def _workspace() -> AbstractContextManager[Any]:
    """Return a block in which kernels' workspace may be part of a graph of torch's, where one is being captured."""
    # Asked in this order: a build of torch without CUDA has nothing to ask.
    if not torch.cuda.is_initialized() or not torch.cuda.is_current_stream_capturing():
        return nullcontext()
    allocation = _above("memory.allocation")
    return nullcontext() if allocation.own_allocator() else allocation.allocating(_GraphMemory())


def _shaper(op: Op) -> Callable[..., Any]:
    """Return what tells torch the results' shapes, dtypes and devices, without any elements."""

    def shape(*tensors: Any, **given: Any) -> Any:
        signature = op.signature([_spec(x) for x in tensors], _attributes(op, given))
        device = next((x.device for x in _flat(tensors) if isinstance(x, torch.Tensor)), None)
        device = device or given.get("device") or torch.device("cpu")
        results = tuple(_empty(spec, device) for spec in signature.outputs)
        return results if len(results) > 1 else results[0] if results else None

    return shape


def _flat(tensors: Sequence[Any]) -> Iterator[Any]:
    for x in tensors:
        if isinstance(x, (list, tuple)):
            yield from cast("Sequence[Any]", x)
        else:
            yield x


def _detached(x: Any) -> Any:
    if isinstance(x, (list, tuple)):
        return [_detached(item) for item in cast("Sequence[Any]", x)]
    return x.detach() if isinstance(x, torch.Tensor) and x.requires_grad else x


def _shares(result: Any, tensors: Sequence[Any]) -> bool:
    address = result.untyped_storage().data_ptr()
    return any(isinstance(x, torch.Tensor) and x.untyped_storage().data_ptr() == address for x in tensors)


def _spec(x: Any) -> Any:
    if isinstance(x, (list, tuple)):
        return tuple(_spec(item) for item in cast("Sequence[Any]", x))
    if not isinstance(x, torch.Tensor):
        # Of a number that torch has left open only the kind is asked for, so that it stays open.
        kind = next((kind for kind in _OPEN if isinstance(x, getattr(torch, kind))), None)
        return weak_spec(x if kind is None else _OPEN[kind])
    # A size that torch has left open becomes a constant here: what is compiled is compiled for it.
    return TensorSpec(_dtype_of(x.dtype), tuple(int(n) for n in x.shape), tuple(int(n) for n in x.stride()))


def _dtype_of(dtype: Any) -> dtypes.DType:
    name = str(dtype).removeprefix("torch.")
    if name not in dtypes.TABLE:
        raise SignatureError(f"{dtype} is not in the dtype table ({', '.join(dtypes.TABLE)})")
    return dtypes.get(name)


def _dtype(dtype: dtypes.DType) -> Any:
    """Return torch's dtype, None where it has none: its 4-bit ones hold two elements a byte, or do nothing at all."""
    found = getattr(torch, dtype.name, None)
    return found if isinstance(found, torch.dtype) and dtype.bits >= 8 else None


def _empty(spec: TensorSpec, device: Any) -> Any:
    dtype = _dtype(spec.dtype)
    if dtype is None:
        raise SignatureError(f"torch has no dtype {spec.dtype.name}")
    return torch.empty(spec.shape, dtype=dtype, device=device)
