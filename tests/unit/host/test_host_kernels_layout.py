"""The host's kernels that copy: layouts and indexing. Every bit is kept, so every dtype goes."""

import hosted
import numpy as np
import pytest
import torch
from hosted import LAYOUTS, laid_out, run
from running import sign, values

from nbx_registry import dtypes
from nbx_registry.host.kernels.layout import broadcast_view, permute_view
from nbx_registry.launch import BindContext, View


def bits(shape: tuple[int, ...], dtype: str, seed: int = 0) -> np.ndarray:
    """Return random bit patterns, NaNs of every payload among them."""
    table = dtypes.get(dtype)
    if table.kind == "bool" or table.bits < 8:
        return np.random.default_rng(seed).integers(0, 2, shape).astype(table.numpy)
    raw = np.random.default_rng(seed).integers(0, 256, (*shape, table.itemsize), np.uint8)
    return raw.view(table.numpy)[..., 0]


def same(found: np.ndarray, expected: np.ndarray) -> None:
    assert found.shape == expected.shape
    assert found.tobytes() == np.ascontiguousarray(expected).tobytes()


@pytest.mark.parametrize("dtype", dtypes.TABLE)
def test_permuted_copy(dtype: str) -> None:
    x = bits((3, 5, 7), dtype)
    same(run("permute_dims", x, axes=(2, -3, 1), copy=True), x.transpose(2, 0, 1))


def test_permuted_view_runs_nothing() -> None:
    signature = sign("permute_dims", np.empty((3, 5, 7))[:, ::2], axes=(2, 0, -2))
    kernel = next(k for k in hosted.KERNELS if k.id == "nbx-host/permute_dims/view")
    device: object = None
    view = permute_view(BindContext(kernel=kernel, signature=signature, device=device, settings={}))  # type: ignore[arg-type]
    assert view == View(of="x", shape=(7, 3, 3), strides=(1, 35, 14))


@pytest.mark.parametrize("dtype", dtypes.TABLE)
@pytest.mark.parametrize("r", [1, 2, 3])
def test_pixel_shuffle(dtype: str, r: int) -> None:
    x = bits((2, 36, 5, 7), dtype)
    # Shuffled as places, which torch can, whatever the dtype.
    places = torch.nn.functional.pixel_shuffle(torch.arange(x.size).reshape(x.shape), r).numpy()
    same(run("pixel_shuffle", x, r=r), x.reshape(-1)[places])


@pytest.mark.parametrize(("p", "b"), [(3, 4), (9, 8), (6, 2), (4, 1), (4, 3)])
def test_pixel_shuffle_reads_through_an_expanded_axis(p: int, b: int) -> None:
    x = np.broadcast_to(bits((2, p, 1, 5, 7), "float32"), (2, p, b, 5, 7))
    whole = x.reshape(2, p * b, 5, 7)
    places = torch.nn.functional.pixel_shuffle(torch.arange(whole.size).reshape(whole.shape), 2).numpy()
    same(run("pixel_shuffle", x, r=2), whole.reshape(-1)[places])


def test_pixel_shuffle_of_channels_last() -> None:
    x = bits((2, 5, 7, 12), "float16").transpose(0, 3, 1, 2)
    same(run("pixel_shuffle", x, r=2), run("pixel_shuffle", x.copy(), r=2))


@pytest.mark.parametrize("shape", [(0, 4, 5, 7), (1, 0, 5, 7), (1, 4, 0, 7)])
def test_pixel_shuffle_of_nothing(shape: tuple[int, ...]) -> None:
    assert run("pixel_shuffle", np.empty(shape, np.float32), r=2).size == 0


@pytest.mark.parametrize("dtype", dtypes.TABLE)
@pytest.mark.parametrize("index_dtype", ["int32", "int64"])
def test_embedding(dtype: str, index_dtype: str) -> None:
    w = bits((37, 65), dtype)
    index = np.random.default_rng(1).integers(0, 37, (5, 1, 7)).astype(index_dtype)
    index[0, 0, :2] = 0, 36
    same(run("embedding", w, index), np.stack([w[int(i)] for i in index.ravel()]).reshape(5, 1, 7, 65))


@pytest.mark.parametrize("layout", LAYOUTS)
def test_embedding_of_views(layout: str) -> None:
    w = laid_out(bits((37, 65), "float32", 2), layout)
    index = np.arange(0, 66, dtype=np.int32)[::2].reshape(3, 11)[:, ::2] % 37
    same(run("embedding", w, index), w[index])
    room = np.zeros((3, 6, 130), np.float32)
    run("embedding", w, index, out=room[..., ::2])
    same(room[..., ::2], w[index])


def test_embedding_of_one_index_and_of_none() -> None:
    w = bits((37, 65), "float16")
    same(run("embedding", w, np.array(5)), w[5])
    assert run("embedding", w, np.empty((0, 3), np.int32)).shape == (0, 3, 65)


@pytest.mark.parametrize("dtype", dtypes.TABLE)
@pytest.mark.parametrize("r", [1, 2, 3])
def test_pixel_unshuffle(dtype: str, r: int) -> None:
    x = bits((2, 5, 12, 18), dtype)
    places = torch.nn.functional.pixel_unshuffle(torch.arange(x.size).reshape(x.shape), r).numpy()
    same(run("pixel_unshuffle", x, r=r), x.reshape(-1)[places])


