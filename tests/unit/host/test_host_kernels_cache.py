"""The host's paged cache: appends against plain assignments, decoding against torch in float64 on what is reached."""

from __future__ import annotations

from typing import Any

import hosted
import numpy as np
import pytest
import torch
from hosted import FLOATS, check, run, wide
from running import values

from nbx_registry.host.kernels import decoding
from nbx_registry.host.runtime import host_runtime


@pytest.mark.parametrize("saturate", [False, True])
@pytest.mark.parametrize(
    ("source", "target"), [("float32", "float32"), ("float32", "float16"), ("float64", "bfloat16")]
)
def test_rows_are_appended_to_pages_and_padding_is_skipped(source: str, target: str, saturate: bool) -> None:
    new = values((17, 3, 33), source, 30, scale=1e5)
    pool = values((9, 3, 16, 33), target, 31)
    slot = np.random.default_rng(32).permutation(144)[:17].astype(np.int32)
    slot[[2, 5]] = -1
    expected = pool.astype(np.float64)
    for row, place in zip(new, slot, strict=True):
        if place >= 0:
            rounded = torch.from_numpy(row.astype(np.float64)).to(getattr(torch, target))
            limit = torch.finfo(rounded.dtype).max
            kept = rounded.double().clamp(-limit, limit) if saturate else rounded.double()
            expected[place // 16, :, place % 16] = kept.numpy()
    program, _ = hosted.bind("paged_kv_append", new, slot, pool, saturate=saturate)
    program.run([new, slot, pool], None)
    np.testing.assert_array_equal(pool.astype(np.float64), expected)


def test_padding_alone_writes_nothing() -> None:
    pool = values((3, 2, 8, 5), "float32", 33)
    before = pool.copy()
    new, slot = values((4, 2, 5), "float32", 34), np.full(4, -1, np.int32)
    program, _ = hosted.bind("paged_kv_append", new, slot, pool)
    program.run([new, slot, pool], None)
    np.testing.assert_array_equal(pool, before)


# One step -------------------------------------------------------------------------------------------------------------


def step(*arrays: np.ndarray, **attributes: Any) -> None:
    program, _ = hosted.bind("paged_kv_append_step", *arrays, **attributes)
    program.run(list(arrays), None)


TABLE = np.array([[3, 8, -1], [0, -1, -1], [7, 1, 2], [5, 6, 4], [-1, -1, -1]], np.int32)
"""The pages of five sequences, of nine."""


@pytest.mark.parametrize("saturate", [False, True])
@pytest.mark.parametrize(
    ("source", "target"), [("float32", "float32"), ("float32", "float16"), ("float64", "bfloat16")]
)
def test_a_step_writes_one_row_a_sequence_and_nothing_without_a_page(source: str, target: str, saturate: bool) -> None:
    k_new, v_new = values((5, 3, 33), source, 1, 1e5), values((5, 3, 17), source, 2, 1e5)
    k_pool, v_pool = values((9, 3, 16, 33), target, 3), values((9, 3, 16, 17), target, 4)
    lens = np.array([17, 16, 0, 47, 5], np.int32)
    places = {0: (8, 1), 2: (7, 0), 3: (4, 15)}
    expected = [pool.astype(np.float64) for pool in (k_pool, v_pool)]
    for new, pool in zip((k_new, v_new), expected, strict=True):
        for row, (page, position) in places.items():
            rounded = torch.from_numpy(new[row].astype(np.float64)).to(getattr(torch, target))
            limit = torch.finfo(rounded.dtype).max
            pool[page, :, position] = (rounded.double().clamp(-limit, limit) if saturate else rounded.double()).numpy()
    step(k_new, v_new, k_pool, v_pool, TABLE, lens, saturate=saturate)
    np.testing.assert_array_equal(k_pool.astype(np.float64), expected[0])
    np.testing.assert_array_equal(v_pool.astype(np.float64), expected[1])


@pytest.mark.parametrize(
    "lens", [[48, 48, 48, 48, 0], [-1, -7, -(2**31), 2**31 - 1, 3], [32, 16, 100, 48, 48]], ids=str
)
def test_lengths_that_the_table_does_not_reach_write_nothing(lens: list[int]) -> None:
    new, pools = values((5, 2, 8), "float32", 5), [values((9, 2, 16, 8), "float32", seed) for seed in (6, 7)]
    before = [pool.copy() for pool in pools]
    step(new, new, *pools, TABLE, np.array(lens, np.int32))
    assert all(np.array_equal(*pair) for pair in zip(pools, before, strict=True))


def test_steps_through_views_and_of_nothing() -> None:
    room = values((9, 16, 3, 40), "float32", 8)
    k_pool, v_pool = room[..., :33].transpose(0, 2, 1, 3), values((9, 3, 16, 8), "float32", 9)
    k_new, v_new = values((5, 3, 66), "float32", 10)[..., ::2], values((5, 3, 8), "float32", 11)
    lens = np.repeat(np.array([17, 3, 0, 47, 5], np.int32), 2)[::2]
    step(k_new, v_new, k_pool, v_pool, np.asfortranarray(TABLE), lens)
    assert np.array_equal(k_pool[4, :, 15], k_new[3])
    assert np.array_equal(v_pool[0, :, 3], v_new[1])
    before = room.copy()
    step(k_new[:0], v_new[:0], k_pool, v_pool, TABLE[:0], lens[:0])
    step(k_new, v_new, k_pool, v_pool, TABLE[:, :0], lens)
    assert np.array_equal(room, before)


@pytest.mark.parametrize("n", [1, 0, -3, 2**31 - 1])
def test_lengths_advance_in_32_bits(n: int) -> None:
    lens = np.array([0, 17, -1, 2**31 - 1], np.int32)
    expected = [(value + n + 2**31) % 2**32 - 2**31 for value in lens.tolist()]
    program, _ = hosted.bind("paged_lens_advance", lens, n=n)
    program.run([lens], None)
    assert lens.tolist() == expected


# Decoding -------------------------------------------------------------------------------------------------------------


def poisoned(pool: np.ndarray, table: np.ndarray, lens: np.ndarray) -> np.ndarray:
    """Return the pool with NaN wherever no sequence looks."""
    found = np.full(pool.shape, np.nan).astype(pool.dtype)
    for row, length in zip(table, lens, strict=True):
        for t in range(min(length, row.size * pool.shape[2])):
            if (page := row[t // pool.shape[2]]) >= 0:
                found[page, :, t % pool.shape[2]] = pool[page, :, t % pool.shape[2]]
    return found


def truth_of(
    q: np.ndarray,
    k_pool: np.ndarray,
    v_pool: np.ndarray,
    table: np.ndarray,
    lens: np.ndarray,
    scale: float | None = None,
) -> torch.Tensor:
    out = torch.zeros(*q.shape[:2], v_pool.shape[3], dtype=torch.float64)
    page_tokens, repeats = k_pool.shape[2], q.shape[1] // k_pool.shape[1]
    for b, (row, length) in enumerate(zip(table, lens, strict=True)):
        reached = [(row[t // page_tokens], t % page_tokens) for t in range(min(length, row.size * page_tokens))]
        reached = [(page, place) for page, place in reached if page >= 0]
        if reached:
            k, v = (
                torch.stack([wide(pool[page, :, place]) for page, place in reached], 1).repeat_interleave(repeats, 0)
                for pool in (k_pool, v_pool)
            )
            scores = torch.einsum("hd,htd->ht", wide(q[b]), k) * (q.shape[-1] ** -0.5 if scale is None else scale)
            out[b] = torch.einsum("ht,htd->hd", torch.softmax(scores, -1), v)
    return out


def tolerance(dtype: str) -> dict[str, float]:
    return {"ulp": 0.52 if dtype in ("float16", "bfloat16") else 1, "absolute": 1e-13 if dtype == "float64" else 4e-6}


@pytest.fixture(params=[1 << 18, 2000, 200], ids=["pages", "page", "parts"])
def gathered_at_once(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Gather everything at once, a page, and parts of pages."""
    monkeypatch.setattr(decoding, "CACHED", request.param)


LENS = np.array([20, 16, 48, 33, 0], np.int32)


@pytest.mark.usefixtures("gathered_at_once")
@pytest.mark.parametrize(("heads", "width", "value_width"), [(6, 33, 33), (3, 127, 64), (12, 16, 129)])
@pytest.mark.parametrize("dtype", FLOATS)
def test_mixed_lengths_look_at_nothing_else(dtype: str, heads: int, width: int, value_width: int) -> None:
    q = values((5, heads, width), dtype, 20)
    k, v = values((9, 3, 16, width), dtype, 21), values((9, 3, 16, value_width), dtype, 22)
    k, v = (poisoned(pool, TABLE, LENS) for pool in (k, v))
    found = run("paged_decode_attention", q, k, v, TABLE, LENS)
    check(found, truth_of(q, k, v, TABLE, LENS), **tolerance(dtype))
    assert not found[4].any()


@pytest.mark.usefixtures("gathered_at_once")
@pytest.mark.parametrize(
    "lens", [[47, 47, 47, 47, 47], [1000, 2**31 - 1, 49, 1, 16], [0, -1, -(2**31), 17, 32]], ids=str
)
def test_missing_pages_and_lengths_beyond_the_table(lens: list[int]) -> None:
    table = TABLE.copy()
    table[2, 1], table[3, 0] = -1, -5
    q, lengths = values((5, 6, 16), "float32", 23), np.array(lens, np.int32)
    k, v = (poisoned(values((9, 3, 16, 16), "float32", seed), table, lengths) for seed in (24, 25))
    check(
        run("paged_decode_attention", q, k, v, table, lengths),
        truth_of(q, k, v, table, lengths),
        **tolerance("float32"),
    )


def test_pages_that_are_shared_and_one_that_holds_everything() -> None:
    q, table = values((3, 4, 16), "float32", 26), np.array([[2, 0], [2, 1], [2, -1]], np.int32)
    lens = np.array([17, 25, 9], np.int32)
    k, v = (values((3, 2, 16, 16), "float32", seed) for seed in (27, 28))
    check(
        run("paged_decode_attention", q, k, v, table, lens, scale=0.3),
        truth_of(q, k, v, table, lens, 0.3),
        **tolerance("float32"),
    )
    k, v = (values((1, 2, 5000, 16), "float32", seed) for seed in (29, 30))
    table, lens = np.zeros((3, 1), np.int32), np.array([4999, 1, 0], np.int32)
    check(run("paged_decode_attention", q, k, v, table, lens), truth_of(q, k, v, table, lens), **tolerance("float32"))


def test_the_bound_on_lengths_changes_nothing() -> None:
    q = values((5, 6, 33), "float16", 31)
    k, v = (values((9, 3, 16, 33), "float16", seed) for seed in (32, 33))
    found = [run("paged_decode_attention", q, k, v, TABLE, LENS, longest=longest) for longest in (None, 48, 100)]
    assert found[0].tobytes() == found[1].tobytes() == found[2].tobytes()


def test_a_sequence_depends_on_no_other() -> None:
    q = values((5, 6, 33), "float16", 34)
    k, v = (values((9, 3, 16, 33), "float16", seed) for seed in (35, 36))
    found = run("paged_decode_attention", q, k, v, TABLE, LENS)
    alone = run("paged_decode_attention", q[3:4], k, v, TABLE[3:4], LENS[3:4])
    assert found[3:4].tobytes() == alone.tobytes()


def test_a_query_rounded_to_float16_saturates_where_it_is_finite() -> None:
    q = np.array([[[1e6, 1.0 + 2**-12]]], np.float32)
    k = np.eye(2, dtype=np.float16)[None, None]
    v = np.array([[[[1.0], [2.0]]]], np.float16)
    table, lens = np.zeros((1, 1), np.int32), np.full(1, 2, np.int32)
    found = run("paged_decode_attention", q, k, v, table, lens, scale=2**-16, q_dtype="float16")
    rounded = q.clip(-65504, 65504).astype(np.float16)
    check(found, truth_of(rounded, k, v, table, lens, 2**-16), **tolerance("float32"))


def test_views_of_everything() -> None:
    rng = np.random.default_rng(37)
    q = values((5, 33, 6), "float32", 38).transpose(0, 2, 1)
    k = values((9, 16, 3, 40), "float32", 39)[..., :33].transpose(0, 2, 1, 3)
    v = values((9, 3, 16, 16), "float32", 40)[..., ::2]
    table = np.asfortranarray(TABLE)
    lens = np.broadcast_to(np.int32(rng.integers(17, 32)), (5,))
    room = np.full((5, 6, 20), 7.0, np.float32)
    run("paged_decode_attention", q, k, v, table, lens, out=room[..., :16:2])
    check(room[..., :16:2], truth_of(q, k, v, table, lens), **tolerance("float32"))
    assert np.all(room[..., 1:16:2] == 7)


def test_nothing_to_decode() -> None:
    k = np.zeros((4, 2, 8, 16), np.float32)
    for batch, width in ((0, 16), (3, 0)):
        q, table, lens = np.ones((batch, 4, 16), np.float32), np.zeros((batch, 1), np.int32), np.ones(batch, np.int32)
        assert run("paged_decode_attention", q, k, k[..., :width], table, lens).shape == (batch, 4, width)
    q, lens = np.ones((3, 4, 16), np.float32), np.ones(3, np.int32)
    assert not run("paged_decode_attention", q, k, k, np.zeros((3, 0), np.int32), lens).any()
    assert not run("paged_decode_attention", q, k[:, :, :0], k[:, :, :0], np.zeros((3, 1), np.int32), lens).any()
    assert not run("paged_decode_attention", q, k[:0], k[:0], np.full((3, 1), -1, np.int32), lens).any()


def test_a_recorded_step_attends_to_the_newest_key_as_the_sequences_grow() -> None:
    host, table = host_runtime(), TABLE[:4]
    q, k_new, v_new = (np.empty((4, heads, 33), np.float32) for heads in (6, 3, 3))
    k_pool, v_pool = np.full((2, 9, 3, 16, 33), np.nan, np.float32)
    before, after = np.array([17, 14, 0, 32], np.int32), np.array([18, 15, 1, 33], np.int32)
    for row, length in zip(table, before, strict=True):
        for t in range(length):
            k_pool[row[t // 16], :, t % 16], v_pool[row[t // 16], :, t % 16] = values((2, 3, 33), "float32", t)
    out = np.empty((4, 6, 33), np.float32)
    arrays = {
        "paged_kv_append_step": [k_new, v_new, k_pool, v_pool, table, before],
        "paged_decode_attention": [q, k_pool, v_pool, table, after],
    }
    programs = [(hosted.bind(op, *given)[0], given) for op, given in arrays.items()]
    programs[1] = (programs[1][0], [*arrays["paged_decode_attention"], out])
    programs += [(hosted.bind("paged_lens_advance", lens)[0], [lens]) for lens in (before, after)]
    stream = host.stream(0)
    with host.capture(0, stream) as capture:
        for program, given in programs:
            program.run(given, stream.handle)
    for turn in range(6):
        q[...], k_new[...], v_new[...] = (
            values(x.shape, "float32", 100 * i + turn) for i, x in enumerate((q, k_new, v_new))
        )
        lens = after.copy()
        capture.graph.replay(stream)
        assert np.array_equal(after, lens + 1)
        check(out, truth_of(q, k_pool, v_pool, table, lens), **tolerance("float32"))
        for b, (row, length) in enumerate(zip(table, lens - 1, strict=True)):
            if length < 48 and (page := row[length // 16]) >= 0:
                assert np.array_equal(k_pool[page, :, length % 16], k_new[b])
