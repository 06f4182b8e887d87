"""Composites of the core: ops made of others, for devices that have no kernel of their own for them yet."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from nbx_registry.composite import Scalar, Trace, Traced


def mean(trace: Trace, x: Traced, *, axis: tuple[int, ...] | None, keepdims: bool) -> Traced:
    """Add up, then divide by the number of terms: nothing by nothing is NaN."""
    total = trace.call("sum", x, axis=axis, keepdims=keepdims)
    return trace.call("divide", total, float(x.spec.size // max(total.spec.size, 1)))


def rms_norm(trace: Trace, x: Traced, weight: Traced | None, *, eps: float) -> Traced:
    """Multiply by the reciprocal root of the mean square, then by the weight."""
    square = trace.call("mean", trace.call("multiply", x, x), axis=-1, keepdims=True)
    y = trace.call("multiply", x, trace.call("rsqrt", trace.call("add", square, eps)))
    return y if weight is None else trace.call("multiply", y, weight)


def group_norm(
    trace: Trace, x: Traced, weight: Traced | None, bias: Traced | None, *, groups: int, eps: float
) -> Traced:
    """Normalise the groups as rows; scale and shift channels."""
    y = trace.reshape(trace.call("layer_norm", trace.reshape(x, (x.shape[0], groups, -1)), eps=eps), x.shape)
    channels = (-1, *(1,) * (len(x.shape) - 2))
    if weight is not None:
        y = trace.call("multiply", y, trace.reshape(weight, channels))
    return y if bias is None else trace.call("add", y, trace.reshape(bias, channels))


def broadcast_to(trace: Trace, x: Traced, *, shape: tuple[int, ...], copy: bool) -> Traced:  # noqa: ARG001 - always
    """Write the expanded tensor out: a permutation that changes nothing, copied."""
    return trace.call("permute_dims", trace.expand(x, shape), axes=tuple(range(len(shape))), copy=True)


def take(trace: Trace, x: Traced, indices: Traced, *, axis: int) -> Traced:  # noqa: ARG001 - always the rows
    """Gather rows."""
    return trace.call("embedding", x, indices)


def linear(trace: Trace, x: Traced, w: Traced, bias: Traced | None, *, activation: str | None) -> Traced:
    """Multiply by the transposed weight, add the bias, apply the activation."""
    y = trace.call("matmul", x, trace.permute(w, (1, 0)))
    if bias is not None:
        y = trace.call("add", y, bias)
    if activation in ("gelu", "gelu_tanh"):
        y = trace.call("gelu", y, approximate="tanh" if activation == "gelu_tanh" else "none")
    elif activation is not None:
        y = trace.call(activation, y)
    return y


def subtract(trace: Trace, x1: Traced | Scalar, x2: Traced) -> Traced:
    """Add the negative."""
    return trace.call("add", x1, trace.call("negative", x2))


def reciprocal(trace: Trace, x: Traced) -> Traced:
    """Divide 1."""
    return trace.call("divide", 1, x)


def rsqrt(trace: Trace, x: Traced) -> Traced:
    """Take the root's reciprocal."""
    return trace.call("reciprocal", trace.call("sqrt", x))


def relu(trace: Trace, x: Traced) -> Traced:
    """Take the larger of each element and zero."""
    return trace.call("maximum", x, 0)


def sigmoid(trace: Trace, x: Traced) -> Traced:
    """Compute ``1 / (1 + exp(-x))``: an exponential that overflows is on the way to 0."""
    return trace.call("reciprocal", trace.call("add", trace.call("exp", trace.call("negative", x)), 1))


def silu(trace: Trace, x: Traced) -> Traced:
    """Multiply by the sigmoid."""
    return trace.call("multiply", x, trace.call("sigmoid", x))


def gelu(trace: Trace, x: Traced, *, approximate: str) -> Traced:
    """Compute ``x/2 (1 + erf(x / sqrt(2)))``, or the form of tanh."""
    if approximate == "none":
        inner = trace.call("erf", trace.call("multiply", x, math.sqrt(0.5)))
    else:
        # sqrt(2/pi) x (1 + 0.044715 x^2)
        square = trace.call("multiply", trace.call("multiply", x, x), 0.044715)
        steep = trace.call("multiply", x, math.sqrt(2 / math.pi))
        inner = trace.call("tanh", trace.call("multiply", steep, trace.call("add", square, 1)))
    return trace.call("multiply", trace.call("multiply", x, 0.5), trace.call("add", inner, 1))


def clip(trace: Trace, x: Traced, min: Traced | Scalar | None, max: Traced | Scalar | None) -> Traced:
    """Take the larger of each element and the lower bound, then the smaller of that and the upper bound."""
    if min is not None:
        x = trace.call("maximum", x, min)
    if max is not None:
        x = trace.call("minimum", x, max)
    return x


def dequant_product(trace: Trace, x: Traced, w: Traced, scale: Traced, zero_min: Traced) -> Traced:
    """Unpack the weight, multiply in float32, round to the dtype of ``x``."""
    weight = trace.call("dequant_int4", w, scale, zero_min)
    if x.dtype.name == "float32":
        return trace.call("matmul", x, weight)
    wide = trace.call("astype", x, dtype="float32")
    return trace.call("astype", trace.call("matmul", wide, weight), dtype=x.dtype.name)


def depthwise_conv2d(
    trace: Trace,
    x: Traced,
    w: Traced,
    bias: Traced | None,
    *,
    stride: tuple[int, int],
    padding: tuple[int, int],
    dilation: tuple[int, int],
) -> Traced:
    """Convolve in as many groups as there are channels."""
    return trace.call("conv2d", x, w, bias, stride=stride, padding=padding, dilation=dilation, groups=x.shape[1])
