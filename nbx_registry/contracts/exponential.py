"""Powers, roots, exponentials and what is made of them: pow, sqrt, rsqrt, exp, log, tanh, erf."""

from __future__ import annotations

import builtins
import math
from typing import Any

import numpy as np

from nbx_registry import dtypes
from nbx_registry.contracts.elementwise import cost_binary
from nbx_registry.errors import SignatureError
from nbx_registry.infer import broadcast, result_dtype
from nbx_registry.op import op
from nbx_registry.rounding import integer_range
from nbx_registry.signature import Signature
from nbx_registry.spec import TensorSpec

Array = np.ndarray[Any, np.dtype[Any]]


def infer_pow(signature: Signature) -> TensorSpec:
    """Infer the output of a base and an exponent that broadcast and promote."""
    x, e = signature.operands
    dtype = result_dtype(x, e, ("x", "e"))
    if dtype.kind == "complex":
        raise SignatureError(
            "pow: x or e is complex64, of which no powers are taken here; take those of its magnitude (abs)",
            code="DTYPE",
        )
    return TensorSpec(dtype, broadcast((x.shape, e.shape), ("x", "e")))


def magnitude_pow(signature: Signature, x: Array, e: Array) -> Array:
    """Return what makes the bound: 0.5 ulp for squares, 1.5 for cubes, else 2, or one rounding a multiplication.

    The accumulation of 2 leaves one rounding of float32 (float64) relative to this, twice its unit roundoff: an ulp
    is that of the power of two below.
    """
    result = np.abs(power(x, e))
    ulp = np.ldexp(1.0, np.frexp(result)[1] - 1)
    count = np.abs(e)
    # By repeated multiplication, and a reciprocal: all but the last rounding, each of half of 2 units.
    chain = np.where((e == np.rint(e)) & (count <= 8), np.where(e > 0, count - 2, count - 1), 0) / 2 * result
    general = np.maximum(1.5 * ulp, chain)
    return np.where((e == 1) | (e == 2), 0.0, np.where(e == 3, ulp, general))


def power(x: Array, e: Array) -> Array:
    """Return x to the power of e in float64: C's pow, but for x itself and squares, which are rounded once."""
    # An exponent for each base: of a single 0.5 numpy.power makes a root, which has other signs.
    shape = np.broadcast_shapes(x.shape, e.shape)
    base, exponent = (np.array(np.broadcast_to(a, shape)).reshape(-1) for a in (x, e))
    result = np.power(base, exponent)
    return np.where(exponent == 1, base, np.where(exponent == 2, base * base, result)).reshape(shape)


@op(
    "pow@1(x: N1[*A], e: N2[*B]) -> N3[*C]",
    infer=infer_pow,
    cost=cost_binary,
    accumulation="2",
    magnitude=magnitude_pow,
    signed_zeros=True,
    index_bounds={"e": ("0", None)},
)
def pow(x: Array, e: Array) -> Array:
    """Raise each element to a power, broadcasting.

    Parameters
    ----------
    x : integer or floating
    e : integer or floating, a shape that broadcasts with that of ``x``
        Either may be a Python scalar, which takes the other's dtype: an integer beside a floating tensor is a floating
        number.

    Returns
    -------
    integer or floating, the broadcast shape
        In the dtype the two promote to.

        Floating: as IEEE 754 ``pow``. x to the 0 is 1, NaN too; 1 to the NaN is 1. A finite x below zero with an
        integer e gives |x| to the e with the sign of an odd e, with another finite e NaN; an infinite e is even. Zeros
        to an e above zero give zero, below zero infinity, negative for -0.0 with an odd integer e alone; so do
        infinities with the reciprocals. (-inf) to the 0.5 is +inf, (-0.0) to the 0.5 is +0.0. In float32: squares
        within 0.5 ulp, cubes within 1.5, all others within 2, or (for an integer e up to 8 in magnitude) as many
        roundings as repeated multiplication and one reciprocal make, where these are more. Results below the normal
        numbers are no zeros. float64 the same in float64; narrower dtypes are rounded once from float32.

        Integers: exact, wrapping around. 0 to the 0 is 1.

    Raises
    ------
    SignatureError
        As `add` does; for complex64, and for a Python scalar that is bool or complex. For a negative exponent of an
        integer tensor: a Python integer anywhere, a tensor of exponents on the host; on a device such a tensor is out
        of contract. Convert x with `astype`.

    Notes
    -----
    Python array API standard 2024.12, ``pow``; IEEE 754-2019, section 9.2.1.
    """
    if x.dtype.kind == "f":
        return power(x, e)
    dtype = np.result_type(x, e)
    low, high = integer_range(dtypes.of_numpy(dtype))
    base, exponent = np.broadcast_arrays(x, e)
    residues = (
        builtins.pow(int(b), int(k), high - low + 1) for b, k in zip(base.ravel(), exponent.ravel(), strict=True)
    )
    whole = [(r - low) % (high - low + 1) + low for r in residues]
    return np.array(whole, dtype=np.int64 if low else np.uint64).astype(dtype).reshape(base.shape)


