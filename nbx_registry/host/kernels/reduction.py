"""Reductions: sum is NumPy's own, told what to accumulate in."""

from __future__ import annotations

from typing import Any

import numpy as np

from nbx_registry.host.kernels.blocks import Array, working
from nbx_registry.infer import reduced_axes
from nbx_registry.launch import BindContext, Launch


def sum(context: BindContext) -> Launch:
    """Bind numpy.add.reduce over the axes, in float32 or wider (float64, complex64), or 64-bit integers."""
    signature = context.signature
    (x,), (result,) = signature.operands, signature.outputs
    axes = reduced_axes(signature.attributes["axis"], x.rank)
    keepdims = signature.attributes["keepdims"]
    dtype = working(result.dtype) if result.dtype.floating else result.dtype.numpy
    reduce: Any = np.add.reduce
    # NumPy adds pairwise along contiguous trailing axes, and one by one across others, where float32 would lose count.
    pairwise = x.contiguous and axes == tuple(range(x.rank - len(axes), x.rank))
    if dtype == np.float32 and not (pairwise and result.dtype.bits == 32):
        partial = np.float32 if pairwise else np.float64

        def run_apart(array: Array, out: Array) -> None:
            # Partial results given to a narrow output would be rounded to it.
            with np.errstate(all="ignore"):
                out[...] = np.asarray(reduce(array, axes, partial, None, keepdims), np.float32)

        return Launch(function=run_apart, args=("x", "out"))

    def run(array: Array, out: Array) -> None:
        with np.errstate(all="ignore"):
            reduce(array, axes, dtype, out, keepdims)

    return Launch(function=run, args=("x", "out"))
