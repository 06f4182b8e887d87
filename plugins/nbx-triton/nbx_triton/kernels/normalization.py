"""softmax and layer_norm: one program normalises ``BLOCK_ROWS`` rows.

A row that fits a block is read once; a longer one is read in pieces, twice for softmax (the maximum and the sum are
carried along together), three times for layer_norm (mean, variance, result). Arithmetic is float32, for float64 in
float64. Block sizes follow from the row's length and strides alone: a row's bits do not depend on the number of rows.
Deterministic.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import triton
import triton.language as tl

from nbx_registry.launch import BindContext, Launch, Scalar
from nbx_registry.spec import TensorSpec
from nbx_triton.compiler import Options
from nbx_triton.kernels.mathematics import exponential
from nbx_triton.kernels.strided import NARROW, collapse, locate, program, reach
from nbx_triton.launching import Argument, launch

LARGEST_BLOCK = 16384
_PIECE = 4096


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
def power(x):
    """Return e^x."""
    if x.dtype == tl.float64:
        y = tl.exp(x)
    else:
        y = exponential(x)
    return y


@triton.jit
def quotient(x, y):
    """Return x / y, correctly rounded."""
    if x.dtype == tl.float64:
        z = x / y
    else:
        z = tl.div_rn(x, y)
    return z


@triton.jit
def softmax(
    x,
    out,
    rows,
    length,
    row_shape,
    row_strides,
    out_strides,
    stride,
    out_stride,
    ONCE: tl.constexpr,
    WIDE: tl.constexpr,
    BLOCK_ROWS: tl.constexpr,
    BLOCK_COLUMNS: tl.constexpr,
):
    """Write e^(x - max) / sum of them. A row with NaN or +inf in it, or with nothing but -inf, gives NaN."""
    row = program(WIDE) * BLOCK_ROWS + tl.arange(0, BLOCK_ROWS)
    here = (row < rows)[:, None]
    source = x + locate(row, row_shape, row_strides)[:, None]
    target = out + locate(row, row_shape, out_strides)[:, None]
    column = tl.arange(0, BLOCK_COLUMNS)[None, :].to(row.dtype)
    if ONCE:
        inside = here & (column < length)
        a = compute(tl.load(source + column * stride, mask=inside, other=float("-inf")))
        e = power(a - tl.max(a, axis=1)[:, None])
        e = tl.where(inside, e, 0.0)
        y = quotient(e, tl.sum(e, axis=1)[:, None])
        tl.store(target + column * out_stride, y.to(out.dtype.element_ty), mask=inside)
    else:
        total = zeros(x.dtype.element_ty, BLOCK_ROWS, BLOCK_COLUMNS)
        largest = total + float("-inf")
        for at in range(0, length, BLOCK_COLUMNS):
            inside = here & (at + column < length)
            a = compute(tl.load(source + (at + column) * stride, mask=inside, other=float("-inf")))
            new = tl.maximum(largest, a)
            # Nothing but -inf so far: any finite number in its place leaves the sum at 0.
            anchor = tl.where(new == float("-inf"), 0.0, new)
            total = total * power(largest - anchor) + power(a - anchor)
            largest = new
        peak = tl.max(largest, axis=1)[:, None]
        anchor = tl.where(peak == float("-inf"), 0.0, peak)
        whole = tl.sum(total * power(largest - anchor), axis=1)[:, None]
        for at in range(0, length, BLOCK_COLUMNS):
            inside = here & (at + column < length)
            a = compute(tl.load(source + (at + column) * stride, mask=inside, other=float("-inf")))
            y = quotient(power(a - peak), whole)
            tl.store(target + (at + column) * out_stride, y.to(out.dtype.element_ty), mask=inside)


@triton.jit
def layer_norm(
    x,
    weight,
    bias,
    out,
    rows,
    length,
    count,
    eps,
    row_shape,
    row_strides,
    out_strides,
    stride,
    weight_stride,
    bias_stride,
    out_stride,
    ONCE: tl.constexpr,
    WIDE: tl.constexpr,
    BLOCK_ROWS: tl.constexpr,
    BLOCK_COLUMNS: tl.constexpr,
):
    """Write (x - mean) / sqrt(variance + eps) * weight + bias.

    ``count`` is the row's length as a number. The variance is that of x - mean, and the mean is corrected by the mean
    of x - mean: neither loses digits to a mean that is large beside the deviations.
    """
    row = program(WIDE) * BLOCK_ROWS + tl.arange(0, BLOCK_ROWS)
    here = (row < rows)[:, None]
    source = x + locate(row, row_shape, row_strides)[:, None]
    target = out + locate(row, row_shape, out_strides)[:, None]
    column = tl.arange(0, BLOCK_COLUMNS)[None, :].to(row.dtype)
    if ONCE:
        inside = here & (column < length)
        a = compute(tl.load(source + column * stride, mask=inside, other=0))
        mean = quotient(tl.sum(a, axis=1), count)[:, None]
        centred = tl.where(inside, a - mean, 0.0)
        centred -= quotient(tl.sum(centred, axis=1), count)[:, None]
        centred = tl.where(inside, centred, 0.0)
        variance = quotient(tl.sum(centred * centred, axis=1), count)[:, None]
        scale = reciprocal_root(variance + eps)
        y = affine(centred * scale, weight, bias, column, column < length, weight_stride, bias_stride)
        tl.store(target + column * out_stride, y.to(out.dtype.element_ty), mask=inside)
    else:
        sums = zeros(x.dtype.element_ty, BLOCK_ROWS, BLOCK_COLUMNS)
        for at in range(0, length, BLOCK_COLUMNS):
            inside = here & (at + column < length)
            sums += compute(tl.load(source + (at + column) * stride, mask=inside, other=0))
        mean = quotient(tl.sum(sums, axis=1), count)[:, None]
        sums = zeros(x.dtype.element_ty, BLOCK_ROWS, BLOCK_COLUMNS)
        squares = zeros(x.dtype.element_ty, BLOCK_ROWS, BLOCK_COLUMNS)
        for at in range(0, length, BLOCK_COLUMNS):
            inside = here & (at + column < length)
            a = compute(tl.load(source + (at + column) * stride, mask=inside, other=0))
            centred = tl.where(inside, a - mean, 0.0)
            sums += centred
            squares += centred * centred
        correction = quotient(tl.sum(sums, axis=1), count)[:, None]
        variance = quotient(tl.sum(squares, axis=1), count)[:, None] - correction * correction
        scale = reciprocal_root(variance + eps)
        for at in range(0, length, BLOCK_COLUMNS):
            inside = here & (at + column < length)
            a = compute(tl.load(source + (at + column) * stride, mask=inside, other=0))
            centred = (a - mean) - correction
            y = affine(centred * scale, weight, bias, at + column, at + column < length, weight_stride, bias_stride)
            tl.store(target + (at + column) * out_stride, y.to(out.dtype.element_ty), mask=inside)


@triton.jit
def reciprocal_root(x):
    """Return 1 / sqrt(x)."""
    if x.dtype == tl.float64:
        y = 1.0 / tl.sqrt(x)
    else:
        y = tl.div_rn(1.0, tl.sqrt_rn(x))
    return y


@triton.jit
def affine(y, weight, bias, column, inside, weight_stride, bias_stride):
    """Return y * weight + bias, either of which may be absent."""
    if weight is not None:
        y = y * compute(tl.load(weight + column * weight_stride, mask=inside, other=0))
    if bias is not None:
        y = y + compute(tl.load(bias + column * bias_stride, mask=inside, other=0))
    return y


def affine_arguments(**vectors: TensorSpec | None) -> dict[str, Argument]:
    """Return the arguments of weight and bias, by name: the operand, or None, and its stride as ``<name>_stride``."""
    operands = {name: None if vector is None else name for name, vector in vectors.items()}
    strides = {f"{name}_stride": 0 if vector is None else vector.strides[0] for name, vector in vectors.items()}
    return {**operands, **strides}


def _blocks(length: int, stride: int) -> tuple[int, int, int]:
    """Return rows and columns of a block, and warps."""
    columns = triton.next_power_of_2(length)
    if stride != 1:
        # Neighbours in memory are in different rows.
        return (32, columns, 4) if columns <= 128 else (32, 64, 4)
    if columns > LARGEST_BLOCK:
        return 1, _PIECE, 8
    return max(1, 1024 // columns), columns, 4 if columns <= 2048 else 8 if columns <= 8192 else 16


def _rows(x: TensorSpec, out: TensorSpec, axis: int) -> tuple[dict[str, Argument], dict[str, Any], int, int]:
    """Return the arguments and constants that both kernels share, the programs, and the warps of each."""
    others = [a for a in range(x.rank) if a != axis]
    row_shape, row_strides, out_strides = collapse(
        [x.shape[a] for a in others], [x.strides[a] for a in others], [out.strides[a] for a in others]
    )
    length = x.shape[axis]
    rows = x.size // length
    block_rows, block_columns, warps = _blocks(length, x.strides[axis])
    arguments: dict[str, Argument] = {
        "x": "x",
        "out": "out",
        "rows": rows,
        "length": length,
        "row_shape": row_shape,
        "row_strides": row_strides,
        "out_strides": out_strides,
        "stride": x.strides[axis],
        "out_stride": out.strides[axis],
    }
    constants = {
        "ONCE": block_columns >= length,
        "WIDE": x.size + block_rows * block_columns >= NARROW
        or max(reach(x.shape, x.strides), reach(out.shape, out.strides)) >= NARROW,
        "BLOCK_ROWS": block_rows,
        "BLOCK_COLUMNS": block_columns,
    }
    return arguments, constants, triton.cdiv(rows, block_rows), warps


def bind_softmax(ctx: BindContext) -> Sequence[Launch]:
    """Bind ``softmax`` along any axis."""
    (x,) = ctx.signature.tensors
    (out,) = ctx.signature.outputs
    if out.size == 0:
        return ()
    arguments, constants, programs, warps = _rows(x, out, ctx.signature.attributes["axis"] % x.rank)
    step = launch(
        ctx,
        softmax,
        programs=programs,
        arguments=arguments,
        constants=constants,
        options=Options(num_warps=warps, num_stages=1, enable_fp_fusion=True),
    )
    return (step,)


def bind_layer_norm(ctx: BindContext) -> Sequence[Launch]:
    """Bind ``layer_norm``, over the last axis, with or without weight and bias."""
    x, weight, bias = ctx.signature.tensors
    (out,) = ctx.signature.outputs
    if out.size == 0:
        return ()
    arguments, constants, programs, warps = _rows(x, out, x.rank - 1)
    number = "float64" if x.dtype.bits == 64 else "float32"
    arguments |= {
        "count": Scalar(float(x.shape[-1]), number),
        "eps": Scalar(ctx.signature.attributes["eps"], number),
        "weight": None if weight is None else "weight",
        "bias": None if bias is None else "bias",
        "weight_stride": 0 if weight is None else weight.strides[0],
        "bias_stride": 0 if bias is None else bias.strides[0],
    }
    step = launch(
        ctx,
        layer_norm,
        programs=programs,
        arguments=arguments,
        constants=constants,
        options=Options(num_warps=warps, num_stages=1, enable_fp_fusion=True),
    )
    return (step,)
