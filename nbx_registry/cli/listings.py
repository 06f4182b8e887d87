"""What is there: ``nbx ops``, ``devices``, ``kernels``, ``plugins``."""

from __future__ import annotations

import inspect
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import click

import nbx_registry as nbx
from nbx_registry.cli.console import json_option, lines, print_json, stop, table
from nbx_registry.cli.main import FAULT, USAGE, registry
from nbx_registry.device import Device, Fact
from nbx_registry.devicefile import READ_WORDS
from nbx_registry.errors import DuplicateError, NbxError
from nbx_registry.kernel import Kernel
from nbx_registry.op import Op
from nbx_registry.plugins import Plugin
from nbx_registry.stub import stub
from nbx_registry.target import Target


@click.command()
@click.argument("name", required=False)
@click.option("--stub", "as_stub", is_flag=True, help="Print nbx_registry/ops.pyi: the core's ops for editors.")
@json_option
@click.pass_context
def ops(context: click.Context, name: str | None, as_stub: bool, as_json: bool) -> None:
    """List the ops, or show the contract of one."""
    reg = registry(context)
    if as_stub:
        click.echo(stub(reg.ops.values()), nl=False)
        return
    if name is None:
        if as_json:
            print_json([_op(op, _kernels_of(reg, op)) for op in reg.ops.values()])
            return
        rows = [(op.id, len(_kernels_of(reg, op)), _summary(op)) for op in reg.ops.values()]
        table(("op", "kernels", "what it computes"), rows, right=("kernels",))
        return
    op = reg.catalog.op(name)
    if as_json:
        print_json(_op(op, _kernels_of(reg, op)))
        return
    lines(op.text)
    lines("")
    lines(inspect.cleandoc(op.doc))
    lines("")
    lines("kernels:")
    for identifier in _kernels_of(reg, op) or ["none in the installed plugins"]:
        lines(f"  {identifier}")


@click.command(short_help="List the devices, show the facts of one, or begin a file for a new one.")
@click.argument("name", required=False)
@click.option("--new", metavar="ID", help="Begin a file for a new product (vendor/product) in your folder.")
@click.option("--like", metavar="NAME", help="With --new: the product to take architecture and kinds of facts from.")
@click.option("--card", metavar="HANDLE", help="With --new: the card that is here (cuda:0); it reports its facts.")
@json_option
@click.pass_context
def devices(
    context: click.Context, name: str | None, new: str | None, like: str | None, card: str | None, as_json: bool
) -> None:
    """List the devices known from files and those present, or show the facts of one with their sources.

    NAME is a product (nvidia/h200-sxm) or a live device (cpu, cuda:0).
    """
    if new is None and (like or card):
        stop("--like and --card go with --new", USAGE)
    if new is not None and name is not None:
        stop(f"--new {new} begins a file; {name!r} beside it asks for another thing", USAGE)
    reg = registry(context)
    if new is not None:
        _begin(reg, new, like, card, as_json)
    elif name is None:
        _list_devices(reg, as_json)
    else:
        _show_device(reg, name, as_json)


def _begin(reg: nbx.Registry, new: str, like: str | None, card: str | None, as_json: bool) -> None:
    from nbx_registry.cli import newdevice

    unknown = [target for target in present(reg)[0] if target.device is None]
    if card is not None:
        target = reg.target(card)
        if target.live is None:
            stop(
                f"{card}: {target.why or 'a product from its file; --card takes a card that is here, like cuda:0'}",
                FAULT,
            )
        if target.device is not None:
            stop(f"{card} is {target.device.id}, which {target.device.file} describes", USAGE)
        live = target.live
    elif len(unknown) > 1 and like is None:
        stop(f"several cards have no file: {', '.join(t.name for t in unknown)}; say which with --card", USAGE)
    else:
        live = unknown[0].live if len(unknown) == 1 and like is None else None
    model = reg.devices[like] if like is not None else None
    try:
        path, count = newdevice.begin(reg.devices, new, live, model)
    except DuplicateError as error:
        stop(str(error), USAGE)
    if as_json:
        print_json({"id": new, "file": str(path), "facts": count, "card": live.handle if live is not None else None})
        return
    reported = f", with {count} facts that {live.handle} reports" if live is not None else ""
    lines(f"{path} is begun{reported}")
    lines(f"fill in what its data sheet says; then: nbx doctor, and: nbx devices {new}")


