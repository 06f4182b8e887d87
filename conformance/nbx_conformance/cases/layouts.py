"""Layouts: where a tensor's elements lie inside its buffer. A case names one for each tensor it does not want dense."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

from nbx_registry.errors import FileError, nearest
from nbx_registry.spec import TensorSpec, contiguous_strides

Layout = str | dict[str, object]
"""``transposed``, or a name with its parameter: ``{offset: 5}``, ``{permuted: [0, 2, 1, 3]}``."""

NAMES = ("contiguous", "transposed", "permuted", "offset", "expanded", "strided", "pitched", "prefix", "reversed")

# Odd, so that the first element of a sub-word dtype is aligned to nothing but itself.
DEFAULT_OFFSET = 3
DEFAULT_GAP = 5


def apply(spec: TensorSpec, layout: Layout) -> TensorSpec:
    """Return ``spec`` with the strides, offset and alignment of a layout.

    ======================  =====================================================================
    ``contiguous``          row-major
    ``transposed``          the last two axes swapped in memory
    ``{permuted: [...]}``   memory order of the axes, outermost first
    ``offset``, with ``n``  row-major, from element ``n`` (3) of the buffer; aligned accordingly
    ``expanded``, ``axis``  stride 0 on the first axis longer than 1 (or on ``axis``)
    ``strided``, ``step``   every second (``step``-th) element along the last axis
    ``pitched``, ``gap``    rows that begin 5 (``gap``) elements later than they must
    ``prefix``, ``rows``    the first rows of a larger buffer: 5 (``rows``) more along the axis before the last
    ``reversed``            the last axis runs backwards
    ======================  =====================================================================

    Raises
    ------
    FileError
        For an unknown layout, or one that ``spec`` has too few axes for.
    """
    name, argument = _split(layout)
    shape = spec.shape
    if name == "contiguous":
        return TensorSpec(spec.dtype, shape)
    if name == "transposed":
        _needs(name, shape, 2)
        order = [*range(len(shape) - 2), len(shape) - 1, len(shape) - 2]
        return TensorSpec(spec.dtype, shape, _permuted(shape, order))
    if name == "permuted":
        order = cast("list[int]", argument)
        if not isinstance(argument, list) or sorted(order) != list(range(len(shape))):
            raise FileError(f"layout permuted: {argument!r} is no order of the {len(shape)} axes of {spec}")
        return TensorSpec(spec.dtype, shape, _permuted(shape, order))
    if name == "offset":
        elements = _integer(name, argument, DEFAULT_OFFSET)
        return TensorSpec(spec.dtype, shape, None, elements, alignment(elements * spec.dtype.itemsize))
    if name == "expanded":
        _needs(name, shape, 1)
        first = next((axis for axis, extent in enumerate(shape) if extent > 1), 0)
        axis = _integer(name, argument, first)
        kept = tuple(1 if i == axis else extent for i, extent in enumerate(shape))
        strides = tuple(0 if i == axis else stride for i, stride in enumerate(contiguous_strides(kept)))
        return TensorSpec(spec.dtype, shape, strides)
    if name == "strided":
        _needs(name, shape, 1)
        step = _integer(name, argument, 2)
        padded = (*shape[:-1], shape[-1] * step)
        strides = contiguous_strides(padded)
        return TensorSpec(spec.dtype, shape, (*strides[:-1], step))
    if name == "pitched":
        _needs(name, shape, 2)
        padded = (*shape[:-1], shape[-1] + _integer(name, argument, DEFAULT_GAP))
        return TensorSpec(spec.dtype, shape, contiguous_strides(padded))
    if name == "prefix":
        _needs(name, shape, 3)
        rows = _integer(name, argument, DEFAULT_GAP)
        padded = (*shape[:-2], shape[-2] + rows, shape[-1])
        return TensorSpec(spec.dtype, shape, contiguous_strides(padded))
    if name == "reversed":
        _needs(name, shape, 1)
        strides = contiguous_strides(shape)
        offset = max(shape[-1] - 1, 0)
        return TensorSpec(
            spec.dtype, shape, (*strides[:-1], -strides[-1]), offset, alignment(offset * spec.dtype.itemsize)
        )
    raise FileError(f"unknown layout {name!r}{nearest(name, NAMES)}; known: {', '.join(NAMES)}")


def alignment(nbytes: int) -> int:
    """Return the largest power of two, at most 16, that divides ``nbytes``."""
    return min(nbytes & -nbytes, 16) if nbytes else 16


def span(spec: TensorSpec) -> tuple[int, int]:
    """Return the first element a spec reaches and one past the last, from its buffer's start (equal when empty)."""
    if spec.size == 0:
        return spec.offset, spec.offset
    steps = [(extent - 1) * stride for extent, stride in zip(spec.shape, spec.strides, strict=True)]
    return spec.offset + sum(min(s, 0) for s in steps), spec.offset + sum(max(s, 0) for s in steps) + 1


def _split(layout: object) -> tuple[str, object]:
    if isinstance(layout, str):
        return layout, None
    if isinstance(layout, dict) and len(cast("dict[str, object]", layout)) == 1:
        return next(iter(cast("dict[str, object]", layout).items()))
    raise FileError(f"layout {layout!r} must be a name, or one name with its parameter")


def _permuted(shape: tuple[int, ...], order: Sequence[int]) -> tuple[int, ...]:
    memory = contiguous_strides(tuple(shape[axis] for axis in order))
    strides = [0] * len(shape)
    for stride, axis in zip(memory, order, strict=True):
        strides[axis] = stride
    return tuple(strides)


def _needs(name: str, shape: tuple[int, ...], rank: int) -> None:
    if len(shape) < rank:
        raise FileError(f"layout {name!r} needs {rank} axes; the tensor has shape {list(shape)}")


def _integer(name: str, argument: object, default: int) -> int:
    if argument is None:
        return default
    if isinstance(argument, int) and not isinstance(argument, bool) and 0 <= argument < 2**40:
        return argument
    raise FileError(f"layout {name!r} takes a non-negative integer, not {argument!r}")
