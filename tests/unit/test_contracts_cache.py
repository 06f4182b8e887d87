"""Contracts of the paged cache: appends, steps, lengths, and decoding through a table of pages."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from running import oracle, outputs, sign, values

from nbx_registry.errors import SignatureError

# Appends --------------------------------------------------------------------------------------------------------------

POOL = "float16[9, 2, 16, 8]"


def append(new: np.ndarray, slot: list[int], pool: np.ndarray, **attributes: Any) -> np.ndarray:
    before = pool.copy()
    after = oracle("paged_kv_append", new, np.array(slot, np.int32), pool, **attributes)
    assert (pool == before).all(), "an oracle leaves its inputs alone"
    return after


def test_an_append_has_no_outputs_and_writes_named_rows() -> None:
    assert sign("paged_kv_append", "float32[5, 2, 8]", "int32[5]", POOL).outputs == ()
    new, pool = values((3, 2, 8), "float16", 1), values((4, 2, 16, 8), "float16", 2)
    after = append(new, [17, 63, 0], pool)
    assert after[1, :, 1].tolist() == new[0].tolist()
    assert after[3, :, 15].tolist() == new[1].tolist()
    assert (after != pool).sum() <= 3 * 16


def test_a_negative_slot_is_skipped() -> None:
    pool = values((4, 2, 16, 8), "float16", 2)
    assert (append(values((2, 2, 8), "float16", 1), [-1, -16], pool) == pool).all()


def test_an_append_overflows_unless_it_saturates() -> None:
    new, pool = np.array([[[1e5]], [[-np.inf]]], np.float32), np.zeros((1, 1, 2, 1), np.float16)
    assert append(new, [0, 1], pool).ravel().tolist() == [np.inf, -np.inf]
    assert append(new, [0, 1], pool, saturate=True).ravel().tolist() == [65504, -65504]


def test_slots_stay_below_the_pool_and_may_be_negative() -> None:
    limits = sign("paged_kv_append", "float32[5, 2, 8]", "int32[5]", POOL).index_limits()
    assert limits == {"slot": (-(2**31), 144, "pages * page_tokens")}


@pytest.mark.parametrize(
    ("tensors", "words"),
    [
        (("float32[5, 3, 8]", "int32[5]", POOL), "axis Hkv of pool is 2, but Hkv of new is 3"),
        (("float32[5, 2, 8]", "int32[4]", POOL), "axis N of slot is 4, but N of new is 5"),
        (("float32[5, 2, 8]", "int64[5]", POOL), "slot is int64, but must be int32"),
        (("int8[5, 2, 8]", "int32[5]", POOL), "new is int8, but must be floating"),
    ],
)
def test_append_refuses(tensors: tuple[str, ...], words: str) -> None:
    with pytest.raises(SignatureError, match=words):
        sign("paged_kv_append", *tensors)


# Steps ----------------------------------------------------------------------------------------------------------------

TABLE = np.array([[3, 8, -1], [0, -1, -1], [7, 1, 2]], np.int32)


def step(lens: list[int], table: np.ndarray = TABLE, **attributes: Any) -> tuple[np.ndarray, ...]:
    """Return k_new and v_new, both pools, and what both have become."""
    new = values((3, 2, 8), "float16", 1), values((3, 2, 6), "float16", 2)
    pools = values((9, 2, 4, 8), "float16", 3), values((9, 2, 4, 6), "float16", 4)
    after = oracle("paged_kv_append_step", *new, *pools, table, np.array(lens, np.int32), **attributes)
    return *new, *pools, *after


def test_a_step_goes_behind_the_last_token() -> None:
    k_new, v_new, k_pool, v_pool, k_after, v_after = step([5, 0, 11])
    for new, pool, after in ((k_new, k_pool, k_after), (v_new, v_pool, v_after)):
        expected = pool.copy()
        expected[8, :, 1], expected[0, :, 0], expected[2, :, 3] = new
        assert (after == expected).all()


@pytest.mark.parametrize("lens", [[12, 4, 12], [-1, -4, -(2**31)], [2**31 - 1, 8, 100]], ids=str)
def test_a_step_without_a_page_writes_nothing(lens: list[int]) -> None:
    _, _, k_pool, v_pool, k_after, v_after = step(lens)
    assert (k_after == k_pool).all()
    assert (v_after == v_pool).all()


def test_a_step_is_that_of_an_append() -> None:
    k_new, _, k_pool, _, k_after, _ = step([5, 0, 11])
    slots = np.array([8 * 4 + 1, 0 * 4 + 0, 2 * 4 + 3], np.int32)
    assert (oracle("paged_kv_append", k_new, slots, k_pool) == k_after).all()


def test_a_step_overflows_unless_it_saturates() -> None:
    new, pool = np.full((1, 1, 1), 1e5, np.float32), np.zeros((1, 1, 1, 1), np.float16)
    table, lens = np.zeros((1, 1), np.int32), np.zeros(1, np.int32)
    for saturate, expected in ((False, np.inf), (True, 65504)):
        after = oracle("paged_kv_append_step", new, new, pool, pool, table, lens, saturate=saturate)
        assert [a.item() for a in after] == [expected] * 2


STEP = ("float32[3, 2, 8]", "float32[3, 2, 6]", "float16[9, 2, 4, 8]", "float16[9, 2, 4, 6]", "int32[3, 5]", "int32[3]")


@pytest.mark.parametrize(
    ("place", "spec", "words"),
    [
        (1, "float16[3, 2, 6]", "v_new is float16, but k_new is float32"),
        (3, "float32[9, 2, 4, 6]", "v_pool is float32, but k_pool is float16"),
        (3, "float16[8, 2, 4, 6]", "axis pages of v_pool is 8, but pages of k_pool is 9"),
        (3, "float16[9, 2, 4, 7]", "axis Dv of v_pool is 7, but Dv of v_new is 6"),
        (4, "int32[2, 5]", "axis B of block_table is 2, but B of k_new is 3"),
        (4, "int64[3, 5]", "block_table is int64, but must be int32"),
        (5, "int64[3]", "lens is int64, but must be int32"),
    ],
)
def test_a_step_refuses(place: int, spec: str, words: str) -> None:
    with pytest.raises(SignatureError, match=words):
        sign("paged_kv_append_step", *STEP[:place], spec, *STEP[place + 1 :])


def test_a_step_costs_rows_not_pools() -> None:
    signature = sign("paged_kv_append_step", *STEP)
    assert signature.outputs == ()
    assert signature.index_limits() == {"block_table": (-(2**31), 9, "pages")}
    cost = signature.op.cost(signature)
    rows = 3 * 2 * (8 + 6)
    assert (cost.flops, cost.bytes_read, cost.bytes_written) == (0, 4 * rows + 4 * 3 + 4 * 3, 2 * rows)
    assert cost.least_bytes == 4 * 3, "no length may have a place"
    without = sign("paged_kv_append_step", *STEP[:4], "int32[3, 0]", STEP[5])
    assert without.op.cost(without).least_bytes == 0


@pytest.mark.parametrize(("n", "expected"), [(1, [1, 18, -(2**31)]), (-17, [-17, 0, 2**31 - 18])])
def test_lengths_advance_and_wrap_around(n: int, expected: list[int]) -> None:
    assert oracle("paged_lens_advance", np.array([0, 17, 2**31 - 1], np.int32), n=n).tolist() == expected


def test_lengths_are_of_32_bits() -> None:
    assert sign("paged_lens_advance", "int32[5]").attributes == {"n": 1}
    with pytest.raises(SignatureError, match="lens is int64, but must be int32"):
        sign("paged_lens_advance", "int64[5]")
    with pytest.raises(SignatureError, match="n = 2147483648"):
        sign("paged_lens_advance", "int32[5]", n=2**31)
    cost = (signature := sign("paged_lens_advance", "int32[5]")).op.cost(signature)
    assert (cost.flops, cost.bytes_read, cost.bytes_written, cost.least_bytes) == (5, 20, 20, 40)
    none = (signature := sign("paged_lens_advance", "int32[5]", n=0)).op.cost(signature)
    assert (none.flops, none.least_flops, none.least_bytes) == (5, 0, 0)


# Decoding -------------------------------------------------------------------------------------------------------------

PAGED = "paged_decode_attention"
DECODE = ("float16[3, 6, 8]", "float16[9, 2, 4, 8]", "float16[9, 2, 4, 5]", "int32[3, 3]", "int32[3]")


def cache() -> tuple[np.ndarray, ...]:
    shapes = (3, 6, 8), (9, 2, 4, 8), (9, 2, 4, 5)
    return tuple(values(shape, "float32", seed) for seed, shape in enumerate(shapes, 10))


@pytest.mark.parametrize("lens", [[6, 3, 12], [4, 1, 9], [8, 4, 11]], ids=str)
def test_paged_decoding_is_decoding_on_what_the_table_reaches(lens: list[int]) -> None:
    q, k_pool, v_pool = cache()
    found = oracle(PAGED, q, k_pool, v_pool, TABLE, np.array(lens, np.int32), scale=0.3)
    for b, length in enumerate(lens):
        k, v = (
            np.concatenate([pool[page] for page in TABLE[b] if page >= 0], axis=1)[None, :, :length]
            for pool in (k_pool, v_pool)
        )
        assert found[[b]] == pytest.approx(oracle("decode_attention", q[[b]], k, v, scale=0.3), rel=1e-13)


def test_nothing_past_a_length_is_looked_at_nor_past_the_table() -> None:
    q, k_pool, v_pool = cache()
    lens = np.array([6, 0, 12], np.int32)
    found = oracle(PAGED, q, k_pool, v_pool, TABLE, lens)
    k_pool[[0, 4, 5, 6]] = v_pool[[0, 4, 5, 6]] = np.nan
    k_pool[8, :, 2:] = v_pool[8, :, 2:] = np.nan
    assert oracle(PAGED, q, k_pool, v_pool, TABLE, lens).tolist() == found.tolist()
    assert not found[1].any()
    longer = oracle(PAGED, q, k_pool, v_pool, TABLE, np.array([6, -3, 1000], np.int32))
    assert longer.tolist() == found.tolist()


def test_a_page_that_is_missing_hides_its_tokens() -> None:
    q, k_pool, v_pool = cache()
    table = np.array([[3, -1, 8], [-1, -1, -1], [-7, 1, 2]], np.int32)
    found = oracle(PAGED, q, k_pool, v_pool, table, np.array([10, 5, 11], np.int32))
    packed = np.array([[3, 8, -1], [0, 0, 0], [1, 2, -1]], np.int32)
    assert found == pytest.approx(oracle(PAGED, q, k_pool, v_pool, packed, np.array([6, 0, 7], np.int32)), rel=1e-13)


def test_tokens_are_bounded_by_what_is_asked_and_by_the_table() -> None:
    assert outputs(PAGED, *DECODE, longest=7) == "float16[3, 6, 5]"
    for longest, tokens, most in ((None, 12, 2**31 - 1), (7, 7, 7), (0, 0, 0), (100, 12, 100)):
        signature = sign(PAGED, *DECODE, longest=longest)
        assert signature.axes["T"] == tokens
        assert signature.index_limits() == {
            "block_table": (-(2**31), 9, "pages"),
            "seq_lens": (-(2**31), most + 1, "past_longest"),
        }


@pytest.mark.parametrize(
    ("tensors", "attributes", "words"),
    [
        (("float16[3, 5, 8]", *DECODE[1:]), {}, r"Hq % Hkv == 0 \(Hq = 5, Hkv = 2\)"),
        ((DECODE[0], "float16[9, 0, 4, 8]", "float16[9, 0, 4, 5]", *DECODE[3:]), {}, r"needs Hkv >= 1 \(Hkv = 0\)"),
        ((*DECODE[:3], "int64[3, 3]", DECODE[4]), {}, "block_table is int64, but must be int32"),
        ((*DECODE[:4], "int64[3]"), {}, "seq_lens is int64, but must be int32"),
        ((*DECODE[:4], "int32[2]"), {}, "axis B of seq_lens is 2, but B of q is 3"),
        ((*DECODE[:2], "float16[9, 2, 8, 5]", *DECODE[3:]), {}, "axis page_tokens of v_pool is 8"),
        (DECODE, {"longest": -1}, "longest = -1"),
        (DECODE, {"q_dtype": "float32"}, "q_dtype in"),
    ],
)
def test_paged_decoding_refuses(tensors: tuple[str, ...], attributes: dict[str, Any], words: str) -> None:
    with pytest.raises(SignatureError, match=words):
        sign(PAGED, *tensors, **attributes)


def test_paged_decoding_costs_what_lengths_may_reach() -> None:
    out = 3 * 6 * 5

    def cost(longest: int | None, pages: int = 9) -> Any:
        pools = f"float16[{pages}, 2, 4, 8]", f"float16[{pages}, 2, 4, 5]"
        signature = sign(PAGED, DECODE[0], *pools, *DECODE[3:], longest=longest)
        return signature.op.cost(signature)

    for longest, tokens, entries in ((None, 12, 9), (7, 7, 6), (100, 12, 9), (0, 0, 0)):
        found = cost(longest, pages=90)
        assert (found.flops, found.least_flops) == (2 * 3 * 6 * tokens * 13, 0)
        assert found.bytes_read == 2 * 3 * 6 * 8 + 2 * 3 * tokens * 2 * 13 + 4 * entries + 4 * 3
        assert found.bytes_written == 2 * out
        # All sequences may be empty.
        assert found.least_bytes == (4 * 3 if tokens else 0) + 2 * out
    assert cost(None, pages=0).least_bytes == 2 * out
    assert (cost(None).unit, cost(None).dtype.name) == ("matrix", "float16")
