"""Plugins: found through entry points or handed in, asked once, quarantined by name when something is wrong with one.

Nothing here depends on the order in which plugins are met: they are handled in order of their names, and when two
claim one id the owner is settled by the id itself (see `_quarantine_duplicates`).
"""

from __future__ import annotations

import importlib.metadata
import re
import traceback
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import pluggy

from nbx_registry import dtypes, hookspecs
from nbx_registry.dtypes import DType
from nbx_registry.errors import NbxError, nearest
from nbx_registry.kernel import Backend, Kernel
from nbx_registry.op import Op
from nbx_registry.runtime import Emulator, RuntimeSpec

State = Literal["active", "quarantined", "blocked"]

_CORE_DISTRIBUTION = "nbx-registry"
CORE = "nbx-host"
"""The built-in plugin: the only one that may register ops outside a namespace."""

_HOOKS: dict[str, tuple[str, type]] = {
    "nbx_register_dtypes": ("dtypes", DType),
    "nbx_register_ops": ("ops", Op),
    "nbx_register_backends": ("backends", Backend),
    "nbx_register_kernels": ("kernels", Kernel),
    "nbx_register_runtimes": ("runtimes", RuntimeSpec),
    "nbx_register_emulators": ("emulators", Emulator),
    "nbx_register_devices": ("devices", Path),
    "nbx_register_overlays": ("overlays", Path),
    "nbx_register_evidence": ("evidence", Path),
    "nbx_register_settings": ("settings", Path),
    "nbx_register_cases": ("cases", Path),
}
_OWN_BACKENDS = frozenset({"composite", "view"})
"""Backends of the core itself, which nobody registers: they need no toolkit."""

_KERNEL_ID = re.compile(r"[a-z0-9][a-z0-9_.-]*(/[A-Za-z0-9_.:+-]+)+\Z")


@dataclass(kw_only=True, eq=False)
class Plugin:
    """A plugin and what it brought.

    ``state`` is ``active``, ``quarantined`` (``reason`` and ``way_out`` say why and what to do) or ``blocked`` (never
    imported, because the caller asked so).
    """

    name: str
    distribution: str | None = None
    version: str | None = None
    state: State = "active"
    reason: str = ""
    way_out: str = ""
    traceback: str = ""
    module: str = ""
    dtypes: tuple[DType, ...] = ()
    ops: tuple[Op, ...] = ()
    backends: tuple[Backend, ...] = ()
    kernels: tuple[Kernel, ...] = ()
    runtimes: tuple[RuntimeSpec, ...] = ()
    emulators: tuple[Emulator, ...] = ()
    devices: tuple[Path, ...] = ()
    overlays: tuple[Path, ...] = ()
    evidence: tuple[Path, ...] = ()
    settings: tuple[Path, ...] = ()
    cases: tuple[Path, ...] = ()

    def quarantine(self, reason: str, way_out: str, trace: str = "") -> None:
        """Take the plugin out, keeping the first reason."""
        if self.state == "active":
            self.state = "quarantined"
            self.reason = reason
            self.way_out = way_out
            self.traceback = trace


@dataclass(frozen=True)
class _Source:
    name: str
    load: Callable[[], Any]
    distribution: str | None = None
    version: str | None = None
    module: str = field(default="")


