"""Views: the same elements under another shape, where strides allow it. Plain arithmetic on shapes and strides."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from math import prod
from typing import Any, NamedTuple, cast

from nbx_registry.errors import SignatureError
from nbx_registry.spec import contiguous_strides


class Layout(NamedTuple):
    """Where elements lie: shape, strides and offset, in elements."""

    shape: tuple[int, ...]
    strides: tuple[int, ...]
    offset: int


def reshape(shape: Sequence[int], strides: Sequence[int], target: Sequence[int]) -> tuple[int, ...] | None:
    """Return the strides under which the elements have shape ``target``; None if no strides do (ATen's rule).

    Axes are grouped where each continues the next (``stride == next stride * next extent``); a view exists if the
    extents of ``target`` divide up group by group. ``target`` has as many elements, and no -1.
    """
    if prod(shape) == 0:
        return tuple(strides) if tuple(shape) == tuple(target) else contiguous_strides(tuple(target))
    result: list[int] = []
    place = len(target) - 1
    held, covered = 1, 1
    base = strides[-1] if shape else 1
    for axis in reversed(range(len(shape))):
        held *= shape[axis]
        # A group ends where the next axis out does not continue this one.
        if axis == 0 or (shape[axis - 1] != 1 and strides[axis - 1] != held * base):
            while place >= 0 and (covered < held or target[place] == 1):
                result.append(covered * base)
                covered *= target[place]
                place -= 1
            if covered != held:
                return None
            if axis > 0:
                base = strides[axis - 1]
                held, covered = 1, 1
    if not shape:
        result = [1] * len(target)
    elif place != -1:
        return None
    return tuple(reversed(result))


def resolve(target: Sequence[int], size: int) -> tuple[int, ...]:
    """Fill in one -1 of a target shape. Raises `SignatureError` if it does not hold ``size`` elements."""
    unknown = [axis for axis, extent in enumerate(target) if extent == -1]
    known = prod(extent for extent in target if extent != -1)
    if len(unknown) > 1 or any(extent < -1 for extent in target):
        raise SignatureError(f"shape {tuple(target)} is no shape: at most one extent is -1, the others at least 0")
    if unknown and known and size % known == 0:
        return tuple(size // known if extent == -1 else extent for extent in target)
    if unknown or known != size:
        raise SignatureError(f"{size} elements do not have shape {tuple(target)}")
    return tuple(target)


def permute(shape: Sequence[int], strides: Sequence[int], axes: Sequence[int]) -> Layout:
    """Reorder axes: axis i of the result is axis ``axes[i]``. Raises `SignatureError` unless each comes once."""
    rank = len(shape)
    if any(not -rank <= axis < rank for axis in axes) or sorted(axis % rank for axis in axes) != list(range(rank)):
        raise SignatureError(f"axes {tuple(axes)} are no permutation of the {rank} axes of shape {tuple(shape)}")
    return Layout(tuple(shape[axis] for axis in axes), tuple(strides[axis] for axis in axes), 0)


def expand(shape: Sequence[int], strides: Sequence[int], target: Sequence[int]) -> Layout:
    """Repeat axes of extent 1, and add leading ones, with stride 0; -1 keeps an axis as it is.

    Raises `SignatureError` naming the axis.
    """
    lead = len(target) - len(shape)
    if lead < 0:
        raise SignatureError(f"shape {tuple(shape)} has more axes than {tuple(target)}: nothing can be expanded away")
    extents, result = list(target), [0] * len(target)
    for axis in range(lead):
        if target[axis] < 0:
            raise SignatureError(f"shape {tuple(shape)} does not expand to {tuple(target)}: axis {axis} is new")
    for axis, (extent, step) in enumerate(zip(shape, strides, strict=True), lead):
        if target[axis] in (-1, extent):
            extents[axis], result[axis] = extent, step
        elif extent != 1 or target[axis] < 0:
            raise SignatureError(f"shape {tuple(shape)} does not expand to {tuple(target)}: axis {axis} has {extent}")
    return Layout(tuple(extents), tuple(result), 0)


def index(shape: Sequence[int], strides: Sequence[int], item: Any) -> Layout:
    """Apply integers, slices, ``...`` and None, as NumPy reads them.

    Raises
    ------
    IndexError
        For an integer out of range or too many indices, as Python's iteration expects.
    SignatureError
        For a step below 1 (no tensor here has negative strides), or an array as an index (which is a copy).
    """
    items: list[Any] = [*cast("tuple[Any, ...]", item)] if isinstance(item, tuple) else [item]
    used = sum(1 for entry in items if entry is not None and entry is not Ellipsis)
    if used > len(shape):
        raise IndexError(f"{used} indices for the {len(shape)} axes of shape {tuple(shape)}")
    if sum(1 for entry in items if entry is Ellipsis) > 1:
        raise IndexError("an index has at most one '...'")
    if not any(entry is Ellipsis for entry in items):
        items.append(Ellipsis)
    where = next(place for place, entry in enumerate(items) if entry is Ellipsis)
    items[where : where + 1] = [slice(None)] * (len(shape) - used)
    new_shape: list[int] = []
    new_strides: list[int] = []
    offset = 0
    axis = 0
    for entry in items:
        if entry is None:
            new_shape.append(1)
            new_strides.append(0)
            continue
        extent, step = shape[axis], strides[axis]
        axis += 1
        if isinstance(entry, slice):
            start, stop, stride = entry.indices(extent)
            if stride < 1:
                raise SignatureError(f"a slice of step {stride} is no view here: strides are never negative")
            count = len(range(start, stop, stride))
            new_shape.append(count)
            new_strides.append(step * stride)
            offset += start * step if count else 0
        else:
            position = _position(entry)
            if not -extent <= position < extent:
                raise IndexError(f"index {position} is out of range for axis {axis - 1} of extent {extent}")
            offset += position % extent * step
    return Layout(tuple(new_shape), tuple(new_strides), offset)


def whole_bytes(shape: Sequence[int], strides: Sequence[int], part: Layout, per: int) -> bool:
    """Whether ``part`` takes whole bytes of a tensor that has ``per`` elements in one, or all that it has in them.

    The tensor itself begins a byte. Where neither its rows nor its elements begin bytes of their own, only runs of its
    elements in their order in memory are seen to be whole.
    """
    own = [(s, n) for n, s in zip(shape, strides, strict=True) if n > 1 and s]
    taken = [(s, n) for n, s in zip(part.shape, part.strides, strict=True) if n > 1 and s]
    if prod(part.shape) == 0:
        return True
    if part.offset % per:
        return False
    reach = 1 + sum((n - 1) * s for s, n in taken)
    if prod(n for _, n in taken) == reach:
        end = part.offset + reach
        return end % per == 0 or end == 1 + sum((n - 1) * s for s, n in own)
    if any(step % per for step, _ in (*own, *taken) if step != 1):
        return False
    full = max((n for step, n in own if step == 1), default=1)
    row = max((n for step, n in taken if step == 1), default=1)
    return row == full or row % per == 0


def _position(entry: Any) -> int:
    try:
        if not isinstance(entry, bool):
            return operator.index(entry)
    except TypeError:
        pass
    raise SignatureError(f"{entry!r} is no index of a view; integers, slices, ... and None are")
