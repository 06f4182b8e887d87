"""Contracts of the elementwise ops and sum: what comes out, what is refused, what happens at the edges."""

from __future__ import annotations

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
@pytest.mark.parametrize("op", ["add", "multiply", "divide"])
def test_operands_broadcast_and_promote(op: str, tensors: tuple[Any, ...], expected: str) -> None:
    assert outputs(op, *tensors) == expected


@pytest.mark.parametrize("op", ["add", "multiply"])
def test_integers_stay_integers(op: str) -> None:
    assert outputs(op, "int8[3]", "uint16[3]") == "int32[3]"
    assert outputs(op, "uint8[3]", 7) == "uint8[3]"
    assert outputs(op, "complex64[3]", "float32[3]") == "complex64[3]"


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


def test_every_docstring_says_shapes_errors_and_source() -> None:
    for name, op in OPS.items():
        first = op.doc.splitlines()[0]
        assert first.endswith("."), name
        assert all(section in op.doc for section in ("Parameters\n", "Returns\n", "Notes\n")), name
        for param in op.tensors:
            assert param.name in op.doc.partition("Returns")[0], (name, param.name)
        for attribute in op.attributes:
            assert f"{attribute.name} :" in op.doc or f"{attribute.name}``" in op.doc, (name, attribute.name)
