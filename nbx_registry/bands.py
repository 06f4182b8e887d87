"""Guard bands: bytes around a tensor, and in the gaps of its layout, that no kernel may write, or read for a result."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np

Array = np.ndarray[Any, np.dtype[Any]]

BAND: Final = 4096
"""Bytes of guard band before and after: a multiple of every alignment, and wider than a misplaced tile's row."""

PATTERNS: Final = (0xFF, 0x7B)
"""Bytes that fill bands and gaps: NaN (-1) in every dtype, then large finite numbers."""

POISON: Final = (0xFF, 0x6D)
"""Bytes that outputs and workspace start as: NaN, then large numbers other than a band's."""


@dataclass(frozen=True)
class Damage:
    """Bytes of a buffer that changed and must not have."""

    name: str
    count: int
    offset: int
    """Of the first, in bytes from the tensor's first element; negative before it."""
    extent: int
    """Bytes from the tensor's first element to the end of its last."""

    def __str__(self) -> str:
        where = f"{self.offset} bytes from the first element of its {self.extent}"
        return f"{self.count} byte{'s' if self.count != 1 else ''} of {self.name} changed, the first {where}"


def damage(
    name: str, after: Array, before: Array | int, start: int, end: int, inside: Array | slice | None = None
) -> Damage | None:
    """Return what changed, None where nothing did.

    Parameters
    ----------
    after, before
        Bytes, and what they were (or the one byte that they all were).
    start, end
        Where among them the tensor's first element begins and its last one ends.
    inside
        Which of them may have changed.
    """
    changed = after != before
    if inside is not None:
        changed[inside] = False
    count = int(np.count_nonzero(changed))
    return Damage(name, count, int(np.argmax(changed)) - start, end - start) if count else None
