"""Plugins: found through entry points or handed in, asked once, quarantined by name when something is wrong with one.

Nothing here depends on the order in which plugins are met: they are handled in order of their names, and when two
claim one id the owner is settled by the id itself (see `_quarantine_duplicates`).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import astuple, dataclass
from pathlib import Path
from typing import Any, Literal, cast

import pluggy

from nbx_registry import dtypes, entrypoints, hookspecs
from nbx_registry.distributions import canonical
from nbx_registry.dtypes import DType
from nbx_registry.entrypoints import Source
from nbx_registry.errors import NbxError, nearest
from nbx_registry.items import class_name, of_kind, shown, told, wrong
from nbx_registry.kernel import Backend, Kernel
from nbx_registry.op import Op
from nbx_registry.runtimespec import Emulator, RuntimeSpec

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
    "nbx_register_advisories": ("advisories", Path),
    "nbx_register_waivers": ("waivers", Path),
}
OWN_BACKENDS = frozenset({"composite", "view"})
"""Backends of the core itself, which nobody registers: they need no toolkit."""

_NAME = re.compile(r"\w[\w.-]*\Z", re.ASCII)


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
    copies: tuple[str, ...] = ()
    """Other versions of its distribution further down ``sys.path``, which are not used."""
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
    advisories: tuple[Path, ...] = ()
    waivers: tuple[Path, ...] = ()

    def quarantine(self, reason: str, way_out: str, trace: str = "") -> None:
        """Take the plugin out, keeping the first reason."""
        if self.state == "active":
            self.state = "quarantined"
            self.reason = reason
            self.way_out = way_out
            self.traceback = trace


class _Manager(pluggy.PluginManager):
    """Hooks and who implements them; what can be neither is not looked at, which takes longer than the rest."""

    def parse_hookspec_opts(self, module_or_class: Any, name: str) -> pluggy.HookspecOpts | None:
        return super().parse_hookspec_opts(module_or_class, name) if name in _HOOKS else None

    def parse_hookimpl_opts(self, plugin: object, name: str) -> pluggy.HookimplOpts | None:
        return None if name.startswith("__") else super().parse_hookimpl_opts(plugin, name)


class _Managers:
    """One manager serves all plugins, each alone in it: reading the hooks anew for each takes milliseconds.

    It is given back empty by whom it served, and not by a plugin about which anything raised.
    """

    def __init__(self) -> None:
        self._free: _Manager | None = None

    def take(self) -> _Manager:
        manager, self._free = self._free, None
        if manager is None:
            manager = _Manager(hookspecs.GROUP)
            manager.add_hookspecs(hookspecs)
        return manager

    def give(self, manager: _Manager, name: str) -> None:
        manager.unregister(name=name)
        if not manager.has_plugin(name) and not any(h.get_hookimpls() for h in vars(manager.hook).values()):
            self._free = manager


class _Wrong(Exception):
    """What is wrong with a plugin, and the way out."""

    def __init__(self, reason: str, way_out: str) -> None:
        super().__init__(reason)
        self.reason = reason
        self.way_out = way_out


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
    blocked = {canonical(name) for name in block}
    managers = _Managers()
    found: list[Plugin] = []
    by_name: dict[str, list[Source]] = {}
    for source in (*entrypoints.installed(), *map(_in_process, extra)):
        by_name.setdefault(canonical(source.name), []).append(source)
    for name in sorted(by_name):
        sources = sorted(by_name[name], key=lambda source: source.name)
        if name == CORE:
            own = [source for source in sources if source.distribution == _CORE_DISTRIBUTION]
            for other in sources if len(own) != 1 else [source for source in sources if source is not own[0]]:
                claims = Plugin(name=f"{name} of {other.distribution or other.module}", module=other.module)
                claims.quarantine(f"the name {name!r} is the core's own", "give the plugin a name of its own")
                found.append(claims)
            if len(own) != 1:
                continue
            sources = own
        first = sources[0]
        plugin = Plugin(
            name=first.name,
            distribution=first.distribution,
            version=first.version,
            module=first.module,
            copies=tuple(first.copies),
        )
        found.append(plugin)
        if name in blocked:
            plugin.state = "blocked"
            plugin.reason = "blocked by the caller; it was not imported"
            plugin.way_out = f"leave {first.name!r} out of block= (or of NBX_BLOCK)"
        elif len(sources) > 1:
            names = " and ".join(map(repr, sorted({source.name for source in sources})))
            owners = " and ".join(sorted(s.distribution or s.module or "an object of this process" for s in sources))
            plugin.quarantine(f"two plugins are named {names}: {owners}", "uninstall or rename one of them")
        else:
            _ask(plugin, first, managers)
    _quarantine_duplicates(found)
    _quarantine_orphans(found)
    _add_dtypes(found)
    return tuple(found)


def _in_process(plugin: Any) -> Source:
    kind = class_name(plugin)
    source = Source(name=kind, load=lambda: plugin, module=f"an object of the class {kind}")
    try:
        source.name = str(getattr(plugin, "name", None) or getattr(plugin, "__name__", None) or kind)
        source.module = str(getattr(plugin, "__name__", source.module))
    except Exception as error:  # noqa: BLE001 - a plugin may raise anything; it becomes the report
        source.wrong = f"the name of this {kind} cannot be asked: {told(error)}"
    return source


def _ask(plugin: Plugin, source: Source, managers: _Managers) -> None:
    """Import one plugin and collect what its hooks return. The boundary at which a plugin's errors become reports."""
    doing = [f"importing {source.module or source.name}"]
    who = source.distribution or source.name
    try:
        _collect(plugin, source, doing, managers)
    except KeyboardInterrupt:
        raise
    except _Wrong as error:
        plugin.quarantine(error.reason, error.way_out)
    except BaseException as error:  # noqa: BLE001 - it may raise anything, SystemExit too; it becomes the report
        import traceback  # nobody asks for one where nothing is wrong

        plugin.quarantine(
            f"{doing[-1]} raised {told(error)}",
            f"mend or uninstall {who}, or block it: block=[{plugin.name!r}]",
            traceback.format_exc(),
        )