@op("sqrt@1(x: F[*X]) -> F[*X]", flops="x.size", least_flops="x.distinct", accumulation="3", signed_zeros=True)
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


@op("rsqrt@1(x: F[*X]) -> F[*X]", flops="x.size", least_flops="x.distinct", accumulation="6")
def rsqrt(x: Array) -> Array:
    """Take the reciprocal of the square root of each element.

    Parameters
    ----------
    x : floating, any shape

    Returns
    -------
    floating, the shape and dtype of ``x``
        NaN for numbers below zero, +inf for 0.0, -inf for -0.0, 0.0 for +inf. float32 results are within 5.5 ulp: a
        root and a reciprocal, each as the shader languages promise; narrower ones are rounded once from such.

    Notes
    -----
    ``torch.rsqrt``; IEEE 754-2019, section 9.2.1, rSqrt.
    """
    return 1 / np.sqrt(x)


@op("exp@1(x: F[*X]) -> F[*X]", flops="x.size", least_flops="x.distinct", accumulation="5", signed_zeros=True)
def exp(x: Array) -> Array:
    """Raise e to each element.

    Parameters
    ----------
    x : floating, any shape

    Returns
    -------
    floating, the shape and dtype of ``x``
        0.0 for -inf, +inf for +inf. float32 results are within 4.5 ulp, subnormal ones too: what precise functions of
        shader languages promise (4 ulp), and far less than an exponent that was multiplied by log2(e) in float32 is
        off; narrower ones are rounded once from such.

    Notes
    -----
    Python array API standard 2024.12, ``exp``; Metal Shading Language Specification, section Numerical Compliance.
    """
    return np.exp(x)


@op("log@1(x: F[*X]) -> F[*X]", flops="x.size", least_flops="x.distinct", accumulation="5", signed_zeros=True)
def log(x: Array) -> Array:
    """Take the natural logarithm of each element.

    Parameters
    ----------
    x : floating, any shape

    Returns
    -------
    floating, the shape and dtype of ``x``
        NaN for numbers below zero, -inf for zeros of either sign, 0.0 for 1, +inf for +inf. float32 results are within
        4.5 ulp, near 1 too, where a base-2 logarithm with an absolute error has no digits left; narrower ones are
        rounded once from such.

    Notes
    -----
    Python array API standard 2024.12, ``log``; Metal Shading Language Specification, section Numerical Compliance.
    """
    return np.log(x)


@op("tanh@1(x: F[*X]) -> F[*X]", flops="x.size", least_flops="x.distinct", accumulation="6", signed_zeros=True)
def tanh(x: Array) -> Array:
    """Take the hyperbolic tangent of each element.

    Parameters
    ----------
    x : floating, any shape

    Returns
    -------
    floating, the shape and dtype of ``x``
        -1 and 1 for infinities, zeros as they are. float32 results are within 5.5 ulp (precise functions of shader
        languages promise 5), near zero too, where a quotient of exponentials cancels; narrower ones are rounded once
        from such.

    Notes
    -----
    Python array API standard 2024.12, ``tanh``; Metal Shading Language Specification, section Numerical Compliance.
    """
    return np.tanh(x)


@op("erf@1(x: F[*X]) -> F[*X]", flops="x.size", least_flops="x.distinct", accumulation="5", signed_zeros=True)
def erf(x: Array) -> Array:
    """Take the error function of each element: ``2 / sqrt(pi)`` times the integral of ``exp(-t^2)`` from 0 to x.

    Parameters
    ----------
    x : floating, any shape

    Returns
    -------
    floating, the shape and dtype of ``x``
        -1 and 1 for infinities, zeros as they are. float32 results are within 4.5 ulp, near zero too; narrower ones are
        rounded once from such.

    Notes
    -----
    ``torch.erf``; NIST Digital Library of Mathematical Functions, section 7.2.
    """
    return np.vectorize(math.erf, otypes=[np.float64])(x)
