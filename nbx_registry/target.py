"""Targets: what a device name means here. A product from its file, or a live handle that resolves to one."""

from __future__ import annotations

import importlib
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from nbx_registry.catalog import Catalog
from nbx_registry.device import Device
from nbx_registry.errors import NbxError, PluginFault, SignatureError, UnknownName
from nbx_registry.policy import check_device
from nbx_registry.runtime import LiveDevice, Runtime
from nbx_registry.streams import split_place


@dataclass(frozen=True, eq=False)
class Target:
    """A device to decide for.

    Attributes
    ----------
    name
        ``nvidia/h200-sxm``, ``cuda:0``, ``cpu``; a handle without an index (``cuda``) is that of the first device.
    device
        The product's facts; None only where a live handle could not be resolved.
    live, runtime
        The device that is present and its runtime; None for a product taken from its file alone, which is taken to
        have its runtime and toolkits installed.
    why, way
        Where a live handle could not be resolved: why, and what would change that.
    """

    name: str
    runtime_name: str
    device: Device | None
    live: LiveDevice | None = None
    runtime: Runtime | None = None
    why: str = ""
    way: str = ""

    @property
    def present(self) -> bool:
        """Whether something can be launched here."""
        return self.live is not None

    def __str__(self) -> str:
        if self.device is None or self.device.id == self.name:
            return self.name
        return f"{self.name} ({self.device.id})"


class Targets:
    """Resolves device names over one catalog; makes each runtime once, on first use."""

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog
        self._runtimes: dict[str, Runtime] = {}
        self._targets: dict[str, Target] = {}
        self._lock = threading.RLock()

    def runtime(self, name: str) -> Runtime:
        """Return the runtime of that name, made on first use.

        Raises `UnknownName` if no plugin registers it, `PluginFault` if making it fails.
        """
        found = self._runtimes.get(name)
        if found is not None:
            return found
        spec = self._catalog.runtimes.get(name)
        if spec is None:
            raise UnknownName.of("runtime", name, self._catalog.runtimes, "a plugin brings it (see nbx plugins)")
        with self._lock:
            if name not in self._runtimes:
                self._runtimes[name] = make(spec.factory, self._catalog.owner("runtimes", name))
            return self._runtimes[name]

    def _present(self, kind: str) -> Sequence[LiveDevice]:
        """Return the devices of a runtime. Raises `PluginFault` where it cannot tell, or tells something else."""
        runtime, plugin = self.runtime(kind), self._catalog.owner("runtimes", kind)
        try:
            devices = tuple(runtime.devices())
        except Exception as error:
            message = f"devices() of the runtime {kind!r} of {plugin} raised {type(error).__name__}: {error}"
            raise PluginFault(message, plugin=plugin, where=f"{kind}.devices()") from error
        for device in devices:
            if not isinstance(device, LiveDevice) or device.runtime != kind:  # pyright: ignore[reportUnnecessaryIsInstance] - a plugin may return anything
                message = f"devices() of the runtime {kind!r} of {plugin} gave {device!r}, no LiveDevice of its own"
                raise PluginFault(message, plugin=plugin, where=f"{kind}.devices()")
        return devices

    def resolve(self, name: str) -> Target:
        """Return the target of a product id or live handle.

        A handle without a runtime or device behind it is a target that says why. Raises `UnknownName` for a product
        without a file, and for what is neither.
        """
        check_device(name)
        found = self._targets.get(name)
        if found is None:
            made = self._product(name) if "/" in name else self._handle(name)
            with self._lock:
                # One target a device, however many names and threads ask: caches tell targets apart by identity.
                found = self._targets[name] = self._targets.setdefault(made.name, made)
        return found

    def live(self, runtime: str) -> list[Target]:
        """Return the targets of every device present on a runtime."""
        return [self.resolve(live.handle) for live in self._present(runtime)]

    def _product(self, name: str) -> Target:
        device = self._catalog.devices[name]
        return Target(name, device.runtime, device)

    def _handle(self, name: str) -> Target:
        try:
            kind, index = split_place(name)
        except SignatureError:
            raise self._unknown(name) from None
        spec = self._catalog.runtimes.get(kind)
        if spec is None:
            if ":" not in name:
                raise self._unknown(name)
            unknown = UnknownName.of("runtime", kind, self._catalog.runtimes, "a plugin brings it (see nbx plugins)")
            brings = self._catalog.devices.suggestions.get(f"runtime.{kind}")
            way = f"a plugin brings the runtime {kind!r}" + (f": {brings.way('it')}" if brings is not None else "")
            return Target(name, kind, None, why=str(unknown), way=way)
        runtime = self.runtime(kind)
        devices = self._present(kind)
        if index >= len(devices):
            handle = f"{kind}:{index}"
            if not devices:
                return Target(handle, kind, None, why=runtime.why_absent(), way=spec.install or f"{handle} is present")
            known = f"{devices[0].handle} to {devices[-1].handle}" if len(devices) > 1 else devices[0].handle
            why = f"there is no {handle}; {known} {'are' if len(devices) > 1 else 'is'} present"
            return Target(handle, kind, None, why=why, way=f"{handle} is present, or another is asked for ({known})")
        live = devices[index]
        device = self._catalog.devices.match(live)
        if device is None:
            known = self._catalog.devices.architecture(live.arch)
            vendor = known.partition("/")[0] if known is not None else "<vendor>"
            command = f"nbx devices --new {vendor}/<product> --card {live.handle}"
            way = f"a device file describes it: {command} begins one (docs/how-to/write-a-device-file.md)"
            why = f"no device file matches {live.name!r} ({live.arch}); write one: {command} begins it"
            if known is not None:
                why += f" from {known}, and serves before it is filled in"
            return Target(live.handle, kind, None, live, runtime, why, way)
        return Target(live.handle, kind, device, live, runtime)

    def _unknown(self, name: str) -> UnknownName:
        handles = (f"{kind}:0" for kind in self._catalog.runtimes if kind != "host")
        hint = "write a product (nvidia/h200-sxm; nbx devices lists them) or a live handle (cpu, cuda:0)"
        return UnknownName.of("device", name, (*self._catalog.devices, "cpu", *handles), hint)


def make(reference: str, plugin: str | None = None) -> Runtime:
    """Import the factory of a runtime, ``module:function``, and call it.

    A failure is the fault of ``plugin``, named (`PluginFault`); our own errors pass through.
    """
    try:
        made = load(reference)()
    except PluginFault as error:
        error.plugin = error.plugin or plugin
        raise
    except NbxError:
        raise
    except (Exception, SystemExit) as error:
        message = f"{reference!r} raised {type(error).__name__}: {error}"
        raise PluginFault(message, plugin=plugin, where=reference) from error
    if not isinstance(made, Runtime):
        message = f"{reference!r} gave {made!r}, which lacks methods of a Runtime"
        raise PluginFault(message, plugin=plugin, where=reference)
    return made


@lru_cache(maxsize=4096)
def load(reference: str) -> Any:
    """Import ``module:name``. Raises `PluginFault` naming the reference if that fails."""
    module, _, attribute = reference.partition(":")
    try:
        return getattr(importlib.import_module(module), attribute)
    except NbxError:
        raise
    except (Exception, SystemExit) as error:
        raise PluginFault(f"loading {reference!r} raised {type(error).__name__}: {error}", where=reference) from error
