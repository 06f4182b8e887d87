"""rms_norm, group_norm."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

FLOATS = ["float16", "bfloat16", "float32", "float64"]


@pytest.mark.parametrize(
    ("dtype", "length"), [*((dtype, 129) for dtype in FLOATS), ("float32", 1), ("float16", 64), ("bfloat16", 17001)]
)
def test_rms_norm(check: Callable, normal: Callable, dtype: str, length: int) -> None:
    check("nbx-triton/rms_norm/rows", normal(dtype, 2, 3, length), normal(dtype, length))


def test_rms_norm_of_views_and_special_rows(check: Callable, normal: Callable) -> None:
    x = normal("float32", 129, 33)
    x[3, 4], x[5, 6], x[7] = np.nan, np.inf, 0
    check("nbx-triton/rms_norm/rows", x[:, ::-2], None, eps=0.5)
    check("nbx-triton/rms_norm/rows", x.T, normal("float32", 258)[::2])


@pytest.mark.parametrize("dtype", ["bfloat16", "float32"])
def test_rms_norm_of_long_rows_in_pieces(check: Callable, normal: Callable, dtype: str) -> None:
    check("nbx-triton/rms_norm/split", normal(dtype, 2, 20001), normal(dtype, 20001))


def test_squares_beyond_float16(check: Callable, normal: Callable) -> None:
    check("nbx-triton/rms_norm/rows", normal("float16", 3, 1000, scale=5000), None)
    check("nbx-triton/group_norm/groups", normal("float16", 2, 6, 33, scale=5000), None, None, groups=3)


@pytest.mark.parametrize(
    ("dtype", "shape", "groups"),
    [
        *((dtype, (2, 6, 5, 7), 3) for dtype in FLOATS),
        ("float32", (2, 12), 4),
        ("float16", (1, 4, 9000), 2),
        ("float64", (1, 40, 33, 31), 1),
    ],
    ids=str,
)
def test_group_norm(check: Callable, normal: Callable, dtype: str, shape: tuple[int, ...], groups: int) -> None:
    weight, bias = normal(dtype, shape[1]), normal(dtype, shape[1])
    check("nbx-triton/group_norm/groups", normal(dtype, *shape), weight, bias, groups=groups)


def test_group_norm_of_views(check: Callable, normal: Callable) -> None:
    x = normal("float16", 2, 9, 33, 8)
    check("nbx-triton/group_norm/groups", x.transpose(0, 3, 1, 2), normal("float16", 8), None, groups=2)
    check("nbx-triton/group_norm/groups", np.broadcast_to(x[:, :1], x.shape)[..., ::2], None, None, groups=3)


@pytest.mark.parametrize("dtype", ["float16", "float32"])
def test_group_norm_of_few_large_groups(check: Callable, normal: Callable, dtype: str) -> None:
    weight, bias = normal(dtype, 2), normal(dtype, 2)
    check("nbx-triton/group_norm/split", normal(dtype, 1, 2, 131, 257), weight, bias, groups=1)


@pytest.mark.parametrize("kernel", ["groups", "split"])
def test_variance_of_data_far_from_zero(check: Callable, normal: Callable, kernel: str) -> None:
    x = normal("float32", 1, 2, 131, 257) + np.float32(10_000)
    x[0, 1] += 1000
    check(f"nbx-triton/group_norm/{kernel}", x, None, None, groups=1, eps=1e-3)


@pytest.mark.parametrize(("kernel", "shape"), [("groups", (1, 4, 33, 7)), ("split", (2, 1, 257, 257))], ids=str)
def test_a_group_with_an_infinity_is_nan_and_no_other(
    run: Callable, normal: Callable, kernel: str, shape: tuple[int, ...]
) -> None:
    x = normal("float32", *shape)
    x[0, 0, 3, 5] = np.inf
    (out,) = run(f"nbx-triton/group_norm/{kernel}", x, None, None, groups=max(1, shape[1] // 2))
    first, second = np.split(out.reshape(-1), 2)
    assert np.isnan(first).all()
    assert np.isfinite(second).all()


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32"])
def test_layer_norm_of_long_rows_in_pieces(check: Callable, normal: Callable, dtype: str) -> None:
    x, weight = normal(dtype, 2, 33001), normal(dtype, 33001)
    check("nbx-triton/layer_norm/split", x, weight, normal(dtype, 66002)[::2])
    check("nbx-triton/layer_norm/split", x + x.dtype.type(100), None, None)


def test_layer_norm_of_pieces_of_several_blocks(
    check: Callable, normal: Callable, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("nbx_triton.kernels.layer_norm.MAX_PIECES", 2)
    x = normal("float32", 3, 33001)
    x[1, 5], x[2, 5] = np.nan, np.inf
    check("nbx-triton/layer_norm/split", x, None, normal("float32", 33001))


@pytest.mark.parametrize(("dtype", "length"), [("float16", 64), ("bfloat16", 129), ("float32", 1), ("float16", 5000)])
def test_layer_norm_of_short_rows(check: Callable, normal: Callable, dtype: str, length: int) -> None:
    x = normal(dtype, 5, 13, length)
    x[1, 2, 0], x[3, 4, -1] = np.nan, np.inf
    check("nbx-triton/layer_norm/rows", x, normal(dtype, length), normal(dtype, 2 * length)[::2])
    check("nbx-triton/layer_norm/rows", x[0] + x.dtype.type(1000), None, None)
    check("nbx-triton/layer_norm/rows", np.full((3, length), 12345.678, x.dtype), None, None)


@pytest.mark.parametrize(("dtype", "length"), [("float16", 82000), ("float32", 40016)])
def test_rows_of_which_registers_hold_a_part(check: Callable, normal: Callable, dtype: str, length: int) -> None:
    x = normal(dtype, 3, length) + normal(dtype, 1)
    x[1, -1], x[2, 5] = np.nan, np.inf
    weight, bias = normal(dtype, length), normal(dtype, length)
    check("nbx-triton/rms_norm/rows", x, weight)
    check("nbx-triton/layer_norm/rows", x, weight, bias)
    check("nbx-triton/layer_norm/rows", x + x.dtype.type(1000), None, None)
    check("nbx-triton/softmax/rows", x)


@pytest.mark.parametrize("length", [100, 300])
def test_rows_that_lie_across_memory(check: Callable, normal: Callable, length: int) -> None:
    x = normal("float32", length, 37)
    x[7, 2], x[-1, 3] = np.nan, -np.inf
    check("nbx-triton/layer_norm/rows", x.T + np.float32(1000), normal("float32", length), None)
    check("nbx-triton/rms_norm/rows", x.T, normal("float32", length))


def test_groups_of_an_image_alone_have_the_same_bits(run: Callable, normal: Callable) -> None:
    x, weight = normal("float32", 3, 4, 129, 257), normal("float32", 4)
    (together,) = run("nbx-triton/group_norm/split", x, weight, None, groups=2)
    alone = [run("nbx-triton/group_norm/split", x[i : i + 1], weight, None, groups=2)[0].tobytes() for i in range(3)]
    assert together.tobytes() == b"".join(alone)


def test_a_row_normalised_alone_has_the_same_bits(run: Callable, normal: Callable) -> None:
    x, weight = normal("float32", 9, 129), normal("float32", 129)
    (together,) = run("nbx-triton/layer_norm/rows", x, weight, None)
    alone = [run("nbx-triton/layer_norm/rows", x[i : i + 1], weight, None)[0].tobytes() for i in range(9)]
    assert together.tobytes() == b"".join(alone)
