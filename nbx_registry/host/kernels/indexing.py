"""Indexing: embedding, take. That indices are within the extent is the contract's guard, asked before the launch."""

from __future__ import annotations

import numpy as np

from nbx_registry.host.kernels.blocks import BLOCK, Array, as_matrices
from nbx_registry.launch import BindContext, Launch


def embedding(context: BindContext) -> Launch:
    """Bind the gather of rows: numpy.take where the table and the output are contiguous, else some rows at a time."""
    signature = context.signature
    w, _ = signature.operands
    contiguous = w.contiguous

    def run(w: Array, index: Array, out: Array) -> None:
        if out.size == 0:
            return
        if contiguous and out.flags.c_contiguous:
            # "clip" writes into out where "raise" goes through a copy; nothing is clipped, and nothing read outside.
            w.take(index, 0, out, "clip")
            return
        places = index[..., None]
        step = max(1, BLOCK // w.shape[1])
        for chosen, rows in as_matrices(
            places if places.ndim > 1 else places[None], out if out.ndim > 1 else out[None]
        ):
            for start in range(0, len(rows), step):
                rows[start : start + step] = w[chosen[start : start + step, 0]]

    return Launch(function=run, args=signature.names)


def take(context: BindContext) -> Launch:
    """Bind the gather along an axis: numpy.take into a contiguous output, else some entries at a time."""
    signature = context.signature
    x, _ = signature.operands
    axis = signature.attributes["axis"] or 0
    # Of what is not contiguous numpy.take makes a copy first.
    whole = x.contiguous or signature.outputs[0].size >= x.size
    each = max(1, x.size // max(signature.axes["L"], 1))
    step = max(1, BLOCK // each)

    def run(x: Array, indices: Array, out: Array) -> None:
        if out.size == 0:
            return
        if whole and out.flags.c_contiguous:
            # As in `embedding`.
            x.take(indices, axis, out, "clip")
            return
        source, target = np.moveaxis(x, axis, 0), np.moveaxis(out, axis, 0)
        for start in range(0, len(indices), step):
            target[start : start + step] = source[indices[start : start + step]]

    return Launch(function=run, args=signature.names)
