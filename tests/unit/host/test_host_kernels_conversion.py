"""The host's astype, against torch where it converts as IEEE 754 does, and against Python's numbers."""

import math
from fractions import Fraction

import hosted
import numpy as np
import pytest
import torch
from hosted import LAYOUTS, laid_out, run
from running import values

from nbx_registry import dtypes
from nbx_registry.rounding import float_format

NARROW = ["float16", "bfloat16", "float8_e4m3fn", "float8_e5m2", "float4_e2m1fn"]


def to(x: np.ndarray, dtype: str, *, saturate: bool = False) -> np.ndarray:
    return run("astype", x, dtype=dtype, saturate=saturate)


@pytest.mark.parametrize("target", ["float16", "bfloat16", "float8_e4m3fn", "float8_e5m2"])
def test_float32_converts_as_in_torch(target: str) -> None:
    x = values((5, 999), "float32", 1, scale=30) * np.float32(2) ** np.random.default_rng(1).integers(-20, 3, (5, 999))
    expected = torch.from_numpy(x).to(getattr(torch, target)).double().numpy()
    np.testing.assert_array_equal(to(x, target).astype(np.float64), expected)


def nearest(number: Fraction, dtype: str) -> float:
    """Round an exact number to the nearest of a format's, ties to even, by arithmetic on fractions."""
    form = float_format(dtypes.get(dtype))
    exponent = max(math.floor(math.log2(abs(number))), form.least_exponent)
    unit = Fraction(2) ** (exponent - form.mantissa)
    return float(round(number / unit) * unit)


@pytest.mark.parametrize("target", NARROW)
def test_float64_is_rounded_once(target: str) -> None:
    # Just beside the midpoint of two neighbours, by less than float32 can tell.
    unit = Fraction(2) ** -float_format(dtypes.get(target)).mantissa
    numbers = [1 + unit / 2 + sign * Fraction(2) ** -40 for sign in (-1, 0, 1)]
    numbers += [1 + 3 * unit / 2 + sign * Fraction(2) ** -40 for sign in (-1, 0, 1)]
    numbers += [-number for number in numbers]
    found = to(np.array([float(n) for n in numbers]), target).astype(np.float64)
    np.testing.assert_array_equal(found, [nearest(n, target) for n in numbers])


@pytest.mark.parametrize("source", ["int64", "uint64", "int32"])
def test_large_integers_are_rounded_once_to_bfloat16(source: str) -> None:
    top = 30 if source == "int32" else 62
    # 257 / 256 is the midpoint of two bfloat16; the last bit is beyond float32, and for 2^62 beyond float64.
    numbers = [(257 << (top - 8)) + off for off in (-1, 0, 1)]
    found = to(np.array(numbers, source), "bfloat16").astype(np.float64)
    np.testing.assert_array_equal(found, [nearest(Fraction(n), "bfloat16") for n in numbers])


def test_overflow_is_the_formats_own() -> None:
    x = np.array([1e5, -1e5, 500.0, np.inf], np.float32)
    np.testing.assert_array_equal(to(x, "float16").astype(float), [np.inf, -np.inf, 500, np.inf])
    np.testing.assert_array_equal(to(x, "float8_e4m3fn").astype(float), [np.nan] * 4)
    np.testing.assert_array_equal(to(x, "float4_e2m1fn").astype(float), [6, -6, 6, 6])


@pytest.mark.parametrize("target", ["float16", "bfloat16", "float8_e4m3fn", "float8_e5m2", "float32"])
def test_saturation_clamps_infinities_too_and_keeps_nan(target: str) -> None:
    largest = float_format(dtypes.get(target)).largest
    x = np.array([np.inf, -np.inf, 1e300, -1e300, np.nan, 1.5])
    np.testing.assert_array_equal(
        to(x, target, saturate=True).astype(float), [largest, -largest, largest, -largest, np.nan, 1.5]
    )


def test_floats_are_truncated_to_integers_and_nan_is_zero() -> None:
    x = np.array([1.9, -1.9, 0.5, -0.5, np.nan, 2.0**31 - 128, -(2.0**31)], np.float32)
    np.testing.assert_array_equal(to(x, "int32"), [1, -1, 0, 0, 0, 2**31 - 128, -(2**31)])


