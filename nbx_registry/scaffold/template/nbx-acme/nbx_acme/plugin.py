"""What nbx-acme brings. Imports neither its kernels nor its runtime: these are named, and loaded on first use."""

from collections.abc import Iterable
from pathlib import Path

from nbx_acme.specs import BACKEND, KERNELS
from nbx_registry import Backend, Kernel, RuntimeSpec, hookimpl

NBX_HOOKS = 1
"""The version of the hooks that this was written for."""

_HERE = Path(__file__).parent


@hookimpl
def nbx_register_runtimes() -> Iterable[RuntimeSpec]:
    """Register how the Acme One is driven."""
    return [RuntimeSpec(name="acme", factory="nbx_acme.runtime:create", install="pip install nbx-acme")]


@hookimpl
def nbx_register_devices() -> Iterable[Path]:
    """Register what is known of the product."""
    return [_HERE / "devices"]


@hookimpl
def nbx_register_backends() -> Iterable[Backend]:
    """Register the toolkit that the kernels are made with."""
    return [BACKEND]


@hookimpl
def nbx_register_kernels() -> Iterable[Kernel]:
    """Register the kernels."""
    return KERNELS


@hookimpl
def nbx_register_evidence() -> Iterable[Path]:
    """Register what has been checked."""
    return [_HERE / "evidence"]
