"""Contracts of full and arange: dtypes, lengths, what is refused with which words, costs."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from running import OPS, oracle, outputs, sign

from nbx_registry.errors import SignatureError


@pytest.mark.parametrize(
    ("attributes", "expected"),
    [
        ({"shape": (2, 3), "fill_value": 1.0}, "float32[2, 3]"),
        ({"shape": 5, "fill_value": 1}, "int64[5]"),
        ({"shape": (), "fill_value": True}, "bool[]"),
        ({"shape": (0, 3), "fill_value": 1, "dtype": "bfloat16"}, "bfloat16[0, 3]"),
        ({"shape": (3,), "fill_value": -1.5, "dtype": "complex64"}, "complex64[3]"),
        ({"shape": (3,), "fill_value": 2**63, "dtype": "uint64"}, "uint64[3]"),
        ({"shape": (3,), "fill_value": np.float64(2), "dtype": None}, "float32[3]"),
    ],
    ids=str,
)
def test_full_takes_the_dtype_asked_for_or_the_values(attributes: dict[str, Any], expected: str) -> None:
    assert outputs("full", **attributes) == expected


@pytest.mark.parametrize(
    ("attributes", "words"),
    [
        ({"shape": 3, "fill_value": 256, "dtype": "uint8"}, "256 is outside the range of uint8, 0 to 255"),
        ({"shape": 3, "fill_value": -9, "dtype": "int4"}, "-9 is outside the range of int4, -8 to 7"),
        ({"shape": 3, "fill_value": 2**63}, "outside the range of int64"),
        ({"shape": 3, "fill_value": 1.0, "dtype": "int32"}, "Python float, which a tensor of int32 is not filled with"),
        ({"shape": 3, "fill_value": True, "dtype": "float32"}, "Python bool, which a tensor of float32"),
        ({"shape": 3, "fill_value": 1, "dtype": "bool"}, "Python int, which a tensor of bool"),
        ({"shape": 3, "fill_value": 1j}, "takes an integer or a float or True or False"),
        ({"shape": (2, -1), "fill_value": 1}, "axis 1 is -1"),
        ({"fill_value": 1}, "attribute shape is missing"),
    ],
    ids=str,
)
def test_full_refuses(attributes: dict[str, Any], words: str) -> None:
    with pytest.raises(SignatureError, match=words):
        sign("full", **attributes)


def test_equal_fill_values_of_different_types_are_different_tensors() -> None:
    made = [outputs("full", shape=1, fill_value=value) for value in (1, 1.0, True)]
    assert made == ["int64[1]", "float32[1]", "bool[1]"]


@pytest.mark.parametrize(
    ("attributes", "expected"),
    [
        ({"start": 5}, "int64[5]"),
        ({"start": 5.0}, "float32[5]"),
        ({"start": -5}, "int64[0]"),
        ({"start": 2, "stop": 9, "step": 3}, "int64[3]"),
        ({"start": 2, "stop": 8, "step": 3}, "int64[2]"),
        ({"start": 9, "stop": 2, "step": -3}, "int64[3]"),
        ({"start": 9, "stop": 2, "step": 3}, "int64[0]"),
        ({"start": 0, "stop": 1, "step": 0.1}, "float32[10]"),
        ({"start": 0, "stop": 3, "dtype": "float16"}, "float16[3]"),
        # In float64 0.9 / 0.3 is 3.0000000000000004: the standard's ceil gives a fourth.
        ({"start": 0.0, "stop": 0.9, "step": 0.3}, f"float32[{np.arange(0.0, 0.9, 0.3).size}]"),
        # As floats the two ends are one number.
        ({"start": 2**63, "stop": 2**63 + 1, "dtype": "uint64"}, "uint64[1]"),
        ({"start": 2**62, "stop": 2**63 - 1, "step": 2**61}, "int64[2]"),
        ({"start": 0, "stop": 256, "dtype": "uint8"}, "uint8[256]"),
    ],
    ids=str,
)
def test_arange_has_as_many_elements_as_steps_fit(attributes: dict[str, Any], expected: str) -> None:
    assert outputs("arange", **attributes) == expected


@pytest.mark.parametrize(
    ("attributes", "words"),
    [
        ({"start": 3, "step": 0}, "step is 0"),
        ({"start": 3, "step": -0.0}, "step is 0"),
        ({"start": float("inf")}, "no finite number of steps"),
        ({"start": float("nan")}, "no finite number of steps"),
        ({"start": 0, "stop": 1, "step": float("inf")}, "no finite number of steps"),
        ({"start": 0.0, "stop": 1e300, "step": 1e-300}, "no finite number of steps"),
        ({"start": 0, "stop": 2**63}, "more than 2\\*\\*62 steps"),
        ({"start": 257, "dtype": "uint8"}, "element 256, 256 is outside the range of uint8"),
        ({"start": -1, "stop": 3, "dtype": "uint32"}, "element 0, -1 is outside"),
        ({"start": 2.5, "dtype": "int32"}, "arange in int32: bounds or step are floats"),
        ({"start": 3, "dtype": "bool"}, "arange in bool"),
        ({"start": 3, "dtype": "complex64"}, "arange in complex64"),
        ({"start": True}, "takes an integer or a float"),
    ],
    ids=str,
)
def test_arange_refuses(attributes: dict[str, Any], words: str) -> None:
    with pytest.raises(SignatureError, match=words):
        sign("arange", **attributes)


def test_an_end_outside_the_dtype_is_no_element() -> None:
    np.testing.assert_array_equal(oracle("arange", start=250, stop=260, step=5, dtype="uint8"), [250, 255])


def test_costs_are_what_is_written() -> None:
    full = OPS["full"].cost(sign("full", shape=(63, 129), fill_value=1, dtype="float16"))
    assert (full.flops, full.bytes_read, full.bytes_written, full.least_bytes) == (0, 0, 63 * 129 * 2, 63 * 129 * 2)
    arange = OPS["arange"].cost(sign("arange", start=1000, dtype="int32"))
    assert (arange.flops, arange.least_flops, arange.bytes_read, arange.least_bytes) == (2000, 1000, 0, 4000)
