"""Quantised weights: int4 in groups of 128 along K, asymmetric, eight to a word."""

from __future__ import annotations

from typing import Any

import numpy as np

from nbx_registry import dtypes
from nbx_registry.cost import Cost, default_cost
from nbx_registry.op import op
from nbx_registry.rounding import round_to_float
from nbx_registry.signature import Signature

Array = np.ndarray[Any, np.dtype[Any]]

GROUP = 128
"""Rows of a weight that share a scale and a minimum."""
NIBBLES = 8
"""Rows in a word."""


def cost_quantize_int4(signature: Signature) -> Cost:
    """Five operations an element, in float32 though words come out: two comparisons, and what makes a step of it."""
    (w,) = signature.operands
    return default_cost(signature, flops=5 * w.size, dtype=dtypes.get("float32"))


@op(
    "quantize_int4@1(w: F[K, N]) -> (packed: int32[K // 8, N], scale: float16[cdiv(K, 128), N],"
    " zero_min: float16[cdiv(K, 128), N])",
    require=("w.dtype in (float16, bfloat16, float32)", "K % 8 == 0"),
    cost=cost_quantize_int4,
    exact=True,
)
def quantize_int4(w: Array) -> tuple[Array, Array, Array]:
    """Quantise a weight to 4 bits an element, 128 rows of a column at a time.

    Parameters
    ----------
    w : float16, bfloat16 or float32 [K, N]
        Finite. K a multiple of 8.

    Returns
    -------
    packed : int32 [K/8, N]
        Bits 4 i to 4 i + 3 of word r are row 8 r + i, unsigned: ``q = clip(round((w - zero_min) / scale), 0, 15)``,
        half to even.
    scale : float16 [ceil(K/128), N]
        ``(largest - least) / 15`` of each group's rows; 1 where that is, or rounds to, 0.
    zero_min : float16 [ceil(K/128), N]
        The least of each group's rows; a zero is +0.

    Raises
    ------
    SignatureError
        For K that is no multiple of 8, and another dtype. For weights on the host also where one of them is not
        finite, or a scale or minimum is beyond float16: nothing is written then. On a device that is out of contract.

    Notes
    -----
    All arithmetic is in float32, each operation rounded once; scale and minimum are rounded to float16 before they
    quantise. To quantise from the rounded values, so that dequantising undoes what was done, is this project's choice.
    """
    k, n = w.shape
    groups = -(-k // GROUP)
    packed = np.zeros((k // NIBBLES, n), np.uint32)
    scale, zero_min = np.ones((2, groups, n))
    single = w.astype(np.float32)
    for group in range(groups):
        rows = single[group * GROUP : (group + 1) * GROUP]
        span = (rows.max(0) - rows.min(0)) / np.float32(15)
        rounded = round_to_float(span, dtypes.get("float16"))
        scale[group] = np.where(rounded == 0, 1, rounded)
        zero_min[group] = round_to_float(rows.min(0), dtypes.get("float16")) + 0.0
        steps = (rows - zero_min[group].astype(np.float32)) / scale[group].astype(np.float32)
        q = np.clip(np.rint(steps), 0, 15).astype(np.uint32)
        for row in range(len(rows)):
            word, nibble = divmod(group * GROUP + row, NIBBLES)
            packed[word] |= q[row] << np.uint32(4 * nibble)
    return packed.view(np.int32), scale, zero_min


def dequantised(w: Array, scale: Array, zero_min: Array) -> Array:
    """Return the weight that a packed one stands for, float64 holding float32 numbers."""
    k = NIBBLES * len(w)
    row = np.arange(k)
    q = (w.view(np.uint32)[row // NIBBLES] >> (4 * (row % NIBBLES)).astype(np.uint32)[:, None]) & np.uint32(15)
    group = row // GROUP
    # Exact in float64, and rounded once: a multiplication and an addition with one rounding give the same number.
    return round_to_float(q * scale[group] + zero_min[group], dtypes.get("float32"))


def dequantised_size(w: Array, scale: Array, zero_min: Array) -> Array:
    """Return the magnitudes of the two terms of each weight."""
    return dequantised(w, np.abs(scale), np.abs(zero_min))


@op(
    "dequant_int4@1(w: int32[R, N], scale: float16[G, N], zero_min: float16[G, N]) -> float32[8 * R, N]",
    require="G == cdiv(8 * R, 128)",
    flops="2 * out.size",
    exact=True,
)
def dequant_int4(w: Array, scale: Array, zero_min: Array) -> Array:
    """Return the weight that a packed one stands for: ``q scale + zero_min``.

    Parameters
    ----------
    w : int32 [K/8, N]
        As `quantize_int4` packs it.
    scale, zero_min : float16 [ceil(K/128), N]

    Returns
    -------
    float32 [K, N]
        Rounded once. The product is exact in float32, so contraction changes nothing.

    Raises
    ------
    SignatureError
        For extents that do not fit each other.

    Notes
    -----
    The inverse of `quantize_int4` but for its rounding; the layout is described there.
    """
    return dequantised(w, scale, zero_min)


def magnitude_gemv(signature: Signature, x: Array, w: Array, scale: Array, zero_min: Array) -> Array:
    """Return the product of the magnitudes."""
    return np.abs(x) @ dequantised_size(w, scale, zero_min)


@op(
    "dequant_gemv_int4@1(x: F[K], w: int32[R, N], scale: float16[G, N], zero_min: float16[G, N]) -> F[N]",
    require=("x.dtype in (float16, bfloat16, float32)", "K == 8 * R", "G == cdiv(K, 128)"),
    flops="2 * K * N",
    accumulation="K + 1",
    magnitude=magnitude_gemv,
)
def dequant_gemv_int4(x: Array, w: Array, scale: Array, zero_min: Array) -> Array:
    """Multiply a vector by a packed weight: ``out[n] = sum over k of x[k] (q[k, n] scale + zero_min)``.

    Parameters
    ----------
    x : float16, bfloat16 or float32 [K]
    w : int32 [K/8, N]
        As `quantize_int4` packs it.
    scale, zero_min : float16 [ceil(K/128), N]

    Returns
    -------
    the dtype of ``x``, [N]
        Weights as `dequant_int4` has them, products and sums in float32, rounded once. K = 0 gives zeros.

    Raises
    ------
    SignatureError
        For extents that do not fit each other, and another dtype.

    Notes
    -----
    ``flops`` counts the product alone; dequantising rides along.
    """
    return x @ dequantised(w, scale, zero_min)


@op(
    "dequant_matmul_int4@1(x: F[M, K], w: int32[R, N], scale: float16[G, N], zero_min: float16[G, N]) -> F[M, N]",
    require=("x.dtype in (float16, bfloat16, float32)", "K == 8 * R", "G == cdiv(K, 128)"),
    flops="2 * M * K * N",
    unit="matrix",
    accumulation="K + 1",
    magnitude=magnitude_gemv,
)
def dequant_matmul_int4(x: Array, w: Array, scale: Array, zero_min: Array) -> Array:
    """Multiply a matrix by a packed weight, each row as `dequant_gemv_int4` has it.

    Parameters
    ----------
    x : float16, bfloat16 or float32 [M, K]
    w : int32 [K/8, N]
        As `quantize_int4` packs it.
    scale, zero_min : float16 [ceil(K/128), N]

    Returns
    -------
    the dtype of ``x``, [M, N]
        Weights as `dequant_int4` has them, products and sums in float32, rounded once; float32 products are IEEE,
        never TF32. K = 0 gives zeros.

    Raises
    ------
    SignatureError
        For extents that do not fit each other, and another dtype.

    Notes
    -----
    ``flops`` counts the product alone; dequantising rides along.
    """
    return x @ dequantised(w, scale, zero_min)
