"""Random numbers, against the published vectors of Philox 4x32-10, Python's integers and fractions, and mpmath."""

from __future__ import annotations

from fractions import Fraction

import mpmath
import numpy as np
import torch
from independent import Comparer, independent

from nbx_registry.contracts.random import philox

VECTORS = [
    ("00000000 00000000 00000000 00000000", "00000000 00000000", "6627e8d5 e169c58d bc57ac4c 9b00dbd8"),
    ("ffffffff ffffffff ffffffff ffffffff", "ffffffff ffffffff", "408f276d 41c83b0e a20bc7c6 6d5451fd"),
    ("243f6a88 85a308d3 13198a2e 03707344", "a4093822 299f31d0", "d16cfe09 94fdcceb 5001e420 24126ea1"),
]
"""Counter, key and block of ``philox4x32 10`` in Random123's kat_vectors."""

PLACES = [
    (0, 0),
    (1, 3),
    (2**32 - 1, 4),
    (2**32, 2**34 - 5),
    (2**64 - 1, 2**63 + 1),
    (12345678901234567890, 2**64 - 129),
]
"""Seeds and offsets."""


def numbers(text: str) -> list[int]:
    return [int(word, 16) for word in text.split()]


def block(counter: list[int], key: list[int]) -> list[int]:
    """Return a block by Python's integers, as the paper describes a round."""
    c, k = list(counter), list(key)
    for turn in range(10):
        if turn:
            k = [(k[0] + 0x9E3779B9) % 2**32, (k[1] + 0xBB67AE85) % 2**32]
        high0, low0 = divmod(0xD2511F53 * c[0], 2**32)
        high1, low1 = divmod(0xCD9E8D57 * c[2], 2**32)
        c = [high1 ^ c[1] ^ k[0], low1, high0 ^ c[3] ^ k[1], low0]
    return c


def word(seed: int, place: int) -> int:
    number = place // 4
    return block([number % 2**32, number // 2**32, 0, 0], [seed % 2**32, seed // 2**32])[place % 4]


@independent("random_bits@1")
def words_of_a_stream(compare: Comparer) -> None:
    for counter, key, wanted in VECTORS:
        ours = philox(np.array(numbers(counter), np.uint64)[:, None], tuple(numbers(key)))
        compare(ours[:, 0], np.array(numbers(wanted), np.uint64), "Random123", rtol=0)
        assert block(numbers(counter), numbers(key)) == numbers(wanted)
    compare(
        compare.oracle("random_bits", shape=4, seed=0), np.array(numbers(VECTORS[0][2]), np.uint32), "Random123", rtol=0
    )
    for seed, offset in PLACES:
        ours = compare.oracle("random_bits", shape=(3, 43), seed=seed, offset=offset)
        theirs = [word(seed, offset + i) for i in range(129)]
        compare(ours, np.array(theirs, np.uint32).reshape(3, 43), "Python", rtol=0)


@independent("uniform@1")
def uniform_numbers(compare: Comparer) -> None:
    for dtype, bits in [("float32", 24), ("float64", 24), ("float16", 11), ("bfloat16", 8)]:
        for seed, offset in PLACES:
            ours = compare.oracle("uniform", shape=63, seed=seed, offset=offset, dtype=dtype)
            theirs = [Fraction(word(seed, offset + i) >> (32 - bits), 2**bits) for i in range(63)]
            compare(ours, np.array([float(v) for v in theirs]), "Python", rtol=0)
            if dtype != "float64":
                # Every one is a number of the dtype.
                held = torch.from_numpy(ours).to(getattr(torch, dtype)).double()
                compare(ours, held, "torch", rtol=0)


@independent("normal@1")
def normal_numbers(compare: Comparer) -> None:
    for seed, offset in PLACES:
        ours = compare.oracle("normal", shape=63, seed=seed, offset=offset)
        theirs = []
        with mpmath.workdps(40):
            for i in range(63):
                p = (mpmath.mpf(word(seed, offset + i)) + 0.5) / 2**32
                theirs.append(float(mpmath.sqrt(2) * mpmath.erfinv(2 * p - 1)))
        compare(ours, np.array(theirs), "mpmath")
        drawn = torch.tensor([word(seed, offset + i) for i in range(63)], dtype=torch.float64)
        compare(ours, torch.special.ndtri((drawn + 0.5) / 2**32), "torch")