@pytest.mark.parametrize("source", ["float64", "float32", "bfloat16"])
def test_floats_saturate_to_the_ends_of_an_integer_dtype(source: str) -> None:
    x = np.array([np.inf, -np.inf, 2.0**63, -(2.0**63), 1e30, np.nan, 100.0]).astype(dtypes.get(source).numpy)
    top, bottom = 2**63 - 1, -(2**63)
    assert to(x, "int64", saturate=True).tolist() == [top, bottom, top, bottom, top, 0, 100]
    assert to(x, "uint8", saturate=True).tolist() == [255, 0, 255, 0, 255, 0, 100]


def test_integers_wrap_or_saturate() -> None:
    x = np.array([300, -300, 127, -128, 5], np.int32)
    assert to(x, "int8").tolist() == [44, -44, 127, -128, 5]
    assert to(x, "int8", saturate=True).tolist() == [127, -128, 127, -128, 5]
    assert to(x, "uint8", saturate=True).tolist() == [255, 0, 127, 0, 5]
    assert to(np.array([2**64 - 1], np.uint64), "int16", saturate=True).tolist() == [2**15 - 1]


def test_four_bit_integers_convert_among_themselves() -> None:
    x = np.arange(-8, 8).astype(dtypes.get("int4").numpy)
    assert to(x, "uint4").astype(int).tolist() == [*range(8, 16), *range(8)]
    assert to(x, "uint4", saturate=True).astype(int).tolist() == [0] * 8 + list(range(8))


def test_bool_is_false_for_zeros_alone() -> None:
    x = np.array([0.0, -0.0, 1e-40, np.nan, -3])
    for dtype in ("float64", "float32", "bfloat16"):
        found = to(x.astype(dtypes.get(dtype).numpy), "bool")
        assert found.tolist() == [False, False, True, True, True]


def test_complex_numbers_saturate_by_part() -> None:
    x = np.array([np.inf - 2j, 1 + 1j], np.complex64)
    np.testing.assert_array_equal(to(x, "complex64", saturate=True), [np.finfo(np.float32).max - 2j, 1 + 1j])


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("target", ["float16", "int32", "bfloat16"])
def test_views(layout: str, target: str) -> None:
    x = laid_out(values((33, 65), "float64", 2, scale=100), layout)
    np.testing.assert_array_equal(to(x, target).view(np.uint8), to(x.copy(), target).view(np.uint8))


@pytest.mark.parametrize("source", dtypes.TABLE)
def test_every_pair_of_dtypes_converts_small_integers_exactly(source: str) -> None:
    numbers = np.array([0, 1, 2, 3])
    x = numbers.astype(dtypes.get(source).numpy)
    expected = [0, 1, 1, 1] if source == "bool" else [0, 1, 2, 3]
    for target in dtypes.TABLE:
        if source == "complex64" and target != source:
            continue
        for saturate in (False, True):
            found = to(x, target, saturate=saturate).astype(np.complex64).real.tolist()
            assert found == ([0, 1, 1, 1] if target == "bool" else expected), (target, saturate)


def test_more_than_a_block_is_converted() -> None:
    x = values((50_003,), "float64", 3)
    np.testing.assert_array_equal(to(x, "bfloat16").astype(np.float32), hosted.wide(x).bfloat16().float().numpy())


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize(
    ("source", "target", "saturate"),
    [
        ("float32", "bfloat16", False),
        ("float64", "float16", True),
        ("float32", "int8", True),
        ("float16", "float32", False),
    ],
)
def test_large_arrays_do_not_depend_on_threads(
    monkeypatch: pytest.MonkeyPatch, source: str, target: str, saturate: bool, layout: str
) -> None:
    x = laid_out(values((1100, 2003), source, 4, scale=300), layout)
    found = []
    for threads in ("1", "3"):
        monkeypatch.setenv("NBX_HOST_THREADS", threads)
        found.append(to(x, target, saturate=saturate).tobytes())
    assert found[0] == found[1]
    # Row by row: none of these is large.
    assert found[0] == b"".join(to(row, target, saturate=saturate).tobytes() for row in x)
