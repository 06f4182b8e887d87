"""Arithmetic element by element: add, subtract, multiply, divide, negative, abs, reciprocal."""

from __future__ import annotations

from typing import Any

import numpy as np

from nbx_registry import dtypes
from nbx_registry.cost import Cost, default_cost, distinct_positions, inputs
from nbx_registry.infer import broadcast, result_dtype
from nbx_registry.op import op
from nbx_registry.signature import Signature
from nbx_registry.spec import TensorSpec

Array = np.ndarray[Any, np.dtype[Any]]


def infer_binary(signature: Signature) -> TensorSpec:
    """Infer the output of two operands that broadcast and promote."""
    x1, x2 = signature.operands
    return TensorSpec(result_dtype(x1, x2), broadcast((x1.shape, x2.shape), ("x1", "x2")))


def cost_binary(signature: Signature) -> Cost:
    """One operation an element; at the least one for each element that differs."""
    (out,) = signature.outputs
    operands = [spec for spec, _ in inputs(signature)]
    return default_cost(signature, flops=out.size, least_flops=distinct_positions(operands, out.shape))


@op("add@1(x1: N1[*A], x2: N2[*B]) -> N3[*C]", infer=infer_binary, cost=cost_binary)
def add(x1: Array, x2: Array) -> Array:
    """Add two tensors element by element, broadcasting.

    Parameters
    ----------
    x1, x2 : numeric, shapes that broadcast
        Either may be a Python scalar, which takes the other's dtype.

    Returns
    -------
    numeric, the broadcast shape
        In the dtype the two promote to. Integers wrap around; floating sums are rounded once.

    Raises
    ------
    SignatureError
        For shapes that do not broadcast, and dtypes that do not promote (integer with floating, float16 with bfloat16,
        signed with uint64): convert one with `astype`.

    Notes
    -----
    Python array API standard 2024.12, ``add``.
    """
    return x1 + x2


@op("subtract@1(x1: N1[*A], x2: N2[*B]) -> N3[*C]", infer=infer_binary, cost=cost_binary)
def subtract(x1: Array, x2: Array) -> Array:
    """Subtract one tensor from another element by element, broadcasting.

    Parameters
    ----------
    x1, x2 : numeric, shapes that broadcast
        Either may be a Python scalar, which takes the other's dtype.

    Returns
    -------
    numeric, the broadcast shape
        ``x1 - x2`` in the dtype the two promote to. Integers wrap around; floating differences are rounded once.

    Raises
    ------
    SignatureError
        As `add` does.

    Notes
    -----
    Python array API standard 2024.12, ``subtract``.
    """
    return x1 - x2


@op("multiply@1(x1: N1[*A], x2: N2[*B]) -> N3[*C]", infer=infer_binary, cost=cost_binary)
def multiply(x1: Array, x2: Array) -> Array:
    """Multiply two tensors element by element, broadcasting.

    Parameters
    ----------
    x1, x2 : numeric, shapes that broadcast
        Either may be a Python scalar, which takes the other's dtype.

    Returns
    -------
    numeric, the broadcast shape
        In the dtype the two promote to. Integers wrap around; floating products are rounded once.

    Raises
    ------
    SignatureError
        As `add` does.

    Notes
    -----
    Python array API standard 2024.12, ``multiply``.
    """
    return x1 * x2


@op(
    "divide@1(x1: F1[*A], x2: F2[*B]) -> F3[*C]",
    infer=infer_binary,
    cost=cost_binary,
    accumulation="3",
    signed_zeros=True,
)
def divide(x1: Array, x2: Array) -> Array:
    """Divide two floating tensors element by element, broadcasting.

    Parameters
    ----------
    x1, x2 : floating, shapes that broadcast
        Either may be a Python scalar, which takes the other's dtype.

    Returns
    -------
    floating, the broadcast shape
        In the dtype the two promote to. A finite nonzero number over zero is an infinity of the proper sign, 0/0 is
        NaN. float32 quotients are within 2.5 ulp, what the shader languages promise; narrower ones are rounded once
        from such.

    Raises
    ------
    SignatureError
        As `add` does, and for integers, whose quotient the standard leaves open: convert them with `astype`.

    Notes
    -----
    Python array API standard 2024.12, ``divide``; WebGPU Shading Language, section Floating Point Accuracy.
    """
    return x1 / x2


@op("negative@1(x: N[*X]) -> N[*X]", flops="x.size", least_flops="x.distinct", ulp=0)
def negative(x: Array) -> Array:
    """Change the sign of each element.

    Parameters
    ----------
    x : numeric, any shape

    Returns
    -------
    numeric, the shape and dtype of ``x``
        Exact. Zeros change their sign too. Integers wrap around: the most negative one stays what it is, and an
        unsigned x gives 2^bits - x (0 gives 0).

    Notes
    -----
    Python array API standard 2024.12, ``negative``, extended to unsigned integers.
    """
    return -x


def infer_abs(signature: Signature) -> TensorSpec:
    """Infer the dtype: that of ``x``, float32 for complex64."""
    (x,) = signature.operands
    return TensorSpec(dtypes.get("float32") if x.dtype.kind == "complex" else x.dtype, x.shape)


@op(
    "abs@1(x: N1[*X]) -> N2[*X]",
    infer=infer_abs,
    flops="x.size",
    least_flops="x.distinct",
    accumulation="1 + 3 * (x.dtype == complex64)",
    ulp=0,
    signed_zeros=True,
)
def abs(x: Array) -> Array:
    """Take the magnitude of each element.

    Parameters
    ----------
    x : numeric, any shape

    Returns
    -------
    numeric, the shape of ``x``
        In the dtype of ``x``, exact: +0.0 for -0.0; unsigned integers as they are; the most negative integer stays
        what it is. Of complex64 float32, within 3 ulp and without overflow on the way: sqrt(re^2 + im^2), infinite
        where a part is, even beside NaN.

    Notes
    -----
    Python array API standard 2024.12, ``abs``.
    """
    return np.abs(x)


@op("reciprocal@1(x: F[*X]) -> F[*X]", flops="x.size", least_flops="x.distinct", accumulation="3", signed_zeros=True)
def reciprocal(x: Array) -> Array:
    """Divide 1 by each element.

    Parameters
    ----------
    x : floating, any shape

    Returns
    -------
    floating, the shape and dtype of ``x``
        Zeros give infinities of their sign and infinities zeros of theirs. float32 results are within 2.5 ulp, what
        the shader languages promise; narrower ones are rounded once from such.

    Notes
    -----
    Python array API standard 2024.12, ``reciprocal``; WebGPU Shading Language, section Floating Point Accuracy.
    """
    return 1 / x
