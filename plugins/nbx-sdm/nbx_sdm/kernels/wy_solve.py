"""``sdm::wy_solve`` in Triton: the inverse of unit lower-triangular matrices, block column by block column.

One program computes one block column of X and of QX of one chunk, in blocks of 16: the columns of an inverse do not
depend on one another. Down the column, X_ij = (I + L_ii)^-1 ([i = j] - sum over j <= k < i of L_ik X_kj), the inverse
applied by forward substitution, which is what makes it stable (N. J. Higham, "Accuracy and Stability of Numerical
Algorithms", 2nd edition, chapter 14). The blocks X_kj are read back from the output, where this program wrote them.

Products are IEEE float32; sums run along k in order. Block and launch settings are fixed, so a chunk's bits do not
depend on how many chunks there are. Deterministic.
"""

from __future__ import annotations

from collections.abc import Sequence

import triton
import triton.language as tl

from nbx_registry.launch import BindContext, Launch
from nbx_triton.compiler import Options
from nbx_triton.kernels.strided import NARROW, program, reach
from nbx_triton.launching import launch

BLOCK = 16


@triton.jit
def solve(
    A,
    beta,
    QK,
    X,
    QX,
    width,
    a_strides,
    beta_strides,
    qk_strides,
    x_strides,
    qx_strides,
    WIDE: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Write block column ``program % blocks`` of X and QX of chunk ``program // blocks``.

    Strides are of chunk, row, column.
    """
    number = program(WIDE)
    blocks = (width + BLOCK - 1) // BLOCK
    chunk = number // blocks
    j = (number % blocks).to(tl.int32)
    across = tl.arange(0, BLOCK)[None, :]
    down = tl.arange(0, BLOCK)[:, None]
    column = (j * BLOCK + across).to(number.dtype)
    a_chunk = A + chunk * a_strides[0]
    qk_chunk = QK + chunk * qk_strides[0]
    x_column = X + chunk * x_strides[0] + column * x_strides[2]
    qx_column = QX + chunk * qx_strides[0] + column * qx_strides[2]

    for i in range(j):
        row = (i * BLOCK + down).to(number.dtype)
        zero = tl.zeros((BLOCK, BLOCK), tl.float32)
        tl.store(x_column + row * x_strides[1], zero, mask=column < width)
        tl.store(qx_column + row * qx_strides[1], zero, mask=column < width)

    for i in range(j, blocks):
        row = (i * BLOCK + down).to(number.dtype)
        factor = -tl.load(beta + chunk * beta_strides[0] + row * beta_strides[1], mask=row < width, other=0)
        x = tl.where(row == column, 1.0, 0.0)
        for k in range(j, i):
            # Strictly below the diagonal: all of this block of A counts.
            inner = (k * BLOCK + across).to(number.dtype)
            left = factor * tl.load(a_chunk + row * a_strides[1] + inner * a_strides[2], mask=row < width, other=0)
            above = (k * BLOCK + down).to(number.dtype)
            right = tl.load(x_column + above * x_strides[1], mask=column < width, other=0)
            x = tl.dot(left, right, x, input_precision="ieee")
        for r in range(BLOCK):
            pivot = i * BLOCK + r
            known = tl.sum(tl.where(down == r, x, 0.0), axis=0)[None, :]
            below = (row > pivot) & (row < width)
            step = factor * tl.load(a_chunk + row * a_strides[1] + pivot * a_strides[2], mask=below, other=0)
            x = tl.where(below, x + step * known, x)
        x = tl.where(row >= column, x, 0.0)
        tl.store(x_column + row * x_strides[1], x, mask=(row < width) & (column < width))
        # What one thread of the program wrote, others read in the next round.
        tl.debug_barrier()

    for i in range(j, blocks):
        row = (i * BLOCK + down).to(number.dtype)
        qx = tl.zeros((BLOCK, BLOCK), tl.float32)
        for k in range(j, i + 1):
            inner = (k * BLOCK + across).to(number.dtype)
            counts = (inner <= row) & (row < width)
            left = tl.load(qk_chunk + row * qk_strides[1] + inner * qk_strides[2], mask=counts, other=0)
            above = (k * BLOCK + down).to(number.dtype)
            right = tl.load(x_column + above * x_strides[1], mask=(above < width) & (column < width), other=0)
            qx = tl.dot(left, right, qx, input_precision="ieee")
        qx = tl.where(row >= column, qx, 0.0)
        tl.store(qx_column + row * qx_strides[1], qx, mask=(row < width) & (column < width))


def bind(ctx: BindContext) -> Sequence[Launch]:
    """Bind ``sdm::wy_solve`` for any C and any strides."""
    A, beta, QK = ctx.signature.tensors
    X, QX = ctx.signature.outputs
    chunks, width, _ = A.shape
    if chunks == 0:
        return ()
    blocks = triton.cdiv(width, BLOCK)
    step = launch(
        ctx,
        solve,
        programs=chunks * blocks,
        arguments={
            "A": "A",
            "beta": "beta",
            "QK": "QK",
            "X": "X",
            "QX": "QX",
            "width": width,
            "a_strides": A.strides,
            "beta_strides": beta.strides,
            "qk_strides": QK.strides,
            "x_strides": X.strides,
            "qx_strides": QX.strides,
        },
        constants={
            # The slack covers the last block's padding, whose offsets are computed and masked off.
            "WIDE": 2 * max(reach(x.shape, x.strides) for x in (A, beta, QK, X, QX)) + BLOCK * BLOCK >= NARROW,
            "BLOCK": BLOCK,
        },
        # One warp: the substitution's steps then need no barrier between them.
        options=Options(num_warps=1, num_stages=1, enable_fp_fusion=True),
    )
    return (step,)
