"""Linear algebra: matmul and linear, by the BLAS that NumPy brings; float16 and its like in float32, rounded once."""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any

import numpy as np

from nbx_registry.host.kernels.activation import Activation, activation
from nbx_registry.host.kernels.blocks import BLOCK, Array, as_matrices, working
from nbx_registry.launch import BindContext, Launch
from nbx_registry.spec import TensorSpec

WIDE_ROWS = 1 << 22
"""Elements of the float32 product that is held at once where the output has another dtype."""

Epilogue = Callable[[Array, Array | None], None]
"""``(rows, bias)``: adds the bias and activates, in place, a [rows, N] product in float32 or float64."""


def matmul(context: BindContext) -> Launch:
    """Bind a product of stacks of matrices."""
    x1, x2 = context.signature.operands
    dtype = working(x1.dtype)
    native = x1.dtype.numpy == dtype and _blas_reads(x1) and _blas_reads(x2)
    if native and x2.rank == 2 and x1.rank > 2 and x1.contiguous:
        return Launch(function=_merged_matmul, args=("x1", "x2", "out"))
    if native:
        return Launch(function=np.matmul, args=("x1", "x2", "out"))

    def run(a: Array, b: Array, out: Array) -> None:
        np.matmul(np.ascontiguousarray(a, dtype), np.ascontiguousarray(b, dtype), out=out, casting="unsafe")

    return Launch(function=run, args=("x1", "x2", "out"))


def _merged_matmul(a: Array, b: Array, out: Array) -> None:
    """Multiply a stack by one matrix as one product: NumPy makes one of each matrix of the stack."""
    rows = prod(a.shape[:-1])
    try:
        flat = np.reshape(out, (rows, out.shape[-1]), copy=False)
    except ValueError:
        np.matmul(a, b, out=out)
    else:
        np.matmul(a.reshape(rows, a.shape[-1]), b, out=flat)


def _blas_reads(spec: TensorSpec) -> bool:
    """Whether BLAS takes a matrix as it lies: unit stride along one axis, no axis expanded. NumPy loops over others."""
    if spec.rank < 2 or spec.size == 0:
        return True
    (m, n), (s, t) = spec.shape[-2:], spec.strides[-2:]
    return (t == 1 and (s >= n or m == 1)) or (s == 1 and (t >= m or n == 1))


def linear(context: BindContext) -> Launch:
    """Bind ``activation(x w^T + bias)``: one product into the output, then bias and activation some rows at a time."""
    signature = context.signature
    x, w, bias = signature.operands
    name = signature.attributes["activation"]
    dtype = working(x.dtype)
    activate = None if name is None else activation(name, dtype)
    narrow = x.dtype.numpy != dtype
    copies = not narrow and not _blas_reads(w)
    given = bias is not None

    def run(x: Array, w: Array, *rest: Array) -> None:
        out = rest[-1]
        shift = rest[0].astype(dtype, copy=False) if given else None
        if narrow or copies:
            w = np.ascontiguousarray(w, dtype)
        if out.size == 0:
            return
        for rows, target in as_matrices(x if x.ndim > 1 else x[None], out if out.ndim > 1 else out[None]):
            if narrow:
                _narrow_product(rows, w.T, target, shift, activate, dtype)
            else:
                product = target if target.strides[1] == target.itemsize else np.empty(target.shape, dtype)
                np.matmul(rows, w.T, out=product)
                finish(product, shift, activate)
                if product is not target:
                    np.copyto(target, product)

    return Launch(function=run, args=signature.names)


def _narrow_product(
    rows: Array,
    w: Array,
    out: Array,
    bias: Array | None,
    activate: Activation | None,
    dtype: np.dtype[Any],
) -> None:
    step = max(1, WIDE_ROWS // max(rows.shape[1], out.shape[1]))
    for start in range(0, len(rows), step):
        product = np.matmul(rows[start : start + step].astype(dtype), w)
        finish(product, bias, activate)
        np.copyto(out[start : start + step], product, casting="unsafe")


def finish(product: Array, bias: Array | None, activate: Activation | None) -> None:
    """Add ``bias`` to every row of ``product`` and activate it, in place, in blocks that stay in the cache."""
    if activate is None:
        if bias is not None:
            np.add(product, bias, product)
        return
    rows, width = product.shape
    step = max(1, BLOCK // width)
    flat = product.flags.c_contiguous
    scratch: Any = np.empty((3, min(step, rows) * width), product.dtype)
    for start in range(0, rows, step):
        block = product[start : start + step]
        if bias is not None:
            np.add(block, bias, block)
        for line in (block.reshape(-1),) if flat else block:
            activate(line, line, scratch)
