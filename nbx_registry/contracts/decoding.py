"""Attention of one query a sequence on a cache: decode_attention, decode_attention_reduce, paged_decode_attention."""

from __future__ import annotations

from typing import Any

import numpy as np

from nbx_registry.contracts import at_values
from nbx_registry.contracts.attention import (
    attend,
    attention_magnitude,
    default_scale,
    repeat_heads,
    rounded_weights,
    score,
)
from nbx_registry.cost import Cost, default_cost
from nbx_registry.dtypes import DType
from nbx_registry.errors import SignatureError
from nbx_registry.op import op
from nbx_registry.rounding import round_to_float
from nbx_registry.signature import Signature
from nbx_registry.spec import TensorSpec
from nbx_registry.tolerance import FLUSHED, steps

Array = np.ndarray[Any, np.dtype[Any]]


# Splits ---------------------------------------------------------------------------------------------------------------

SPLIT_TOKENS = 256
"""Keys that a split is made for."""
MOST_SPLITS = 64


def paged_decode_splits(longest: int) -> int:
    """Return into how many splits kernels cut up to ``longest`` keys of a sequence, for each to be attended apart.

    The one rule for the grid of `decode_attention` and `paged_decode_attention`, for their launch keys and for the
    bucket in which a recorded graph is replayed; `splits_rule` is the same as an expression.
    """
    return min(max(-(-max(longest, 1) // SPLIT_TOKENS), 1), MOST_SPLITS)


def splits_rule(longest: str) -> str:
    """Return `paged_decode_splits` of an expression as an expression, for workspace and keys of kernels."""
    return f"clamp(cdiv(max({longest}, 1), {SPLIT_TOKENS}), 1, {MOST_SPLITS})"


# decode_attention -----------------------------------------------------------------------------------------------------


def cost_decode_attention(signature: Signature) -> Cost:
    """Two products over all keys, in the cache's dtype; a bias may hide them all: at the least only it is read."""
    q, k, v, bias = signature.operands
    (out,) = signature.outputs
    batch, heads, width = q.shape
    flops = 2 * batch * heads * k.shape[2] * (width + v.shape[3])
    looked_at = (q, k, v) if bias is None else (bias,)
    least_read = sum(spec.distinct_bytes for spec in looked_at) if k.shape[2] else 0
    return default_cost(
        signature,
        flops=flops,
        least_flops=flops if bias is None else 0,
        least_bytes=least_read + out.nbytes if out.size else 0,
        dtype=k.dtype,
    )


def round_query(q: Array, dtype: DType | None) -> Array:
    """Return the query in the dtype it is rounded to on load; for float16 finite values saturate."""
    if dtype is None:
        return q
    return np.where(np.isinf(q), q, round_to_float(q, dtype, saturate=dtype.name == "float16"))


def magnitude_decode_attention(
    signature: Signature,
    q: Array,
    k: Array,
    v: Array,
    bias: Array | None,
    *,
    scale: float | None,
    q_dtype: DType | None,
) -> Array:
    """Return what the roundings of scores, weights and sums are relative to."""
    q = round_query(q, q_dtype)[:, :, None]
    factor = default_scale(scale, q.shape[-1])
    sizes = score(np.abs(q), np.abs(k), None if bias is None else np.abs(bias), False, abs(factor))
    rounded = rounded_weights(signature.tensor("v").dtype)
    values = repeat_heads(v, q.shape[1])
    return attention_magnitude(score(q, k, bias, False, factor), sizes, values, q.shape[-1], rounded)[:, :, 0]


@op(
    "decode_attention@1(q: F1[B, Hq, D], k: F2[B, Hkv, T, D], v: F2[B, Hkv, T, Dv], bias: F3[T]? = None, *,"
    " scale: float? = None, q_dtype: dtype? = None) -> F1[B, Hq, Dv]",
    require=("Hkv >= 1", "Hq % Hkv == 0", "q_dtype in (None, k.dtype)"),
    cost=cost_decode_attention,
    cost_at=at_values.decode_attention,
    cost_values=("bias",),
    unit="matrix",
    accumulation="2",
    magnitude=magnitude_decode_attention,
)
def decode_attention(
    q: Array, k: Array, v: Array, bias: Array | None, *, scale: float | None, q_dtype: DType | None
) -> Array:
    """Attend with one query a sequence to a cache of keys and values.

    ``softmax(scale q k^T + bias) v``, head by head.

    Parameters
    ----------
    q : floating [B, Hq, D]
    k, v : floating [B, Hkv, T, D] and [B, Hkv, T, Dv]
        With strides of their own: a prefix of a larger buffer is read in place, and nothing past T. Hkv is at
        least 1, and Hq a multiple of it; query head h reads head h div (Hq / Hkv).
    bias : floating [T], optional
        Added to the scaled products; -inf hides a key.
    scale : float or None
        D^-0.5 unless given.
    q_dtype : dtype or None
        Round ``q`` to it on load: the cache's dtype or nothing. To float16 finite values saturate.

    Returns
    -------
    the dtype of ``q``, [B, Hq, Dv]
        A query that sees no key (T = 0, all scores -inf) gives 0. Scores, softmax, sums and partial results are in
        float32 (float64 where ``q`` is float64); with a 16-bit cache the weights may be rounded to its dtype before
        they meet v. Hidden values must be finite.

    Raises
    ------
    SignatureError
        For extents or dtypes that differ, Hkv = 0 or Hq no multiple of it, a ``q_dtype`` that is not the cache's.

    Notes
    -----
    Kernels cut the keys into `paged_decode_splits` and join the parts by `decode_attention_reduce`: Dao et al.,
    "Flash-Decoding for long-context inference", 2023. ``flops`` counts the two products.
    """
    q = round_query(q, q_dtype)[:, :, None]
    scores = score(q, k, bias, False, default_scale(scale, q.shape[-1]))
    return attend(scores, repeat_heads(v, q.shape[1]))[:, :, 0]


# decode_attention_reduce ----------------------------------------------------------------------------------------------


def infer_decode_attention_reduce(signature: Signature) -> TensorSpec:
    """Infer the output in the dtype asked for."""
    (o, _, _), dtype = signature.operands, signature.attributes["dtype"]
    if not dtype.floating:
        raise SignatureError(f"decode_attention_reduce: dtype is {dtype.name}, but must be floating", code="DTYPE")
    return TensorSpec(dtype, (o.shape[0], o.shape[2]))


def cost_decode_attention_reduce(signature: Signature) -> Cost:
    """A product and a sum an element of the parts; splits may all be empty: at the least only that is looked at."""
    o, m, _ = signature.operands
    (out,) = signature.outputs
    return default_cost(
        signature, flops=2 * o.size, least_flops=0, least_bytes=m.distinct_bytes + out.nbytes if out.size else 0
    )


def magnitude_decode_attention_reduce(signature: Signature, o: Array, m: Array, l: Array, *, dtype: DType) -> Array:  # noqa: E741
    """Return the weighted magnitudes of both sums over l; a weight is off by its exponent and by S rescalings."""
    out = np.zeros((o.shape[0], o.shape[2]))
    for row in range(o.shape[0]):
        seen = m[row] != -np.inf
        if seen.any():
            depth = np.max(m[row][seen]) - m[row][seen]
            weights = np.exp(-depth)
            off = weights * (2 * depth + 4 * steps(o.shape[1]) + 8)
            total = np.sum(weights * l[row][seen])
            below = np.sum(off * np.abs(l[row][seen])) / total
            values = np.abs(o[row][seen])
            out[row] = (off @ values + below * np.abs(weights @ o[row][seen])) / np.abs(total)
            out[row] += FLUSHED * np.sum(values, axis=0) / np.abs(total)
    return out


@op(
    "decode_attention_reduce@1(o: float32[R, S, Dv], m: float32[R, S], l: float32[R, S], *, dtype: dtype = 'float32')"
    " -> F[R, Dv]",
    infer=infer_decode_attention_reduce,
    cost=cost_decode_attention_reduce,
    accumulation="2",
    magnitude=magnitude_decode_attention_reduce,
)
def decode_attention_reduce(o: Array, m: Array, l: Array, *, dtype: DType) -> Array:  # noqa: E741
    """Join the parts that split attention left: R rows of S splits.

    From m = -inf, acc = l = 0, for s ascending: M = max(m, m_s), skipped if that is -inf; acc = e^(m - M) acc +
    e^(m_s - M) o_s, l likewise, m = M. The result is acc / l, or 0 where l = 0.

    Parameters
    ----------
    o : float32 [R, S, Dv]
        The sums of p v of each split, not normalised.
    m : float32 [R, S]
        The largest score of each split; -inf where it is empty. Never NaN or +inf.
    l : float32 [R, S]
        The sum of p of each split; 0 where it is empty.
    dtype : floating dtype
        Of the result.

    Returns
    -------
    ``dtype`` [R, Dv]
        Accumulated in float32 (float64 where ``dtype`` is float64), rounded once.

    Raises
    ------
    SignatureError
        For extents that differ, and for a ``dtype`` that is not floating.

    Notes
    -----
    Milakov and Gimelshein, "Online normalizer calculation for softmax", 2018 (arXiv:1805.02867).
    """
    rows, splits, width = o.shape
    out = np.zeros((rows, width))
    for row in range(rows):
        largest, acc, total = -np.inf, np.zeros(width), 0.0
        for s in range(splits):
            new = max(largest, m[row, s])
            if new == -np.inf:
                continue
            kept, added = np.exp(largest - new), np.exp(m[row, s] - new)
            acc = kept * acc + added * o[row, s]
            total = kept * total + added * l[row, s]
            largest = new
        if total != 0:
            out[row] = acc / total
    return out


# paged_decode_attention -----------------------------------------------------------------------------------------------


def infer_paged_decode_attention(signature: Signature) -> TensorSpec:
    """Infer the output, and bind T, how many tokens a sequence may have that count, and the first length too long."""
    q, _, v_pool, _, _ = signature.operands
    longest = signature.attributes["longest"]
    room = signature.axes["max_pages"] * signature.axes["page_tokens"]
    signature.axes["T"] = room if longest is None else min(longest, room)
    signature.axes["past_longest"] = 2**31 if longest is None else longest + 1
    return TensorSpec(q.dtype, (*q.shape[:2], v_pool.shape[3]))


def cost_paged_decode_attention(signature: Signature) -> Cost:
    """Two products over T tokens a sequence, each sequence reading its own.

    Lengths are values: nominally all are as long as they may be, ``longest``; at the least all are 0.
    """
    q, k_pool, v_pool, table, lens = signature.operands
    (out,) = signature.outputs
    batch, heads, width = q.shape
    pages, groups, page_tokens, value_width = v_pool.shape
    tokens = signature.axes["T"]
    entries = batch * -(-tokens // max(page_tokens, 1))
    return default_cost(
        signature,
        flops=2 * batch * heads * tokens * (width + value_width),
        least_flops=0,
        bytes_read=q.nbytes
        + k_pool.dtype.nbytes(batch * tokens * groups * (width + value_width))
        + table.dtype.nbytes(entries)
        + lens.nbytes,
        least_bytes=(lens.distinct_bytes if tokens and pages else 0) + out.nbytes if out.size else 0,
        dtype=k_pool.dtype,
    )


def cached_tokens(pool: Array, table: Array, length: int) -> Array:
    """Return [Hkv, n, D] of a sequence: what its row of the table reaches up to its length, without missing pages."""
    page_tokens = pool.shape[2]
    found = [
        pool[table[t // page_tokens], :, t % page_tokens]
        for t in range(min(length, table.size * page_tokens))
        if table[t // page_tokens] >= 0
    ]
    return np.array(found).reshape(len(found), pool.shape[1], pool.shape[3]).swapaxes(0, 1)


def magnitude_paged_decode_attention(
    signature: Signature,
    q: Array,
    k_pool: Array,
    v_pool: Array,
    block_table: Array,
    seq_lens: Array,
    *,
    longest: int | None,
    scale: float | None,
    q_dtype: DType | None,
) -> Array:
    """Return what the roundings of scores, weights and sums are relative to."""
    out = np.zeros((*q.shape[:2], v_pool.shape[3]))
    q = round_query(q, q_dtype)[:, :, None]
    factor = default_scale(scale, q.shape[-1])
    rounded = rounded_weights(signature.tensor("v_pool").dtype)
    for b in range(len(q)):
        k, v = (cached_tokens(pool, block_table[b], seq_lens[b])[None] for pool in (k_pool, v_pool))
        scores = score(q[[b]], k, None, False, factor)
        sizes = score(np.abs(q[[b]]), np.abs(k), None, False, abs(factor))
        out[b] = attention_magnitude(scores, sizes, repeat_heads(v, q.shape[1]), q.shape[-1], rounded)[0, :, 0]
    return out


@op(
    "paged_decode_attention@1(q: F1[B, Hq, D], k_pool: F2[pages, Hkv, page_tokens, D],"
    " v_pool: F2[pages, Hkv, page_tokens, Dv], block_table: int32[B, max_pages], seq_lens: int32[B], *,"
    " longest: int? = None, scale: float? = None, q_dtype: dtype? = None) -> F1[B, Hq, Dv]",
    where={"T": None, "past_longest": None},
    require=("Hkv >= 1", "Hq % Hkv == 0", "longest == None or longest >= 0", "q_dtype in (None, k_pool.dtype)"),
    infer=infer_paged_decode_attention,
    cost=cost_paged_decode_attention,
    cost_at=at_values.paged_decode_attention,
    cost_values=(
        "block_table",
        "seq_lens",
    ),
    unit="matrix",
    accumulation="2",
    magnitude=magnitude_paged_decode_attention,
    index_bounds={"block_table": ("-2**31", "pages"), "seq_lens": ("-2**31", "past_longest")},
)
def paged_decode_attention(
    q: Array,
    k_pool: Array,
    v_pool: Array,
    block_table: Array,
    seq_lens: Array,
    *,
    longest: int | None,
    scale: float | None,
    q_dtype: DType | None,
) -> Array:
    """Attend with one query a sequence to a paged cache: `decode_attention` through a table of pages.

    Token t of sequence b is at position ``t mod page_tokens`` of page ``block_table[b, t div page_tokens]``.

    Parameters
    ----------
    q : floating [B, Hq, D]
    k_pool, v_pool : floating [pages, Hkv, page_tokens, D] and [pages, Hkv, page_tokens, Dv]
        Hkv is at least 1, and Hq a multiple of it; query head h reads head h div (Hq / Hkv).
    block_table : int32 [B, max_pages]
        The pages of each sequence; sequences may share some. Below 0 there is no page: its tokens are not attended.
    seq_lens : int32 [B]
        Tokens to attend; 0 or below: none. Past it, and past what the table reaches, nothing is looked at, NaN or not.
    longest : int or None
        A bound on the lengths, known on the host: by default what the table reaches. It settles the grid
        (`paged_decode_splits`), and what the cost counts; the result does not depend on it, and a recorded graph is
        right for all lengths up to it. Longer ones are refused by name on the host, out of contract on a device; so
        are pages beyond the pool.
    scale : float or None
        D^-0.5 unless given.
    q_dtype : dtype or None
        Round ``q`` to it on load: the cache's dtype or nothing. To float16 finite values saturate.

    Returns
    -------
    the dtype of ``q``, [B, Hq, Dv]
        A sequence without tokens gives 0. Scores, softmax, sums and partial results are in float32 (float64 where ``q``
        is float64); with a 16-bit cache the weights may be rounded to its dtype before they meet v.

    Raises
    ------
    SignatureError
        For extents or dtypes that differ, Hkv = 0 or Hq no multiple of it, a negative ``longest``, a ``q_dtype`` that
        is not the cache's; on the host for a length or a page out of range.

    Notes
    -----
    Kwon et al., "Efficient Memory Management for Large Language Model Serving with PagedAttention", 2023
    (arXiv:2309.06180). ``flops`` counts the two products.
    """
    out = np.zeros((*q.shape[:2], v_pool.shape[3]))
    q = round_query(q, q_dtype)[:, :, None]
    for b in range(len(q)):
        k, v = (cached_tokens(pool, block_table[b], seq_lens[b])[None] for pool in (k_pool, v_pool))
        scores = score(q[[b]], k, None, False, default_scale(scale, q.shape[-1]))
        out[b] = attend(scores, repeat_heads(v, q.shape[1]))[0, :, 0]
    return out
