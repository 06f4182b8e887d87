"""Tolerances: what an honest float32 kernel does is allowed in any order, and every kind of defect is not."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from running import OPS, oracle, sign, values

from nbx_registry import dtypes
from nbx_registry.rounding import float_format
from nbx_registry.tolerance import LONGEST, accumulation_dtype, roundoff, steps

HALVES = ["float16", "bfloat16"]


def share(op: str, output: np.ndarray, *arrays: Any, result: int = 0, **attributes: Any) -> float:
    """Return the largest part of its bound that an error takes; above 1 it is refused. Special values are left out."""
    signature = sign(op, *arrays, **attributes)
    padded = [*arrays, *(None,) * (len(signature.tensors) - len(arrays))]
    references = OPS[op].run_oracle(signature, padded)
    bounds = OPS[op].bound(signature, padded, references)
    assert [bound.shape for bound in bounds] == [reference.shape for reference in references]
    reference, bound = references[result], bounds[result]
    assert output.shape == reference.shape
    assert np.isfinite(bound).all()
    finite = np.isfinite(reference)
    error = np.abs(output.astype(np.float64) - reference)[finite]
    return float(np.max(error / np.maximum(bound[finite], 1e-300), initial=0.0))


def single(x: np.ndarray) -> np.ndarray:
    return x.astype(np.float32)


def tf32(x: np.ndarray) -> np.ndarray:
    """Return float32 numbers with the 10 bits of fraction that a TF32 product looks at."""
    return (x.astype(np.float32).view(np.uint32) & np.uint32(0xFFFFE000)).view(np.float32)


# Honest kernels -------------------------------------------------------------------------------------------------------


def one_by_one(terms: np.ndarray, dtype: Any = np.float32) -> np.ndarray:
    """Add up along axis 0, one after another, every partial sum in ``dtype``."""
    total = np.zeros(terms.shape[1:], dtype)
    for term in terms.astype(dtype):
        total = total + term
    return total


ORDERS = {
    "one-by-one": one_by_one,
    "backwards": lambda terms: one_by_one(terms[::-1]),
    "pairwise": lambda terms: np.sum(single(terms), axis=0),
    "strided": lambda terms: one_by_one(np.stack([one_by_one(terms[i::8]) for i in range(8)])),
    "ascending": lambda terms: one_by_one(np.sort(terms, axis=0)),
}


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("dtype", [*HALVES, "float32"])
@pytest.mark.parametrize("count", [1, 63, 5000])
def test_a_sum_in_float32_is_honest_in_any_order(count: int, dtype: str, order: str) -> None:
    for x in (
        values((count, 7), dtype),
        np.abs(values((count, 7), dtype)),
        np.full((count, 7), 0.1).astype(dtypes.get(dtype).numpy),
    ):
        total = ORDERS[order](single(x)).astype(x.dtype)
        assert share("sum", total, x, axis=0) <= 1


@pytest.mark.parametrize("dtype", [*HALVES, "float32", "float64"])
@pytest.mark.parametrize("inner", [1, 63, 1000])
def test_a_product_in_float32_is_honest(inner: int, dtype: str) -> None:
    a, b = values((5, inner), dtype, 1), values((inner, 3), dtype, 2)
    wide = np.float64 if dtype == "float64" else np.float32
    terms = a.astype(wide).T[:, :, None] * b.astype(wide)[:, None, :]
    for product in (one_by_one(terms, wide), one_by_one(terms[::-1], wide), a.astype(wide) @ b.astype(wide)):
        assert share("matmul", product.astype(a.dtype), a, b) <= 1


def layer_norm(x: np.ndarray, weight: Any = None, bias: Any = None, eps: float = 1e-5) -> np.ndarray:
    wide = single(x)
    count = np.float32(x.shape[-1])
    centred = wide - (one_by_one(np.moveaxis(wide, -1, 0)) / count)[..., None]
    variance = one_by_one(np.moveaxis(centred * centred, -1, 0)) / count
    y = centred / np.sqrt(variance + np.float32(eps))[..., None]
    y = y if weight is None else y * single(weight)
    return (y if bias is None else y + single(bias)).astype(x.dtype)


@pytest.mark.parametrize("dtype", [*HALVES, "float32"])
@pytest.mark.parametrize("mean", [0, 100, 10_000])
def test_a_layer_norm_in_float32_is_honest(mean: float, dtype: str) -> None:
    x = (values((4, 384), "float64") + mean).astype(dtypes.get(dtype).numpy)
    weight, bias = values((384,), dtype, 1), values((384,), dtype, 2)
    assert share("layer_norm", layer_norm(x), x) <= 1
    assert share("layer_norm", layer_norm(x, weight, bias), x, weight, bias) <= 1


def softmax(x: np.ndarray) -> np.ndarray:
    wide = single(x)
    e = np.exp2((wide - wide.max(-1, keepdims=True)) * np.float32(1.4426950408889634))
    return e / one_by_one(np.moveaxis(e, -1, 0))[..., None]


@pytest.mark.parametrize("dtype", [*HALVES, "float32"])
@pytest.mark.parametrize("scale", [0.1, 5, 40])
def test_a_softmax_in_float32_is_honest(scale: float, dtype: str) -> None:
    x = values((6, 1000), dtype, scale=scale)
    # Exponentials below the smallest normal number flushed to zero, as devices do.
    y = softmax(x)
    y = np.where(y < 2.0**-126, np.float32(0), y)
    assert share("softmax", y.astype(x.dtype), x) <= 1


def normal_distribution(x: np.ndarray) -> np.ndarray:
    import torch

    return 0.5 * (1 + torch.erf(torch.from_numpy(x / np.float32(np.sqrt(2)))).numpy())


@pytest.mark.parametrize("dtype", [*HALVES, "float32"])
def test_a_gelu_in_float32_is_honest_though_it_cancels(dtype: str) -> None:
    x = np.linspace(-9, 9, 4001).astype(dtypes.get(dtype).numpy)
    wide = single(x)
    assert share("gelu", (wide * normal_distribution(wide)).astype(x.dtype), x) <= 1
    inner = np.float32(0.7978845608028654) * (wide + np.float32(0.044715) * wide * wide * wide)
    tanh = np.float32(0.5) * wide * (1 + np.tanh(inner))
    assert share("gelu", tanh.astype(x.dtype), x, approximate="tanh") <= 1
    assert share("gelu", tanh.astype(x.dtype), x) > 1


def attention(
    q: np.ndarray, k: np.ndarray, v: np.ndarray, *, weights: Any = np.float32, partial: Any = np.float32
) -> np.ndarray:
    """Attend head by head with an online softmax over blocks of 16 keys, in float32."""
    out = np.zeros((*q.shape[:-1], v.shape[-1]), np.float32)
    scale = np.float32(q.shape[-1] ** -0.5)
    for b, h in np.ndindex(q.shape[:2]):
        scores = (single(q[b, h]) @ single(k[b, h]).T) * scale
        largest = np.full((q.shape[2], 1), -np.inf, np.float32)
        total, acc = np.zeros_like(largest), np.zeros(out.shape[2:], partial)
        for start in range(0, k.shape[2], 16):
            part = scores[:, start : start + 16]
            new = np.maximum(largest, part.max(-1, keepdims=True))
            p = np.exp(part - new)
            kept = np.exp(largest - new)
            total = total * kept + p.sum(-1, keepdims=True)
            block = single(p.astype(weights)) @ single(v[b, h, start : start + 16])
            acc = (acc * kept + block).astype(partial)
            largest = new
        out[b, h] = single(acc) / total
    return out.astype(q.dtype)


@pytest.mark.parametrize("dtype", [*HALVES, "float32"])
@pytest.mark.parametrize("scale", [0.3, 3])
def test_an_attention_in_float32_is_honest_with_weights_in_half_precision(scale: float, dtype: str) -> None:
    q, k = values((1, 2, 9, 64), dtype, 1, scale), values((1, 2, 200, 64), dtype, 2, scale)
    v = values((1, 2, 200, 33), dtype, 3)
    op = "scaled_dot_product_attention"
    assert share(op, attention(q, k, v), q, k, v) <= 1
    if dtype in HALVES:
        rounded = attention(q, k, v, weights=dtypes.get(dtype).numpy)
        assert share(op, rounded, q, k, v) <= 1
        decoded = attention(q[:, :, :1], k, v, weights=dtypes.get(dtype).numpy)[:, :, 0]
        assert share("decode_attention", decoded, q[:, :, 0], k, v) <= 1


def test_joining_splits_in_float32_is_honest() -> None:
    o, m = values((5, 64, 9), "float32", 1), values((5, 64), "float32", 2, 30)
    totals = np.abs(values((5, 64), "float32", 3)) + np.float32(0.5)
    largest, acc, total = np.full(5, -np.inf, np.float32), np.zeros((5, 9), np.float32), np.zeros(5, np.float32)
    for s in range(64):
        new = np.maximum(largest, m[:, s])
        kept, added = np.exp(largest - new), np.exp(m[:, s] - new)
        acc = kept[:, None] * acc + added[:, None] * o[:, s]
        total, largest = kept * total + added * totals[:, s], new
    assert share("decode_attention_reduce", acc / total[:, None], o, m, totals) <= 1
    assert share("decode_attention_reduce", o.sum(1) / totals.sum(1)[:, None], o, m, totals) > 1


@pytest.mark.parametrize("dtype", [*HALVES, "float32", "float64"])
def test_arithmetic_rounded_once_is_honest_and_the_next_number_is_not(dtype: str) -> None:
    a, b = values((999,), dtype, 1), values((999,), dtype, 2)
    wide = np.float64 if dtype == "float64" else np.float32
    for op, function in (("add", np.add), ("multiply", np.multiply)):
        result = function(a.astype(wide), b.astype(wide)).astype(a.dtype)
        assert share(op, result, a, b) <= 1
        spacing = float_format(dtypes.get(dtype)).spacing(result.astype(np.float64))
        assert share(op, result.astype(np.float64) + spacing, a, b) > 1


@pytest.mark.parametrize("op", ["divide", "sqrt"])
def test_quotients_and_roots_have_two_and_a_half_ulp_in_float32_and_one_rounding_in_halves(op: str) -> None:
    for dtype, ulps, allowed in (
        ("float32", 2.4, True),
        ("float32", 6, False),
        ("float16", 0.49, True),
        ("float16", 1, False),
    ):
        a, b = np.abs(values((999,), dtype, 1)) + 1, np.abs(values((999,), dtype, 2)) + 1
        arrays = (a, b) if op == "divide" else (a,)
        exact = oracle(op, *arrays)
        off = exact + ulps * float_format(dtypes.get(dtype)).spacing(exact)
        assert (share(op, off, *arrays) <= 1) is allowed


# Defects --------------------------------------------------------------------------------------------------------------


def test_a_float16_sum_that_stalls_is_refused() -> None:
    ones = np.ones(10_000, np.float16)
    stalled = one_by_one(ones, np.float16)
    assert stalled == 2048
    assert share("sum", stalled, ones) > 100
    assert share("sum", np.float16(10_000), ones) == 0


@pytest.mark.parametrize("dtype", HALVES)
@pytest.mark.parametrize("count", [257, 4099])
def test_accumulation_in_half_precision_is_refused(count: int, dtype: str) -> None:
    half = dtypes.get(dtype).numpy
    x = np.abs(values((count, 9), dtype))
    assert share("sum", one_by_one(x, half), x, axis=0) > 1
    a, b = values((9, count), dtype, 1), values((count, 5), dtype, 2)
    product = one_by_one(single(a).T[:, :, None] * single(b)[:, None, :], half)
    assert share("matmul", product, a, b) > 1


@pytest.mark.parametrize("inner", [17, 64, 256])
def test_tf32_products_of_float32_are_refused(inner: int) -> None:
    a, b = values((33, inner), "float32", 1), values((inner, 31), "float32", 2)
    assert share("matmul", tf32(a) @ tf32(b), a, b) > 1
    assert share("linear", tf32(a) @ tf32(b), a, np.ascontiguousarray(b.T)) > 1


@pytest.mark.parametrize("inner", [1024, 4096])
def test_tf32_products_of_long_rows_are_refused_where_their_errors_add_up(inner: int) -> None:
    # The bits that TF32 drops are all ones.
    a = np.full((3, inner), 1 + 2.0**-10 - 2.0**-23, np.float32)
    b = np.full((inner, 2), 1 + 2.0**-10 - 2.0**-23, np.float32)
    assert share("matmul", tf32(a) @ tf32(b), a, b) > 1
    assert share("matmul", a @ b, a, b) <= 1


@pytest.mark.parametrize("dtype", [*HALVES, "float32"])
def test_a_term_left_out_is_refused(dtype: str) -> None:
    x = np.abs(values((129, 4), dtype)) + dtypes.get(dtype).numpy.type(1)
    assert share("sum", single(x[:-1]).sum(0).astype(x.dtype), x, axis=0) > 1
    a, b = np.abs(values((5, 129), dtype, 1)), np.abs(values((129, 3), dtype, 2)) + dtypes.get(dtype).numpy.type(0.5)
    assert share("matmul", (single(a)[:, :128] @ single(b)[:128]).astype(a.dtype), a, b) > 1
    q, k, v = (values(shape, dtype, i) for i, shape in enumerate([(1, 1, 3, 16), (1, 1, 65, 16), (1, 1, 65, 8)]))
    assert share("scaled_dot_product_attention", attention(q, k[:, :, :64], v[:, :, :64]), q, k, v) > 1
    assert share("softmax", softmax(x[:, :3]).astype(x.dtype), x[:, :3].copy()) <= 1
    wrong = np.exp(single(x)) / np.exp(single(x))[:, :-1].sum(-1, keepdims=True)
    assert share("softmax", wrong.astype(x.dtype), x) > 1


@pytest.mark.parametrize("width", [63, 384])
def test_a_variance_as_a_difference_of_squares_is_refused(width: int) -> None:
    x = (values((8, width), "float64") + 10_000).astype(np.float32)
    mean = x.mean(-1, keepdims=True)
    variance = np.maximum((x * x).mean(-1, keepdims=True) - mean * mean, 0)
    assert share("layer_norm", (x - mean) / np.sqrt(variance + np.float32(1e-5)), x) > 1
    assert share("layer_norm", layer_norm(x), x) <= 1


def test_dividing_the_variance_by_one_less_is_refused() -> None:
    x = values((8, 129), "float32")
    y = (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True, ddof=1) + np.float32(1e-5))
    assert share("layer_norm", y, x) > 1


@pytest.mark.parametrize("dtype", HALVES)
def test_an_attention_accumulated_in_half_precision_is_refused(dtype: str) -> None:
    half = dtypes.get(dtype).numpy
    q, k = values((1, 2, 9, 64), dtype, 1, 0.1), values((1, 2, 2000, 64), dtype, 2, 0.1)
    v = np.abs(values((1, 2, 2000, 33), dtype, 3))
    assert share("scaled_dot_product_attention", attention(q, k, v, partial=half), q, k, v) > 1
    assert share("scaled_dot_product_attention", attention(q, k, v, weights=half), q, k, v) <= 1


def test_a_scale_of_the_padded_width_is_refused() -> None:
    q, k, v = (values(shape, "float16", i) for i, shape in enumerate([(1, 1, 3, 127), (1, 1, 65, 127), (1, 1, 65, 8)]))
    padded = [np.concatenate([x, np.zeros_like(x[..., :1])], -1) for x in (q, k)]
    assert share("scaled_dot_product_attention", attention(*padded, v), q, k, v) > 1


# The bound itself -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("op", "arrays", "attributes"),
    [
        ("add", (np.ones(3, np.int8), np.ones(3, np.int8)), {}),
        ("sum", (np.ones((2, 3), np.bool_),), {"axis": 0}),
        ("astype", (np.ones(3, np.float32),), {"dtype": "float16"}),
        ("permute_dims", (np.ones((2, 3), np.float32),), {"axes": (1, 0)}),
        ("pixel_shuffle", (np.ones((1, 4, 2, 3), np.float32),), {"r": 2}),
        ("embedding", (np.ones((4, 2), np.float32), np.zeros(3, np.int32)), {}),
        (
            "paged_kv_append",
            (np.ones((1, 2, 4), np.float32), np.zeros(1, np.int32), np.ones((3, 2, 8, 4), np.float16)),
            {},
        ),
    ],
)
def test_exact_results_have_no_tolerance(op: str, arrays: tuple[Any, ...], attributes: dict[str, Any]) -> None:
    signature = sign(op, *arrays, **attributes)
    references = OPS[op].run_oracle(signature, arrays)
    (bound,) = OPS[op].bound(signature, arrays, references)
    assert bound.shape == references[0].shape
    assert not bound.any()


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32"])
def test_the_bound_of_a_subnormal_result_is_half_of_the_smallest_number(dtype: str) -> None:
    form = float_format(dtypes.get(dtype))
    smallest = form.spacing(0.0)
    x = (np.array([0, 1, 5]) * smallest).astype(dtypes.get(dtype).numpy)
    signature = sign("add", x, x)
    (bound,) = OPS["add"].bound(signature, (x, x), OPS["add"].run_oracle(signature, (x, x)))
    assert (bound >= smallest / 2).all()
    assert (bound < smallest).all()


def test_the_bound_next_to_overflow_is_that_of_the_largest_number() -> None:
    x = np.array([60_000, 30_000], np.float16)
    signature = sign("add", x, x)
    references = OPS["add"].run_oracle(signature, (x, x))
    (bound,) = OPS["add"].bound(signature, (x, x), references)
    # 60,000 doubled is infinity, and no finite number is near it: the spacing stays that of 65,504.
    assert bound[0] == pytest.approx(16, rel=1e-3)
    assert references[0][0] - bound[0] > 65_520
    assert bound[1] == pytest.approx(16, rel=1e-3)


def test_special_references_leave_a_finite_bound() -> None:
    x = np.array([[np.inf, 1, 2], [np.nan, 1, 2], [-np.inf, 1, 2]], np.float32)
    for op, attributes in (("softmax", {}), ("layer_norm", {}), ("sum", {"axis": -1}), ("gelu", {})):
        signature = sign(op, x, **attributes)
        arrays = [x, *(None,) * (len(signature.tensors) - 1)]
        (bound,) = OPS[op].bound(signature, arrays, OPS[op].run_oracle(signature, arrays))
        assert np.isfinite(bound).all()


def test_what_a_bound_is_made_of() -> None:
    assert roundoff(dtypes.get("float32")) == 2.0**-24
    assert roundoff(dtypes.get("bfloat16")) == 2.0**-8
    assert accumulation_dtype(dtypes.get("float16")).name == "float32"
    assert accumulation_dtype(dtypes.get("float64")).name == "float64"
    assert [steps(n) for n in (0, 1, 63, 10**9)] == [1, 1, 63, LONGEST]


def test_a_float32_sum_of_many_terms_still_notices_a_thousandth() -> None:
    x = np.ones(2**20, np.float32)
    assert share("sum", np.float32(2**20 * 0.998), x) > 1
