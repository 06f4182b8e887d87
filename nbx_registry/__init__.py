"""A multi-backend kernel registry: which kernel runs, at what cost, and if none, exactly why not.

Names are loaded on first use, so that importing the package costs next to nothing beside NumPy.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from nbx_registry import ops
    from nbx_registry.bound import Bound
    from nbx_registry.decision import Candidate, Decision, Evidence, Fault
    from nbx_registry.dtypes import DType
    from nbx_registry.errors import (
        CaptureError,
        MissingFact,
        NbxError,
        OutOfMemory,
        PluginFault,
        Refused,
        SignatureError,
        UnknownName,
    )
    from nbx_registry.graph import Graph
    from nbx_registry.hookspecs import hookimpl
    from nbx_registry.kernel import Backend, Kernel, Workspace
    from nbx_registry.launch import BindContext, Launch, Scalar, ScalarOf, View
    from nbx_registry.memory.allocation import allocating
    from nbx_registry.memory.slab_allocator import SlabAllocator
    from nbx_registry.plan import Plan
    from nbx_registry.registry import Registry, default, load, set_default
    from nbx_registry.runtime import LiveDevice, Runtime
    from nbx_registry.runtimespec import RuntimeSpec
    from nbx_registry.space import Space
    from nbx_registry.spec import TensorSpec
    from nbx_registry.streams import stream
    from nbx_registry.tensor import Tensor, asarray, empty

__version__ = "0.1.0"

_HOMES = {
    "bound": ("Bound",),
    "decision": ("Candidate", "Decision", "Evidence", "Fault"),
    "dtypes": ("DType",),
    "errors": (
        "CaptureError",
        "MissingFact",
        "NbxError",
        "OutOfMemory",
        "PluginFault",
        "Refused",
        "SignatureError",
        "UnknownName",
    ),
    "graph": ("Graph",),
    "hookspecs": ("hookimpl",),
    "kernel": ("Backend", "Kernel", "Workspace"),
    "launch": ("BindContext", "Launch", "Scalar", "ScalarOf", "View"),
    "memory.allocation": ("allocating",),
    "memory.slab_allocator": ("SlabAllocator",),
    "plan": ("Plan",),
    "registry": ("Registry", "default", "load", "set_default"),
    "runtime": ("LiveDevice", "Runtime"),
    "runtimespec": ("RuntimeSpec",),
    "space": ("Space",),
    "spec": ("TensorSpec",),
    "streams": ("stream",),
    "tensor": ("Tensor", "asarray", "empty"),
}
_HOME = {name: module for module, names in _HOMES.items() for name in names}

__all__ = [
    "Backend",
    "BindContext",
    "Bound",
    "Candidate",
    "CaptureError",
    "DType",
    "Decision",
    "Evidence",
    "Fault",
    "Graph",
    "Kernel",
    "Launch",
    "LiveDevice",
    "MissingFact",
    "NbxError",
    "OutOfMemory",
    "Plan",
    "PluginFault",
    "Refused",
    "Registry",
    "Runtime",
    "RuntimeSpec",
    "Scalar",
    "ScalarOf",
    "SignatureError",
    "SlabAllocator",
    "Space",
    "Tensor",
    "TensorSpec",
    "UnknownName",
    "View",
    "Workspace",
    "allocating",
    "asarray",
    "default",
    "empty",
    "hookimpl",
    "load",
    "ops",
    "set_default",
    "stream",
]


def __getattr__(name: str) -> Any:
    if name == "ops":
        return importlib.import_module("nbx_registry.ops")
    home = _HOME.get(name)
    if home is None:
        raise AttributeError(f"module 'nbx_registry' has no attribute {name!r}")
    value = getattr(importlib.import_module(f"nbx_registry.{home}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
