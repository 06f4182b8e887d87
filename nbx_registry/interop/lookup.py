"""Which adapter reads an object: by its type, remembered; libraries are found in ``sys.modules``, never imported."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable
from typing import Any, cast

import numpy as np

from nbx_registry.errors import SignatureError
from nbx_registry.interop.base import Adapter
from nbx_registry.interop.numpy_arrays import NumpyAdapter, NumpyScalarAdapter, NumpySubclassAdapter

_BY_TYPE: dict[type, Adapter] = {np.ndarray: NumpyAdapter()}
_OURS = "nbx_registry.tensor"


def adapter(x: object) -> Adapter | None:
    """Return the adapter that reads ``x``; None if it is no array (a Python scalar, a list, ...).

    Raises
    ------
    SignatureError
        For an array that no kernel could be given: a masked array, a torch subclass without memory of its own.
    """
    found = _BY_TYPE.get(type(x))
    return found if found is not None else _find(type(x))


def not_a_tensor(x: object, name: str) -> SignatureError:
    """Build the error for ``x``, given where the op takes tensor ``name``: it says how to make one."""
    kind: type[Any] = type(x)
    it = name.rpartition(": ")[2]
    if issubclass(kind, list | tuple):
        return SignatureError(
            f"{name} is a {kind.__name__}, and no array: its dtype is anybody's guess;"
            f" give numpy.asarray({it}, dtype='float32') or nbx.asarray({it}, 'bfloat16')"
        )
    tracer = getattr(getattr(sys.modules.get("jax"), "core", None), "Tracer", None)
    if tracer is not None and issubclass(kind, tracer):
        return SignatureError(
            f"{name} is traced by jax ({kind.__qualname__}) and has no memory: call the op outside of jit, vmap, grad,"
            " or through jax.pure_callback"
        )
    return SignatureError(
        f"{name} is a {kind.__module__}.{kind.__qualname__}, and no array: give a NumPy array, a torch tensor,"
        " a CuPy array, an nbx.Tensor, or an object with __dlpack__"
    )


def only_read(x: object, name: str) -> SignatureError | None:
    """Return the error for ``x``, given where ``name`` is written, if its library's arrays are only read here."""
    found = adapter(x)
    if found is None or not found.foreign:
        return None
    kind: type[Any] = type(x)
    return SignatureError(
        f"{name} is written, but arrays of {kind.__module__}.{kind.__qualname__} are only read here (through DLPack);"
        " give a NumPy array, a torch tensor, a CuPy array or an nbx.Tensor"
    )


def _find(kind: type[Any]) -> Adapter | None:
    if kind in (bool, int, float, complex, str, list, tuple, type(None)):
        return None
    found: Adapter | None = None
    if issubclass(kind, np.ma.MaskedArray):
        raise SignatureError("numpy.ma.MaskedArray carries a mask that no kernel reads; give x.filled(value)")
    if issubclass(kind, np.ndarray):
        _check_plain(cast("type[Any]", kind))
        found = NumpySubclassAdapter()
    elif issubclass(kind, np.generic):
        found = NumpyScalarAdapter()
    else:
        packages = {base.__module__.partition(".")[0] for base in kind.__mro__}
        for package, attribute, make in _LIBRARIES:
            base = getattr(sys.modules.get(package), attribute, None)
            if package.partition(".")[0] in packages and base is not None and issubclass(kind, base):
                found = make(kind, sys.modules[package])
                break
        else:
            if hasattr(kind, "__dlpack__") and hasattr(kind, "__dlpack_device__"):
                found = _dlpack()
    if found is not None:
        _BY_TYPE[kind] = found
    return found


def _check_plain(kind: type[Any]) -> None:
    """Refuse subclasses of arrays that mean more than their elements: units, other products."""
    protocols = ("__array_ufunc__", "__array_function__")
    own = [name for name in protocols if getattr(kind, name) is not getattr(np.ndarray, name)]
    if own or issubclass(kind, np.matrix):
        why = f"has a {own[0]} of its own" if own else "multiplies as matrices do"
        name = f"{kind.__module__}.{kind.__qualname__}"
        raise SignatureError(f"{name} {why}, which no kernel knows; give numpy.asarray(x)")


def _torch(kind: type, torch: Any) -> Adapter:
    from nbx_registry.interop.torch_tensors import TorchAdapter

    # Subclasses that handle every operation themselves (FakeTensor, DTensor) have no memory under their address.
    if getattr(kind, "__torch_dispatch__", None) is not torch.Tensor.__torch_dispatch__:
        raise SignatureError(
            f"{kind.__module__}.{kind.__qualname__} wraps other tensors; give the plain tensor that holds the memory"
        )
    known = _BY_TYPE.get(torch.Tensor)
    if known is None:
        known = _BY_TYPE[torch.Tensor] = TorchAdapter(torch)
    return known


def _cupy(_kind: type, cupy: Any) -> Adapter:
    from nbx_registry.interop.cupy_arrays import CupyAdapter

    return CupyAdapter(cupy)


def _nbx(_kind: type, tensor: Any) -> Adapter:
    from nbx_registry.interop.nbx_tensors import NbxAdapter

    return NbxAdapter(tensor)


def _dlpack() -> Adapter:
    from nbx_registry.interop.dlpack import DlpackAdapter

    return DlpackAdapter(importlib.import_module(_OURS))


_LIBRARIES: tuple[tuple[str, str, Callable[[type, Any], Adapter]], ...] = (
    ("torch", "Tensor", _torch),
    ("cupy", "ndarray", _cupy),
    (_OURS, "Tensor", _nbx),
)
