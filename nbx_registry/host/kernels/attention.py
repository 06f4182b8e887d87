"""Attention: products by BLAS, and softmax between them on a bounded number of scores at a time."""

from __future__ import annotations

from math import prod
from typing import Any, NamedTuple

import numpy as np

from nbx_registry.dtypes import DType
from nbx_registry.host.kernels.blocks import Array, add_down, matrices, working
from nbx_registry.launch import BindContext, Launch

SCORES = 1 << 17
"""Scores held at once, elements: in float32 they stay in a core's second-level cache from pass to pass."""


class Rules(NamedTuple):
    """What a signature settles."""

    dtype: np.dtype[Any]
    scale: np.floating[Any]
    shift: int | None
    """None, or Tk - Tq of causal attention: query i sees keys up to i + shift."""


def scaled_dot_product_attention(context: BindContext) -> Launch:
    """Bind attention of q[B, Hq, Tq, D] on k[B, Hkv, Tk, D], v[B, Hkv, Tk, Dv]."""
    signature = context.signature
    q, k, _, mask = signature.operands
    batch, heads, queries, width = q.shape
    groups, keys = k.shape[1], k.shape[2]
    shift = keys - queries if signature.attributes["causal"] else None
    rules = rules_of(signature.attributes["scale"], width, q.dtype, shift)
    # Query heads of one group share a key head: their axis is split, which needs no copy whatever the strides.
    grouped = (batch, groups, heads // max(groups, 1), queries)
    of_mask: tuple[int, ...] = ()
    if mask is not None:
        of_batch, of_heads, of_queries, of_keys = (1,) * (4 - mask.rank) + mask.shape
        split = (groups, heads // groups) if of_heads > 1 else (1, 1)
        of_mask = (of_batch, *split, of_queries, of_keys)

    def run(q: Array, k: Array, v: Array, *rest: Array) -> None:
        out = rest[-1]
        given = None
        if mask is not None:
            # The mask itself may be far smaller than what it broadcasts to.
            hidden = np.logical_not(rest[0]) if mask.dtype.kind == "bool" else rest[0]
            given = hidden.reshape(of_mask, copy=False)
        attend(
            q.reshape((*grouped, width), copy=False),
            k,
            v,
            given,
            out.reshape((*grouped, v.shape[-1]), copy=False),
            rules,
        )

    return Launch(function=run, args=signature.names)


def rules_of(scale: float | None, width: int, dtype: DType, shift: int | None) -> Rules:
    """Return the rules of attention in ``dtype``, with a scale of its own or that of the width."""
    wide = working(dtype)
    return Rules(wide, wide.type(max(width, 1) ** -0.5 if scale is None else scale), shift)


def attend(q: Array, k: Array, v: Array, given: Array | None, out: Array, rules: Rules) -> None:
    """Write attention of q[B, G, R, Tq, D] on k[B, G, Tk, D], v[B, G, Tk, Dv] to out[B, G, R, Tq, Dv].

    ``given`` has the axes [B, G, R, Tq, Tk], each of that extent or 1: if it is bool it tells hidden keys, else it is
    added to the scores.
    """
    batch, groups, repeats, queries, _ = q.shape
    keys = k.shape[2]
    if out.size == 0:
        return
    if keys == 0:
        out[...] = 0
        return
    if batch * groups * repeats * queries * keys <= SCORES:
        scratch = np.empty(batch * groups * repeats * queries * keys, rules.dtype)
        wide_k, wide_v = matrices(k, rules.dtype)[:, :, None], matrices(v, rules.dtype)[:, :, None]
        _attend_block(q, wide_k, wide_v, given, out, rules, 0, scratch)
        return
    # As many whole sequences as fit; else whole groups of heads; else some queries of one group.
    queries_at_once = _fitting(queries, repeats * keys)
    groups_at_once = _fitting(groups, repeats * keys * queries)
    batch_at_once = _fitting(batch, repeats * keys * queries * groups)
    scratch = np.empty(batch_at_once * groups_at_once * queries_at_once * repeats * keys, rules.dtype)
    for b in range(0, batch, batch_at_once):
        for g in range(0, groups, groups_at_once):
            part = slice(b, b + batch_at_once), slice(g, g + groups_at_once)
            wide_k = matrices(k[part], rules.dtype)[:, :, None]
            wide_v = matrices(v[part], rules.dtype)[:, :, None]
            for start in range(0, queries, queries_at_once):
                rows = slice(start, min(start + queries_at_once, queries))
                place = (*part, slice(None), rows)
                seen = None
                if given is not None:
                    axes = zip(place, given.shape[:-1], strict=True)
                    seen = given[tuple(here if extent > 1 else slice(None) for here, extent in axes)]
                _attend_block(q[place], wide_k, wide_v, seen, out[place], rules, start, scratch)


def _attend_block(
    q: Array, k: Array, v: Array, given: Array | None, out: Array, rules: Rules, first: int, scratch: Array
) -> None:
    keys, queries = k.shape[3], q.shape[3]
    if rules.shift is not None:
        keys = min(keys, first + queries + rules.shift)
        if keys <= 0:
            out[...] = 0
            return
        k, v = k[..., :keys, :], v[..., :keys, :]
    # Scores lie with the keys first, so that maximum and sum go over whole rows of memory at a time, however few keys
    # there are. BLAS writes and reads such matrices as they are.
    columns = prod(q.shape[:-1])
    scores = scratch[: keys * columns].reshape(keys, columns)
    spread = scores.reshape(keys, *q.shape[:-1])
    matrices = spread.transpose(1, 2, 3, 0, 4)
    scaled = np.multiply(q, rules.scale, dtype=rules.dtype, casting="unsafe")
    np.matmul(k, scaled.swapaxes(-1, -2), out=matrices)
    if given is not None:
        given = given[..., :keys].transpose(4, 0, 1, 2, 3)
        if given.dtype == bool:
            np.copyto(spread, -np.inf, where=given)
        else:
            np.add(spread, given, spread, dtype=rules.dtype, casting="unsafe")
    if rules.shift is not None and keys > first + rules.shift + 1:
        last = first + rules.shift + np.arange(queries, dtype=np.intp)
        later = np.arange(keys, dtype=np.intp)[:, None] > last
        np.copyto(spread, -np.inf, where=later[:, None, None, None])
    largest = np.maximum.reduce(scores, axis=0)
    # A query that sees nothing has no largest score; with 0 its exponentials are 0 too.
    blind = largest == -np.inf
    some_blind = np.count_nonzero(blind) > 0
    if some_blind:
        np.copyto(largest, 0, where=blind)
    np.subtract(scores, largest, scores)
    np.exp(scores, scores)
    total = add_down(scores)[0]
    if some_blind:
        np.copyto(total, 1, where=blind)
    direct = out.dtype == rules.dtype
    product = np.matmul(matrices.swapaxes(-1, -2), v, out=out if direct else None)
    np.divide(product, total.reshape(*q.shape[:-1], 1), product)
    if not direct:
        np.copyto(out, product, casting="unsafe")


def _fitting(count: int, each: int) -> int:
    return max(1, min(count, SCORES // max(each, 1)))
