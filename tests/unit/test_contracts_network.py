"""Contracts of normalization, products, layout and indexing: what comes out, what is refused, the edges."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from running import oracle, outputs, sign, values

from nbx_registry.errors import SignatureError

# Normalization --------------------------------------------------------------------------------------------------------


def test_layer_norm_takes_a_weight_a_bias_both_or_neither() -> None:
    for rest in ((), ("float16[7]",), (None, "float16[7]"), ("float16[7]", "float16[7]")):
        assert outputs("layer_norm", "float16[2, 3, 7]", *rest) == "float16[2, 3, 7]"


@pytest.mark.parametrize(
    ("tensors", "words"),
    [
        (("float16[2, 7]", "float16[6]"), "axis D of weight is 6, but D of x is 7"),
        (("float16[2, 7]", None, "float32[7]"), "bias is float32, but x is float16"),
        (("int8[2, 7]",), "x is int8, but must be floating"),
        (("float16[]",), "rank at least 1"),
    ],
)
def test_layer_norm_refuses(tensors: tuple[Any, ...], words: str) -> None:
    with pytest.raises(SignatureError, match=words):
        sign("layer_norm", *tensors)


def test_layer_norm_at_the_edges() -> None:
    constant = oracle("layer_norm", np.full((2, 5), 7.0), None, np.arange(5.0))
    assert constant.tolist() == [[0, 1, 2, 3, 4]] * 2
    rows = oracle("layer_norm", np.array([[1, np.inf, 2], [np.nan, 1, 2], [1.0, 2, 3]]))
    assert np.isnan(rows[:2]).all()
    assert np.isfinite(rows[2]).all()
    assert oracle("layer_norm", np.zeros((3, 0))).shape == (3, 0)
    large = oracle("layer_norm", np.array([[1e6, 1e6 + 1, 1e6 + 2]]), eps=0.0)
    assert large == pytest.approx(np.array([[-1.5, 0, 1.5]]) / np.sqrt(1.5), rel=1e-6)


def test_rms_norm_takes_a_weight_or_none() -> None:
    for rest in ((), (None,), ("bfloat16[7]",)):
        assert outputs("rms_norm", "bfloat16[2, 3, 7]", *rest) == "bfloat16[2, 3, 7]"
    assert outputs("rms_norm", "float64[7]", "float64[7]") == "float64[7]"


@pytest.mark.parametrize(
    ("tensors", "words"),
    [
        (("float16[2, 7]", "float16[6]"), "axis D of weight is 6, but D of x is 7"),
        (("float16[2, 7]", "float32[7]"), "weight is float32, but x is float16"),
        (("int8[2, 7]",), "x is int8, but must be floating"),
        (("float16[]",), "rank at least 1"),
    ],
)
def test_rms_norm_refuses(tensors: tuple[Any, ...], words: str) -> None:
    with pytest.raises(SignatureError, match=words):
        sign("rms_norm", *tensors)


def test_rms_norm_at_the_edges() -> None:
    assert oracle("rms_norm", np.zeros((2, 3)), eps=0.25).tolist() == [[0] * 3] * 2
    assert oracle("rms_norm", np.array([3.0, 4.0]), np.array([1.0, 10.0]), eps=0.0) == pytest.approx(
        np.array([3, 40]) / np.sqrt(12.5)
    )
    assert np.isnan(oracle("rms_norm", np.array([[1, np.nan, 2]]))).all()
    infinite = oracle("rms_norm", np.array([[1, -np.inf, 2]]))
    assert np.isnan(infinite[0, 1])
    assert infinite[0, [0, 2]].tolist() == [0, 0]
    assert oracle("rms_norm", np.zeros((3, 0))).shape == (3, 0)


def test_group_norm_has_any_number_of_axes_after_the_channels() -> None:
    for shape in ("[2, 6]", "[2, 6, 5]", "[2, 6, 5, 7]", "[0, 6, 1, 2, 3]"):
        assert outputs("group_norm", f"float16{shape}", "float16[6]", None, groups=3) == f"float16{shape}"
    signature = sign("group_norm", "float16[2, 6, 5, 7]", groups=3)
    assert [signature.value(axis) for axis in "NCM"] == [2, 6, 70]


@pytest.mark.parametrize(
    ("tensors", "groups", "code", "words"),
    [
        (("float16[2, 6, 5]",), 4, "CONSTRAINT", r"C % groups == 0 \(C = 6, groups = 4\)"),
        (("float16[2, 6, 5]",), 0, "CONSTRAINT", r"groups >= 1 \(groups = 0\)"),
        (("float16[6]",), 2, "SHAPE", r"rank 1 .* must be \[N, C, \.\.\.\]"),
        (("float16[2, 6, 5]", "float16[5]"), 2, "SHAPE", "axis K of weight is 5, but axis 1 of x, its channels, is 6"),
        (("float16[2, 6, 5]", None, "float16[7]"), 2, "SHAPE", "axis K of bias is 7"),
        (("float16[2, 6, 5]", "float16[6]", "float16[5]"), 2, "SHAPE", "axis K of bias is 5, but K of weight is 6"),
        (("float16[2, 6, 5]", "float32[6]"), 2, "DTYPE", "weight is float32, but x is float16"),
    ],
)
def test_group_norm_refuses(tensors: tuple[Any, ...], groups: int, code: str, words: str) -> None:
    with pytest.raises(SignatureError, match=words) as caught:
        sign("group_norm", *tensors, groups=groups)
    assert caught.value.code == code


def test_group_norm_at_the_edges() -> None:
    x = np.full((1, 4, 3), 7.0)
    assert oracle("group_norm", x, None, np.arange(4.0), groups=2).tolist() == [[[c] * 3 for c in range(4)]]
    x = values((1, 4, 3), "float64")
    x[0, 1, 2] = np.inf
    found = oracle("group_norm", x, groups=2)
    assert np.isnan(found[:, :2]).all()
    assert np.isfinite(found[:, 2:]).all()
    # One group of everything, and each channel by itself, are what layer_norm says of such rows.
    x = values((3, 4, 5), "float64")
    for groups in (1, 2, 4):
        rows = oracle("layer_norm", x.reshape(3, groups, -1))
        np.testing.assert_array_equal(oracle("group_norm", x, groups=groups), rows.reshape(x.shape))
    assert oracle("group_norm", np.zeros((2, 4, 0)), groups=2).shape == (2, 4, 0)


@pytest.mark.parametrize(("given", "more"), [((), 0), (("float32[6]",), 1), (("float32[6]", "float32[6]"), 2)])
def test_operations_of_norms(given: tuple[str, ...], more: int) -> None:
    signature = sign("group_norm", "float32[2, 6, 5]", *given, groups=3)
    cost = signature.op.cost(signature)
    assert (cost.flops, cost.least_flops) == ((5 + more) * 60, (5 + more) * 60)
    assert (cost.bytes_read, cost.bytes_written) == (4 * (60 + 6 * more), 240)
    if more < 2:
        signature = sign("rms_norm", "float32[10, 6]", *given)
        cost = signature.op.cost(signature)
        assert (cost.flops, cost.bytes_read, cost.bytes_written) == ((3 + more) * 60, 4 * (60 + 6 * more), 240)


def test_softmax_binds_the_extent_of_its_axis() -> None:
    signature = sign("softmax", "float16[2, 3, 7]", axis=1)
    assert signature.axes["L"] == 3
    assert str(signature.outputs[0]) == "float16[2, 3, 7]"
    assert signature.value("L") == 3


@pytest.mark.parametrize(("tensor", "axis"), [("float16[2, 3]", 2), ("float16[2, 3]", -3), ("float16[]", -1)])
def test_softmax_refuses_an_axis_that_is_not_there(tensor: str, axis: int) -> None:
    with pytest.raises(SignatureError, match=f"axis={axis} is out of range"):
        sign("softmax", tensor, axis=axis)


def test_softmax_does_not_overflow_and_propagates_special_values() -> None:
    assert oracle("softmax", np.full((2, 4), 65504, np.float16)).tolist() == [[0.25] * 4] * 2
    assert oracle("softmax", np.array([-np.inf, 0.0, 0.0])).tolist() == [0, 0.5, 0.5]
    for row in ([np.nan, 1], [np.inf, 1], [-np.inf, -np.inf]):
        assert np.isnan(oracle("softmax", np.array(row))).all()


# Products -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("first", "second", "expected", "axes"),
    [
        ("float16[5, 63]", "float16[63, 7]", "float16[5, 7]", (5, 63, 7)),
        ("float16[2, 1, 5, 63]", "float16[3, 63, 7]", "float16[2, 3, 5, 7]", (5, 63, 7)),
        ("float16[63]", "float16[63]", "float16[]", (1, 63, 1)),
        ("float16[63]", "float16[2, 63, 7]", "float16[2, 7]", (1, 63, 7)),
        ("float16[2, 5, 63]", "float16[63]", "float16[2, 5]", (5, 63, 1)),
        ("float16[5, 0]", "float16[0, 7]", "float16[5, 7]", (5, 0, 7)),
    ],
)
def test_outputs_of_matmul_and_the_axes_it_binds(first: str, second: str, expected: str, axes: tuple[int, ...]) -> None:
    signature = sign("matmul", first, second)
    assert str(signature.outputs[0]) == expected
    assert tuple(signature.value(axis) for axis in "MKN") == axes


@pytest.mark.parametrize(
    ("tensors", "words"),
    [
        (("float16[5, 63]", "float16[64, 7]"), "last axis of x1, 63, with axis -2 of x2, 64"),
        (("float16[2, 5, 63]", "float16[3, 63, 7]"), "do not broadcast"),
        (("float16[5, 63]", "float32[63, 7]"), "x2 is float32, but x1 is float16; they must be equal"),
        (("float16[]", "float16[3]"), "x1 has rank 0"),
        (("float16[3, 3]", 2.0), "x2 has rank 0"),
        (("int8[3, 3]", "int8[3, 3]"), "must be floating"),
    ],
)
def test_matmul_refuses(tensors: tuple[Any, ...], words: str) -> None:
    with pytest.raises(SignatureError, match=words):
        sign("matmul", *tensors)


def test_a_product_over_nothing_is_zero() -> None:
    assert oracle("matmul", np.ones((2, 0)), np.ones((0, 3))).tolist() == [[0] * 3] * 2


@pytest.mark.parametrize(
    ("tensors", "attributes", "words"),
    [
        (("float16[5, 63]", "float16[7, 64]"), {}, "axis K of w is 64, but K of x is 63"),
        (("float16[5, 63]", "float16[7, 63]", "float16[8]"), {}, "axis N of bias is 8, but N of w is 7"),
        (("float16[5, 63]", "float16[7, 63]"), {"activation": "swish"}, "activation = 'swish'"),
    ],
)
def test_linear_refuses(tensors: tuple[Any, ...], attributes: dict[str, Any], words: str) -> None:
    with pytest.raises(SignatureError, match=words):
        sign("linear", *tensors, **attributes)


def test_linear_has_leading_axes_or_none() -> None:
    assert outputs("linear", "float16[63]", "float16[7, 63]") == "float16[7]"
    assert outputs("linear", "float16[2, 0, 63]", "float16[7, 63]", "float16[7]") == "float16[2, 0, 7]"


# Layout ---------------------------------------------------------------------------------------------------------------


def test_permuting_axes() -> None:
    assert outputs("permute_dims", "float16[2, 3, 5]", axes=(2, 0, 1)) == "float16[5, 2, 3]"
    assert outputs("permute_dims", "bool[]", axes=()) == "bool[]"
    assert outputs("permute_dims", "float16[2, 3]", axes=(-1, -2), copy=True) == "float16[3, 2]"
    with pytest.raises(SignatureError, match="name every axis once"):
        sign("permute_dims", "float16[2, 3]", axes=(0, 0))


@pytest.mark.parametrize(
    ("tensor", "r", "words"),
    [
        ("float16[1, 7, 3, 5]", 2, r"C % r\*\*2 == 0 \(C = 7, r = 2\)"),
        ("float16[1, 3, 3, 3, 5]", 2, r"C = 9, r = 2"),
        ("float16[1, 4, 3, 5]", 0, r"r >= 1 \(r = 0\)"),
        ("float16[1, 4, 3, 5]", -2, r"r >= 1 \(r = -2\)"),
        ("float16[4, 3, 5]", 2, r"rank 3 .*must be \[N, C, H, W\] or \[N, P, B, H, W\]"),
        ("float16[1, 1, 1, 4, 3, 5]", 2, "rank 6"),
    ],
)
def test_pixel_shuffle_refuses(tensor: str, r: int, words: str) -> None:
    with pytest.raises(SignatureError, match=words):
        sign("pixel_shuffle", tensor, r=r)


def test_pixel_shuffle_of_either_form() -> None:
    signature = sign("pixel_shuffle", "float16[2, 12, 3, 5]", r=2)
    assert str(signature.outputs[0]) == "float16[2, 3, 6, 10]"
    assert [signature.value(axis) for axis in "NCHW"] == [2, 12, 3, 5]
    expanded = "float16[2, 3, 4, 3, 5];strides=[45, 15, 0, 5, 1]"
    assert outputs("pixel_shuffle", expanded, r=2) == "float16[2, 3, 6, 10]"
    # Odd sizes, so that no two axes can be mistaken for each other.
    x = np.arange(2 * 4 * 3 * 5, dtype=np.int32).reshape(2, 4, 3, 5)
    out = oracle("pixel_shuffle", x, r=2)
    assert out.dtype == np.int32
    assert out[1, 0, 5, 8] == x[1, 2, 2, 4]


# Indexing -------------------------------------------------------------------------------------------------------------


def test_embedding_gathers_rows() -> None:
    assert outputs("embedding", "bfloat16[11, 5]", "int32[2, 3]") == "bfloat16[2, 3, 5]"
    assert outputs("embedding", "int8[11, 5]", "int64[]") == "int8[5]"
    w = values((11, 5), "float16")
    assert oracle("embedding", w, np.array([10, 0, 10])).tolist() == w[[10, 0, 10]].tolist()


@pytest.mark.parametrize("dtype", ["int8", "uint32", "float32", "bool"])
def test_embedding_takes_two_dtypes_of_indices(dtype: str) -> None:
    with pytest.raises(SignatureError, match="index"):
        sign("embedding", "float32[11, 5]", f"{dtype}[3]")


def test_indices_stay_below_the_rows() -> None:
    assert sign("embedding", "float32[11, 5]", "int32[3]").index_limits() == {"index": (0, 11, "V")}
