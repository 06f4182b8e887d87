"""Layout: permute_dims, broadcast_to, concat, pixel_shuffle, pixel_unshuffle."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from nbx_registry.cost import Cost, default_cost
from nbx_registry.dtypes import DType
from nbx_registry.errors import SignatureError
from nbx_registry.infer import broadcast_to as broadcasts_to
from nbx_registry.infer import normalise_axis, permutation, promote
from nbx_registry.op import op
from nbx_registry.signature import Signature
from nbx_registry.spec import MAX_EXTENT, MAX_RANK, TensorSpec

Array = np.ndarray[Any, np.dtype[Any]]


def infer_permute_dims(signature: Signature) -> TensorSpec:
    """Infer the permuted shape."""
    (x,) = signature.operands
    order = permutation(signature.attributes["axes"], x.rank)
    return TensorSpec(x.dtype, tuple(x.shape[axis] for axis in order))


def cost_view(signature: Signature) -> Cost:
    """A view moves nothing."""
    if signature.attributes["copy"]:
        return default_cost(signature)
    return default_cost(signature, bytes_read=0, bytes_written=0, least_bytes=0)


@op(
    "permute_dims@1(x: T[*X], *, axes: int[], copy: bool = False) -> T[*Y]",
    infer=infer_permute_dims,
    cost=cost_view,
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


def infer_broadcast_to(signature: Signature) -> TensorSpec:
    """Check that the extents of ``x`` are those of ``shape``, or 1."""
    (x,), shape = signature.operands, signature.attributes["shape"]
    if any(extent < 0 for extent in shape) or prod(shape) > MAX_EXTENT or len(shape) > MAX_RANK:
        raise SignatureError(
            f"broadcast_to: shape={shape} is no shape of at most {MAX_RANK} axes and 2**62 elements", code="SHAPE"
        )
    broadcasts_to(x.shape, shape, "broadcast_to: x", "the shape asked for")
    return TensorSpec(x.dtype, shape)


@op(
    "broadcast_to@1(x: T[*X], *, shape: int[], copy: bool = False) -> T[*Y]",
    infer=infer_broadcast_to,
    cost=cost_view,
    exact=True,
    views=True,
)
def broadcast_to(x: Array, *, shape: tuple[int, ...], copy: bool) -> Array:
    """Repeat axes of extent 1, and add leading ones, until the shape is ``shape``.

    Parameters
    ----------
    x : any dtype, a shape that broadcasts to ``shape``
    shape : integers
    copy : bool
        Write the result out, row-major, rather than return a view that shares the memory of ``x``.

    Returns
    -------
    the dtype of ``x``, of shape ``shape``
        The same elements; an exact copy if one is asked for. In a view the axes that are repeated have stride 0: what
        is written to one of its elements is written to all that share its memory.

    Raises
    ------
    SignatureError
        For a shape that ``x`` does not broadcast to, with both.

    Notes
    -----
    Python array API standard 2024.12, ``broadcast_to``; ``copy`` is this project's.
    """
    out = x.reshape((1,) * (len(shape) - x.ndim) + x.shape)
    for axis, extent in enumerate(shape):
        if out.shape[axis] == 1:
            out = np.repeat(out, extent, axis)
    return out


def infer_concat(signature: Signature) -> TensorSpec:
    """Promote the dtypes, and add up the extents along the axis."""
    (arrays,), axis = signature.operands, signature.attributes["axis"]
    dtype = _common_dtype(arrays)
    if axis is None:
        return TensorSpec(dtype, (sum(spec.size for spec in arrays),))
    first, *rest = arrays
    place = normalise_axis(axis, first.rank)
    for number, spec in enumerate(rest, 1):
        if spec.rank != first.rank or any(
            extent != wanted
            for a, (extent, wanted) in enumerate(zip(spec.shape, first.shape, strict=True))
            if a != place
        ):
            raise SignatureError(
                f"concat: arrays[{number}] is {spec}, but arrays[0] is {first}: all extents but that of axis {place} "
                f"must be equal",
                code="SHAPE",
            )
    extent = sum(spec.shape[place] for spec in arrays)
    return TensorSpec(dtype, (*first.shape[:place], extent, *first.shape[place + 1 :]))


def _common_dtype(arrays: tuple[TensorSpec, ...]) -> DType:
    """Return what all dtypes promote to: the widest first, beside which float16 and bfloat16 do."""
    owners: dict[DType, str] = {}
    for number, spec in enumerate(arrays):
        owners.setdefault(spec.dtype, f"arrays[{number}]")
    (found, name), *rest = sorted(owners.items(), key=lambda item: -item[0].bits)
    for dtype, other in rest:
        promoted = promote(found, dtype, (name, other))
        if promoted is not found:
            found, name = promoted, other if promoted is dtype else f"{name} with {other}"
    return found


@op("concat@1(arrays: list[*T1[*X]], *, axis: int? = 0) -> T2[*Y]", infer=infer_concat, exact=True)
def concat(arrays: list[Array], *, axis: int | None) -> Array:
    """Join tensors along an axis they have.

    Parameters
    ----------
    arrays : list of tensors, any dtypes that promote, at least one
        Of the same shape, but for the extent along ``axis``.
    axis : int or None
        None joins the elements of each, in row-major order, whatever their shapes.

    Returns
    -------
    the dtype that all promote to, the extents along ``axis`` added up
        An exact copy; what is converted to another dtype of the standard's table keeps its value.

    Raises
    ------
    SignatureError
        For no tensors, an axis they lack, shapes that differ elsewhere, and dtypes that do not promote (integer with
        floating, float16 with bfloat16, signed with uint64): convert with `astype`.

    Notes
    -----
    Python array API standard 2024.12, ``concat``.
    """
    if axis is None:
        arrays, axis = [x.reshape(-1) for x in arrays], 0
    # The dtypes that NumPy promotes are those that the standard does; all others are one.
    dtype = np.result_type(*arrays) if len({x.dtype for x in arrays}) > 1 else arrays[0].dtype
    rows = [np.moveaxis(x, axis, 0) for x in arrays]
    out = np.empty((sum(map(len, rows)), *rows[0].shape[1:]), dtype)
    start = 0
    for part in rows:
        out[start : start + len(part)] = part
        start += len(part)
    return np.moveaxis(out, 0, axis)


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


@op(
    "pixel_unshuffle@1(x: T[N, C, H, W], *, r: int) -> T[N, C * r**2, H // r, W // r]",
    require=("r >= 1", "H % r == 0", "W % r == 0"),
    exact=True,
)
def pixel_unshuffle(x: Array, *, r: int) -> Array:
    """Rearrange pixels into channels: each ``r`` by ``r`` block becomes a group of ``r^2`` channels.

    ``out[n, c r^2 + i r + j, h, w] = x[n, c, h r + i, w r + j]``, the inverse of `pixel_shuffle`

    Parameters
    ----------
    x : any dtype [N, C, H, W]
    r : int
        At least 1.

    Returns
    -------
    the dtype of ``x``, [N, C r^2, H / r, W / r]
        An exact copy.

    Raises
    ------
    SignatureError
        For another rank, r < 1, and H or W no multiple of r: nothing is cut off.

    Notes
    -----
    ``torch.nn.functional.pixel_unshuffle``; Shi et al. as for `pixel_shuffle`.
    """
    n, c, h, w = x.shape
    out = np.empty((n, c * r**2, h // r, w // r), x.dtype)
    for channel, i, j in np.ndindex(c, r, r):
        out[:, channel * r**2 + i * r + j] = x[:, channel, i::r, j::r]
    return out
