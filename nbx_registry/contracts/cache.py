"""The paged cache that attention reads: paged_kv_append, paged_kv_append_step, paged_lens_advance."""

from __future__ import annotations

from typing import Any

import numpy as np

from nbx_registry import dtypes
from nbx_registry.contracts import at_values
from nbx_registry.cost import Cost, default_cost
from nbx_registry.op import op
from nbx_registry.rounding import round_to_float
from nbx_registry.signature import Signature

Array = np.ndarray[Any, np.dtype[Any]]


def cost_paged_kv_append(signature: Signature) -> Cost:
    """Only the rows that are named are touched, nominally each; at the least all are padding."""
    new, slot, pool = signature.operands
    return default_cost(
        signature,
        bytes_read=new.nbytes + slot.nbytes,
        bytes_written=pool.dtype.nbytes(new.size),
        least_bytes=slot.distinct_bytes if new.size and pool.size else 0,
    )


@op(
    "paged_kv_append@1(new: F1[N, Hkv, D], slot: int32[N], pool: mut F2[pages, Hkv, page_tokens, D], *,"
    " saturate: bool = False) -> ()",
    cost=cost_paged_kv_append,
    cost_at=at_values.paged_kv_append,
    cost_values=("slot",),
    exact=True,
    index_bounds={"slot": ("-2**31", "pages * page_tokens")},
)
def paged_kv_append(new: Array, slot: Array, pool: Array, *, saturate: bool) -> Array:
    """Write new keys or values into their places in a paged cache: ``pool[page, :, position] = new[n]``.

    Parameters
    ----------
    new : floating [N, Hkv, D]
    slot : int32 [N]
        page * page_tokens + position. A negative one is padding: its row is skipped. One beyond the pool is refused by
        name where the slots are on the host, out of contract on a device. One given twice is out of contract
        everywhere: either row may be what stays.
    pool : floating [pages, Hkv, page_tokens, D], written in place
        Nothing else of it changes.
    saturate : bool
        Clamp numbers beyond the pool's dtype, infinities too, to its largest.

    Returns
    -------
    nothing
        What is written is rounded once, to nearest even: float32 1e5 becomes inf in float16, or 65504 with
        ``saturate``.

    Raises
    ------
    SignatureError
        For extents that differ; for a slot beyond the pool on the host, with the slot and the pool's slots.

    Notes
    -----
    Kwon et al., "Efficient Memory Management for Large Language Model Serving with PagedAttention", 2023
    (arXiv:2309.06180).
    """
    dtype = dtypes.of_numpy(pool.dtype)
    for n, place in enumerate(slot.tolist()):
        if place >= 0:
            page, position = divmod(place, pool.shape[2])
            pool[page, :, position] = round_to_float(new[n], dtype, saturate=saturate).astype(pool.dtype)
    return pool


def cost_paged_kv_append_step(signature: Signature) -> Cost:
    """One row a sequence and pool, and one entry of its table, nominally all; at the least no length has a place."""
    k_new, v_new, k_pool, v_pool, table, lens = signature.operands
    somewhere = table.size and (k_new.size or v_new.size) and k_pool.shape[0] and k_pool.shape[2]
    return default_cost(
        signature,
        bytes_read=k_new.nbytes + v_new.nbytes + lens.nbytes + table.dtype.nbytes(lens.size if table.size else 0),
        bytes_written=k_pool.dtype.nbytes(k_new.size) + v_pool.dtype.nbytes(v_new.size),
        least_bytes=lens.distinct_bytes if somewhere else 0,
    )


