"""Contracts of quantised weights: packing, what undoes it, what is refused with which words, costs."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from running import OPS, oracle, outputs, sign, values

from nbx_registry.errors import SignatureError

PACKED = ("int32[33, 5]", "float16[3, 5]", "float16[3, 5]")


def test_outputs() -> None:
    assert outputs("quantize_int4", "bfloat16[264, 5]") == "int32[33, 5], float16[3, 5], float16[3, 5]"
    assert outputs("dequant_int4", *PACKED) == "float32[264, 5]"
    assert outputs("dequant_gemv_int4", "float16[264]", *PACKED) == "float16[5]"
    assert outputs("dequant_matmul_int4", "bfloat16[7, 264]", *PACKED) == "bfloat16[7, 5]"


def test_a_nibble_is_a_row_the_lowest_first() -> None:
    # From 0 to 15 by one step a row: scale 1, minimum 0, and q is the row.
    w = np.arange(16, dtype=np.float32)[:, None]
    packed, scale, zero_min = oracle("quantize_int4", w)
    assert [f"{word:08x}" for word in packed[:, 0].view(np.uint32).tolist()] == ["76543210", "fedcba98"]
    assert packed[1, 0] < 0
    assert (scale[0, 0], zero_min[0, 0]) == (1, 0)
    np.testing.assert_array_equal(oracle("dequant_int4", packed, *halves(scale, zero_min)), w)


def halves(*arrays: np.ndarray) -> list[np.ndarray]:
    return [array.astype(np.float16) for array in arrays]


def test_a_weight_comes_back_within_half_a_step() -> None:
    w = values((264, 33), "float16", scale=0.02)
    packed, scale, zero_min = oracle("quantize_int4", w)
    back = oracle("dequant_int4", packed, *halves(scale, zero_min))
    steps = np.repeat(scale, 128, 0)[:264]
    # What rounding scale and minimum takes from the ends of a group's range is clipped there.
    assert (np.abs(back - w.astype(np.float64)) <= steps * (0.5 + 16 * 2.0**-11)).all()


def test_a_constant_group_has_scale_1_and_is_its_minimum() -> None:
    packed, scale, zero_min = oracle("quantize_int4", np.full((136, 3), -3.25, np.float32))
    assert (scale == 1).all()
    assert not packed.any()
    np.testing.assert_array_equal(oracle("dequant_int4", packed, *halves(scale, zero_min)), np.full((136, 3), -3.25))


def test_a_scale_that_rounds_to_0_is_1() -> None:
    w = np.linspace(0, 15 * 2.0**-26, 128).astype(np.float32)[:, None]
    _, scale, _ = oracle("quantize_int4", w)
    assert scale[0, 0] == 1
    assert oracle("quantize_int4", 4 * w)[1][0, 0] == 2.0**-24


def test_a_zero_minimum_is_positive() -> None:
    w = np.array([[-0.0], [1.0], [-1e-9], [0], [0], [0], [0], [0]], np.float32)
    assert not np.signbit(oracle("quantize_int4", w)[2]).any()


def test_values_quantise_from_the_rounded_scale() -> None:
    # 1/15 is 0.06665 in float16, and 1 is 15.003 steps of it; from the exact one 0.5 would be halfway.
    w = np.array([[0.0], [0.5], [1.0], [0], [0], [0], [0], [0]], np.float32)
    packed, scale, _ = oracle("quantize_int4", w)
    assert scale[0, 0] == np.float16(1 / 15)
    assert int(packed[0, 0]) == 0xF80


def test_the_sum_is_rounded_once() -> None:
    # 15 * 0.3333 + 2048: float32 holds the product, and not the sum.
    w = np.full((1, 1), -1, np.int32)
    scale, zero_min = np.float16([[1 / 3]]), np.float16([[2048 * 16]])
    exact = 15 * float(scale[0, 0]) + 2048 * 16
    assert (oracle("dequant_int4", w, scale, zero_min) == np.float32(exact)).all()


def test_nothing_adds_up_to_0() -> None:
    empty = np.zeros((0, 5), np.int32), np.zeros((0, 5), np.float16), np.zeros((0, 5), np.float16)
    np.testing.assert_array_equal(oracle("dequant_gemv_int4", np.zeros(0, np.float32), *empty), np.zeros(5))


@pytest.mark.parametrize(
    ("op", "tensors", "words"),
    [
        ("quantize_int4", ("float16[127, 5]",), r"needs K % 8 == 0 \(K = 127\)"),
        ("quantize_int4", ("float64[128, 5]",), "needs w.dtype in"),
        ("quantize_int4", ("int32[128, 5]",), "must be floating"),
        ("dequant_int4", ("int32[33, 5]", "float16[2, 5]", "float16[2, 5]"), r"needs G == cdiv\(8 \* R, 128\)"),
        ("dequant_int4", ("int32[33, 5]", "float16[3, 5]", "float16[2, 5]"), "G"),
        ("dequant_int4", ("uint32[33, 5]", *PACKED[1:]), "w is uint32, but must be int32"),
        ("dequant_gemv_int4", ("float16[256]", *PACKED), r"needs K == 8 \* R \(K = 256, R = 33\)"),
        ("dequant_gemv_int4", ("float64[264]", *PACKED), "needs x.dtype in"),
        ("dequant_matmul_int4", ("float16[264]", *PACKED), "must have rank 2"),
    ],
)
def test_refusals(op: str, tensors: tuple[Any, ...], words: str) -> None:
    with pytest.raises(SignatureError, match=words):
        sign(op, *tensors)


def test_costs_as_closed_forms() -> None:
    k, n, m, groups = 264, 5, 7, 3
    packed, scales = k // 8 * n * 4, 2 * groups * n * 2
    cost = OPS["quantize_int4"].cost(sign("quantize_int4", "float16[264, 5]"))
    assert (cost.flops, cost.bytes_read, cost.bytes_written) == (5 * k * n, 2 * k * n, packed + scales)
    assert cost.dtype.name == "float32"
    cost = OPS["dequant_int4"].cost(sign("dequant_int4", *PACKED))
    assert (cost.flops, cost.bytes_read, cost.bytes_written) == (2 * k * n, packed + scales, 4 * k * n)
    cost = OPS["dequant_gemv_int4"].cost(sign("dequant_gemv_int4", "float16[264]", *PACKED))
    assert (cost.flops, cost.unit, cost.least_bytes) == (2 * k * n, "vector", packed + scales + 2 * k + 2 * n)
    cost = OPS["dequant_matmul_int4"].cost(sign("dequant_matmul_int4", "float16[7, 264]", *PACKED))
    assert (cost.flops, cost.unit, cost.dtype.name) == (2 * m * k * n, "matrix", "float16")
    assert cost.least_bytes == packed + scales + 2 * m * k + 2 * m * n


def test_the_bound_is_tighter_than_sums_in_float16() -> None:
    x, scale, zero_min = np.ones(10_000, np.float16), np.ones((79, 1), np.float16), np.zeros((79, 1), np.float16)
    w = np.full((1250, 1), 0x11111111, np.int32)
    signature = sign("dequant_gemv_int4", x, w, scale, zero_min)
    reference = signature.op.run_oracle(signature, [x, w, scale, zero_min])
    (bound,) = signature.op.bound(signature, [x, w, scale, zero_min], reference)
    assert reference[0] == 10_000
    # There such a sum stalls at 2048.
    assert bound < 100
