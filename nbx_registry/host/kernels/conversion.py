"""astype: every pair of dtypes, rounded once where NumPy's own casts would round twice."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from math import isnan

import numpy as np

from nbx_registry.dtypes import DType
from nbx_registry.host.kernels.blocks import Array, in_blocks, working
from nbx_registry.host.parallel import large, spread_over
from nbx_registry.launch import BindContext, Launch
from nbx_registry.rounding import float_format, integer_range, integers_as_float64

Conversion = Callable[[Array, Array], None]
"""``(x, out)``: arrays of one shape, any strides."""


def astype(context: BindContext) -> Launch:
    """Bind the shortest right conversion for the two dtypes."""
    (spec,), (out,) = context.signature.operands, context.signature.outputs
    convert = conversion(spec.dtype, out.dtype, saturate=context.signature.attributes["saturate"])
    if large(spec.nbytes + out.nbytes):
        return Launch(function=partial(spread_over, convert), args=("x", "out"))
    return Launch(function=convert, args=("x", "out"))


def conversion(source: DType, target: DType, *, saturate: bool) -> Conversion:
    """Return the conversion of ``source`` to ``target`` that the contract of astype describes."""
    if source.kind == "complex" or target.kind == "complex":
        return _clamped_complex if saturate else _cast
    if target.floating:
        return _to_float(source, target, saturate=saturate)
    if source.floating:
        return _nonzero if target.kind == "bool" else _float_to_integer(source, target, saturate=saturate)
    if saturate and target.integral and source.integral:
        return _clamped_integer(source, target)
    return _cast_through_bytes if source.bits < 8 and target.bits < 8 else _cast


def _cast(x: Array, out: Array) -> None:
    np.copyto(out, x, casting="unsafe")


def _cast_through_bytes(x: Array, out: Array) -> None:
    """Cast between int4 and uint4, for which there is no cast of their own."""
    for block, target in in_blocks(x, out, np.dtype(np.int8), out.dtype):
        np.copyto(target, block, casting="unsafe")


def _clamped_complex(x: Array, out: Array) -> None:
    _cast(x, out)
    limit = np.finfo(np.float32).max
    for part in (out.real, out.imag):
        np.clip(part, -limit, limit, out=part)


def _nonzero(x: Array, out: Array) -> None:
    np.not_equal(x, x.dtype.type(0), out=out)


def _clamped_integer(source: DType, target: DType) -> Conversion:
    (least, most), (low, high) = integer_range(source), integer_range(target)
    low, high = max(low, least), min(high, most)

    def run(x: Array, out: Array) -> None:
        # Formats of 4 bits have no ordering of their own in NumPy.
        dtype = np.dtype(np.int8) if source.bits < 8 else x.dtype
        for block, target_block in in_blocks(x, out, dtype, out.dtype):
            np.copyto(target_block, np.clip(block, low, high), casting="unsafe")

    return run


def _to_float(source: DType, target: DType, *, saturate: bool) -> Conversion:
    # ml_dtypes casts through float32, and rounds there what float32 does not hold.
    twice = (target.numpy_name or "").startswith("ml_dtypes:") and source.bits > 16 and source.name != "float32"
    if not twice and not (saturate and (source.floating or target.bits <= 16)):
        # No integer is beyond the range of float32.
        return _cast
    limit = float_format(target).largest
    narrow = _narrow if twice else _cast

    def run(x: Array, out: Array) -> None:
        dtype = np.dtype(np.float64) if source.floating else x.dtype
        for block, target_block in in_blocks(x, out, dtype, out.dtype):
            wide = block if source.floating else integers_as_float64(block)
            narrow(np.clip(wide, -limit, limit) if saturate else wide, target_block)

    return run


def _narrow(x: Array, out: Array) -> None:
    """Round float64 once to a format of at most 16 bits.

    On the way it is rounded to float32 towards zero, with the last bit set where anything was dropped: a number rounded
    so rounds on as if it had never been rounded (S. Boldo and G. Melquiond, "When double rounding is odd", 2005).
    """
    odd = x.astype(np.float32)
    back = odd.astype(np.float64)
    bits = odd.view(np.uint32)
    np.subtract(bits, 1, out=bits, where=np.abs(back) > np.abs(x))
    np.bitwise_or(bits, 1, out=bits, where=(back != x) & (x == x))
    np.copyto(out, odd, casting="unsafe")


def _float_to_integer(source: DType, target: DType, *, saturate: bool) -> Conversion:
    low, high = integer_range(target)

    def run(x: Array, out: Array) -> None:
        dtype = np.dtype(np.float64) if saturate else working(source)
        for block, target_block in in_blocks(x, out, dtype, out.dtype):
            np.copyto(target_block, block, casting="unsafe")
            if saturate:
                # Both ends are powers of two, or next to one: the comparisons are exact in float64.
                target_block[block >= float(high + 1)] = high
                target_block[block <= float(low)] = low
            # The maximum tells cheaply that there is no NaN.
            if isnan(np.maximum.reduce(block)):
                target_block[np.isnan(block)] = 0

    return run