@pytest.mark.parametrize("layout", LAYOUTS)
def test_pixel_unshuffle_of_views_and_into_one(layout: str) -> None:
    x = laid_out(bits((2, 3, 6, 10), "float32"), layout)
    places = torch.nn.functional.pixel_unshuffle(torch.arange(x.size).reshape(x.shape), 2).numpy()
    expected = x.reshape(-1)[places]
    same(run("pixel_unshuffle", x, r=2), expected)
    room = np.zeros((*expected.shape[:-1], 10), np.float32)
    run("pixel_unshuffle", x, r=2, out=room[..., ::2])
    same(room[..., ::2], expected)


@pytest.mark.parametrize("shape", [(0, 4, 6, 8), (1, 0, 6, 8), (1, 4, 0, 8)])
def test_pixel_unshuffle_of_nothing(shape: tuple[int, ...]) -> None:
    assert run("pixel_unshuffle", np.empty(shape, np.float32), r=2).size == 0


@pytest.mark.parametrize("dtype", dtypes.TABLE)
def test_broadcast_copy(dtype: str) -> None:
    x = bits((3, 1, 7), dtype)
    same(run("broadcast_to", x, shape=(2, 3, 5, 7), copy=True), np.broadcast_to(x, (2, 3, 5, 7)))


def test_broadcast_view_runs_nothing() -> None:
    signature = sign("broadcast_to", np.empty((3, 1, 14))[:, :, ::2], shape=(2, 3, 5, 7))
    kernel = next(k for k in hosted.KERNELS if k.id == "nbx-host/broadcast_to/view")
    device: object = None
    view = broadcast_view(BindContext(kernel=kernel, signature=signature, device=device, settings={}))  # type: ignore[arg-type]
    assert view == View(of="x", shape=(2, 3, 5, 7), strides=(0, 14, 0, 2))


@pytest.mark.parametrize("dtype", dtypes.TABLE)
@pytest.mark.parametrize("axis", [0, 1, -1, None])
def test_concat(dtype: str, axis: int | None) -> None:
    shapes = [(3, 4, 5), (3, 4, 5), (3, 4, 5)]
    if axis is not None:
        shapes[1] = tuple(1 if a == axis % 3 else n for a, n in enumerate(shapes[1]))
    arrays = [bits(shape, dtype, seed) for seed, shape in enumerate(shapes)]
    same(run("concat", arrays, axis=axis), np.concatenate(arrays, axis))


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("axis", [0, 1, None])
def test_concat_of_views_and_into_one(layout: str, axis: int | None) -> None:
    arrays = [laid_out(bits((33, 65), "float16", seed), layout) for seed in (1, 2)]
    expected = np.concatenate([np.ascontiguousarray(x) for x in arrays], axis)
    same(run("concat", arrays, axis=axis), expected)
    room = np.zeros((*expected.shape[:-1], 2 * expected.shape[-1]), np.float16)
    run("concat", arrays, axis=axis, out=room[..., ::2])
    same(room[..., ::2], expected)


@pytest.mark.parametrize(
    ("first", "second", "joined"),
    [
        ("float16", "float32", "float32"),
        ("bfloat16", "float64", "float64"),
        ("bfloat16", "complex64", "complex64"),
        ("int8", "uint16", "int32"),
        ("uint8", "uint64", "uint64"),
    ],
)
def test_concat_of_two_dtypes(first: str, second: str, joined: str) -> None:
    a, b = values((3, 5), first, 1), values((2, 5), second, 2)
    own = dtypes.get(joined).numpy
    same(run("concat", [a, b]), np.concatenate([a.astype(own), b.astype(own)]))


def test_concat_of_one_of_many_and_of_nothing() -> None:
    x = bits((3, 5), "float32")
    same(run("concat", [x]), x)
    many = [bits((3, 1 + seed % 3), "float32", seed) for seed in range(130)]
    same(run("concat", many, axis=1), np.concatenate(many, 1))
    assert run("concat", [x[:0], x[:0]]).shape == (0, 5)
    same(run("concat", [x[:0], x, x[:0]]), x)


@pytest.mark.parametrize("dtype", dtypes.TABLE)
@pytest.mark.parametrize("axis", [0, 1, -1])
def test_take(dtype: str, axis: int) -> None:
    x = bits((11, 13, 5), dtype)
    indices = np.random.default_rng(1).integers(0, x.shape[axis], 37)
    indices[:2] = 0, x.shape[axis] - 1
    for index_dtype in (np.int32, np.int64):
        same(run("take", x, indices.astype(index_dtype), axis=axis), np.take(x, indices, axis))


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("count", [9, 3000])
def test_take_of_views_and_into_one(layout: str, axis: int, count: int) -> None:
    x = laid_out(bits((37, 65), "float32", 2), layout)
    indices = np.random.default_rng(2).integers(0, x.shape[axis], 2 * count)[::2]
    expected = np.take(x, indices, axis)
    same(run("take", x, indices, axis=axis), expected)
    room = np.zeros((*expected.shape[:-1], 2 * expected.shape[-1]), np.float32)
    run("take", x, indices, axis=axis, out=room[..., ::2])
    same(room[..., ::2], expected)


def test_take_of_nothing() -> None:
    x = bits((37, 65), "float16")
    assert run("take", x, np.empty(0, np.int32), axis=1).shape == (37, 0)
    assert run("take", x[:, :0], np.array([3, 4]), axis=0).shape == (2, 0)
