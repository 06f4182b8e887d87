"""Transforms of a few numbers that one thread holds: each number is a tensor of lanes, and a transform's are a tuple.

Complex numbers go by halves, decimating in frequency (J. W. Cooley and J. W. Tukey, "An Algorithm for the Machine
Calculation of Complex Fourier Series", 1965); of real ones the sums give the even frequencies, and the differences,
each pair of them one complex number, the odd ones (P. Duhamel, "Implementation of Split-Radix FFT Algorithms", 1986).
Fused multiply-adds are where they are written.
"""

from __future__ import annotations

import math

import triton
import triton.language as tl

from nbx_triton.kernels.circle import circle


@triton.constexpr_function
def _cosine(t, n):
    return math.cos(2 * math.pi * t / n)


@triton.constexpr_function
def _sine(t, n):
    return math.sin(2 * math.pi * t / n)


@triton.constexpr_function
def _reverse(k, bits):
    return sum((k >> bit & 1) << (bits - 1 - bit) for bit in range(bits))


@triton.jit
def product(re, im, c, s):
    """Return (re + i im)(c - i s)."""
    return tl.fma(re, c, im * s), tl.fma(im, c, -(re * s))


@triton.jit
def rotate(re, im, T: tl.constexpr, BITS: tl.constexpr):
    """Return (re + i im) times e^(-2 pi i T / 2^BITS), for T below half of 2^BITS."""
    if 4 * T == 2**BITS:
        re, im = im, -re
    elif 8 * T == 2**BITS:
        re, im = (re + im) * 0.7071067811865476, (im - re) * 0.7071067811865476
    elif 8 * T == 3 * 2**BITS:
        re, im = (im - re) * 0.7071067811865476, (im + re) * -0.7071067811865476
    elif T > 0:
        re, im = product(re, im, _cosine(T, 2**BITS), _sine(T, 2**BITS))
    return re, im


