"""Roofs: the least time that work takes on a device, as its facts have it and with room for what they leave out."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from nbx_registry.cost import Cost
from nbx_registry.device import Device
from nbx_registry.errors import MissingFact
from nbx_registry.price import BANDWIDTH, CACHES, peak

STATED: Final = 0.9
"""Share of the time by a stated bandwidth that is taken to be the least: data sheets round."""

MEASURED: Final = 0.5
"""The same of a measured one: a copy, whose cached stores read as well, and a machine that had other work."""

FAST: Final = 8
"""How many times fewer operations an algorithm may do than the textbook's: Winograd's F(4x4, 3x3) does a quarter of a
convolution's products, two levels of Strassen's three quarters of a matrix's, transforms fewer still of a wide one."""


@dataclass(frozen=True)
class Roof:
    """What no run on a device exceeds.

    Attributes
    ----------
    bytes_per_s
        Of memory.
    cache_bytes
        Of the caches between memory and whatever computes.
    flop_per_s
        Of the fastest unit, in the dtype it is fastest in: there are products of float32 made of narrower ones. None
        where no rate is stated.
    """

    device: Device
    bytes_per_s: float
    cache_bytes: int
    flop_per_s: float | None

    def least_s(self, cost: Cost, runs: int = 1, rounds: int = 1) -> float:
        """Return seconds that no run takes less of, on the average of ``rounds`` over ``runs`` sets of operands.

        Of the bytes that a round touches, a cache can keep no more than it holds for the next one, whatever it
        replaces, and as much may be there before the first and be written back after the last. What is left passes
        through memory.
        """
        passed = rounds * (runs * cost.least_bytes - self.cache_bytes) - self.cache_bytes
        seconds = max(passed, 0) / self.bytes_per_s / (rounds * runs)
        return max(seconds, self._least_flops_s(cost))

    def _least_flops_s(self, cost: Cost) -> float:
        if self.flop_per_s is None or not cost.least_flops:
            return 0.0
        try:
            peak(cost, self.device)
        except MissingFact:
            # A dtype whose rate nobody states may have a unit of its own.
            return 0.0
        return cost.least_flops / FAST / self.flop_per_s


def roof_of(device: Device) -> Roof:
    """Return the roof of a device. Raises `MissingFact` where nobody states its bandwidth, or a cache."""
    bandwidth = float(device.fact(BANDWIDTH))
    caches = [device.fact(key) for key in CACHES if key in device.facts]
    if not sum(caches):
        raise device.missing(CACHES[0])
    rates = {key: fact for key, fact in device.facts.items() if key.startswith("peak.")}
    share = {key: MEASURED if device.source(key) == "measured" else STATED for key in (BANDWIDTH, *rates)}
    return Roof(
        device=device,
        bytes_per_s=bandwidth / share[BANDWIDTH],
        cache_bytes=sum(caches),
        flop_per_s=max((float(fact.value) / share[key] for key, fact in rates.items()), default=None),
    )
