"""Elementwise kernels that are NumPy's own functions, or two of them: arithmetic, roots, exponentials, extrema."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache, partial
from typing import Any

import numpy as np
from numpy.lib import introspect

from nbx_registry.dtypes import DType
from nbx_registry.host.kernels.blocks import BLOCK, Array, in_blocks, working
from nbx_registry.launch import BindContext, Launch
from nbx_registry.rounding import round_to_float
from nbx_registry.signature import Signature

_PYTHON = (int, float)

FEW = 4096
"""Elements up to which ml_dtypes' own loops of bfloat16, which give the same, are faster than conversion by NumPy."""


def add(context: BindContext) -> Launch:
    """Bind numpy.add."""
    return arithmetic(context, np.add)


def subtract(context: BindContext) -> Launch:
    """Bind numpy.subtract."""
    return arithmetic(context, np.subtract)


def multiply(context: BindContext) -> Launch:
    """Bind numpy.multiply."""
    return arithmetic(context, np.multiply)


def divide(context: BindContext) -> Launch:
    """Bind numpy.divide."""
    return arithmetic(context, np.divide)


def maximum(context: BindContext) -> Launch:
    """Bind numpy.maximum."""
    return arithmetic(context, np.maximum)


def minimum(context: BindContext) -> Launch:
    """Bind numpy.minimum."""
    return arithmetic(context, np.minimum)


def negative(_context: BindContext) -> Launch:
    """Bind numpy.negative, which is exact in every dtype."""
    return Launch(function=np.negative, args=("x", "out"))


def absolute(_context: BindContext) -> Launch:
    """Bind numpy.absolute, which is exact in every real dtype."""
    return Launch(function=np.absolute, args=("x", "out"))


def reciprocal(context: BindContext) -> Launch:
    """Bind numpy.reciprocal."""
    return arithmetic(context, np.reciprocal)


def sqrt(context: BindContext) -> Launch:
    """Bind numpy.sqrt."""
    return arithmetic(context, np.sqrt)


def relu(context: BindContext) -> Launch:
    """Bind numpy.maximum with zero."""
    wide = _function(np.maximum, context.signature)

    def run(x: Array, out: Array) -> None:
        wide(x, 0, out=out)

    return Launch(function=run, args=("x", "out"))


def rsqrt(context: BindContext) -> Launch:
    """Bind a root and a division, block by block."""
    (spec,) = context.signature.operands
    dtype = working(spec.dtype)
    one = dtype.type(1)

    def run_few(x: Array, out: Array) -> None:
        np.divide(one, np.sqrt(x), out)

    def run(x: Array, out: Array) -> None:
        for block, target in in_blocks(x, out, dtype):
            np.sqrt(block, target)
            np.divide(one, target, target)

    few = spec.size <= BLOCK and spec.dtype.numpy == dtype
    return Launch(function=run_few if few else run, args=("x", "out"))


def exp(context: BindContext) -> Launch:
    """Bind numpy.exp."""
    return _elementary(context, np.exp)


def log(context: BindContext) -> Launch:
    """Bind numpy.log."""
    return _elementary(context, np.log)


def tanh(context: BindContext) -> Launch:
    """Bind numpy.tanh."""
    return _elementary(context, np.tanh)


def arithmetic(context: BindContext, function: np.ufunc) -> Launch:
    """Bind a function of NumPy whose results are rounded once, over the op's operands in order."""
    signature = context.signature
    args = signature.names
    (out,) = signature.outputs
    wide = _function(function, signature)
    weak = weak_is_rounded(signature)
    # These two take an output by keyword alone.
    if not weak and function not in (np.maximum, np.minimum):
        return Launch(function=wide, args=args)

    def run(x1: Any, x2: Any, target: Array) -> None:
        wide(x1, x2, out=target)

    def run_weak(x1: Any, x2: Any, target: Array) -> None:
        wide(rounded(x1, out.dtype), rounded(x2, out.dtype), out=target)

    return Launch(function=run_weak if weak else run, args=args)


def weak_is_rounded(signature: Signature) -> bool:
    """Return whether there are Python scalars to be `rounded`: they take the arrays' dtype, in which NumPy rounds too.

    But in dtypes that are not its own it takes them for float64.
    """
    return any(spec is not None and spec.weak for spec in signature.operands) and not _numpy_owns(
        signature.outputs[0].dtype
    )


def rounded(operand: Any, dtype: DType) -> Any:
    """Return an operand, a Python scalar in a dtype."""
    if not isinstance(operand, _PYTHON):
        return operand
    # Of zeros the key of a cache does not tell the sign.
    return _scalar(operand, dtype) if operand else dtype.numpy.type(operand)


@lru_cache(maxsize=256)
def _scalar(number: float, dtype: DType) -> Any:
    if not dtype.floating or _numpy_owns(dtype):
        return dtype.numpy.type(number)
    # On the way to the dtype ml_dtypes would round a first time.
    exact = np.float32(number) == number
    return dtype.numpy.type(float(number if exact else round_to_float(np.float64(number), dtype)))


def _function(function: np.ufunc, signature: Signature) -> Callable[..., Any]:
    """Return a function of NumPy that computes an op's results, rounding once."""
    (out,) = signature.outputs
    dtype = out.dtype
    own = (
        dtype.name == "bfloat16"
        and out.size <= FEW
        and all(spec.dtype is dtype for spec in signature.operands if not spec.weak)
    )
    if _numpy_owns(dtype) or own:
        # NumPy rounds once here: it computes float16 in float32, and mixed dtypes in the wider one, which is out's.
        return function
    # A ufunc told its dtype converts what it reads and writes block by block, with no array beside.
    return partial(function, dtype=working(dtype) if dtype.floating else np.dtype(np.int16), casting="unsafe")


def _elementary(context: BindContext, function: np.ufunc) -> Launch:
    """Bind an elementary function, in float32 for narrower dtypes."""
    (out,) = context.signature.outputs
    dtype = working(out.dtype)
    plain = dtype == out.dtype.numpy or (out.dtype.name == "float16" and _in_float32(function))
    return Launch(function=function if plain else partial(function, dtype=dtype, casting="unsafe"), args=("x", "out"))


def _in_float32(function: np.ufunc) -> bool:
    """Return whether NumPy computes a function of float16 in float32: where the processor knows float16 it does not."""
    name = function.__name__
    loops = introspect.opt_func_info(func_name=f"^{name}$", signature="float16").get(name, {})
    return all(loop["current"] != "AVX512_SPR" for loop in loops.values())


def _numpy_owns(dtype: DType) -> bool:
    return (dtype.numpy_name or "").startswith("numpy:")
