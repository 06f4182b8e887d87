"""Indexing: embedding, take."""

from __future__ import annotations

from typing import Any

import numpy as np

from nbx_registry.contracts import at_values
from nbx_registry.cost import Cost, default_cost, distinct_bytes
from nbx_registry.errors import SignatureError
from nbx_registry.infer import normalise_axis
from nbx_registry.op import op
from nbx_registry.signature import Signature
from nbx_registry.spec import TensorSpec

Array = np.ndarray[Any, np.dtype[Any]]


def cost_embedding(signature: Signature) -> Cost:
    """Read the rows that are named, not the table: nominally one for each index, at the least one for all of them."""
    w, index = signature.operands
    (out,) = signature.outputs
    return default_cost(
        signature,
        bytes_read=out.nbytes + index.nbytes,
        least_bytes=distinct_bytes(w, (1, w.shape[1])) + index.distinct_bytes + out.nbytes if out.size else 0,
    )


@op(
    "embedding@1(w: T1[V, D], index: I[*B]) -> T1[*B, D]",
    require="index.dtype in (int32, int64)",
    cost=cost_embedding,
    cost_at=at_values.embedding,
    cost_values=("index",),
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


def infer_take(signature: Signature) -> TensorSpec:
    """Bind the extent of the axis to L; the indices take its place."""
    x, indices = signature.operands
    axis = signature.attributes["axis"]
    if axis is None and x.rank != 1:
        raise SignatureError(
            f"take: x has rank {x.rank} ({x}); only of rank 1 may axis be left out: give axis=", code="AXIS"
        )
    axis = 0 if axis is None else normalise_axis(axis, x.rank)
    signature.axes["L"] = x.shape[axis]
    return TensorSpec(x.dtype, (*x.shape[:axis], *indices.shape, *x.shape[axis + 1 :]))


def cost_take(signature: Signature) -> Cost:
    """As `cost_embedding`: read what is named, nominally for each index, at the least one place for all of them."""
    x, indices = signature.operands
    (out,) = signature.outputs
    axis = normalise_axis(signature.attributes["axis"] or 0, x.rank)
    place = distinct_bytes(x, (*x.shape[:axis], 1, *x.shape[axis + 1 :]))
    return default_cost(
        signature,
        bytes_read=out.nbytes + indices.nbytes,
        least_bytes=place + indices.distinct_bytes + out.nbytes if out.size else 0,
    )


@op(
    "take@1(x: T1[*X], indices: I[K], *, axis: int? = None) -> T1[*Y]",
    where={"L": None},
    require="indices.dtype in (int32, int64)",
    infer=infer_take,
    cost=cost_take,
    cost_at=at_values.take,
    cost_values=("indices",),
    exact=True,
    index_bounds={"indices": "L"},
)
def take(x: Array, indices: Array, *, axis: int | None) -> Array:
    """Pick elements along an axis by their indices: ``out[..., i, ...] = x[..., indices[i], ...]``.

    Parameters
    ----------
    x : any dtype, at least rank 1
    indices : int32 or int64 [K]
        From 0 to the extent of the axis - 1; they may repeat. Outside, negative ones included: refused by name where
        the indices are on the host, out of contract on a device.
    axis : int or None
        May be left out where ``x`` has one axis.

    Returns
    -------
    the dtype of ``x``, its shape with K in place of the axis
        An exact copy.

    Raises
    ------
    SignatureError
        For an axis that ``x`` lacks or that is missing; for another index dtype; for an index out of range on the host,
        with the index and the extent.

    Notes
    -----
    Python array API standard 2024.12, ``take``, which leaves indices out of range open. That negative ones are such is
    this project's choice, the one of `embedding`: a kernel need not look at their sign.
    """
    rows = np.moveaxis(x, 0 if axis is None else axis, 0)
    out = np.empty((len(indices), *rows.shape[1:]), x.dtype)
    for place, index in enumerate(indices):
        out[place] = rows[index]
    return np.moveaxis(out, 0, 0 if axis is None else axis)
