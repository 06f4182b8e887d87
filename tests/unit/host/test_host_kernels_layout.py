"""The host's kernels that copy: permute_dims, pixel_shuffle, embedding. Every bit is kept, so every dtype goes."""

import hosted
import numpy as np
import pytest
import torch
from hosted import LAYOUTS, laid_out, run
from running import sign

from nbx_registry import dtypes
from nbx_registry.host.kernels.layout import permute_view
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
    kernel = next(k for k in hosted.KERNELS if k.backend == "view")
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
