"""Contracts of mean, prod, max and argmax: what comes out, what is refused, the edges, the costs, and tolerances."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from running import OPS, oracle, outputs, share, sign, values

from nbx_registry import dtypes
from nbx_registry.errors import SignatureError

REDUCTIONS = ["mean", "prod", "max"]


@pytest.mark.parametrize(
    ("op", "tensor", "attributes", "expected"),
    [
        ("mean", "float16[5, 7, 9]", {}, "float16[]"),
        ("mean", "bfloat16[5, 7, 9]", {"axis": (0, -1), "keepdims": True}, "bfloat16[1, 7, 1]"),
        ("mean", "int64[5, 7]", {"axis": 0}, "float32[7]"),
        ("mean", "bool[5, 7]", {"axis": []}, "float32[5, 7]"),
        ("mean", "complex64[5]", {}, "complex64[]"),
        ("prod", "float64[5, 7]", {"axis": -2}, "float64[7]"),
        ("prod", "int8[5, 7]", {}, "int64[]"),
        ("prod", "uint32[5, 7]", {}, "uint64[]"),
        ("prod", "bool[5, 7]", {"axis": 1}, "int64[5]"),
        ("max", "int8[5, 7]", {"axis": 1, "keepdims": True}, "int8[5, 1]"),
        ("max", "float8_e4m3fn[5, 7]", {}, "float8_e4m3fn[]"),
        ("max", "bool[5, 7]", {"axis": (1, 0)}, "bool[]"),
        ("argmax", "float16[5, 7, 9]", {}, "int64[]"),
        ("argmax", "float16[5, 7, 9]", {"keepdims": True}, "int64[1, 1, 1]"),
        ("argmax", "uint8[5, 7, 9]", {"axis": -2}, "int64[5, 9]"),
        ("argmax", "bool[5]", {"axis": 0, "keepdims": True}, "int64[1]"),
    ],
)
def test_outputs_of_reductions(op: str, tensor: str, attributes: dict[str, Any], expected: str) -> None:
    assert outputs(op, tensor, **attributes) == expected


@pytest.mark.parametrize("op", [*REDUCTIONS, "argmax"])
def test_axes_must_be_there(op: str) -> None:
    with pytest.raises(SignatureError, match="axis=3 is out of range for a tensor of rank 3") as caught:
        sign(op, "float32[5, 7, 9]", axis=3)
    assert caught.value.code == "AXIS"


@pytest.mark.parametrize("op", REDUCTIONS)
def test_axes_are_named_once(op: str) -> None:
    with pytest.raises(SignatureError, match="twice"):
        sign(op, "float32[5, 7, 9]", axis=(0, -3))


def test_argmax_runs_along_one_axis_or_all() -> None:
    with pytest.raises(SignatureError, match=r"axis is \(0, 1\), but takes an integer, or None"):
        sign("argmax", "float32[5, 7]", axis=(0, 1))


@pytest.mark.parametrize("op", ["max", "argmax"])
@pytest.mark.parametrize(("shape", "axis"), [("[0]", None), ("[3, 0]", 1), ("[3, 0]", -1), ("[0, 3]", 0)])
def test_the_largest_of_nothing_is_refused_by_name(op: str, shape: str, axis: int | None) -> None:
    with pytest.raises(SignatureError, match=rf"{op}: x is float32\[.*the {op} of nothing is not defined") as caught:
        sign(op, f"float32{shape}", axis=axis)
    assert caught.value.code == "SHAPE"


@pytest.mark.parametrize("op", ["max", "argmax"])
def test_no_results_need_no_elements(op: str) -> None:
    for shape, axis, expected in (((0, 3), 1, (0,)), ((3, 0), 0, (0,)), ((0, 0), 1, (0,)), ((2, 0, 5), 2, (2, 0))):
        assert oracle(op, np.empty(shape, np.float32), axis=axis).shape == expected
    assert oracle(op, np.empty((0, 3), np.int8), axis=1, keepdims=True).shape == (0, 1)


@pytest.mark.parametrize("op", ["max", "argmax"])
def test_complex_numbers_have_no_largest(op: str) -> None:
    with pytest.raises(SignatureError, match=r"x\.dtype = complex64"):
        sign(op, "complex64[3]")


def test_reductions_of_nothing_that_have_a_value() -> None:
    assert oracle("prod", np.empty((0, 3), np.float16), axis=0).tolist() == [1, 1, 1]
    assert oracle("prod", np.empty((2, 0), np.int8)) == 1
    assert np.isnan(oracle("mean", np.empty((2, 0), np.float32), axis=1)).all()
    assert np.isnan(oracle("mean", np.empty((0,), np.int32)))
    assert oracle("mean", np.empty((2, 0), np.float32), axis=0).shape == (0,)


def test_integer_products_are_exact_and_wrap() -> None:
    assert oracle("prod", np.array([3**20, 3**19], np.int64)) == 3**39
    assert oracle("prod", np.array([2**40, 2**30, 3], np.int64)) == 0
    assert oracle("prod", np.array([2**32, 2**31], np.uint64)) == 2**63
    assert oracle("prod", np.full(40, -3, np.int8)) == 3**40 - 2**64
    assert oracle("prod", np.array([True, False])) == 0


def test_a_product_may_pass_through_what_its_dtype_cannot_hold() -> None:
    assert oracle("prod", np.array([60000, 60000, 1e-4, 1e-4], np.float16)) == pytest.approx(36, rel=1e-3)


def test_the_mean_of_integers_is_no_integer() -> None:
    assert oracle("mean", np.array([1, 2, 2], np.int8)) == pytest.approx(5 / 3)
    assert oracle("mean", np.array([True, False])) == 0.5
    assert oracle("mean", np.full(3, 2**63, np.uint64)) == 2.0**63


def test_ties_go_to_the_first_and_nan_before_all() -> None:
    assert oracle("argmax", np.array([1, 3, 3, 2])) == 1
    assert oracle("argmax", np.array([-0.0, 0.0])) == oracle("argmax", np.array([0.0, -0.0])) == 0
    assert oracle("argmax", np.array([1, np.nan, np.inf, np.nan])) == 1
    assert oracle("argmax", np.array([[1, 5], [7, 7]])) == 2
    assert oracle("argmax", np.array([[False, False], [False, True]]), axis=1).tolist() == [0, 1]
    assert np.isnan(oracle("max", np.array([1, np.nan, np.inf])))
    assert oracle("max", np.array([-np.inf, -np.inf])) == -np.inf


@pytest.mark.parametrize(
    ("op", "tensor", "axis", "flops", "least"),
    [
        ("sum", "float32[63, 129]", 1, 63 * 129, 63 * 128),
        ("prod", "float32[63, 129]", 1, 63 * 129, 63 * 128),
        ("max", "float32[63, 129]", 0, 63 * 129, 62 * 129),
        ("argmax", "float32[63, 129]", None, 63 * 129, 63 * 129 - 1),
        ("mean", "float32[63, 129]", 1, 63 * 129 + 63, 63 * 128 + 63),
        ("mean", "float32[63, 129];strides=[0, 1]", 0, 63 * 129 + 129, 129),
        ("sum", "float32[63, 129];strides=[0, 1]", 0, 63 * 129, 0),
        ("sum", "float32[0, 129]", 0, 0, 0),
    ],
)
def test_operations_of_reductions(op: str, tensor: str, axis: int | None, flops: int, least: int) -> None:
    signature = sign(op, tensor, axis=axis)
    cost = signature.op.cost(signature)
    assert (cost.flops, cost.least_flops, cost.unit) == (flops, least, "vector")
    (x,), (out,) = signature.operands, signature.outputs
    assert (cost.bytes_read, cost.bytes_written) == (4 * x.size, out.nbytes)
    assert cost.least_bytes == 4 * x.distinct + out.nbytes


# Tolerances -----------------------------------------------------------------------------------------------------------


def one_by_one(terms: np.ndarray) -> np.ndarray:
    """Add up along axis 0, one after another, in float32."""
    total = np.zeros(terms.shape[1:], np.float32)
    for term in terms.astype(np.float32):
        total = total + term
    return total


ORDERS = {
    "one-by-one": one_by_one,
    "backwards": lambda terms: one_by_one(terms[::-1]),
    "pairwise": lambda terms: np.sum(terms.astype(np.float32), axis=0),
    "strided": lambda terms: one_by_one(np.stack([one_by_one(terms[i::8]) for i in range(8)])),
    "ascending": lambda terms: one_by_one(np.sort(terms, axis=0)),
}


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
@pytest.mark.parametrize("count", [1, 63, 5000])
def test_sums_and_means_in_float32_are_honest_in_any_order(count: int, dtype: str, order: str) -> None:
    own = dtypes.get(dtype).numpy
    whole = np.random.default_rng(0).integers(-9, 9, (count, 7), endpoint=True)
    for x in (values((count, 7), dtype), np.full((count, 7), 0.1).astype(own), whole.astype(own)):
        total = ORDERS[order](x)
        assert share("sum", total.astype(own), x, axis=0) <= 1
        assert share("mean", (total / np.float32(count)).astype(own), x, axis=0) <= 1
        assert share("mean", (total * np.float32(1 / count)).astype(own), x, axis=0) <= 1


@pytest.mark.parametrize("op", ["sum", "mean"])
@pytest.mark.parametrize("count", [2**14, 10**6])
def test_a_last_block_left_out_is_refused(count: int, op: str) -> None:
    divided = count if op == "mean" else 1
    positive = np.abs(values((count,), "float32")) + np.float32(0.1)
    assert share(op, positive[: -count // 64].sum(dtype=np.float64) / divided, positive) > 1
    assert share(op, positive.sum() / np.float32(divided), positive) <= 1
    # Nothing is rounded in sums of whole numbers: one term left out, of either sign, is seen among a million.
    whole = np.random.default_rng(1).integers(-9, 9, count, endpoint=True).astype(np.float32)
    whole[-1] = 1
    assert share(op, whole[:-1].sum() / np.float32(divided), whole) > 1
    assert share(op, whole.sum() / np.float32(divided), whole) <= 1


def test_sums_that_are_rounded_keep_their_bound() -> None:
    exact = np.full(2**10, 2.0**-20, np.float32)
    (none,) = OPS["sum"].bound(sign("sum", exact), [exact], OPS["sum"].run_oracle(sign("sum", exact), [exact]))
    assert none < 2.0**-32
    for x in (np.r_[exact, np.float32(1e3)], np.full(999, 0.1, np.float32), np.full(2**12, 2.0**13 + 1, np.float32)):
        signature = sign("sum", x)
        (bound,) = OPS["sum"].bound(signature, [x], OPS["sum"].run_oracle(signature, [x]))
        assert bound > 1e-4 * np.abs(x).sum(dtype=np.float64)


def test_a_sum_of_whole_numbers_in_float64_has_53_bits() -> None:
    x = np.array([2.0**52, 1.0, 1.0])
    assert share("sum", np.float64(2.0**52 + 2), x) == 0
    assert share("sum", np.float64(2.0**52 + 4), x) > 1


@pytest.mark.parametrize("count", [63, 5000])
def test_products_in_float32_are_honest_and_a_factor_left_out_is_not(count: int) -> None:
    x = (1 + 0.1 * values((count, 7), "float64") / np.sqrt(count)).astype(np.float32)
    for order in (x, x[::-1], np.sort(x, axis=0)):
        total = np.ones(7, np.float32)
        for factor in order:
            total = total * factor
        assert share("prod", total, x, axis=0) <= 1
    x[-1] = 1.5
    assert share("prod", x[:-1].prod(0), x, axis=0) > 1


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16", "float64"])
def test_the_largest_is_one_of_the_elements(dtype: str) -> None:
    x = np.sort(values((99,), dtype))
    assert share("max", x[-1], x) == 0
    assert share("max", x[-1].astype(np.float64) * (1 + 2.0**-11), x) > 1
    assert share("max", x[-2], x) > 1
