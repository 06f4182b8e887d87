"""The ops as functions: ``nbx.ops.add(x, y)``, ``nbx.ops.sdm.wy_solve(A, beta, QK)``, on the process's registry.

Each function has the contract's own signature and docstring; it is made from the contract on first use.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from nbx_registry.errors import UnknownName
from nbx_registry.schema import REQUIRED

if TYPE_CHECKING:
    from nbx_registry.op import Op
    from nbx_registry.registry import Registry

_POLICY = ("out", "device", "kernel", "require")


def _process_registry() -> Registry:
    # Imported late: `import nbx_registry` shall not load the registry before it is used.
    from nbx_registry.registry import default

    return default()


class Namespace:
    """Ops of a registry as attributes; a plugin's namespace is an attribute of its own."""

    def __init__(self, registry: Callable[[], Registry], prefix: str = "") -> None:
        self._registry = registry
        self._prefix = prefix
        self._functions: dict[str, tuple[Registry, Any]] = {}

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        registry = self._registry()
        found = self._functions.get(name)
        # The process's registry may have been replaced since.
        if found is None or found[0] is not registry:
            found = self._functions[name] = (registry, self._make(registry, name))
        return found[1]

    def _make(self, registry: Registry, name: str) -> Any:
        full = self._prefix + name
        if full in registry.catalog.ops:
            return function(registry, registry.catalog.ops[full])
        if not self._prefix and any(op.startswith(f"{name}::") for op in registry.catalog.ops):
            return Namespace(self._registry, f"{name}::")
        try:
            registry.catalog.op(full)
        except UnknownName as error:
            raise AttributeError(str(error)) from error
        raise AttributeError(full)

    def __dir__(self) -> Iterable[str]:
        registry = self._registry()
        names = [name[len(self._prefix) :] for name in registry.ops if name.startswith(self._prefix)]
        return sorted({name.split("::")[0] for name in names})

    def __repr__(self) -> str:
        return f"<ops{' of ' + self._prefix[:-2] if self._prefix else ''}: {', '.join(self.__dir__())}>"


def function(registry: Registry, op: Op) -> Callable[..., Any]:
    """Return a Python function that calls the op, with the contract's signature and docstring."""
    call, name = registry.call, op.id

    def run(*args: Any, **keywords: Any) -> Any:
        return call(name, *args, **keywords)

    run.__name__ = run.__qualname__ = op.name.split("::")[-1]
    run.__module__ = "nbx_registry.ops"
    run.__doc__ = op.doc
    run.__signature__ = _signature(op)  # type: ignore[attr-defined]
    return run


def _signature(op: Op) -> inspect.Signature:
    kind = inspect.Parameter
    parameters = [
        kind(p.name, kind.POSITIONAL_OR_KEYWORD, default=None if p.optional else kind.empty) for p in op.tensors
    ]
    parameters += [
        kind(a.name, kind.KEYWORD_ONLY, default=kind.empty if a.default is REQUIRED else a.default)
        for a in op.attributes
    ]
    parameters += [kind(name, kind.KEYWORD_ONLY, default=None) for name in _POLICY]
    return inspect.Signature(parameters)


namespace = Namespace(_process_registry)


def __getattr__(name: str) -> Any:
    return getattr(namespace, name)


def __dir__() -> list[str]:
    return list(namespace.__dir__())
