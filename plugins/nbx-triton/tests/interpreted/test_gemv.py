"""matmul and linear of a few rows."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

HALVES = ["float16", "bfloat16", "float32"]


@pytest.mark.parametrize("dtype", HALVES)
@pytest.mark.parametrize(
    ("kernel", "left", "right"),
    [
        ("row", (72,), (72, 40)),
        ("row", (1, 264), (264, 72)),
        ("few", (2, 1000), (1000, 8)),
        ("few", (2, 8), (8, 8)),
    ],
    ids=str,
)
def test_matmul_of_a_few_rows(
    check: Callable, normal: Callable, dtype: str, kernel: str, left: tuple[int, ...], right: tuple[int, ...]
) -> None:
    x1, x2 = normal(dtype, *left), normal(dtype, *right)
    check(f"nbx-triton/matmul/{kernel}", x1, x2)
    check(f"nbx-triton/matmul/{kernel}", x1, normal(dtype, *right[::-1]).T)


def test_rows_of_a_product_that_lie_apart(check: Callable, normal: Callable) -> None:
    check("nbx-triton/matmul/few", normal("float32", 8, 72), normal("float32", 72, 40))
    check("nbx-triton/matmul/few", normal("float32", 33, 5).T, normal("float32", 33, 16))
    check("nbx-triton/matmul/few", normal("float16", 4, 80)[::2, :72], normal("float16", 48, 80)[::2, :72].T)


@pytest.mark.parametrize("dtype", HALVES)
def test_a_matrix_times_a_vector(check: Callable, normal: Callable, dtype: str) -> None:
    check("nbx-triton/matmul/row", normal(dtype, 33, 72), normal(dtype, 72))
    check("nbx-triton/matmul/row", normal(dtype, 33, 144)[::2, :72], normal(dtype, 72))


@pytest.mark.parametrize("transposed", [False, True], ids=["depth", "columns"])
@pytest.mark.parametrize("activation", [None, "relu", "gelu", "gelu_tanh", "silu"])
@pytest.mark.parametrize("dtype", HALVES)
def test_linear_of_a_few_rows(
    check: Callable, normal: Callable, dtype: str, activation: str | None, transposed: bool
) -> None:
    x, bias = normal(dtype, 2, 2, 72), normal(dtype, 40)
    w = normal(dtype, 72, 40).T if transposed else normal(dtype, 40, 72)
    check("nbx-triton/linear/few", x, w, bias, activation=activation)
    check("nbx-triton/linear/row", x[1:, 1:], w, np.repeat(bias, 2)[::-2], activation=activation)


def test_linear_of_rows_that_lie_apart(check: Callable, normal: Callable) -> None:
    x, w = normal("float32", 4, 4, 72), normal("float32", 33, 72)
    check("nbx-triton/linear/few", x[::-2, ::2], w, None)
    check("nbx-triton/linear/few", x.reshape(16, 72)[:8], w, None, activation="silu")
