"""The host's reductions and normalizations, against torch in float64."""

import hosted
import ml_dtypes
import numpy as np
import pytest
import torch
from hosted import FLOATS, LAYOUTS, check, laid_out, run, special, wide
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
    for shape, axis in (((10**6, 2), 0), ((10**4, 100), 0), ((500, 50, 60), (0, 1)), ((5000, 20, 30), (0, 2))):
        x = np.full(shape, 0.1, np.float32)
        for op, whole in (("sum", x[0].size * len(x) // run("sum", x, axis=axis).size), ("mean", 1)):
            np.testing.assert_allclose(run(op, x, axis=axis), 0.1 * whole, rtol=1e-5)


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


AXES = [None, 0, -1, (0, 2), (-1, 0, 1), ()]


def along(axis: object) -> tuple[int, ...]:
    return (0, 1, 2) if axis is None else (axis,) if isinstance(axis, int) else tuple(axis)  # type: ignore[arg-type]


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("axis", AXES)
@pytest.mark.parametrize("keepdims", [False, True])
def test_mean_and_max(dtype: str, axis: object, keepdims: bool) -> None:
    x = values((7, 33, 65), dtype, 1)
    narrow = dtype in ("float16", "bfloat16")
    truth = torch.mean(wide(x), along(axis), keepdim=keepdims) if along(axis) else wide(x)
    check(run("mean", x, axis=axis, keepdims=keepdims), truth, ulp=0.51 if narrow else 2, absolute=4e-7)
    truth = torch.amax(wide(x), along(axis), keepdim=keepdims) if along(axis) else wide(x)
    check(run("max", x, axis=axis, keepdims=keepdims), truth, ulp=0)


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("axis", AXES)
def test_prod(dtype: str, axis: object) -> None:
    x = (1 + 0.1 * values((3, 9, 17), "float64", 1)).astype(values((1,), dtype).dtype)
    truth = wide(x)
    for one in sorted((a % 3 for a in along(axis)), reverse=True):
        truth = truth.prod(one)
    check(run("prod", x, axis=axis), truth, ulp=0.51 if dtype in ("float16", "bfloat16") else 20)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_partial_products_and_sums_pass_through_what_a_narrow_dtype_cannot_hold(dtype: str) -> None:
    own = values((1,), dtype).dtype
    x = np.r_[np.full(300, 1.25), np.full(300, 0.8)].astype(own)
    check(run("prod", x), wide(x).prod(), ulp=0.51)
    assert run("mean", np.full(10_000, 60_000).astype(own)) == np.float64(60_000).astype(own)


@pytest.mark.parametrize("dtype", ["int8", "int32", "int64", "uint8", "uint64", "bool", "int4", "uint4"])
@pytest.mark.parametrize("axis", [None, 0, 1])
def test_reductions_of_integers(dtype: str, axis: int | None) -> None:
    x = values((30, 7), dtype, 3)
    rows = [x.ravel()] if axis is None else list(np.moveaxis(x, axis, -1))
    whole = [[int(v) for v in row] for row in rows]
    found = {op: np.atleast_1d(run(op, x, axis=axis)) for op in ("mean", "prod", "max", "argmax")}
    assert found["mean"].tolist() == [np.float32(sum(row) / len(row)) for row in whole]
    span = 2**64 if dtype.startswith("u") else 2**63
    wrapped = [(int(np.prod(np.array(row, object))) + (2**64 - span)) % 2**64 - (2**64 - span) for row in whole]
    assert found["prod"].tolist() == wrapped
    assert found["prod"].dtype == (np.uint64 if dtype.startswith("u") else np.int64)
    assert [int(v) for v in found["max"]] == [max(row) for row in whole]
    assert found["max"].dtype == x.dtype
    assert found["argmax"].tolist() == [row.index(max(row)) for row in whole]


@pytest.mark.parametrize("dtype", [*FLOATS, "float8_e4m3fn", "float8_e5m2"])
@pytest.mark.parametrize(("axis", "keepdims"), [(None, False), (0, True), (1, False), (-1, True)])
def test_argmax_names_the_first_of_equals(dtype: str, axis: int | None, keepdims: bool) -> None:
    x = np.rint(values((5, 33, 129), "float32", 4, scale=2)).astype(values((1,), dtype).dtype)
    expected = np.argmax(x.astype(np.float64), axis, keepdims=keepdims)
    found = run("argmax", x, axis=axis, keepdims=keepdims)
    assert found.dtype == np.int64
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("dtype", FLOATS)
def test_nan_is_the_largest_and_the_first_of_them_is_named(dtype: str) -> None:
    x = special(dtype)[np.random.default_rng(5).integers(0, 10, (200, 70))]
    check(run("max", x, axis=1), torch.amax(wide(x), 1), ulp=0)
    np.testing.assert_array_equal(run("argmax", x, axis=1), np.argmax(np.isnan(x.astype(np.float64)), 1))
    rare = np.where(np.isnan(x), np.array(1).astype(x.dtype), x)
    rare[3, 5], rare[3, 60] = np.nan, np.nan
    np.testing.assert_array_equal(run("argmax", rare, axis=1), np.argmax(rare.astype(np.float64), 1))


def test_reductions_without_results_write_nothing() -> None:
    for op in ("mean", "prod", "max", "argmax"):
        for dtype in ("float32", "float16", "int32"):
            assert run(op, np.empty((0, 3), dtype), axis=1).shape == (0,)
    assert run("prod", np.empty((0, 3), np.float16), axis=0).tolist() == [1, 1, 1]
    assert np.isnan(run("mean", np.empty((0, 3), np.float32), axis=0)).all()
    assert np.isnan(run("mean", np.empty((3, 0), np.int8), axis=1)).all()


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("axis", [None, 0, 1])
@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_reductions_of_views(layout: str, axis: int | None, dtype: str) -> None:
    x = laid_out((1 + 0.05 * values((33, 65), "float64", 6)).astype(dtype), layout)
    every = (0, 1) if axis is None else axis
    ulp = 0.51 if dtype == "float16" else 12
    check(run("mean", x, axis=axis), wide(x).mean(every), ulp=ulp)
    check(run("max", x, axis=axis), wide(x).amax(every), ulp=0)
    truth = wide(x).reshape(-1).prod() if axis is None else wide(x).prod(axis)
    check(run("prod", x, axis=axis), truth, ulp=0.51 if dtype == "float16" else 60)
    np.testing.assert_array_equal(run("argmax", x, axis=axis), np.argmax(x.astype(np.float64), axis))


def test_an_output_may_be_a_view() -> None:
    x = values((33, 65), "float16", 7)
    for op in ("sum", "mean", "max", "argmax"):
        whole = run(op, x, axis=1)
        room = np.zeros((66,), whole.dtype)
        run(op, x, axis=1, out=room[::2])
        np.testing.assert_array_equal(room[::2], whole)
        assert not room[1::2].any()


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


@pytest.mark.parametrize("op", ["softmax", "layer_norm", "rms_norm"])
@pytest.mark.parametrize("shape", [(0, 63), (3, 0), (2, 0, 5)])
def test_nothing_is_normalised_to_nothing(op: str, shape: tuple[int, ...]) -> None:
    assert run(op, np.empty(shape, np.float32)).shape == shape


@pytest.mark.parametrize("op", ["softmax", "layer_norm", "rms_norm"])
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


@pytest.mark.parametrize("op", ["softmax", "layer_norm", "rms_norm"])
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


@pytest.mark.parametrize("width", [1, 129, 20_001])
@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("scaled", [False, True])
def test_rms_norm(dtype: str, width: int, scaled: bool) -> None:
    x = values((3, 5, width), dtype, 20)
    weight = values((width,), dtype, 21) if scaled else None
    truth = torch.nn.functional.rms_norm(wide(x), (width,), None if weight is None else wide(weight), 1e-6)
    check(run("rms_norm", x, weight), truth, ulp=0.51 if dtype in ("float16", "bfloat16") else 5)


def test_rms_norm_of_special_values_and_of_squares_beyond_float16() -> None:
    x = values((5, 129), "float32", 22)
    x[0, 3], x[1, 4], x[2, 5] = np.nan, np.inf, -np.inf
    check(run("rms_norm", x), torch.nn.functional.rms_norm(wide(x), (129,), None, 1e-6), ulp=5)
    x = values((5, 129), "float16", 22, scale=3000)
    check(run("rms_norm", x), torch.nn.functional.rms_norm(wide(x), (129,), None, 1e-6), ulp=0.51)


GROUPS = [1, 3, 6]


@pytest.mark.parametrize("given", ["both", "weight", "bias", "neither"])
@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("shape", [(3, 6), (2, 6, 129), (5, 6, 31, 33), (2, 6, 101, 103)])
def test_group_norm(shape: tuple[int, ...], dtype: str, given: str) -> None:
    x = values(shape, dtype, 23)
    weight = values((6,), dtype, 24) if given in ("both", "weight") else None
    bias = values((6,), dtype, 25) if given in ("both", "bias") else None
    for groups in GROUPS[: 2 if len(shape) == 2 else 3]:
        truth = torch.nn.functional.group_norm(
            wide(x), groups, None if weight is None else wide(weight), None if bias is None else wide(bias), 1e-5
        )
        check(
            run("group_norm", x, weight, bias, groups=groups),
            truth,
            ulp=0.51 if dtype in ("float16", "bfloat16") else 2,
            absolute=1e-14 if dtype == "float64" else 4e-6,
        )


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_group_norm_of_views(layout: str, dtype: str) -> None:
    x = laid_out(values((4, 6, 5, 33), dtype, 26), layout)
    weight = laid_out(values((6,), dtype, 27), "strided")
    truth = torch.nn.functional.group_norm(wide(x), 3, wide(weight))
    ulp, absolute = (2, 2e-6) if dtype == "float32" else (0.51, 0)
    check(run("group_norm", x, weight, groups=3), truth, ulp=ulp, absolute=absolute)
    room = np.zeros((*x.shape[:-1], 66), x.dtype)
    run("group_norm", x, weight, groups=3, out=room[..., ::2])
    check(room[..., ::2], truth, ulp=ulp, absolute=absolute)
    assert not room[..., 1::2].any()


def test_group_norm_of_channels_last_and_of_groups_with_a_large_mean() -> None:
    x = (values((2, 31, 33, 8), "float64", 28) + 3000).astype(np.float32).transpose(0, 3, 1, 2)
    truth = torch.nn.functional.group_norm(wide(x), 2)
    found = run("group_norm", x, groups=2)
    check(found, truth, absolute=3e-4)
    # A difference of mean squares would be off by whole numbers.
    assert abs(float(found.std()) - 1) < 1e-4


@pytest.mark.parametrize("shape", [(0, 6, 5), (2, 6, 0), (2, 0, 5)])
def test_groups_of_nothing(shape: tuple[int, ...]) -> None:
    assert run("group_norm", np.empty(shape, np.float32), groups=3).shape == shape


@pytest.mark.parametrize("pixels", [9, 3000])
def test_an_images_bits_do_not_depend_on_its_company(pixels: int) -> None:
    x, weight = values((50, 6, pixels), "float32", 29), values((6,), "float32", 30)
    together = run("group_norm", x, weight, groups=2)
    for image in (0, 17, 49):
        alone = run("group_norm", x[image : image + 1], weight, groups=2)
        np.testing.assert_array_equal(alone[0], together[image])
