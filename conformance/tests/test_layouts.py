from __future__ import annotations

from random import Random

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from nbx_conformance.cases import layouts
from nbx_conformance.trials.buffers import GuardedBuffer, HostMemory
from nbx_registry.errors import FileError
from nbx_registry.spec import parse

ALL = [
    "contiguous",
    "transposed",
    {"permuted": [1, 2, 0]},
    "offset",
    {"offset": 64},
    "expanded",
    {"expanded": 1},
    "strided",
    {"strided": 3},
    "pitched",
    "prefix",
    "reversed",
]


@pytest.mark.parametrize("layout", ALL, ids=str)
@pytest.mark.parametrize("dtype", ["float16", "float32", "bfloat16", "int8"])
def test_a_layout_keeps_the_values_and_stays_in_its_buffer(layout: layouts.Layout, dtype: str) -> None:
    spec = layouts.apply(parse(f"{dtype}[3, 5, 7]"), layout)
    buffer = GuardedBuffer("x", spec, HostMemory)
    values = np.arange(105).reshape(3, 5, 7)
    if 0 in spec.strides:
        values = np.broadcast_to(values.take([0], spec.strides.index(0)), (3, 5, 7))
    buffer.prepare(values.astype(spec.dtype.numpy), guard=0xFF, poison=0)
    buffer.upload()
    np.testing.assert_array_equal(buffer.operand().astype(np.int64), values.astype(spec.dtype.numpy).astype(np.int64))
    assert buffer.download().damage(elements=True) is None
    assert buffer.address % spec.align == 0


@given(st.lists(st.integers(0, 5), min_size=1, max_size=4), st.sampled_from(layouts.NAMES), st.randoms())
def test_every_element_lies_in_the_span_and_in_a_place_of_its_own(shape: list[int], name: str, random: Random) -> None:
    order = list(range(len(shape)))
    random.shuffle(order)
    assume(len(shape) >= {"transposed": 2, "pitched": 2, "prefix": 3}.get(name, 1))
    spec = layouts.apply(parse(f"int8{shape}"), {"permuted": order} if name == "permuted" else name)
    places = [
        spec.offset + sum(i * step for i, step in zip(index, spec.strides, strict=True))
        for index in np.ndindex(*spec.shape)
    ]
    low, high = layouts.span(spec)
    assert spec.shape == tuple(shape)
    assert len(set(places)) == spec.distinct
    if places:
        assert (min(places), max(places) + 1) == (low, high)
    assert low >= 0


@pytest.mark.parametrize(
    ("layout", "strides", "offset"),
    [
        ("transposed", (15, 1, 5), 0),
        ({"permuted": [2, 0, 1]}, (5, 1, 10), 0),
        ("offset", (15, 3, 1), 3),
        ("strided", (30, 6, 2), 0),
        ("pitched", (40, 8, 1), 0),
        ("prefix", (30, 3, 1), 0),
        ("reversed", (15, 3, -1), 2),
    ],
    ids=str,
)
def test_strides_of_each_layout(layout: layouts.Layout, strides: tuple[int, ...], offset: int) -> None:
    found = layouts.apply(parse("float32[2, 5, 3]"), layout)
    assert (found.strides, found.offset) == (strides, offset)


def test_an_odd_offset_is_not_aligned() -> None:
    assert layouts.apply(parse("float16[8]"), "offset").align == 2
    assert layouts.apply(parse("float32[8]"), {"offset": 4}).align == 16


@pytest.mark.parametrize(
    ("text", "layout", "why"),
    [
        ("float32[3]", "transposed", "2 axes"),
        ("float32[3, 4]", "prefix", "3 axes"),
        ("float32[3, 4]", "transpose", "did you mean 'transposed'"),
        ("float32[3, 4]", {"permuted": [0, 0]}, "no order of the 2 axes"),
        ("float32[3, 4]", {"offset": -1}, "non-negative"),
        ("float32[3, 4]", {"offset": 1, "strided": 2}, "one name"),
    ],
)
def test_a_layout_that_does_not_fit_is_refused_by_name(text: str, layout: layouts.Layout, why: str) -> None:
    with pytest.raises(FileError, match=why):
        layouts.apply(parse(text), layout)
