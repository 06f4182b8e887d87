"""Linear algebra: matmul, linear."""

from __future__ import annotations

from typing import Any

import numpy as np

from nbx_registry.contracts.activation import gelu_erf, gelu_tanh
from nbx_registry.infer import matmul_shape
from nbx_registry.op import op
from nbx_registry.signature import Signature
from nbx_registry.spec import TensorSpec

Array = np.ndarray[Any, np.dtype[Any]]


def infer_matmul(signature: Signature) -> TensorSpec:
    """Infer a product's shape, and bind M, K and N."""
    x1, x2 = signature.operands
    shape, _, m, k, n = matmul_shape(x1.shape, x2.shape)
    signature.axes.update(M=m, K=k, N=n)
    return TensorSpec(x1.dtype, shape)


def magnitude_matmul(signature: Signature, x1: Array, x2: Array) -> Array:
    """Return the product of the magnitudes."""
    return np.matmul(np.abs(x1), np.abs(x2))


@op(
    "matmul@1(x1: F[*A], x2: F[*B]) -> F[*C]",
    where={"M": None, "K": None, "N": None},
    infer=infer_matmul,
    flops="2 * out.size * K",
    unit="matrix",
    accumulation="K",
    magnitude=magnitude_matmul,
)
def matmul(x1: Array, x2: Array) -> Array:
    """Multiply matrices: ``out[..., m, n] = sum over k of x1[..., m, k] x2[..., k, n]``.

    Parameters
    ----------
    x1 : floating [..., M, K], or [K]
    x2 : the dtype of ``x1``, [..., K, N], or [K]
        Leading axes broadcast. A tensor of rank 1 is a row on the left, a column on the right, and its axis leaves the
        result.

    Returns
    -------
    floating [..., M, N]
        Products and sums in float32 (float64 in float64), rounded once; float32 products are IEEE, never TF32. K = 0
        gives zeros.

    Raises
    ------
    SignatureError
        For differing K or dtypes, leading axes that do not broadcast, a tensor of rank 0.

    Notes
    -----
    Python array API standard 2024.12, ``matmul``, for floating tensors of one dtype.
    """
    return np.matmul(x1, x2)


def magnitude_linear(signature: Signature, x: Array, w: Array, bias: Array | None, *, activation: str | None) -> Array:
    """Return the product of the magnitudes and the bias's; no activation is steeper than 1.2."""
    size = np.abs(x) @ np.abs(w).T
    size = size if bias is None else size + np.abs(bias)
    return size if activation in (None, "relu") else 1.2 * size


@op(
    "linear@1(x: F[*B, K], w: F[N, K], bias: F[N]? = None, *, activation: str? = None) -> F[*B, N]",
    require="activation in (None, 'relu', 'gelu', 'gelu_tanh', 'silu')",
    flops="2 * prod(B) * N * K",
    unit="matrix",
    accumulation="K + 8",
    magnitude=magnitude_linear,
)
def linear(x: Array, w: Array, bias: Array | None, *, activation: str | None) -> Array:
    """Apply a linear layer: ``activation(x w^T + bias)``.

    Parameters
    ----------
    x : floating [*B, K]
    w : the dtype of ``x``, [N, K]
    bias : the dtype of ``x``, [N], optional
    activation : None, "relu", "gelu", "gelu_tanh" or "silu"
        ``gelu`` is the erf form, ``gelu_tanh`` the tanh form, ``silu`` is ``z / (1 + exp(-z))``.

    Returns
    -------
    floating [*B, N]
        Products, sums, bias and activation in float32 (float64 in float64), rounded once, at the end; float32
        products are IEEE, never TF32.

    Raises
    ------
    SignatureError
        For extents or dtypes that differ, and for an unknown activation.

    Notes
    -----
    ``torch.nn.functional.linear``; the epilogue is this project's choice. ``flops`` counts the products alone.
    """
    z = x @ w.T
    z = z if bias is None else z + bias
    if activation == "relu":
        return np.maximum(z, 0)
    if activation == "gelu":
        return gelu_erf(z)
    if activation == "gelu_tanh":
        return gelu_tanh(z)
    if activation == "silu":
        return z / (1 + np.exp(-z))
    return z
