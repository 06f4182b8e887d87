"""Views by ATen's rule, compared with ATen."""

from collections.abc import Sequence

import hypothesis.strategies as st
import numpy as np
import pytest
import torch
from hypothesis import given

from nbx_registry import views
from nbx_registry.errors import SignatureError
from nbx_registry.spec import TensorSpec


@st.composite
def strided(draw: st.DrawFn) -> torch.Tensor:
    """A torch view: a dense tensor, permuted, sliced, expanded."""
    shape = draw(st.lists(st.sampled_from([0, 1, 1, 2, 3, 4, 6]), max_size=4))
    x = torch.arange(int(np.prod(shape))).reshape(shape)
    if shape:
        x = x.permute(draw(st.permutations(range(len(shape)))))
        axis = draw(st.integers(0, len(shape) - 1))
        x = x.narrow(axis, 0, draw(st.integers(0, x.shape[axis])))
        if draw(st.booleans()) and x.shape[axis] == 1:
            x = x.expand(*x.shape[:axis], 3, *x.shape[axis + 1 :])
    return x


@st.composite
def with_target(draw: st.DrawFn) -> tuple[torch.Tensor, tuple[int, ...]]:
    x = draw(strided())
    left, target = x.numel(), []
    if left == 0:
        return x, tuple(draw(st.permutations([0, *draw(st.lists(st.integers(1, 3), max_size=2))])))
    while left > 1 or draw(st.booleans()):
        divisors = [d for d in range(1, left + 1) if left % d == 0]
        target.append(draw(st.sampled_from(divisors)))
        left //= target[-1]
        if len(target) > 6:
            target.append(left)
            break
    return x, tuple(target)


def steps(shape: Sequence[int], strides: Sequence[int]) -> list[int]:
    """The strides that move something."""
    return [step for extent, step in zip(shape, strides, strict=True) if extent > 1]


@given(with_target())
def test_a_reshaped_view_exists_where_aten_has_one(case: tuple[torch.Tensor, tuple[int, ...]]) -> None:
    x, target = case
    try:
        expected = x.view(target)
    except RuntimeError:
        expected = None
    found = views.reshape(tuple(x.shape), x.stride(), target)
    assert (found is None) == (expected is None)
    if expected is not None and found is not None:
        assert torch.equal(x.as_strided(target, found), expected)
        if x.numel():
            assert steps(target, found) == steps(target, expected.stride())


def test_a_contiguous_tensor_has_every_shape() -> None:
    assert views.reshape((2, 3, 4), (12, 4, 1), (4, 6)) == (6, 1)
    assert views.reshape((2, 3, 4), (12, 4, 1), (24,)) == (1,)
    assert views.reshape((), (), (1, 1)) == (1, 1)
    assert views.reshape((1,), (1,), ()) == ()
    assert views.reshape((3, 2), (1, 3), (6,)) is None


@pytest.mark.parametrize(("target", "resolved"), [((4, -1), (4, 6)), ((-1,), (24,)), ((2, 12), (2, 12))])
def test_one_extent_is_filled_in(target: tuple[int, ...], resolved: tuple[int, ...]) -> None:
    assert views.resolve(target, 24) == resolved


@pytest.mark.parametrize("target", [(5, -1), (-1, -1), (5,), (-2, 12), (0, -1)])
def test_impossible_shapes_are_refused(target: tuple[int, ...]) -> None:
    with pytest.raises(SignatureError, match="shape"):
        views.resolve(target, 24)


@given(strided(), st.data())
def test_indexing_is_numpys(x: torch.Tensor, data: st.DataObject) -> None:
    items: list[object] = []
    for extent in x.shape:
        kind = data.draw(st.sampled_from(["integer", "slice", "none", "stop"] if extent else ["slice", "none", "stop"]))
        if kind == "stop":
            break
        if kind == "none":
            items += [None, slice(None)]
        elif kind == "integer":
            items.append(data.draw(st.integers(-extent, extent - 1)))
        else:
            ends = st.none() | st.integers(-5, 7)
            items.append(slice(data.draw(ends), data.draw(ends), data.draw(st.none() | st.integers(1, 3))))
    if data.draw(st.booleans()):
        items.append(Ellipsis)
    item = tuple(items)
    layout = views.index(tuple(x.shape), x.stride(), item)
    expected = x.numpy()[item]
    assert layout.shape == expected.shape
    assert np.array_equal(torch.as_strided(x, layout.shape, layout.strides, layout.offset).numpy(), expected)


