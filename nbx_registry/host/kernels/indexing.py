"""Indexing: embedding. That indices are within the table is the contract's guard, asked before the launch."""

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
            np.take(w, index, axis=0, out=out, mode="clip")
            return
        places = index[..., None]
        step = max(1, BLOCK // w.shape[1])
        for chosen, rows in as_matrices(
            places if places.ndim > 1 else places[None], out if out.ndim > 1 else out[None]
        ):
            for start in range(0, len(rows), step):
                rows[start : start + step] = w[chosen[start : start + step, 0]]

    return Launch(function=run, args=signature.names)
