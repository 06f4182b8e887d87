"""Small plugins for the core's tests, made in the process."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np

from nbx_registry.hookspecs import hookimpl
from nbx_registry.kernel import Backend, Kernel
from nbx_registry.launch import BindContext, Launch


def plugin(name: str, **items: Sequence[Any]) -> SimpleNamespace:
    """Return a plugin object that registers ``items`` (``kernels=[...]``, ``ops=[...]``)."""
    hooks = {
        f"nbx_register_{kind}": hookimpl(lambda values=tuple(values): values, specname=f"nbx_register_{kind}")
        for kind, values in items.items()
    }
    return SimpleNamespace(name=name, NBX_HOOKS=1, **hooks)


def host_kernel(identifier: str, function: Callable[..., Any], **changes: Any) -> Kernel:
    """Return a kernel on the host that calls ``function(*inputs, *outputs)``."""

    def bind(context: BindContext) -> Launch:
        return Launch(function=function, args=context.signature.names)

    op = identifier.split("/")[1]
    return Kernel(
        **{"id": identifier, "op": f"{op}@1", "backend": "made", "runtimes": ("host",), "bind": bind, **changes}
    )


def made(name: str, *kernels: Kernel) -> SimpleNamespace:
    """Return a plugin with its backend and these kernels."""
    return plugin(name, backends=[Backend(name="made")], kernels=kernels)


def add(x1: Any, x2: Any, out: Any) -> None:
    """Write the sum."""
    np.add(x1, x2, out=out)
