"""Contracts of random numbers: streams, their ends, what is refused with which words, costs."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from running import OPS, oracle, outputs, sign

from nbx_registry.errors import SignatureError

DRAWS = ["random_bits", "uniform", "normal"]


@pytest.mark.parametrize("op", DRAWS)
@pytest.mark.parametrize("ahead", [1, 3, 4, 63])
def test_an_offset_further_on_is_the_same_stream_further_on(op: str, ahead: int) -> None:
    whole = oracle(op, shape=129, seed=2**40 + 3, offset=2**34 - 7)
    part = oracle(op, shape=129 - ahead, seed=2**40 + 3, offset=2**34 - 7 + ahead)
    np.testing.assert_array_equal(whole[ahead:], part)


@pytest.mark.parametrize("op", DRAWS)
def test_a_shape_only_arranges_the_stream(op: str) -> None:
    np.testing.assert_array_equal(oracle(op, shape=(3, 1, 43), seed=9).ravel(), oracle(op, shape=129, seed=9))


@pytest.mark.parametrize("op", DRAWS)
def test_seeds_are_streams_of_their_own(op: str) -> None:
    drawn = [oracle(op, shape=63, seed=seed).tobytes() for seed in (0, 1, 2**32, 2**63, 2**64 - 1)]
    assert len(set(drawn)) == 5


def test_uniform_numbers_are_cut_off_and_below_one() -> None:
    # The largest words of a stream of 2^20: rounded to float16 or bfloat16 they would be 1.
    words = oracle("random_bits", shape=2**20, seed=1)
    fine = oracle("uniform", shape=2**20, seed=1)
    assert words.max() > 0xFFFF0000
    for dtype, bits in [("float16", 11), ("bfloat16", 8)]:
        coarse = oracle("uniform", shape=2**20, seed=1, dtype=dtype)
        assert coarse.max() == 1 - 2.0**-bits
        np.testing.assert_array_equal(coarse, np.floor(fine * 2**bits) / 2**bits)


def test_numbers_are_distributed_as_they_should_be() -> None:
    """Kolmogorov and Smirnov: one stream in a thousand strays further than 1.95 / sqrt(n)."""
    from statistics import NormalDist

    count = 2**16
    steps = np.arange(count + 1) / count
    for op, distribution in [("uniform", lambda v: v), ("normal", np.vectorize(NormalDist().cdf))]:
        values = distribution(np.sort(oracle(op, shape=count, seed=20240229)))
        assert max((values - steps[:-1]).max(), (steps[1:] - values).max()) < 1.95 / np.sqrt(count)


@pytest.mark.parametrize(
    ("op", "attributes", "expected"),
    [
        ("random_bits", {"shape": (2, 3)}, "uint32[2, 3]"),
        ("uniform", {"shape": 5}, "float32[5]"),
        ("uniform", {"shape": (), "dtype": "bfloat16"}, "bfloat16[]"),
        ("normal", {"shape": (0, 3), "dtype": "float64"}, "float64[0, 3]"),
        ("normal", {"shape": 1, "offset": 2**64 - 1}, "float32[1]"),
        ("normal", {"shape": 0, "offset": 2**64 - 1}, "float32[0]"),
    ],
    ids=str,
)
def test_outputs(op: str, attributes: dict[str, Any], expected: str) -> None:
    assert outputs(op, seed=7, **attributes) == expected


@pytest.mark.parametrize(
    ("attributes", "words"),
    [
        ({"shape": 3}, "attribute seed is missing"),
        ({"shape": 3, "seed": -1}, "needs seed >= 0"),
        ({"shape": 3, "seed": 2**64}, "at most 64 bits"),
        ({"shape": 3, "seed": 1.0}, "takes an integer"),
        ({"shape": 3, "seed": 1, "offset": -2}, "needs offset >= 0"),
        ({"shape": 2, "seed": 1, "offset": 2**64 - 1}, "beyond the 2\\*\\*64 words of a stream; take another seed"),
        ({"shape": (2, -3), "seed": 1}, "axis 1 is -3"),
    ],
    ids=str,
)
@pytest.mark.parametrize("op", DRAWS)
def test_refusals(op: str, attributes: dict[str, Any], words: str) -> None:
    with pytest.raises(SignatureError, match=words):
        sign(op, **attributes)


@pytest.mark.parametrize("dtype", ["int32", "float8_e5m2", "complex64"])
def test_other_dtypes_are_refused(dtype: str) -> None:
    with pytest.raises(SignatureError, match=f"uniform in {dtype}: .*float32.*astype"):
        sign("uniform", shape=3, seed=1, dtype=dtype)


def test_costs_count_words() -> None:
    for op, flops, least, size in [("random_bits", 25, 15, 4), ("uniform", 27, 17, 4), ("normal", 45, 18, 4)]:
        cost = OPS[op].cost(sign(op, shape=(63, 129), seed=1))
        count = 63 * 129
        assert (cost.flops, cost.least_flops) == (flops * count, least * count)
        assert (cost.bytes_read, cost.bytes_written, cost.least_bytes) == (0, size * count, size * count)
