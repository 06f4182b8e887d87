"""Rounding to the dtypes of the table: once, to nearest even; against ml_dtypes where that rounds once, and by hand."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nbx_registry import dtypes
from nbx_registry.errors import SpecError
from nbx_registry.rounding import float_format, integer_range, integers_as_float64, round_to_float

NARROW = ["float16", "bfloat16", "float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz", "float4_e2m1fn"]
FLOATS = [*NARROW, "float32", "float64"]


def same(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    return (a == b) & (np.signbit(a) == np.signbit(b)) | np.isnan(a) & np.isnan(b)


def codes(dtype: str) -> np.ndarray:
    """Return every number of a format of at most 16 bits, as float64."""
    wanted = dtypes.get(dtype)
    bits = np.arange(2**wanted.bits, dtype=np.uint32).astype(np.uint8 if wanted.bits <= 8 else np.uint16)
    # Among the codes are signalling NaNs.
    with np.errstate(invalid="ignore"):
        return bits.view(wanted.numpy).astype(np.float64)


@pytest.mark.parametrize("dtype", NARROW)
def test_every_number_of_a_format_rounds_to_itself(dtype: str) -> None:
    numbers = codes(dtype)
    assert same(round_to_float(numbers, dtypes.get(dtype)), numbers).all()


@pytest.mark.parametrize("dtype", NARROW)
def test_between_neighbours_the_nearest_wins_and_ties_go_to_even(dtype: str) -> None:
    wanted = dtypes.get(dtype)
    numbers = np.unique(codes(dtype)[np.isfinite(codes(dtype))])
    low, high = numbers[:-1], numbers[1:]
    middle = (low + high) / 2
    assert (round_to_float(low + (high - low) * 0.49, wanted) == low).all()
    assert (round_to_float(low + (high - low) * 0.51, wanted) == high).all()
    tie = round_to_float(middle, wanted)
    # Of two neighbours one is an even multiple of the spacing.
    even = np.where((low / (high - low)) % 2 == 0, low, high)
    assert (tie == even).all()


@pytest.mark.parametrize("dtype", [*NARROW, "float32"])
def test_float32_values_round_as_ml_dtypes_rounds_them(dtype: str) -> None:
    rng = np.random.default_rng(7)
    spread = np.concatenate([rng.standard_normal(300) * 10.0**e for e in range(-46, 39)])
    x = np.concatenate([spread, [0.0, -0.0, np.inf, -np.inf]]).astype(np.float32)
    with np.errstate(all="ignore"):
        expected = x.astype(dtypes.get(dtype).numpy).astype(np.float64)
    assert same(round_to_float(x.astype(np.float64), dtypes.get(dtype)), expected).all()


def test_float64_is_not_rounded_through_float32() -> None:
    # Halfway between two bfloat16 numbers, and a little more that float32 drops.
    x = np.array([1 + 2.0**-8 + 2.0**-40])
    assert round_to_float(x, dtypes.get("bfloat16")) == 1 + 2.0**-7


@pytest.mark.parametrize(
    ("dtype", "beyond", "largest"),
    [
        ("float16", np.inf, 65504),
        ("float8_e5m2", np.inf, 57344),
        ("float8_e4m3fn", np.nan, 448),
        ("float8_e4m3fnuz", np.nan, 240),
        ("float4_e2m1fn", 6, 6),
        ("float64", np.inf, np.finfo(np.float64).max),
    ],
)
def test_overflow_and_saturation(dtype: str, beyond: float, largest: float) -> None:
    wanted = dtypes.get(dtype)
    x = np.array([np.inf, -np.inf, np.nan])
    assert same(round_to_float(x, wanted), np.array([beyond, -beyond, np.nan])).all()
    assert same(round_to_float(x, wanted, saturate=True), np.array([largest, -largest, np.nan])).all()
    if largest < 1e300:
        form = float_format(wanted)
        edge = largest + form.spacing(largest) / 2
        assert round_to_float(np.nextafter(edge, 0), wanted) == largest
        assert same(round_to_float(np.nextafter(edge, np.inf), wanted), np.array(beyond))


def test_the_format_without_minus_zero_has_none() -> None:
    assert not np.signbit(round_to_float(np.array(-0.0), dtypes.get("float8_e4m3fnuz")))
    assert np.signbit(round_to_float(np.array(-0.0), dtypes.get("float16")))
    assert not np.signbit(round_to_float(np.array(-1e-9), dtypes.get("float8_e4m3fnuz")))


@pytest.mark.parametrize("dtype", FLOATS)
def test_spacing_is_the_distance_to_the_next_number(dtype: str) -> None:
    form = float_format(dtypes.get(dtype))
    smallest = form.spacing(0.0)
    assert smallest == 2.0 ** (form.least_exponent - form.mantissa)
    assert form.spacing(2.0**form.least_exponent) == smallest
    assert form.spacing(-1.0) == 2.0**-form.mantissa
    assert form.spacing(1.999) == 2.0**-form.mantissa
    if dtype in ("float32", "float64"):
        numpys = np.array([0.0, 1.0, 3.5, 1e-40, 1e30], dtype)
        assert (form.spacing(numpys.astype(np.float64)) == np.spacing(numpys)).all()


def test_only_floating_dtypes_have_a_float_format_and_only_integers_a_range() -> None:
    with pytest.raises(SpecError, match="int8 is no floating dtype"):
        float_format(dtypes.get("int8"))
    with pytest.raises(SpecError, match="float16 is no integer dtype"):
        integer_range(dtypes.get("float16"))
    assert integer_range(dtypes.get("int4")) == (-8, 7)
    assert integer_range(dtypes.get("uint64")) == (0, 2**64 - 1)
    assert integer_range(dtypes.get("bool")) == (0, 1)


def rounded_by_hand(value: int, bits: int) -> int:
    """Round an integer to ``bits`` significant ones, ties to even."""
    size = abs(value).bit_length()
    step = 2 ** max(0, size - bits)
    return round(Fraction(value, step)) * step


@given(st.integers(-(2**63), 2**63 - 1))
def test_64_bit_integers_round_once(value: int) -> None:
    wide = integers_as_float64(np.array([value], np.int64))
    assert round_to_float(wide, dtypes.get("float32")) == rounded_by_hand(value, 24)
    assert round_to_float(wide, dtypes.get("bfloat16")) == rounded_by_hand(value, 8)


@given(st.integers(0, 2**64 - 1))
def test_unsigned_64_bit_integers_round_once(value: int) -> None:
    wide = integers_as_float64(np.array([value], np.uint64))
    assert round_to_float(wide, dtypes.get("float32")) == rounded_by_hand(value, 24)


def test_an_integer_that_float64_would_round_to_a_tie() -> None:
    # float64 drops the last 1 and leaves a tie of float32, which then goes to even: down.
    value = 2**60 + 2**36 + 1
    assert round_to_float(np.array([float(value)]), dtypes.get("float32")) == 2**60
    assert round_to_float(integers_as_float64(np.array([value])), dtypes.get("float32")) == 2**60 + 2**37
