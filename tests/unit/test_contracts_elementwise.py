"""Contracts of the elementwise ops and sum: what comes out, what is refused, what happens at the edges."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
from running import OPS, oracle, outputs, sign, values

from nbx_registry import dtypes
from nbx_registry.errors import SignatureError


@pytest.mark.parametrize(
    ("tensors", "expected"),
    [
        (("float16[2, 1, 3]", "float16[5, 1]"), "float16[2, 5, 3]"),
        (("float16[3]", "float32[]"), "float32[3]"),
        (("bfloat16[3]", 2), "bfloat16[3]"),
        ((0.5, "float64[0, 3]"), "float64[0, 3]"),
        (("float16[3, 4];strides=[1, 3]", "float16[4]"), "float16[3, 4]"),
    ],
)
@pytest.mark.parametrize("op", ["add", "subtract", "multiply", "divide", "pow", "maximum", "minimum"])
def test_operands_broadcast_and_promote(op: str, tensors: tuple[Any, ...], expected: str) -> None:
    assert outputs(op, *tensors) == expected


@pytest.mark.parametrize("op", ["add", "subtract", "multiply", "pow", "maximum", "minimum"])
def test_integers_stay_integers(op: str) -> None:
    assert outputs(op, "int8[3]", "uint16[3]") == "int32[3]"
    assert outputs(op, "uint8[3]", 7) == "uint8[3]"


@pytest.mark.parametrize("op", ["add", "subtract", "multiply"])
def test_complex_numbers_are_numbers(op: str) -> None:
    assert outputs(op, "complex64[3]", "float32[3]") == "complex64[3]"
    assert outputs("negative", "complex64[3]") == "complex64[3]"
    assert outputs("abs", "complex64[3]") == "float32[3]"


@pytest.mark.parametrize(
    ("op", "tensors", "words"),
    [
        ("add", ("float32[3]", "float32[4]"), "x1 and x2 do not broadcast: axis -1 is 3 in x1 and 4 in x2"),
        ("add", ("int32[3]", "float32[3]"), "x1 is int32 and x2 is float32: .*kinds.*astype"),
        ("multiply", ("float16[3]", "bfloat16[3]"), "neither holds the other; convert one of them with astype"),
        ("add", ("int8[3]", "uint64[3]"), "no integer dtype holds both"),
        ("add", ("float64[3]", "complex64[3]"), "no complex dtype of the table holds both"),
        ("add", ("float8_e5m2[3]", "float32[3]"), "such a format combines only with itself"),
        ("add", ("bool[3]", "bool[3]"), "x1 is bool, but must be numeric"),
        ("add", ("int32[3]", 2.5), "x2 is a Python float and x1 is int32"),
        ("add", (1, 2.5), "both Python scalars"),
        ("divide", ("int32[3]", "int32[3]"), "x1 is int32, but must be floating"),
        ("sqrt", ("int32[3]",), "x is int32, but must be floating"),
        ("exp", ("int32[3]",), "x is int32, but must be floating"),
        ("negative", ("bool[3]",), "x is bool, but must be numeric"),
        ("relu", ("complex64[3]",), "x is complex, and complex numbers have no order.*abs"),
        ("maximum", ("float32[3]", "complex64[3]"), "x2 is complex, and complex numbers have no order"),
        ("pow", ("complex64[3]", 2), "no powers are taken here; take those of its magnitude"),
        ("pow", ("int32[3]", 0.5), "e is a Python float and x is int32"),
        ("pow", ("float32[3]", True), "e is a Python bool, but must be numeric"),
        ("pow", ("float32[3]", 1j), "x or e is complex64"),
        ("pow", ("float32[3]", "float32[4]"), "x and e do not broadcast: axis -1 is 3 in x and 4 in e"),
        ("clip", ("float32[3]", "float16[3]"), "min is float16, but x is float32; they must be equal"),
        ("clip", ("int8[3]", None, 2.5), "max is a Python float and x is int8"),
        ("clip", (2.5, "float32[3]"), "x is a Python scalar; give an array"),
        ("clip", ("float32[3]", "float32[4]"), "x and min do not broadcast"),
        ("where", (True, "float32[3]", 1), "condition is a Python bool; give an array"),
        ("where", ("int8[3]", "float32[3]", 1), "condition is int8, but must be bool"),
        ("where", ("bool[3]", 1, 2.5), "both Python scalars"),
        ("where", ("bool[3]", "float32[3]", "int8[3]"), "x1 is float32 and x2 is int8: .*kinds.*astype"),
        ("where", ("bool[4]", "float32[3]", "float32[3]"), "condition and x1 do not broadcast"),
    ],
)
def test_arithmetic_refuses(op: str, tensors: tuple[Any, ...], words: str) -> None:
    with pytest.raises(SignatureError, match=words):
        sign(op, *tensors)


def test_division_by_zero_follows_ieee_754() -> None:
    with np.errstate(all="ignore"):
        result = oracle("divide", np.array([1.0, -1.0, 0.0, 1.0]), np.array([0.0, 0.0, 0.0, -0.0]))
    assert result.tolist()[:2] == [np.inf, -np.inf]
    assert np.isnan(result[2])
    assert result[3] == -np.inf


def test_square_roots_at_the_edges() -> None:
    result = oracle("sqrt", np.array([-0.0, np.inf, -1e-30, 4.0], np.float32))
    assert np.signbit(result[0])
    assert result[1] == np.inf
    assert np.isnan(result[2])


def test_gelu_propagates_special_values() -> None:
    for form in ("none", "tanh"):
        result = oracle("gelu", np.array([np.nan, np.inf, -np.inf, 0.0, -0.0]), approximate=form)
        assert np.isnan(result[[0, 2]]).all()
        assert result[1] == np.inf
        assert not result[3:].any()
        assert np.signbit(result[4])


def test_gelu_takes_two_forms() -> None:
    with pytest.raises(SignatureError, match=r"approximate in \('none', 'tanh'\) \(approximate = 'sigmoid'\)"):
        sign("gelu", "float32[3]", approximate="sigmoid")


def test_differences_and_signs_wrap_around() -> None:
    assert oracle("subtract", np.array([-128, 5], np.int8), np.array([1, 7], np.int8)).tolist() == [127, -2]
    assert oracle("subtract", np.array([3], np.uint8), 5).tolist() == [254]
    assert oracle("negative", np.array([-128, 0, 5], np.int8)).tolist() == [-128, 0, -5]
    assert oracle("negative", np.array([0, 1, 255], np.uint8)).tolist() == [0, 255, 1]
    assert oracle("abs", np.array([-128, -5, 5], np.int8)).tolist() == [-128, 5, 5]


def test_the_magnitude_of_a_complex_number_neither_overflows_nor_vanishes() -> None:
    x = np.array([3e30 + 4e30j, 3e-30 - 4e-30j, complex(np.inf, np.nan), 0j], np.complex64)
    np.testing.assert_allclose(oracle("abs", x), [5e30, 5e-30, np.inf, 0], rtol=1e-6)


def test_signs_of_zeros() -> None:
    zeros = np.array([0.0, -0.0])
    for op in ("tanh", "erf", "silu", "gelu", "sqrt"):
        assert np.signbit(oracle(op, zeros)).tolist() == [False, True], op
    assert np.signbit(oracle("negative", zeros)).tolist() == [True, False]
    assert np.signbit(oracle("abs", zeros)).tolist() == [False, False]
    for op in ("reciprocal", "rsqrt"):
        assert oracle(op, zeros).tolist() == [np.inf, -np.inf], op
    assert np.signbit(oracle("reciprocal", np.array([np.inf, -np.inf]))).tolist() == [False, True]
    # Where nothing but a choice is made, either zero is right.
    assert not any(OPS[op].signed_zeros for op in ("relu", "maximum", "minimum", "clip"))
    assert all(OPS[op].signed_zeros for op in ("add", "where", "pow", "divide", "gelu"))


EDGES = np.array([np.nan, np.inf, -np.inf, 800.0, -800.0])


@pytest.mark.parametrize(
    ("op", "expected"),
    [
        ("exp", [np.nan, np.inf, 0, np.inf, 0]),
        ("log", [np.nan, np.inf, np.nan, np.log(800.0), np.nan]),
        ("tanh", [np.nan, 1, -1, 1, -1]),
        ("erf", [np.nan, 1, -1, 1, -1]),
        ("sigmoid", [np.nan, 1, 0, 1, 0]),
        ("silu", [np.nan, np.inf, np.nan, 800, 0]),
        ("relu", [np.nan, np.inf, 0, 800, 0]),
        ("rsqrt", [np.nan, 0, np.nan, 800**-0.5, np.nan]),
        ("reciprocal", [np.nan, 0, 0, 1 / 800, -1 / 800]),
    ],
)
def test_edges(op: str, expected: list[float]) -> None:
    np.testing.assert_allclose(oracle(op, EDGES), expected, rtol=1e-15)


def test_logarithms_of_zeros_and_one() -> None:
    assert oracle("log", np.array([0.0, -0.0, 1.0])).tolist() == [-np.inf, -np.inf, 0.0]


# pow ------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("x", "e", "expected"),
    [
        (0.0, 0.0, 1.0),
        (-0.0, 0.0, 1.0),
        (0.0, -1.0, np.inf),
        (-0.0, 3.0, -0.0),
        (-0.0, -1.0, -np.inf),
        (-0.0, -2.0, np.inf),
        (-0.0, 0.5, 0.0),
        (-0.0, -0.5, np.inf),
        (np.nan, 0.0, 1.0),
        (1.0, np.nan, 1.0),
        (np.nan, 1.0, np.nan),
        (-2.0, 0.5, np.nan),
        (-2.0, 3.0, -8.0),
        (-2.0, np.inf, np.inf),
        (-0.5, np.inf, 0.0),
        (-1.0, np.inf, 1.0),
        (-np.inf, 0.5, np.inf),
        (-np.inf, 3.0, -np.inf),
        (-np.inf, -3.0, -0.0),
        (np.inf, -0.5, 0.0),
        (1e20, -2.0, 1e-40),
    ],
)
@pytest.mark.parametrize("form", ["one", "several", "scalar", "no-axes"])
def test_powers_are_those_of_ieee_754(x: float, e: float, expected: float, form: str) -> None:
    shape = {"one": (1,), "several": (3, 2), "scalar": (2,), "no-axes": ()}[form]
    result = oracle("pow", np.full(shape, x), e if form == "scalar" else np.full(shape, e))
    np.testing.assert_allclose(result, np.full(shape, expected), rtol=1e-15)
    if not np.isnan(expected):
        assert (np.signbit(result) == np.signbit(expected)).all()


def test_an_exponent_is_a_number_of_the_arrays_dtype() -> None:
    x = np.array([2.0, 3.0], np.float16)
    np.testing.assert_array_equal(oracle("pow", x, 0.1), oracle("pow", x, np.full(2, 0.1, np.float16)))


def test_integer_powers_are_exact_and_wrap_around() -> None:
    x = np.array([-128, 3, 0, 7], np.int8)
    assert oracle("pow", x, np.array([3, 5, 0, 3], np.int8)).tolist() == [0, -13, 1, 87]
    assert oracle("pow", x, np.array([1, 5, 0, 11], np.int32)).tolist() == [-128, 243, 1, 7**11]
    assert oracle("pow", np.array([3], np.uint64), 41).tolist() == [3**41 % 2**64]
    assert sign("pow", "int32[3]", "int32[3]").index_limits() == {"e": (0, None, "")}


# Choices --------------------------------------------------------------------------------------------------------------


def test_nan_wins() -> None:
    x, y = np.array([np.nan, 1.0, 2.0]), np.array([1.0, np.nan, 3.0])
    for op, last in (("maximum", 3), ("minimum", 2)):
        np.testing.assert_array_equal(oracle(op, x, y), [np.nan, np.nan, last])
    np.testing.assert_array_equal(oracle("clip", y, x, 5.0), [np.nan, np.nan, 3])


def test_clip_takes_one_bound_both_or_none() -> None:
    x = np.array([-3, 0, 9], np.int16)
    assert oracle("clip", x, -1, 4).tolist() == [-1, 0, 4]
    assert oracle("clip", x, None, 4).tolist() == [-3, 0, 4]
    assert oracle("clip", x, -1).tolist() == [-1, 0, 9]
    assert oracle("clip", x).tolist() == [-3, 0, 9]
    # Crossed bounds give the upper one.
    assert oracle("clip", x, 5, 2).tolist() == [2, 2, 2]
    assert outputs("clip", "float16[3]", "float16[4, 1]", 2) == "float16[4, 3]"


def test_where_takes_any_dtype_and_promotes() -> None:
    assert outputs("where", "bool[2, 1]", "int8[3]", "int32[]") == "int32[2, 3]"
    assert outputs("where", "bool[2]", "bool[]", True) == "bool[2]"
    assert outputs("where", "bool[]", 2, "bfloat16[5]") == "bfloat16[5]"
    chosen = oracle("where", np.array([True, False]), np.array([1.0, np.nan]), np.array([np.inf, 2.0]))
    assert chosen.tolist() == [1.0, 2.0]


# Costs ----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("op", "each"),
    [
        ("negative", 1),
        ("abs", 1),
        ("reciprocal", 1),
        ("rsqrt", 1),
        ("exp", 1),
        ("log", 1),
        ("tanh", 1),
        ("erf", 1),
        ("relu", 1),
        ("sigmoid", 4),
        ("silu", 4),
    ],
)
def test_costs_of_one_operand(op: str, each: int) -> None:
    cost = OPS[op].cost(sign(op, "float16[7, 63];strides=[0, 1]"))
    assert (cost.flops, cost.least_flops) == (each * 7 * 63, each * 63)
    assert (cost.bytes_read, cost.bytes_written, cost.least_bytes) == (882, 882, 126 + 882)
    assert cost.dtype.name == "float32"


@pytest.mark.parametrize("op", ["subtract", "pow", "maximum", "minimum"])
def test_costs_of_two_operands(op: str) -> None:
    cost = OPS[op].cost(sign(op, "float32[7, 63]", "float32[63]"))
    assert (cost.flops, cost.least_flops) == (441, 441)
    assert (cost.bytes_read, cost.least_bytes) == (4 * (441 + 63), 4 * (441 + 63 + 441))
    assert OPS[op].cost(sign(op, "float32[7, 63]", 2)).bytes_read == 4 * 441


def test_costs_of_choices() -> None:
    both = OPS["clip"].cost(sign("clip", "float32[7, 63]", 0, 6))
    assert (both.flops, both.bytes_read) == (2 * 441, 4 * 441)
    assert OPS["clip"].cost(sign("clip", "float32[7, 63]")).flops == 0
    cost = OPS["where"].cost(sign("where", "bool[7, 63]", "float32[7, 63]", "float32[7, 63]"))
    assert (cost.flops, cost.bytes_read, cost.bytes_written) == (0, 441 * 9, 441 * 4)
    # Of the two branches one element for each of the result.
    assert cost.least_bytes == 441 * (1 + 4 + 4)
    cost = OPS["where"].cost(sign("where", "bool[63, 63]", "float16[1, 12, 63, 63]", 0.0))
    # A mask that hides everything: nothing is read of what it hides.
    assert cost.least_bytes == 3969 + 2 * 12 * 3969


# astype ---------------------------------------------------------------------------------------------------------------


def test_the_output_has_the_dtype_asked_for() -> None:
    assert outputs("astype", "float32[2, 3]", dtype="bfloat16") == "bfloat16[2, 3]"
    assert outputs("astype", "int4[3]", dtype=dtypes.get("int64")) == "int64[3]"
    assert outputs("astype", "bool[3]", dtype="complex64") == "complex64[3]"


@pytest.mark.parametrize(
    ("attributes", "words"),
    [
        ({}, "attribute dtype is missing"),
        ({"dtype": "flaot16"}, "did you mean 'float16'"),
        ({"dtype": 16}, "takes a dtype or its name"),
        ({"dtype": "int8", "saturate": 1}, "saturate is 1, but takes True or False"),
    ],
)
def test_astype_refuses_attributes(attributes: dict[str, Any], words: str) -> None:
    with pytest.raises(SignatureError, match=words):
        sign("astype", "float32[3]", **attributes)


def test_complex_numbers_do_not_become_real() -> None:
    with pytest.raises(SignatureError, match="x is complex64, which does not convert to float32"):
        sign("astype", "complex64[3]", dtype="float32")


def test_casting_down_overflows_unless_it_saturates() -> None:
    x = np.array([1e5, -1e5, np.inf, np.nan, 65519.9, 65520.0, -0.0])
    plain = oracle("astype", x, dtype="float16")
    assert plain.tolist()[:3] == [np.inf, -np.inf, np.inf]
    assert plain.tolist()[4:6] == [65504.0, np.inf]
    assert np.signbit(plain[6])
    clamped = oracle("astype", x, dtype="float16", saturate=True)
    assert clamped.tolist()[:3] == [65504.0, -65504.0, 65504.0]
    for result in (plain, clamped):
        assert np.isnan(result[3])


def test_anything_but_zero_is_true() -> None:
    x = np.array([0.0, -0.0, 1e-310, np.nan, np.inf])
    assert oracle("astype", x, dtype="bool").tolist() == [False, False, True, True, True]
    assert oracle("astype", np.array([True, False]), dtype="float16").tolist() == [1.0, 0.0]


@pytest.mark.parametrize("shape", [(), (0, 3), (2, 3)])
@pytest.mark.parametrize("dtype", ["int8", "float16", "bool", "complex64", "float4_e2m1fn"])
def test_astype_keeps_the_shape(dtype: str, shape: tuple[int, ...]) -> None:
    assert oracle("astype", values(shape, "float32"), dtype=dtype).shape == shape


# sum ------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("tensor", "attributes", "expected"),
    [
        ("float16[5, 7, 9]", {}, "float16[]"),
        ("float16[5, 7, 9]", {"axis": -1}, "float16[5, 7]"),
        ("float16[5, 7, 9]", {"axis": (0, -1), "keepdims": True}, "float16[1, 7, 1]"),
        ("float16[5, 7, 9]", {"axis": []}, "float16[5, 7, 9]"),
        ("bool[5]", {}, "int64[]"),
        ("int8[5]", {}, "int64[]"),
        ("uint8[5]", {}, "uint64[]"),
        ("complex64[5]", {}, "complex64[]"),
        ("float32[]", {}, "float32[]"),
        ("float32[0, 3]", {"axis": 0}, "float32[3]"),
    ],
)
def test_outputs_of_sum(tensor: str, attributes: dict[str, Any], expected: str) -> None:
    assert outputs("sum", tensor, **attributes) == expected


@pytest.mark.parametrize(
    ("attributes", "words"),
    [
        ({"axis": 3}, "axis=3 is out of range for a tensor of rank 3"),
        ({"axis": (0, -3)}, "twice"),
        ({"axis": 1.5}, "attribute axis is 1.5, but takes integers"),
        ({"axes": 1}, "unknown attribute 'axes'; did you mean 'axis'"),
        ({"keepdims": 1}, "takes True or False"),
    ],
)
def test_sum_refuses(attributes: dict[str, Any], words: str) -> None:
    with pytest.raises(SignatureError, match=words):
        sign("sum", "float32[5, 7, 9]", **attributes)


def test_integer_sums_are_exact_and_wide() -> None:
    assert oracle("sum", np.full(300, 127, np.int8)) == 300 * 127
    assert oracle("sum", np.full(300, True)) == 300
    assert oracle("sum", np.array([2**63, 2**63 - 1], np.uint64)) == 2**64 - 1
    assert oracle("sum", np.array([2**53, 1, 1])) == 2**53 + 2


def test_a_sum_of_nothing_is_zero() -> None:
    assert oracle("sum", np.zeros((0,), np.float16)) == 0
    assert oracle("sum", np.zeros((2, 0), np.int8), axis=1).tolist() == [0, 0]


@pytest.mark.parametrize("name", OPS)
def test_a_docstring_says_shapes_errors_and_source(name: str) -> None:
    op = OPS[name]
    assert op.doc.splitlines()[0].endswith(".")
    sections = ["Parameters\n", *(["Returns\n"] if op.outputs else []), "Notes\n"]
    assert all(section in op.doc for section in sections), sections
    taken = op.doc.partition("Parameters\n")[2].partition("Returns\n")[0]
    missing = [i.name for i in (*op.tensors, *op.attributes) if not re.search(rf"\b{i.name}\b", taken)]
    assert not missing
