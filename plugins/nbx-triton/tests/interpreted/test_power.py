"""pow: special values, whole and general exponents, exponents for all and for each, integers."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from nbx_registry import dtypes

FLOATS = ["float16", "bfloat16", "float32", "float64"]
BASES = [0.0, -0.0, 1.0, -1.0, 2.0, -2.0, 0.5, -0.5, 3.0, np.inf, -np.inf, np.nan]
EXPONENTS = [0.0, -0.0, 1.0, -1.0, 2.0, -2.0, 3.0, -3.0, 0.5, -0.5, 9.0, np.inf, -np.inf, np.nan]


@pytest.mark.parametrize("dtype", FLOATS)
def test_every_special_value_to_every_special_power(check: Callable, dtype: str) -> None:
    kind = dtypes.get(dtype).numpy
    base, exponent = np.meshgrid(np.array(BASES).astype(kind), np.array(EXPONENTS).astype(kind))
    check("nbx-triton/pow/dense", base.copy(), exponent.copy())


@pytest.mark.parametrize("exponent", [0, 1, 2, 3, 8, 9, -2, 0.5, 1.7, -2.5])
@pytest.mark.parametrize("dtype", FLOATS)
def test_one_exponent_for_all(check: Callable, dtype: str, exponent: float) -> None:
    x = np.array([*BASES, *np.linspace(-3, 3, 114)]).astype(dtypes.get(dtype).numpy)
    check("nbx-triton/pow/dense", x, exponent)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_results_over_the_whole_range_within_the_bound(check: Callable, rng: np.random.Generator, dtype: str) -> None:
    least, largest = (-149, 128) if dtype == "float32" else (-1074, 1024)
    x = np.exp2(rng.uniform(-120, 120, 1000)).astype(dtype)
    x[::3] = rng.uniform(0.5, 2, x[::3].size)
    x[1::3] = 1 + rng.standard_normal(x[1::3].size) * 1e-4
    exponent = (rng.uniform(least, largest, 1000) / np.log2(x.astype(np.float64))).astype(dtype)
    check("nbx-triton/pow/dense", x, exponent)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_numbers_of_16_bits_to_a_small_power(check: Callable, dtype: str) -> None:
    x = np.arange(0, 2**16, 7, dtype=np.uint16).view(dtypes.get(dtype).numpy)
    with np.errstate(divide="ignore", invalid="ignore"):
        size = np.abs(np.log2(np.abs(x.astype(np.float64))))
    for exponent in (1.7, -1.99):
        # Those whose power is no number past the largest.
        kept = ~(size * abs(exponent) >= (15.9 if dtype == "float16" else 126)) | np.isinf(size)
        check("nbx-triton/pow/dense", x[kept], exponent)


@pytest.mark.parametrize("exponent", [6e-8, 0.001, 0.3, 0.5, 0.999, 1.001, 1.5, 2.2, 2.499])
def test_every_number_of_float16_to_a_tabled_power(check: Callable, exponent: float) -> None:
    x = np.arange(0x7C01, dtype=np.uint16).view(np.float16)
    x = np.concatenate([x[(x.astype(np.float64) ** exponent < 65520) | np.isinf(x)], -x, [np.float16(np.nan)]])
    check("nbx-triton/pow/dense", x, exponent)


@pytest.mark.parametrize("exponent", [1e-3, 0.5, 0.7, 1.7, 2.2])
def test_every_number_of_bfloat16_to_a_tabled_power(check: Callable, exponent: float) -> None:
    x = np.arange(0x7F81, dtype=np.uint16).view(dtypes.get("bfloat16").numpy)
    exact = x.astype(np.float64) ** float(np.array(exponent).astype(x.dtype))
    x = np.concatenate([x[(exact < 3.38e38) | np.isinf(x)], -x, np.array([np.nan], x.dtype)])
    check("nbx-triton/pow/dense", x, exponent)


def test_tabled_powers_past_the_largest_number_are_infinite(run: Callable) -> None:
    (out,) = run("nbx-triton/pow/dense", np.array([65504, 800, 500], np.float16), 1.7)
    assert np.isinf(out).tolist() == [True, True, False]


@pytest.mark.parametrize("exponent", [1.99, -1.99])
def test_powers_past_the_range_of_bfloat16_are_infinite_or_zero(run: Callable, exponent: float) -> None:
    sizes = np.array([3e38, 1e38, 2e-38, 1e-39, 9e-41])
    (out,) = run("nbx-triton/pow/dense", sizes.astype(dtypes.get("bfloat16").numpy), exponent)
    assert out.astype(float).tolist() == [np.inf if (size > 1) == (exponent > 0) else 0 for size in sizes]


def test_a_number_is_rounded_once(run: Callable) -> None:
    # Halfway between two numbers of float16 but for the last bit, which float32 lacks.
    exponent = 1 + 2.0**-11 + 2.0**-40
    (out,) = run("nbx-triton/pow/dense", np.full(3, 1024, np.float16), exponent)
    (expected,) = run("nbx-triton/pow/dense", np.full(3, 1024, np.float16), np.full(3, exponent, np.float16))
    assert out.tolist() == expected.tolist()


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_a_number_to_one_power(check: Callable, dtype: str) -> None:
    check("nbx-triton/pow/dense", 3.5, np.array([1.7]).astype(dtypes.get(dtype).numpy))


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("exponent", [3, 1.7, -1.7, 5.3])
@pytest.mark.parametrize("count", [1, 17, 4097])
def test_powers_end_anywhere(check: Callable, dtype: str, exponent: float, count: int) -> None:
    check("nbx-triton/pow/dense", np.linspace(0.25, 3, count).astype(dtypes.get(dtype).numpy), exponent)


@pytest.mark.parametrize("dtype", ["int8", "int32", "uint8", "int64", "uint64"])
def test_integers_wrap(check: Callable, rng: np.random.Generator, dtype: str) -> None:
    kind = np.iinfo(dtype)
    x = rng.integers(kind.min, kind.max, (5, 63), dtype=dtype, endpoint=True)
    check("nbx-triton/pow/dense", x, rng.integers(0, 70, (5, 63)).astype(dtype))
    check("nbx-triton/pow/strided", x[:, ::2].T, 5)


@pytest.mark.parametrize("dtype", ["float16", "float32", "int32"])
def test_views_broadcast(check: Callable, rng: np.random.Generator, dtype: str) -> None:
    x = rng.integers(1, 5, (7, 5, 33)).astype(dtype)
    exponent = rng.integers(0, 4, (33, 1)).astype(dtype)
    check("nbx-triton/pow/strided", x.transpose(1, 2, 0), exponent)
    check("nbx-triton/pow/strided", np.broadcast_to(x[0], (3, 5, 33)), x[0, :, ::-1])
    check("nbx-triton/pow/strided", 3, exponent)
    check("nbx-triton/pow/strided", x, np.array(2, dtype))


def test_nothing_is_raised(run: Callable) -> None:
    (out,) = run("nbx-triton/pow/dense", np.empty((0, 3), np.float32), 2.0)
    assert out.shape == (0, 3)
