"""Activations: relu, sigmoid, silu, gelu."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from nbx_registry.contracts.choosing import refuse_complex
from nbx_registry.cost import Cost, default_cost
from nbx_registry.op import op
from nbx_registry.signature import Signature
from nbx_registry.spec import TensorSpec
from nbx_registry.tolerance import FLUSHED

Array = np.ndarray[Any, np.dtype[Any]]


def infer_relu(signature: Signature) -> TensorSpec:
    """Infer the output: as ``x``."""
    (x,) = signature.operands
    refuse_complex(signature, "x")
    return TensorSpec(x.dtype, x.shape)


@op(
    "relu@1(x: N[*X]) -> N[*X]",
    infer=infer_relu,
    flops="x.size",
    least_flops="x.distinct",
    ulp=0,
    signed_zeros=False,
)
def relu(x: Array) -> Array:
    """Replace what is below zero by zero.

    Parameters
    ----------
    x : integer or floating, any shape

    Returns
    -------
    integer or floating, the shape and dtype of ``x``
        Exact. NaN gives NaN; -0.0 a zero of either sign.

    Raises
    ------
    SignatureError
        For complex64, which has no order.

    Notes
    -----
    ``torch.nn.functional.relu``.
    """
    return np.maximum(x, np.zeros((), x.dtype))


def flushed(signature: Signature) -> float:
    """Return a magnitude whose rounding is the smallest normal number of what the op computes in."""
    (x,) = signature.operands
    return 2.0**-969 if x.dtype.bits == 64 else FLUSHED


def sigmoid_of(x: Array) -> Array:
    """Return ``1 / (1 + exp(-x))`` in float64, from the exponential that does not overflow."""
    small = np.exp(-np.abs(x))
    return np.where(x < 0, small, 1.0) / (1 + small)


def magnitude_sigmoid(signature: Signature, x: Array) -> Array:
    """Return the result, or so much that it may vanish where it is below the normal numbers."""
    return np.maximum(sigmoid_of(x), flushed(signature))


@op(
    "sigmoid@1(x: F[*X]) -> F[*X]",
    flops="4 * x.size",
    least_flops="4 * x.distinct",
    accumulation="8",
    magnitude=magnitude_sigmoid,
    signed_zeros=True,
)
def sigmoid(x: Array) -> Array:
    """Apply the logistic function to each element: ``1 / (1 + exp(-x))``.

    Parameters
    ----------
    x : floating, any shape

    Returns
    -------
    floating, the shape and dtype of ``x``
        0.0 for -inf, 1 for +inf, no NaN for any number. float32 results are within 7.5 ulp: an exponential, a sum and a
        reciprocal, each as its own contract allows; what is below the normal numbers may be zero. Narrower ones are
        rounded once from such.

    Notes
    -----
    ``torch.sigmoid``. ``flops`` counts an exponential as one operation.
    """
    return sigmoid_of(x)


def magnitude_silu(signature: Signature, x: Array) -> Array:
    """Return |x| times what `magnitude_sigmoid` allows."""
    return np.abs(x) * magnitude_sigmoid(signature, x)


@op(
    "silu@1(x: F[*X]) -> F[*X]",
    flops="4 * x.size",
    least_flops="4 * x.distinct",
    accumulation="9",
    magnitude=magnitude_silu,
    signed_zeros=True,
)
def silu(x: Array) -> Array:
    """Apply the sigmoid linear unit to each element: ``x sigmoid(x)``.

    Parameters
    ----------
    x : floating, any shape

    Returns
    -------
    floating, the shape and dtype of ``x``
        NaN gives NaN, +inf gives +inf, -inf gives NaN (-inf times 0). A result of zero has the sign of ``x``. float32
        results are within 8.5 ulp, one more than those of `sigmoid`; where `sigmoid` is below the normal numbers the
        result may be zero. Narrower ones are rounded once from such.

    Notes
    -----
    Elfwing, Uchibe and Doya, "Sigmoid-weighted linear units for neural network function approximation in
    reinforcement learning", 2017 (arXiv:1702.03118); ``torch.nn.functional.silu``.
    """
    return x * sigmoid_of(x)


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
    signed_zeros=True,
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
        times 0). A result of zero has the sign of ``x``.

    Raises
    ------
    SignatureError
        For another ``approximate``.

    Notes
    -----
    Hendrycks and Gimpel, "Gaussian Error Linear Units", 2016 (arXiv:1606.08415).
    """
    return gelu_tanh(x) if approximate == "tanh" else gelu_erf(x)
