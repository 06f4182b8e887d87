"""The plain NumPy way of every op, as one would write it without a library: whole arrays, no blocks, no scratch.

Each answers as the op's contract asks, but for what its docstring says. Dtypes of 16 bits are computed in float32 where
their own arithmetic would round more often than the contract allows.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from minilm_host import gelu as gelu_by_polynomial
from numpy.lib.stride_tricks import sliding_window_view

Array = np.ndarray[Any, Any]


def wide(x: Array) -> Array:
    """Return narrow floating numbers in float32."""
    return x.astype(np.float32) if x.itemsize < 4 else x


# Elementwise ----------------------------------------------------------------------------------------------------------


def rsqrt(x: Array) -> Array:
    """Divide 1 by the root."""
    return (1 / np.sqrt(wide(x))).astype(x.dtype, copy=False)


def elementary(function: np.ufunc, x: Array) -> Array:
    """Take a function of NumPy; the loops of ml_dtypes for its own dtypes convert number by number."""
    return function(x) if x.dtype.isbuiltin == 1 else function(wide(x)).astype(x.dtype)


def power(x: Array, e: float) -> Array:
    """Raise to one power."""
    return (wide(x) ** e).astype(x.dtype, copy=False)


def powers(x: Array, e: Array) -> Array:
    """Raise to powers; of float32 numpy.power misses squares by a bit, which are asked for exactly."""
    base, exponent = wide(x), wide(e)
    return np.where(exponent == 2, base * base, base**exponent).astype(x.dtype, copy=False)


def erf(x: Array) -> Array:
    """Ask Python, number by number: NumPy has no error function, and handbooks' polynomials lose small results."""
    return np.frompyfunc(math.erf, 1, 1)(wide(x)).astype(x.dtype)


def relu(x: Array) -> Array:
    """Take the larger of x and 0."""
    return np.maximum(x, 0)


def sigmoid(x: Array) -> Array:
    """Divide 1 by ``1 + exp(-x)``."""
    return (1 / (1 + np.exp(-wide(x)))).astype(x.dtype, copy=False)


def silu(x: Array) -> Array:
    """Divide x by ``1 + exp(-x)``."""
    y = wide(x)
    return (y / (1 + np.exp(-y))).astype(x.dtype, copy=False)


def gelu(x: Array) -> Array:
    """Multiply by the normal distribution function, by a handbook's polynomial: that is as exact as asked."""
    return gelu_by_polynomial(wide(x)).astype(x.dtype, copy=False)


def gelu_tanh(x: Array) -> Array:
    """Evaluate the form of tanh."""
    y = wide(x)
    y = 0.5 * y * (1 + np.tanh(np.float32(0.7978845608) * (y + np.float32(0.044715) * y * y * y)))
    return y.astype(x.dtype, copy=False)


def clip(x: Array, low: Any, high: Any) -> Array:
    """Call numpy.clip, which answers bfloat16 in float32."""
    return np.clip(x, low, high).astype(x.dtype, copy=False)


def astype(x: Array, dtype: np.dtype[Any]) -> Array:
    """Convert; what is no number becomes 0 among integers, which NumPy leaves to the processor."""
    return np.where(np.isnan(x), 0, x).astype(dtype) if x.dtype.kind == "f" and dtype.kind == "i" else x.astype(dtype)


# Reductions and normalization -----------------------------------------------------------------------------------------


def total(x: Array, axis: int | None) -> Array:
    """Add up, 16-bit floating dtypes in float32."""
    if x.itemsize > 2:
        return x.sum(axis)
    return np.asarray(x.sum(axis, dtype=np.float32)).astype(x.dtype)


def mean(x: Array, axis: int | None) -> Array:
    """Average, 16-bit floating dtypes in float32."""
    if x.dtype.isbuiltin == 1:
        return x.mean(axis)
    return np.asarray(x.mean(axis, dtype=np.float32)).astype(x.dtype)


def prod(x: Array, axis: int | None) -> Array:
    """Multiply up, 16-bit floating dtypes in float32."""
    if x.itemsize > 2:
        return x.prod(axis)
    return np.asarray(x.prod(axis, dtype=np.float32)).astype(x.dtype)


def softmax(x: Array, axis: int = -1) -> Array:
    """Divide exponentials by their sum."""
    y = wide(x)
    y = y - y.max(axis, keepdims=True)
    np.exp(y, out=y)
    y /= y.sum(axis, keepdims=True)
    return y.astype(x.dtype, copy=False)


