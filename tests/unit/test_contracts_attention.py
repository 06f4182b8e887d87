"""Contracts of attention and its cache: masks, rows that see nothing, splits, appends."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from running import oracle, outputs, sign, values

from nbx_registry.errors import SignatureError

SDPA = "scaled_dot_product_attention"


def qkv(queries: int, keys: int, width: int = 8, out: int = 6, dtype: str = "float32") -> tuple[np.ndarray, ...]:
    return tuple(
        values(shape, dtype, seed)
        for seed, shape in enumerate([(1, 4, queries, width), (1, 2, keys, width), (1, 2, keys, out)])
    )


def test_outputs_have_the_queries_rows_and_the_values_width() -> None:
    q, k, v = "float16[2, 6, 5, 127]", "float16[2, 3, 9, 127]", "float16[2, 3, 9, 33]"
    assert outputs(SDPA, q, k, v) == "float16[2, 6, 5, 33]"
    for mask in ("bool[5, 9]", "float32[2, 1, 1, 9]", "bfloat16[6, 5, 1]", "bool[]"):
        assert outputs(SDPA, q, k, v, mask, causal=True, scale=0.5) == "float16[2, 6, 5, 33]"


@pytest.mark.parametrize(
    ("tensors", "words"),
    [
        (("float16[2, 6, 5, 8]", "float16[2, 4, 9, 8]", "float16[2, 4, 9, 8]"), r"Hq % Hkv == 0 \(Hq = 6, Hkv = 4\)"),
        (("float16[2, 6, 5, 8]", "float16[2, 0, 9, 8]", "float16[2, 0, 9, 8]"), "Hkv = 0"),
        (("float16[2, 6, 5, 8]", "float16[2, 3, 9, 7]", "float16[2, 3, 9, 8]"), "axis D of k is 7, but D of q is 8"),
        (("float16[2, 6, 5, 8]", "float16[2, 3, 9, 8]", "float16[2, 3, 8, 8]"), "axis Tk of v is 8, but Tk of k is 9"),
        (("float16[2, 6, 5, 8]", "float32[2, 3, 9, 8]", "float16[2, 3, 9, 8]"), "k is float32, but q is float16"),
    ],
)
def test_attention_refuses(tensors: tuple[str, ...], words: str) -> None:
    with pytest.raises(SignatureError, match=words):
        sign(SDPA, *tensors)


@pytest.mark.parametrize(
    ("mask", "words"),
    [
        ("bool[5, 8]", r"mask of shape \[5, 8\] does not broadcast to the scores \[B, Hq, Tq, Tk\], \[2, 6, 5, 9\]"),
        ("bool[3, 2, 6, 5, 9]", "does not broadcast"),
        ("int8[5, 9]", "mask is int8, but must be bool or floating"),
    ],
)
def test_a_mask_is_boolean_or_floating_and_broadcasts(mask: str, words: str) -> None:
    with pytest.raises(SignatureError, match=words):
        sign(SDPA, "float16[2, 6, 5, 8]", "float16[2, 3, 9, 8]", "float16[2, 3, 9, 8]", mask)


def test_a_boolean_mask_keeps_where_true_and_a_floating_one_is_added_after_scaling() -> None:
    q, k, v = qkv(3, 5)
    kept = np.array([True, False, True, True, False])
    added = np.where(kept, 0.0, -np.inf).astype(np.float32)
    assert oracle(SDPA, q, k, v, kept) == pytest.approx(oracle(SDPA, q, k, v, added), rel=1e-14)
    assert oracle(SDPA, q, k, v, kept) == pytest.approx(oracle(SDPA, q, k[:, :, kept], v[:, :, kept]), rel=1e-14)
    bias = np.array([0, 1, 2, 3, 4], np.float32)
    # Scaling twice as much is not the same as doubling the queries, once something is added.
    assert oracle(SDPA, 2 * q, k, v, bias, scale=0.1) == pytest.approx(
        oracle(SDPA, q, k, v, bias, scale=0.2), rel=1e-14
    )


@pytest.mark.parametrize(("queries", "keys"), [(4, 4), (3, 7), (1, 5), (6, 2)])
def test_a_causal_mask_is_aligned_bottom_right(queries: int, keys: int) -> None:
    q, k, v = qkv(queries, keys)
    result = oracle(SDPA, q, k, v, causal=True)
    for i in range(queries):
        seen = keys - queries + i + 1
        expected = oracle(SDPA, q[:, :, i : i + 1], k[:, :, :seen], v[:, :, :seen]) if seen > 0 else 0
        assert result[:, :, i : i + 1] == pytest.approx(expected, rel=1e-13)


def test_a_row_that_sees_nothing_is_zero() -> None:
    q, k, v = qkv(3, 5)
    mask = np.ones((3, 5), bool)
    mask[1] = False
    result = oracle(SDPA, q, k, v, mask)
    assert not result[:, :, 1].any()
    assert result[:, :, [0, 2]].all()
    assert not oracle(SDPA, q, k, v, np.full(5, -np.inf, np.float32)).any()
    assert not oracle(SDPA, q, k[:, :, :0], v[:, :, :0]).any()


def test_leading_keys_of_minus_infinity_do_not_poison_the_rest() -> None:
    q, k, v = qkv(2, 200)
    bias = np.zeros(200, np.float32)
    bias[:150] = -np.inf
    assert oracle(SDPA, q, k, v, bias) == pytest.approx(oracle(SDPA, q, k[:, :, 150:], v[:, :, 150:]), rel=1e-13)


def test_head_h_reads_the_key_and_value_head_of_its_group() -> None:
    q, k, v = qkv(3, 5)
    result = oracle(SDPA, q, k, v)
    for head in range(4):
        alone = oracle(SDPA, q[:, [head]], k[:, [head // 2]], v[:, [head // 2]])
        assert result[:, [head]] == pytest.approx(alone, rel=1e-13)


@pytest.mark.parametrize("width", [127, 128, 129, 256])
def test_the_scale_is_that_of_the_width_as_given(width: int) -> None:
    q, k, v = qkv(2, 9, width)
    assert oracle(SDPA, q, k, v).tolist() == oracle(SDPA, q, k, v, scale=width**-0.5).tolist()


# Decoding -------------------------------------------------------------------------------------------------------------


def test_decoding_is_attention_with_one_query() -> None:
    q, k, v = qkv(1, 63)
    bias = values((63,), "float16", 9)
    assert outputs("decode_attention", q[:, :, 0], k, v, bias) == "float32[1, 4, 6]"
    one = oracle("decode_attention", q[:, :, 0], k, v, bias)
    assert one == pytest.approx(oracle(SDPA, q, k, v, bias.astype(np.float32))[:, :, 0], rel=1e-13)


def test_decoding_over_nothing_is_zero() -> None:
    q, k, v = qkv(1, 3)
    assert not oracle("decode_attention", q[:, :, 0], k[:, :, :0], v[:, :, :0]).any()
    assert not oracle("decode_attention", q[:, :, 0], k, v, np.full(3, -np.inf, np.float32)).any()


def test_the_query_is_rounded_to_the_caches_dtype_or_not_at_all() -> None:
    q, k, v = "float32[2, 4, 8]", "float16[2, 2, 5, 8]", "float16[2, 2, 5, 6]"
    assert outputs("decode_attention", q, k, v, q_dtype="float16") == "float32[2, 4, 6]"
    with pytest.raises(SignatureError, match=r"q_dtype in \(None, k.dtype\) \(.*bfloat16"):
        sign("decode_attention", q, k, v, q_dtype="bfloat16")
    with pytest.raises(SignatureError, match="v is float32, but k is float16"):
        sign("decode_attention", q, k, "float32[2, 2, 5, 6]")


def test_rounding_the_query_to_float16_saturates_finite_values() -> None:
    k, v = np.array([[[[1e-4], [0]]]], np.float16), np.array([[[[1.0], [0.0]]]], np.float16)
    found = [oracle("decode_attention", np.array([[[x]]], np.float32), k, v, q_dtype="float16") for x in (1e6, 65504)]
    assert found[0].tolist() == found[1].tolist()
    assert np.isnan(oracle("decode_attention", np.array([[[np.inf]]], np.float32), k, v, q_dtype="float16")).all()


def test_joining_splits() -> None:
    assert outputs("decode_attention_reduce", "float32[3, 4, 5]", "float32[3, 4]", "float32[3, 4]") == "float32[3, 5]"
    halves = outputs("decode_attention_reduce", "float32[3, 4, 5]", "float32[3, 4]", "float32[3, 4]", dtype="float16")
    assert halves == "float16[3, 5]"
    with pytest.raises(SignatureError, match="dtype is int8, but must be floating"):
        sign("decode_attention_reduce", "float32[3, 4, 5]", "float32[3, 4]", "float32[3, 4]", dtype="int8")
    empty = np.full((2, 3), -np.inf, np.float32)
    nothing = oracle("decode_attention_reduce", np.zeros((2, 3, 4), np.float32), empty, np.zeros((2, 3), np.float32))
    assert nothing.tolist() == [[0.0] * 4] * 2
    assert oracle("decode_attention_reduce", *(np.zeros(s, np.float32) for s in ((2, 0, 4), (2, 0), (2, 0)))).shape == (
        2,
        4,
    )


# The cache ------------------------------------------------------------------------------------------------------------

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
