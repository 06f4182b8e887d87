"""Normalization along an axis: layer_norm, softmax."""

from __future__ import annotations

from typing import Any

import numpy as np

from nbx_registry.cost import Cost, default_cost
from nbx_registry.infer import normalise_axis
from nbx_registry.op import op
from nbx_registry.signature import Signature
from nbx_registry.spec import TensorSpec
from nbx_registry.tolerance import FLUSHED, steps

Array = np.ndarray[Any, np.dtype[Any]]


def cost_layer_norm(signature: Signature) -> Cost:
    """Five operations an element (two sums, difference, square, product), one more for a weight and for a bias."""
    x, weight, bias = signature.operands
    each = 5 + (weight is not None) + (bias is not None)
    return default_cost(signature, flops=each * x.size)


def magnitude_layer_norm(
    signature: Signature, x: Array, weight: Array | None, bias: Array | None, *, eps: float
) -> Array:
    """Return what rounding is relative to: the mean's error is a fraction of the mean magnitude, not of the mean."""
    centred = x - np.mean(x, axis=-1, keepdims=True)
    inverse = 1 / np.sqrt(np.mean(centred**2, axis=-1, keepdims=True) + eps)
    size = (np.mean(np.abs(x), axis=-1, keepdims=True) + np.abs(centred)) * inverse
    size = size if weight is None else size * np.abs(weight)
    return size if bias is None else size + np.abs(bias)


@op(
    "layer_norm@1(x: F[*B, D], weight: F[D]? = None, bias: F[D]? = None, *, eps: float = 1e-05) -> F[*B, D]",
    cost=cost_layer_norm,
    accumulation="D + 8",
    magnitude=magnitude_layer_norm,
)
def layer_norm(x: Array, weight: Array | None, bias: Array | None, *, eps: float) -> Array:
    """Normalise the last axis to mean 0 and variance 1, then scale and shift it.

    ``(x - mean) / sqrt(variance + eps) * weight + bias``, with the variance the mean squared deviation (divided by D).

    Parameters
    ----------
    x : floating [*B, D]
    weight, bias : the dtype of ``x``, [D], optional
        Ones and zeros where left out.
    eps : float
        Added to the variance.

    Returns
    -------
    floating [*B, D]
        Computed in float32 (float64 in float64) and rounded once. The variance is that of the deviations: a
        difference of mean squares loses it where the mean is large. A row with NaN or an infinity in it is NaN.

    Raises
    ------
    SignatureError
        For a weight or bias of another extent or dtype.

    Notes
    -----
    Ba, Kiros and Hinton, "Layer Normalization", 2016 (arXiv:1607.06450).
    """
    if x.shape[-1] == 0:
        return x
    centred = x - np.mean(x, axis=-1, keepdims=True)
    variance = np.mean(centred**2, axis=-1, keepdims=True)
    y = centred / np.sqrt(variance + eps)
    y = y if weight is None else y * weight
    return y if bias is None else y + bias


def infer_softmax(signature: Signature) -> TensorSpec:
    """Check the axis, and bind its extent to L."""
    (x,) = signature.operands
    signature.axes["L"] = x.shape[normalise_axis(signature.attributes["axis"], x.rank)]
    return x.dense()


def magnitude_softmax(signature: Signature, x: Array, *, axis: int) -> Array:
    """Return an element times what its exponent, its exponential and the sum may be off, in roundings."""
    if x.size == 0:
        return x
    depth = np.max(x, axis=axis, keepdims=True) - x
    p = np.exp(-depth)
    p = p / np.sum(p, axis=axis, keepdims=True)
    # The exponent -depth is rounded, and its product with log2(e); a depth of infinity gives a plain zero.
    off = np.where(p > 0, 2 * depth, 0.0)
    average = np.sum(p * off, axis=axis, keepdims=True)
    return p * (off + average + steps(x.shape[axis]) + 8) + FLUSHED


@op(
    "softmax@1(x: F[*X], *, axis: int = -1) -> F[*X]",
    where={"L": None},
    infer=infer_softmax,
    flops="5 * x.size",
    least_flops="5 * x.distinct",
    accumulation="2",
    magnitude=magnitude_softmax,
)
def softmax(x: Array, *, axis: int) -> Array:
    """Turn an axis into weights: exponentials that add up to 1.

    ``exp(x - max(x)) / sum(exp(x - max(x)))``: a large x does not overflow.

    Parameters
    ----------
    x : floating, at least rank 1
    axis : int

    Returns
    -------
    floating, the shape and dtype of ``x``
        Computed in float32 (float64 in float64) and rounded once; an exponential below the smallest normal number may
        be flushed to zero. NaN, +inf, or nothing but -inf along the axis makes all of it NaN.

    Raises
    ------
    SignatureError
        For an axis that ``x`` lacks.

    Notes
    -----
    Bridle, "Probabilistic Interpretation of Feedforward Classification Network Outputs", 1990.
    """
    if x.size == 0:
        return x
    e = np.exp(x - np.max(x, axis=axis, keepdims=True))
    return e / np.sum(e, axis=axis, keepdims=True)
