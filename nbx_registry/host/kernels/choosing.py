"""Kernels that choose among elements: clip and where."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from nbx_registry.dtypes import DType
from nbx_registry.host.kernels.blocks import Array, in_blocks_together, working
from nbx_registry.host.kernels.elementwise import rounded
from nbx_registry.launch import BindContext, Launch


def clip(context: BindContext) -> Launch:
    """Bind numpy.clip, or numpy.maximum and numpy.minimum where one bound is given or NumPy lacks the dtype."""
    signature = context.signature
    (out,) = signature.outputs
    names = signature.names
    bounds = tuple(name for name in ("min", "max") if name in names)
    args = ("x", *bounds, "out")
    if not bounds:
        return Launch(function=_copy, args=args)
    plain = (out.dtype.numpy_name or "").startswith("numpy:")
    dtype = out.dtype.numpy if plain else working(out.dtype) if out.dtype.floating else np.dtype(np.int16)
    both = {
        "min": partial(np.maximum, dtype=dtype, casting="unsafe"),
        "max": partial(np.minimum, dtype=dtype, casting="unsafe"),
    }
    if len(bounds) == 1:
        bound_one = both[bounds[0]]

        def run_one(x: Array, bound: Any, target: Array) -> None:
            bound_one(x, rounded(bound, out.dtype), target)

        return Launch(function=run_one, args=args)

    def run_both(x: Array, least: Any, most: Any, target: Array) -> None:
        least, most = rounded(least, out.dtype), rounded(most, out.dtype)
        if plain:
            np.clip(x, least, most, out=target)
        else:
            both["max"](both["min"](x, least), most, target)

    return Launch(function=run_both, args=args)


def _copy(x: Array, out: Array) -> None:
    np.copyto(out, x)


def where(context: BindContext) -> Launch:
    """Bind a choice by bits, block by block: faster than numpy.where, whose branches a processor cannot foresee."""
    (out,) = context.signature.outputs
    words = _words(out.dtype)
    dtypes = (np.dtype(np.uint8), out.dtype.numpy, out.dtype.numpy, out.dtype.numpy)

    def run(condition: Array, x1: Any, x2: Any, target: Array) -> None:
        operands = (condition.view(np.uint8), rounded(x1, out.dtype), rounded(x2, out.dtype))
        mask = np.empty(0, words)
        for c, a, b, result in in_blocks_together(operands, target, dtypes):
            if len(mask) < len(c):
                mask = np.empty(len(c), words)
            m = mask[: len(c)]
            a_words, b_words, out_words = a.view(words), b.view(words), result.view(words)
            np.not_equal(c, 0, out=m, casting="unsafe")
            np.negative(m, out=m)
            # b ^ ((a ^ b) & m)
            np.bitwise_and(m, np.bitwise_xor(a_words, b_words), out=m)
            np.bitwise_xor(b_words, m, out=out_words)

    return Launch(function=run, args=("condition", "x1", "x2", "out"))


def _words(dtype: DType) -> np.dtype[Any]:
    """Return the unsigned integers of an element's width."""
    return np.dtype(f"uint{8 * dtype.itemsize}")
