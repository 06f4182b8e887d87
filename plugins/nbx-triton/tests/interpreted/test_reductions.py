"""sum, prod, mean, max, argmax: any axes, any order in memory, few long rows."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from nbx_registry import dtypes

OPS = ["sum", "prod", "mean", "max", "argmax"]
DTYPES = ["bfloat16", "float64", "bool", "int8", "uint32", "uint64"]


def drawn(rng: np.random.Generator, dtype: str, *shape: int) -> np.ndarray:
    """Draw numbers whose products stay in range, or integers of few values, among which are ties."""
    kind = dtypes.get(dtype)
    if kind.floating:
        return rng.uniform(-1.2, 1.2, shape).astype(kind.numpy)
    return rng.integers(0, 2 if dtype == "bool" else 7, shape).astype(dtype)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("op", OPS)
def test_along_rows_and_columns(check: Callable, rng: np.random.Generator, op: str, dtype: str) -> None:
    x = drawn(rng, dtype, 7, 129)
    check(f"nbx-triton/{op}/rows", x, axis=-1)
    check(f"nbx-triton/{op}/columns", x, axis=0, keepdims=True)


@pytest.mark.parametrize("axis", [None, 1, -1, (0, 2), (0, 1), ()], ids=str)
@pytest.mark.parametrize("op", ["sum", "mean", "max"])
def test_along_any_axes(check: Callable, rng: np.random.Generator, op: str, axis: object) -> None:
    x = drawn(rng, "float32", 3, 33, 5)
    last = axis is None or axis == -1 or (isinstance(axis, tuple) and bool({-1, 2} & set(axis)))
    check(f"nbx-triton/{op}/{'rows' if last else 'columns'}", x, axis=axis)
    check(f"nbx-triton/{op}/columns", x.transpose(2, 0, 1)[:, ::2], axis=axis, keepdims=True)


@pytest.mark.parametrize("axis", [None, 0, 1], ids=str)
def test_argmax_of_views_counts_in_the_views_order(check: Callable, rng: np.random.Generator, axis: int | None) -> None:
    x = drawn(rng, "int8", 33, 65)
    for view in (x.T, x[::-1, ::-1], np.broadcast_to(x[:, :1], (33, 4)), x[::2, ::3]):
        check("nbx-triton/argmax/columns", view, axis=axis)


@pytest.mark.parametrize("dtype", ["float16", "int32"])
@pytest.mark.parametrize("op", OPS)
def test_rows_longer_than_a_tile(check: Callable, rng: np.random.Generator, op: str, dtype: str) -> None:
    x = drawn(rng, dtype, 3, 9001)
    if op == "prod":
        x = (rng.choice([-1, 1], x.shape) * (1 if dtype == "int32" else 1.0009765625)).astype(dtype)
        x[:, 4096:] = 1
    check(f"nbx-triton/{op}/rows", x, axis=1)


@pytest.mark.parametrize(("dtype", "rows"), [("float16", 3301), ("int32", 2053), ("float32", 4096)])
@pytest.mark.parametrize("op", OPS)
def test_columns_longer_than_a_tile(check: Callable, rng: np.random.Generator, op: str, dtype: str, rows: int) -> None:
    x = drawn(rng, dtype, rows, 65)
    if op == "prod":
        x = (rng.choice([-1, 1], x.shape) * (1 if dtype == "int32" else 1.0009765625)).astype(dtype)
    check(f"nbx-triton/{op}/columns", x, axis=0)
    # In vectors.
    check(f"nbx-triton/{op}/columns", np.ascontiguousarray(x[:, :48]), axis=0)


@pytest.mark.parametrize("shape", [(1, 1 << 19), (1 << 16, 8)], ids=str)
def test_rounding_of_factors_next_to_1_does_not_add_up(
    run: Callable, rng: np.random.Generator, shape: tuple[int, ...]
) -> None:
    x = (1 + rng.standard_normal(shape) * 1e-3).astype(np.float32)
    axis = 1 if shape[0] == 1 else 0
    (out,) = run(f"nbx-triton/prod/{'rows' if axis else 'columns'}", x, axis=axis)
    off = np.log(out.astype(np.float64)) - np.log(x.astype(np.float64)).sum(axis)
    # Four multiplied by themselves and then into the product are off by 2.3e-4 in all.
    assert abs(off.sum()) < 1.3e-4


@pytest.mark.parametrize("dtype", ["bfloat16", "uint64"])
@pytest.mark.parametrize("op", OPS)
def test_shared_out(check: Callable, rng: np.random.Generator, op: str, dtype: str) -> None:
    x = drawn(rng, dtype, 1, 32771)
    if op == "prod":
        x = np.where(rng.random(x.shape) < 0.001, x, np.ones((), x.dtype))
    check(f"nbx-triton/{op}/split-rows", x, axis=1)
    check(f"nbx-triton/{op}/split-columns", x[:, :2060].reshape(-1, 2), axis=0)


@pytest.mark.parametrize("variant", ["rows", "columns", "split-rows", "split-columns"])
@pytest.mark.parametrize("op", ["max", "argmax"])
def test_nan_is_the_largest_wherever_it_is(check: Callable, op: str, variant: str) -> None:
    x = np.zeros((6, 1100), np.float32)
    x[0] = -np.inf
    x[1, [77, 1033]] = np.nan
    x[2, 1099] = np.inf
    x[3] = -0.0
    x[4, 1098:] = np.nan
    x[5] = -3
    if variant == "split-rows":
        x = np.ascontiguousarray(np.pad(x[1:5:3], ((0, 0), (31700, 0)), constant_values=-1))
    axis = 1 if "rows" in variant else 0
    check(f"nbx-triton/{op}/{variant}", x if axis else np.ascontiguousarray(x.T), axis=axis)


@pytest.mark.parametrize("variant", ["rows", "split-rows"])
def test_the_first_of_equal_ones(run: Callable, variant: str) -> None:
    x = np.zeros((1, 32768), np.float16)
    x[0, [1, 4097, 20000]] = 3
    assert run(f"nbx-triton/argmax/{variant}", x, axis=1)[0].tolist() == [1]
    assert run(f"nbx-triton/argmax/{variant}", np.full_like(x, -np.inf), axis=1)[0].tolist() == [0]


def test_the_mean_of_64_bit_integers_does_not_wrap(check: Callable) -> None:
    check("nbx-triton/mean/rows", np.full((3, 65), 2**62, np.int64), axis=1)
    check("nbx-triton/mean/columns", np.full((65, 3), 2**64 - 1, np.uint64), axis=0)


def test_float16_products_whose_parts_overflow(run: Callable) -> None:
    x = np.array([[300] * 8 + [1 / 256] * 8], np.float16)
    assert run("nbx-triton/prod/rows", x, axis=1)[0] == pytest.approx((300 / 256) ** 8, rel=1e-3)


def test_of_nothing(run: Callable) -> None:
    x = np.empty((3, 0), np.float32)
    assert run("nbx-triton/prod/rows", x, axis=1)[0].tolist() == [1, 1, 1]
    assert run("nbx-triton/sum/rows", x, axis=1)[0].tolist() == [0, 0, 0]
    assert np.isnan(run("nbx-triton/mean/rows", x, axis=1)[0]).all()
    assert run("nbx-triton/max/columns", x, axis=0)[0].shape == (0,)


@pytest.mark.parametrize("op", ["prod", "sum"])
def test_a_rows_bits_do_not_depend_on_how_many_there_are(run: Callable, rng: np.random.Generator, op: str) -> None:
    x = rng.uniform(0.9, 1.1, (9, 129)).astype(np.float32)
    (together,) = run(f"nbx-triton/{op}/rows", x, axis=1)
    alone = [run(f"nbx-triton/{op}/rows", x[i : i + 1], axis=1)[0][0] for i in range(9)]
    assert together.tolist() == [float(value) for value in alone]


@pytest.mark.parametrize("op", ["prod", "sum"])
def test_of_rows_that_lie_across_memory_neither(run: Callable, rng: np.random.Generator, op: str) -> None:
    x = rng.uniform(0.9, 1.1, (3000, 33, 1)).astype(np.float32).transpose(1, 0, 2)
    (many,) = run(f"nbx-triton/{op}/rows", x, axis=(1, 2))
    (few,) = run(f"nbx-triton/{op}/rows", x[:2], axis=(1, 2))
    assert many[:2].tobytes() == few.tobytes()


def test_a_running_sum_joins_its_total_before_it_is_large(run: Callable) -> None:
    x = np.full((1, 1040 * 512), 1.1, np.float32)
    (out,) = run("nbx-triton/sum/rows", x, axis=1)
    # Elements added one by one are off by 1.0e-5.
    assert out[0] == pytest.approx(float(x[0, 0]) * x.size, rel=4e-6)


def test_ten_thousand_ones_in_float16(run: Callable) -> None:
    (out,) = run("nbx-triton/sum/rows", np.ones(10_000, np.float16))
    assert out == 10_000
