"""Contracts of attention: masks, rows that see nothing, splits, rotations."""

from __future__ import annotations

import numpy as np
import pytest
from running import oracle, outputs, sign, values

from nbx_registry.contracts.decoding import paged_decode_splits, splits_rule
from nbx_registry.errors import SignatureError
from nbx_registry.expr import parse

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
        (("float16[2, 6, 5, 8]", "float16[2, 0, 9, 8]", "float16[2, 0, 9, 8]"), r"needs Hkv >= 1 \(Hkv = 0\)"),
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


def test_kernels_cut_keys_by_one_rule() -> None:
    rule = parse(splits_rule("T"))
    for keys, splits in [(0, 1), (1, 1), (256, 1), (257, 2), (1000, 4), (16384, 64), (16385, 64), (2**40, 64)]:
        assert paged_decode_splits(keys) == splits == rule.evaluate({"T": keys})


def test_joining_is_in_float64_where_that_is_asked_for() -> None:
    tensors = "float32[3, 4, 5]", "float32[3, 4]", "float32[3, 4]"
    arrays = [values(shape, "float32", seed) for seed, shape in enumerate([(3, 4, 5), (3, 4), (3, 4)])]
    arrays[2] = np.abs(arrays[2]) + 1
    errors = []
    for dtype in ("float32", "float64"):
        signature = sign("decode_attention_reduce", *tensors, dtype=dtype)
        (bound,) = signature.op.bound(signature, arrays, signature.op.run_oracle(signature, arrays))
        errors.append(bound.max())
    assert errors[1] < errors[0] * 1e-8
    assert "float64 where ``dtype`` is float64" in " ".join(signature.op.doc.split())


# Rotary embedding -----------------------------------------------------------------------------------------------------


def test_pairs_are_neighbours_or_half_the_width_apart() -> None:
    x = np.array([[[[1.0, 2.0, 3.0, 4.0]]]])
    cos, sin = np.array([[1.0, 1.0], [0.0, 0.0]]), np.array([[0.0, 0.0], [1.0, 1.0]])
    quarter = np.array([[1]])
    assert oracle("rotary_embedding", x, np.array([[0]]), cos, sin).tolist() == x.tolist()
    assert oracle("rotary_embedding", x, quarter, cos, sin).tolist() == [[[[-3, -4, 1, 2]]]]
    assert oracle("rotary_embedding", x, quarter, cos, sin, interleaved=True).tolist() == [[[[-2, 1, -4, 3]]]]


@pytest.mark.parametrize("interleaved", [False, True])
def test_products_of_rotated_vectors_depend_on_the_distance_alone(interleaved: bool) -> None:
    angle = np.outer(np.arange(100), 10000.0 ** (-np.arange(8) / 8))
    q, k = (np.broadcast_to(values((1, 1, 1, 16), "float64", seed), (1, 1, 100, 16)) for seed in (1, 2))
    position = np.arange(100)[None]
    q, k = (
        oracle("rotary_embedding", x, position, np.cos(angle), np.sin(angle), interleaved=interleaved) for x in (q, k)
    )
    products = np.einsum("td,td->t", q[0, 0, 7:], k[0, 0, :-7])
    assert products == pytest.approx(np.full(93, products[0]), rel=1e-11)


@pytest.mark.parametrize(
    ("tensors", "words"),
    [
        (("float32[2, 3, 5, 7]", "int32[2, 5]", "float32[9, 3]", "float32[9, 3]"), r"D % 2 == 0 \(D = 7\)"),
        (("float32[2, 3, 5, 8]", "int32[2, 5]", "float32[9, 8]", "float32[9, 8]"), r"D == 2 \* R \(D = 8, R = 8\)"),
        (
            ("float32[2, 3, 5, 8]", "int32[2, 4]", "float32[9, 4]", "float32[9, 4]"),
            "axis T of position is 4, but T of x is 5",
        ),
        (
            ("float32[2, 3, 5, 8]", "int32[2, 5]", "float32[9, 4]", "float32[8, 4]"),
            "axis P of sin is 8, but P of cos is 9",
        ),
        (("float32[2, 3, 5, 8]", "int16[2, 5]", "float32[9, 4]", "float32[9, 4]"), "position.dtype in"),
        (("float32[2, 3, 5, 8]", "int32[2, 5]", "float16[9, 4]", "float16[9, 4]"), "cos.dtype in"),
        (
            ("float16[2, 3, 5, 8]", "int32[2, 5]", "float32[9, 4]", "float16[9, 4]"),
            "sin is float16, but cos is float32",
        ),
    ],
)
def test_a_rotation_refuses(tensors: tuple[str, ...], words: str) -> None:
    with pytest.raises(SignatureError, match=words):
        sign("rotary_embedding", *tensors)


def test_a_rotation_reads_the_rows_it_names() -> None:
    signature = sign(
        "rotary_embedding", "float16[2, 8, 5, 64]", "int32[2, 5]", "float32[4096, 32]", "float32[4096, 32]"
    )
    assert signature.index_limits() == {"position": (0, 4096, "P")}
    cost = signature.op.cost(signature)
    elements = 2 * 8 * 5 * 64
    assert (cost.flops, cost.bytes_written) == (3 * elements, 2 * elements)
    assert cost.bytes_read == 2 * elements + 4 * 10 + 2 * 4 * 10 * 32
    assert cost.least_bytes == 4 * elements + 4 * 10 + 2 * 4 * 32, "all tokens may have one position"
    signature = sign("rotary_embedding", "float16[2, 0, 5, 64]", "int32[2, 5]", "float32[3, 32]", "float32[3, 32]")
    assert signature.op.cost(signature).least_bytes == 0
