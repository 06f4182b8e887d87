"""The catalog: everything that active plugins brought, frozen. Pure data; nothing here loads a toolkit."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from types import MappingProxyType
from typing import TypeVar

from nbx_registry import environment
from nbx_registry.devicetable import DeviceTable
from nbx_registry.errors import UnknownName
from nbx_registry.evidence import EvidenceStore
from nbx_registry.kernel import Backend, Kernel
from nbx_registry.op import Op
from nbx_registry.plugins import Plugin
from nbx_registry.runtime import Emulator, RuntimeSpec
from nbx_registry.settings import SettingsStore

Value = TypeVar("Value")


class Catalog:
    """Ops, kernels, devices, runtimes, evidence and settings by name, from a set of plugins.

    Attributes
    ----------
    ops
        By name and by versioned id; a bare name is the highest version.
    kernels
        By id.
    by_op
        Kernels of each op id, ordered by kernel id.
    owners
        Plugin name by kernel id and by op id.
    """

    def __init__(self, plugins: Iterable[Plugin], blocked: Iterable[str] = ()) -> None:
        self.plugins: Mapping[str, Plugin] = MappingProxyType({p.name: p for p in plugins})
        self.blocked = frozenset(blocked)
        active = [p for p in self.plugins.values() if p.state == "active"]
        self.active = tuple(active)
        ops: dict[str, Op] = {}
        owners: dict[str, str] = {}
        for plugin in active:
            for op in plugin.ops:
                ops[op.id] = op
                owners[op.id] = plugin.name
        for op in sorted(ops.values(), key=lambda op: op.version):
            ops[op.name] = op
        self.ops: Mapping[str, Op] = MappingProxyType(ops)
        kernels: dict[str, Kernel] = {}
        for plugin in active:
            for kernel in plugin.kernels:
                kernels[kernel.id] = kernel
                owners[kernel.id] = plugin.name
        self.kernels: Mapping[str, Kernel] = MappingProxyType(dict(sorted(kernels.items())))
        self.owners: Mapping[str, str] = MappingProxyType(owners)
        by_op: dict[str, list[Kernel]] = {}
        for identifier in sorted(kernels):
            by_op.setdefault(kernels[identifier].op, []).append(kernels[identifier])
        self.by_op: Mapping[str, Sequence[Kernel]] = MappingProxyType(by_op)
        self.runtimes: Mapping[str, RuntimeSpec] = _named(r for p in active for r in p.runtimes)
        self.backends: Mapping[str, Backend] = _named(b for p in active for b in p.backends)
        self.emulators: Mapping[str, Emulator] = _named(e for p in active for e in p.emulators)
        self._toolkits: dict[str, bool] = {}

    @cached_property
    def devices(self) -> DeviceTable:
        """Device files of all plugins and the user's; a file is read when its device is asked for."""
        return DeviceTable(
            [folder for p in self.active for folder in p.devices],
            [folder for p in self.active for folder in p.overlays],
            environment.config_dir() / "devices",
        )

    @cached_property
    def evidence(self) -> EvidenceStore:
        """Bundles of all plugins and the user's."""
        return EvidenceStore([f for p in self.active for f in p.evidence] + [environment.config_dir() / "evidence"])

    @cached_property
    def settings(self) -> SettingsStore:
        """Tuned settings of all plugins and the user's."""
        return SettingsStore([f for p in self.active for f in p.settings] + [environment.config_dir() / "settings"])

    def op(self, name: str) -> Op:
        """Return the op of that name (``add``) or id (``add@1``). Raises `UnknownName` with the nearest."""
        found = self.ops.get(name)
        if found is None:
            waiting = sorted(p.name for p in self.plugins.values() if p.state != "active")
            hint = f"plugins not active: {', '.join(waiting)} (see nbx doctor)" if waiting else "nbx ops lists them"
            raise UnknownName.of("op", name, self.ops, hint)
        return found

    def kernel(self, identifier: str) -> Kernel:
        """Return the kernel of that id. Raises `UnknownName` with the nearest."""
        found = self.kernels.get(identifier)
        if found is None:
            raise UnknownName.of("kernel", identifier, self.kernels, "nbx kernels lists them")
        return found

    def toolkit_present(self, backend: str) -> bool:
        """Whether a backend's modules can be found (nothing is imported)."""
        present = self._toolkits.get(backend)
        if present is None:
            modules = self.backends[backend].modules if backend in self.backends else ()
            present = self._toolkits[backend] = all(importlib.util.find_spec(m) is not None for m in modules)
        return present


def _named(items: Iterable[Value]) -> Mapping[str, Value]:
    return MappingProxyType({item.name: item for item in items})  # type: ignore[attr-defined]
