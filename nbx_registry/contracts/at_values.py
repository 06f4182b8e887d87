"""Costs at given values: what indices, lengths, slots and masks leave of what their ops cost.

Nominal is what they name, once for each time it is named; least what they name, each element once.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from nbx_registry.cost import Cost, distinct_bytes
from nbx_registry.infer import normalise_axis
from nbx_registry.signature import Signature
from nbx_registry.spec import TensorSpec

Array = np.ndarray[Any, np.dtype[Any]]


def _some(spec: TensorSpec, share: int, of: int) -> int:
    """Return the distinct bytes of ``share`` of the ``of`` equal parts that a tensor is made of."""
    return min(spec.dtype.nbytes(spec.size // of * share), spec.distinct_bytes) if of else 0


def embedding(signature: Signature, cost: Cost, index: Array) -> Cost:
    """Read the rows that are named, each once."""
    w, place = signature.operands
    (out,) = signature.outputs
    rows = distinct_bytes(w, (np.unique(index).size, w.shape[1]))
    return replace(cost, least_bytes=rows + place.distinct_bytes + out.nbytes if out.size else 0)


def take(signature: Signature, cost: Cost, indices: Array) -> Cost:
    """Read the places that are named, each once."""
    x, place = signature.operands
    (out,) = signature.outputs
    axis = normalise_axis(signature.attributes["axis"] or 0, x.rank)
    read = distinct_bytes(x, (*x.shape[:axis], np.unique(indices).size, *x.shape[axis + 1 :]))
    return replace(cost, least_bytes=read + place.distinct_bytes + out.nbytes if out.size else 0)


def rotary_embedding(signature: Signature, cost: Cost, position: Array) -> Cost:
    """Read the rows of the tables that are named, each once."""
    x, place, cos, sin = signature.operands
    (out,) = signature.outputs
    rows = (np.unique(position).size, cos.shape[1])
    tables = sum(distinct_bytes(table, rows) for table in (cos, sin))
    read = x.distinct_bytes + place.distinct_bytes + tables
    return replace(cost, least_bytes=read + out.nbytes if out.size else 0)


def scaled_dot_product_attention(signature: Signature, cost: Cost, mask: Array) -> Cost:
    """Multiply the pairs that the mask shows; read the queries, keys and values that are in one."""
    q, k, v, _ = signature.operands
    (out,) = signature.outputs
    batch, heads, queries, width = q.shape
    groups, keys = k.shape[1], k.shape[2]
    seen = np.array(mask if mask.dtype.kind == "b" else mask != -np.inf)
    seen = np.broadcast_to(seen, (batch, heads, queries, keys))
    if signature.attributes["causal"]:
        seen = np.logical_and(seen, np.tri(queries, keys, keys - queries, dtype=bool))
    flops = 2 * int(np.count_nonzero(seen)) * (width + v.shape[3])
    asking = int(np.count_nonzero(seen.any(-1)))
    by_group = seen.reshape(batch, groups, heads // max(groups, 1), queries, keys)
    asked = int(np.count_nonzero(by_group.any((2, 3))))
    read = _some(q, asking, batch * heads * queries)
    read += sum(_some(spec, asked, batch * groups * keys) for spec in (k, v))
    # What the mask itself must be read for is in the least cost at any values.
    return replace(cost, flops=flops, least_flops=flops, least_bytes=cost.least_bytes + read if out.size else 0)


def decode_attention(signature: Signature, cost: Cost, bias: Array) -> Cost:
    """Multiply with the keys that the bias shows, and read these."""
    q, k, v, _ = signature.operands
    (out,) = signature.outputs
    tokens, seen = k.shape[2], int(np.count_nonzero(bias != -np.inf))
    flops = cost.flops // tokens * seen if tokens else 0
    read = sum(_some(spec, seen, tokens) for spec in (k, v)) + (q.distinct_bytes if seen else 0)
    return replace(cost, flops=flops, least_flops=flops, least_bytes=cost.least_bytes + read if out.size else 0)


def paged_decode_attention(signature: Signature, cost: Cost, block_table: Array, seq_lens: Array) -> Cost:
    """Attend what each sequence holds; a token that several sequences share is read once."""
    q, k_pool, v_pool, table, lens = signature.operands
    (out,) = signature.outputs
    batch, heads, width = q.shape
    pages, groups, page_tokens, value_width = v_pool.shape
    token = np.arange(int(signature.axes["T"]))
    held: Array = np.less(token, seq_lens[:, None])
    entries = int(np.count_nonzero(held[:, :: max(page_tokens, 1)]))
    page: Array = np.take(block_table, token // max(page_tokens, 1), axis=1)
    there: Array = np.logical_and(held, page >= 0)
    tokens = int(np.count_nonzero(there))
    place: Array = np.add(page.astype(np.int64) * page_tokens, token % max(page_tokens, 1))
    distinct = np.unique(place[there]).size
    cache = sum(_some(pool, distinct, pages * page_tokens) for pool in (k_pool, v_pool))
    some = int(np.count_nonzero(there.any(1)))
    looked_up = min(table.dtype.nbytes(entries), table.distinct_bytes)
    flops = 2 * heads * tokens * (width + value_width)
    return replace(
        cost,
        flops=flops,
        least_flops=flops,
        bytes_read=q.dtype.nbytes(some * heads * width)
        + k_pool.dtype.nbytes(tokens * groups * (width + value_width))
        + table.dtype.nbytes(entries)
        + lens.nbytes,
        least_bytes=cost.least_bytes + cache + _some(q, some, batch) + looked_up if out.size else 0,
    )


def paged_kv_append(signature: Signature, cost: Cost, slot: Array) -> Cost:
    """Move the rows that have a place."""
    new, slots, pool = signature.operands
    rows, count = int(np.count_nonzero(slot >= 0)), slots.size
    written = pool.dtype.nbytes(new.size // count * rows) if count else 0
    return replace(
        cost,
        bytes_read=(new.dtype.nbytes(new.size // count * rows) if count else 0) + slots.nbytes,
        bytes_written=written,
        least_bytes=cost.least_bytes + _some(new, rows, count) + written,
    )


def paged_kv_append_step(signature: Signature, cost: Cost, block_table: Array, lens: Array) -> Cost:
    """Move a key and a value of each sequence that has a place for them."""
    k_new, v_new, k_pool, v_pool, table, lengths = signature.operands
    count, page_tokens = lengths.size, max(k_pool.shape[2], 1)
    reached: Array = np.logical_and(lens >= 0, lens < block_table.shape[1] * k_pool.shape[2])
    looked_up = int(np.count_nonzero(reached))
    rows: Array = np.flatnonzero(reached)
    pages: Array = block_table[rows, lens[reached] // page_tokens]
    placed = int(np.count_nonzero(pages >= 0))
    pairs = ((k_new, k_pool), (v_new, v_pool))
    written = sum(pool.dtype.nbytes(new.size // count * placed) for new, pool in pairs) if count else 0
    read = sum(new.dtype.nbytes(new.size // count * placed) for new, _ in pairs) if count else 0
    least = sum(_some(new, placed, count) for new, _ in pairs)
    entries = min(table.dtype.nbytes(looked_up), table.distinct_bytes)
    return replace(
        cost,
        bytes_read=read + lengths.nbytes + table.dtype.nbytes(looked_up),
        bytes_written=written,
        least_bytes=cost.least_bytes + least + written + (entries if cost.least_bytes else 0),
    )
