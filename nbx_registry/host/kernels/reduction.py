"""Reductions: sum is NumPy's own, told what to accumulate in."""

from __future__ import annotations

from typing import Any

import numpy as np

from nbx_registry.host.kernels.blocks import Array, working
from nbx_registry.infer import reduced_axes
from nbx_registry.launch import BindContext, Launch


def sum(context: BindContext) -> Launch:
    """Bind numpy.add.reduce over the axes, in float32 (float64, complex64), or 64-bit integers."""
    signature = context.signature
    (x,), (result,) = signature.operands, signature.outputs
    axes = reduced_axes(signature.attributes["axis"], x.rank)
    keepdims = signature.attributes["keepdims"]
    dtype = working(result.dtype) if result.dtype.floating else result.dtype.numpy
    reduce: Any = np.add.reduce

    def run(array: Array, out: Array) -> None:
        with np.errstate(all="ignore"):
            reduce(array, axes, dtype, out, keepdims)

    return Launch(function=run, args=("x", "out"))
