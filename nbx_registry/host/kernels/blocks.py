"""Walking over arrays in blocks that stay in the cache, whatever their strides and dtypes."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from itertools import repeat
from math import prod
from typing import Any

import numpy as np

from nbx_registry.dtypes import DType

Array = np.ndarray[Any, Any]

BLOCK = 16384
"""Elements of a block: three float32 blocks fit a core's second-level cache, and NumPy's cost per call is a tenth."""

PART = 4 * BLOCK
"""Elements of a part of arrays that broadcast: rows repeat in it, and it takes few passes."""


def working(dtype: DType) -> np.dtype[Any]:
    """Return the NumPy dtype that floating elements are computed in: float64 for float64, else float32."""
    return np.dtype(np.float64) if dtype.name == "float64" else np.dtype(np.float32)


def in_blocks(
    x: Array, out: Array, dtype: np.dtype[Any], out_dtype: np.dtype[Any] | None = None
) -> Generator[tuple[Array, Array], None, None]:
    """Yield blocks of ``x`` in ``dtype`` and of ``out`` in ``out_dtype`` (the same if None): one axis, contiguous.

    Arrays that lie like that already are cut up where they are. What is written to a block of ``out`` gets there,
    rounded once to its dtype. The two arrays may overlap in any way.
    """
    target_dtype = dtype if out_dtype is None else out_dtype
    readable = x.dtype == dtype and x.flags.c_contiguous
    writable = out.dtype == target_dtype and out.flags.c_contiguous
    if readable and writable:
        readable = x is out or not np.may_share_memory(x, out)
    if x.size <= BLOCK:
        # An iterator takes longer to set up than such a copy.
        if x.size:
            target = out if writable else np.empty(out.shape, target_dtype)
            yield (x if readable else x.astype(dtype, "C")).reshape(-1), target.reshape(-1)
            if not writable:
                np.copyto(out, target, casting="unsafe")
        return
    if readable and writable:
        flat, target = x.reshape(-1), out.reshape(-1)
        for start in range(0, len(flat), BLOCK):
            yield flat[start : start + BLOCK], target[start : start + BLOCK]
        return
    # The stubs of NumPy know no "contig".
    op_flags: Any = (("readonly", "contig"), ("writeonly", "contig"))
    with np.nditer(
        (x, out),
        flags=("external_loop", "buffered", "zerosize_ok", "copy_if_overlap"),
        op_flags=op_flags,
        op_dtypes=(dtype, target_dtype),
        casting="unsafe",
        buffersize=BLOCK,
    ) as blocks:
        if blocks.itersize:
            pairs: Any = blocks
            yield from pairs


def in_blocks_together(
    inputs: Sequence[Any], out: Array, dtypes: Sequence[np.dtype[Any]]
) -> Generator[tuple[Array, ...], None, None]:
    """Yield blocks of several inputs, broadcast to the shape of ``out``, and of ``out``: one axis each, contiguous.

    ``dtypes`` are those of the blocks, that of ``out`` last. Inputs may be Python scalars. What is written to a block
    of ``out`` gets there, rounded once to its dtype. Inputs may overlap with ``out`` in any way.
    """
    if out.size <= BLOCK:
        if out.size:
            # As in `in_blocks`. What is written lies apart from all that is read.
            target = np.empty(out.shape, dtypes[-1])
            yield (*map(_flat, inputs, dtypes, repeat(out.shape, len(inputs))), target.reshape(-1))
            np.copyto(out, target, casting="unsafe")
        return
    # As in `in_blocks`.
    op_flags: Any = (*(("readonly", "contig") for _ in inputs), ("writeonly", "contig"))
    with np.nditer(
        (*inputs, out),
        flags=("external_loop", "buffered", "zerosize_ok", "copy_if_overlap"),
        op_flags=op_flags,
        op_dtypes=dtypes,
        casting="unsafe",
        buffersize=BLOCK,
    ) as blocks:
        if blocks.itersize:
            several: Any = blocks
            yield from several


def in_parts(arrays: Sequence[Array]) -> Generator[tuple[Array, ...], None, None]:
    """Yield parts of arrays, which broadcast to the shape of the last one: of that at most `PART` elements."""
    *given, out = arrays
    if out.size <= PART:
        if out.size:
            yield tuple(arrays)
        return
    # What is one along the first axis, or has none, stays as it is.
    cut = [a.ndim == out.ndim and a.shape[0] > 1 for a in given]
    each = out.size // len(out)
    if each > PART:
        inner = [a[0] if a.ndim == out.ndim and not along else a for a, along in zip(given, cut, strict=True)]
        for index in range(len(out)):
            here = (a[index] if along else a for a, along in zip(inner, cut, strict=True))
            yield from in_parts((*here, out[index]))
        return
    step = PART // each
    for start in range(0, len(out), step):
        part = slice(start, start + step)
        yield (*(a[part] if along else a for a, along in zip(given, cut, strict=True)), out[part])


def _flat(given: Any, dtype: np.dtype[Any], shape: tuple[int, ...]) -> Array:
    """Return an array or Python scalar, broadcast to a shape, along one axis, contiguous."""
    scalar = isinstance(given, bool | int | float)
    if not scalar and given.dtype == dtype and given.shape == shape and given.flags.c_contiguous:
        return given.reshape(-1)
    found = np.empty(shape, dtype)
    np.copyto(found, given, casting="unsafe")
    return found.reshape(-1)


def choose(condition: Array, x1: Array, x2: Array, out: Array, scratch: Array) -> None:
    """Write the elements of ``x1`` where the condition holds, else those of ``x2``, bits for bits; one dtype, one axis.

    ``out`` may be either. ``scratch`` holds unsigned integers of the elements' width, as many at the least.
    """
    mask = scratch[: len(out)]
    a, b, result = x1.view(mask.dtype), x2.view(mask.dtype), out.view(mask.dtype)
    np.copyto(mask, condition)
    np.negative(mask, mask)
    # b ^ ((a ^ b) & mask), where b ^ a ^ b is a
    np.bitwise_and(mask, np.bitwise_xor(a, b), mask)
    np.bitwise_xor(b, mask, result)


def as_matrices(*arrays: Array) -> Generator[tuple[Array, ...], None, None]:
    """Yield views [rows, n] of the arrays: their leading axes, which agree, made one. Once, where strides allow that.

    The last axes may differ. Arrays of rank 1 are one row.
    """
    lead = arrays[0].shape[:-1]
    if len(lead) == 1:
        yield arrays
        return
    try:
        merged = tuple(np.reshape(a, (prod(lead), a.shape[-1]), copy=False) for a in arrays)
    except ValueError:
        # Some leading axis does not continue the next: take them one at a time.
        for index in range(lead[0]):
            yield from as_matrices(*(a[index] for a in arrays))
    else:
        yield merged


def add_down(x: Array) -> Array:
    """Return the sums [..., 1, n] over the rows of x[..., rows, n], 256 rows at a time.

    Rounding errors grow with that and with the number of such parts.
    """
    sums = np.add.reduce(x[..., :256, :], -2, keepdims=True)
    for start in range(256, x.shape[-2], 256):
        np.add(sums, np.add.reduce(x[..., start : start + 256, :], -2, keepdims=True), sums)
    return sums


def matrices(x: Array, dtype: np.dtype[Any]) -> Array:
    """Return ``x`` in ``dtype``, its last two axes such that BLAS takes them as they lie."""
    size = x.itemsize
    if x.dtype == dtype and x.strides[-1] == size and x.strides[-2] >= size * x.shape[-1]:
        return x
    return np.ascontiguousarray(x, dtype)
