"""Routes: how far a run can reach a device from here: the device itself, an emulator, or building alone."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from nbx_conformance.cases import CaseTable
from nbx_conformance.trials.trial import Reach, Site
from nbx_registry.errors import NbxError, UnknownName
from nbx_registry.registry import Registry
from nbx_registry.target import Target

VIAS: Final = ("auto", "device", "interpreter", "build")
"""What may be asked for, beside an emulator by its name. ``interpreter`` is the device's only emulator."""


@dataclass(frozen=True)
class Route:
    """How a device is reached.

    Attributes
    ----------
    via
        ``device``, an emulator's name, or ``build``.
    why
        Why not more, in words; empty where numbers are checked on the device itself.
    environment
        Environment variables that the process needs; where they are not set, trials go to a process of their own.
    handles
        Of the devices here among which processes can share a run; `target` is one of them.
    """

    target: Target
    reach: Reach
    via: str
    why: str = ""
    environment: Mapping[str, str] | None = None
    handles: tuple[str, ...] = ()

    @property
    def apart(self) -> bool:
        """Whether trials need a process of their own."""
        return any(os.environ.get(name) != value for name, value in (self.environment or {}).items())

    def site(self, registry: Registry, cases: CaseTable) -> Site:
        """Return the site at the end of the route; its emulator is made here unless trials run in another process."""
        emulator = registry.emulator(self.via) if self.reach == "elsewhere" and not self.apart else None
        return Site(registry, cases, self.target, self.reach, self.via, emulator)

    def __str__(self) -> str:
        how = {"here": "on the device", "elsewhere": f"through {self.via}", "built": "built, not run"}[self.reach]
        return f"{self.target}, {how}"


def find(registry: Registry, device: str, via: str = "auto", slot: int = 0) -> Route:
    """Return the route to a device: as asked for, or as far as it goes.

    Parameters
    ----------
    device
        A live handle (``cpu``, ``cuda:0``), a product (``nvidia/h200-sxm``), which may be absent, or a runtime
        (``cuda``): the product of its first device.
    via
        One of `VIAS`, or an emulator's name.
    slot
        The number of this process among those that share a run: they are dealt out over the devices of the product.

    Raises
    ------
    UnknownName
        For an unknown device or route.
    NbxError
        Where the device cannot be reached that way: why, and the way out.
    """
    emulators = registry.catalog.emulators
    if via not in VIAS and via not in emulators:
        raise UnknownName.of("route", via, [*VIAS, *emulators], "routes are " + ", ".join([*VIAS, *emulators]))
    target = registry.target(device)
    present, why = _present(registry, target, shared=device == target.runtime_name or "/" in device)
    live = present[slot % len(present)] if present else None
    if via in ("auto", "device") and live is not None:
        return Route(live, "here", "device", handles=tuple(found.name for found in present))
    if via == "device":
        raise NbxError(f"{device} is not here: {why}; leave out --via device to reach as far as can be")
    if target.device is None:
        raise NbxError(f"{device} cannot be tried: {why}; name a product (nbx devices lists them) to build for it")
    if live is not None:
        # What an emulator or a compiler says is about the product, whether or not one is here.
        target = registry.target(target.device.id)
        why = f"asked for {via}"
    standing_in = [name for name in sorted(emulators) if target.runtime_name in emulators[name].runtimes]
    if via == "interpreter" or (via == "auto" and standing_in):
        if len(standing_in) != 1:
            known = ", ".join(standing_in) or "none"
            raise NbxError(f"{device} has {len(standing_in)} emulators ({known}); name one with --via")
        via = standing_in[0]
    if via in emulators:
        emulator = emulators[via]
        if target.runtime_name not in emulator.runtimes:
            stands = f"emulator {via} stands in for {', '.join(emulator.runtimes)}"
            raise NbxError(f"{stands}; {device} is driven by {target.runtime_name}")
        return Route(target, "elsewhere", via, why, emulator.environment)
    return Route(target, "built", "build", why if via == "auto" else why or "asked for build")


def _present(registry: Registry, target: Target, *, shared: bool) -> tuple[list[Target], str]:
    """Return the live targets that a name means, or why there is none.

    ``shared``: all that are the same product, not the one that was named.
    """
    if target.live is not None and (target.device is None or not shared):
        return ([target], "") if target.device is not None else ([], target.why)
    if target.why:
        return [], target.why
    if target.runtime_name not in registry.catalog.runtimes:
        return [], f"no runtime {target.runtime_name!r} is installed"
    runtime = registry.runtime(target.runtime_name)
    devices = [registry.target(live.handle) for live in runtime.devices()]
    assert target.device is not None
    present = [found for found in devices if found.device is not None and found.device.id == target.device.id]
    return present, "" if present else runtime.why_absent() or f"no device of this machine is a {target.name}"
