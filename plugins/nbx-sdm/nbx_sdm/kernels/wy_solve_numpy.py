"""``sdm::wy_solve`` on the host: forward substitution in blocks on the diagonal, then by blocks, in float64."""

from __future__ import annotations

from typing import Any

import numpy as np

from nbx_registry.launch import BindContext, Launch

Array = np.ndarray[Any, Any]

BLOCK = 16
"""Extent of the blocks on the diagonal."""
HELD = 1 << 20
"""Elements of a float64 array of chunks that is held at once."""


def bind(context: BindContext) -> Launch:
    """Bind the solve. A chunk's products are its own calls of BLAS, so its bits do not depend on how many there are."""
    return Launch(function=_solve, args=context.signature.names)


def _solve(A: Array, beta: Array, QK: Array, X: Array, QX: Array) -> None:
    chunks, width, _ = A.shape
    lower = np.tri(width, dtype=bool)
    strict = np.tri(width, k=-1, dtype=bool)
    step = max(1, HELD // (width + BLOCK) ** 2)
    with np.errstate(all="ignore"):
        for start in range(0, chunks, step):
            part = slice(start, start + step)
            products = np.multiply(A[part], beta[part, :, None], dtype=np.float64)
            inverse = _invert(np.where(strict, products, 0.0))
            queried = np.matmul(np.where(lower, QK[part], 0.0).astype(np.float64), inverse)
            for target, values in ((X[part], inverse), (QX[part], queried)):
                target[...] = 0
                np.copyto(target, values, where=lower, casting="unsafe")


def _invert(L: Array) -> Array:
    """Return (I + L)^-1 of strictly lower-triangular [n, C, C] matrices."""
    chunks, width, _ = L.shape
    blocks = -(-width // BLOCK)
    padded = np.zeros((chunks, blocks * BLOCK, blocks * BLOCK))
    padded[:, :width, :width] = L
    inverse = np.zeros_like(padded)
    for i in range(blocks):
        here, before = slice(i * BLOCK, (i + 1) * BLOCK), slice(0, i * BLOCK)
        diagonal = _invert_block(padded[:, here, here])
        inverse[:, here, here] = diagonal
        if i:
            known = np.matmul(padded[:, here, before], inverse[:, before, before])
            inverse[:, here, before] = -np.matmul(diagonal, known)
    return inverse[:, :width, :width]


def _invert_block(L: Array) -> Array:
    """Return (I + L)^-1 of blocks, row after row: row i is that of -L times the rows above it, and a 1."""
    inverse = np.zeros_like(L)
    inverse[:, 0, 0] = 1
    for i in range(1, BLOCK):
        row = slice(i, i + 1)
        inverse[:, row, :i] = -np.matmul(L[:, row, :i], inverse[:, :i, :i])
        inverse[:, i, i] = 1
    return inverse
