"""Attention of one query a sequence: on a cache, on a paged one, and the join of splits."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np

from nbx_registry.dtypes import DType
from nbx_registry.host.kernels.attention import attend, rules_of
from nbx_registry.host.kernels.blocks import Array
from nbx_registry.host.kernels.conversion import conversion
from nbx_registry.launch import BindContext, Launch

CACHED = 1 << 18
"""Elements of keys, and of values, gathered from pages at a time."""


def decode_attention(context: BindContext) -> Launch:
    """Bind attention of one query a sequence, q[B, Hq, D]: the heads of a group are the rows of one product."""
    signature = context.signature
    q, k, _, bias = signature.operands
    batch, heads, width = q.shape
    groups, keys = k.shape[1], k.shape[2]
    rules = rules_of(signature.attributes["scale"], width, q.dtype, None)
    grouped = (batch, groups, 1, heads // max(groups, 1))
    narrow = _query_rounding(q.dtype, signature.attributes["q_dtype"])

    def run(q: Array, k: Array, v: Array, *rest: Array) -> None:
        out = rest[-1]
        q = q if narrow is None else narrow(q)
        given = None if bias is None else rest[0].reshape((1, 1, 1, 1, keys), copy=False)
        attend(
            q.reshape((*grouped, width), copy=False),
            k,
            v,
            given,
            out.reshape((*grouped, v.shape[-1]), copy=False),
            rules,
        )

    return Launch(function=run, args=signature.names)


def decode_attention_reduce(context: BindContext) -> Launch:
    """Bind the join of splits: of each row one product by BLAS, all splits weighted by the row's largest score."""
    return Launch(function=_reduce, args=context.signature.names)


def _query_rounding(source: DType, target: DType | None) -> Callable[[Array], Array] | None:
    if target is None or target is source:
        return None
    saturate = target.name == "float16"
    convert = conversion(source, target, saturate=saturate)

    def run(q: Array) -> Array:
        rounded = np.empty(q.shape, target.numpy)
        convert(q, rounded)
        if saturate:
            # Only finite values saturate.
            np.copyto(rounded, q, where=np.isinf(q), casting="unsafe")
        return rounded

    return run


def _reduce(o: Array, m: Array, l: Array, out: Array) -> None:  # noqa: E741 - the op's name
    if o.size == 0:
        out[...] = 0
        return
    dtype = np.dtype(np.float64 if out.dtype == np.float64 else np.float32)
    largest = np.maximum.reduce(m, axis=1, keepdims=True)
    empty = m == -np.inf
    if np.count_nonzero(empty):
        # Whatever an empty split holds is not looked at.
        o, l = np.where(empty[..., None], o.dtype.type(0), o), np.where(empty, l.dtype.type(0), l)  # noqa: E741
        np.copyto(largest, 0, where=largest == -np.inf)
    weights = np.subtract(m, largest, dtype=dtype)
    np.exp(weights, weights)
    total = np.add.reduce(np.multiply(weights, l), axis=1, keepdims=True)
    sums = np.matmul(weights[:, None], o.astype(dtype, copy=False))[:, 0]
    np.divide(sums, total, out, dtype=dtype, casting="unsafe")
    blind = total == 0
    if np.count_nonzero(blind):
        np.copyto(out, 0, where=blind)


# Paged caches ---------------------------------------------------------------------------------------------------------


