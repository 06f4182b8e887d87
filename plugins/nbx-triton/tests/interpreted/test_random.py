"""random_bits, uniform, normal: words and uniform numbers to the bit, from any place of a stream, into any strides."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from nbx_registry import Registry, dtypes, spec
from nbx_registry.runtime import Runtime

PLACES = [
    (0, 0),
    (1, 3),
    (2**32 - 1, 4),
    (2**32, 2**34 - 5),
    (2**64 - 1, 2**63 + 1),
    (12345678901234567890, 2**64 - 2100),
]
"""Seeds and offsets."""


def test_the_first_words_are_the_published_ones(run: Callable) -> None:
    (out,) = run("nbx-triton/random_bits/philox", shape=4, seed=0)
    assert [f"{word:08x}" for word in out.tolist()] == ["6627e8d5", "e169c58d", "bc57ac4c", "9b00dbd8"]


@pytest.mark.parametrize(("seed", "offset"), PLACES, ids=str)
@pytest.mark.parametrize("shape", [(1,), (3, 129), (2083,)], ids=str)
def test_words(check: Callable, shape: tuple[int, ...], seed: int, offset: int) -> None:
    check("nbx-triton/random_bits/philox", shape=shape, seed=seed, offset=offset)


@pytest.mark.parametrize(("seed", "offset"), PLACES, ids=str)
@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
def test_uniform_numbers_are_the_oracles_to_the_bit(check: Callable, dtype: str, seed: int, offset: int) -> None:
    check("nbx-triton/uniform/philox", shape=1023, seed=seed, offset=offset, dtype=dtype)


@pytest.mark.parametrize(("seed", "offset"), PLACES, ids=str)
@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32"])
def test_normal_numbers(check: Callable, dtype: str, seed: int, offset: int) -> None:
    check("nbx-triton/normal/philox", shape=(7, 300), seed=seed, offset=offset, dtype=dtype)


def test_no_shape_and_no_elements(check: Callable) -> None:
    check("nbx-triton/uniform/philox", shape=(), seed=5, offset=2)
    check("nbx-triton/normal/philox", shape=(3, 0), seed=5)


def test_an_output_with_strides(registry: Registry, emulator: Runtime) -> None:
    op = registry.ops["uniform"]
    signature = op.signature([], {"shape": (33, 65), "seed": 3, "offset": 5})
    signature.outputs = (spec.TensorSpec(dtypes.get("float32"), (33, 65), (2, 70)),)
    bound = registry.bind_specs(
        "uniform",
        signature,
        device="nvidia/h200-sxm",
        kernel="nbx-triton/uniform/philox",
        require="any",
        runtime=emulator,
    )
    memory = np.full((65, 70), np.nan, np.float32)
    assert bound.program is not None
    bound.program.run([memory.ctypes.data], None)
    written = memory[:, :66:2].T
    np.testing.assert_array_equal(written, *op.run_oracle(signature, []))
    assert np.isnan(memory[:, 1::2]).all()
    assert np.isnan(memory[:, 66:]).all()
