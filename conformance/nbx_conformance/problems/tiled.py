"""Tiled values: those of tensors too large to be made or kept, as one short block that their memory repeats."""

from __future__ import annotations

import numpy as np

from nbx_conformance.cases.values import Array
from nbx_registry.spec import TensorSpec


class Tiled:
    """Element ``i`` of the tensor's memory holds element ``i mod n`` of a block of ``n``, in gaps of its layout too.

    Parameters
    ----------
    spec
        The tensor's. ``i`` counts from where its buffer starts.
    block
        Dense, of prime length, so that an element taken a power of two, or any number of rows, from its place shows.
    """

    def __init__(self, spec: TensorSpec, block: Array) -> None:
        self.spec = spec
        self.block = block

    def __getitem__(self, index: tuple[slice, ...]) -> Array:
        """Return what slices along the first axes leave, dense."""
        offsets = np.array(self.spec.offset, np.int64)
        for axis, (extent, stride) in enumerate(zip(self.spec.shape, self.spec.strides, strict=True)):
            taken = range(extent)[index[axis]] if axis < len(index) else range(extent)
            offsets = offsets[..., None] + np.array(taken, np.int64) * stride
        offsets %= self.block.size
        return self.block[offsets]


def prime_below(limit: int) -> int:
    """Return the largest prime below ``limit``, which is at least 3."""
    return next(n for n in range(limit - 1, 1, -1) if all(n % d for d in range(2, int(n**0.5) + 1)))


Value = Array | Tiled | bool | int | float
"""What fills a tensor, or stands for one."""
