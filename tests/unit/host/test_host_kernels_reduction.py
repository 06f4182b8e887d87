"""The host's sum, softmax and layer_norm, against torch in float64."""

import hosted
import ml_dtypes
import numpy as np
import pytest
import torch
from hosted import FLOATS, LAYOUTS, check, laid_out, run, wide
from running import values

EXPONENT = 40
"""Ulp that an exponential may be off by: its exponent, some 25 at most here, is rounded before it is taken."""


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("axis", [None, 0, -1, (0, 2), (-1, 0, 1)])
@pytest.mark.parametrize("keepdims", [False, True])
def test_sum(dtype: str, axis: object, keepdims: bool) -> None:
    x = values((7, 33, 65), dtype, 1)
    truth = torch.sum(wide(x), axis, keepdim=keepdims) if axis is not None else wide(x).sum()
    if axis is None and keepdims:
        truth = truth.reshape(1, 1, 1)
    narrow = dtype in ("float16", "bfloat16")
    check(run("sum", x, axis=axis, keepdims=keepdims), truth, ulp=0.51 if narrow else 1, absolute=3e-4)


def test_partial_sums_are_not_rounded_to_a_narrow_output() -> None:
    x = np.r_[np.full(5000, 60000), np.full(5000, -60000)].astype(np.float16)
    assert run("sum", x) == 0
    ones = np.asfortranarray(np.ones((9000, 3, 4))).astype("float32").astype(ml_dtypes.bfloat16)
    assert float(run("sum", ones, axis=(0, 2))[0]) == 36096


def test_long_leading_axes_do_not_lose_count() -> None:
    assert run("sum", np.ones((2**24 + 9, 1), np.float32), axis=0)[0] == 2**24 + 8
    np.testing.assert_allclose(run("sum", np.full((10**6, 2), 0.1, np.float32), axis=0), 1e5, rtol=1e-6)


def test_sum_over_no_axes_copies() -> None:
    x = values((3, 5), "float32", 2)
    np.testing.assert_array_equal(run("sum", x, axis=()), x)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_narrow_sums_do_not_stall(dtype: str) -> None:
    x = np.ones((2, 10_000)).astype(values((1,), dtype).dtype)
    expected = torch.full((2,), 10_000.0, dtype=torch.float64)
    check(run("sum", x, axis=1), expected, ulp=0.5)


@pytest.mark.parametrize("dtype", ["int8", "int32", "int64", "uint8", "bool", "int4", "uint4"])
def test_integer_sums_are_exact_in_64_bits(dtype: str) -> None:
    x = values((3, 1000), dtype, 3)
    found = run("sum", x, axis=1)
    assert found.dtype == (np.uint64 if x.dtype.kind == "u" or dtype == "uint4" else np.int64)
    assert found.tolist() == [sum(int(v) for v in row) for row in x]


def test_sum_of_nothing_is_zero() -> None:
    assert run("sum", np.empty((0, 3), np.float32), axis=0).tolist() == [0, 0, 0]
    assert run("sum", np.empty((2, 0), np.float16)).tolist() == 0


@pytest.mark.parametrize("layout", LAYOUTS)
def test_sum_of_views(layout: str) -> None:
    x = laid_out(values((33, 65), "float32", 4), layout)
    check(run("sum", x, axis=0), wide(x).sum(0), absolute=1e-4)


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("axis", [0, 1, -1, -2])
def test_softmax(dtype: str, axis: int) -> None:
    x = values((9, 33, 129), dtype, 5, scale=3)
    ulp = 1 if dtype in ("float16", "bfloat16") else EXPONENT
    check(run("softmax", x, axis=axis), torch.softmax(wide(x), axis), ulp=ulp)


def test_softmax_of_rows_longer_than_a_block() -> None:
    x = values((3, 20_001), "float32", 6)
    check(run("softmax", x), torch.softmax(wide(x), -1), ulp=EXPONENT)


def test_softmax_of_equal_large_values_does_not_overflow() -> None:
    x = np.full((5, 129), 3e38, np.float32)
    check(run("softmax", x), torch.full((5, 129), 1 / 129, dtype=torch.float64))