@op(
    "paged_kv_append_step@1(k_new: F1[B, Hkv, D], v_new: F1[B, Hkv, Dv], k_pool: mut F2[pages, Hkv, page_tokens, D],"
    " v_pool: mut F2[pages, Hkv, page_tokens, Dv], block_table: int32[B, max_pages], lens: int32[B], *,"
    " saturate: bool = False) -> ()",
    cost=cost_paged_kv_append_step,
    cost_at=at_values.paged_kv_append_step,
    cost_values=(
        "block_table",
        "lens",
    ),
    exact=True,
    index_bounds={"block_table": ("-2**31", "pages")},
)
def paged_kv_append_step(
    k_new: Array, v_new: Array, k_pool: Array, v_pool: Array, block_table: Array, lens: Array, *, saturate: bool
) -> tuple[Array, Array]:
    """Write the next key and value of each sequence behind its last ones: one step of decoding.

    Sequence b has ``lens[b]`` tokens, so the new one goes to position ``lens[b] mod page_tokens`` of page
    ``block_table[b, lens[b] div page_tokens]``. No value of the host takes part: a recorded graph replays it.
    `paged_lens_advance` follows.

    Parameters
    ----------
    k_new, v_new : floating [B, Hkv, D] and [B, Hkv, Dv]
    k_pool, v_pool : floating [pages, Hkv, page_tokens, D] and [pages, Hkv, page_tokens, Dv], written in place
        Nothing else of them changes. Both may be views of one buffer in which pages, or rows, take turns.
    block_table : int32 [B, max_pages]
        The pages of each sequence. Below 0 there is no page: nothing is written. A page beyond the pool is refused by
        name where the table is on the host, out of contract on a device. Two sequences that write to one place are out
        of contract everywhere: either row may be what stays.
    lens : int32 [B]
        Below 0, or beyond what the table reaches: nothing is written.
    saturate : bool
        Clamp numbers beyond the pools' dtype, infinities too, to its largest.

    Returns
    -------
    nothing
        What is written is rounded once, to nearest even, as `paged_kv_append` does.

    Raises
    ------
    SignatureError
        For extents or dtypes that differ; for a page beyond the pool on the host, with the page and the pool's pages.

    Notes
    -----
    Kwon et al., "Efficient Memory Management for Large Language Model Serving with PagedAttention", 2023
    (arXiv:2309.06180).
    """
    page_tokens = k_pool.shape[2]
    for b, length in enumerate(lens.tolist()):
        if not 0 <= length < block_table.shape[1] * page_tokens:
            continue
        page = block_table[b, length // page_tokens]
        if page >= 0:
            for new, pool in ((k_new, k_pool), (v_new, v_pool)):
                rounded = round_to_float(new[b], dtypes.of_numpy(pool.dtype), saturate=saturate)
                pool[page, :, length % page_tokens] = rounded.astype(pool.dtype)
    return k_pool, v_pool


def cost_paged_lens_advance(signature: Signature) -> Cost:
    """One sum a length; no tokens are counted without looking."""
    (lens,), n = signature.operands, signature.attributes["n"]
    size, nbytes = (lens.size, 2 * lens.nbytes) if n else (0, 0)
    return default_cost(signature, flops=lens.size, least_flops=size, least_bytes=nbytes)


@op(
    "paged_lens_advance@1(lens: mut int32[B], *, n: int = 1) -> ()",
    require="-2**31 <= n and n < 2**31",
    cost=cost_paged_lens_advance,
    exact=True,
)
def paged_lens_advance(lens: Array, *, n: int) -> Array:
    """Count the tokens that every sequence has gained: ``lens[b] += n``.

    Follows `paged_kv_append_step` in stream order; lengths stay where they are, so that a recorded graph goes on from
    where its last replay ended.

    Parameters
    ----------
    lens : int32 [B], written in place
        Every one is advanced, those too for which nothing was written.
    n : int
        Of 32 bits; negative to take tokens back.

    Returns
    -------
    nothing
        Sums wrap around in 32 bits.

    Raises
    ------
    SignatureError
        For another dtype, and for n of more than 32 bits.

    Notes
    -----
    This project's own: a length that passed through the host would freeze in a recorded graph.
    """
    return lens + np.int32(n)
