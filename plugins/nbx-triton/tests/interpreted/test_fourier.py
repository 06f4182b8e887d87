"""rfft, irfft, and their tables."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

ANY, ANY_INVERSE = "nbx-triton/rfft/products", "nbx-triton/irfft/products"
FORWARD, INVERSE = "nbx-triton/rfft/butterflies", "nbx-triton/irfft/butterflies"


def spectrum(normal: Callable, *shape: int) -> np.ndarray:
    """Draw frequencies whose imaginary parts at the ends are NaN: they do not count."""
    x = (normal("float32", *shape) + 1j * normal("float32", *shape)).astype(np.complex64)
    x.imag[..., :1] = np.nan
    return x


@pytest.mark.parametrize("length", [16, 64, 512, 4096])
def test_powers_of_two(check: Callable, normal: Callable, length: int) -> None:
    check(FORWARD, normal("float32", 3, length))
    x = spectrum(normal, 3, length // 2 + 1)
    x.imag[:, -1] = np.inf
    check(INVERSE, x, n=length)


def test_transforms_of_views(check: Callable, normal: Callable) -> None:
    for kernel in FORWARD, ANY:
        check(kernel, normal("float32", 5, 32, 2).transpose(2, 0, 1)[:, ::-1])
    for kernel in INVERSE, ANY_INVERSE:
        check(kernel, spectrum(normal, 5, 2, 34)[..., ::2], n=32)


@pytest.mark.parametrize("length", [1, 2, 3, 63, 130])
def test_any_length(check: Callable, normal: Callable, length: int) -> None:
    check(ANY, normal("float32", 17, length))
    x = spectrum(normal, 3, length // 2 + 1)
    if length % 2 == 0:
        x.imag[:, -1] = np.inf
    check(ANY_INVERSE, x, n=length)


@pytest.mark.parametrize("frequencies", [0, 17])
def test_frequencies_too_few_and_too_many(check: Callable, normal: Callable, frequencies: int) -> None:
    for kernel in INVERSE, ANY_INVERSE:
        check(kernel, spectrum(normal, 3, frequencies), n=64)


@pytest.mark.parametrize("n", [1, 2, 3, 8, 63, 130])
def test_tables(check: Callable, n: int) -> None:
    check("nbx-triton/rfft_basis/tables", n=n)
    check("nbx-triton/irfft_basis/tables", n=n)


def test_tables_are_within_what_is_said(run: Callable) -> None:
    n = 251
    place = np.outer(np.arange(n // 2 + 1), np.arange(n)) % n
    cosines, sines = run("nbx-triton/rfft_basis/tables", n=n)
    assert np.abs(cosines - np.cos(2 * np.pi * place / n)).max() < 1.2e-7
    assert np.abs(sines + np.sin(2 * np.pi * place / n)).max() < 1.2e-7
