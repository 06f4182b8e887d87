"""Memory that a candidate is checked in: guard bands around it show what was written beside it."""

from __future__ import annotations

from typing import Final

import numpy as np

from nbx_registry.bands import BAND, Damage, damage
from nbx_registry.bands import POISON as NAN_AND_LARGE
from nbx_registry.runtime import Runtime, Stream

POISON: Final = (*NAN_AND_LARGE, 0xED)
"""Bytes that outputs and workspace start as, by turns: NaN, large numbers, and large negative ones, which are to a
minimum what the others are to a maximum."""


class Banded:
    """Memory of a runtime with a band before and after it; a `nbx_registry.runtime.Buffer` of what lies between.

    Attributes
    ----------
    name : str
        What it is told as.
    """

    def __init__(self, runtime: Runtime, device: int, name: str, nbytes: int, stream: Stream) -> None:
        # An empty tensor's own bytes are no band's: an address in it is one of this memory too.
        self._inner = max(nbytes, 1)
        self._whole = runtime.allocate(device, BAND + self._inner + BAND, stream)
        self._runtime = runtime
        self._stream = stream
        self._pattern = 0
        self._bands = (self._whole.address, self._whole.address + BAND + self._inner)
        self.name = name
        self.device = device
        self.nbytes = nbytes
        self.address = self._whole.address + BAND

    def guard(self, pattern: int) -> None:
        """Fill the bands with a byte, in stream order."""
        self._pattern = pattern
        for address in self._bands:
            self._runtime.fill(self.device, address, pattern, BAND, self._stream)

    def astray(self) -> Damage | None:
        """Return what of the bands was written since `guard`, once the stream got there."""
        found = np.empty(2 * BAND, np.uint8)
        for place, address in enumerate(self._bands):
            self._runtime.copy_out(self.device, found[place * BAND : (place + 1) * BAND], address, self._stream)
        told = damage(self.name, found, self._pattern, BAND, BAND)
        if told is None:
            return None
        # The bytes between the bands were not looked at.
        behind = self._inner if told.offset >= 0 else 0
        return Damage(self.name, told.count, told.offset + behind, self.nbytes)
