"""Sorting: topk."""

from __future__ import annotations

from typing import Any

import numpy as np

from nbx_registry import dtypes
from nbx_registry.cost import Cost, default_cost, distinct_elements
from nbx_registry.infer import normalise_axis
from nbx_registry.op import op
from nbx_registry.signature import Signature
from nbx_registry.spec import TensorSpec

Array = np.ndarray[Any, np.dtype[Any]]


def infer_topk(signature: Signature) -> tuple[TensorSpec, TensorSpec]:
    """Bind the extent of the axis to L; k takes its place."""
    (x,), k = signature.operands, signature.attributes["k"]
    axis = normalise_axis(signature.attributes["axis"], x.rank)
    signature.axes["L"] = x.shape[axis]
    shape = (*x.shape[:axis], k, *x.shape[axis + 1 :])
    return TensorSpec(x.dtype, shape), TensorSpec(dtypes.get("int64"), shape)


def cost_topk(signature: Signature) -> Cost:
    """One comparison an element, of all elements; at the least the first k of a row are such that none comes before.

    NaN where the largest are wanted, infinity or the end of an integer's range else: nothing after them counts.
    """
    (x,), (values, indices) = signature.operands, signature.outputs
    k, axis = signature.attributes["k"], normalise_axis(signature.attributes["axis"], x.rank)

    def first(places: int) -> int:
        return distinct_elements(x, (*x.shape[:axis], places, *x.shape[axis + 1 :]))

    return default_cost(
        signature,
        flops=x.size if k else 0,
        least_flops=first(k) - first(1) if k else 0,
        bytes_read=x.nbytes if k else 0,
        least_bytes=x.dtype.nbytes(first(k)) + values.nbytes + indices.nbytes,
    )


@op(
    "topk@1(x: T[*X], *, k: int, axis: int = -1, largest: bool = True) -> (values: T[*Y], indices: int64[*Y])",
    where={"L": None},
    require=("x.dtype != complex64", "k >= 0", "k <= L"),
    infer=infer_topk,
    cost=cost_topk,
    ulp=0,
)
def topk(x: Array, *, k: int, axis: int, largest: bool) -> tuple[Array, Array]:
    """Find the k largest (or smallest) elements along an axis, the best first, and where they are.

    Parameters
    ----------
    x : any dtype but complex, at least rank 1
    k : int
        From 0 to the extent of the axis.
    axis : int
    largest : bool
        False for the smallest.

    Returns
    -------
    values : the dtype of ``x``, its shape with k in place of the axis
        The elements themselves, in descending order (ascending for the smallest).
    indices : int64, the same shape
        Where along the axis they are. Of equal elements the one with the lower index comes first (zeros of both signs
        are equal). NaN counts as larger than every number: first among the largest, last among the smallest.

    Raises
    ------
    SignatureError
        For an axis that ``x`` lacks, and k below 0 or beyond the axis.

    Notes
    -----
    ``torch.topk`` with ``sorted=True``, which leaves the order of equal elements open; it is fixed here, so that every
    kernel gives the same indices.
    """
    rows = np.moveaxis(x, axis, -1)
    indices = np.empty((*rows.shape[:-1], k), np.int64)
    for place in np.ndindex(rows.shape[:-1]):
        # A number and whether it is none; Python's sort keeps equal ones in their order, reversed or not.
        keys = [(v != v, 0 if v != v else v) for v in rows[place].astype(_sortable(x.dtype)).tolist()]
        indices[place] = sorted(range(len(keys)), key=keys.__getitem__, reverse=largest)[:k]
    values = np.take_along_axis(rows, indices, -1)
    return np.moveaxis(values, -1, axis), np.moveaxis(indices, -1, axis)


def _sortable(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """Return a dtype of Python's own numbers: the integers of 4 bits are none."""
    return np.dtype(np.int64) if dtypes.of_numpy(dtype).bits < 8 else dtype
