"""Elementwise ops composed of others, on the host: within the bounds of their contracts."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from running import share, values

import nbx_registry as nbx

EDGES = [0.0, -0.0, 1.0, -1.0, np.inf, -np.inf, np.nan, 1e-40, 3e38, -3e38, 88.5, -88.5, -100.0, -745.0, -800.0]


@pytest.fixture(scope="module")
def reg() -> Iterator[nbx.Registry]:
    return nbx.load(require="any")


def numbers(dtype: str) -> np.ndarray:
    rng = np.random.default_rng(13)
    wide = np.exp2(rng.uniform(-40, 20, 5003)) * np.where(rng.random(5003) < 0.5, -1, 1)
    with np.errstate(all="ignore"):
        return np.concatenate([wide, rng.uniform(-110, 110, 5003), EDGES]).astype(dtype)


def composed(reg: nbx.Registry, op: str, *arrays: Any, **attributes: Any) -> np.ndarray:
    return reg.call(op, *arrays, kernel=f"nbx-host/{op}/composed", **attributes)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("op", ["reciprocal", "rsqrt", "relu", "sigmoid", "silu"])
def test_of_one_operand(reg: nbx.Registry, op: str, dtype: str) -> None:
    x = numbers(dtype)
    assert share(op, composed(reg, op, x), x) <= 1


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("approximate", ["none", "tanh"])
def test_gelu(reg: nbx.Registry, dtype: str, approximate: str) -> None:
    x = numbers(dtype)
    assert share("gelu", composed(reg, "gelu", x, approximate=approximate), x, approximate=approximate) <= 1


@pytest.mark.parametrize("pair", [("float32", "float32"), ("float16", "float32"), ("int8", "int8"), ("uint8", "uint8")])
def test_a_difference_is_the_sum_with_the_negative(reg: nbx.Registry, pair: tuple[str, str]) -> None:
    x1, x2 = values((7, 63), pair[0], 1), values((63,), pair[1], 2)
    assert share("subtract", composed(reg, "subtract", x1, x2), x1, x2) <= 1
    assert share("subtract", composed(reg, "subtract", 3, x2), 3, x2) <= 1


def test_integers_that_widen_are_not_negated_first(reg: nbx.Registry) -> None:
    with pytest.raises(nbx.Refused, match=r"x1\.dtype == x2\.dtype"):
        composed(reg, "subtract", np.zeros(3, np.int16), np.array([5, 6, 7], np.uint8))


@pytest.mark.parametrize("op", ["rsqrt", "sigmoid", "silu", "gelu"])
def test_narrow_dtypes_would_be_rounded_too_often(reg: nbx.Registry, op: str) -> None:
    with pytest.raises(nbx.Refused, match=r"x\.dtype in \(float32, float64\)"):
        composed(reg, op, np.ones(3, np.float16))


@pytest.mark.parametrize("bounds", [(-0.5, 0.5), (-0.5, None), (None, 0.5)])
def test_clip(reg: nbx.Registry, bounds: tuple[float | None, float | None]) -> None:
    x = numbers("float16")
    assert share("clip", composed(reg, "clip", x, *bounds), x, *bounds) == 0


def test_clip_without_bounds_is_no_other_op(reg: nbx.Registry) -> None:
    with pytest.raises(nbx.Refused, match=r"min\.given or max\.given"):
        composed(reg, "clip", np.ones(3, np.float32))


@pytest.mark.parametrize("activation", [None, "relu", "gelu", "gelu_tanh", "silu"])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_linear_with_each_activation(reg: nbx.Registry, dtype: str, activation: str | None) -> None:
    x, w, bias = values((7, 65), dtype, 1), values((33, 65), dtype, 2), values((33,), dtype, 3)
    found = composed(reg, "linear", x, w, bias, activation=activation)
    assert share("linear", found, x, w, bias, activation=activation) <= 1