def layer_norm(x: Array, weight: Array, bias: Array) -> Array:
    """Subtract the mean, divide by the deviation, scale and shift."""
    y = wide(x)
    y = y - y.mean(-1, keepdims=True)
    y /= np.sqrt(np.square(y).mean(-1, keepdims=True) + np.float32(1e-5))
    y *= weight
    y += bias
    return y.astype(x.dtype, copy=False)


def rms_norm(x: Array, weight: Array) -> Array:
    """Divide by the root of the mean square, scale."""
    y = wide(x)
    y = y / np.sqrt(np.square(y).mean(-1, keepdims=True) + np.float32(1e-6))
    y *= weight
    return y.astype(x.dtype, copy=False)


def group_norm(x: Array, weight: Array, bias: Array, groups: int) -> Array:
    """Normalise groups of channels as rows, scale and shift channels."""
    y = wide(x).reshape(len(x), groups, -1)
    y = y - y.mean(-1, keepdims=True)
    y /= np.sqrt(np.square(y).mean(-1, keepdims=True) + np.float32(1e-5))
    y = y.reshape(x.shape)
    channels = (-1, *(1,) * (x.ndim - 2))
    y *= weight.reshape(channels)
    y += bias.reshape(channels)
    return y.astype(x.dtype, copy=False)


# Products -------------------------------------------------------------------------------------------------------------


def matmul(x1: Array, x2: Array) -> Array:
    """Multiply matrices."""
    return (wide(x1) @ wide(x2)).astype(x1.dtype, copy=False)


def linear(x: Array, w: Array, bias: Array) -> Array:
    """Multiply by the transposed weight, add the bias."""
    y = wide(x) @ wide(w).T
    y += bias
    return y.astype(x.dtype, copy=False)


def padded(x: Array, by: int) -> Array:
    """Return images with a rim of zeros."""
    return np.pad(x, ((0, 0), (0, 0), (by, by), (by, by))) if by else x


def conv2d(x: Array, w: Array, bias: Array, stride: int, padding: int) -> Array:
    """Lay windows out and multiply; a window of one place needs no laying out."""
    if w.shape[2:] == (1, 1) and stride == 1:
        y = wide(w).reshape(len(w), -1) @ wide(x).reshape(*x.shape[:2], -1)
        y = y.reshape(len(x), len(w), *x.shape[2:])
    else:
        windows = sliding_window_view(padded(wide(x), padding), w.shape[2:], (2, 3))[:, :, ::stride, ::stride]
        y = np.tensordot(windows, wide(w), ((1, 4, 5), (1, 2, 3))).transpose(0, 3, 1, 2)
    return np.add(y, bias[:, None, None], order="C").astype(x.dtype, copy=False)


