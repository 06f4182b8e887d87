"""Reductions, norms and layouts composed of other ops, on the host: within the bounds of their contracts."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from running import share, values

import nbx_registry as nbx
from nbx_registry.errors import Refused


@pytest.fixture(scope="module")
def reg() -> Iterator[nbx.Registry]:
    return nbx.load(require="any")


def composed(reg: nbx.Registry, op: str, *arrays: Any, **attributes: Any) -> np.ndarray:
    return reg.call(op, *arrays, kernel=f"nbx-host/{op}/composed", **attributes)


WIDE = ["float32", "float64"]


@pytest.mark.parametrize("axis", [None, 0, (0, -1), ()])
@pytest.mark.parametrize("dtype", WIDE)
def test_mean(reg: nbx.Registry, dtype: str, axis: Any) -> None:
    for x in (values((63, 5, 129), dtype), np.full((1000, 3), 0.1, dtype), np.array([np.inf, 1, np.nan], dtype)):
        if axis in (None, 0) or x.ndim == 3:
            assert share("mean", composed(reg, "mean", x, axis=axis), x, axis=axis) <= 1
    assert np.isnan(composed(reg, "mean", np.empty((0, 3), dtype), axis=0)).all()
    assert composed(reg, "mean", np.empty((0, 3), dtype), axis=1).shape == (0,)


@pytest.mark.parametrize("scaled", [False, True])
@pytest.mark.parametrize("dtype", WIDE)
@pytest.mark.parametrize("width", [1, 129, 5003])
def test_rms_norm(reg: nbx.Registry, dtype: str, width: int, scaled: bool) -> None:
    for x in (values((7, width), dtype), values((2, 3, width), dtype, scale=1e-3) + 1, np.full((2, width), 0.1, dtype)):
        weight = values((width,), dtype, 1) if scaled else None
        found = composed(reg, "rms_norm", x, weight, eps=1e-5)
        assert share("rms_norm", found, x, weight, eps=1e-5) <= 1


@pytest.mark.parametrize("given", ["both", "weight", "bias"])
@pytest.mark.parametrize("dtype", WIDE)
def test_group_norm(reg: nbx.Registry, dtype: str, given: str) -> None:
    weight = values((6,), dtype, 1) if given != "bias" else None
    bias = values((6,), dtype, 2) if given != "weight" else None
    for shape in ((3, 6), (2, 6, 129), (2, 6, 9, 13)):
        for x in (values(shape, dtype), values(shape, dtype) + 3000):
            found = composed(reg, "group_norm", x, weight, bias, groups=3)
            assert share("group_norm", found, x, weight, bias, groups=3) <= 1


def test_group_norm_takes_dense_tensors_that_are_scaled_or_shifted(reg: nbx.Registry) -> None:
    x, weight = values((2, 6, 9), "float32"), values((6,), "float32", 1)
    with pytest.raises(Refused, match=r"weight\.given or bias\.given"):
        composed(reg, "group_norm", x, groups=3)
    with pytest.raises(Refused, match="contiguous"):
        composed(reg, "group_norm", x[:, :, ::2], weight, groups=3)


def test_layouts_that_are_those_of_other_ops(reg: nbx.Registry) -> None:
    x = values((5, 1, 7), "bfloat16")
    found = composed(reg, "broadcast_to", x, shape=(2, 5, 3, 7), copy=True)
    assert found.tobytes() == np.broadcast_to(x, (2, 5, 3, 7)).tobytes()
    assert composed(reg, "broadcast_to", np.float32(3), shape=(), copy=True) == 3
    table, indices = values((11, 9), "float16"), np.array([10, 0, 10], np.int32)
    for axis in (0, -2):
        np.testing.assert_array_equal(composed(reg, "take", table, indices, axis=axis), table[indices])
