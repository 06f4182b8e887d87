"""Elementwise kernels: add, multiply, divide, sqrt are NumPy's own functions; gelu works in blocks."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from nbx_registry.dtypes import DType
from nbx_registry.host.kernels.blocks import BLOCK, Array, in_blocks, working
from nbx_registry.host.kernels.gaussian import gelu_float32, gelu_float64, gelu_tanh
from nbx_registry.launch import BindContext, Launch
from nbx_registry.rounding import round_to_float

Activation = Callable[[Array, Array, Array], None]
"""``(x, out, scratch)`` over one block, in place or not; scratch is [3, >= len(x)]."""


def add(context: BindContext) -> Launch:
    """Bind numpy.add."""
    return _arithmetic(context, np.add)


def multiply(context: BindContext) -> Launch:
    """Bind numpy.multiply."""
    return _arithmetic(context, np.multiply)


def divide(context: BindContext) -> Launch:
    """Bind numpy.divide."""
    return _arithmetic(context, np.divide)


def sqrt(context: BindContext) -> Launch:
    """Bind numpy.sqrt."""
    return _arithmetic(context, np.sqrt)


def gelu(context: BindContext) -> Launch:
    """Bind gelu, in either form, block by block in float32 or float64."""
    (spec,) = context.signature.operands
    form = "gelu" if context.signature.attributes["approximate"] == "none" else "gelu_tanh"
    dtype = working(spec.dtype)
    activate = activation(form, dtype)

    def run(x: Array, out: Array) -> None:
        scratch = np.empty((3, min(BLOCK, x.size)), dtype)
        with np.errstate(all="ignore"):
            for block, target in in_blocks(x, out, dtype):
                activate(block, target, scratch)

    return Launch(function=run, args=("x", "out"))


def activation(name: str, dtype: np.dtype[Any]) -> Activation:
    """Return ``relu``, ``gelu``, ``gelu_tanh`` or ``silu`` over blocks of float32 or float64."""
    if name == "gelu":
        return gelu_float64 if dtype == np.float64 else gelu_float32
    return {"gelu_tanh": gelu_tanh, "relu": _relu, "silu": _silu}[name]


def _relu(x: Array, out: Array, _scratch: Array) -> None:
    np.maximum(x, x.dtype.type(0), out=out)


def _silu(x: Array, out: Array, scratch: Array) -> None:
    t = scratch[0, : len(x)]
    np.negative(x, t)
    np.exp(t, t)
    np.add(t, t.dtype.type(1), t)
    np.divide(x, t, out)


def _arithmetic(context: BindContext, function: np.ufunc) -> Launch:
    signature = context.signature
    args = signature.names
    (out,) = signature.outputs
    if _numpy_owns(out.dtype):
        # NumPy rounds once here: it computes float16 in float32, and mixed dtypes in the wider one, which is out's.
        return Launch(function=function, args=args)
    # A ufunc told its dtype converts what it reads and writes block by block, with no array beside.
    dtype = working(out.dtype) if out.dtype.floating else np.dtype(np.int16)
    wide: Callable[..., Any] = partial(function, dtype=dtype, casting="unsafe")
    if not any(spec.weak for spec in signature.operands):
        return Launch(function=wide, args=args)

    def run(x1: Any, x2: Any, target: Array) -> None:
        # A Python scalar takes the array's dtype before it counts.
        wide(_rounded(x1, out.dtype), _rounded(x2, out.dtype), target)

    return Launch(function=run, args=args)


def _numpy_owns(dtype: DType) -> bool:
    return (dtype.numpy_name or "").startswith("numpy:")


def _rounded(operand: Any, dtype: DType) -> Any:
    if not isinstance(operand, bool | int | float):
        return operand
    if dtype.floating:
        return dtype.numpy.type(float(round_to_float(np.float64(operand), dtype)))
    return dtype.numpy.type(operand)
