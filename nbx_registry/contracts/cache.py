"""The paged cache that attention reads: paged_kv_append."""

from __future__ import annotations

from typing import Any

import numpy as np

from nbx_registry import dtypes
from nbx_registry.cost import Cost, default_cost
from nbx_registry.op import op
from nbx_registry.rounding import round_to_float
from nbx_registry.signature import Signature

Array = np.ndarray[Any, np.dtype[Any]]


def cost_paged_kv_append(signature: Signature) -> Cost:
    """Only the rows that are named are touched, all taken to be so: the pool may be far larger."""
    new, _, pool = signature.operands
    written = pool.dtype.nbytes(new.size)
    slot = signature.tensor("slot")
    return default_cost(
        signature,
        bytes_read=new.nbytes + slot.nbytes,
        bytes_written=written,
        least_bytes=new.distinct_bytes + slot.distinct_bytes + written,
    )


@op(
    "paged_kv_append@1(new: F1[N, Hkv, D], slot: int32[N], pool: mut F2[pages, Hkv, page_tokens, D], *,"
    " saturate: bool = False) -> ()",
    cost=cost_paged_kv_append,
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
        name where the slots are on the host, out of contract on a device; so is one given twice.
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
