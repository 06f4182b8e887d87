"""What depends on values: exponents below zero, and Python integers that no dtype holds, are refused by name."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import nbx_registry as nbx
import nbx_simulated.plugin
from nbx_registry.registry import set_default

Put = Callable[[np.ndarray], Any]


@pytest.fixture(scope="module")
def reg() -> Iterator[nbx.Registry]:
    loaded = nbx.load(plugins=[nbx_simulated.plugin], require="any")
    before = set_default(loaded)
    yield loaded
    set_default(before)


def tensor(x: np.ndarray, place: str) -> Any:
    return x if place == "numpy" else nbx.asarray(x, device=place)


def array(x: Any) -> np.ndarray:
    return x if isinstance(x, np.ndarray) else x.numpy()


@pytest.mark.parametrize("place", ["numpy", "cpu", "sim:0"])
def test_a_negative_python_exponent_of_integers_is_refused_everywhere(reg: nbx.Registry, place: str) -> None:
    x = tensor(np.array([2, 3, -5], np.int32), place)
    for _ in range(2):
        assert array(reg.call("pow", x, 3)).tolist() == [8, 27, -125]
        with pytest.raises(nbx.SignatureError, match="pow: e holds -2, below 0; nothing was written"):
            reg.call("pow", x, -2)
    np.testing.assert_allclose(array(reg.call("pow", tensor(np.array([2.0, 4.0]), place), -2)), [0.25, 0.0625])


@pytest.mark.parametrize("place", ["numpy", "cpu"])
@pytest.mark.parametrize("dtype", ["int8", "int64"])
def test_negative_exponents_on_the_host_are_refused(reg: nbx.Registry, place: str, dtype: str) -> None:
    x, good, bad = (np.array(each, dtype) for each in ([2, 3], [0, 4], [0, -1]))
    out = np.full(2, 77, dtype)
    assert array(reg.call("pow", tensor(x, place), tensor(good, place))).tolist() == [1, 81]
    with pytest.raises(nbx.SignatureError, match="e holds -1, below 0"):
        reg.call("pow", x, bad, out=out)
    assert out.tolist() == [77, 77]
    with pytest.raises(nbx.SignatureError, match="e holds -1, below 0"):
        reg.call("pow", 2, tensor(bad, place))
    bound = reg.bind("pow", x, good, out=out)
    bound()
    assert out.tolist() == [1, 81]
    good[1] = -4
    with pytest.raises(nbx.SignatureError, match="e holds -4, below 0"):
        bound()
    assert reg.call("pow", np.zeros(0, dtype), np.zeros(0, dtype)).shape == (0,)


def test_integers_of_four_bits_are_looked_at_too(reg: nbx.Registry) -> None:
    x = nbx.asarray(np.array([2, 3], np.int8), dtype="int4")
    with pytest.raises(nbx.SignatureError, match="e holds -1, below 0"):
        reg.call("pow", x, nbx.asarray(np.array([1, -1], np.int8), dtype="int4"))


@pytest.mark.parametrize("place", ["numpy", "cpu", "sim:0"])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float64"])
def test_an_integer_beyond_float64_is_refused_and_one_within_rounds(reg: nbx.Registry, place: str, dtype: str) -> None:
    if place == "numpy" and dtype == "bfloat16":
        place = "cpu"
    x = tensor(np.array([1.0, -0.5], np.float64 if dtype == "float64" else np.float32), place)
    if dtype == "bfloat16":
        x = nbx.asarray(np.array([1.0, -0.5], np.float32), dtype="bfloat16", device=place)
    largest = 2**1024 - 2**970 - 1
    for good in (10**300, largest, -largest):
        found = array(reg.call("multiply", x, good)).astype(np.float64)
        np.testing.assert_array_equal(np.isinf(found), np.full(2, dtype != "float64"))
    for bad, told in ((2**1024 - 2**970, "of 1024 bits"), (-(10**5000), "of 16610 bits")):
        for _ in range(2):
            with pytest.raises(nbx.SignatureError, match=f"the Python integer {told} is outside the range of {dtype}"):
                reg.call("multiply", x, bad)


def test_an_integer_beyond_float64_beside_a_scalar_of_numpy(reg: nbx.Registry) -> None:
    with pytest.raises(nbx.SignatureError, match="of 1329 bits is outside the range of float32"):
        reg.call("add", np.float32(2), 10**400)
    for op in ("pow", "maximum", "where", "clip"):
        x = np.ones(3, np.float32)
        args = (np.ones(3, bool), x) if op == "where" else (x,)
        with pytest.raises(nbx.SignatureError, match="of 1329 bits is outside the range of float32"):
            reg.call(op, *args, 10**400)


# Memory that is shared ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("place", ["numpy", "cpu", "sim:0"])
def test_what_is_written_may_lie_between_what_is_read(reg: nbx.Registry, place: str) -> None:
    buffer = tensor(np.arange(127, dtype=np.float32), place)
    x, out = buffer[:126:2], buffer[1:127:2]
    for _ in range(2):
        assert reg.call("multiply", x, 2, out=out) is out
        np.testing.assert_array_equal(array(out), np.arange(0, 252, 4))
        np.testing.assert_array_equal(array(x), np.arange(0, 126, 2))
    rows = tensor(np.arange(63 * 10, dtype=np.float32), place)
    wide = rows.reshape((63, 10))
    reg.call("multiply", wide[:, :5], 2, out=wide[:, 5:])
    np.testing.assert_array_equal(array(wide)[:, 5:], 2 * array(wide)[:, :5])


def test_a_byte_that_is_shared_is_refused_however_sparse_the_views(reg: nbx.Registry) -> None:
    wide, eye = np.zeros((63, 10), np.float32), np.eye(5, dtype=np.float32)
    reg.call("matmul", wide[:, :5], eye, out=wide[:, 5:])
    reg.call("matmul", wide[:, ::2], eye, out=wide[:, 1::2])
    for x, out in ((wide[:, :5], wide[:, 4:9]), (wide[:-1, 5:], wide[1:, 2:7]), (wide[:, ::2], wide[:, :5])):
        with pytest.raises(nbx.Refused, match=r"'out' .* shares memory with 'x1'"):
            reg.call("matmul", x, eye, out=out)


@settings(max_examples=60, deadline=None)
@given(
    shape=st.lists(st.integers(1, 4), min_size=2, max_size=3),
    strides=st.lists(st.tuples(st.integers(1, 24), st.integers(0, 24)), min_size=3, max_size=3),
    starts=st.tuples(st.integers(0, 60), st.integers(0, 60)),
)
def test_views_that_share_a_byte_are_never_taken_for_apart(
    reg: nbx.Registry, shape: list[int], strides: list[tuple[int, int]], starts: tuple[int, int]
) -> None:
    memory = np.zeros(512, np.float64)
    out, x = (
        np.lib.stride_tricks.as_strided(memory[start:], shape, [8 * pair[n] for pair in strides[: len(shape)]])
        for n, start in enumerate(starts)
    )
    try:
        reg.call("matmul", x, np.eye(shape[-1]), out=out)
    except (nbx.Refused, nbx.SignatureError):
        return
    assert not np.shares_memory(x, out)


@pytest.mark.parametrize(
    ("shape", "pools"),
    [
        ((9, 2, 3, 8, 33), lambda joint: (joint[:, 0], joint[:, 1])),
        ((9, 2, 8, 3, 33), lambda joint: (joint[:, 0].swapaxes(1, 2), joint[:, 1].swapaxes(1, 2))),
        ((9, 3, 8, 66), lambda joint: (joint[..., :33], joint[..., 33:])),
        ((9, 8, 3, 33, 2), lambda joint: (joint[..., 0].swapaxes(1, 2), joint[..., 1].swapaxes(1, 2))),
    ],
    ids=["pages", "pages of tokens", "rows", "elements"],
)
def test_keys_and_values_may_share_a_buffer(
    reg: nbx.Registry, shape: tuple[int, ...], pools: Callable[[np.ndarray], tuple[np.ndarray, np.ndarray]]
) -> None:
    joint = np.zeros(shape, np.float16)
    k_pool, v_pool = pools(joint)
    new = np.arange(2 * 3 * 33, dtype=np.float32).reshape(2, 3, 33)
    table, lens = np.array([[4, 0], [7, 8]], np.int32), np.array([7, 8], np.int32)
    for _ in range(2):
        reg.call("paged_kv_append_step", new, -new, k_pool, v_pool, table, lens)
    for pool, rows in ((k_pool, new), (v_pool, -new)):
        np.testing.assert_array_equal(pool[4, :, 7], rows[0])
        np.testing.assert_array_equal(pool[8, :, 0], rows[1])
    assert np.count_nonzero(joint) == 2 * np.count_nonzero(new)
    for k, v in ((k_pool, k_pool), (k_pool[:-1], k_pool[1:]), (k_pool[..., :32], k_pool[..., 1:])):
        with pytest.raises(nbx.Refused, match=r"'k_pool' .* shares memory with 'v_pool'"):
            reg.call("paged_kv_append_step", new[..., : k.shape[3]], new[..., : k.shape[3]], k, v, table % 8, lens)


@pytest.mark.parametrize("dtype", ["int32", "int64"])
@pytest.mark.parametrize("count", [1, 32, 33, 1000])
@pytest.mark.parametrize("step", [1, 3])
def test_of_few_indices_and_of_many_the_first_one_beyond_is_found(
    reg: nbx.Registry, dtype: str, count: int, step: int
) -> None:
    w = np.arange(70, dtype=np.float32).reshape(35, 2)
    room = np.full(count * step, 34, dtype)
    index = room[::step]
    np.testing.assert_array_equal(reg.call("embedding", w, index), w[index])
    for bad in (-1, 35, np.iinfo(dtype).min, np.iinfo(dtype).max):
        index[count // 2] = bad
        with pytest.raises(nbx.SignatureError, match=f"index holds {bad}, outside 0..34"):
            reg.call("embedding", w, index)


@pytest.mark.parametrize("count", [32, 33])
def test_pages_below_zero_are_missing_and_those_beyond_the_pool_are_refused(reg: nbx.Registry, count: int) -> None:
    q, pool = np.ones((count, 2, 4), np.float32), np.ones((3, 2, 8, 4), np.float32)
    table, lens = np.full((count, 1), -(2**31), np.int32), np.full(count, 5, np.int32)
    assert not reg.call("paged_decode_attention", q, pool, pool, table, lens).any()
    table[-1] = 3
    with pytest.raises(nbx.SignatureError, match="block_table holds 3"):
        reg.call("paged_decode_attention", q, pool, pool, table, lens)
