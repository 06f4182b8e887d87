"""Fourier transforms of real signals: rfft_basis, irfft_basis, rfft, irfft."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from nbx_registry.cost import Cost, default_cost, distinct_elements
from nbx_registry.op import op
from nbx_registry.signature import Signature

Array = np.ndarray[Any, np.dtype[Any]]

LONGEST = 2**31
"""Up to this length k j, which is below n^2, is an integer of 64 bits."""


# The basis ------------------------------------------------------------------------------------------------------------


def circle(n: int) -> tuple[Array, Array]:
    """Return cosine and sine of ``2 pi m / n`` for m from 0 to n - 1, float64.

    The quarter that m lies in is found in integers, so that zeros and ones are exact.
    """
    quarter, rest = np.divmod(4 * np.arange(n, dtype=np.int64), n)
    angle = np.pi / 2 * (rest / n)
    c, s = np.cos(angle), np.sin(angle)
    return np.choose(quarter, (c, -s, -c, s)), np.choose(quarter, (s, c, -s, -c))


def basis(n: int) -> tuple[Array, Array]:
    """Return ``cos(2 pi k j / n)`` and ``-sin(2 pi k j / n)`` as tables [n div 2 + 1, n] over k and j."""
    place = np.outer(np.arange(n // 2 + 1, dtype=np.int64), np.arange(n, dtype=np.int64)) % n
    c, s = circle(n)
    return c[place], 0.0 - s[place]


def weights(n: int) -> Array:
    """Return how often each of the n div 2 + 1 frequencies counts in the inverse: twice, but for those at the ends."""
    found = np.full(n // 2 + 1, 2.0)
    found[0] = 1
    if n % 2 == 0:
        found[-1] = 1
    return found


def magnitude_rfft_basis(signature: Signature, *, n: int) -> tuple[Array, Array]:
    """Return what cosines and sines are off by a few roundings of: 1."""
    ones = np.ones((n // 2 + 1, n))
    return ones, ones


@op(
    "rfft_basis@1(*, n: int) -> (C: float32[N // 2 + 1, N], S: float32[N // 2 + 1, N])",
    where={"N": "n"},
    require=(f"n >= 1 and n <= {LONGEST}",),
    flops="C.size + S.size",
    least_flops="N // 8",
    accumulation="8",
    magnitude=magnitude_rfft_basis,
)
def rfft_basis(*, n: int) -> tuple[Array, Array]:
    """Write the tables of a transform: cosines and negative sines, applied as ``frames @ table.T``.

    ``C[k, j] = cos(2 pi k j / n)``, ``S[k, j] = -sin(2 pi k j / n)``: real and imaginary part of what `rfft` sums with.

    Parameters
    ----------
    n : int
        The length of a frame, at least 1, odd or even.

    Returns
    -------
    C, S : float32 [n div 2 + 1, n]
        Within 1e-6. That takes k j modulo n in 64-bit integers before there is an angle: without it the error is 8e-4
        at n = 4096.

    Raises
    ------
    SignatureError
        For n below 1, and for n above 2^31, where k j would leave 64 bits.

    Notes
    -----
    ``flops`` counts one operation a cosine or sine, the least those of an eighth of the circle: the others repeat them.
    """
    return basis(n)


def magnitude_irfft_basis(signature: Signature, *, n: int) -> tuple[Array, Array]:
    """Return what the entries are off by a few roundings of: their weights over n."""
    size = np.repeat(weights(n)[:, None] / n, n, axis=1)
    return size, size


@op(
    "irfft_basis@1(*, n: int) -> (C: float32[N // 2 + 1, N], S: float32[N // 2 + 1, N])",
    where={"N": "n"},
    require=(f"n >= 1 and n <= {LONGEST}",),
    flops="2 * (C.size + S.size)",
    least_flops="N // 8",
    accumulation="8",
    magnitude=magnitude_irfft_basis,
)
def irfft_basis(*, n: int) -> tuple[Array, Array]:
    """Write the tables of an inverse transform, applied as ``re @ C + im @ S``.

    ``C[k, j] = w cos(2 pi k j / n) / n``, ``S[k, j] = -w sin(2 pi k j / n) / n``: w is 1 at k = 0 and, for an even n,
    at k = n / 2, else 2.

    Parameters
    ----------
    n : int
        The length of a frame, at least 1, odd or even.

    Returns
    -------
    C, S : float32 [n div 2 + 1, n]
        Within 1e-6 w / n, with k j taken modulo n in 64-bit integers. The rows of S with w = 1 are exactly 0: their
        imaginary parts are ignored.

    Raises
    ------
    SignatureError
        For n below 1, and for n above 2^31, where k j would leave 64 bits.

    Notes
    -----
    ``flops`` counts one operation a cosine or sine, and one for its weight; the least as `rfft_basis` has it.
    """
    c, s = basis(n)
    scale = weights(n)[:, None] / n
    return scale * c, scale * s


# The transforms -------------------------------------------------------------------------------------------------------


def butterflies(n: int) -> int:
    """Return the operations of a real transform by butterflies, ``5/2 n log2 n``, the logarithm rounded up."""
    return 5 * n * (n - 1).bit_length() // 2


def growth(n: int) -> float:
    """Return how many roundings of the sum of magnitudes stand behind an element: twice ``log2 2n``.

    That is what butterflies make, and what sums in parts stay below: their errors seldom point one way. A bound that
    grows with n would let tables pass whose angles were not reduced.
    """
    return 2 * np.log2(2.0 * n)


def cost_rfft(signature: Signature) -> Cost:
    """Count butterflies, in real operations; at the least each row's elements are added up once."""
    (x,) = signature.operands
    n, rows = signature.axes["N"], prod(signature.axes["*B"])
    least = x.distinct - x.distinct // n if x.strides[-1] else 0
    return default_cost(signature, flops=rows * butterflies(n), least_flops=least, dtype=x.dtype)


