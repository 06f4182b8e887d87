"""Kernels that choose among elements: clip and where."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from nbx_registry.host.kernels.blocks import BLOCK, Array, choose, in_blocks_together
from nbx_registry.host.kernels.elementwise import rounded
from nbx_registry.launch import BindContext, Launch


def clip(context: BindContext) -> Launch:
    """Bind numpy.clip, or numpy.maximum or numpy.minimum where one bound is given."""
    signature = context.signature
    (out,) = signature.outputs
    bounds = [name for name in ("min", "max") if name in signature.names]
    if not bounds:
        return Launch(function=_copy, args=("x", "out"))
    functions: dict[str, Callable[..., object]] = {"min": np.maximum, "max": np.minimum}
    function = functions[bounds[0]] if len(bounds) == 1 else np.clip

    def run(x: Array, *given: Any) -> None:
        *values, target = given
        function(x, *(rounded(value, out.dtype) for value in values), out=target)

    return Launch(function=run, args=("x", *bounds, "out"))


def _copy(x: Array, out: Array) -> None:
    np.copyto(out, x)


def where(context: BindContext) -> Launch:
    """Bind a choice by bits, block by block: faster than numpy.where, whose branches no processor foresees."""
    (out,) = context.signature.outputs
    dtype = out.dtype.numpy
    words = np.dtype(f"uint{8 * dtype.itemsize}")

    def run(condition: Array, x1: Any, x2: Any, target: Array) -> None:
        operands = (condition, rounded(x1, out.dtype), rounded(x2, out.dtype))
        scratch = np.empty(min(BLOCK, target.size), words)
        for c, a, b, result in in_blocks_together(operands, target, (np.dtype(np.bool), dtype, dtype, dtype)):
            choose(c, a, b, result, scratch)

    return Launch(function=run, args=("condition", "x1", "x2", "out"))
