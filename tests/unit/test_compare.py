from __future__ import annotations

import json

import numpy as np
import pytest

from nbx_registry import dtypes, jsonfile
from nbx_registry.compare import Comparison, compare

INF, NAN = float("inf"), float("nan")


def judged(
    found: list[float], expected: list[float], bound: float = 0.0, dtype: str = "float32", *, signs: bool = False
) -> Comparison:
    kind = dtypes.get(dtype)
    with np.errstate(all="ignore"):
        output = np.array(found).astype(kind.numpy)
    reference = np.array(expected, np.float64)
    return compare("out", output, reference, np.full(len(expected), bound), kind, signs=signs)


def test_an_error_within_the_bound_passes_and_one_beyond_does_not() -> None:
    assert judged([1.0, 2.5], [1.0, 2.0], 0.5).numbers == ""
    found = judged([1.0, 2.5], [1.0, 2.0], 0.49)
    assert found.numbers == "out[1] is 2.5, must be 2, allowed +-0.49; 1 of 2 elements wrong"


@pytest.mark.parametrize(("found", "expected"), [(NAN, 1.0), (INF, 1.0), (0.0, 1.0)], ids=["nan", "inf", "zero"])
def test_no_special_value_is_near_a_number(found: float, expected: float) -> None:
    assert judged([found], [expected], 0.5).numbers


@pytest.mark.parametrize(("found", "expected"), [(1.0, NAN), (INF, NAN), (NAN, INF), (-INF, INF), (3e38, INF)], ids=str)
def test_a_special_value_must_be_itself(found: float, expected: float) -> None:
    assert judged([found], [expected], 1e30).special
    assert not judged([expected], [expected]).special


def test_the_sign_of_a_zero_counts_where_it_is_said_to() -> None:
    assert judged([0.0], [-0.0], signs=True).special
    assert not judged([0.0], [-0.0], signs=False).special
    assert not judged([-0.0], [-0.0], signs=True).special


def test_beyond_the_largest_number_is_infinite_and_near_it_either() -> None:
    assert not judged([INF], [70000.0], 16.0, "float16").special
    assert judged([65504.0], [70000.0], 16.0, "float16").special
    for answer in (INF, 65504.0):
        near = judged([answer], [65519.0], 32.0, "float16")
        assert not near.numbers
        assert not near.special
    assert judged([INF], [65000.0], 16.0, "float16").numbers


def test_a_format_without_infinities_overflows_to_nan() -> None:
    assert not judged([NAN], [1000.0], 1.0, "float8_e4m3fn").special
    assert judged([448.0], [1000.0], 1.0, "float8_e4m3fn").special


def test_integers_and_booleans_are_equal_or_wrong() -> None:
    assert judged([3, 4], [3, 4], dtype="int32").numbers == ""
    assert judged([3, 5], [3, 4], dtype="int32").numbers == "out[1] is 5, must be 4; 1 of 2 elements wrong"


def test_a_boolean_is_the_byte_1_or_0() -> None:
    output = np.array([1, 0, 2], np.uint8).view(bool)
    found = compare("out", output, np.array([True, False, True]), np.zeros(3), dtypes.get("bool"))
    assert found.numbers == "out[2] is 2, must be 1; 1 of 3 elements wrong"


def test_an_overflow_that_is_right_takes_no_share_of_the_bound() -> None:
    near = judged([6.0, 3.0], [8.5, 2.5], 2.0, "float4_e2m1fn")
    assert not near.numbers
    assert near.profile.share == 0.25


def test_a_profile_tells_the_worst_position_in_ulp_and_share_of_the_bound() -> None:
    one = 2.0**-23
    found = judged([1.0, 1.0 + one, 1.0 + 2 * one], [1.0, 1.0, 1.0], 4 * one).profile
    assert found.ulp == (1.0, 2.0, 2.0)
    assert found.share == 0.5
    assert found.worst == (2,)
    assert found.relative_l2 == pytest.approx(np.sqrt(5.0) * one / np.sqrt(3.0))


@pytest.mark.parametrize("size", [1e200, 1e-200, 1e308], ids=str)
def test_a_profile_of_numbers_whose_squares_are_out_of_range(size: float) -> None:
    found = judged([size, -size], [0.5 * size, -0.5 * size], size, "float64").profile
    assert found.relative_l2 == pytest.approx(1.0)
    opposite = judged([size, size], [-size, size], 4.0, "float64").profile
    assert opposite.relative_l2 == (np.inf if size == 1e308 else pytest.approx(np.sqrt(2.0)))
    assert json.loads(jsonfile.canonical(opposite.to_dict()))["l2"] > 1


def test_no_error_keeps_to_a_bound_that_is_no_number() -> None:
    found = judged([1.0, 2.0], [1.0, 1.0], NAN, "float64")
    assert found.numbers
    assert found.profile.to_dict()["share"] > 1


def test_zeros_whose_sign_counts_are_not_the_worst_position() -> None:
    found = judged([0.0, 1.0, 1.5], [0.0, 1.0, 1.25], 0.5, signs=True)
    assert (found.profile.worst, found.profile.share) == ((2,), 0.5)


def test_an_exact_result_has_an_empty_profile() -> None:
    assert judged([1.0, -2.0], [1.0, -2.0]).profile.to_dict() == {}


def test_complex_numbers_are_compared_by_their_parts() -> None:
    kind = dtypes.get("complex64")
    output = np.array([1 + 2j], np.complex64)
    assert compare("out", output, np.array([1 + 2.5j]), np.array([0.4]), kind).numbers
    assert not compare("out", output, np.array([1 + 2.5j]), np.array([0.6]), kind).numbers


def test_the_closest_is_the_error_that_takes_most_of_what_is_allowed() -> None:
    kind = dtypes.get("float32")
    output, reference = np.array([1.5, 2.25, 0.0], np.float32), np.array([1.0, 2.0, 0.0])
    found = compare("out", output, reference, np.array([1.0, 0.25, 0.0]), kind)
    assert found.closest == (0.25, 0.25)
    assert compare("out", output, output.astype(np.float64), np.ones(3), kind).closest == (0.0, 0.0)
    # Beside special values, and of what has no elements.
    assert judged([NAN, 1.5], [NAN, 1.0], 1.0).closest == (0.5, 1.0)
    assert judged([], []).closest == (0.0, 0.0)
