"""Sorting: topk, on unsigned integers in the order that the contract asks for, ties by index."""

from __future__ import annotations

import numpy as np

from nbx_registry.dtypes import DType
from nbx_registry.host.kernels.blocks import BLOCK, Array, as_matrices, working
from nbx_registry.launch import BindContext, Launch

LONG_ROW = 4096
"""From so many elements on a row is first thinned out to those that can be among its best."""
GROUPS_PER_RESULT = 4
"""Into so many groups for each wanted element a long row is cut: the k-th best of the groups' bests is no worse."""


def topk(context: BindContext) -> Launch:
    """Bind topk along an axis: some rows at a time, long ones one by one."""
    signature = context.signature
    (x,) = signature.operands
    k, largest = signature.attributes["k"], signature.attributes["largest"]
    extent = signature.axes["L"]
    axis = signature.attributes["axis"] % max(x.rank, 1)
    # With the axis last.
    order = (*(a for a in range(x.rank) if a != axis), axis)
    turned = order != tuple(range(x.rank))
    thinned = extent >= LONG_ROW and GROUPS_PER_RESULT**2 * k <= extent
    step = 1 if thinned else max(1, BLOCK // max(extent, 1))

    def run(array: Array, values: Array, indices: Array) -> None:
        if values.size == 0:
            return
        given = (array, values, indices)
        if turned:
            given = tuple(a.transpose(order) for a in given)
        elif array.ndim == 1:
            given = tuple(a[None] for a in given)
        for source, target, where in as_matrices(*given):
            for start in range(0, len(source), step):
                part = source[start : start + step]
                keys = sort_keys(part, x.dtype, largest)
                found = thinned_out(keys[0], k) if thinned else first_places(keys, k)
                where[start : start + step] = found
                if len(part) == 1:
                    target[start] = part[0].take(found)
                else:
                    target[start : start + step] = part[np.arange(len(part))[:, None], found]

    return Launch(function=run, args=signature.names)


def sort_keys(x: Array, dtype: DType, descending: bool) -> Array:
    """Return unsigned integers that ascend as the elements are wanted: NaN above all numbers, zeros equal."""
    if dtype.kind == "float":
        wide = np.empty(x.shape, working(dtype))
        # The sum of -0 and 0 is 0.
        np.add(x, wide.dtype.type(0), wide, casting="unsafe")
        bits = wide.view(f"i{wide.itemsize}")
        last = 8 * wide.itemsize - 1
        # The bits of numbers are their order, but for those below zero, whose order they are backwards.
        unsigned = bits.view(f"u{wide.itemsize}")
        flips = (bits >> last).view(unsigned.dtype) | unsigned.dtype.type(1 << last)
        keys = np.bitwise_xor(unsigned, flips, out=flips)
        none = np.isnan(wide)
        if np.count_nonzero(none):
            keys[none] = np.iinfo(keys.dtype).max
    elif dtype.bits == 64:
        keys = np.array(x).view(np.uint64)
        if dtype.kind == "int":
            keys ^= np.uint64(1 << 63)
    else:
        wide = x.astype(np.int64)
        keys = (wide + (1 << 31) if dtype.kind == "int" else wide).astype(np.uint32)
    return np.invert(keys, out=keys) if descending else keys


def first_places(keys: Array, k: int) -> Array:
    """Return where the k least keys of each row are, ascending; of equal ones the first come first."""
    if keys.dtype.itemsize == 8:
        worst = np.partition(keys, k - 1, -1)[:, k - 1 : k]
        chosen = keys <= worst
        if np.count_nonzero(chosen) > k * len(keys):
            # Of those equal to the worst only the first are wanted.
            equal = keys == worst
            better = np.count_nonzero(keys < worst, -1)[:, None]
            chosen &= ~equal | (np.cumsum(equal, -1) <= k - better)
        places = np.nonzero(chosen)[1].reshape(-1, k)
        order = np.argsort(np.take_along_axis(keys, places, -1), -1, kind="stable")
        return np.take_along_axis(places, order, -1)
    # The index behind the key makes all of them differ.
    packed = keys.astype(np.uint64)
    packed <<= np.uint64(32)
    packed |= np.arange(keys.shape[1], dtype=np.uint64)
    if k < keys.shape[1]:
        packed = np.partition(packed, k - 1, -1)[:, :k]
    packed.sort(-1)
    packed &= np.uint64(0xFFFFFFFF)
    return packed


def thinned_out(keys: Array, k: int) -> Array:
    """Return the same for one long row: k groups have a least key, and so an element, no greater than the bound."""
    groups = GROUPS_PER_RESULT * k
    width = len(keys) // groups
    least = np.minimum.reduce(keys[: groups * width].reshape(groups, width), -1)
    bound = np.partition(least, k - 1)[k - 1]
    candidates = np.flatnonzero(keys <= bound)
    return candidates[np.argsort(keys[candidates], kind="stable")[:k]]
