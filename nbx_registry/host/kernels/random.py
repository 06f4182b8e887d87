"""Random numbers: Philox 4x32-10 over blocks of counters that stay in the cache, then a number of each word."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any

import numpy as np

from nbx_registry.contracts.random import SIGNIFICANT
from nbx_registry.dtypes import DType
from nbx_registry.host.kernels.blocks import Array
from nbx_registry.host.kernels.quantile import quantile
from nbx_registry.host.parallel import large, spread
from nbx_registry.launch import BindContext, Launch

COUNTERS = 16384
"""Of a block, four words each: the arrays that a round reads and writes fit a core's second-level cache."""

Maker = Callable[[Array, Array], None]
"""``(words, out)``: makes numbers of uint32 words, both along one axis."""

_MULTIPLIERS = np.array([[0xD2511F53], [0xCD9E8D57]], np.uint64)
_KEY_STEPS = np.array([0x9E3779B9, 0xBB67AE85], np.uint64)
# Arrays: NumPy takes them faster than its own scalars.
_LOW, _32 = np.array(0xFFFFFFFF, np.uint64), np.array(32, np.uint64)


def random_bits(context: BindContext) -> Launch:
    """Bind the words themselves."""
    return _bind(context, _copy)


def uniform(context: BindContext) -> Launch:
    """Bind the leading bits of each word, scaled."""
    (out,) = context.signature.outputs
    return _bind(context, _uniform(out.dtype))


def normal(context: BindContext) -> Launch:
    """Bind the quantile of each word."""
    (out,) = context.signature.outputs
    return _bind(context, quantile(out.dtype))


def _bind(context: BindContext, make: Maker) -> Launch:
    (spec,) = context.signature.outputs
    seed, offset = context.signature.attributes["seed"], context.signature.attributes["offset"]
    heavy = large(spec.nbytes)

    def run(out: Array) -> None:
        # Elements are numbered row by row; where a reshape would copy, the copy is what is written.
        flat = out.reshape(-1)

        def part(start: int, stop: int) -> None:
            with np.errstate(all="ignore"):
                _fill(flat[start:stop], seed, offset + start, make)

        if heavy:
            spread(part, flat.size, flat.nbytes)
        else:
            part(0, flat.size)
        if not np.may_share_memory(flat, out):
            np.copyto(out, np.reshape(flat, out.shape))

    return Launch(function=run, args=("out",))


def _fill(out: Array, seed: int, offset: int, make: Maker) -> None:
    """Write numbers of the words from ``offset`` on."""
    step = 4 * COUNTERS
    place = 0
    while place < len(out):
        block, within = divmod(offset + place, 4)
        count = min(step - within, len(out) - place)
        words = philox(block, -(-(within + count) // 4), seed)
        make(words[within : within + count], out[place : place + count])
        place += count


def philox(block: int, count: int, seed: int) -> Array:
    """Return the words of ``count`` blocks from number ``block`` on, uint32 [4 * count]."""
    counter = np.arange(count, dtype=np.uint64)
    counter += np.uint64(block)
    # The words that are multiplied, 0 and 2, and those that are not, 1 and 3, two and two.
    even, odd, product = np.empty((3, 2, count), np.uint64)
    np.bitwise_and(counter, _LOW, out=even[0])
    np.right_shift(counter, _32, out=odd[0])
    even[1] = odd[1] = 0
    crossed = product[::-1]
    for key in _keys(seed):
        np.multiply(even, _MULTIPLIERS, out=product)
        np.right_shift(crossed, _32, out=even)
        np.bitwise_xor(even, odd, out=even)
        np.bitwise_xor(even, key, out=even)
        np.bitwise_and(crossed, _LOW, out=odd)
    words = np.empty((count, 2, 2), np.uint32)
    np.copyto(words[..., 0].T, even, casting="unsafe")
    np.copyto(words[..., 1].T, odd, casting="unsafe")
    return words.reshape(-1)


@lru_cache(maxsize=64)
def _keys(seed: int) -> Array:
    """Return the two key words of each round, uint64 [10, 2, 1]."""
    rounds = np.arange(10, dtype=np.uint64)[:, None]
    keys: Any = (np.array([seed & 0xFFFFFFFF, seed >> 32], np.uint64) + rounds * _KEY_STEPS) & _LOW
    return keys[..., None]


def _copy(words: Array, out: Array) -> None:
    np.copyto(out, words)


def _uniform(dtype: DType) -> Maker:
    bits = SIGNIFICANT[dtype.name]
    shift, scale = np.uint32(32 - bits), np.float32(2.0**-bits)

    def make(words: Array, out: Array) -> None:
        # A signed integer is converted in one instruction; after the shift none is negative.
        number: Any = (words >> shift).view(np.int32).astype(np.float32)
        np.multiply(number, scale, out=number)
        np.copyto(out, number, casting="unsafe")

    return make