def present(reg: nbx.Registry) -> tuple[list[Target], list[NbxError]]:
    """Return the devices present on every runtime, and what is wrong with runtimes whose devices cannot be told."""
    found: list[Target] = []
    errors: list[NbxError] = []
    for runtime in reg.catalog.runtimes:
        try:
            found += reg.live(runtime)
        except NbxError as error:
            errors.append(error)
    return found, errors


def _list_devices(reg: nbx.Registry, as_json: bool) -> None:
    here, errors = present(reg)
    handles: dict[str | None, list[str]] = {}
    for target in here:
        handles.setdefault(target.device.id if target.device else None, []).append(target.name)
    rows = [_device_row(identifier, reg.devices, handles.get(identifier, [])) for identifier in reg.devices]
    if as_json:
        print_json(rows)
        return
    headings = ("device", "arch", "runtime", "present as", "evidence class")
    table(headings, [[row[key] for key in ("id", "arch", "runtime", "present", "evidence_class")] for row in rows])
    for handle in handles.get(None, []):
        lines(f"{handle}: {reg.target(handle).why}")
    for error in errors:
        lines(f"error: {error}", lambda _: "red")


def _show_device(reg: nbx.Registry, name: str, as_json: bool) -> None:
    target = reg.target(name)
    device, live = target.device, target.live
    if device is None:
        stop(f"{name}: {target.why}", FAULT)
    if as_json:
        facts = {key: _fact_row(fact) for key, fact in device.facts.items()}
        print_json({**_device(device), "facts": facts, "detected": dict(live.detected) if live else None})
        return
    lines(f"{device.id}: {device.arch} on the runtime {device.runtime!r}, evidence class {device.evidence_class}")
    if live is not None:
        lines(f"present as {live.handle}: {live.name}")
    table(("fact", "value", "source"), [(key, _fact(fact.value), _source(fact)) for key, fact in device.facts.items()])
    if device.facts:
        lines("")
        _legend(device)


def _source(fact: Fact) -> str:
    return f"{fact.source} ({fact.read})" if fact.read != "vendor" else fact.source


def _legend(device: Device) -> None:
    """Print the documents behind the tags, how values were read, and what the facts note."""
    documents = {source.tag: source for fact in device.facts.values() for source in fact.documents}
    lines("sources:")
    for tag, source in sorted(documents.items()):
        lines(f"  {tag}: {source}")
    marks = sorted({fact.read for fact in device.facts.values()} - {"vendor"})
    if marks:
        lines("read as, where it is not the vendor's own text or code:")
    for mark in marks:
        lines(f"  {mark}: {READ_WORDS[mark]}")
    notes = {key: "; ".join(filter(None, (fact.formula, fact.note, fact.date))) for key, fact in device.facts.items()}
    if any(notes.values()):
        lines("notes:")
    for key, note in notes.items():
        if note:
            lines(f"  {key}: {note}")


@click.command(short_help="List the kernels and what each promises.")
@click.option("--op", "op_name", metavar="OP", help="Only the kernels of this op.")
@json_option
@click.pass_context
def kernels(context: click.Context, op_name: str | None, as_json: bool) -> None:
    """List the kernels: what each is made with, where it runs, and what it promises."""
    reg = registry(context)
    wanted = reg.catalog.op(op_name).id if op_name else None
    found = [kernel for kernel in reg.kernels.values() if wanted in (None, kernel.op)]
    if as_json:
        print_json([_kernel(kernel) for kernel in found])
        return
    headings = ("kernel", "op", "backend", "runs on", "promises")
    table(headings, [(k.id, k.op, k.backend, ", ".join(k.runtimes) or "any", _promises(k)) for k in found])


@click.command()
@json_option
@click.pass_context
def plugins(context: click.Context, as_json: bool) -> None:
    """List the plugins, what each brought, and why one is out."""
    found = list(registry(context).plugins.values())
    if as_json:
        print_json([_plugin(plugin) for plugin in found])
        return
    counts = ("ops", "kernels", "runtimes", "devices", "evidence")
    rows = [(p.name, p.version or "", p.state, *(_counted(p, key) for key in counts)) for p in found]
    table(("plugin", "version", "state", *counts), rows, right=counts)
    for plugin in found:
        if plugin.state != "active":
            lines(f"{plugin.name}: {plugin.reason}")
            lines(f"  way out: {plugin.way_out}")


