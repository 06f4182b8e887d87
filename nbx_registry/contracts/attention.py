"""Attention on whole sequences: scaled_dot_product_attention, rotary_embedding."""

from __future__ import annotations

from typing import Any

import numpy as np

from nbx_registry import dtypes
from nbx_registry.contracts import at_values
from nbx_registry.cost import Cost, default_cost, distinct_bytes
from nbx_registry.dtypes import DType
from nbx_registry.errors import SignatureError
from nbx_registry.infer import broadcast_to
from nbx_registry.op import op
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


def visible_bytes(mask: TensorSpec, queries: int, keys: int, causal: bool) -> int:
    """Return the bytes of a mask that attention looks at: of a causal one's, what causality leaves to it."""
    shape, strides = ((1, 1, *mask.shape)[-2:], (0, 0, *mask.strides)[-2:])
    rows, columns = (extent if stride else 1 for extent, stride in zip(shape, strides, strict=True))
    if rows == queries and columns == keys:
        seen = visible_pairs(queries, keys, causal)
    else:
        blind = max(0, queries - keys) if causal else 0
        seen = (rows - blind if rows == queries else 1) * columns if keys else 0
    return distinct_bytes(mask, (*mask.shape[:-2], *(1,) * min(mask.rank, 2))) * seen


def cost_attention(signature: Signature) -> Cost:
    """Two products; at the least over what a causal mask shows, and without the queries that see nothing.

    A mask may hide everything: at the least only it is read.
    """
    q, k, v, mask = signature.operands
    (out,) = signature.outputs
    batch, heads, queries, width = q.shape
    keys, causal = k.shape[2], signature.attributes["causal"]
    each = 2 * batch * heads * (width + v.shape[3])
    if mask is not None:
        pairs = 0
        least_read = visible_bytes(mask, queries, keys, causal)
    else:
        pairs = visible_pairs(queries, keys, causal)
        seeing = min(queries, keys) if causal or not keys else queries
        cache = k.distinct_bytes + v.distinct_bytes
        least_read = distinct_bytes(q, (batch, heads, seeing, width)) + cache if seeing else 0
    return default_cost(
        signature,
        flops=each * queries * keys,
        least_flops=each * pairs,
        least_bytes=least_read + out.nbytes if out.size else 0,
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
    require=("Hkv >= 1", "Hq % Hkv == 0"),
    infer=infer_attention,
    cost=cost_attention,
    cost_at=at_values.scaled_dot_product_attention,
    cost_values=("mask",),
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
        Hkv is at least 1, and Hq a multiple of it; query head h reads head h div (Hq / Hkv).
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
        For extents or dtypes that differ, Hkv = 0 or Hq no multiple of it, a mask that does not broadcast or is an
        integer's.

    Notes
    -----
    Vaswani et al., "Attention Is All You Need", 2017 (arXiv:1706.03762); grouped queries: Ainslie et al., 2023
    (arXiv:2305.13245). ``flops`` counts the two products.
    """
    scores = score(q, k, mask, causal, default_scale(scale, q.shape[-1]))
    return attend(scores, repeat_heads(v, q.shape[1]))


# rotary_embedding -----------------------------------------------------------------------------------------------------


def halves(x: Array, interleaved: bool) -> tuple[Array, Array]:
    """Return views of the first and the second members of the pairs that are rotated, [..., D / 2] each."""
    width = x.shape[-1] // 2
    return (x[..., 0::2], x[..., 1::2]) if interleaved else (x[..., :width], x[..., width:])


def cost_rotary_embedding(signature: Signature) -> Cost:
    """Two products and a sum an element; of the tables the rows that are named, at the least one for all tokens."""
    x, position, cos, sin = signature.operands
    (out,) = signature.outputs
    row = (1, cos.shape[1])
    tables = sum(distinct_bytes(table, row) for table in (cos, sin))
    return default_cost(
        signature,
        flops=3 * x.size,
        bytes_read=x.nbytes + position.nbytes + 2 * cos.dtype.nbytes(position.size * row[1]),
        least_bytes=x.distinct_bytes + position.distinct_bytes + tables + out.nbytes if out.size else 0,
    )


def magnitude_rotary_embedding(
    signature: Signature, x: Array, position: Array, cos: Array, sin: Array, *, interleaved: bool
) -> Array:
    """Return the sum of the magnitudes of both products."""
    out = np.empty(x.shape)
    (first, second), (left, right) = halves(np.abs(x), interleaved), halves(out, interleaved)
    c, s = np.abs(cos)[position][:, None], np.abs(sin)[position][:, None]
    left[...] = first * c + second * s
    right[...] = second * c + first * s
    return out


@op(
    "rotary_embedding@1(x: F1[B, H, T, D], position: I[B, T], cos: F2[P, R], sin: F2[P, R], *,"
    " interleaved: bool = False) -> F1[B, H, T, D]",
    require=(
        "D % 2 == 0",
        "D == 2 * R",
        "position.dtype in (int32, int64)",
        "cos.dtype in (float32, x.dtype)",
    ),
    cost=cost_rotary_embedding,
    cost_at=at_values.rotary_embedding,
    cost_values=("position",),
    accumulation="2",
    magnitude=magnitude_rotary_embedding,
    index_bounds={"position": "P"},
)
def rotary_embedding(x: Array, position: Array, cos: Array, sin: Array, *, interleaved: bool) -> Array:
    """Rotate pairs of elements by angles that grow with the position: rotary position embedding.

    A pair (a, b) of token t becomes ``(a cos - b sin, b cos + a sin)``; pair i takes ``cos[position[b, t], i]`` and
    ``sin`` likewise.

    Parameters
    ----------
    x : floating [B, H, T, D]
        Queries or keys; D is even.
    position : int32 or int64 [B, T]
        Rows of the tables, from 0 to P - 1. Outside: refused by name where they are on the host, out of contract on a
        device.
    cos, sin : float32 or the dtype of ``x``, [P, D / 2]
        Row p holds cosines and sines of p times each pair's frequency, usually ``10000^(-2i / D)``.
    interleaved : bool
        Pairs are neighbours, (2i, 2i + 1), as in GPT-J; else they are half of D apart, (i, i + D / 2), as in GPT-NeoX
        and Llama.

    Returns
    -------
    the shape and dtype of ``x``
        Computed in float32 (float64 in float64), rounded once.

    Raises
    ------
    SignatureError
        For extents that differ, an odd D, tables of another width or dtype; for a position out of range on the host,
        with the position and P.

    Notes
    -----
    Su et al., "RoFormer: Enhanced Transformer with Rotary Position Embedding", 2021 (arXiv:2104.09864).
    """
    out = np.empty(x.shape)
    for b, h, t in np.ndindex(x.shape[:3]):
        (first, second), (left, right) = halves(x[b, h, t], interleaved), halves(out[b, h, t], interleaved)
        c, s = cos[position[b, t]], sin[position[b, t]]
        left[...] = first * c - second * s
        right[...] = second * c + first * s
    return out
