"""Every oracle against something this project did not write."""

from __future__ import annotations

from collections.abc import Callable

import cache_truth
import convolution_truth
import creation_truth
import elementwise_truth
import exponential_truth
import fourier_truth
import network_truth
import pytest
import quantized_truth
import random_truth
import reduction_truth
from independent import COMPARISONS, Comparer, Comparison

from nbx_registry import contracts
from nbx_sdm import contracts as sdm

EVERY = {op.id for op in (*contracts.ALL, *sdm.ALL)}
MODULES = (
    cache_truth,
    convolution_truth,
    creation_truth,
    elementwise_truth,
    exponential_truth,
    fourier_truth,
    network_truth,
    quantized_truth,
    random_truth,
    reduction_truth,
)

WITHOUT: dict[str, str] = {}
"""Ops that nothing independent computes, by id, with the reason."""


@pytest.mark.parametrize(("ops", "comparison"), COMPARISONS, ids=[function.__name__ for _, function in COMPARISONS])
def test_oracles_agree(
    ops: tuple[str, ...], comparison: Comparison, record_property: Callable[[str, object], None]
) -> None:
    compare = Comparer()
    comparison(compare)
    assert compare.ran == set(ops)
    assert compare.counts.total() > 0
    record_property("oracles", ops)
    record_property("compared", dict(compare.counts))


def test_every_op_is_compared_or_excused_with_a_reason() -> None:
    compared = {op for ops, _ in COMPARISONS for op in ops}
    assert compared | set(WITHOUT) == EVERY
    assert not compared & set(WITHOUT)
    assert all(len(reason) > 10 for reason in WITHOUT.values())


def test_a_wrong_oracle_is_noticed() -> None:
    compare = Comparer()
    with pytest.raises(AssertionError):
        compare(1.0 + 1e-9, 1.0, "nobody")
    with pytest.raises(AssertionError):
        compare(-0.0, 0.0, "nobody", rtol=0)
    assert not compare.counts
