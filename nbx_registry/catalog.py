"""The catalog: everything that active plugins brought, frozen. Pure data; nothing here loads a toolkit."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from importlib.machinery import PathFinder
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from nbx_registry import environment
from nbx_registry.errors import SignatureError, UnknownName
from nbx_registry.kernel import Backend, Kernel
from nbx_registry.op import Op
from nbx_registry.plugins import Plugin
from nbx_registry.runtimespec import Emulator, RuntimeSpec

if TYPE_CHECKING:
    from pathlib import Path

    from nbx_registry.advisory import AdvisoryStore
    from nbx_registry.devicetable import DeviceTable
    from nbx_registry.evidence import EvidenceStore
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
    devices, evidence, settings, advisories
        Files of all plugins and the user's, each read when what it holds is first asked for.
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
        self.by_op: Mapping[str, Sequence[Kernel]] = MappingProxyType({op: tuple(of) for op, of in by_op.items()})
        self.runtimes: Mapping[str, RuntimeSpec] = _named(r for p in active for r in p.runtimes)
        self.backends: Mapping[str, Backend] = _named(b for p in active for b in p.backends)
        self.emulators: Mapping[str, Emulator] = _named(e for p in active for e in p.emulators)
        self._toolkits: dict[str, bool] = {}
        self._stores: dict[str, Any] = {}
        self._lock = threading.Lock()

    @property
    def devices(self) -> DeviceTable:
        """Device files of all plugins and the user's, each read when its device is asked for."""
        from nbx_registry.devicetable import DeviceTable  # what reads files is imported when a file is asked for

        return self._store(
            "devices", lambda user: DeviceTable(self._folders("devices"), self._folders("overlays"), user)
        )

    @property
    def evidence(self) -> EvidenceStore:
        """Bundles of all plugins and the user's."""
        from nbx_registry.evidence import EvidenceStore  # as above

        return self._store("evidence", lambda user: EvidenceStore(_listable(*self._folders("evidence"), user)))

    @property
    def settings(self) -> SettingsStore:
        """Tuned settings of all plugins and the user's."""
        from nbx_registry.settings import SettingsStore  # as above

        return self._store("settings", lambda user: SettingsStore(_listable(*self._folders("settings"), user)))

    @property
    def advisories(self) -> AdvisoryStore:
        """Advisories of all plugins and the user's."""
        from nbx_registry.advisory import AdvisoryStore  # as above

        brought = [(folder, plugin.name) for plugin in self.active for folder in plugin.advisories]
        return self._store("advisories", lambda user: AdvisoryStore([*brought, (user, None)]))

    def _folders(self, kind: str) -> list[Path]:
        return [folder for plugin in self.active for folder in getattr(plugin, kind)]

    def _store(self, kind: str, make: Callable[[Path], Value]) -> Value:
        found = self._stores.get(kind)
        if found is None:
            with self._lock:
                if kind not in self._stores:
                    self._stores[kind] = make(environment.config_dir() / kind)
                found = self._stores[kind]
        return found

    def op(self, name: str) -> Op:
        """Return the op of that name (``add``) or id (``add@1``). Raises `UnknownName` with the nearest."""
        if not isinstance(name, str):  # pyright: ignore[reportUnnecessaryIsInstance] - a caller may give anything
            raise SignatureError(f"an op is named by a string like 'add' or 'add@1', not by {name!r}")
        found = self.ops.get(name)
        if found is None:
            raise UnknownName.of("op", name, self.ops, self._waiting() or "nbx ops lists them")
        return found

    def kernel(self, identifier: str) -> Kernel:
        """Return the kernel of that id. Raises `UnknownName` with the nearest."""
        found = self.kernels.get(identifier)
        if found is None:
            raise UnknownName.of("kernel", identifier, self.kernels, self._waiting() or "nbx kernels lists them")
        return found

    def owner(self, kind: Literal["runtimes", "emulators"], name: str) -> str | None:
        """Return the plugin that brought a runtime or emulator."""
        return next((p.name for p in self.active if any(item.name == name for item in getattr(p, kind))), None)

    def _waiting(self) -> str:
        names = sorted(p.name for p in self.plugins.values() if p.state != "active")
        return f"plugins not active: {', '.join(names)} (see nbx doctor)" if names else ""

    def toolkit_present(self, backend: str) -> bool:
        """Whether a backend's modules can be found (nothing is imported)."""
        present = self._toolkits.get(backend)
        if present is None:
            modules = self.backends[backend].modules if backend in self.backends else ()
            present = self._toolkits[backend] = all(map(findable, modules))
        return present


def _listable(*folders: Path) -> Iterable[Path]:
    """Return the folders that can be asked for their files: where one may not be looked for, there are none to find."""
    return filter(os.path.isdir, folders)


def _named(items: Iterable[Value]) -> Mapping[str, Value]:
    found: dict[str, Value] = {}
    for item in items:
        named: Any = item
        found[named.name] = item
    return MappingProxyType(found)


def findable(module: str) -> bool:
    """Return whether a module can be found; neither it nor a package around it is imported for that."""
    import importlib.util  # nothing of it is needed to register

    top, *rest = module.split(".")
    try:
        spec = importlib.util.find_spec(top)
    except ValueError:
        # A module put into sys.modules by hand has no spec: it is here all the same.
        return module in sys.modules
    for part in rest:
        if spec is None or spec.submodule_search_locations is None:
            return False
        spec = PathFinder.find_spec(f"{spec.name}.{part}", spec.submodule_search_locations)
    return spec is not None
