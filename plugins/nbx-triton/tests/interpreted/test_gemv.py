"""matmul and linear of a few rows."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

HALVES = ["float16", "bfloat16", "float32"]


@pytest.mark.parametrize("dtype", HALVES)
@pytest.mark.parametrize(
    ("left", "right"),
    [((72,), (72, 40)), ((1, 72), (72, 40)), ((3, 264), (264, 72)), ((8, 8), (8, 8)), ((2, 1000), (1000, 8))],
    ids=str,
)
def test_matmul_of_a_few_rows(
    check: Callable, normal: Callable, dtype: str, left: tuple[int, ...], right: tuple[int, ...]
) -> None:
    x1, x2 = normal(dtype, *left), normal(dtype, *right)
    check("nbx-triton/matmul/columns", x1, x2)
    check("nbx-triton/matmul/dots", x1, normal(dtype, *right[::-1]).T)


@pytest.mark.parametrize("dtype", HALVES)
def test_a_matrix_times_a_vector(check: Callable, normal: Callable, dtype: str) -> None:
    check("nbx-triton/matmul/dots", normal(dtype, 33, 72), normal(dtype, 72))
    check("nbx-triton/matmul/dots", normal(dtype, 33, 144)[::2, :72], normal(dtype, 72))


@pytest.mark.parametrize("variant", ["dots", "columns"])
@pytest.mark.parametrize("activation", [None, "relu", "gelu", "gelu_tanh", "silu"])
@pytest.mark.parametrize("dtype", HALVES)
def test_linear_of_a_few_rows(
    check: Callable, normal: Callable, variant: str, dtype: str, activation: str | None
) -> None:
    x, bias = normal(dtype, 2, 3, 72), normal(dtype, 40)
    w = normal(dtype, 40, 72) if variant == "dots" else normal(dtype, 72, 40).T
    check(f"nbx-triton/linear/{variant}", x, w, bias, activation=activation)
    check(f"nbx-triton/linear/{variant}", x[::-1, 1:2], w, np.repeat(bias, 2)[::-2], activation=activation)


@pytest.mark.parametrize("variant", ["dots", "columns"])
def test_a_rows_bits_are_its_own(run: Callable, normal: Callable, variant: str) -> None:
    x = normal("bfloat16", 8, 264)
    w = normal("bfloat16", 24, 264) if variant == "dots" else normal("bfloat16", 264, 24).T
    (together,) = run(f"nbx-triton/linear/{variant}", x, w, None)
    for rows in (1, 3):
        (alone,) = run(f"nbx-triton/linear/{variant}", x[4 : 4 + rows], w, None)
        assert alone.tobytes() == together[4 : 4 + rows].tobytes()
