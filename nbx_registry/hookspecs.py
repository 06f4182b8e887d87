"""Every hook a plugin may implement: the whole contract between the core and plugins, in one file.

A plugin is a module (or an object) named by an entry point of group ``nbx_registry``. It states the hook version it
was written for as ``NBX_HOOKS = 1`` and implements any of these with `hookimpl`. Hooks are called once, when a
catalog is built, never per call; none may import a toolkit.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

import pluggy

if TYPE_CHECKING:
    from nbx_registry.dtypes import DType
    from nbx_registry.kernel import Backend, Kernel
    from nbx_registry.op import Op
    from nbx_registry.runtimespec import Emulator, RuntimeSpec

GROUP = "nbx_registry"
HOOK_VERSION = 1

hookspec = pluggy.HookspecMarker(GROUP)
hookimpl = pluggy.HookimplMarker(GROUP)


@hookspec
def nbx_register_dtypes() -> Iterable[DType]:
    """Dtypes beside the table's. A name, key or DLPack type already there with other facts is refused.

    The table is the process's: what one registry's plugin adds every registry knows, for as long as the process lives.
    """
    return ()


@hookspec
def nbx_register_ops() -> Iterable[Op]:
    """Ops made by the `op` decorator; a plugin's are in a namespace of its own (``sdm::wy_solve``)."""
    return ()


@hookspec
def nbx_register_backends() -> Iterable[Backend]:
    """Toolkits that this plugin's kernels are made with."""
    return ()


@hookspec
def nbx_register_kernels() -> Iterable[Kernel]:
    """Kernels, as data."""
    return ()


@hookspec
def nbx_register_runtimes() -> Iterable[RuntimeSpec]:
    """Runtimes, by reference."""
    return ()


@hookspec
def nbx_register_emulators() -> Iterable[Emulator]:
    """Runtimes that stand in for others when conformance checks numbers."""
    return ()


@hookspec
def nbx_register_devices() -> Iterable[Path]:
    """Folders of device files: ``<folder>/<vendor>/<product>.yml`` is the device ``vendor/product``."""
    return ()


@hookspec
def nbx_register_overlays() -> Iterable[Path]:
    """Folders of overlays: files like device files that add facts to a device of another distribution."""
    return ()


@hookspec
def nbx_register_evidence() -> Iterable[Path]:
    """Folders of evidence bundles (``*.json``)."""
    return ()


@hookspec
def nbx_register_settings() -> Iterable[Path]:
    """Folders of tuned settings (``*.json``)."""
    return ()


@hookspec
def nbx_register_cases() -> Iterable[Path]:
    """Folders of conformance cases for the ops this plugin brings (``*.yml``)."""
    return ()


@hookspec
def nbx_register_advisories() -> Iterable[Path]:
    """Folders of advisories (``*.yml``), which revoke kernels, also those of others, for a window; see `advisory`."""
    return ()


@hookspec
def nbx_register_waivers() -> Iterable[Path]:
    """Folders of waivers (``*.yml``): failures of conformance that are known, each with a reason and an expiry.

    Read by the suite alone; a kernel runs no more and no less for them.
    """
    return ()
