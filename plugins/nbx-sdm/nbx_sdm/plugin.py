"""The plugin ``nbx-sdm``: the ops of sparse delta memory, in namespace ``sdm``, and their kernels."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from nbx_registry.hookspecs import hookimpl
from nbx_registry.kernel import Kernel
from nbx_registry.op import Op
from nbx_sdm import contracts
from nbx_sdm.specs import KERNELS

NBX_HOOKS = 1


@hookimpl
def nbx_register_ops() -> Iterable[Op]:
    """The ops of namespace ``sdm``."""
    return contracts.ALL


@hookimpl
def nbx_register_kernels() -> Iterable[Kernel]:
    """Every kernel of this distribution; those of backend ``triton`` use the compiler of nbx-triton."""
    return KERNELS


@hookimpl
def nbx_register_cases() -> Iterable[Path]:
    """Conformance cases of these ops."""
    return [Path(__file__).with_name("cases")]


@hookimpl
def nbx_register_evidence() -> Iterable[Path]:
    """What conformance found."""
    return [Path(__file__).with_name("evidence")]