def test_indices_out_of_range_end_an_iteration() -> None:
    for item in (3, -4, (0, 0, 0), (..., ...)):
        with pytest.raises(IndexError):
            views.index((3, 2), (2, 1), item)


@pytest.mark.parametrize("item", [slice(None, None, -1), [0, 1], np.array([0]), True, "a"], ids=repr)
def test_indices_that_are_no_views_are_refused(item: object) -> None:
    with pytest.raises(SignatureError, match=r"no view|no index"):
        views.index((3, 2), (2, 1), item)


def test_expanding_repeats_at_stride_0() -> None:
    assert views.expand((3, 1), (1, 1), (2, 3, 4)) == ((2, 3, 4), (0, 1, 0), 0)
    assert views.expand((3, 1), (1, 1), (2, -1, 4)) == ((2, 3, 4), (0, 1, 0), 0)
    assert views.expand((3, 1), (1, 1), (-1, -1)) == ((3, 1), (1, 1), 0)
    for target in ((2, 4), (3,), (3, -2), (-1, 3, 1), (4, -1)):
        with pytest.raises(SignatureError, match="expand"):
            views.expand((3, 1), (1, 1), target)


@given(strided(), st.data())
def test_expanding_is_torchs(x: torch.Tensor, data: st.DataObject) -> None:
    # torch takes -1 for a new axis of a tensor without elements, and makes an extent of it.
    lead = data.draw(st.lists(st.sampled_from([0, 1, 3]), max_size=2))
    target = [*lead, *(data.draw(st.sampled_from([-1, -1, extent, 1, 2, 3])) for extent in x.shape)]
    try:
        expected = x.expand(target)
    except RuntimeError:
        with pytest.raises(SignatureError, match="expand"):
            views.expand(tuple(x.shape), x.stride(), target)
    else:
        layout = views.expand(tuple(x.shape), x.stride(), target)
        assert layout.shape == tuple(expected.shape)
        assert torch.equal(x.as_strided(layout.shape, layout.strides), expected)
        assert not any(steps(layout.shape[: len(lead)], layout.strides[: len(lead)]))


@given(strided(), st.data())
def test_permuting_is_torchs(x: torch.Tensor, data: st.DataObject) -> None:
    axes = data.draw(st.permutations(range(x.ndim)))
    axes = [axis - x.ndim if data.draw(st.booleans()) else axis for axis in axes]
    layout = views.permute(tuple(x.shape), x.stride(), axes)
    expected = x.permute(axes)
    assert (layout.shape, layout.strides, layout.offset) == (tuple(expected.shape), expected.stride(), 0)


def test_a_step_back_is_no_view_as_in_torch() -> None:
    x = torch.arange(6)
    with pytest.raises(ValueError, match="step must be greater than zero"):
        x[::-1]
    with pytest.raises(SignatureError, match="slice of step -1 is no view here"):
        views.index((6,), (1,), slice(None, None, -1))


def test_permuting_takes_each_axis_once() -> None:
    assert views.permute((2, 3, 4), (12, 4, 1), (2, 0, -2)) == ((4, 2, 3), (1, 12, 4), 0)
    for axes in ((0, 1), (0, 0, 1), (0, 1, 3)):
        with pytest.raises(SignatureError, match="no permutation"):
            views.permute((2, 3, 4), (12, 4, 1), axes)


def test_a_view_is_contiguous_when_its_spec_says_so() -> None:
    strides = views.reshape((4, 6), (6, 1), (2, 2, 6))
    assert TensorSpec(None, (2, 2, 6), strides).contiguous  # type: ignore[arg-type]
