"""Diagnosis: what is wrong with a catalog, found without a request and without importing what is wrong."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Literal

from nbx_registry import digest, dtypes, expr, sourcetree
from nbx_registry.blocking import vain
from nbx_registry.catalog import Catalog, findable
from nbx_registry.conditions import Conditions, rule_of
from nbx_registry.decision import Fault
from nbx_registry.device import Device
from nbx_registry.devicefile import RESERVED
from nbx_registry.errors import NbxError, nearest
from nbx_registry.kernel import Kernel, Workspace
from nbx_registry.op import Op
from nbx_registry.plugins import Plugin
from nbx_registry.settings import no_extent
from nbx_registry.space import extents


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing found."""

    kind: Literal["problem", "note"]
    """A problem is broken; a note is only absent, and may be meant to be."""
    about: str
    """A plugin, kernel, runtime or device, by name; else what was looked at."""
    text: str
    way_out: str = ""


def findings(catalog: Catalog, compiled: Callable[[Kernel], Conditions | Fault]) -> Iterator[Finding]:
    """Yield what is wrong whatever the request: plugin by plugin, in the order of names.

    Conditions over unknown names and facts or that always refuse, workspace that cannot be told, references that lead
    nowhere, folders that are not there, second versions, tuned settings of nothing, advisories that are malformed, that
    name nothing, or that are in force, vain blocks. Of a kernel that is blocked nothing else is told.

    Parameters
    ----------
    compiled
        Gives a kernel's conditions, or why they cannot be compiled.
    """
    for plugin in catalog.plugins.values():
        if plugin.copies:
            text = f"{plugin.distribution} {plugin.version} is used; also there: {', '.join(plugin.copies)}"
            yield _problem(plugin.name, text, f"uninstall {plugin.distribution} until one version is left")
    for plugin in catalog.active:
        yield from of_plugin(catalog, plugin, compiled)
    yield from _settings(catalog)
    yield from _advisories(catalog)
    yield from _tolerances(catalog)
    for name in vain(catalog, sorted(catalog.blocked)):
        near = nearest(name, (*catalog.plugins, *catalog.kernels))
        yield _problem("block", f"block names {name!r}, which nobody registers{near}", "leave it out, or correct it")


def of_plugin(catalog: Catalog, plugin: Plugin, compiled: Callable[[Kernel], Conditions | Fault]) -> Iterator[Finding]:
    """Yield what is wrong with what one plugin brings; ``compiled`` as for `findings`."""
    for kind in ("devices", "overlays", "evidence", "settings", "cases", "advisories", "waivers"):
        for folder in getattr(plugin, kind):
            # Of os.path, which answers where a folder around it may not be looked into.
            if not os.path.isdir(folder):
                what = "is no folder" if os.path.lexists(folder) else "is not there"
                text = f"nbx_register_{kind} gives {folder}, which {what}"
                yield _problem(plugin.name, text, "create the folder, and let the wheel include it")
    for reference, about in (
        *((spec.factory, f"runtime {spec.name}") for spec in plugin.runtimes),
        *((spec.factory, f"emulator {spec.name}") for spec in plugin.emulators),
    ):
        yield from _reference(reference, about, f"correct the factory in {plugin.name}")
    for emulator in plugin.emulators:
        if emulator.backend not in catalog.backends:
            near = nearest(emulator.backend, catalog.backends)
            text = f"names backend {emulator.backend!r}, which nobody registers{near}"
            way = f"install or unblock the plugin that brings it, or correct the name in {plugin.name}"
            yield _problem(f"emulator {emulator.name}", text, way)
    for dtype in plugin.dtypes:
        if dtype.numpy_name is not None:
            yield from _reference(dtype.numpy_name, f"dtype {dtype.name}", f"correct numpy_name in {plugin.name}")
    for kernel in plugin.kernels:
        if kernel.id in catalog.blocked:
            yield Finding("note", kernel.id, "blocked by the caller", f"leave {kernel.id!r} out of block=")
        else:
            yield from _kernel(catalog, kernel, compiled(kernel))


def _problem(about: str, text: str, way_out: str) -> Finding:
    return Finding("problem", about, text, way_out)


