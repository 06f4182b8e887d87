"""Elementwise ops: add, multiply, divide, sqrt, gelu, astype."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from nbx_registry import dtypes
from nbx_registry.cost import Cost, default_cost, distinct_positions, inputs
from nbx_registry.dtypes import DType
from nbx_registry.errors import SignatureError
from nbx_registry.infer import broadcast, result_dtype
from nbx_registry.op import op
from nbx_registry.rounding import integer_range, integers_as_float64, round_to_float
from nbx_registry.signature import Signature
from nbx_registry.spec import TensorSpec

Array = np.ndarray[Any, np.dtype[Any]]

FLOAT32 = dtypes.get("float32")


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


@op("sqrt@1(x: F[*X]) -> F[*X]", flops="x.size", least_flops="x.distinct", accumulation="3")
def sqrt(x: Array) -> Array:
    """Take the square root of each element.

    Parameters
    ----------
    x : floating, any shape

    Returns
    -------
    floating, the shape and dtype of ``x``
        NaN for numbers below zero, -0.0 for -0.0, +inf for +inf. float32 roots are within 2.5 ulp, what the shader
        languages promise; narrower ones are rounded once from such.

    Notes
    -----
    Python array API standard 2024.12, ``sqrt``.
    """
    return np.sqrt(x)


def gelu_erf(x: Array) -> Array:
    """Return x times the normal distribution function of x, in float64."""
    # erfc keeps the digits that 1 + erf loses where x is far below zero.
    return 0.5 * x * np.vectorize(math.erfc, otypes=[np.float64])(-x / math.sqrt(2))


def gelu_tanh(x: Array) -> Array:
    """Return the approximation of `gelu_erf` by tanh, in float64."""
    return 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))


def cost_gelu(signature: Signature) -> Cost:
    """Count an elementary function as one operation: 5 an element in the erf form, 9 in the tanh form."""
    (x,) = signature.operands
    each = 5 if signature.attributes["approximate"] == "none" else 9
    return default_cost(signature, flops=each * x.size, least_flops=each * x.distinct)


def magnitude_gelu(signature: Signature, x: Array, *, approximate: str) -> Array:
    """Return |x|: where x is far below zero the result is a small difference of numbers of that size."""
    return np.abs(x)


@op(
    "gelu@1(x: F[*X], *, approximate: str = 'none') -> F[*X]",
    require="approximate in ('none', 'tanh')",
    cost=cost_gelu,
    accumulation="6",
    magnitude=magnitude_gelu,
)
def gelu(x: Array, *, approximate: str) -> Array:
    """Apply the Gaussian error linear unit to each element.

    ``approximate="none"`` is ``x Phi(x) = x/2 (1 + erf(x / sqrt(2)))``; ``"tanh"`` is
    ``x/2 (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3)))``.

    Parameters
    ----------
    x : floating, any shape
    approximate : "none" or "tanh"

    Returns
    -------
    floating, the shape and dtype of ``x``
        Computed in float32 (float64 in float64), rounded once. NaN gives NaN, +inf gives +inf, -inf gives NaN (-inf
        times 0).

    Raises
    ------
    SignatureError
        For another ``approximate``.

    Notes
    -----
    Hendrycks and Gimpel, "Gaussian Error Linear Units", 2016 (arXiv:1606.08415).
    """
    return gelu_tanh(x) if approximate == "tanh" else gelu_erf(x)


def infer_astype(signature: Signature) -> TensorSpec:
    """Infer the output's dtype from the attribute."""
    (x,) = signature.operands
    dtype: DType = signature.attributes["dtype"]
    if x.dtype.kind == "complex" and dtype.kind != "complex":
        raise SignatureError(
            f"astype: x is {x.dtype.name}, which does not convert to {dtype.name}; take its real part first",
            code="DTYPE",
        )
    return TensorSpec(dtype, x.shape)


@op(
    "astype@1(x: T1[*X], *, dtype: dtype, saturate: bool = False) -> T2[*X]",
    infer=infer_astype,
    exact=True,
)
def astype(x: Array, *, dtype: DType, saturate: bool) -> Array:
    """Convert each element to another dtype, always into a new tensor.

    Parameters
    ----------
    x : any dtype and shape
    dtype : dtype
    saturate : bool
        Clamp numbers beyond the target's range, infinities too, to its ends.

    Returns
    -------
    ``dtype``, the shape of ``x``
        To a floating dtype: rounded once, to nearest even. Beyond the largest number an infinity (float8_e4m3fn and
        float8_e4m3fnuz: NaN; float4_e2m1fn, which has neither: the largest number, and any value for NaN). From an
        integer to an integer: modulo 2^bits. From a floating to an integer dtype: truncated towards zero; NaN gives
        0, and a number beyond the range without ``saturate`` anything: no kernel may be relied on there. To bool:
        False for zeros alone. From bool: 0 and 1.

    Raises
    ------
    SignatureError
        For a complex tensor and a dtype that is not.

    Notes
    -----
    Python array API standard 2024.12, ``astype``; IEEE 754-2019, section 4.3.1; saturation as the conversions of PTX
    (``.satfinite``) have it.
    """
    if dtype.kind == "bool":
        return x != 0
    if dtype.kind == "complex":
        wide = x if x.dtype.kind == "c" else integers_as_float64(x).astype(np.complex128)
        parts = [round_to_float(part, FLOAT32, saturate=saturate) for part in (np.real(wide), np.imag(wide))]
        # Not real + 1j * imaginary: an infinity times the 0 of 1j is NaN.
        return np.stack(parts, axis=-1).view(np.complex128)[..., 0]
    if dtype.floating:
        if x.dtype.kind != "f" and dtype.bits == 64:
            return x.astype(np.float64)
        wide = x if x.dtype.kind == "f" else integers_as_float64(x)
        return round_to_float(wide, dtype, saturate=saturate)
    low, high = integer_range(dtype)
    if x.dtype.kind == "f":
        # Python's integers have no range, so that nothing here wraps.
        whole = [0 if math.isnan(v) else (low if v < low else high if v > high else int(v)) for v in x.ravel().tolist()]
    else:
        whole = [int(v) for v in x.ravel().tolist()]
        if saturate:
            whole = [max(low, min(v, high)) for v in whole]
        else:
            whole = [(v - low) % (high - low + 1) + low for v in whole]
    return np.array(whole, dtype=dtype.numpy).reshape(x.shape)
