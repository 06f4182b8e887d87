"""softmax, layer_norm, embedding, paged_kv_append, permute_dims, pixel_shuffle."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from nbx_registry import dtypes

FLOATS = ["float16", "bfloat16", "float32", "float64"]
DTYPES = ["bool", "int8", "float16", "float64", "complex64"]


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize(
    ("shape", "axis"), [((5, 65), -1), ((3, 65, 5), 1), ((129, 3), 0), ((4, 1), 1), ((2, 17001), 1)], ids=str
)
def test_softmax(check: Callable, normal: Callable, dtype: str, shape: tuple[int, ...], axis: int) -> None:
    check("nbx-triton/softmax/rows", normal(dtype, *shape, scale=5), axis=axis)


@pytest.mark.parametrize("length", [3, 17001])
def test_softmax_of_special_rows(check: Callable, length: int) -> None:
    x = np.zeros((6, length), np.float32)
    x[0, 1] = np.nan
    x[1, 0] = np.inf
    x[2] = -np.inf
    x[3] = 3e38
    x[4, :-1] = -np.inf
    x[5, 1:] = -200
    check("nbx-triton/softmax/rows", x)


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("given", [(True, True), (True, False), (False, True), (False, False)], ids=str)
def test_layer_norm(check: Callable, normal: Callable, dtype: str, given: tuple[bool, bool]) -> None:
    weight, bias = (normal(dtype, 129) if one else None for one in given)
    check("nbx-triton/layer_norm/rows", normal(dtype, 3, 5, 129), weight, bias)


@pytest.mark.parametrize("length", [1, 1000, 17001])
def test_layer_norm_of_data_far_from_zero(check: Callable, normal: Callable, length: int) -> None:
    x = normal("float32", 2, length) + np.float32(10_000)
    check("nbx-triton/layer_norm/rows", x, normal("float32", length), normal("float32", length), eps=1e-3)


@pytest.mark.parametrize("index", ["int32", "int64"])
@pytest.mark.parametrize("dtype", DTYPES)
def test_embedding(check: Callable, rng: np.random.Generator, dtype: str, index: str) -> None:
    table = (rng.standard_normal((17, 1030)) * 9).astype(dtype)
    check("nbx-triton/embedding/rows", table[:, ::2], rng.integers(0, 17, (3, 5)).astype(index).T)


def test_an_index_outside_the_table_reads_nothing(run: Callable) -> None:
    (out,) = run("nbx-triton/embedding/rows", np.ones((3, 7), np.float32), np.array([-1, 2, 3, 2**32], np.int64))
    assert out.sum(axis=1).tolist() == [0, 7, 0, 0]


@pytest.mark.parametrize("saturate", [False, True])
@pytest.mark.parametrize("pool_dtype", ["float16", "bfloat16", "float32"])
def test_paged_kv_append(run: Callable, normal: Callable, pool_dtype: str, saturate: bool) -> None:
    new = normal("float32", 6, 2, 33, scale=5e4)
    new[5, 0, :3] = np.inf, -np.inf, np.nan
    pool = normal(pool_dtype, 3, 2, 4, 33)
    # Padding, and a place past the pool, are skipped.
    slot = np.array([0, -1, 11, 5, 12, 6], np.int32)
    wanted = pool.copy()
    largest = float(np.finfo(np.float16).max) if pool_dtype == "float16" else 3e38
    for row, place in zip(new, slot, strict=True):
        if 0 <= place < 12:
            clamped = np.clip(row, -largest, largest) if saturate and pool_dtype == "float16" else row
            with np.errstate(over="ignore"):
                wanted[place // 4, :, place % 4] = clamped.astype(pool.dtype)
    if saturate and pool_dtype != "float16":
        limit = dtypes.get(pool_dtype).numpy.type(3.4028235e38 if pool_dtype == "float32" else 3.3895314e38)
        wanted[1, 0, 2, :2] = limit, -limit
    run("nbx-triton/paged_kv_append/rows", new, slot, pool, saturate=saturate)
    np.testing.assert_array_equal(pool.astype(np.float64), wanted.astype(np.float64))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("axes", [(), (0,), (1, 0), (2, 0, 1), (0, -1, 1), (4, 0, 2, 1, 3)], ids=str)
def test_permute_dims_copies(check: Callable, rng: np.random.Generator, dtype: str, axes: tuple[int, ...]) -> None:
    shape = (9, 18, 17, 2, 3)[: len(axes)]
    x = np.asarray(rng.standard_normal(shape) * 9).astype(dtype)
    check("nbx-triton/permute_dims/tiles", x, axes=axes, copy=True)


def test_permute_dims_of_views(check: Callable, normal: Callable) -> None:
    x = normal("float16", 3, 66, 35)
    check("nbx-triton/permute_dims/tiles", x[:, ::2, ::-1], axes=(2, 1, 0), copy=True)
    check("nbx-triton/permute_dims/tiles", np.broadcast_to(x[:, :1], x.shape), axes=(1, 2, 0), copy=True)
