"""softmax: short rows by the block, longer ones in tiles, few long ones in pieces."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

HALVES = ["float16", "bfloat16", "float32"]


@pytest.mark.parametrize(("dtype", "length"), [*((dtype, 129) for dtype in HALVES), ("float32", 1), ("float16", 5000)])
def test_short_rows(check: Callable, normal: Callable, dtype: str, length: int) -> None:
    check("nbx-triton/softmax/rows", normal(dtype, 3, 63, length, scale=5.0)[:, ::21])


@pytest.mark.parametrize(("variant", "length"), [("rows", 33), ("rows", 20001), ("split", 20001)])
def test_rows_without_weights_are_nan(check: Callable, normal: Callable, variant: str, length: int) -> None:
    x = normal("float32", 9, length, scale=30.0)
    x[1, 7], x[2, 7], x[3] = np.nan, np.inf, -np.inf
    x[4, 3:], x[5], x[6] = -np.inf, np.nan, 3e38
    x[7, -1] = 1e5
    with np.errstate(invalid="ignore"):
        check(f"nbx-triton/softmax/{variant}", x)


@pytest.mark.parametrize("dtype", HALVES)
def test_long_rows_in_pieces(check: Callable, normal: Callable, dtype: str) -> None:
    check("nbx-triton/softmax/split", normal(dtype, 2, 33001, scale=3.0))


def test_pieces_of_several_blocks(check: Callable, normal: Callable, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("nbx_triton.kernels.pieces.MAX_PIECES", 2)
    check("nbx-triton/softmax/split", normal("float16", 2, 33001, scale=3.0))


def test_a_rows_bits_do_not_depend_on_how_many_there_are(run: Callable, normal: Callable) -> None:
    x = normal("float32", 9, 129)
    (together,) = run("nbx-triton/softmax/rows", x)
    assert together.tobytes() == b"".join(run("nbx-triton/softmax/rows", x[i : i + 1])[0].tobytes() for i in range(9))


def test_nothing(run: Callable) -> None:
    assert run("nbx-triton/softmax/rows", np.empty((0, 5), np.float32))[0].shape == (0, 5)