def discover(block: Iterable[str] = (), extra: Sequence[Any] = ()) -> tuple[Plugin, ...]:
    """Find, import and ask every plugin; return them by name, the faulty ones quarantined.

    Parameters
    ----------
    block
        Names of plugins that are not to be imported.
    extra
        Plugin objects or modules of this process, beside those of entry points. Each is named by its ``name``
        attribute, else by its ``__name__`` or its type's.
    """
    blocked = set(block)
    found: list[Plugin] = []
    by_name: dict[str, list[_Source]] = {}
    for source in (*_entry_points(), *map(_in_process, extra)):
        by_name.setdefault(source.name, []).append(source)
    for name in sorted(by_name):
        sources = by_name[name]
        first = sources[0]
        plugin = Plugin(name=name, distribution=first.distribution, version=first.version, module=first.module)
        found.append(plugin)
        if name in blocked:
            plugin.state = "blocked"
            plugin.reason = "blocked by the caller; it was not imported"
            plugin.way_out = f"leave {name!r} out of block= (or of NBX_BLOCK)"
        elif name == CORE and sum(s.distribution == _CORE_DISTRIBUTION for s in sources) == 1:
            _ask(plugin, next(s for s in sources if s.distribution == _CORE_DISTRIBUTION))
            for other in (s for s in sources if s.distribution != _CORE_DISTRIBUTION):
                claims = Plugin(name=f"{name} of {other.distribution or other.module}", module=other.module)
                claims.quarantine(f"the name {name!r} is the core's own", "give the plugin a name of its own")
                found.append(claims)
        elif len(sources) > 1:
            owners = " and ".join(sorted(s.distribution or s.module or "an object of this process" for s in sources))
            plugin.quarantine(f"two plugins are named {name!r}: {owners}", "uninstall or rename one of them")
        else:
            _ask(plugin, first)
    _quarantine_duplicates(found)
    _quarantine_orphans(found)
    return tuple(found)


def _entry_points() -> Iterable[_Source]:
    seen: set[tuple[str, str, str | None]] = set()
    for point in importlib.metadata.entry_points(group=hookspecs.GROUP):
        distribution = point.dist.name if point.dist is not None else None
        # An editable install beside its own build metadata lists one entry point twice.
        if (point.name, point.value, distribution) in seen:
            continue
        seen.add((point.name, point.value, distribution))
        version = point.dist.version if point.dist is not None else None
        yield _Source(point.name, point.load, distribution, version, point.value)


def _in_process(plugin: Any) -> _Source:
    name = getattr(plugin, "name", None) or getattr(plugin, "__name__", None) or type(plugin).__name__
    return _Source(str(name), lambda: plugin, module=str(getattr(plugin, "__name__", type(plugin).__module__)))


def _ask(plugin: Plugin, source: _Source) -> None:
    """Import one plugin and collect what its hooks return. The boundary at which a plugin's errors become reports."""
    try:
        implementation = source.load()
    except (Exception, SystemExit) as error:  # noqa: BLE001 - a plugin may raise anything; it becomes the report
        plugin.quarantine(
            f"importing {source.module or source.name} raised {type(error).__name__}: {error}",
            f"mend or uninstall {source.distribution or source.name}, or block it: block=[{plugin.name!r}]",
            traceback.format_exc(),
        )
        return
    version = getattr(implementation, "NBX_HOOKS", None)
    if version != hookspecs.HOOK_VERSION:
        stated = "states no NBX_HOOKS" if version is None else f"was written for hook version {version!r}"
        plugin.quarantine(
            f"{source.module or source.name} {stated}; this core has version {hookspecs.HOOK_VERSION}",
            f"install a version of {source.distribution or source.name} for hook version {hookspecs.HOOK_VERSION}",
        )
        return
    manager = pluggy.PluginManager(hookspecs.GROUP)
    manager.add_hookspecs(hookspecs)
    try:
        manager.register(implementation, plugin.name)
        manager.check_pending()
    except pluggy.PluginValidationError as error:
        known = nearest(_hook_in(str(error)), _HOOKS)
        plugin.quarantine(f"a hook of {source.module} does not fit: {error}{known}", "the hooks are in hookspecs.py")
        return
    for caller in manager.get_hookcallers(implementation) or ():
        attribute, kind = _HOOKS[caller.name]
        try:
            items = tuple(item for part in caller() for item in (part or ()))
        except (Exception, SystemExit) as error:  # noqa: BLE001 - as above
            plugin.quarantine(
                f"{caller.name} raised {type(error).__name__}: {error}",
                f"mend {source.distribution or source.name}, or block it: block=[{plugin.name!r}]",
                traceback.format_exc(),
            )
            return
        for item in items:
            if not isinstance(item, kind):
                plugin.quarantine(
                    f"{caller.name} returned {item!r}, a {type(item).__name__}; it must return {kind.__name__} objects",
                    f"mend {source.distribution or source.name}",
                )
                return
        setattr(plugin, attribute, items)
    _check_own(plugin)


