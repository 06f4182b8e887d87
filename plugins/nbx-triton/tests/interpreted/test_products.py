"""matmul and linear of operands in whole pieces: large tiles, and a few rows by a large matrix."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

HALVES = ["float16", "bfloat16"]


@pytest.mark.parametrize("dtype", HALVES)
@pytest.mark.parametrize("layouts", ["deep-deep", "deep-across", "across-deep", "across-across"])
@pytest.mark.parametrize("kernel", ["blocks", "streamed-128"])
def test_each_way_to_lie(check: Callable, normal: Callable, kernel: str, layouts: str, dtype: str) -> None:
    # Neither rows, columns nor depth fill a tile; the depth has a full step and an odd one.
    left, right = layouts.split("-")
    x1 = normal(dtype, 40, 136) if left == "deep" else normal(dtype, 136, 40).T
    x2 = normal(dtype, 136, 72) if right == "across" else normal(dtype, 72, 136).T
    check(f"nbx-triton/matmul/{kernel}", x1, x2)


@pytest.mark.parametrize("kernel", ["blocks", "streamed"])
def test_extents_along_which_nothing_lies_may_be_odd(check: Callable, normal: Callable, kernel: str) -> None:
    check(f"nbx-triton/matmul/{kernel}", normal("float16", 17, 24), normal("float16", 264, 24).T)
    check(f"nbx-triton/linear/{kernel}", normal("float16", 17, 24), normal("float16", 65, 24), None)


def test_views_a_pitch_apart(check: Callable, normal: Callable) -> None:
    check("nbx-triton/matmul/blocks", normal("float16", 33, 40)[::2, :16], normal("float16", 16, 600)[:, 8:528])
    check("nbx-triton/matmul/streamed", normal("float16", 33, 40)[::2, :16], normal("float16", 16, 600)[:, 8:528])
    check("nbx-triton/matmul/blocks", np.broadcast_to(normal("float16", 1, 24), (17, 24)), normal("float16", 24, 8))


@pytest.mark.parametrize(
    ("left", "right"),
    [((3, 17, 24), (3, 24, 8)), ((2, 1, 17, 24), (3, 24, 8)), ((17, 24), (3, 24, 8)), ((3, 17, 24), (24, 8))],
    ids=str,
)
@pytest.mark.parametrize("kernel", ["blocks", "blocks-64"])
def test_batches(check: Callable, normal: Callable, kernel: str, left: tuple[int, ...], right: tuple[int, ...]) -> None:
    check(f"nbx-triton/matmul/{kernel}", normal("bfloat16", *left), normal("bfloat16", *right))


def test_heads(check: Callable, normal: Callable) -> None:
    q, k = normal("float16", 2, 17, 3, 24), normal("float16", 2, 40, 3, 24)
    check("nbx-triton/matmul/blocks", q.transpose(0, 2, 1, 3), k.transpose(0, 2, 3, 1))


@pytest.mark.parametrize("dtype", HALVES)
@pytest.mark.parametrize("activation", [None, "relu", "gelu", "gelu_tanh", "silu"])
@pytest.mark.parametrize("kernel", ["blocks", "streamed"])
def test_linear(check: Callable, normal: Callable, kernel: str, activation: str | None, dtype: str) -> None:
    x, w, bias = normal(dtype, 3, 7, 24), normal(dtype, 65, 24), normal(dtype, 130)[::2]
    check(f"nbx-triton/linear/{kernel}", x, w, bias, activation=activation)
    check(f"nbx-triton/linear/{kernel}", x[0].repeat(3, axis=0), w[::-1], None, activation=activation)


@pytest.mark.parametrize("activation", [None, "silu"])
def test_a_shared_depth(check: Callable, normal: Callable, activation: str | None) -> None:
    # 10 steps are shared by 3 programs, the last of which has 2 steps, one of them odd.
    x, w, bias = normal("float16", 17, 1160), normal("float16", 72, 1160), normal("float16", 72)
    check("nbx-triton/linear/streamed", x, w, bias, activation=activation)


@pytest.mark.parametrize("depth", [136, 584])
@pytest.mark.parametrize("rows", [33, 81, 128])
def test_rows_in_two_parts(check: Callable, normal: Callable, rows: int, depth: int) -> None:
    # The first depth is a program's, the second is shared by three.
    x, w, bias = normal("bfloat16", rows, depth), normal("bfloat16", 72, depth), normal("bfloat16", 72)
    check("nbx-triton/linear/streamed-128", x, w, bias, activation="gelu")


@pytest.mark.parametrize("depth", [72, 1032])
def test_tiles_that_suit_the_depth(check: Callable, normal: Callable, depth: int) -> None:
    kernel = "nbx-triton/linear/blocks-64" if depth < 1024 else "nbx-triton/linear/blocks-128"
    x, w, bias = normal("float16", 3, 43, depth), normal("float16", 137, depth), normal("float16", 137)
    check(kernel, x, w, bias, activation="gelu")


@pytest.mark.parametrize("layout", ["deep", "across"])
@pytest.mark.parametrize("columns", [520, 576])
def test_columns_in_two_parts(check: Callable, normal: Callable, columns: int, layout: str) -> None:
    x, bias = normal("bfloat16", 3, 43, 72), normal("bfloat16", columns)
    w = normal("bfloat16", columns, 72) if layout == "deep" else normal("bfloat16", 72, columns).T
    check("nbx-triton/linear/blocks-192", x, w, bias, activation="gelu")
    check("nbx-triton/linear/blocks-192", x, w, None)


@pytest.mark.parametrize("kernel", ["blocks", "streamed"])
def test_what_is_not_finite_spoils_its_own_rows(run: Callable, normal: Callable, kernel: str) -> None:
    x1, x2 = normal("float16", 17, 72), np.abs(normal("float16", 72, 40)) + np.float16(0.5)
    x1[3, 5], x1[16, 71] = np.inf, np.nan
    (out,) = run(f"nbx-triton/matmul/{kernel}", x1, x2)
    assert np.isposinf(out[3]).all()
    assert np.isnan(out[16]).all()
    assert np.isfinite(np.delete(out, [3, 16], axis=0)).all()


@pytest.mark.parametrize("dtype", HALVES)
@pytest.mark.parametrize("layouts", ["deep-deep", "deep-across", "across-deep", "across-across"])
def test_each_way_to_lie_is_described(check: Callable, normal: Callable, layouts: str, dtype: str) -> None:
    left, right = layouts.split("-")
    x1 = normal(dtype, 136, 136) if left == "deep" else normal(dtype, 136, 136).T
    x2 = normal(dtype, 136, 264) if right == "across" else normal(dtype, 264, 136).T
    check("nbx-triton/matmul/bulk", x1, x2)


def test_described_batches(check: Callable, normal: Callable) -> None:
    x1, x2 = normal("float16", 3, 136, 72), normal("float16", 3, 72, 264)
    check("nbx-triton/matmul/bulk", x1, x2)
    check("nbx-triton/matmul/bulk", normal("float16", 3, 24, 136).transpose(0, 2, 1), x2[:, :24, 8:])


def test_many_tiles_for_a_few_programs(check: Callable, normal: Callable) -> None:
    check("nbx-triton/matmul/bulk", normal("float16", 150, 129, 8), normal("float16", 150, 8, 8))


@pytest.mark.parametrize("activation", [None, "relu", "gelu", "gelu_tanh", "silu"])
def test_linear_of_what_is_described(check: Callable, normal: Callable, activation: str | None) -> None:
    x, w, bias = normal("float16", 3, 43, 24), normal("float16", 65, 24), normal("float16", 130)[::2]
    check("nbx-triton/linear/bulk", x, w, bias, activation=activation)
    check("nbx-triton/linear/bulk", x.reshape(129, 24), normal("float16", 24, 64).T, None, activation=activation)
