"""Kernels that choose among elements: clip and where."""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any

import numpy as np

from nbx_registry.dtypes import DType
from nbx_registry.host.kernels.blocks import BLOCK, Array, in_parts
from nbx_registry.host.kernels.elementwise import rounded, weak_is_rounded
from nbx_registry.launch import BindContext, Launch


def clip(context: BindContext) -> Launch:
    """Bind numpy.maximum, numpy.minimum or both; of many numbers numpy.clip, which is slow to begin, but goes once."""
    signature = context.signature
    (out,) = signature.outputs
    bounds = [name for name in ("min", "max") if name in signature.names]
    if not bounds:
        return Launch(function=_copy, args=("x", "out"))

    def above(x: Array, low: Any, target: Array) -> None:
        np.maximum(x, low, out=target)

    def below(x: Array, high: Any, target: Array) -> None:
        np.minimum(x, high, out=target)

    def between(x: Array, low: Any, high: Any, target: Array) -> None:
        np.clip(x, low, high, out=target)

    def between_few(x: Array, low: Any, high: Any, target: Array) -> None:
        # Not in the target, which may be the upper bound too.
        np.minimum(np.maximum(x, low), high, out=target)

    if len(bounds) == 1:
        function: Callable[..., None] = above if bounds == ["min"] else below
    else:
        function = between_few if out.size <= BLOCK and out.dtype.bits >= 8 else between
    if not weak_is_rounded(signature):
        return Launch(function=function, args=("x", *bounds, "out"))

    def run(x: Array, *given: Any) -> None:
        *values, target = given
        function(x, *(rounded(value, out.dtype) for value in values), target)

    return Launch(function=run, args=("x", *bounds, "out"))


def _copy(x: Array, out: Array) -> None:
    np.copyto(out, x)


def where(context: BindContext) -> Launch:
    """Bind a choice, of many elements by bits, block by block: no processor foresees the branches of numpy.where."""
    signature = context.signature
    condition, x1, x2 = signature.operands
    (out,) = signature.outputs
    args = ("condition", "x1", "x2", "out")
    dtype = out.dtype.numpy
    words = np.dtype(f"uint{8 * dtype.itemsize}")
    repeated = condition.size < out.size
    # What is left where the condition does not hold repeats itself too.
    settled = prod(np.broadcast_shapes(condition.shape, x2.shape)) < out.size

    def run_few(condition: Array, x1: Any, x2: Any, target: Array) -> None:
        _where(condition, _as(x1, out.dtype), _as(x2, out.dtype), target)

    def run(condition: Array, x1: Any, x2: Any, target: Array) -> None:
        a, b = _as(x1, out.dtype), _as(x2, out.dtype)
        apart = not any(np.may_share_memory(target, given) and given is not target for given in (condition, a, b))
        chosen = target if apart else np.empty(target.shape, dtype)
        a, b = a.view(words), b.view(words)
        masks = _mask(condition, words) if repeated else condition
        if settled:
            b = np.bitwise_and(b, np.invert(masks))
        for mask, first, second, result in in_parts((masks, a, b, chosen.view(words))):
            wide = mask if repeated else _mask(mask, words)
            # The result may be either of the two.
            left = second if settled else np.bitwise_and(second, np.invert(wide))
            np.bitwise_and(first, wide, result)
            np.bitwise_or(result, left, result)
        if chosen is not target:
            np.copyto(target, chosen)

    if out.size > BLOCK:
        return Launch(function=run, args=args)
    plain = all(spec.dtype is out.dtype or spec.weak for spec in (x1, x2)) and not (x1.weak and x2.weak)
    return Launch(function=_where if plain and not weak_is_rounded(signature) else run_few, args=args)


def _where(condition: Array, x1: Any, x2: Any, out: Array) -> None:
    np.copyto(out, np.where(condition, x1, x2), casting="unsafe")  # pyright: ignore[reportUnknownArgumentType]


def _mask(condition: Array, words: np.dtype[Any]) -> Array:
    """Return words of ones where a condition holds."""
    mask = condition.astype(words)
    return np.negative(mask, mask)


def _as(operand: Any, dtype: DType) -> Array:
    """Return an array, or a scalar of NumPy, in a dtype."""
    given = rounded(operand, dtype)
    return given if given.dtype == dtype.numpy else given.astype(dtype.numpy)