def _collect(plugin: Plugin, source: Source, doing: list[str], managers: _Managers) -> None:
    """Fill in what a plugin brings; ``doing`` says what was last begun."""
    module, who = source.module or source.name, source.distribution or source.name
    if source.wrong:
        raise _Wrong(source.wrong, f"mend or uninstall {who}")
    if not _NAME.match(plugin.name):
        of = f" of {who}" if source.distribution else ""
        raise _Wrong(
            f"{shown(plugin.name)}{of} is no name of a plugin",
            "begin it with a letter or digit, and use letters, digits, '_', '.' and '-'",
        )
    implementation = source.load()
    doing.append(f"asking {module} for its hooks")
    version = getattr(implementation, "NBX_HOOKS", None)
    own = hookspecs.HOOK_VERSION
    if type(version) is not int:
        stated = "states no NBX_HOOKS" if version is None else f"states NBX_HOOKS = {shown(version)}, no whole number"
        raise _Wrong(f"{module} {stated}; this core has version {own}", f"write NBX_HOOKS = {own} in it")
    if version != own:
        raise _Wrong(
            f"{module} was written for hook version {shown(version)}; this core has version {own}",
            f"install a version of {who} for hook version {own}",
        )
    manager = managers.take()
    try:
        manager.register(implementation, plugin.name)
        manager.check_pending()
    except pluggy.PluginValidationError as error:
        hook = _hook_in(str(error))
        if hook in _HOOKS and "Argument(s)" in str(error):
            raise _Wrong(f"{module}: {hook} takes arguments, which no hook does", "write it without") from error
        known = "" if hook in _HOOKS else nearest(hook, _HOOKS)
        raise _Wrong(
            f"a hook of {module} does not fit: {error}{known}", "the hooks are in nbx_registry/hookspecs.py"
        ) from error
    for name in dir(implementation):
        if name.startswith("nbx_register_") and manager.parse_hookimpl_opts(implementation, name) is None:
            known = "" if name in _HOOKS else nearest(name, _HOOKS)
            raise _Wrong(
                f"{module}: {name} is not marked as a hook: nobody would call it{known}", "write @hookimpl above"
            )
    for caller in manager.get_hookcallers(implementation) or ():
        attribute, kind = _HOOKS[caller.name]
        doing.append(caller.name)
        # Called one by one: pluggy drops an answer of None, which is a forgotten return.
        items = tuple(item for hook in caller.get_hookimpls() for item in _items(hook, caller.name, kind, who))
        for item in items:
            if (found := wrong(item)) is not None:
                raise _Wrong(f"{caller.name}: {found[0]}", found[1])
        setattr(plugin, attribute, items)
    managers.give(manager, plugin.name)
    _check_own(plugin)


