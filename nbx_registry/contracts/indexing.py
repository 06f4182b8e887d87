"""Indexing: embedding."""

from __future__ import annotations

from typing import Any

import numpy as np

from nbx_registry.cost import Cost, default_cost
from nbx_registry.op import op
from nbx_registry.signature import Signature

Array = np.ndarray[Any, np.dtype[Any]]


def cost_embedding(signature: Signature) -> Cost:
    """Read the rows that are named, not the table: nominally one for each index.

    At the least as many as there are different indices, and these can be no more than the table's rows; which ones are
    equal is a matter of values, so all are taken to differ as far as they can.
    """
    w, index = signature.operands
    (out,) = signature.outputs
    rows, width = w.shape
    row = width if w.strides[1] else min(width, 1)
    least_rows = min(rows if w.strides[0] else min(rows, 1), index.distinct)
    return default_cost(
        signature,
        bytes_read=w.dtype.nbytes(index.size * width) + index.nbytes,
        least_bytes=w.dtype.nbytes(least_rows * row) + index.distinct_bytes + out.nbytes,
    )


@op(
    "embedding@1(w: T1[V, D], index: I[*B]) -> T1[*B, D]",
    require="index.dtype in (int32, int64)",
    cost=cost_embedding,
    exact=True,
    index_bounds={"index": "V"},
)
def embedding(w: Array, index: Array) -> Array:
    """Gather rows of a table: ``out[b, :] = w[index[b], :]``.

    Parameters
    ----------
    w : any dtype [V, D]
    index : int32 or int64 [*B]
        From 0 to V - 1. Outside: refused by name where the indices are on the host, out of contract on a device.

    Returns
    -------
    the dtype of ``w``, [*B, D]
        An exact copy.

    Raises
    ------
    SignatureError
        For another index dtype; for an index out of range on the host, with the index and V.

    Notes
    -----
    ``torch.nn.functional.embedding``, without negative indices.
    """
    out = np.empty((*index.shape, w.shape[1]), w.dtype)
    for place in np.ndindex(index.shape):
        out[place] = w[index[place]]
    return out
