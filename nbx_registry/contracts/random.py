"""Random numbers by stream: random_bits, uniform, normal. What comes out depends on seed, offset and shape alone.

A seed names a stream of 2^64 words of 32 bits, and an offset a place in it. Word n of a stream is word ``n mod 4`` of
block ``n div 4`` of Philox 4x32-10, whose counter words are the block's number, low half first, then 0 and 0, and whose
key words are the halves of the seed, low half first. Element i of a tensor, in row-major order, is made of word
``offset + i`` and of no other: drawing n numbers and then m more at ``offset + n`` is drawing n + m.
"""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from nbx_registry import dtypes
from nbx_registry.cost import Cost, default_cost
from nbx_registry.dtypes import DType
from nbx_registry.errors import SignatureError
from nbx_registry.infer import given_shape
from nbx_registry.op import op
from nbx_registry.signature import Signature
from nbx_registry.spec import TensorSpec

Array = np.ndarray[Any, np.dtype[Any]]

WORDS = 2**64
"""In a stream."""

SIGNIFICANT = {"float16": 11, "bfloat16": 8, "float32": 24, "float64": 24}
"""Bits of a word that make a uniform number: as many as the dtype has, float64 as many as float32."""

_MULTIPLIERS = np.uint64(0xD2511F53), np.uint64(0xCD9E8D57)
_KEY_STEPS = 0x9E3779B9, 0xBB67AE85
_LOW, _32 = np.uint64(0xFFFFFFFF), np.uint64(32)


def philox(counter: Array, key: tuple[int, int]) -> Array:
    """Return the block of four words of each counter: Philox 4x32-10.

    Parameters
    ----------
    counter : uint64 [4, *B]
        Four words of 32 bits.
    key : pair of integers
        Two words of 32 bits.

    Returns
    -------
    uint64 [4, *B]
        Four words of 32 bits.

    Notes
    -----
    J. K. Salmon, M. A. Moraes, R. O. Dror and D. E. Shaw, "Parallel random numbers: as easy as 1, 2, 3", 2011
    (Random123, ``philox4x32``, 10 rounds).
    """
    c0, c1, c2, c3 = counter
    k0, k1 = key
    for _ in range(10):
        first, second = c0 * _MULTIPLIERS[0], c2 * _MULTIPLIERS[1]
        c0, c1 = (second >> _32) ^ c1 ^ np.uint64(k0), second & _LOW
        c2, c3 = (first >> _32) ^ c3 ^ np.uint64(k1), first & _LOW
        k0, k1 = (k0 + _KEY_STEPS[0]) % 2**32, (k1 + _KEY_STEPS[1]) % 2**32
    return np.stack([c0, c1, c2, c3])