def depthwise_conv2d(x: Array, w: Array, bias: Array, stride: int, padding: int) -> Array:
    """Add up shifted products, tap after tap."""
    y = padded(wide(x), padding)
    taps = w.shape[2]
    rows, columns = ((extent - taps) // stride + 1 for extent in y.shape[2:])
    out: Any = wide(bias)[:, None, None]
    for i in range(taps):
        for j in range(taps):
            part = y[:, :, i : i + rows * stride : stride, j : j + columns * stride : stride]
            out = out + part[:, :, :rows, :columns] * wide(w)[:, 0, i, j, None, None]
    return out.astype(x.dtype, copy=False)


# Layout, indexing, sorting --------------------------------------------------------------------------------------------


def pixel_shuffle(x: Array, r: int) -> Array:
    """Move channels into the image."""
    n, c, h, w = x.shape
    return x.reshape(n, c // r**2, r, r, h, w).transpose(0, 1, 4, 2, 5, 3).reshape(n, c // r**2, h * r, w * r)


def pixel_unshuffle(x: Array, r: int) -> Array:
    """Move the image into channels."""
    n, c, h, w = x.shape
    return x.reshape(n, c, h // r, r, w // r, r).transpose(0, 1, 3, 5, 2, 4).reshape(n, c * r**2, h // r, w // r)


def topk(x: Array, k: int) -> tuple[Array, Array]:
    """Partition, then sort what is left. Ties and NaNs are in no order."""
    y = -wide(x)
    places = np.argpartition(y, k - 1, -1)[..., :k]
    order = np.argsort(np.take_along_axis(y, places, -1), -1)
    places = np.take_along_axis(places, order, -1)
    return np.take_along_axis(x, places, -1), places


# Attention ------------------------------------------------------------------------------------------------------------


def attention(q: Array, k: Array, v: Array, *, mask: Array | None = None, causal: bool = False) -> Array:
    """Weight the values by the softmax of the scores; heads of a group share keys and values."""
    batch, heads, queries, width = q.shape
    groups, keys = k.shape[1:3]
    grouped = wide(q).reshape(batch, groups, heads // groups, queries, width)
    scores = (grouped * np.float32(width**-0.5)) @ wide(k)[:, :, None].swapaxes(-1, -2)
    if mask is not None:
        scores += np.where(mask, np.float32(0), np.float32(-np.inf))[:, :, None]
    if causal:
        scores[..., ~np.tri(queries, keys, keys - queries, dtype=bool)] = -np.inf
    y = softmax(scores) @ wide(v)[:, :, None]
    return y.reshape(batch, heads, queries, -1).astype(q.dtype, copy=False)


def rotary_embedding(x: Array, position: Array, cos: Array, sin: Array) -> Array:
    """Cut in halves, rotate, join."""
    first, second = np.split(wide(x), 2, -1)
    c, s = cos[position][:, None], sin[position][:, None]
    return np.concatenate((first * c - second * s, second * c + first * s), -1).astype(x.dtype, copy=False)


def decode_attention(q: Array, k: Array, v: Array) -> Array:
    """Attend with one query a sequence."""
    return attention(q[:, :, None], k, v)[:, :, 0]


def decode_attention_reduce(o: Array, m: Array, l: Array) -> Array:  # noqa: E741 - the op's name
    """Weight the splits by how their largest scores compare; of empty ones neither sums nor values count."""
    largest = m.max(1, keepdims=True)
    weight = np.exp(m - np.where(largest == -np.inf, np.float32(0), largest))
    seen = m > -np.inf
    if not seen.all():
        o, l = np.where(seen[..., None], o, np.float32(0)), np.where(seen, l, np.float32(0))  # noqa: E741
    total = (weight * l).sum(1, keepdims=True)
    return np.where(total == 0, np.float32(0), (weight[:, None] @ o)[:, 0] / total)


def paged_decode_attention(q: Array, k_pool: Array, v_pool: Array, table: Array, lens: Array) -> Array:
    """Gather the pages of each sequence, then attend. Missing pages and empty sequences are not thought of."""
    out = np.empty((*q.shape[:2], v_pool.shape[3]), q.dtype)
    for b, length in enumerate(lens.tolist()):
        pages = table[b, : -(-length // k_pool.shape[2])]
        k, v = (
            wide(pool[pages]).swapaxes(0, 1).reshape(pool.shape[1], -1, pool.shape[3])[:, :length]
            for pool in (k_pool, v_pool)
        )
        queries = wide(q[b]).reshape(len(k), -1, q.shape[2]) * np.float32(q.shape[2] ** -0.5)
        out[b] = (softmax(queries @ k.swapaxes(-1, -2)) @ v).reshape(q.shape[1], -1)
    return out


def paged_kv_append(new: Array, slot: Array, pool: Array) -> None:
    """Write rows to their slots."""
    page, position = np.divmod(slot, pool.shape[2])
    pool[page, :, position] = new


def paged_kv_append_step(k_new: Array, v_new: Array, k_pool: Array, v_pool: Array, table: Array, lens: Array) -> None:
    """Write the next row of each sequence."""
    entry, position = np.divmod(lens, k_pool.shape[2])
    page = table[np.arange(len(lens)), entry]
    k_pool[page, :, position] = k_new
    v_pool[page, :, position] = v_new


MIDDLE = (
    np.array((5.9109374720e01, 1.5929113202e02, 5.0434271938e01, 3.3871327179e00), np.float32),
    np.array((6.7187563600e01, 7.8757757664e01, 1.7895169469e01, 1.0), np.float32),
)
TAIL = (
    np.array((1.7023821103e-01, 1.3067284816e00, 2.7568153900e00, 1.4234372777e00), np.float32),
    np.array((1.2021132975e-01, 7.3700164250e-01, 1.0), np.float32),
)
"""Above and below the line, the highest power first."""


# Creation -------------------------------------------------------------------------------------------------------------


def philox(count: int, seed: int, offset: int) -> Array:
    """Return words ``offset`` to ``offset + count`` of Philox 4x32-10: the rounds as they are written, on uint64."""
    low = np.uint64(0xFFFFFFFF)
    first, last = offset // 4, -(-(offset + count) // 4)
    block = np.arange(first, last, dtype=np.uint64)
    c0, c1, c2, c3 = block & low, block >> np.uint64(32), np.zeros_like(block), np.zeros_like(block)
    k0, k1 = seed & 0xFFFFFFFF, seed >> 32
    for _ in range(10):
        p0, p1 = c0 * np.uint64(0xD2511F53), c2 * np.uint64(0xCD9E8D57)
        c0, c1, c2, c3 = (
            p1 >> np.uint64(32) ^ c1 ^ np.uint64(k0),
            p1 & low,
            p0 >> np.uint64(32) ^ c3 ^ np.uint64(k1),
            p0 & low,
        )
        k0, k1 = (k0 + 0x9E3779B9) & 0xFFFFFFFF, (k1 + 0xBB67AE85) & 0xFFFFFFFF
    words = np.stack((c0, c1, c2, c3), -1).astype(np.uint32).reshape(-1)
    return words[offset - 4 * first :][:count]


def uniform(count: int, seed: int, offset: int) -> Array:
    """Scale the leading 24 bits of each word."""
    return (philox(count, seed, offset) >> np.uint32(8)).astype(np.float32) * np.float32(2.0**-24)


def normal(count: int, seed: int, offset: int) -> Array:
    """Take the quantile of each word by Wichura's AS 241: middle and tails for all of them, then the right one."""
    p = (philox(count, seed, offset) + 0.5) * 2.0**-32
    q = (p - 0.5).astype(np.float32)
    r = np.float32(0.180625) - q * q
    middle = q * np.polyval(MIDDLE[0], r) / np.polyval(MIDDLE[1], r)
    r = np.sqrt(-np.log(np.minimum(p, 1 - p))).astype(np.float32) - np.float32(1.6)
    tail = np.copysign(np.polyval(TAIL[0], r) / np.polyval(TAIL[1], r), q)
    return np.where(np.abs(q) <= np.float32(0.425), middle, tail)


def rfft_basis(n: int) -> tuple[Array, Array]:
    """Evaluate cosines and sines at every place of the tables."""
    angle = 2 * np.pi / n * (np.arange(n // 2 + 1)[:, None] * np.arange(n) % n)
    return np.cos(angle).astype(np.float32), (-np.sin(angle)).astype(np.float32)


def irfft_basis(n: int) -> tuple[Array, Array]:
    """Weight the tables of `rfft_basis`: frequencies in between count twice."""
    angle = 2 * np.pi / n * (np.arange(n // 2 + 1)[:, None] * np.arange(n) % n)
    weight = np.full((n // 2 + 1, 1), 2 / n)
    weight[:: n // 2 if n % 2 == 0 else n] = 1 / n
    return (weight * np.cos(angle)).astype(np.float32), (-weight * np.sin(angle)).astype(np.float32)


# int4 weights ---------------------------------------------------------------------------------------------------------

NIBBLES = np.arange(0, 32, 4, dtype=np.uint32)[:, None]


def quantize_int4(w: Array) -> tuple[Array, Array, Array]:
    """Take range, scale and steps of all groups at once, then pack. K is whole groups."""
    if not np.isfinite(w).all():
        raise ValueError("weights must be finite")
    k, n = w.shape
    groups = wide(w).reshape(k // 128, 128, n)
    least = groups.min(1)
    scale = ((groups.max(1) - least) / np.float32(15)).astype(np.float16)
    scale[scale == 0] = 1
    least = least.astype(np.float16)
    steps = np.rint((groups - least.astype(np.float32)[:, None]) / scale.astype(np.float32)[:, None])
    nibbles = steps.clip(0, 15).astype(np.uint32).reshape(k // 8, 8, n)
    return np.bitwise_or.reduce(nibbles << NIBBLES, 1).view(np.int32), scale, least


def dequant_int4(w: Array, scale: Array, zero_min: Array) -> Array:
    """Unpack all nibbles at once, then scale and shift groups."""
    n = w.shape[1]
    groups = (w.view(np.uint32)[:, None] >> NIBBLES & np.uint32(15)).reshape(len(scale), -1, n)
    return (groups.astype(np.float32) * scale[:, None] + zero_min[:, None]).reshape(-1, n)


def dequant_product(x: Array, w: Array, scale: Array, zero_min: Array) -> Array:
    """Unpack the weight, multiply."""
    return (wide(x) @ dequant_int4(w, scale, zero_min)).astype(x.dtype, copy=False)