def _hook_in(text: str) -> str:
    match = re.search(r"nbx_\w+", text)
    return match[0] if match else ""


def _check_own(plugin: Plugin) -> None:
    """Quarantine what is wrong with a plugin whatever else is installed."""
    for op in plugin.ops:
        if not op.namespace and plugin.name != CORE:
            plugin.quarantine(
                f"op {op.name!r} has no namespace; only {CORE} registers ops without one",
                f"name it '<namespace>::{op.name}'",
            )
    for kernel in plugin.kernels:
        if not _KERNEL_ID.match(kernel.id):
            plugin.quarantine(
                f"kernel id {kernel.id!r} is not of the form 'distribution/op/variant'", "rename the kernel"
            )
        if kernel.backend == "composite" and not kernel.parts:
            plugin.quarantine(f"composite kernel {kernel.id!r} names no parts", "list the ops it is made of in parts=")
    for backend in plugin.backends:
        if backend.name in _OWN_BACKENDS:
            plugin.quarantine(f"backend {backend.name!r} is the core's own", "give the backend another name")
    # The table of dtypes is the process's: what is quarantined leaves it alone.
    for dtype in plugin.dtypes if plugin.state == "active" else ():
        try:
            dtypes.register(dtype)
        except NbxError as error:
            plugin.quarantine(str(error), "give the dtype a name and key of its own")


def _quarantine_duplicates(found: Sequence[Plugin]) -> None:
    """Settle ids claimed twice, whatever the order.

    An id belongs to the plugin whose name is its first part (kernels: ``nbx-host/add/numpy``), or to the core
    (ops without a namespace, its runtimes and backends). Any other claimant is quarantined; where nobody
    owns the id, all claimants are.
    """
    claims: Mapping[str, Callable[[Plugin], Iterable[str]]] = {
        "kernel": lambda p: (k.id for k in p.kernels),
        "op": lambda p: (o.id for o in p.ops),
        "runtime": lambda p: (r.name for r in p.runtimes),
        "backend": lambda p: (b.name for b in p.backends),
        "emulator": lambda p: (e.name for e in p.emulators),
    }
    for kind, ids in claims.items():
        owners: dict[str, list[Plugin]] = {}
        for plugin in found:
            if plugin.state == "active":
                for identifier in ids(plugin):
                    owners.setdefault(identifier, []).append(plugin)
        for identifier, plugins in sorted(owners.items()):
            if len(plugins) == 1:
                continue
            names = sorted({plugin.name for plugin in plugins})
            owner = identifier.split("/")[0] if kind == "kernel" else CORE
            for plugin in plugins:
                if plugin.name != owner or plugins.count(plugin) > 1:
                    others = " and ".join(names) if len(names) > 1 else f"{names[0]} twice"
                    plugin.quarantine(
                        f"{kind} {identifier!r} is registered by {others}",
                        f"rename the {kind}, or uninstall or block one of the plugins",
                    )


def _quarantine_orphans(found: Sequence[Plugin]) -> None:
    """Quarantine plugins whose kernels name an op that no active plugin brings, until nothing changes."""
    while True:
        known = {op.id for plugin in found if plugin.state == "active" for op in plugin.ops}
        backends = {b.name for plugin in found if plugin.state == "active" for b in plugin.backends}
        backends |= _OWN_BACKENDS
        changed = False
        for plugin in found:
            if plugin.state != "active":
                continue
            for kernel in plugin.kernels:
                if (missing := next((op for op in (kernel.op, *kernel.parts) if op not in known), None)) is not None:
                    plugin.quarantine(
                        f"kernel {kernel.id!r} names op {missing!r}, which nobody registers{nearest(missing, known)}",
                        "install or unblock the plugin that brings the op, or correct the name (with its version)",
                    )
                elif kernel.backend not in backends:
                    plugin.quarantine(
                        f"kernel {kernel.id!r} names backend {kernel.backend!r}, which nobody registers"
                        f"{nearest(kernel.backend, backends)}",
                        "register it with nbx_register_backends, or correct the name",
                    )
                else:
                    continue
                changed = True
                break
        if not changed:
            return
