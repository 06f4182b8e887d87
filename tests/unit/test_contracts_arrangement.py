"""Contracts of sorting, take and the layouts beside permute_dims and pixel_shuffle: what comes out, what is refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from running import OPS, oracle, outputs, sign, values

from nbx_registry.cost import Cost
from nbx_registry.errors import SignatureError


def cost(op: str, *tensors: Any, **attributes: Any) -> Cost:
    signature = sign(op, *tensors, **attributes)
    return signature.op.cost(signature)


def refused(code: str, words: str, op: str, *tensors: Any, **attributes: Any) -> None:
    with pytest.raises(SignatureError, match=words) as caught:
        sign(op, *tensors, **attributes)
    assert caught.value.code == code


# topk -----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("tensor", "attributes", "expected"),
    [
        ("float16[5, 7]", {"k": 3}, "float16[5, 3], int64[5, 3]"),
        ("uint8[5, 7]", {"k": 5, "axis": 0}, "uint8[5, 7], int64[5, 7]"),
        ("bool[5, 7, 9]", {"k": 1, "axis": -2}, "bool[5, 1, 9], int64[5, 1, 9]"),
        ("float32[0]", {"k": 0}, "float32[0], int64[0]"),
        ("float8_e4m3fn[5]", {"k": 2, "largest": False}, "float8_e4m3fn[2], int64[2]"),
    ],
)
def test_outputs_of_topk(tensor: str, attributes: dict[str, Any], expected: str) -> None:
    assert outputs("topk", tensor, **attributes) == expected


def test_topk_refuses() -> None:
    refused("CONSTRAINT", r"k <= L \(k = 8, L = 7\)", "topk", "float16[5, 7]", k=8)
    refused("CONSTRAINT", r"k >= 0 \(k = -1\)", "topk", "float16[5, 7]", k=-1)
    refused("CONSTRAINT", "complex64", "topk", "complex64[5, 7]", k=1)
    refused("AXIS", "axis=2 is out of range", "topk", "float16[5, 7]", k=1, axis=2)
    refused("AXIS", "has no axes", "topk", "float16[]", k=1)
    refused("ATTRIBUTE", "attribute k is missing", "topk", "float16[5, 7]")


def test_topk_orders_by_value_then_by_index_nan_above_all() -> None:
    x = np.array([1, np.nan, 3, -0.0, 0.0, 3, -np.inf, np.nan, np.inf])
    found, places = oracle("topk", x, k=9)
    assert places.tolist() == [1, 7, 8, 2, 5, 0, 3, 4, 6]
    assert np.signbit(found).tolist() == [False] * 6 + [True, False, True]
    assert oracle("topk", x, k=9, largest=False)[1].tolist() == [6, 3, 4, 0, 2, 5, 8, 1, 7]
    assert oracle("topk", np.array([False, True, True]), k=2)[1].tolist() == [1, 2]


def test_the_largest_integers_are_told_apart() -> None:
    x = np.array([2**63 - 2, 2**63 - 1, 2**63 - 3])
    assert oracle("topk", x, k=2)[0].tolist() == [2**63 - 1, 2**63 - 2]
    assert oracle("topk", x.astype(np.uint64) + np.uint64(2**63), k=1)[0].tolist() == [2**64 - 1]


def test_what_topk_costs() -> None:
    found = cost("topk", "float16[5, 63]", k=3)
    # The first three of each row may be NaN, before which nothing comes.
    assert (found.flops, found.least_flops, found.bytes_read) == (315, 10, 630)
    assert found.bytes_written == 5 * 3 * (2 + 8)
    assert found.least_bytes == 5 * 3 * 2 + 150
    expanded = cost("topk", "float16[5, 63];strides=[0, 1]", k=3)
    assert (expanded.least_flops, expanded.least_bytes) == (2, 3 * 2 + 150)
    whole = cost("topk", "int4[7, 5]", k=7, axis=0)
    assert (whole.flops, whole.least_flops, whole.least_bytes) == (35, 30, 18 + 18 + 8 * 35)
    none = cost("topk", "float16[5, 63]", k=0)
    assert (none.flops, none.bytes_read, none.bytes_written, none.least_bytes) == (0, 0, 0, 0)


# take -----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("tensors", "attributes", "expected"),
    [
        (("bfloat16[11, 5]", "int32[3]"), {"axis": 0}, "bfloat16[3, 5]"),
        (("int8[11, 5, 7]", "int64[0]"), {"axis": -2}, "int8[11, 0, 7]"),
        (("bool[11]", "int64[30]"), {}, "bool[30]"),
    ],
)
def test_outputs_of_take(tensors: tuple[str, str], attributes: dict[str, Any], expected: str) -> None:
    assert outputs("take", *tensors, **attributes) == expected


def test_take_refuses() -> None:
    refused("AXIS", r"x has rank 2 .*give axis=", "take", "float32[3, 7]", "int32[5]")
    refused("AXIS", r"x has rank 0", "take", "float32[]", "int32[5]")
    refused("AXIS", "axis=2 is out of range", "take", "float32[3, 7]", "int32[5]", axis=2)
    refused("SHAPE", "indices has rank 2", "take", "float32[3]", "int32[5, 1]")
    refused("CONSTRAINT", "indices.dtype = uint8", "take", "float32[3]", "uint8[5]")
    refused("DTYPE", "indices is float32", "take", "float32[3]", "float32[5]")


def test_indices_stay_within_the_axis() -> None:
    assert sign("take", "float32[3, 7]", "int32[5]", axis=-1).index_limits() == {"indices": (0, 7, "L")}
    assert sign("take", "float32[3]", "int32[5]").index_limits() == {"indices": (0, 3, "L")}


def test_what_take_costs() -> None:
    found = cost("take", "float16[37, 63, 9]", "int32[5]", axis=1)
    assert found.bytes_read == 2 * 37 * 5 * 9 + 20
    assert found.bytes_written == 2 * 37 * 5 * 9
    assert found.least_bytes == 2 * 37 * 9 + 20 + found.bytes_written, "all indices may be equal"
    many = cost("take", "float16[37, 63, 9]", "int64[1000]", axis=0)
    assert many.bytes_read == 2 * 1000 * 63 * 9 + 8000
    assert many.least_bytes == 2 * 63 * 9 + 8000 + many.bytes_written
    # An expanded index is one index.
    expanded = cost("take", "float16[37, 63];strides=[0, 1]", "int64[10]", axis=0)
    assert expanded.least_bytes == 2 * 63 + 80 + expanded.bytes_written
    same = cost("take", "float16[37, 63]", "int64[10];strides=[0]", axis=0)
    assert same.least_bytes == 2 * 63 + 8 + same.bytes_written
    nothing = cost("take", "float16[37, 0]", "int64[10]", axis=0)
    assert (nothing.bytes_written, nothing.least_bytes) == (0, 0)


# pixel_unshuffle ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("tensor", "r", "code", "words"),
    [
        ("float16[1, 3, 5, 4]", 2, "CONSTRAINT", r"H % r == 0 \(H = 5, r = 2\)"),
        ("float16[1, 3, 4, 5]", 2, "CONSTRAINT", r"W % r == 0 \(W = 5, r = 2\)"),
        ("float16[1, 4, 4, 4]", 0, "CONSTRAINT", r"r >= 1 \(r = 0\)"),
        ("float16[1, 4, 4, 4]", -2, "CONSTRAINT", r"r >= 1 \(r = -2\)"),
        ("float16[4, 4, 4]", 2, "SHAPE", r"rank 3 .*must have rank 4: \[N, C, H, W\]"),
    ],
)
def test_pixel_unshuffle_refuses(tensor: str, r: int, code: str, words: str) -> None:
    refused(code, words, "pixel_unshuffle", tensor, r=r)


def test_pixel_unshuffle_is_the_inverse() -> None:
    assert outputs("pixel_unshuffle", "float16[2, 3, 6, 10]", r=2) == "float16[2, 12, 3, 5]"
    assert outputs("pixel_unshuffle", "bool[0, 3, 6, 9]", r=3) == "bool[0, 27, 2, 3]"
    x = np.arange(2 * 3 * 6 * 12, dtype=np.int32).reshape(2, 3, 6, 12)
    for r in (1, 2, 3, 6):
        np.testing.assert_array_equal(oracle("pixel_shuffle", oracle("pixel_unshuffle", x, r=r), r=r), x)
    out = oracle("pixel_unshuffle", x, r=2)
    assert out[1, 1 * 4 + 1 * 2 + 0, 2, 4] == x[1, 1, 2 * 2 + 1, 4 * 2 + 0]


# broadcast_to ---------------------------------------------------------------------------------------------------------


def test_outputs_of_broadcast_to() -> None:
    for shape in ((2, 1, 7), (2, 5, 7), (3, 2, 1, 7)):
        assert outputs("broadcast_to", "int8[2, 1, 7]", shape=shape) == f"int8{list(shape)}"
    assert outputs("broadcast_to", "bool[]", shape=()) == "bool[]"
    assert outputs("broadcast_to", "float16[1, 3]", shape=(0, 3), copy=True) == "float16[0, 3]"
    assert oracle("broadcast_to", np.array([[1], [2]]), shape=(2, 2, 3)).tolist() == [[[1] * 3, [2] * 3]] * 2


@pytest.mark.parametrize(
    ("shape", "words"),
    [
        ((2, 3), r"x of shape \[2, 1, 7\] does not broadcast to the shape asked for, \[2, 3\]"),
        ((3, 5, 7), "does not broadcast"),
        ((2, -1, 7), r"shape=\(2, -1, 7\) is no shape"),
        ((2**31, 2**31, 2, 1, 7), "is no shape of at most 32 axes and 2\\*\\*62 elements"),
        ((1,) * 40, "at most 32 axes"),
    ],
)
def test_broadcast_to_refuses(shape: tuple[int, ...], words: str) -> None:
    refused("SHAPE", words, "broadcast_to", "float16[2, 1, 7]", shape=shape)


def test_a_view_costs_nothing_and_a_copy_reads_what_is_there() -> None:
    view = cost("broadcast_to", "float16[2, 1, 7]", shape=(2, 5, 7))
    assert (view.bytes_read, view.bytes_written, view.least_bytes, view.flops) == (0, 0, 0, 0)
    copy = cost("broadcast_to", "float16[2, 1, 7]", shape=(2, 5, 7), copy=True)
    assert (copy.bytes_read, copy.bytes_written, copy.least_bytes) == (28, 140, 168)


# concat ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("tensors", "axis", "expected"),
    [
        (["float16[2, 3]", "float16[4, 3]"], 0, "float16[6, 3]"),
        (["float16[2, 3]", "float16[2, 0]", "float16[2, 1]"], -1, "float16[2, 4]"),
        (["int8[2, 3]"], 1, "int8[2, 3]"),
        (["int8[2, 3]", "int8[]", "int8[5]"], None, "int8[12]"),
        (["int8[2]", "uint8[3]"], 0, "int16[5]"),
        (["int8[2]", "uint16[3]", "int8[1]"], 0, "int32[6]"),
        (["float16[2]", "bfloat16[3]", "float32[1]"], 0, "float32[6]"),
        (["bfloat16[2]", "float64[3]", "float16[1]"], 0, "float64[6]"),
        (["float32[2]", "complex64[3]"], 0, "complex64[5]"),
        (["float8_e4m3fn[2]", "float8_e4m3fn[3]"], 0, "float8_e4m3fn[5]"),
        (["float32[3, 1]"] * 100, 1, "float32[3, 100]"),
    ],
)
def test_outputs_of_concat(tensors: list[str], axis: int | None, expected: str) -> None:
    assert outputs("concat", tensors, axis=axis) == expected


@pytest.mark.parametrize(
    ("tensors", "axis", "code", "words"),
    [
        ([], 0, "ARGUMENTS", "arrays takes a list of at least one tensor"),
        ("float16[2, 3]", 0, "ARGUMENTS", "arrays takes a list"),
        (["float16[2, 3]", 2.0], 0, "DTYPE", "arrays is a Python float; only arrays"),
        (["float16[2, 3]", "float16[2, 4]"], 0, "SHAPE", r"arrays\[1\] is float16\[2, 4\], but arrays\[0\] is float16"),
        (["float16[2, 3]", "float16[2, 3]", "float16[3]"], 0, "SHAPE", r"arrays\[2\] is float16\[3\]"),
        (["float16[]", "float16[]"], 0, "AXIS", "has no axes"),
        (["float16[2, 3]"], 2, "AXIS", "axis=2 is out of range"),
        (["float16[2]", "bfloat16[2]"], 0, "DTYPE", r"arrays\[0\] is float16 and arrays\[1\] is bfloat16: .*astype"),
        (["int8[2]", "int8[2]", "float32[2]"], None, "DTYPE", r"arrays\[2\] is float32 and arrays\[0\] is int8"),
        (["int8[2]", "uint8[2]", "uint64[2]"], 0, "DTYPE", "no integer dtype holds both"),
        (["bool[2]", "uint8[2]"], 0, "DTYPE", "kinds"),
    ],
)
def test_concat_refuses(tensors: Any, axis: int | None, code: str, words: str) -> None:
    refused(code, words, "concat", tensors, axis=axis)


def test_promotion_does_not_depend_on_the_order() -> None:
    import itertools

    for names in (("float16", "bfloat16", "float32"), ("int8", "uint8", "uint16"), ("float16", "float64", "complex64")):
        try:
            found = {outputs("concat", [f"{name}[1]" for name in order]) for order in itertools.permutations(names)}
        except SignatureError:
            for order in itertools.permutations(names):
                refused("DTYPE", "astype", "concat", [f"{name}[1]" for name in order])
        else:
            assert len(found) == 1


def test_concat_keeps_every_value() -> None:
    joined = oracle("concat", [np.array([-1, 2], np.int8), np.array([255, 3], np.uint8)])
    assert (joined.dtype, joined.tolist()) == (np.int16, [-1, 2, 255, 3])
    found = oracle("concat", [values((2, 3), "float16"), np.full((1, 3), -0.0, np.float32)])
    assert np.signbit(found[2]).all()
    assert OPS["concat"].exact


def test_what_concat_costs() -> None:
    found = cost("concat", ["float16[2, 3]", "float32[4, 3]", "float16[5, 3];strides=[0, 1]"])
    assert (found.flops, found.bytes_read, found.bytes_written) == (0, 12 + 48 + 30, 4 * 33)
    assert found.least_bytes == 12 + 48 + 6 + 4 * 33
