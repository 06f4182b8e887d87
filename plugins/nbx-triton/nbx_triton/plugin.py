"""The plugin ``nbx-triton``: portable kernels for NVIDIA devices, and the interpreter that checks them without one."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from nbx_registry.hookspecs import hookimpl
from nbx_registry.kernel import Backend, Kernel
from nbx_registry.runtimespec import Emulator
from nbx_triton.specs import KERNELS

NBX_HOOKS = 1


@hookimpl
def nbx_register_backends() -> Iterable[Backend]:
    """Triton, which compiles for devices that need not be present; and its language of layouts, which none emulates."""
    return [
        Backend(name=name, modules=("triton",), distribution="triton", install="pip install 'triton>=3.6'")
        for name in ("triton", "gluon")
    ]


@hookimpl
def nbx_register_kernels() -> Iterable[Kernel]:
    """Every kernel of this distribution."""
    return KERNELS


@hookimpl
def nbx_register_emulators() -> Iterable[Emulator]:
    """Triton's interpreter, which runs kernels on NumPy."""
    return [
        Emulator(
            name="triton-interpreter",
            backend="triton",
            runtimes=("cuda",),
            factory="nbx_triton.interpreter:runtime",
            environment={"TRITON_INTERPRET": "1"},
        )
    ]


@hookimpl
def nbx_register_evidence() -> Iterable[Path]:
    """What conformance found."""
    return [Path(__file__).with_name("evidence")]


@hookimpl
def nbx_register_settings() -> Iterable[Path]:
    """What `nbx tune` found."""
    return [Path(__file__).with_name("settings")]
