"""The host's topk, against the contract's oracle, which Python's sort makes."""

from __future__ import annotations

import numpy as np
import pytest
from hosted import LAYOUTS, laid_out, run
from running import oracle, values

from nbx_registry import dtypes
from nbx_registry.host.kernels.sorting import GROUPS_PER_RESULT, LONG_ROW

ORDERED = [name for name, dtype in dtypes.TABLE.items() if dtype.kind != "complex"]


def check(x: np.ndarray, k: int, *, axis: int = -1, largest: bool = True) -> None:
    found, places = run("topk", x, k=k, axis=axis, largest=largest)
    _, expected = oracle("topk", x, k=k, axis=axis, largest=largest)
    np.testing.assert_array_equal(places, expected)
    assert found.dtype == x.dtype
    assert found.tobytes() == np.take_along_axis(x, expected, axis).tobytes()


def tied(shape: tuple[int, ...], dtype: str, seed: int = 0) -> np.ndarray:
    """Return few different values, NaN and zeros of both signs among those of floating dtypes."""
    x = values(shape, dtype, seed, scale=2)
    if dtypes.get(dtype).kind != "float":
        return x
    x = np.rint(x.astype(np.float64)).astype(x.dtype)
    rng = np.random.default_rng(seed)
    flat = x.reshape(-1)
    flat[rng.integers(0, x.size, x.size // 10)] = np.array(-0.0).astype(x.dtype)
    if not np.isnan(np.array(1.0).astype(x.dtype)) and dtypes.get(dtype).bits >= 8:
        flat[rng.integers(0, x.size, x.size // 10)] = np.nan
    return x


@pytest.mark.parametrize("largest", [True, False])
@pytest.mark.parametrize("dtype", ORDERED)
def test_every_dtype_with_ties(dtype: str, largest: bool) -> None:
    x = tied((7, 33), dtype)
    for k in (0, 1, 7, 33):
        check(x, k, largest=largest)


@pytest.mark.parametrize("largest", [True, False])
@pytest.mark.parametrize("dtype", ["float16", "float32", "float64", "int32", "int64", "uint64"])
def test_long_rows_with_ties(dtype: str, largest: bool) -> None:
    for extent in (LONG_ROW - 1, LONG_ROW, LONG_ROW + 1031):
        x = tied((3, extent), dtype, 1)
        for k in (1, 7, extent // GROUPS_PER_RESULT**2, extent // GROUPS_PER_RESULT**2 + 1):
            check(x, k, largest=largest)


@pytest.mark.parametrize("dtype", ["int8", "int32", "int64", "uint8", "uint32", "uint64"])
def test_the_ends_of_integers(dtype: str) -> None:
    info = np.iinfo(dtype)
    x = np.array([info.min, info.max, 0, 1, info.max - 1, info.min + 1, info.max, info.min], dtype)
    for largest in (True, False):
        check(x, 5, largest=largest)


@pytest.mark.parametrize("axis", [0, 1, 2, -2])
def test_every_axis(axis: int) -> None:
    check(tied((7, 33, 65), "float32", 2), 5, axis=axis)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("axis", [0, 1])
def test_views(layout: str, axis: int) -> None:
    check(laid_out(tied((33, 65), "float32", 3), layout), 9, axis=axis)
    check(laid_out(tied((33, 65), "float64", 3), layout), 9, axis=axis)


def test_no_rows_and_no_elements() -> None:
    for shape, k in (((0, 5), 2), ((3, 0), 0), ((3, 5), 0)):
        found, places = run("topk", np.empty(shape, np.float32), k=k)
        assert found.shape == places.shape == (shape[0], k)


@pytest.mark.parametrize("extent", [63, 2 * LONG_ROW])
def test_a_rows_results_do_not_depend_on_its_company(extent: int) -> None:
    x = values((40, extent), "float32", 4)
    together = run("topk", x, k=9)
    for row in (0, 17, 39):
        alone = run("topk", x[row : row + 1], k=9)
        for part, whole in zip(alone, together, strict=True):
            np.testing.assert_array_equal(part[0], whole[row])
