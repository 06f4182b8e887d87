"""The contract of ``sdm::wy_solve``."""

from __future__ import annotations

from typing import Any

import numpy as np

from nbx_registry.cost import Cost, default_cost
from nbx_registry.op import op
from nbx_registry.signature import Signature
from nbx_registry.spec import TensorSpec

Array = np.ndarray[Any, np.dtype[Any]]


def cost_wy_solve(signature: Signature) -> Cost:
    """Multiply-adds of forward substitution and of a product of triangles; at the least the halves that count are read.

    Column j of X takes one for each i > k >= j, together (C - 1) C (C + 1) / 6; QX one for each i >= k >= j, together
    C (C + 1) (C + 2) / 6; L is beta times A, C (C - 1) / 2 multiplications. At the least the ones on X's diagonal are
    not multiplied by: of each sum the first term is only taken. The first row of beta has nothing to scale.
    """
    n, c = signature.axes["N"], signature.axes["C"]
    A, beta, QK = signature.operands
    x, qx = signature.outputs
    scaled = c * (c - 1) // 2
    each = (c - 1) * c * (c + 1) // 3 + c * (c + 1) * (c + 2) // 3 + scaled
    least = (c - 2) * (c - 1) * c // 3 + (c - 1) * c * (c + 1) // 3 + scaled
    least_read = sum(map(_read_at_least, (A, beta, QK), (scaled, c - 1, scaled + c)))
    return default_cost(
        signature, flops=n * each, least_flops=n * least, least_bytes=least_read + x.nbytes + qx.nbytes if n else 0
    )


def _read_at_least(spec: TensorSpec, each: int) -> int:
    """Return the bytes of ``each`` elements of a chunk, for all chunks; the fewer distinct ones where it is a view."""
    chunks = spec.shape[0] if spec.strides[0] else min(spec.shape[0], 1)
    return min(spec.dtype.nbytes(chunks * each), spec.distinct_bytes)


def magnitude_wy_solve(signature: Signature, A: Array, beta: Array, QK: Array) -> tuple[Array, Array]:
    """Return |X| |I + L| |X|, what the roundings of substitution are relative to, and what becomes of it in QX.

    N. J. Higham, "Accuracy and Stability of Numerical Algorithms", 2nd edition, section 14.2.
    """
    width = A.shape[-1]
    L = np.tril(np.where(np.tri(width, k=-1, dtype=bool), A, 0.0) * beta[..., None], -1)
    Q = np.abs(np.where(np.tri(width, dtype=bool), QK, 0.0))
    X = np.abs(np.linalg.solve(np.eye(width) + L, np.broadcast_to(np.eye(width), L.shape)))
    solved = X @ (np.eye(width) + np.abs(L)) @ X
    return np.tril(solved), np.tril(Q @ (solved + X))


@op(
    "sdm::wy_solve@1(A: float32[N, C, C], beta: float32[N, C], QK: float32[N, C, C])"
    " -> (X: float32[N, C, C], QX: float32[N, C, C])",
    require="C >= 1",
    cost=cost_wy_solve,
    accumulation="C + 2",
    magnitude=magnitude_wy_solve,
)
def wy_solve(A: Array, beta: Array, QK: Array) -> tuple[Array, Array]:
    """Solve a chunk's unit lower-triangular system, and multiply by its queries' products.

    With ``L[i, j] = beta[i] A[i, j]`` for j < i and 0 elsewhere: ``X = (I + L)^-1`` and ``QX = tril(QK) X``.

    Parameters
    ----------
    A : float32 [N, C, C]
        Counts strictly below its diagonal; the rest may be NaN.
    beta : float32 [N, C]
    QK : float32 [N, C, C]
        Counts on and below its diagonal; the rest may be NaN.

    Returns
    -------
    X, QX : float32 [N, C, C]
        +0.0 above the diagonal, and 1 on that of X. Products are full float32, never TF32: the inverse amplifies
        rounding. A chunk's bits do not depend on N.

    Raises
    ------
    SignatureError
        For extents that differ, and for C = 0.

    Notes
    -----
    The WY representation of a product of Householder-like factors (Bischof and Van Loan, 1987), as the chunked delta
    rule uses it: Yang et al., "Parallelizing Linear Transformers with the Delta Rule over Sequence Length", 2024
    (arXiv:2406.06484). ``flops`` counts what forward substitution takes.
    """
    chunks, width, _ = A.shape
    X, QX = np.zeros(A.shape), np.zeros(A.shape)
    for n in range(chunks):
        for i in range(width):
            X[n, i, i] = 1
            for j in range(i):
                X[n, i, j] = -beta[n, i] * (A[n, i, j:i] @ X[n, j:i, j])
        for i in range(width):
            for j in range(i + 1):
                QX[n, i, j] = QK[n, i, j : i + 1] @ X[n, j : i + 1, j]
    return X, QX
