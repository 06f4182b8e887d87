"""Activations, block by block: relu, sigmoid, silu, gelu; and erf, which shares their arithmetic."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from nbx_registry.host.kernels.blocks import BLOCK, Array, in_blocks, working
from nbx_registry.host.kernels.gaussian import erf as erf_of_block
from nbx_registry.host.kernels.gaussian import gelu_float32, gelu_float64, gelu_tanh
from nbx_registry.launch import BindContext, Launch

Activation = Callable[[Array, Array, Any], None]
"""``(x, out, scratch)`` over one block, in place or not; scratch is [3, >= len(x)].

Without scratch (None) sigmoid and silu make what they need, of any shape, and write ``out`` last.
"""


def sigmoid(context: BindContext) -> Launch:
    """Bind sigmoid."""
    return _few(context, _sigmoid) or _in_blocks(context, _sigmoid)


def silu(context: BindContext) -> Launch:
    """Bind silu."""
    return _few(context, _silu) or _in_blocks(context, _silu)


def erf(context: BindContext) -> Launch:
    """Bind the error function."""
    return _in_blocks(context, erf_of_block)


def gelu(context: BindContext) -> Launch:
    """Bind gelu, in either form."""
    form = "gelu" if context.signature.attributes["approximate"] == "none" else "gelu_tanh"
    return _in_blocks(context, activation(form, working(context.signature.outputs[0].dtype)))


def activation(name: str, dtype: np.dtype[Any]) -> Activation:
    """Return ``relu``, ``gelu``, ``gelu_tanh`` or ``silu`` over blocks of float32 or float64."""
    if name == "gelu":
        return gelu_float64 if dtype == np.float64 else gelu_float32
    return {"gelu_tanh": gelu_tanh, "relu": _relu, "silu": _silu}[name]


def _in_blocks(context: BindContext, activate: Activation) -> Launch:
    """Bind a function of blocks, in float32 or float64."""
    (spec,) = context.signature.operands
    dtype = working(spec.dtype)

    def run(x: Array, out: Array) -> None:
        scratch = np.empty((3, min(BLOCK, x.size)), dtype)
        for block, target in in_blocks(x, out, dtype):
            activate(block, target, scratch)

    return Launch(function=run, args=("x", "out"))


def _few(context: BindContext, activate: Activation) -> Launch | None:
    """Bind a function that needs no scratch, if the elements are so few that blocks would take longer to begin."""
    (spec,) = context.signature.operands
    dtype = working(spec.dtype)
    if spec.size > BLOCK:
        return None

    def run(x: Array, out: Array) -> None:
        activate(x, out, None)

    def run_narrow(x: Array, out: Array) -> None:
        y = x.astype(dtype)
        activate(y, y, None)
        np.copyto(out, y, casting="unsafe")

    return Launch(function=run if spec.dtype.numpy == dtype else run_narrow, args=("x", "out"))


def _relu(x: Array, out: Array, _scratch: Any) -> None:
    np.maximum(x, x.dtype.type(0), out=out)


def _sigmoid(x: Array, out: Array, scratch: Any) -> None:
    # An exponential that overflows is on the way to 0.
    t = np.empty(x.shape, x.dtype) if scratch is None else scratch[0, : len(x)]
    np.negative(x, t)
    np.exp(t, t)
    np.add(t, x.dtype.type(1), t)
    np.divide(x.dtype.type(1), t, out)


def _silu(x: Array, out: Array, scratch: Any) -> None:
    t = np.empty(x.shape, x.dtype) if scratch is None else scratch[0, : len(x)]
    np.negative(x, t)
    np.exp(t, t)
    np.add(t, x.dtype.type(1), t)
    np.divide(x, t, out)