def _items(hook: pluggy.HookImpl, name: str, kind: type, who: str) -> Iterator[Any]:
    """Yield what a hook returns. Raises `_Wrong` for anything that is not of ``kind``."""
    wanted = f"it must return {kind.__name__} objects, in a list or tuple"
    if hook.hookwrapper or hook.wrapper:
        raise _Wrong(f"{name} is a wrapper; there is nothing to wrap", f"write a plain function: {wanted}")
    result: object = hook.function()
    if not isinstance(result, Iterable) or isinstance(result, (str, bytes, Mapping)):
        raise _Wrong(f"{name} returned {shown(cast('object', result))}; {wanted}", f"mend {who}")
    for item in cast("Iterable[object]", result):
        if not of_kind(item, kind):
            raise _Wrong(f"{name} returned {shown(item)}, a {class_name(item)}; {wanted}", f"mend {who}")
        yield item


def _hook_in(text: str) -> str:
    match = re.search(r"hook '(\w+)'", text)
    return match[1] if match else ""


def _check_own(plugin: Plugin) -> None:
    """Quarantine what is wrong with a plugin whatever else is installed."""
    for op in plugin.ops:
        if not op.namespace and plugin.name != CORE:
            plugin.quarantine(
                f"op {op.name!r} has no namespace; only {CORE} registers ops without one",
                f"name it '<namespace>::{op.name}'",
            )
    for backend in plugin.backends:
        if backend.name in OWN_BACKENDS:
            plugin.quarantine(f"backend {backend.name!r} is the core's own", "give the backend another name")


def _quarantine_duplicates(found: Sequence[Plugin]) -> None:
    """Settle ids claimed twice, whatever the order.

    An id belongs to the plugin whose name is its first part (kernels: ``nbx-host/add/numpy``), or to the core
    (ops without a namespace, its runtimes and backends). Any other claimant is quarantined; where nobody
    owns the id, all claimants are.
    """
    # A dtype may be brought by several, as long as they agree about it.
    described = [(dtype.name, astuple(dtype)) for plugin in found for dtype in plugin.dtypes]
    disputed = {name for name, facts in described if facts != dict(described)[name]}
    claims: Mapping[str, Callable[[Plugin], Iterable[str]]] = {
        "kernel": lambda p: (k.id for k in p.kernels),
        "op": lambda p: (o.id for o in p.ops),
        "runtime": lambda p: (r.name for r in p.runtimes),
        "backend": lambda p: (b.name for b in p.backends),
        "emulator": lambda p: (e.name for e in p.emulators),
        "dtype": lambda p: (d.name for d in p.dtypes if d.name in disputed),
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
        backends |= OWN_BACKENDS
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
                        "install or unblock the plugin that brings it, register it with nbx_register_backends, or "
                        "correct the name",
                    )
                else:
                    continue
                changed = True
                break
        if not changed:
            return


def _add_dtypes(found: Sequence[Plugin]) -> None:
    """Enter the dtypes of active plugins. The table is the process's: what is quarantined leaves it alone."""
    refused = False
    for plugin in found:
        for dtype in plugin.dtypes if plugin.state == "active" else ():
            try:
                dtypes.register(dtype)
            except NbxError as error:
                plugin.quarantine(str(error), "give the dtype a name and key of its own")
                refused = True
    if refused:
        _quarantine_orphans(found)