@triton.jit
def powers(place, BITS: tl.constexpr, COUNT: tl.constexpr):
    """Return cosines and sines of 1 to COUNT (up to 63) times ``place`` / 2^BITS of the circle.

    Of up to 7 they are products of the first; beyond, of those of 8 and its multiples, computed at 8 times the place:
    so errors do not add up. Up to 8 times the place must be on the circle.
    """
    c, s = circle(place, 2**BITS, 1.0 / 2**BITS)
    cosines = (c,)
    sines = (s,)
    if COUNT >= 8:
        c, s = circle(place * 8, 2**BITS, 1.0 / 2**BITS)
        high_c = (c,)
        high_s = (s,)
        for k in tl.static_range(2, COUNT // 8 + 1):
            c, s = _sum(high_c[k // 2 - 1], high_s[k // 2 - 1], high_c[k - k // 2 - 1], high_s[k - k // 2 - 1])
            high_c = high_c + (c,)  # noqa: RUF005 - the compiler unpacks no tuples
            high_s = high_s + (s,)  # noqa: RUF005
    for k in tl.static_range(2, COUNT + 1):
        if k < 8:
            c, s = _sum(cosines[k // 2 - 1], sines[k // 2 - 1], cosines[k - k // 2 - 1], sines[k - k // 2 - 1])
        elif k % 8 == 0:
            c, s = high_c[k // 8 - 1], high_s[k // 8 - 1]
        else:
            c, s = _sum(high_c[k // 8 - 1], high_s[k // 8 - 1], cosines[k % 8 - 1], sines[k % 8 - 1])
        cosines = cosines + (c,)  # noqa: RUF005
        sines = sines + (s,)  # noqa: RUF005
    return cosines, sines


@triton.jit
def _sum(c, s, c2, s2):
    """Return cosine and sine of the sum of two angles."""
    return tl.fma(c, c2, -(s * s2)), tl.fma(c, s2, s * c2)


@triton.jit
def transform(re, im, BITS: tl.constexpr):
    """Return the transform of 2^BITS complex numbers."""
    for level in tl.static_range(BITS):
        all_re = ()
        all_im = ()
        for block in tl.static_range(2**level):
            sum_re = ()
            sum_im = ()
            difference_re = ()
            difference_im = ()
            for t in tl.static_range(2 ** (BITS - 1 - level)):
                a_re = re[(block << (BITS - level)) + t]
                a_im = im[(block << (BITS - level)) + t]
                b_re = re[(block << (BITS - level)) + 2 ** (BITS - 1 - level) + t]
                b_im = im[(block << (BITS - level)) + 2 ** (BITS - 1 - level) + t]
                c_re, c_im = rotate(a_re - b_re, a_im - b_im, t, BITS - level)
                sum_re = sum_re + (a_re + b_re,)  # noqa: RUF005
                sum_im = sum_im + (a_im + b_im,)  # noqa: RUF005
                difference_re = difference_re + (c_re,)  # noqa: RUF005
                difference_im = difference_im + (c_im,)  # noqa: RUF005
            all_re = all_re + sum_re + difference_re
            all_im = all_im + sum_im + difference_im
        re = all_re
        im = all_im
    # The bits of a frequency come in reverse.
    found_re = ()
    found_im = ()
    for k in tl.static_range(2**BITS):
        found_re = found_re + (re[_reverse(k, BITS)],)  # noqa: RUF005
        found_im = found_im + (im[_reverse(k, BITS)],)  # noqa: RUF005
    return found_re, found_im


@triton.jit
def transform_back(re, im, BITS: tl.constexpr):
    """Return the inverse of `transform`, times 2^BITS."""
    # Exchanging real and imaginary parts turns the other way round.
    im, re = transform(im, re, BITS)
    return re, im


@triton.jit
def transform_real(x, BITS: tl.constexpr):
    """Return frequencies 0 to half of those of 2^BITS real numbers.

    Imaginary parts of the first and of the last one are no part of the result.
    """
    half: tl.constexpr = 2**BITS // 2
    if BITS == 1:
        re = (x[0] + x[1], x[0] - x[1])
        im = x
    else:
        sums = ()
        turned_re = ()
        turned_im = ()
        for t in tl.static_range(half):
            sums = sums + (x[t] + x[t + half],)  # noqa: RUF005
        for t in tl.static_range(half // 2):
            a, b = rotate(x[t] - x[t + half], x[t + half + half // 2] - x[t + half // 2], t, BITS)
            turned_re = turned_re + (a,)  # noqa: RUF005
            turned_im = turned_im + (b,)  # noqa: RUF005
        even_re, even_im = transform_real(sums, BITS - 1)
        odd_re, odd_im = transform(turned_re, turned_im, BITS - 2)
        re = ()
        im = ()
        for k in tl.static_range(half + 1):
            if k % 2 == 0:
                re = re + (even_re[k // 2],)  # noqa: RUF005
                im = im + (even_im[k // 2],)  # noqa: RUF005
            elif k % 4 == 1:
                re = re + (odd_re[k // 4],)  # noqa: RUF005
                im = im + (odd_im[k // 4],)  # noqa: RUF005
            else:
                re = re + (odd_re[(2 * half - k) // 4],)  # noqa: RUF005
                im = im + (-odd_im[(2 * half - k) // 4],)  # noqa: RUF005
    return re, im


@triton.jit
def transform_real_back(re, im, BITS: tl.constexpr):
    """Return 2^BITS times the real numbers whose frequencies, 0 to half, are given: the inverse of `transform_real`."""
    half: tl.constexpr = 2**BITS // 2
    if BITS == 1:
        x = (re[0] + re[1], re[0] - re[1])
    else:
        even_re = ()
        even_im = ()
        odd_re = ()
        odd_im = ()
        for k in tl.static_range(half // 2 + 1):
            even_re = even_re + (re[2 * k],)  # noqa: RUF005
            even_im = even_im + (im[2 * k],)  # noqa: RUF005
        for k in tl.static_range(half // 2):
            if 4 * k + 1 < half:
                odd_re = odd_re + (re[4 * k + 1],)  # noqa: RUF005
                odd_im = odd_im + (im[4 * k + 1],)  # noqa: RUF005
            else:
                odd_re = odd_re + (re[2 * half - 4 * k - 1],)  # noqa: RUF005
                odd_im = odd_im + (-im[2 * half - 4 * k - 1],)  # noqa: RUF005
        sums = transform_real_back(even_re, even_im, BITS - 1)
        odd_re, odd_im = transform_back(odd_re, odd_im, BITS - 2)
        first = ()
        second = ()
        for t in tl.static_range(half // 2):
            b, a = rotate(odd_im[t], odd_re[t], t, BITS)
            first = first + (a,)  # noqa: RUF005
            second = second + (-b,)  # noqa: RUF005
        differences = first + second
        low = ()
        high = ()
        for t in tl.static_range(half):
            low = low + (tl.fma(differences[t], 2.0, sums[t]),)  # noqa: RUF005
            high = high + (tl.fma(differences[t], -2.0, sums[t]),)  # noqa: RUF005
        x = low + high
    return x
