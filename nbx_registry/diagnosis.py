"""Diagnosis: what is wrong with a catalog, found without a request and without importing what is wrong."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Literal

from nbx_registry import digest, dtypes, expr
from nbx_registry.catalog import Catalog
from nbx_registry.conditions import Conditions
from nbx_registry.decision import Fault
from nbx_registry.distributions import canonical
from nbx_registry.errors import NbxError, nearest
from nbx_registry.kernel import Kernel, Workspace
from nbx_registry.op import Op


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

    Conditions over unknown names or that always refuse, workspace that cannot be told, references that lead nowhere,
    folders that are not there, second versions, tuned settings of nothing, vain blocks.

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
        for kind in ("evidence", "settings", "cases"):
            for folder in getattr(plugin, kind):
                if not folder.is_dir():
                    what = "is no folder" if folder.exists() else "is not there"
                    text = f"nbx_register_{kind} gives {folder}, which {what}"
                    yield _problem(plugin.name, text, "create the folder, and let the wheel include it")
        for reference, about in (
            *((spec.factory, f"runtime {spec.name}") for spec in plugin.runtimes),
            *((spec.factory, f"emulator {spec.name}") for spec in plugin.emulators),
        ):
            yield from _reference(reference, about, f"correct the factory in {plugin.name}")
        for kernel in plugin.kernels:
            yield from _kernel(catalog, kernel, compiled(kernel))
    yield from _settings(catalog)
    known = {*map(canonical, catalog.plugins), *catalog.kernels}
    for name in sorted(catalog.blocked):
        if (name if "/" in name else canonical(name)) not in known:
            near = nearest(name, (*catalog.plugins, *catalog.kernels))
            yield _problem(
                "block", f"block names {name!r}, which nobody registers{near}", "leave it out, or correct it"
            )


def _problem(about: str, text: str, way_out: str) -> Finding:
    return Finding("problem", about, text, way_out)


def _kernel(catalog: Catalog, kernel: Kernel, compiled: Conditions | Fault) -> Iterator[Finding]:
    plugin = catalog.owners[kernel.id]
    way = f"correct it in {plugin}; until then block=[{kernel.id!r}] goes on without it"
    if isinstance(compiled, Fault):
        yield _problem(kernel.id, compiled.message, way)
    elif compiled.always_refuses:
        yield _problem(kernel.id, f"refuses every request: {compiled.always_refuses}", f"correct when= in {plugin}")
    for reference in (kernel.bind, kernel.settings):
        # A kernel of this process may hold its function itself: there is nothing to locate.
        if isinstance(reference, str):
            yield from _reference(reference, kernel.id, way)
    op = catalog.op(kernel.op)
    for workspace in kernel.workspace:
        yield from (_problem(kernel.id, text, way) for text in _workspace(kernel, workspace, op))


def _workspace(kernel: Kernel, workspace: Workspace, op: Op) -> Iterator[str]:
    name = f"workspace {workspace.name!r}"
    if workspace.name in op.positions:
        yield f"{name} is named as a tensor of {op.id}"
    if workspace.dtype not in dtypes.TABLE:
        yield f"{name} has the unknown dtype {workspace.dtype!r}{nearest(workspace.dtype, dtypes.TABLE)}"
    known = {*op.names, *kernel.defaults}
    for text in workspace.shape:
        try:
            names = expr.parse(text).names
        except NbxError as error:
            yield f"{name}: {error}"
            continue
        for unknown in sorted(names - known):
            yield f"{name}: {text!r} reads {unknown!r}, no name of {op.id} and no setting{nearest(unknown, known)}"


def _reference(reference: str, about: str, way: str) -> Iterator[Finding]:
    try:
        digest.locate(reference)
    except NbxError as error:
        yield _problem(about, str(error), way)


def _settings(catalog: Catalog) -> Iterator[Finding]:
    for problem in catalog.settings.check():
        yield _problem("settings", problem, "remove the entry, or tune again")
    for entry in catalog.settings.entries():
        kernel = catalog.kernels.get(entry.kernel)
        if kernel is None:
            text = f"{entry.file}: settings of {entry.kernel}, which nobody registers"
            yield Finding("note", "settings", text, "install its plugin, or remove the entry")
            continue
        if set(entry.key) != set(kernel.key):
            text = f"{entry.file}: key {dict(entry.key)} of {kernel.id}, whose key is {', '.join(kernel.key)}"
            yield _problem("settings", text, "remove the entry, or tune again")
        for name in sorted(entry.settings.keys() - kernel.defaults.keys()) if kernel.defaults else ():
            text = f"{entry.file}: {name!r} is no setting of {kernel.id}{nearest(name, kernel.defaults)}"
            yield _problem("settings", text, "remove the entry, or tune again")
