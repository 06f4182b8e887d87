"""Fourier transforms, against mpmath and torch in complex128 on the CPU."""

from __future__ import annotations

import itertools

import mpmath
import numpy as np
import torch
from independent import Comparer, independent
from running import values

LENGTHS = [1, 2, 3, 4, 9, 63, 129, 400, 1000]


def tables(n: int) -> tuple[np.ndarray, np.ndarray]:
    """Return cosines and negative sines by mpmath, of angles that were never reduced."""
    c, s = np.empty((2, n // 2 + 1, n))
    with mpmath.workdps(40):
        for k, j in itertools.product(range(n // 2 + 1), range(n)):
            turns = mpmath.mpf(2 * k * j) / n
            c[k, j], s[k, j] = mpmath.cospi(turns), -mpmath.sinpi(turns)
    return c, s


@independent("rfft_basis@1")
def tables_of_the_transform(compare: Comparer) -> None:
    for n in (1, 2, 3, 12, 63):
        for ours, theirs in zip(compare.oracle("rfft_basis", n=n), tables(n), strict=True):
            compare(ours, theirs, "mpmath", rtol=1e-14)
    # A few places of the longest tables, where the angle is largest.
    for n in (4096, 6000):
        c, s = compare.oracle("rfft_basis", n=n)
        with mpmath.workdps(40):
            for k, j in [(n // 2, n - 1), (n // 2 - 1, n - 3), (1234, 3001), (n // 4, n - 1)]:
                turns = mpmath.mpf(2 * k * j) / n
                compare(c[k, j], float(mpmath.cospi(turns)), "mpmath", rtol=1e-14)
                compare(s[k, j], float(-mpmath.sinpi(turns)), "mpmath", rtol=1e-14)


@independent("irfft_basis@1")
def tables_of_the_inverse(compare: Comparer) -> None:
    for n in (1, 2, 3, 12, 63):
        # Each row is the inverse transform of one frequency.
        unit = torch.eye(n // 2 + 1, dtype=torch.complex128)
        c, s = compare.oracle("irfft_basis", n=n)
        compare(c, torch.fft.irfft(unit, n), "torch", rtol=1e-13)
        compare(s, torch.fft.irfft(1j * unit, n), "torch", rtol=1e-13)


@independent("rfft@1")
def transforms(compare: Comparer) -> None:
    for n in LENGTHS:
        x = values((2, 3, n), "float32", 1)
        compare(
            compare.oracle("rfft", x), torch.fft.rfft(torch.from_numpy(x).double()), "torch", rtol=1e-10, atol=1e-11
        )


@independent("irfft@1")
def inverses(compare: Comparer) -> None:
    for n, count in itertools.product(LENGTHS, (1, 5, 32, 201)):
        x = values((2, 3, count), "complex64", 2)
        theirs = torch.fft.irfft(torch.from_numpy(x).to(torch.complex128), n)
        compare(compare.oracle("irfft", x, n=n), theirs, "torch", rtol=1e-10, atol=1e-12)
    x = values((2, 5), "complex64", 3)
    x.imag[:, 0], x.imag[:, 4] = np.nan, np.inf
    # NumPy, as torch does not say what it makes of imaginary parts that count for nothing.
    compare(compare.oracle("irfft", x, n=8), np.fft.irfft(x.astype(np.complex128), 8), "numpy", rtol=1e-12)