def test_softmax_of_special_values_spoils_its_own_row_alone() -> None:
    x = values((5, 129), "float32", 7)
    x[0, 3], x[1, 4], x[2], x[3, :50] = np.nan, np.inf, -np.inf, -np.inf
    check(run("softmax", x), torch.softmax(wide(x), -1), ulp=EXPONENT)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("axis", [0, 1])
def test_softmax_of_views(layout: str, axis: int) -> None:
    x = laid_out(values((33, 65), "float32", 8), layout)
    check(run("softmax", x, axis=axis), torch.softmax(wide(x), axis), ulp=EXPONENT)


@pytest.mark.parametrize("op", ["softmax", "layer_norm"])
@pytest.mark.parametrize("shape", [(0, 63), (3, 0), (2, 0, 5)])
def test_nothing_is_normalised_to_nothing(op: str, shape: tuple[int, ...]) -> None:
    assert run(op, np.empty(shape, np.float32)).shape == shape


@pytest.mark.parametrize("op", ["softmax", "layer_norm"])
@pytest.mark.parametrize("width", [16, 384, 1000])
@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_a_rows_bits_do_not_depend_on_its_company(op: str, width: int, dtype: str) -> None:
    x = values((200, width), dtype, 9)
    together = run(op, x)
    for row in (0, 77, 199):
        np.testing.assert_array_equal(run(op, x[row : row + 1]), together[row : row + 1])


@pytest.mark.parametrize("given", ["both", "weight", "bias", "neither"])
@pytest.mark.parametrize("dtype", FLOATS)
def test_layer_norm(dtype: str, given: str) -> None:
    x = values((3, 41, 129), dtype, 10)
    weight = values((129,), dtype, 11) if given in ("both", "weight") else None
    bias = values((129,), dtype, 12) if given in ("both", "bias") else None
    truth = torch.nn.functional.layer_norm(
        wide(x),
        (129,),
        None if weight is None else wide(weight),
        None if bias is None else wide(bias),
        1e-5,
    )
    narrow = dtype in ("float16", "bfloat16")
    check(
        run("layer_norm", x, weight, bias),
        truth,
        ulp=0.51 if narrow else 2,
        absolute=4e-15 if dtype == "float64" else 2e-6,
    )


def test_layer_norm_of_rows_with_a_large_mean() -> None:
    # A difference of mean squares would lose the variance altogether.
    x = (values((7, 384), "float32", 13) + np.float32(1e4)).astype(np.float32)
    check(run("layer_norm", x), torch.nn.functional.layer_norm(wide(x), (384,)), absolute=2e-3)


def test_layer_norm_of_rows_longer_than_a_block() -> None:
    x = values((2, 20_001), "float32", 14)
    check(run("layer_norm", x), torch.nn.functional.layer_norm(wide(x), (20_001,)), ulp=2, absolute=4e-6)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_layer_norm_of_views(layout: str) -> None:
    x = laid_out(values((33, 65), "float32", 15), layout)
    weight = values((130,), "float32", 16)[::2]
    truth = torch.nn.functional.layer_norm(wide(x), (65,), wide(weight))
    check(run("layer_norm", x, weight), truth, ulp=2, absolute=2e-6)


@pytest.mark.parametrize("op", ["softmax", "layer_norm"])
def test_outputs_with_strides_are_written_in_place(op: str) -> None:
    x = values((33, 65), "float32", 17)
    room = np.full((33, 140), 7.0, np.float32)
    run(op, x, out=room[:, 3:133:2])
    np.testing.assert_array_equal(room[:, 3:133:2], run(op, x))
    assert np.all(room[:, 4:133:2] == 7)
    assert np.all(room[:, :3] == 7)


def test_softmax_in_place() -> None:
    x = values((300, 129), "float32", 18)
    expected = run("softmax", x)
    run("softmax", x, out=x)
    np.testing.assert_array_equal(x, expected)


def test_a_row_with_an_infinity_is_nan() -> None:
    x = values((3, 65), "float32", 19)
    x[1, 5] = np.inf
    found = hosted.run("layer_norm", x)
    assert np.isnan(found[1]).all()
    assert np.isfinite(found[[0, 2]]).all()
