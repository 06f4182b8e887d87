"""Indexing tensors of any rank and strides: fewer axes on the host, offsets on the device."""

from __future__ import annotations

from collections.abc import Sequence

import triton
import triton.language as tl

NARROW = 2**31
"""Offsets and indices below this are computed in 32 bits."""


def collapse(shape: Sequence[int], *strides: Sequence[int]) -> tuple[tuple[int, ...], ...]:
    """Describe the same elements, in the same order, with as few axes as every operand allows.

    Axes of extent 1 go; neighbours merge where for each operand the outer stride is the inner extent times the inner
    stride. Returns the shape and then each operand's strides. At least one axis is left, of several of extent 1 the
    last: code is made for strides that 16 divides or does not, and one row must look to it as each of many does.
    """
    axes: list[tuple[int, ...]] = []
    for axis in zip(shape, *strides, strict=True):
        extent, *steps = axis
        if extent == 1:
            continue
        if axes and all(outer == extent * step for outer, step in zip(axes[-1][1:], steps, strict=True)):
            axes[-1] = (axes[-1][0] * extent, *steps)
        else:
            axes.append(axis)
    if not axes:
        axes.append((1, *(steps[-1] if shape else 0 for steps in strides)))
    return tuple(zip(*axes, strict=True))


def reach(shape: Sequence[int], strides: Sequence[int]) -> int:
    """Return the largest distance, in elements, between an element and the first one."""
    return sum((extent - 1) * abs(stride) for extent, stride in zip(shape, strides, strict=True))


def broadcast_strides(shape: Sequence[int], strides: Sequence[int], rank: int) -> tuple[int, ...]:
    """Return strides of a tensor broadcast to ``rank`` axes: 0 on the axes it lacks or has with extent 1."""
    own = tuple(0 if extent == 1 else stride for extent, stride in zip(shape, strides, strict=True))
    return (0,) * (rank - len(shape)) + own


@triton.jit
def locate(index, shape, strides):
    """Return the offset of element ``index`` in row-major order; as wide as ``index`` is."""
    offset = index * 0
    rest = index
    for k in tl.static_range(len(shape) - 1):
        # Spelled out: a constexpr variable cannot be assigned again in the next turn of an unrolled loop.
        offset += (rest % shape[len(shape) - 1 - k]) * strides[len(shape) - 1 - k]
        rest = rest // shape[len(shape) - 1 - k]
    return offset + rest * strides[0]


@triton.jit
def program(WIDE: tl.constexpr):
    """Return the program's number, in 64 bits where a product with it may need them."""
    number = tl.program_id(0)
    if WIDE:
        number = number.to(tl.int64)
    return number
