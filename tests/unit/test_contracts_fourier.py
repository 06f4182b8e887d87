"""Contracts of Fourier transforms: tables, lengths, what is ignored, refusals, and bounds that catch bad angles."""

from __future__ import annotations

import numpy as np
import pytest
from running import oracle, outputs, sign, values

from nbx_registry.contracts.fourier import LONGEST, circle
from nbx_registry.errors import SignatureError

LENGTHS = [1, 2, 3, 8, 63, 129, 400]


@pytest.mark.parametrize("op", ["rfft_basis", "irfft_basis"])
def test_tables_need_a_length_and_nothing_else(op: str) -> None:
    assert outputs(op, n=400) == "float32[201, 400], float32[201, 400]"
    assert outputs(op, n=63) == "float32[32, 63], float32[32, 63]"
    for n in (0, -4, LONGEST + 1):
        with pytest.raises(SignatureError, match=f"n = {n}"):
            sign(op, n=n)


def test_transforms_have_the_lengths_they_are_asked_for() -> None:
    assert outputs("rfft", "float32[2, 3, 400]") == "complex64[2, 3, 201]"
    assert outputs("rfft", "float32[63]") == "complex64[32]"
    assert outputs("irfft", "complex64[2, 3, 201]", n=400) == "float32[2, 3, 400]"
    assert outputs("irfft", "complex64[5]", n=1000) == "float32[1000]"


@pytest.mark.parametrize(
    ("op", "tensor", "attributes", "words"),
    [
        ("rfft", "float64[2, 8]", {}, "x is float64, but must be float32"),
        ("rfft", "float16[2, 8]", {}, "x is float16, but must be float32"),
        ("rfft", "complex64[2, 8]", {}, "x is complex64, but must be float32"),
        ("rfft", "float32[2, 0]", {}, r"N >= 1 \(N = 0\)"),
        ("rfft", "float32[]", {}, "rank at least 1"),
        ("irfft", "float32[2, 5]", {"n": 8}, "x is float32, but must be complex64"),
        ("irfft", "complex64[2, 5]", {"n": 0}, "n = 0"),
        ("irfft", "complex64[2, 5]", {}, "n"),
    ],
)
def test_transforms_refuse(op: str, tensor: str, attributes: dict[str, int], words: str) -> None:
    with pytest.raises(SignatureError, match=words):
        sign(op, tensor, **attributes)