def _kernels_of(reg: nbx.Registry, op: Op) -> list[str]:
    return [kernel.id for kernel in reg.catalog.by_op.get(op.id, ())]


def _summary(op: Op) -> str:
    return inspect.cleandoc(op.doc).partition("\n")[0].replace("``", "`")


def _op(op: Op, kernels: list[str]) -> dict[str, Any]:
    return {"id": op.id, "contract": op.text, "doc": inspect.cleandoc(op.doc), "kernels": kernels}


def _device(device: Device) -> dict[str, Any]:
    return {
        "id": device.id,
        "arch": device.arch,
        "runtime": device.runtime,
        "evidence_class": device.evidence_class,
        "file": str(device.file),
    }


def _device_row(identifier: str, known: Mapping[str, Device], handles: list[str]) -> dict[str, Any]:
    present = ", ".join(handles)
    try:
        return {**_device(known[identifier]), "present": present, "error": None}
    except NbxError as error:
        bad = "malformed file: nbx doctor"
        row: dict[str, Any] = dict.fromkeys(("arch", "runtime", "file"), "")
        return {"id": identifier, **row, "evidence_class": bad, "present": present, "error": str(error)}


def _fact(value: Any) -> str:
    if isinstance(value, float) and value >= 1e6:
        return f"{value:.6g}"
    if isinstance(value, Mapping):
        unit = cast("Mapping[str, Sequence[str]]", value)
        return "; ".join(f"{operand} -> {', '.join(into) or '?'}" for operand, into in unit.items())
    if isinstance(value, tuple):
        return ", ".join(map(str, cast("tuple[object, ...]", value)))
    return str(value)


def _fact_row(fact: Fact) -> dict[str, Any]:
    return {
        "value": _plain(fact.value),
        "source": fact.source,
        "documents": list(fact.documents),
        "read": fact.read,
        "formula": fact.formula,
        "note": fact.note,
        "date": fact.date,
        "file": f"{fact.file}:{fact.line}",
    }


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        unit = cast("Mapping[str, Sequence[str]]", value)
        return {operand: list(into) for operand, into in unit.items()}
    return value


def _promises(kernel: Kernel) -> str:
    names = ("deterministic", "batch_invariant", "replayable")
    return ", ".join(name.replace("_", "-") for name in names if getattr(kernel, name))


def _kernel(kernel: Kernel) -> dict[str, Any]:
    return {
        "id": kernel.id,
        "op": kernel.op,
        "backend": kernel.backend,
        "runtimes": list(kernel.runtimes),
        "when": list(kernel.when),
        "key": list(kernel.key),
        "workspace": [{"name": w.name, "dtype": w.dtype, "shape": list(w.shape)} for w in kernel.workspace],
        "deterministic": kernel.deterministic,
        "batch_invariant": kernel.batch_invariant,
        "replayable": kernel.replayable,
        "overlap": kernel.overlap,
        "parts": list(kernel.parts),
        "bind": kernel.bind,
        "doc": kernel.doc,
    }


def _counted(plugin: Plugin, what: str) -> int:
    """Return how many of something a plugin brings: of evidence bundles, of other files folders."""
    if what == "evidence":
        return sum(name.endswith(".json") for folder in plugin.evidence for name in _names(folder))
    return len(getattr(plugin, what))


def _names(folder: Path) -> list[str]:
    try:
        return os.listdir(folder)
    except OSError:
        # nbx doctor tells of a folder that is not there.
        return []


def _plugin(plugin: Plugin) -> dict[str, Any]:
    counts = ("dtypes", "ops", "kernels", "runtimes", "emulators", "devices", "overlays", "evidence", "settings")
    return {
        "name": plugin.name,
        "distribution": plugin.distribution,
        "version": plugin.version,
        "state": plugin.state,
        "reason": plugin.reason,
        "way_out": plugin.way_out,
        "counts": {key: _counted(plugin, key) for key in counts},
    }
