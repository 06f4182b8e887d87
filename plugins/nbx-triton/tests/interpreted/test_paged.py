"""paged_decode_attention, paged_kv_append_step, paged_lens_advance."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from nbx_registry import dtypes

ATTENTION = "nbx-triton/paged_decode_attention/split"
QUARTERS = "nbx-triton/paged_decode_attention/quarters"


def table_of(rng: np.random.Generator, lengths: list[int], page_tokens: int, spare: int = 2) -> tuple[np.ndarray, int]:
    """Deal pages out in no order; -1 past the end of each sequence. Returns the table and how many pages there are."""
    counts = [-(-max(length, 0) // page_tokens) for length in lengths]
    pages = rng.permutation(sum(counts) + spare)
    table = np.full((len(lengths), max(counts) + 1), -1, np.int32)
    at = 0
    for row, count in zip(table, counts, strict=True):
        row[:count] = pages[at : at + count]
        at += count
    return table, len(pages)


@pytest.mark.parametrize(
    ("dtypes_", "heads", "widths", "page_tokens", "lengths"),
    [
        (("float16", "float16"), (4, 2), (64, 64), 16, [0, 1, 260]),
        (("bfloat16", "bfloat16"), (3, 3), (127, 33), 64, [65, 64]),
        (("float32", "float32"), (4, 1), (129, 40), 7, [33, 14]),
        (("float16", "float16"), (20, 1), (256, 256), 128, [257]),
        (("float32", "float16"), (2, 1), (40, 40), 1, [5, 66]),
    ],
    ids=str,
)
def test_attention(
    check: Callable,
    normal: Callable,
    rng: np.random.Generator,
    dtypes_: tuple[str, str],
    heads: tuple[int, int],
    widths: tuple[int, int],
    page_tokens: int,
    lengths: list[int],
) -> None:
    table, pages = table_of(rng, lengths, page_tokens)
    q = normal(dtypes_[0], len(lengths), heads[0], widths[0])
    pools = [normal(dtypes_[1], pages, heads[1], page_tokens, width) for width in widths]
    for kernel in (ATTENTION, QUARTERS):
        check(kernel, q, *pools, table, np.array(lengths, np.int32))


def test_pools_of_tokens_before_heads_and_views_of_tables(
    check: Callable, normal: Callable, rng: np.random.Generator
) -> None:
    table, pages = table_of(rng, [17, 48], 16)
    q = normal("float32", 4, 4, 33)[::2]
    pools = [normal("float16", pages, 16, 2, 33).transpose(0, 2, 1, 3) for _ in range(2)]
    wide = np.repeat(table, 2, axis=1)
    check(ATTENTION, q, *pools, wide[:, ::2], np.array([17, 0, 48, 0], np.int32)[::2], q_dtype="float16", scale=0.3)


@pytest.mark.parametrize("longest", [None, 300])
def test_a_bound_on_lengths_changes_nothing(
    check: Callable, normal: Callable, rng: np.random.Generator, longest: int | None
) -> None:
    table, pages = table_of(rng, [300, 0, 17], 32)
    table = np.pad(table, ((0, 0), (0, 20)), constant_values=-1)
    pool = normal("float16", pages, 1, 32, 16)
    check(ATTENTION, normal("float16", 3, 2, 16), pool, pool, table, np.array([300, 0, 17], np.int32), longest=longest)


def test_missing_pages_lengths_out_of_range_and_what_lies_past_the_end(
    check: Callable, normal: Callable, rng: np.random.Generator
) -> None:
    table, pages = table_of(rng, [64, 48, 33, 16, 16], 16)
    table[0, 1], table[2] = -1, -1
    k, v = normal("float32", pages, 2, 16, 32), normal("float32", pages, 2, 16, 32)
    for pool in (k, v):
        pool[sorted(set(range(pages)) - set(table.ravel().tolist()))] = np.nan
        pool[table[1, 2], :, 1:] = np.nan
    lens = np.array([63, 33, 33, 2**31 - 1, -5], np.int32)
    for kernel in (ATTENTION, QUARTERS):
        check(kernel, normal("float32", 5, 4, 32), k, v, table, lens)


def test_a_query_of_nan_spoils_its_own_row(run: Callable, normal: Callable) -> None:
    q, pool = normal("float16", 1, 2, 16), normal("float16", 3, 1, 16, 16)
    q[0, 1, 3] = np.nan
    (out,) = run(ATTENTION, q, pool, pool, np.array([[2, 0]], np.int32), np.array([20], np.int32))
    assert np.isfinite(out[0, 0]).all()
    assert np.isnan(out[0, 1]).all()


def append(
    pools: list[np.ndarray], rows: list[np.ndarray], table: np.ndarray, lens: np.ndarray, *, saturate: bool = False
) -> list[np.ndarray]:
    """Return the pools as the contract has them afterwards."""
    wanted = [pool.copy() for pool in pools]
    for b, length in enumerate(lens.tolist()):
        entry, position = divmod(length, pools[0].shape[2])
        if 0 <= length < table.shape[1] * pools[0].shape[2] and table[b, entry] >= 0:
            for pool, row in zip(wanted, rows, strict=True):
                limit = float(np.finfo(np.float16).max) if saturate else np.inf
                with np.errstate(over="ignore"):
                    pool[table[b, entry], :, position] = np.clip(row[b], -limit, limit).astype(pool.dtype)
    return wanted


@pytest.mark.parametrize(
    ("new", "kept", "saturate"),
    [
        ("float32", "float16", False),
        ("float32", "float16", True),
        ("float16", "float16", False),
        ("float16", "float16", True),
        ("float64", "float64", False),
    ],
)
def test_append_step(run: Callable, normal: Callable, new: str, kept: str, saturate: bool) -> None:
    rows = [normal(new, 5, 3, width, scale=5e4 if new == "float32" else 9e3) for width in (33, 20)]
    rows[1][0, 1, :2] = np.inf, -np.inf
    if kept == "float64":
        rows[0].view(np.uint64)[0, 0, 0] = 0x7FF4_0000_0000_0001
    pools = [normal(kept, 6, 3, 4, width) for width in (33, 20)]
    table = np.array([[1, -1], [0, 5], [-1, 3], [2, 4], [2, 4]], np.int32)
    lens = np.array([0, 7, 2, 8, -1], np.int32)
    wanted = append(pools, rows, table, lens, saturate=saturate)
    run("nbx-triton/paged_kv_append_step/rows", *rows, *pools, table, lens, saturate=saturate)
    for pool, right in zip(pools, wanted, strict=True):
        assert pool.tobytes() == right.tobytes()


def test_pools_that_take_turns_in_one_buffer(run: Callable, normal: Callable) -> None:
    joint = np.zeros((6, 2, 4, 2, 64), dtypes.get("bfloat16").numpy)
    k_pool, v_pool = joint[..., 0, :], joint[..., 1, :]
    rows = [normal("bfloat16", 2, 2, 64) for _ in range(2)]
    run(
        "nbx-triton/paged_kv_append_step/rows",
        *rows,
        k_pool,
        v_pool,
        np.array([[3], [5]], np.int32),
        np.array([0, 3], np.int32),
    )
    for pool, row in zip((k_pool, v_pool), rows, strict=True):
        np.testing.assert_array_equal(pool[3, :, 0], row[0])
        np.testing.assert_array_equal(pool[5, :, 3], row[1])
    assert np.count_nonzero(joint) == sum(np.count_nonzero(row) for row in rows)


@pytest.mark.parametrize("n", [1, -3, 2**31 - 1, -(2**31), 0])
@pytest.mark.parametrize("count", [1, 63, 300])
def test_lengths_advance_and_wrap_around(run: Callable, rng: np.random.Generator, count: int, n: int) -> None:
    room = rng.integers(-(2**31), 2**31, 3 * count).astype(np.int32)
    wanted = room.copy()
    wanted[::3] += np.int64(n).astype(np.int32)
    run("nbx-triton/paged_lens_advance/blocks", room[::3], n=n)
    np.testing.assert_array_equal(room, wanted)