def _kernel(catalog: Catalog, kernel: Kernel, compiled: Conditions | Fault) -> Iterator[Finding]:
    plugin = catalog.owners[kernel.id]
    way = f"correct it in {plugin}; until then block=[{kernel.id!r}] goes on without it"
    if isinstance(compiled, Fault):
        yield _problem(kernel.id, compiled.message, way)
    else:
        if compiled.always_refuses:
            yield _problem(kernel.id, f"refuses every request: {compiled.always_refuses}", f"correct when= in {plugin}")
        yield from (_problem(kernel.id, text, way) for text in _facts(catalog, compiled))
    for reference in (kernel.bind, kernel.settings):
        # A kernel of this process may hold its function itself: there is nothing to locate.
        if isinstance(reference, str):
            yield from _reference(reference, kernel.id, way)
    op = catalog.op(kernel.op)
    for number, workspace in enumerate(kernel.workspace):
        yield from (_problem(kernel.id, text, way) for text in _workspace(kernel, workspace, op))
        if any(workspace.name == other.name for other in kernel.workspace[:number]):
            yield _problem(kernel.id, f"workspace {workspace.name!r} is named twice", way)


def _facts(catalog: Catalog, conditions: Conditions) -> Iterator[str]:
    """Yield what is read of a device that no device has."""
    try:
        schema = catalog.devices.schema
    except NbxError:
        # Told by the check of device files.
        return
    if not schema.keys:
        # Without nbx-devices nobody describes any.
        return
    known = {*schema.keys, *RESERVED}
    for name in sorted(conditions.reads):
        _, device, key = name.partition("device.")
        if not device or key in RESERVED or key.startswith("target."):
            continue
        # A matrix unit's operands are asked for by name.
        if schema.find(key) is None and not (key.startswith("matrix_unit.") and schema.find(key.rpartition(".")[0])):
            yield f"reads {name}, a fact that no schema.yml describes{nearest(key, known)}"


def _workspace(kernel: Kernel, workspace: Workspace, op: Op) -> Iterator[str]:
    name = f"workspace {workspace.name!r}"
    if workspace.name in op.positions:
        yield f"{name} is named as a tensor of {op.id}"
    if workspace.dtype not in dtypes.TABLE:
        yield f"{name} has the unknown dtype {workspace.dtype!r}{nearest(workspace.dtype, dtypes.TABLE)}"
    first, last = workspace.lifetime
    if first < 0 or (last < first and last != -1):
        yield f"{name} lives from launch {first} to launch {last}"
    known = {*op.names, *kernel.defaults}
    for text in workspace.shape:
        try:
            extent = expr.parse(text)
        except NbxError as error:
            yield f"{name}: {error}"
            continue
        names, value = extent.names, extent.constant()
        if value is not None and (type(value[0]) is not int or value[0] < 0):
            yield f"{name}: {text!r} is no extent"
        for unknown in sorted(names - known):
            yield f"{name}: {text!r} reads {unknown!r}, no name of {op.id} and no setting{nearest(unknown, known)}"


def _reference(reference: str, about: str, way: str) -> Iterator[Finding]:
    module = reference.partition(":")[0]
    try:
        # Names of a module that is compiled cannot be told without importing it.
        if sourcetree.find(module) is None and findable(module):
            return
        digest.locate(reference)
    except NbxError as error:
        yield _problem(about, str(error), way)


