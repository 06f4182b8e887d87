"""rotary_embedding, pixel_shuffle and pixel_unshuffle by rows, concat, take."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

DTYPES = ["bool", "float16", "complex64"]


def some(rng: np.random.Generator, dtype: str, *shape: int) -> np.ndarray:
    return np.asarray(rng.standard_normal(shape) * 9).astype(dtype)


@pytest.mark.parametrize("interleaved", [False, True])
@pytest.mark.parametrize(
    ("dtype", "table", "shape"),
    [
        ("float16", "float32", (2, 5, 3, 126)),
        ("bfloat16", "bfloat16", (1, 3, 3, 64)),
        ("float32", "float32", (3, 1, 1, 2)),
        ("float64", "float32", (1, 2, 3, 8)),
    ],
    ids=str,
)
def test_rotary_embedding(
    check: Callable,
    normal: Callable,
    rng: np.random.Generator,
    dtype: str,
    table: str,
    shape: tuple[int, ...],
    interleaved: bool,
) -> None:
    position = rng.integers(0, 17, (shape[0], shape[2]))
    cos, sin = normal(table, 17, shape[3] // 2), normal(table, 17, shape[3] // 2)
    check("nbx-triton/rotary_embedding/tokens", normal(dtype, *shape), position, cos, sin, interleaved=interleaved)


@pytest.mark.parametrize("interleaved", [False, True])
def test_rotary_embedding_of_views(
    check: Callable, normal: Callable, rng: np.random.Generator, interleaved: bool
) -> None:
    x = normal("float16", 2, 9, 5, 32)
    position = np.broadcast_to(rng.integers(0, 17, (1, 9)).astype(np.int32), (2, 9))
    cos, sin = normal("float32", 32, 17).T[:, ::2], normal("float32", 17, 33)[:, 16:0:-1]
    check("nbx-triton/rotary_embedding/tokens", x.transpose(0, 2, 1, 3), position, cos, sin, interleaved=interleaved)


def test_a_position_past_the_tables_reads_nothing(run: Callable) -> None:
    position = np.array([[-1, 2, 3, 2**32]], np.int64)
    table = np.ones((3, 4), np.float32)
    (out,) = run("nbx-triton/rotary_embedding/tokens", np.ones((1, 1, 4, 8), np.float32), position, table, table)
    assert np.abs(out).sum(axis=(0, 1, 3)).tolist() == [0, 8, 0, 0]


@pytest.mark.parametrize(
    ("dtype", "r"),
    [*((dtype, 2) for dtype in DTYPES), ("float32", 1), ("float64", 3), ("int8", 4), ("int8", 7), ("float16", 14)],
)
def test_pixel_unshuffle(check: Callable, rng: np.random.Generator, dtype: str, r: int) -> None:
    x = some(rng, dtype, 1 + (r < 14), 2, 2 * r, 5 * r)
    check("nbx-triton/pixel_unshuffle/rows", x, r=r)
    check("nbx-triton/pixel_unshuffle/rows", x.transpose(0, 1, 3, 2)[:, ::2, ::-1], r=r)


@pytest.mark.parametrize(
    ("dtype", "r"), [*((dtype, r) for dtype in DTYPES for r in (1, 2, 3)), ("float64", 5), ("int8", 4), ("float16", 9)]
)
def test_pixel_shuffle(check: Callable, rng: np.random.Generator, dtype: str, r: int) -> None:
    x = some(rng, dtype, 2, 2 * r * r, 5, 33)
    check("nbx-triton/pixel_shuffle/rows", x, r=r)
    check("nbx-triton/pixel_shuffle/rows", x.transpose(0, 1, 3, 2)[..., ::-1], r=r)


@pytest.mark.parametrize(("dtype", "r"), [("bool", 3), ("float16", 1), ("float16", 3), ("float32", 7), ("int64", 5)])
def test_pixels_of_rows_that_lie_in_pieces(check: Callable, rng: np.random.Generator, dtype: str, r: int) -> None:
    check("nbx-triton/pixel_shuffle/rows", some(rng, dtype, 2, 2 * r * r, 5, 48), r=r)
    check("nbx-triton/pixel_shuffle/rows", some(rng, dtype, 1, 2 * r * r, 3, 64)[..., :33], r=r)
    check("nbx-triton/pixel_unshuffle/rows", some(rng, dtype, 2, 2, 5 * r, 48 * r), r=r)
    check("nbx-triton/pixel_unshuffle/rows", some(rng, dtype, 1, 2, 3 * r, 64 * r)[..., : 33 * r], r=r)


@pytest.mark.parametrize(("repeats", "r"), [(1, 2), (3, 2), (36, 3)])
def test_pixel_shuffle_of_a_broadcast_view(check: Callable, normal: Callable, repeats: int, r: int) -> None:
    x = np.broadcast_to(normal("float16", 1, 36 // repeats, 1, 5, 7), (1, 36 // repeats, repeats, 5, 7))
    check("nbx-triton/pixel_shuffle/rows", x, r=r)


@pytest.mark.parametrize(
    ("dtype", "axis"), [*((dtype, 1) for dtype in DTYPES), ("int8", 0), ("float64", -1), ("float16", None)]
)
def test_concat(check: Callable, rng: np.random.Generator, dtype: str, axis: int | None) -> None:
    shapes = [[3, 65, 5], [3, 65, 5], [3, 65, 5]]
    for extra, shape in enumerate(shapes):
        shape[axis or 0] += 7 * extra
    first, second, third = (some(rng, dtype, *shape) for shape in shapes)
    second = np.ascontiguousarray(second.transpose(2, 0, 1)).transpose(1, 2, 0)
    check("nbx-triton/concat/parts", (first, second, third[:, :, ::-1]), axis=axis)


def test_concat_of_more_than_one_launch_takes(check: Callable, rng: np.random.Generator) -> None:
    widths = (1, 2, 5, 0, 63, 1, 1, 127, 4, 9, 33)
    check("nbx-triton/concat/parts", tuple(some(rng, "float32", 3, width) for width in widths), axis=1)


@pytest.mark.parametrize(
    ("dtypes", "axis"),
    [
        (("float16", "float32", "float16"), 1),
        (("float32", "float64"), 0),
        (("int8", "uint8", "int16"), 1),
        (("uint32", "int16"), None),
        (("uint8", "uint64"), None),
        (("float16", "complex64", "float32"), 1),
        (("complex64", "float32"), None),
    ],
    ids=str,
)
def test_concat_of_dtypes_that_promote(
    check: Callable, rng: np.random.Generator, dtypes: tuple[str, ...], axis: int | None
) -> None:
    shapes = [(33 + i, 5) if axis == 0 else (33, 5 + i) for i in range(len(dtypes))]
    numbers = [np.abs(rng.standard_normal(shape) * 9) for shape in shapes]
    arrays = tuple(x.astype(dtype) for x, dtype in zip(numbers, dtypes, strict=True))
    check("nbx-triton/concat/parts", arrays, axis=axis)


@pytest.mark.parametrize(("dtype", "axis"), [*((dtype, 1) for dtype in DTYPES), ("int8", 0), ("float64", -1)])
def test_take(check: Callable, rng: np.random.Generator, dtype: str, axis: int) -> None:
    x = some(rng, dtype, 7, 17, 65)
    indices = rng.integers(0, x.shape[axis], 34)
    check("nbx-triton/take/tiles", x, indices[::2], axis=axis)
    check("nbx-triton/take/tiles", x.transpose(2, 0, 1)[::-1], indices[:19].astype(np.int32) % 7, axis=axis)


def test_take_of_one_axis_and_of_long_rows(check: Callable, normal: Callable, rng: np.random.Generator) -> None:
    check("nbx-triton/take/tiles", normal("float32", 1000), rng.integers(0, 1000, 129))
    check("nbx-triton/take/tiles", normal("float16", 5, 4099), rng.integers(0, 5, 3), axis=0)


def test_an_index_outside_the_axis_reads_nothing(run: Callable) -> None:
    (out,) = run("nbx-triton/take/tiles", np.ones((3, 7), np.float32), np.array([-1, 2, 3, 2**32], np.int64), axis=0)
    assert out.sum(axis=1).tolist() == [0, 7, 0, 0]