@pytest.mark.parametrize("n", [1, 2, 4, 6, 12, 63, 4096])
def test_the_circle_is_exact_at_its_quarters(n: int) -> None:
    c, s = circle(n)
    for quarter, expected in enumerate([(1, 0), (0, 1), (-1, 0), (0, -1)]):
        if quarter * n % 4 == 0:
            assert (c[quarter * n // 4 % n], s[quarter * n // 4 % n]) == expected
    assert c**2 + s**2 == pytest.approx(np.ones(n), rel=1e-15)


@pytest.mark.parametrize("n", LENGTHS)
def test_tables_are_the_transform(n: int) -> None:
    x = values((3, n), "float32", 1)
    c, s = oracle("rfft_basis", n=n)
    spectrum = oracle("rfft", x)
    assert spectrum == pytest.approx(x @ c.T + 1j * (x @ s.T), rel=1e-12, abs=1e-12)
    c, s = oracle("irfft_basis", n=n)
    assert spectrum.real @ c + spectrum.imag @ s == pytest.approx(x.astype(float), rel=1e-12, abs=1e-12)
    assert not s[0].any()
    assert n % 2 or not s[-1].any()


@pytest.mark.parametrize("n", LENGTHS)
def test_there_and_back(n: int) -> None:
    x = values((3, n), "float32", 2)
    spectrum = oracle("rfft", x).astype(np.complex64)
    assert oracle("irfft", spectrum, n=n) == pytest.approx(x.astype(float), rel=1e-5, abs=1e-5)


def test_imaginary_parts_at_the_ends_are_ignored() -> None:
    x = values((2, 5), "complex64", 3)
    spoilt = x.copy()
    spoilt.imag[:, 0], spoilt.imag[:, 4] = np.nan, np.inf
    plain = x.copy()
    plain.imag[:, [0, 4]] = 0
    assert oracle("irfft", spoilt, n=8).tolist() == oracle("irfft", plain, n=8).tolist()
    assert not np.isfinite(oracle("irfft", spoilt, n=9)).any(), "an odd length has no frequency of half its own"


def test_frequencies_are_cut_off_or_taken_for_zero() -> None:
    x = values((2, 9), "complex64", 4)
    assert oracle("irfft", x, n=6).tolist() == oracle("irfft", x[:, :4], n=6).tolist()
    longer = np.pad(x, ((0, 0), (0, 4)))
    assert oracle("irfft", x, n=25).tolist() == oracle("irfft", longer, n=25).tolist()
    assert oracle("irfft", x[:, :0], n=5).tolist() == [[0.0] * 5] * 2


def unreduced(n: int) -> np.ndarray:
    """Return cosines whose float32 angle was never reduced, as a careless kernel makes them."""
    k, j = np.arange(n // 2 + 1, dtype=np.float32)[:, None], np.arange(n, dtype=np.float32)
    return np.cos(np.float32(2 * np.pi) * k * j / np.float32(n))


def test_bounds_of_tables_are_tighter_than_angles_that_are_not_reduced() -> None:
    n = 4096
    signature = sign("rfft_basis", n=n)
    reference = signature.op.run_oracle(signature, [])
    bounds = signature.op.bound(signature, [], reference)
    assert max(bound.max() for bound in bounds) < 1e-6
    assert min(bound.min() for bound in bounds) > 5e-7
    assert (np.abs(unreduced(n) - reference[0]) > bounds[0]).mean() > 0.5
    signature = sign("irfft_basis", n=400)
    reference = signature.op.run_oracle(signature, [])
    bounds = signature.op.bound(signature, [], reference)
    assert bounds[0][1:-1].max() < 2e-6 / 400


@pytest.mark.parametrize("n", [4096, 6000])
def test_the_bound_of_the_transform_catches_them_too(n: int) -> None:
    x = values((2, n), "float32", 5)
    signature = sign("rfft", x)
    reference = signature.op.run_oracle(signature, [x])
    (bound,) = signature.op.bound(signature, [x], reference)
    careless = x @ unreduced(n).T
    assert (np.abs(careless - reference[0].real) > bound).any()
    # Products with the right tables, in float32, are far within it.
    tables = [table.astype(np.float32) for table in oracle("rfft_basis", n=n)]
    honest = x @ tables[0].T + 1j * (x @ tables[1].T)
    assert np.max(np.abs(honest - reference[0]) / bound) < 0.25


def test_costs() -> None:
    signature = sign("rfft", "float32[3, 1024]")
    cost = signature.op.cost(signature)
    assert (cost.flops, cost.least_flops) == (3 * 5 * 1024 * 10 // 2, 3 * 1023)
    assert cost.dtype.name == "float32", "real operations, whatever holds the result"
    assert (cost.bytes_read, cost.bytes_written) == (4 * 3 * 1024, 8 * 3 * 513)
    signature = sign("irfft", "complex64[3, 600]", n=1000)
    cost = signature.op.cost(signature)
    assert (cost.flops, cost.least_flops) == (3 * 5 * 1000 * 10 // 2, 3 * 500)
    # Of 600 frequencies 501 count, of the first and the last one the real parts.
    assert cost.least_bytes == 4 * 3 * (501 + 499) + 4 * 3 * 1000
    for tensor, n, numbers in (
        ("complex64[600]", 999, 500 + 499),
        ("complex64[400]", 1000, 400 + 399),
        ("complex64[5]", 1, 1),
        ("complex64[5]", 2, 2),
        ("complex64[0]", 9, 0),
        ("complex64[5, 4];strides=[0, 1]", 6, 4 + 2),
    ):
        signature = sign("irfft", tensor, n=n)
        found = signature.op.cost(signature)
        assert found.least_bytes == 4 * numbers + found.bytes_written
    signature = sign("rfft_basis", n=400)
    cost = signature.op.cost(signature)
    assert (cost.flops, cost.bytes_read, cost.bytes_written) == (2 * 201 * 400, 0, 2 * 4 * 201 * 400)
    assert (cost.least_flops, cost.least_bytes) == (400 // 8, cost.bytes_written)
