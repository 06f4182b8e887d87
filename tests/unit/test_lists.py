"""Ops that take lists of tensors, called: concat with arrays of any library, however many, and into ``out=``."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
import torch

import nbx_registry as nbx
from nbx_registry.errors import Refused, SignatureError
from nbx_registry.registry import set_default


@pytest.fixture(scope="module")
def reg() -> Iterator[nbx.Registry]:
    made = nbx.load(require="any")
    before = set_default(made)
    yield made
    set_default(before)


A = np.arange(6, dtype=np.float32).reshape(2, 3)
B = -np.arange(12, dtype=np.float32).reshape(4, 3)


def test_a_list_or_a_tuple_by_position_or_keyword(reg: nbx.Registry) -> None:
    expected = np.concatenate([A, B])
    for found in (reg.call("concat", [A, B]), reg.call("concat", (A, B)), reg.call("concat", arrays=[A, B], axis=-2)):
        np.testing.assert_array_equal(found, expected)
    np.testing.assert_array_equal(reg.call("concat", [A]), A)
    assert not np.shares_memory(reg.call("concat", [A]), A)


@pytest.mark.parametrize("count", [1, 2, 65, 300])
def test_any_number_of_tensors(reg: nbx.Registry, count: int) -> None:
    arrays = [np.full((3, 1 + n % 2), n, np.float32) for n in range(count)]
    for _ in range(2):
        np.testing.assert_array_equal(reg.call("concat", arrays, axis=1), np.concatenate(arrays, 1))
    tensors = [torch.from_numpy(x) for x in arrays]
    assert torch.equal(reg.call("concat", tensors, axis=1), torch.cat(tensors, 1))
    bound = reg.bind("concat", arrays, axis=1)
    np.testing.assert_array_equal(bound(), np.concatenate(arrays, 1))


def test_the_same_lists_with_other_contents_lengths_and_shapes(reg: nbx.Registry) -> None:
    for arrays in ([A, B], [B, A], [A, A, B], [A], [A[:1], B[::2]], [A.astype(np.float16), B], [A + 1, B]):
        np.testing.assert_array_equal(reg.call("concat", arrays), np.concatenate(arrays))


def test_the_first_tensor_says_in_which_library_the_result_is(reg: nbx.Registry) -> None:
    a, b = torch.from_numpy(A), torch.from_numpy(B)
    whole = np.concatenate([A, B])
    for arrays, kind in (([a, b], torch.Tensor), ([a, B], torch.Tensor), ([A, b], np.ndarray)):
        found = reg.call("concat", arrays)
        assert type(found) is kind
        np.testing.assert_array_equal(np.asarray(found), whole)
    found = reg.call("concat", [nbx.asarray(A), nbx.asarray(B)])
    assert isinstance(found, nbx.Tensor)
    np.testing.assert_array_equal(found.numpy(), whole)


def test_dtypes_promote_across_libraries(reg: nbx.Registry) -> None:
    halves = torch.from_numpy(A).to(torch.bfloat16)
    found = reg.call("concat", [halves, B])
    assert found.dtype is torch.float32
    assert torch.equal(found, torch.cat([halves.float(), torch.from_numpy(B)]))


def test_into_a_given_output(reg: nbx.Registry) -> None:
    out = np.empty((6, 6), np.float32)[:, ::2]
    assert reg.call("concat", [A, B], out=out) is out
    np.testing.assert_array_equal(out, np.concatenate([A, B]))
    torch_out = torch.empty(6, 3)
    assert reg.call("concat", [A, B], out=torch_out) is torch_out
    np.testing.assert_array_equal(torch_out.numpy(), np.concatenate([A, B]))
    with pytest.raises(SignatureError, match=r"out= is float32\[6, 4\]"):
        reg.call("concat", [A, B], out=np.empty((6, 4), np.float32))
    room = np.zeros((6, 3), np.float32)
    with pytest.raises(Refused, match=r"'out' .* shares memory with 'arrays\.1'"):
        reg.call("concat", [A, room[2:]], out=room)
    assert not room.any()


@pytest.mark.parametrize(
    ("arrays", "words"),
    [
        ([], "at least one tensor"),
        (A, "takes a list of at least one tensor"),
        ([A, 2.0], "arrays is a Python float; only arrays"),
        ([A, None], "takes a list of at least one tensor"),
        ([A, [1.0, 2.0]], r"arrays\.1 is a list, and no array"),
        ([A, torch.ones(4, 3, requires_grad=True)], "requires grad"),
    ],
)
def test_what_is_no_list_of_tensors_is_refused(reg: nbx.Registry, arrays: object, words: str) -> None:
    with pytest.raises(SignatureError, match=words):
        reg.call("concat", arrays)
    assert reg.call("concat", [A, A]).shape == (4, 3)


def test_a_list_is_decided_and_priced_from_specs(reg: nbx.Registry) -> None:
    specs = ["float32[2, 3]", "float16[4, 3]"]
    assert reg.decide("concat", specs).chosen == "nbx-host/concat/numpy"
    priced = reg.price("concat", specs, device="nvidia/h200-sxm")
    assert (priced.bytes_read, priced.bytes_written) == (48, 72)