def magnitude_rfft(signature: Signature, x: Array) -> Array:
    """Return the sum of the magnitudes, as often as roundings of it stand behind an element."""
    # The bound of a complex number has each of its parts twice.
    size = np.sum(np.abs(x), axis=-1, keepdims=True) * growth(x.shape[-1]) / 2
    return np.repeat(size, x.shape[-1] // 2 + 1, axis=-1)


@op(
    "rfft@1(x: float32[*B, N]) -> complex64[*B, N // 2 + 1]",
    require=("N >= 1", f"N <= {LONGEST}"),
    cost=cost_rfft,
    accumulation="2",
    magnitude=magnitude_rfft,
)
def rfft(x: Array) -> Array:
    """Transform the last axis of a real tensor to its frequencies, the non-negative ones.

    ``out[k] = sum over j of x[j] exp(-2 pi i k j / N)`` for k from 0 to N div 2.

    Parameters
    ----------
    x : float32 [*B, N]
        Any N from 1 on. Narrower dtypes are converted first (`astype`), which is exact; the transform of float64 would
        need a complex dtype that the table lacks.

    Returns
    -------
    complex64 [*B, N div 2 + 1]
        Computed in float32. An error is a few roundings, 2 log2(2N), of the sum of the magnitudes. What a row
        gives that is not finite is a kernel's own; other rows are as they were.

    Raises
    ------
    SignatureError
        For another dtype, a tensor without axes, N = 0.

    Notes
    -----
    Python array API standard 2024.12, ``fft.rfft`` with ``norm="backward"``. ``flops`` counts butterflies.
    """
    c, s = basis(x.shape[-1])
    return x @ c.T + 1j * (x @ s.T)


def cost_irfft(signature: Signature) -> Cost:
    """Count butterflies; at the least each frequency that counts is added once, without what is ignored of it."""
    (x,) = signature.operands
    (out,) = signature.outputs
    n, rows = signature.attributes["n"], prod(signature.axes["*B"])
    used = min(signature.axes["K"], n // 2 + 1)
    # The imaginary parts that count lie between 0 and half of n.
    between = min(used, (n + 1) // 2) - 1 if used else 0
    first, real, imaginary = (distinct_elements(x, (*x.shape[:-1], k)) for k in (min(used, 1), used, between))
    return default_cost(
        signature,
        flops=rows * butterflies(n),
        least_flops=real - first,
        least_bytes=out.dtype.nbytes(real + imaginary) + out.nbytes,
    )


def frequencies(x: Array, n: int) -> Array:
    """Return x[*B, K] with as many frequencies as n takes: cut off, or zeros added."""
    found = np.zeros((*x.shape[:-1], n // 2 + 1), x.dtype)
    used = min(x.shape[-1], n // 2 + 1)
    found[..., :used] = x[..., :used]
    return found


def magnitude_irfft(signature: Signature, x: Array, *, n: int) -> Array:
    """Return the weighted sum of the magnitudes, as often as roundings of it stand behind an element."""
    x = frequencies(x, n)
    sines = np.where(weights(n) == 2, np.abs(np.imag(x)), 0)
    size = np.sum(weights(n) * (np.abs(np.real(x)) + sines), axis=-1, keepdims=True) / n * growth(n)
    return np.repeat(size, n, axis=-1)


@op(
    "irfft@1(x: complex64[*B, K], *, n: int) -> float32[*B, N]",
    where={"N": "n"},
    require=(f"n >= 1 and n <= {LONGEST}",),
    cost=cost_irfft,
    accumulation="2",
    magnitude=magnitude_irfft,
)
def irfft(x: Array, *, n: int) -> Array:
    """Transform non-negative frequencies along the last axis back to a real signal of length ``n``.

    ``out[j] = 1/n sum over k of w (re[k] cos(2 pi k j / n) - im[k] sin(2 pi k j / n))`` for k from 0 to n div 2: w is 1
    at k = 0 and, for an even n, at k = n / 2, else 2.

    Parameters
    ----------
    x : complex64 [*B, K]
        Of more than n div 2 + 1 frequencies the last are left out; missing ones are 0. The imaginary parts at k = 0
        and, for an even n, at k = n / 2 are ignored, NaN and all.
    n : int
        At least 1, odd or even.

    Returns
    -------
    float32 [*B, n]
        Computed in float32. An error is a few roundings, 2 log2(2n), of the weighted mean of the magnitudes. What a
        row gives that is not finite where it counts is a kernel's own; other rows are as they were.

    Raises
    ------
    SignatureError
        For another dtype, a tensor without axes, n below 1.

    Notes
    -----
    Python array API standard 2024.12, ``fft.irfft`` with ``norm="backward"``. ``flops`` counts butterflies.
    """
    c, s = basis(n)
    x = frequencies(x, n)
    sines = np.where(weights(n) == 2, np.imag(x), 0)
    return (weights(n) * np.real(x) @ c + weights(n) * sines @ s) / n
