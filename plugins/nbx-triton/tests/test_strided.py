"""Merging axes keeps the elements and their order."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from nbx_triton.kernels.strided import broadcast_strides, collapse, reach

SHAPES = st.lists(st.integers(1, 4), max_size=5).map(tuple)


def offsets(shape: tuple[int, ...], strides: tuple[int, ...]) -> list[int]:
    return [sum(i * s for i, s in zip(index, strides, strict=True)) for index in np.ndindex(shape)]


@given(shape=SHAPES, data=st.data())
def test_collapse_keeps_every_offset(shape: tuple[int, ...], data: st.DataObject) -> None:
    order = data.draw(st.permutations(range(len(shape))))
    base = np.empty([shape[axis] for axis in order], np.int8).transpose(np.argsort(order))
    other = tuple(data.draw(st.sampled_from((0, 1, -3))) for _ in shape)
    merged, first, second = collapse(shape, base.strides, other)
    assert offsets(merged, first) == offsets(shape, base.strides)
    assert offsets(merged, second) == offsets(shape, other)


def test_a_contiguous_tensor_is_one_axis() -> None:
    assert collapse((3, 1, 65, 7), (455, 455, 7, 1)) == ((1365,), (1,))


def test_a_transposed_operand_keeps_two_axes() -> None:
    assert collapse((63, 65), (65, 1), (1, 63)) == ((63, 65), (65, 1), (1, 63))


def test_no_axes_become_one_of_extent_1() -> None:
    assert collapse((), ()) == ((1,), (0,))
    assert collapse((1, 1), (5, 9)) == ((1,), (9,))


def test_one_row_has_the_stride_that_each_of_many_has():
    assert collapse((1,), (63,), (64,)) == ((1,), (63,), (64,))


def test_reach_of_negative_strides_is_a_distance() -> None:
    assert reach((3, 65), (-65, 1)) == 2 * 65 + 64


def test_broadcast_axes_have_stride_0() -> None:
    assert broadcast_strides((1, 7), (7, 1), 3) == (0, 0, 1)
