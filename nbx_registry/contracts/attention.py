"""Attention: scaled_dot_product_attention, decode_attention, decode_attention_reduce."""

from __future__ import annotations

from typing import Any

import numpy as np

from nbx_registry import dtypes
from nbx_registry.cost import Cost, default_cost
from nbx_registry.dtypes import DType
from nbx_registry.errors import SignatureError
from nbx_registry.infer import broadcast_to
from nbx_registry.op import op
from nbx_registry.rounding import round_to_float
from nbx_registry.signature import Signature
from nbx_registry.spec import TensorSpec
from nbx_registry.tolerance import FLUSHED, SLACK, roundoff, steps

Array = np.ndarray[Any, np.dtype[Any]]


# What the ops share ---------------------------------------------------------------------------------------------------


def default_scale(scale: float | None, width: int) -> float:
    """Return the factor of the products: D^-0.5 unless given (of no consequence where D is 0)."""
    return scale if scale is not None else max(width, 1) ** -0.5


def repeat_heads(x: Array, heads: int) -> Array:
    """Return a [B, Hkv, ...] cache with its heads repeated for ``heads`` query heads: h reads h div (heads / Hkv)."""
    return np.repeat(x, heads // x.shape[1], axis=1) if x.shape[1] else x


def attend(scores: Array, v: Array) -> Array:
    """Return the softmax of scores [..., Tq, Tk] over its last axis times v [..., Tk, Dv].

    A score of -inf hides its key: v is not looked at. A row that sees no key gives 0.
    """
    out = np.zeros((*scores.shape[:-1], v.shape[-1]))
    for place in np.ndindex(scores.shape[:-1]):
        row = scores[place]
        seen = row != -np.inf
        if seen.any():
            p = np.exp(row[seen] - np.max(row[seen]))
            out[place] = p @ v[place[:-1]][seen] / np.sum(p)
    return out


def attention_magnitude(scores: Array, sizes: Array, v: Array, width: int, rounded: float) -> Array:
    """Return what the roundings of attention are relative to.

    Parameters
    ----------
    scores, v
        As `attend` takes them.
    sizes
        The sums of magnitudes behind the scores: each is off by ``width + 2`` roundings of that, and so is the
        exponent.
    width
        D.
    rounded
        The roundoff of the dtype that the weights may be rounded to before they meet v, in units of float32's; 0: none.
    """
    out = np.zeros((*scores.shape[:-1], v.shape[-1]))
    for place in np.ndindex(scores.shape[:-1]):
        row = scores[place]
        seen = row != -np.inf
        if seen.any():
            depth = np.max(row[seen]) - row[seen]
            p = np.exp(-depth)
            p = p / np.sum(p)
            off = steps(width + 2) * sizes[place][seen] + 2 * depth + steps(row.size) + 8
            values = np.abs(v[place[:-1]][seen])
            out[place] = (
                (p * (off + rounded)) @ values + np.sum(p * off) * (p @ values) + FLUSHED * np.sum(values, axis=0)
            )
    return out


def rounded_weights(dtype: DType) -> float:
    """Return what rounding the weights to a 16-bit ``dtype`` costs, in roundings of float32; nothing for wider ones."""
    # Once and to nearest, so without the slack that the bound has for other roundings.
    return roundoff(dtype) / roundoff(dtypes.get("float32")) / SLACK if dtype.bits < 32 else 0.0


# scaled_dot_product_attention -----------------------------------------------------------------------------------------


def infer_attention(signature: Signature) -> TensorSpec:
    """Check the mask, and infer the output."""
    q, _, v, mask = signature.operands
    batch, heads, queries, _ = q.shape
    if mask is not None:
        if mask.dtype.kind not in ("bool", "float"):
            raise SignatureError(
                f"scaled_dot_product_attention: mask is {mask.dtype.name}, but must be bool or floating",
                code="DTYPE",
            )
        target = (batch, heads, queries, v.shape[2])
        broadcast_to(mask.shape, target, "mask", "the scores [B, Hq, Tq, Tk]")
    return TensorSpec(q.dtype, (batch, heads, queries, v.shape[3]))


def visible_pairs(queries: int, keys: int, causal: bool) -> int:
    """Return how many pairs of query and key attention looks at: of a causal one, those on and below the diagonal."""
    if not causal:
        return queries * keys
    # Row i sees keys - queries + i + 1 keys, if that is positive.
    rows = min(queries, keys)
    return rows * keys - rows * (rows - 1) // 2


def cost_attention(signature: Signature) -> Cost:
    """Two products; at the least over what a causal mask shows, and without the queries that see nothing."""
    q, k, v, mask = signature.operands
    (out,) = signature.outputs
    batch, heads, queries, width = q.shape
    keys, causal = k.shape[2], signature.attributes["causal"]
    each = 2 * batch * heads * (width + v.shape[3])
    blind = max(0, queries - keys) if causal else 0
    inputs = sum(spec.distinct_bytes for spec in (k, v, mask) if spec is not None)
    seeing = q.dtype.nbytes(batch * heads * (queries - blind) * width)
    return default_cost(
        signature,
        flops=each * queries * keys,
        least_flops=each * visible_pairs(queries, keys, causal),
        least_bytes=min(q.distinct_bytes, seeing) + inputs + out.nbytes,
    )


def score(q: Array, k: Array, mask: Array | None, causal: bool, scale: float) -> Array:
    """Return the scores [B, Hq, Tq, Tk], -inf where a key is hidden."""
    scores = np.einsum("bhqd,bhkd->bhqk", q, repeat_heads(k, q.shape[1])) * scale
    if mask is not None:
        scores = np.where(mask, scores, -np.inf) if mask.dtype.kind == "b" else scores + mask
    if causal:
        queries, keys = scores.shape[-2:]
        scores = np.where(np.tri(queries, keys, keys - queries, dtype=bool), scores, -np.inf)
    return scores


def magnitude_attention(
    signature: Signature, q: Array, k: Array, v: Array, mask: Array | None, *, causal: bool, scale: float | None
) -> Array:
    """Return what the roundings of scores, weights and sums are relative to."""
    factor = default_scale(scale, q.shape[-1])
    scores = score(q, k, mask, causal, factor)
    added = None if mask is None or mask.dtype.kind == "b" else np.abs(mask)
    sizes = score(np.abs(q), np.abs(k), added, False, abs(factor))
    rounded = rounded_weights(signature.tensor("q").dtype)
    return attention_magnitude(scores, sizes, repeat_heads(v, q.shape[1]), q.shape[-1], rounded)


@op(
    "scaled_dot_product_attention@1(q: F[B, Hq, Tq, D], k: F[B, Hkv, Tk, D], v: F[B, Hkv, Tk, Dv],"
    " mask: T[*M]? = None, *, causal: bool = False, scale: float? = None) -> F[B, Hq, Tq, Dv]",
    require="Hq % Hkv == 0",
    infer=infer_attention,
    cost=cost_attention,
    unit="matrix",
    accumulation="2",
    magnitude=magnitude_attention,
)
def scaled_dot_product_attention(
    q: Array, k: Array, v: Array, mask: Array | None, *, causal: bool, scale: float | None
) -> Array:
    """Attend: weight the values by the softmax of the scaled products of queries and keys.

    ``softmax(scale q k^T + mask) v``, head by head.

    Parameters
    ----------
    q : floating [B, Hq, Tq, D]
    k, v : the dtype of ``q``, [B, Hkv, Tk, D] and [B, Hkv, Tk, Dv]
        Hq is a multiple of Hkv; query head h reads head h div (Hq / Hkv).
    mask : bool or floating, broadcasts to [B, Hq, Tq, Tk], optional
        A boolean one keeps a key where True; a floating one is added to the scaled product.
    causal : bool
        Hide later keys: query i sees keys up to i + Tk - Tq (aligned bottom-right). Holds beside a mask.
    scale : float or None
        D^-0.5 unless given.

    Returns
    -------
    floating [B, Hq, Tq, Dv]
        A query that sees no key (all hidden, all scores -inf, Tk = 0) gives 0. Scores, softmax and sums are in float32
        (float64 in float64); with 16-bit inputs the weights may be rounded to their dtype before they meet v, as matrix
        units ask. Hidden keys and values must be finite: 0 times NaN is not 0 in every kernel.

    Raises
    ------
    SignatureError
        For extents or dtypes that differ, Hq no multiple of Hkv, a mask that does not broadcast or is an integer's.

    Notes
    -----
    Vaswani et al., "Attention Is All You Need", 2017 (arXiv:1706.03762); grouped queries: Ainslie et al., 2023
    (arXiv:2305.13245). ``flops`` counts the two products.
    """
    scores = score(q, k, mask, causal, default_scale(scale, q.shape[-1]))
    return attend(scores, repeat_heads(v, q.shape[1]))


# decode_attention -----------------------------------------------------------------------------------------------------


def cost_decode_attention(signature: Signature) -> Cost:
    """Two products over all keys, in the cache's dtype."""
    q, k, v, _ = signature.operands
    batch, heads, width = q.shape
    return default_cost(signature, flops=2 * batch * heads * k.shape[2] * (width + v.shape[3]), dtype=k.dtype)


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
    require=("Hq % Hkv == 0", "q_dtype in (None, k.dtype)"),
    cost=cost_decode_attention,
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
        With strides of their own: a prefix of a larger buffer is read in place, and nothing past T. Hq is a multiple of
        Hkv; query head h reads head h div (Hq / Hkv).
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
        For extents or dtypes that differ, Hq no multiple of Hkv, a ``q_dtype`` that is not the cache's.

    Notes
    -----
    Kernels split the keys and join the parts by `decode_attention_reduce`: Dao et al., "Flash-Decoding for long-context
    inference", 2023. ``flops`` counts the two products.
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
    flops="2 * R * S * Dv",
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
        Accumulated in float32, rounded once.

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