def words(shape: tuple[int, ...], seed: int, offset: int) -> Array:
    """Return the words of a stream that make a tensor, as uint64."""
    count = prod(shape)
    if not count:
        return np.zeros(shape, np.uint64)
    first, last = offset // 4, (offset + count - 1) // 4
    block = np.arange(last - first + 1, dtype=np.uint64) + np.uint64(first)
    zero = np.zeros_like(block)
    blocks = philox(np.stack([block & _LOW, block >> _32, zero, zero]), (seed % 2**32, seed // 2**32))
    return blocks.T.reshape(-1)[offset - 4 * first :][:count].reshape(shape)


def infer_stream(signature: Signature) -> TensorSpec:
    """Infer the shape from the attribute, and hold the place in the stream against its end."""
    attributes = signature.attributes
    shape, offset = given_shape(attributes["shape"]), attributes["offset"]
    if offset + prod(shape) > WORDS:
        raise SignatureError(
            f"offset={offset} and {prod(shape)} elements go beyond the 2**64 words of a stream; take another seed",
            code="ATTRIBUTE",
        )
    dtype: DType = attributes.get("dtype") or dtypes.get("uint32")
    if dtype.name not in ("uint32", *SIGNIFICANT):
        raise SignatureError(
            f"{signature.op.name} in {dtype.name}: numbers are drawn in {', '.join(SIGNIFICANT)}; convert with astype",
            code="DTYPE",
        )
    return TensorSpec(dtype, shape)


def cost_stream(signature: Signature) -> Cost:
    """Count a word as 25 operations, 10 rounds of 10 for four; a number made of it as 2 more, or 20 for normal.

    At the least a round is 6, without its key, which is that of all blocks; and a normal number 3 more than its word.
    """
    size = signature.outputs[0].size
    each, least = {"random_bits": (25, 15), "uniform": (27, 17), "normal": (45, 18)}[signature.op.name]
    return default_cost(signature, flops=each * size, least_flops=least * size)


@op(
    "random_bits@1(*, shape: int[], seed: int, offset: int = 0) -> uint32[*S]",
    require=("seed >= 0", "offset >= 0"),
    infer=infer_stream,
    cost=cost_stream,
)
def random_bits(*, shape: tuple[int, ...], seed: int, offset: int) -> Array:
    """Draw words of 32 random bits from the stream of a seed.

    Parameters
    ----------
    shape : integers
        One integer is a tensor of rank 1.
    seed : integer, 0 to 2^64 - 1
        Names the stream.
    offset : integer, 0 to 2^64 - 1
        The word that the first element is.

    Returns
    -------
    uint32, ``shape``
        Element i, in row-major order, is word ``(offset + i) mod 4`` of block ``(offset + i) div 4`` of Philox 4x32-10:
        counter words the block's number, low half first, then 0, 0; key words the halves of the seed, low half first.
        The same bits on every backend. On ``device=``, the host unless named.

    Raises
    ------
    SignatureError
        For a seed or an offset below 0 or of more than 64 bits; for elements past the stream's last word.

    Notes
    -----
    J. K. Salmon, M. A. Moraes, R. O. Dror and D. E. Shaw, "Parallel random numbers: as easy as 1, 2, 3", 2011. A round
    is counted as 10 operations.
    """
    return words(shape, seed, offset)


@op(
    "uniform@1(*, shape: int[], seed: int, offset: int = 0, dtype: dtype = 'float32') -> F[*S]",
    require=("seed >= 0", "offset >= 0"),
    infer=infer_stream,
    cost=cost_stream,
    exact=True,
)
def uniform(*, shape: tuple[int, ...], seed: int, offset: int, dtype: DType) -> Array:
    """Draw numbers from 0 to below 1, each as likely as every other, from the stream of a seed.

    Parameters
    ----------
    shape, seed, offset
        As `random_bits` has them.
    dtype : float32, float16, bfloat16 or float64

    Returns
    -------
    ``dtype``, ``shape``
        ``(word >> 8) 2^-24`` in float32, and the same number in float64. In float16 ``(word >> 21) 2^-11`` and in
        bfloat16 ``(word >> 24) 2^-8``: as many bits as the dtype has, the float32 number cut off and not rounded, so
        that none is 1. Exact: the same bits on every backend. On ``device=``, the host unless named.

    Raises
    ------
    SignatureError
        As `random_bits` does, and for another dtype.

    Notes
    -----
    Words by Philox 4x32-10, see `random_bits`; what is made of them is this project's choice, and `torch.rand`'s in its
    number of bits.
    """
    bits = SIGNIFICANT[dtype.name]
    return (words(shape, seed, offset) >> np.uint64(32 - bits)) * 2.0**-bits


@op(
    "normal@1(*, shape: int[], seed: int, offset: int = 0, dtype: dtype = 'float32') -> F[*S]",
    require=("seed >= 0", "offset >= 0"),
    infer=infer_stream,
    cost=cost_stream,
    accumulation="8",
)
def normal(*, shape: tuple[int, ...], seed: int, offset: int, dtype: DType) -> Array:
    """Draw numbers of the standard normal distribution from the stream of a seed.

    Parameters
    ----------
    shape, seed, offset
        As `random_bits` has them.
    dtype : float32, float16, bfloat16 or float64

    Returns
    -------
    ``dtype``, ``shape``
        ``q((word + 1/2) 2^-32)``, where q is the inverse of the standard normal distribution function: from -6.34 to
        6.34, never 0, symmetric about it. float32 numbers, those nearest to 0 too, are within 8 roundings; narrower
        ones are computed in float32 and rounded once; float64 ones are computed in float64 from the same 32 bits. On
        ``device=``, the host unless named.

    Raises
    ------
    SignatureError
        As `random_bits` does, and for another dtype.

    Notes
    -----
    Words by Philox 4x32-10, see `random_bits`. By inversion an element takes one word, as `uniform` does, and grows
    with it; the reference is M. J. Wichura, "Algorithm AS 241: the percentage points of the normal distribution", 1988,
    as Python's `statistics.NormalDist` has it.
    """
    from statistics import NormalDist  # milliseconds to import: not needed to register an op

    quantile = NormalDist().inv_cdf
    drawn = words(shape, seed, offset)
    return np.array([quantile((word + 0.5) * 2.0**-32) for word in drawn.ravel().tolist()]).reshape(shape)
