"""The host's random kernels: blocks, strides, parts drawn by themselves, quantiles everywhere."""

from __future__ import annotations

from itertools import pairwise
from statistics import NormalDist

import numpy as np
import pytest

import nbx_registry as nbx
from nbx_registry import dtypes
from nbx_registry.host.kernels.quantile import quantile
from nbx_registry.host.kernels.random import COUNTERS

BLOCK = 4 * COUNTERS


@pytest.fixture(scope="module")
def reg() -> nbx.Registry:
    return nbx.load(require="any")


@pytest.mark.parametrize("op", ["random_bits", "uniform", "normal"])
@pytest.mark.parametrize("offset", [0, 1, 6, 2**34 - 5, 2**64 - 3 * BLOCK])
def test_parts_are_what_the_whole_is(reg: nbx.Registry, op: str, offset: int) -> None:
    count = 2 * BLOCK + 129
    whole = np.asarray(reg.call(op, shape=count, seed=2**33 + 5, offset=offset))
    cuts = [0, 1, 63, BLOCK - 2, BLOCK + 1, 2 * BLOCK, count]
    for start, stop in pairwise(cuts):
        part = np.asarray(reg.call(op, shape=stop - start, seed=2**33 + 5, offset=offset + start))
        assert part.tobytes() == whole[start:stop].tobytes()


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
@pytest.mark.parametrize("op", ["uniform", "normal"])
def test_into_strides(reg: nbx.Registry, op: str, dtype: str) -> None:
    memory = np.zeros((7, 10, 3), dtypes.get(dtype).numpy)
    out = memory[:, ::2].transpose(2, 0, 1)
    assert reg.call(op, shape=(3, 7, 5), seed=4, dtype=dtype, out=out) is out
    wanted = np.asarray(reg.call(op, shape=(3, 7, 5), seed=4, dtype=dtype))
    assert np.ascontiguousarray(out).tobytes() == wanted.tobytes()
    assert not memory[:, 1::2].astype(np.float32).any()


@pytest.mark.parametrize("op", ["random_bits", "uniform", "normal"])
def test_large_tensors_do_not_depend_on_threads(reg: nbx.Registry, monkeypatch: pytest.MonkeyPatch, op: str) -> None:
    drawn = []
    for threads in ("1", "3"):
        monkeypatch.setenv("NBX_HOST_THREADS", threads)
        drawn.append(np.asarray(reg.call(op, shape=(3, 1000, 1001), seed=1, offset=3)).tobytes())
    assert drawn[0] == drawn[1]


EDGES = np.array([0, 1, 2, 2**31 - 2, 2**31 - 1, 2**31, 2**31 + 1, 2**32 - 2, 2**32 - 1], np.uint32)
# Either side of where the middle ends and the tails begin, |u - 1/2| = 0.425.
SEAMS = np.concatenate([np.arange(-500, 500) + round(0.075 * 2**32), np.arange(-500, 500) + round(0.925 * 2**32)])


@pytest.mark.parametrize(("dtype", "roundings"), [("float32", 8), ("float64", 8)])
def test_quantiles_are_within_a_few_roundings_everywhere(dtype: str, roundings: int) -> None:
    rng = np.random.default_rng(3)
    words = [EDGES, SEAMS, rng.integers(0, 2**32, 20000), 2 ** np.linspace(0, 31, 3000)]
    drawn = np.concatenate([part.astype(np.uint32) for part in words])
    out = np.empty(drawn.size, dtype)
    quantile(dtypes.get(dtype))(drawn, out)
    inverse = NormalDist().inv_cdf
    wanted = np.array([inverse((word + 0.5) / 2**32) for word in drawn.tolist()])
    assert (np.abs(out - wanted) <= roundings * np.finfo(dtype).eps / 2 * np.abs(wanted)).all()


def test_quantiles_are_symmetric() -> None:
    words = np.random.default_rng(5).integers(0, 2**32, 1000, np.uint32)
    below, above = np.empty((2, 1000), np.float32)
    quantile(dtypes.get("float32"))(words, below)
    quantile(dtypes.get("float32"))(~words, above)
    np.testing.assert_array_equal(below, -above)
