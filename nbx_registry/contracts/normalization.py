"""Normalization along an axis or in groups of channels: layer_norm, rms_norm, group_norm, softmax."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from nbx_registry.cost import Cost, default_cost
from nbx_registry.errors import SignatureError
from nbx_registry.infer import normalise_axis
from nbx_registry.op import op
from nbx_registry.signature import Signature
from nbx_registry.spec import TensorSpec
from nbx_registry.tolerance import FLUSHED, steps

Array = np.ndarray[Any, np.dtype[Any]]


def cost_layer_norm(signature: Signature) -> Cost:
    """Five operations an element (two sums, difference, square, product), one more for a weight and for a bias.

    At the least for each element that differs.
    """
    x, weight, bias = signature.operands
    each = 5 + (weight is not None) + (bias is not None)
    return default_cost(signature, flops=each * x.size, least_flops=each * x.distinct)


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
        difference of mean squares loses it where the mean is large. A row with NaN or an infinity in it is NaN. What
        squares of deviations beyond float32 leave is open.

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


def cost_rms_norm(signature: Signature) -> Cost:
    """Three operations an element (square, sum, product), one more for a weight; at the least where elements differ."""
    x, weight = signature.operands
    each = 3 + (weight is not None)
    return default_cost(signature, flops=each * x.size, least_flops=each * x.distinct)


@op(
    "rms_norm@1(x: F[*B, D], weight: F[D]? = None, *, eps: float = 1e-06) -> F[*B, D]",
    cost=cost_rms_norm,
    # The mean of D squares, all positive, has D roundings, of which the root halves what they come to.
    accumulation="D // 2 + 8",
)
def rms_norm(x: Array, weight: Array | None, *, eps: float) -> Array:
    """Divide the last axis by its root mean square, then scale it.

    ``x / sqrt(mean(x^2) + eps) * weight``

    Parameters
    ----------
    x : floating [*B, D]
    weight : the dtype of ``x``, [D], optional
        Ones where left out.
    eps : float
        Added to the mean square.

    Returns
    -------
    floating [*B, D]
        Computed in float32 (float64 in float64) and rounded once. A row with NaN in it is NaN; of one with an infinity
        that is NaN, and the rest zeros. What squares beyond float32 leave is open.

    Raises
    ------
    SignatureError
        For a weight of another extent or dtype.

    Notes
    -----
    Zhang and Sennrich, "Root Mean Square Layer Normalization", 2019 (arXiv:1910.07467);
    ``torch.nn.functional.rms_norm``.
    """
    if x.shape[-1] == 0:
        return x
    y = x / np.sqrt(np.mean(x**2, axis=-1, keepdims=True) + eps)
    return y if weight is None else y * weight


def infer_group_norm(signature: Signature) -> TensorSpec:
    """Bind N, C and M, the elements of a group, and hold weight and bias against C."""
    x, weight, bias = signature.operands
    if x.rank < 2:
        raise SignatureError(f"group_norm: x has rank {x.rank} ({x}), but must be [N, C, ...]", code="SHAPE")
    channels = x.shape[1]
    for name, spec in (("weight", weight), ("bias", bias)):
        if spec is not None and spec.shape != (channels,):
            raise SignatureError(
                f"group_norm: axis K of {name} is {spec.shape[0]}, but axis 1 of x, its channels, is {channels}",
                code="SHAPE",
            )
    signature.axes.update(N=x.shape[0], C=channels, M=channels // signature.attributes["groups"] * prod(x.shape[2:]))
    return x.dense()


def cost_group_norm(signature: Signature) -> Cost:
    """As `cost_layer_norm`: five operations an element, one more for a weight and for a bias."""
    return cost_layer_norm(signature)


def magnitude_group_norm(
    signature: Signature, x: Array, weight: Array | None, bias: Array | None, *, groups: int, eps: float
) -> Array:
    """Return what rounding is relative to, as `magnitude_layer_norm` does."""
    if x.size == 0:
        return x
    rows = x.reshape(x.shape[0], groups, -1)
    size = magnitude_layer_norm(signature, rows, None, None, eps=eps).reshape(x.shape)
    size = size if weight is None else size * np.abs(_by_channel(weight, x.ndim))
    return size if bias is None else size + np.abs(_by_channel(bias, x.ndim))


def _by_channel(values: Array, rank: int) -> Array:
    return values.reshape(-1, *(1,) * (rank - 2))


@op(
    "group_norm@1(x: F[*X], weight: F[K]? = None, bias: F[K]? = None, *, groups: int, eps: float = 1e-05) -> F[*X]",
    where={"N": None, "C": None, "M": None},
    require=("groups >= 1", "C % groups == 0"),
    infer=infer_group_norm,
    cost=cost_group_norm,
    accumulation="M + 8",
    magnitude=magnitude_group_norm,
)
def group_norm(x: Array, weight: Array | None, bias: Array | None, *, groups: int, eps: float) -> Array:
    """Normalise groups of channels, with all their pixels, to mean 0 and variance 1, then scale and shift channels.

    Channels are cut into ``groups`` runs of C / groups. Each run of each image is one row for
    ``(x - mean) / sqrt(variance + eps)``, the variance the mean squared deviation; then ``* weight[c] + bias[c]``.

    Parameters
    ----------
    x : floating [N, C, ...]
        Any number of axes after the channels, none included.
    weight, bias : the dtype of ``x``, [C], optional
        Ones and zeros where left out.
    groups : int
        At least 1; C is a multiple of it. 1 normalises all channels together, C each by itself (``num_groups`` of
        torch).
    eps : float
        Added to the variance.

    Returns
    -------
    floating, the shape and dtype of ``x``
        Computed in float32 (float64 in float64) and rounded once. The variance is that of the deviations: a
        difference of mean squares loses it where the mean is large. A group with NaN or an infinity in it is NaN. What
        squares of deviations beyond float32 leave is open.

    Raises
    ------
    SignatureError
        For fewer than two axes, groups < 1, C no multiple of groups, and a weight or bias of another extent or dtype.

    Notes
    -----
    Wu and He, "Group Normalization", 2018 (arXiv:1803.08494); ``torch.nn.functional.group_norm``.
    """
    if x.size == 0:
        return x
    rows = x.reshape(x.shape[0], groups, -1)
    centred = rows - np.mean(rows, axis=-1, keepdims=True)
    variance = np.mean(centred**2, axis=-1, keepdims=True)
    y = (centred / np.sqrt(variance + eps)).reshape(x.shape)
    y = y if weight is None else y * _by_channel(weight, x.ndim)
    return y if bias is None else y + _by_channel(bias, x.ndim)


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
