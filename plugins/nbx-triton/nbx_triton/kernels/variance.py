"""Means and variances by parts, in registers and from one launch to the next.

A part's mean and M2, the sum of the squared deviations from it, are found together; those of parts are merged as T. F.
Chan, G. H. Golub and R. J. LeVeque do ("Updating formulae and a pairwise algorithm for computing sample variances",
1979): nothing is lost to a mean that is large beside the deviations, and the tensor is read once for both.
"""

from __future__ import annotations

import triton
import triton.language as tl

from nbx_triton.kernels.normalization import quotient, reciprocal_root

MAX_PIECES = 256
"""Programs that a row or group is given to at the most; kernels' workspaces declare the same number."""


@triton.jit
def spread(a, inside, count):
    """Return mean and M2 of the ``count`` elements of a[:, :] that are inside; the others are 0."""
    mean = quotient(tl.sum(tl.sum(a, axis=1), axis=0), count)
    centred = tl.where(inside, a - mean, 0.0)
    return mean, tl.sum(tl.sum(centred * centred, axis=1), axis=0)


@triton.jit
def merge(count, mean, m2, own, own_mean, own_m2):
    """Return count, mean and M2 of two parts together; of none at all they are 0."""
    both = count + own
    share = quotient(own, tl.maximum(both, 1.0))
    apart = own_mean - mean
    return both, mean + apart * share, m2 + (own_m2 + apart * apart * count * share)


@triton.jit
def merge_pieces(counts, means, m2s, row, pieces, size, eps, PIECES: tl.constexpr):
    """Return the mean of a row of ``size`` elements and 1 / sqrt(variance + eps), from what its pieces have written.

    That is at ``[row, piece]``; PIECES is ``pieces`` up to a power of two.
    """
    piece = tl.arange(0, PIECES)
    known = piece < pieces
    own_count = tl.load(counts + row * pieces + piece, mask=known, other=0)
    own_mean = tl.load(means + row * pieces + piece, mask=known, other=0)
    own_m2 = tl.load(m2s + row * pieces + piece, mask=known, other=0)
    mean = quotient(tl.sum(own_count * own_mean, axis=0), size)
    apart = tl.where(known, own_mean - mean, 0.0)
    m2 = tl.sum(own_m2 + own_count * (apart * apart), axis=0)
    return mean, reciprocal_root(quotient(m2, size) + eps)
