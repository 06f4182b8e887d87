"""The host's creation kernels: blocks, strides, and dtypes that NumPy does not count in."""

from __future__ import annotations

import numpy as np
import pytest

import nbx_registry as nbx
from nbx_registry import dtypes
from nbx_registry.host.kernels.blocks import BLOCK
from nbx_registry.host.kernels.creation import SHORT


@pytest.fixture(scope="module")
def reg() -> nbx.Registry:
    return nbx.load(require="any")


@pytest.mark.parametrize("count", [0, 1, SHORT, SHORT + 1, BLOCK - 1, BLOCK, 3 * BLOCK + 7])
@pytest.mark.parametrize("dtype", ["int8", "int16", "uint32", "int64", "uint64", "float32", "float64"])
def test_arange_of_any_length(reg: nbx.Registry, dtype: str, count: int) -> None:
    step = 1 if dtype == "int8" else 2
    count = min(count, 200) if dtype == "int8" else min(count, 16000) if dtype == "int16" else count
    start = -100 if dtype.startswith("int") else 5
    y = reg.call("arange", start=start, stop=start + step * count, step=step, dtype=dtype)
    np.testing.assert_array_equal(y, np.array(range(start, start + step * count, step), dtype))


def test_arange_beyond_int64(reg: nbx.Registry) -> None:
    wanted = range(2**64 - 1, 2**64 - 1 - 5 * BLOCK, -2)
    y = np.asarray(reg.call("arange", start=wanted.start, stop=wanted.stop, step=-2, dtype="uint64"))
    assert [int(v) for v in y[[0, 1, BLOCK, -1]]] == [wanted[0], wanted[1], wanted[BLOCK], wanted[-1]]


def test_arange_in_four_bits(reg: nbx.Registry) -> None:
    out = np.zeros(16, dtypes.get("int4").numpy)
    reg.call("arange", start=-8, stop=8, dtype="int4", out=out)
    np.testing.assert_array_equal(out.astype(np.int8), np.arange(-8, 8))


def test_arange_does_not_drift(reg: nbx.Registry) -> None:
    y = np.asarray(reg.call("arange", start=0, stop=100_000.0, step=0.1))
    assert y.dtype == np.float32
    np.testing.assert_array_equal(y, (np.arange(y.size) * 0.1).astype(np.float32))


@pytest.mark.parametrize("dtype", ["int32", "float32", "bfloat16", "float64"])
def test_arange_into_strides(reg: nbx.Registry, dtype: str) -> None:
    memory = np.zeros(2 * (BLOCK + 9), dtypes.get(dtype).numpy)
    out = memory[::2]
    assert reg.call("arange", start=out.size, dtype=dtype, out=out) is out
    np.testing.assert_array_equal(out.astype(np.float64), np.arange(out.size).astype(out.dtype).astype(np.float64))
    assert not memory[1::2].any()


def test_full_into_strides(reg: nbx.Registry) -> None:
    memory = np.zeros((7, 10), np.float16)
    reg.call("full", shape=(5, 7), fill_value=0.1, dtype="float16", out=memory[:, ::2].T)
    assert (memory[:, ::2] == np.float16(0.1)).all()
    assert not memory[:, 1::2].any()


def test_full_rounds_once(reg: nbx.Registry) -> None:
    # Through float32 this would be rounded down to even.
    value = 1 + 2**-8 + 2**-30
    assert float(np.asarray(reg.call("full", shape=1, fill_value=value, dtype="bfloat16"))[0]) == 1 + 2**-7
    assert int(np.asarray(reg.call("full", shape=1, fill_value=2**53 + 1, dtype="float32"))[0]) == 2**53
