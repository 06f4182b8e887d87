"""What kernels that normalise share: the dtype they compute in, quotients and roots rounded once, weight and bias."""

from __future__ import annotations

import triton
import triton.language as tl

from nbx_registry.spec import TensorSpec
from nbx_triton.launching import Argument


@triton.jit
def compute(x):
    """Return ``x`` in the dtype that is computed in."""
    if x.dtype != tl.float64:
        x = x.to(tl.float32)
    return x


@triton.jit
def zeros(dtype: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    """Return zeros in the dtype that elements of ``dtype`` are computed in."""
    if dtype == tl.float64:
        block = tl.zeros((ROWS, COLUMNS), tl.float64)
    else:
        block = tl.zeros((ROWS, COLUMNS), tl.float32)
    return block


@triton.jit
def quotient(x, y):
    """Return x / y, correctly rounded."""
    if x.dtype == tl.float64:
        z = x / y
    else:
        z = tl.div_rn(x, y)
    return z


@triton.jit
def reciprocal(x):
    """Return 1 / x, correctly rounded."""
    if x.dtype == tl.float64:
        y = 1.0 / x
    else:
        y = tl.div_rn(1.0, x)
    return y


@triton.jit
def reciprocal_root(x):
    """Return 1 / sqrt(x)."""
    if x.dtype == tl.float64:
        y = 1.0 / tl.sqrt(x)
    else:
        y = tl.div_rn(1.0, tl.sqrt_rn(x))
    return y


@triton.jit
def factors(vector, column, inside, stride):
    """Return elements of a weight or bias where they are ``inside``, all of them where that is None; None of no vector.

    No load goes past the barriers of a reduction: where latency counts more than registers, they are loaded before.
    """
    if vector is None:
        a = None
    elif inside is None:
        a = tl.load(vector + column * stride)
    else:
        a = tl.load(vector + column * stride, mask=inside, other=0)
    return a


@triton.jit
def affine(y, weight, bias):
    """Return y * weight + bias of loaded `factors`, either of which may be None."""
    if weight is not None:
        y = y * compute(weight)
    if bias is not None:
        y = y + compute(bias)
    return y


def affine_arguments(**vectors: TensorSpec | None) -> dict[str, Argument]:
    """Return the arguments of weight and bias, by name: the operand, or None, and its stride as ``<name>_stride``."""
    operands = {name: None if vector is None else name for name, vector in vectors.items()}
    strides = {f"{name}_stride": 0 if vector is None else vector.strides[0] for name, vector in vectors.items()}
    return {**operands, **strides}
