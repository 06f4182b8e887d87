"""What nbx-acme brings. Imports neither its kernels nor its runtime."""

from collections.abc import Iterable
from pathlib import Path

from nbx_acme.contracts import scale_shift
from nbx_acme.dtype import ACME_FIXED8
from nbx_acme.specs import BACKEND, KERNELS
from nbx_acme.specs.more import MORE
from nbx_registry.dtypes import DType
from nbx_registry.hookspecs import hookimpl
from nbx_registry.kernel import Backend, Kernel
from nbx_registry.op import Op
from nbx_registry.runtimespec import RuntimeSpec

NBX_HOOKS = 1

name = "nbx-acme"

HERE = Path(__file__).parent


@hookimpl
def nbx_register_dtypes() -> Iterable[DType]:
    """Register the fixed-point dtype."""
    return [ACME_FIXED8]


@hookimpl
def nbx_register_ops() -> Iterable[Op]:
    """Register the op of this hardware."""
    return [scale_shift]


@hookimpl
def nbx_register_backends() -> Iterable[Backend]:
    """Register the toolkit."""
    return [BACKEND]


@hookimpl
def nbx_register_kernels() -> Iterable[Kernel]:
    """Register the kernels."""
    return [*KERNELS, *MORE]


@hookimpl
def nbx_register_runtimes() -> Iterable[RuntimeSpec]:
    """Register the runtime."""
    return [RuntimeSpec(name="acme", factory="nbx_acme.runtime:create", install="pip install nbx-acme")]


@hookimpl
def nbx_register_devices() -> Iterable[Path]:
    """Register the product, with the schema of its own facts."""
    return [HERE / "devices"]


@hookimpl
def nbx_register_evidence() -> Iterable[Path]:
    """Register what has been checked."""
    return [HERE / "evidence"]


@hookimpl
def nbx_register_cases() -> Iterable[Path]:
    """Register what the op is tried on."""
    return [HERE / "cases"]