def _settings(catalog: Catalog) -> Iterator[Finding]:
    for problem in catalog.settings.check():
        yield _problem("settings", problem, "remove the entry, or tune again")
    for kernel in catalog.kernels.values():
        if kernel.settings is None and catalog.settings.has(kernel.id):
            text = f"there are settings of {kernel.id}, which states no settings= and so takes none"
            yield _problem("settings", text, f"write settings= in {catalog.owners[kernel.id]}, or remove them")
    for entry in catalog.settings.entries():
        if entry.device not in catalog.devices:
            text = f"{entry.file}: settings for {entry.device}, for which there is no device file"
            near = nearest(entry.device, catalog.devices)
            yield Finding(
                "note", "settings", f"{text}{near}", "install the plugin that describes it, or correct device"
            )
        kernel = catalog.kernels.get(entry.kernel)
        if kernel is None:
            text = f"{entry.file}: settings of {entry.kernel}, which nobody registers"
            yield Finding("note", "settings", text, "install its plugin, or remove the entry")
            continue
        if set(entry.key) != set(kernel.key):
            text = f"{entry.file}: key {dict(entry.key)} of {kernel.id}, whose key is {', '.join(kernel.key)}"
            yield _problem("settings", text, "remove the entry, or tune again")
        for name in extents(kernel, catalog.op(kernel.op)):
            if name in entry.key and (wrong := no_extent(entry.key[name])):
                text = f"{entry.file}: key {dict(entry.key)} of {kernel.id}: {name} {wrong}"
                yield _problem("settings", text, "correct or remove the entry")
        unknown = sorted(entry.settings.keys() - kernel.defaults.keys())
        for name in unknown:
            text = f"{entry.file}: {name!r} is no setting of {kernel.id}{nearest(name, kernel.defaults)}"
            yield _problem("settings", text, "remove the entry, or tune again")
        # What is named wrongly is left out too: it is told once.
        for name in () if unknown else sorted(kernel.defaults.keys() - entry.settings.keys()):
            text = f"{entry.file}: settings of {kernel.id} for {dict(entry.key)} leave out {name!r}"
            yield _problem("settings", text, "remove the entry, or tune again")


def _advisories(catalog: Catalog) -> Iterator[Finding]:
    for problem in catalog.advisories.check():
        yield _problem("advisories", problem, "correct the file, or remove it")
    places = {place for device in _readable(catalog) for place in (device.id, device.evidence_class)}
    for advisory in catalog.advisories.advisories:
        kernels = [kernel for kernel in catalog.kernels.values() if advisory.about(kernel.id)]
        if not kernels:
            near = nearest(advisory.kernel, catalog.kernels)
            text = f"{advisory.where}: about {advisory.kernel}, which nobody registers{near}"
            yield Finding("note", "advisories", text, "correct it, if its plugin is installed")
        if advisory.device is not None and not any(fnmatchcase(place, advisory.device) for place in places):
            near = nearest(advisory.device, places)
            text = f"{advisory.where}: about the device {advisory.device}, which no device file describes{near}"
            yield Finding("note", "advisories", text, "name a product or an evidence class")
        for kernel in kernels:
            if advisory.when is not None and (unread := _unread(advisory.when, catalog.op(kernel.op))):
                text = f"{advisory.where}: {unread}, so {kernel.id} is revoked altogether"
                yield _problem("advisories", text, "correct when, or give the kernels of each op an entry of their own")
            plugin = catalog.plugins[catalog.owners[kernel.id]]
            if advisory.of_version(plugin.version):
                where = "" if advisory.device is None else f" on {advisory.device}"
                where += "" if advisory.when is None else f" where {advisory.when}"
                text = f"revoked{where}: {advisory.reason} ({advisory.where})"
                other = "" if advisory.versions is None else f", or a version outside {advisory.versions}"
                yield Finding("note", kernel.id, text, f"see {advisory.link or advisory.where}{other}")


def _tolerances(catalog: Catalog) -> Iterator[Finding]:
    for device in _readable(catalog):
        for key, fact in device.facts.items():
            namespace, found, name = key.rpartition("tolerance.")
            op = f"{namespace.rstrip('.')}::{name}" if namespace else name
            if found and op not in catalog.ops:
                text = f"{fact.file}:{fact.line}: {key}, but nobody registers an op {op}{nearest(op, catalog.ops)}"
                yield _problem(device.id, text, "name an op, or remove the fact")


def _readable(catalog: Catalog) -> Iterator[Device]:
    for name in catalog.devices:
        try:
            yield catalog.devices[name]
        except NbxError:
            # Told by the check of device files.
            continue


def _unread(when: str, op: Op) -> str:
    """Return which name of a condition means nothing over an op."""
    try:
        rule_of(when, op)
    except NbxError as error:
        return str(error)
    return ""
