"""Bounds of elementary functions: what honest float32 arithmetic gives is allowed, the usual shortcuts are not."""

from __future__ import annotations

import numpy as np
import pytest
from running import OPS, share, sign

LOG2_E = np.float32(1.4426950408889634)


def single(low: float, high: float, count: int = 20_000) -> np.ndarray:
    return np.random.default_rng([3, count]).uniform(low, high, count).astype(np.float32)


def multiplied(x: np.ndarray, count: int) -> np.ndarray:
    """Return x to an integer power, every product rounded to float32."""
    result = x
    for _ in range(abs(count) - 1):
        result = result * x
    return result if count > 0 else np.float32(1) / result


@pytest.mark.parametrize("e", [1, 2, 3, 4, 5, 8, -1, -2, -3, -8])
def test_repeated_multiplication_is_honest(e: int) -> None:
    x = single(-3, 3)
    assert share("pow", multiplied(x, e), x, e) <= 1


@pytest.mark.parametrize("e", [2.0, 3.0, 2.5, -1.5, 0.5])
def test_powers_by_a_float32_logarithm_are_not(e: float) -> None:
    x = single(5, 3000)
    assert share("pow", np.exp(np.float32(e) * np.log(x)), x, e) > 1


def test_squares_and_cubes_are_held_to_half_and_one_and_a_half_ulp() -> None:
    x = single(1, 1.2)
    signature = sign("pow", x, 2)
    for e, ulps in ((2, 0.5), (3, 1.5), (2.5, 2.0), (1, 0.5)):
        references = OPS["pow"].run_oracle(signature, [x, e])
        (bound,) = OPS["pow"].bound(signature, [x, e], references)
        # All are between 1 and 2.
        np.testing.assert_allclose(bound, ulps * 2.0**-23, rtol=1e-6)


def test_squares_of_float16_are_rounded_once() -> None:
    x = single(1, 200, 1000).astype(np.float16)
    assert share("pow", x * x, x, 2) <= 1
    assert share("pow", np.nextafter(x * x, np.float16(np.inf)), x, 2) > 1


def test_exponentials_whose_exponent_is_multiplied_in_float32_are_noticed() -> None:
    x = single(-85, 85)
    assert share("exp", np.exp(x), x) <= 1
    assert share("exp", np.exp2(x * LOG2_E), x) > 1


def test_exponentials_that_drop_subnormal_results_are_noticed() -> None:
    x = single(-100, -90)
    flushed = np.exp(x)
    flushed[flushed < np.finfo(np.float32).tiny] = 0
    assert share("exp", np.exp(x), x) <= 1
    assert share("exp", flushed, x) > 1


def test_logarithms_with_an_absolute_error_are_noticed() -> None:
    x = single(0.99, 1.01)
    assert share("log", np.log(x), x) <= 1
    assert share("log", np.log(x) + np.float32(2.0**-22), x) > 1


def test_functions_that_cancel_near_zero_are_noticed() -> None:
    x = single(-0.01, 0.01)
    growth = np.exp(2 * x)
    assert share("tanh", np.tanh(x), x) <= 1
    assert share("tanh", (growth - 1) / (growth + 1), x) > 1
    through = 1 - np.float32(1) * np.vectorize(lambda v: np.float32(1 - OPS["erf"].oracle(np.array(float(v)))))(x)
    assert share("erf", through.astype(np.float32), x) > 1


def test_a_sigmoid_may_vanish_below_the_normal_numbers_alone() -> None:
    with np.errstate(over="ignore"):
        x = single(-104, -88)
        assert share("sigmoid", 1 / (1 + np.exp(-x)), x) <= 1
        x = single(-86, -80)
        assert share("sigmoid", np.zeros_like(x), x) > 1
        assert share("silu", np.zeros_like(x), x) > 1
        # 1 + tanh loses its digits below zero.
        x = single(-12, 12)
        assert share("sigmoid", 1 / (1 + np.exp(-x)), x) <= 1
        assert share("sigmoid", np.float32(0.5) * (1 + np.tanh(np.float32(0.5) * x)), x) > 1


def test_choices_and_signs_are_exact() -> None:
    x = single(-3, 3)
    for op, result in (("negative", -x), ("abs", np.abs(x)), ("relu", np.maximum(x, 0))):
        assert share(op, result, x) == 0
        assert share(op, np.nextafter(result, np.float32(9)), x) > 1
