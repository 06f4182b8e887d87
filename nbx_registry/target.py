"""Targets: what a device name means here. A product from its file, or a live handle that resolves to one."""

from __future__ import annotations

import importlib
import re
import threading
from dataclasses import dataclass

from nbx_registry.catalog import Catalog
from nbx_registry.device import Device
from nbx_registry.errors import NbxError, PluginFault, UnknownName
from nbx_registry.runtime import LiveDevice, Runtime

_HANDLE = re.compile(r"(?P<runtime>[a-z][a-z0-9_-]*)(?::(?P<index>[0-9]{1,4}))?\Z")


@dataclass(frozen=True, eq=False)
class Target:
    """A device to decide for.

    Attributes
    ----------
    name
        As asked for: ``nvidia/h200-sxm``, ``cuda:0``, ``cpu``.
    device
        The product's facts; None only where a live handle could not be resolved.
    live, runtime
        The device that is present and its runtime; None for a product taken from its file alone, which is taken to
        have its runtime and toolkits installed.
    why
        Where a live handle could not be resolved: why, with the way out.
    """

    name: str
    runtime_name: str
    device: Device | None
    live: LiveDevice | None = None
    runtime: Runtime | None = None
    why: str = ""

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
                self._runtimes[name] = make(spec.factory)
            return self._runtimes[name]

    def resolve(self, name: str) -> Target:
        """Return the target of a product id or live handle.

        A handle without a runtime or device behind it is a target that says why; a product without a file is
        `UnknownName`.
        """
        found = self._targets.get(name)
        if found is None:
            found = self._product(name) if "/" in name else self._handle(name)
            with self._lock:
                found = self._targets.setdefault(name, found)
        return found

    def live(self, runtime: str) -> list[Target]:
        """Return the targets of every device present on a runtime."""
        return [self.resolve(live.handle) for live in self.runtime(runtime).devices()]

    def _product(self, name: str) -> Target:
        device = self._catalog.devices[name]
        return Target(name, device.runtime, device)

    def _handle(self, name: str) -> Target:
        match = _HANDLE.match("host:0" if name == "cpu" else name)
        if match is None:
            raise UnknownName(f"{name!r} is no device: write a product (nvidia/h200-sxm) or a handle (cpu, cuda:0)")
        runtime_name, index = match["runtime"], int(match["index"] or 0)
        try:
            runtime = self.runtime(runtime_name)
        except UnknownName as error:
            return Target(name, runtime_name, None, why=str(error))
        devices = runtime.devices()
        if index >= len(devices):
            absent = (
                runtime.why_absent() or f"{runtime_name} has {len(devices)} device(s); the last is {len(devices) - 1}"
            )
            return Target(name, runtime_name, None, runtime=None, why=absent)
        live = devices[index]
        device = self._catalog.devices.match(live)
        if device is None:
            why = (
                f"no device file matches {live.name!r} ({live.arch}); write one "
                "(docs/how-to/write-a-device-file.md) in a plugin or in the user folder of device files"
            )
            return Target(name, runtime_name, None, live, runtime, why)
        return Target(name, runtime_name, device, live, runtime)


def make(reference: str) -> object:
    """Import ``module:function`` and call it. A failure is the plugin's fault, named; our own errors pass through."""
    return load(reference)()


def load(reference: str) -> object:
    """Import ``module:name``. Raises `PluginFault` naming the reference if that fails."""
    module, _, attribute = reference.partition(":")
    try:
        return getattr(importlib.import_module(module), attribute)
    except NbxError:
        raise
    except Exception as error:
        raise PluginFault(f"loading {reference!r} raised {type(error).__name__}: {error}", where=reference) from error
