"""``nbx doctor``: what is wrong or missing here, and the way out of each."""

from __future__ import annotations

import importlib
import importlib.util
import warnings
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

import click

import nbx_registry as nbx
from nbx_registry import entryfile, environment
from nbx_registry.cli.console import figure_bytes, figure_flops, json_option, lines, print_json
from nbx_registry.cli.main import FAULT, registry
from nbx_registry.device import Device
from nbx_registry.diagnosis import Finding
from nbx_registry.errors import NbxError
from nbx_registry.price import BANDWIDTH


@click.command(short_help="Tell what is broken or missing here.")
@click.option("--measure-host", is_flag=True, help="First measure the host into the user's device file.")
@json_option
@click.pass_context
def doctor(context: click.Context, measure_host: bool, as_json: bool) -> None:
    """Look for quarantined plugins, missing toolkits and runtimes, stale evidence, bad files and settings.

    Exits 1 where something is broken; what is only absent is told and exits 0.
    """
    if measure_host:
        _measure(as_json)
    reg = registry(context)
    found = [finding for check in CHECKS for finding in check(reg)]
    problems = [finding for finding in found if finding.kind == "problem"]
    if as_json:
        print_json([asdict(finding) for finding in found])
    else:
        for finding in found:
            style = "red" if finding.kind == "problem" else "cyan"
            lines(f"{finding.kind}: {finding.about}: {finding.text}", lambda _, style=style: style)
            if finding.way_out:
                lines(f"    {finding.way_out}")
        lines(_summary(reg, problems))
    context.exit(FAULT if problems else 0)


def _summary(reg: nbx.Registry, problems: list[Finding]) -> str:
    active = sum(plugin.state == "active" for plugin in reg.plugins.values())
    counts = f"{active} plugins, {len(reg.ops)} ops, {len(reg.kernels)} kernels, {len(reg.devices)} devices"
    if not problems:
        return f"nothing is broken: {counts}"
    return f"{len(problems)} problem{'s' if len(problems) > 1 else ''}: {counts}"


def _measure(as_json: bool) -> None:
    from nbx_registry.host import measure

    bandwidth, products = measure.copy_bandwidth(), measure.product_rate()
    cache = measure.largest_cache()
    # The largest is the last that a core asks before memory; where the system describes none, none is stated.
    path = measure.write(environment.config_dir() / "devices", bandwidth, products, cache or None)
    if not as_json:
        lines(f"copies {figure_bytes(round(bandwidth))}/s; multiplies {figure_flops(round(products))}/s")
        lines(f"caches {figure_bytes(cache)}" if cache else "the system describes no caches")
        lines(f"written to {path}")


def _environment(_: nbx.Registry) -> Iterator[Finding]:
    # Told here as a finding, so not as a warning too.
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        messages = environment.check()
    for message in messages:
        yield Finding("problem", "environment", message, "correct or unset it")


def _plugins(reg: nbx.Registry) -> Iterator[Finding]:
    for plugin in reg.plugins.values():
        if plugin.state == "quarantined":
            yield Finding("problem", plugin.name, f"quarantined: {plugin.reason}", plugin.way_out)
        elif plugin.state == "blocked":
            yield Finding("note", plugin.name, plugin.reason, plugin.way_out)


def _device_files(reg: nbx.Registry) -> Iterator[Finding]:
    for problem in reg.devices.check():
        yield Finding("problem", "device files", problem)
    for name in reg.devices:
        file, *_ = reg.devices.files(name)
        device = _readable(reg, name)
        if device is None or reg.devices.user_folder not in file.parents:
            continue
        for key in (BANDWIDTH, "peak.vector.float32_flop_per_s"):
            if key not in device.facts:
                yield Finding("note", name, f"states no {key}, so its prices have no floor", f"state it in {file}")


def _runtimes(reg: nbx.Registry) -> Iterator[Finding]:
    for name, spec in reg.catalog.runtimes.items():
        install = f"install it with: {spec.install}" if spec.install else ""
        try:
            runtime = reg.runtime(name)
        except NbxError as error:
            yield Finding("problem", f"runtime {name}", str(error), install)
            continue
        try:
            here = reg.live(name)
        except NbxError as error:
            yield Finding("problem", f"runtime {name}", str(error))
            continue
        if not here:
            yield Finding("note", f"runtime {name}", f"no device: {runtime.why_absent()}")
        for target in here:
            if target.device is None:
                yield Finding("problem", target.name, target.why)


def _toolkits(reg: nbx.Registry) -> Iterator[Finding]:
    for name, backend in reg.catalog.backends.items():
        if not reg.catalog.toolkit_present(name):
            text = f"its modules are not installed: {', '.join(backend.modules)}"
            yield Finding(
                "note", f"toolkit {name}", text, f"install it with: {backend.install}" if backend.install else ""
            )


def _kernels(reg: nbx.Registry) -> Iterator[Finding]:
    yield from reg.diagnostics()


def _waivers(reg: nbx.Registry) -> Iterator[Finding]:
    for plugin in reg.catalog.active:
        for folder in plugin.waivers:
            try:
                for path in entryfile.files(folder):
                    _read_waivers(path, plugin.name)
            except NbxError as error:
                text = f"{error}; nbx conformance run does not start with it"
                yield Finding("problem", "waivers", text, "correct the file, or remove it")


def _read_waivers(path: Path, plugin: str) -> None:
    """Read a file of waivers as far as it is known here what one says. Raises `FileError`."""
    if importlib.util.find_spec("nbx_conformance") is None:
        entryfile.entries(path, "waivers")
    else:
        importlib.import_module("nbx_conformance.runs.waivers").read(path, plugin)


def _evidence(reg: nbx.Registry) -> Iterator[Finding]:
    for problem in reg.catalog.evidence.check():
        yield Finding("problem", "evidence", problem, "remove the file, or write it anew with nbx conformance run")
    devices = [device for name in reg.devices if (device := _readable(reg, name)) is not None]
    for kernel in reg.kernels.values():
        stale: dict[str, list[str]] = {}
        for device in devices:
            if kernel.runtimes and device.runtime not in kernel.runtimes:
                continue
            evidence = reg.kernel_evidence(kernel.id, device.id)
            if evidence.stale:
                stale.setdefault(f"{evidence.stale} ({evidence.bundle})", []).append(device.id)
        for why, names in stale.items():
            text = f"evidence for {', '.join(names)} is stale: {why}"
            yield Finding("note", kernel.id, text, "run nbx conformance run on that device")


def _readable(reg: nbx.Registry, name: str) -> Device | None:
    try:
        return reg.devices[name]
    except NbxError:
        # Told by the check of device files.
        return None


CHECKS = (_environment, _plugins, _device_files, _runtimes, _toolkits, _kernels, _waivers, _evidence)
"""Every check, in the order in which findings are told."""
