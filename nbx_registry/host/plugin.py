"""The plugin ``nbx-host``: the host's runtime, NumPy kernels for the core's ops, and those ops themselves."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from nbx_registry import contracts
from nbx_registry.hookspecs import hookimpl
from nbx_registry.host.specs import KERNELS, NUMPY
from nbx_registry.kernel import Backend, Kernel
from nbx_registry.op import Op
from nbx_registry.runtimespec import RuntimeSpec

NBX_HOOKS = 1


@hookimpl
def nbx_register_ops() -> Iterable[Op]:
    """The core's ops."""
    return contracts.ALL


@hookimpl
def nbx_register_backends() -> Iterable[Backend]:
    """NumPy."""
    return (NUMPY,)


@hookimpl
def nbx_register_runtimes() -> Iterable[RuntimeSpec]:
    """The host, which needs nothing installed."""
    return (RuntimeSpec(name="host", factory="nbx_registry.host.runtime:host_runtime"),)


@hookimpl
def nbx_register_kernels() -> Iterable[Kernel]:
    """A NumPy kernel for every op, and the view."""
    return KERNELS


@hookimpl
def nbx_register_evidence() -> Iterable[Path]:
    """Bundles of the host's kernels."""
    return (Path(__file__).with_name("evidence"),)
