"""topk: equal elements in their order, NaN above all numbers, whatever the length of the row."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

NARROW = ["bool", "int8", "int32", "uint16", "uint32", "float16", "bfloat16", "float32"]


def draw(rng: np.random.Generator, normal: Callable, dtype: str, *shape: int) -> np.ndarray:
    if dtype == "bool":
        return rng.standard_normal(shape) > 0
    if "int" in dtype:
        limits = np.iinfo(dtype)
        return rng.integers(limits.min, limits.max, shape, dtype, endpoint=True)
    return normal(dtype, *shape)


@pytest.mark.parametrize("largest", [True, False])
@pytest.mark.parametrize("dtype", NARROW)
def test_rows_in_registers(
    check: Callable, normal: Callable, rng: np.random.Generator, dtype: str, largest: bool
) -> None:
    x = draw(rng, normal, dtype, 9, 33)
    check("nbx-triton/topk/rows", x, k=5, axis=int("float" in dtype), largest=largest)


@pytest.mark.parametrize(("length", "k"), [(1, 1), (127, 127), (129, 64), (1000, 8)])
def test_from_one_to_all(check: Callable, normal: Callable, length: int, k: int) -> None:
    check("nbx-triton/topk/rows", normal("float16", length, 3), k=k, axis=0)


@pytest.mark.parametrize("largest", [True, False])
@pytest.mark.parametrize("dtype", ["int64", "uint64", "float64"])
def test_by_passes(check: Callable, normal: Callable, rng: np.random.Generator, dtype: str, largest: bool) -> None:
    x = draw(rng, normal, dtype, 2, 1025)
    x[0], x[1, ::2] = x[0, 0], x[1, 0]
    check("nbx-triton/topk/passes", x, k=5, largest=largest)


@pytest.mark.parametrize("largest", [True, False])
@pytest.mark.parametrize(
    ("dtype", "kernel", "length", "k"),
    [("float16", "rows", 65, 40), ("bfloat16", "select-64", 2051, 64), ("float32", "rows", 33, 33)],
)
def test_nan_zeros_of_both_signs_and_infinities(
    check: Callable, normal: Callable, dtype: str, kernel: str, length: int, k: int, largest: bool
) -> None:
    x = normal(dtype, 6, length)
    x[0, ::3], x[1, ::2], x[2, 1::2] = np.nan, np.inf, -np.inf
    x[3], x[3, ::2] = 0.0, -0.0
    x[4], x[4, 7::30] = np.nan, 1
    x[5, 3], x[5, 5] = np.copysign(np.nan, -1), np.nan
    check(f"nbx-triton/topk/{kernel}", x if kernel == "rows" else x[[0, 3, 4]], k=k, largest=largest)


def test_values_keep_the_bits_they_had(run: Callable) -> None:
    x = np.array([[0x8000, 0x0000, 0xFE01, 0x7E02, 0x8000]], np.uint16)
    values, indices = run("nbx-triton/topk/rows", x.view(np.float16), k=5)
    assert indices.tolist() == [[2, 3, 0, 1, 4]]
    assert values.view(np.uint16).tolist() == [[0xFE01, 0x7E02, 0x8000, 0x0000, 0x8000]]


@pytest.mark.parametrize("dtype", ["uint8", "float32"])
def test_long_rows_whole_and_in_segments(
    check: Callable, normal: Callable, rng: np.random.Generator, dtype: str
) -> None:
    check("nbx-triton/topk/select-64", draw(rng, normal, dtype, 1, 9001), k=50)
    check("nbx-triton/topk/select-64", draw(rng, normal, dtype, 2500, 1).T, k=3, largest=False)


@pytest.mark.parametrize("case", ["equal", "rising", "one group"])
def test_rows_in_which_many_reach_the_bound(check: Callable, normal: Callable, case: str) -> None:
    x = normal("float16", 1, 4099)
    if case == "equal":
        x[:] = 2
    elif case == "rising":
        x.sort()
    else:
        x[0, 5::256] += 100
    check("nbx-triton/topk/select-64", x, k=64)


def test_k_past_64(check: Callable, normal: Callable) -> None:
    check("nbx-triton/topk/select-256", normal("float32", 2, 4500), k=100)
    check("nbx-triton/topk/select-1024", normal("float16", 1, 4500), k=300, largest=False)
