"""Layout: permute_dims, pixel_shuffle."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from nbx_registry.cost import Cost, default_cost
from nbx_registry.errors import SignatureError
from nbx_registry.infer import permutation
from nbx_registry.op import op
from nbx_registry.signature import Signature
from nbx_registry.spec import TensorSpec

Array = np.ndarray[Any, np.dtype[Any]]


def infer_permute_dims(signature: Signature) -> TensorSpec:
    """Infer the permuted shape."""
    (x,) = signature.operands
    order = permutation(signature.attributes["axes"], x.rank)
    return TensorSpec(x.dtype, tuple(x.shape[axis] for axis in order))


def cost_permute_dims(signature: Signature) -> Cost:
    """A view moves nothing."""
    if signature.attributes["copy"]:
        return default_cost(signature)
    return default_cost(signature, bytes_read=0, bytes_written=0, least_bytes=0)


@op(
    "permute_dims@1(x: T[*X], *, axes: int[], copy: bool = False) -> T[*Y]",
    infer=infer_permute_dims,
    cost=cost_permute_dims,
    exact=True,
    views=True,
)
def permute_dims(x: Array, *, axes: tuple[int, ...], copy: bool) -> Array:
    """Reorder the axes: axis i of the result is axis ``axes[i]`` of ``x``.

    Parameters
    ----------
    x : any dtype and shape
    axes : integers
        Every axis once; negative ones count from the end.
    copy : bool
        Write the result out, row-major, rather than return a view that shares the memory of ``x``.

    Returns
    -------
    the dtype of ``x``, its extents in that order
        The same elements; an exact copy if one is asked for.

    Raises
    ------
    SignatureError
        For axes that are no permutation.

    Notes
    -----
    Python array API standard 2024.12, ``permute_dims``; ``copy`` is this project's.
    """
    return np.transpose(x, axes)


def infer_pixel_shuffle(signature: Signature) -> TensorSpec:
    """Bind N, C, H and W of either form of the input."""
    (x,) = signature.operands
    r = signature.attributes["r"]
    if x.rank not in (4, 5):
        raise SignatureError(
            f"pixel_shuffle: x has rank {x.rank} ({x}), but must be [N, C, H, W] or [N, P, B, H, W]", code="SHAPE"
        )
    n, (h, w) = x.shape[0], x.shape[-2:]
    c = x.shape[1] if x.rank == 4 else x.shape[1] * x.shape[2]
    signature.axes.update(N=n, C=c, H=h, W=w)
    return TensorSpec(x.dtype, (n, c // r**2, h * r, w * r))


@op(
    "pixel_shuffle@1(x: T[*X], *, r: int) -> T[N, C // r**2, H * r, W * r]",
    where={"N": None, "C": None, "H": None, "W": None},
    require=("r >= 1", "C % r**2 == 0"),
    infer=infer_pixel_shuffle,
    exact=True,
)
def pixel_shuffle(x: Array, *, r: int) -> Array:
    """Rearrange channels into pixels: each group of ``r^2`` channels becomes an ``r`` by ``r`` block.

    ``out[n, c, oh, ow] = x[n, c r^2 + (oh mod r) r + (ow mod r), oh div r, ow div r]``

    Parameters
    ----------
    x : any dtype [N, C, H, W], or [N, P, B, H, W]
        The second form stands for [N, P B, H, W]. With stride 0 on B it is an expanded tensor that was never written
        out: a kernel reads through the strides, and at the least the elements that are there are read once.
    r : int
        At least 1.

    Returns
    -------
    the dtype of ``x``, [N, C / r^2, H r, W r]
        An exact copy.

    Raises
    ------
    SignatureError
        For another rank, r < 1, and C (or P B) no multiple of r^2.

    Notes
    -----
    Shi et al., "Real-Time Single Image and Video Super-Resolution Using an Efficient Sub-Pixel Convolutional Neural
    Network", 2016 (arXiv:1609.05158); ``torch.nn.functional.pixel_shuffle``.
    """
    n, h, w = x.shape[0], x.shape[-2], x.shape[-1]
    x = x.reshape(n, prod(x.shape[1:-2]), h, w)
    out = np.empty((n, x.shape[1] // r**2, h * r, w * r), x.dtype)
    for c, oh, ow in np.ndindex(out.shape[1:]):
        out[:, c, oh, ow] = x[:, c * r**2 + (oh % r) * r + ow % r, oh // r, ow // r]
    return out