def paged_decode_attention(context: BindContext) -> Launch:
    """Bind paged attention: short sequences of as many pages together, the heads of a group as one product.

    Longer ones, and those with missing pages, are attended one after another, some of their tokens at a time. A
    sequence's bits depend on no other: its tokens are cut up in the same way whatever travels with it.
    """
    signature = context.signature
    q, k_pool, v_pool, table, _ = signature.operands
    batch, heads, width = q.shape
    _, groups, page_tokens, value_width = v_pool.shape
    most = table.shape[1]
    rules = rules_of(signature.attributes["scale"], width, q.dtype, None)
    narrow = _query_rounding(q.dtype, signature.attributes["q_dtype"])
    of_token = max(groups * max(width, value_width), 1)
    step = max(1, min(page_tokens, CACHED // of_token))
    pages_at_once = max(1, CACHED // (of_token * max(page_tokens, 1)))
    grouped = (batch, groups, heads // max(groups, 1), width)
    converted = k_pool.dtype.numpy != rules.dtype

    def attend_alone(queries: Array, k_pool: Array, v_pool: Array, row: Array, length: int, out: Array) -> None:
        scratch = np.empty((2 + converted, min(pages_at_once, most) * step * of_token), rules.dtype)
        result: _Partial | None = None
        for pages, first, count in _parts(row, length, page_tokens, pages_at_once, step):
            k, v = (
                _gathered(pool[pages, :, first : first + step], buffer, scratch[2:])[:, :count]
                for pool, buffer in ((k_pool, scratch[0]), (v_pool, scratch[1]))
            )
            part = _weighted(np.matmul(queries, k.swapaxes(-1, -2)), v)
            result = part if result is None else _joined(result, part)
        if result is None:
            out[...] = 0
        else:
            _divide(result, out)

    def attend_together(queries: Array, k_pool: Array, v_pool: Array, pages: Array, ends: list[int]) -> _Partial:
        k, v = (_gathered_alike(pool, pages, rules.dtype) for pool in (k_pool, v_pool))
        scores = np.matmul(queries, k.swapaxes(-1, -2))
        for place, end in enumerate(ends):
            # Of what is past the end nothing may count, NaN or not.
            if end < v.shape[2]:
                scores[place, :, :, end:] = -np.inf
                v[place, :, end:] = 0
        return _weighted(scores, v)

    def run(q: Array, k_pool: Array, v_pool: Array, table: Array, lens: Array, out: Array) -> None:
        if out.size == 0:
            return
        q = q if narrow is None else narrow(q)
        queries = np.multiply(q.reshape(grouped), rules.scale, dtype=rules.dtype, casting="unsafe")
        results = np.reshape(out, (*grouped[:3], value_width), copy=False)
        complete = table.size == 0 or np.minimum.reduce(table, axis=None) >= 0
        alike: dict[int, list[int]] = {}
        lengths = [min(length, most * page_tokens) for length in lens.tolist()]
        for b, length in enumerate(lengths):
            count = -(-length // max(page_tokens, 1))
            if 0 < count <= pages_at_once and step == page_tokens and (complete or table[b, :count].min() >= 0):
                alike.setdefault(count, []).append(b)
            else:
                attend_alone(queries[b], k_pool, v_pool, table[b], length, results[b])
        for count, members in alike.items():
            at_once = pages_at_once // count
            for start in range(0, len(members), at_once):
                chosen = members[start : start + at_once]
                # All sequences, or one, need no gathering of queries.
                here: Any = slice(chosen[0], chosen[-1] + 1) if chosen[-1] - chosen[0] == len(chosen) - 1 else chosen
                ends = [lengths[b] for b in chosen]
                part = attend_together(queries[here], k_pool, v_pool, table[here, :count], ends)
                if isinstance(here, slice):
                    _divide(part, results[here])
                else:
                    results[here] = part.values / _nonzero(part.total)

    return Launch(function=run, args=signature.names)


def _parts(
    row: Array, length: int, page_tokens: int, pages_at_once: int, step: int
) -> Iterator[tuple[Array, int, int]]:
    """Yield ``(pages, first, count)``: pages of a sequence, the first place in each, and how many tokens that gives.

    Of several pages, all places but those past the sequence's end; else ``step`` places of one. Missing pages are left
    out.
    """
    if length <= 0:
        return
    pages = row[: -(-length // page_tokens)]
    # Only the last page may have places past the end.
    past = len(pages) * page_tokens - length if pages[-1] >= 0 else 0
    pages = pages[pages >= 0]
    for start in range(0, len(pages), pages_at_once):
        chosen = pages[start : start + pages_at_once]
        last = start + len(chosen) == len(pages)
        for first in range(0, page_tokens, step):
            places = min(step, page_tokens - first)
            missing = max(0, first + places - (page_tokens - past)) if last else 0
            if missing < places:
                yield chosen, first, len(chosen) * places - missing


def _gathered(found: Array, buffer: Array, wider: Array) -> Array:
    """Return tokens [pages, Hkv, places, D] as [Hkv, pages places, D] in the buffer; ``wider`` holds what is converted.

    NumPy converts faster than it transposes at the same time.
    """
    number, groups, places, width = found.shape
    if number == 1 and not len(wider):
        return found[0]
    if len(wider):
        converted = wider[0, : found.size].reshape(found.shape)
        np.copyto(converted, found, casting="unsafe")
        found = converted
    moved = buffer[: found.size].reshape(groups, number, places, width)
    np.copyto(moved, found.swapaxes(0, 1))
    return moved.reshape(groups, number * places, width)


def _gathered_alike(pool: Array, pages: Array, dtype: np.dtype[Any]) -> Array:
    """Return tokens of sequences, pages[B, n] of pool[pages, Hkv, places, D], as a new array [B, Hkv, n places, D]."""
    batch, number = pages.shape
    _, groups, places, width = pool.shape
    found = pool[pages].astype(dtype, copy=False)
    return found.swapaxes(1, 2).reshape(batch, groups, number * places, width)


class _Partial(NamedTuple):
    """Attention to some of the tokens of a sequence, or of several."""

    largest: Array
    """The largest score."""
    total: Array
    """The sum of the exponentials of scores less the largest."""
    values: Array
    """The sum of the values, each times its exponential."""


def _weighted(scores: Array, v: Array) -> _Partial:
    """Attend with scores [..., Hkv, R, n] of scaled queries to v[..., Hkv, n, Dv]."""
    largest = np.maximum.reduce(scores, axis=-1, keepdims=True)
    # Where every score is -inf, with 0 all exponentials are 0.
    np.subtract(scores, np.where(largest == -np.inf, scores.dtype.type(0), largest), scores)
    np.exp(scores, scores)
    return _Partial(largest, np.add.reduce(scores, axis=-1, keepdims=True), np.matmul(scores, v))


def _nonzero(total: Array) -> Array:
    """Return totals, those of zero as one: what is divided by them is zero."""
    return np.where(total == 0, total.dtype.type(1), total)


def _divide(part: _Partial, out: Array) -> None:
    np.divide(part.values, _nonzero(part.total), out, dtype=part.values.dtype, casting="unsafe")


def _joined(first: _Partial, second: _Partial) -> _Partial:
    """Join attention to two parts, as `decode_attention_reduce` does."""
    largest = np.maximum(first.largest, second.largest)
    shift = np.where(largest == -np.inf, largest.dtype.type(0), largest)
    kept, added = np.exp(first.largest - shift), np.exp(second.largest - shift)
    return _Partial(largest, kept * first.total + added * second.total, kept * first.values + added * second.values)
