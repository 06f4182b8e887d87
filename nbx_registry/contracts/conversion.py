"""Conversion: astype."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from nbx_registry import dtypes
from nbx_registry.dtypes import DType
from nbx_registry.errors import SignatureError
from nbx_registry.op import op
from nbx_registry.rounding import integer_range, integers_as_float64, round_to_float
from nbx_registry.signature import Signature
from nbx_registry.spec import TensorSpec

Array = np.ndarray[Any, np.dtype[Any]]


def infer_astype(signature: Signature) -> TensorSpec:
    """Infer the output's dtype from the attribute."""
    (x,) = signature.operands
    dtype: DType = signature.attributes["dtype"]
    if x.dtype.kind == "complex" and dtype.kind != "complex":
        raise SignatureError(
            f"astype: x is {x.dtype.name}, which does not convert to {dtype.name}; take its real part first",
            code="DTYPE",
        )
    return TensorSpec(dtype, x.shape)


@op(
    "astype@1(x: T1[*X], *, dtype: dtype, saturate: bool = False) -> T2[*X]",
    infer=infer_astype,
    exact=True,
)
def astype(x: Array, *, dtype: DType, saturate: bool) -> Array:
    """Convert each element to another dtype, always into a new tensor.

    Parameters
    ----------
    x : any dtype and shape
    dtype : dtype
    saturate : bool
        Clamp numbers beyond the target's range, infinities too, to its ends.

    Returns
    -------
    ``dtype``, the shape of ``x``
        To a floating dtype: rounded once, to nearest even. Beyond the largest number an infinity (float8_e4m3fn and
        float8_e4m3fnuz: NaN; float4_e2m1fn, which has neither: the largest number, and any value for NaN). From an
        integer to an integer: modulo 2^bits. From a floating to an integer dtype: truncated towards zero; NaN gives
        0, and a number beyond the range without ``saturate`` anything: no kernel may be relied on there. To bool:
        False for zeros alone. From bool: 0 and 1.

    Raises
    ------
    SignatureError
        For a complex tensor and a dtype that is not.

    Notes
    -----
    Python array API standard 2024.12, ``astype``; IEEE 754-2019, section 4.3.1; saturation as the conversions of PTX
    (``.satfinite``) have it.
    """
    if dtype.kind == "bool":
        return x != 0
    if dtype.kind == "complex":
        wide = x if x.dtype.kind == "c" else integers_as_float64(x).astype(np.complex128)
        float32 = dtypes.get("float32")
        parts = [round_to_float(part, float32, saturate=saturate) for part in (np.real(wide), np.imag(wide))]
        # Not real + 1j * imaginary: an infinity times the 0 of 1j is NaN.
        return np.stack(parts, axis=-1).view(np.complex128)[..., 0]
    if dtype.floating:
        if x.dtype.kind != "f" and dtype.bits == 64:
            return x.astype(np.float64)
        wide = x if x.dtype.kind == "f" else integers_as_float64(x)
        return round_to_float(wide, dtype, saturate=saturate)
    low, high = integer_range(dtype)
    if x.dtype.kind == "f":
        # Python's integers have no range, so that nothing here wraps.
        whole = [0 if math.isnan(v) else (low if v < low else high if v > high else int(v)) for v in x.ravel().tolist()]
    else:
        whole = [int(v) for v in x.ravel().tolist()]
        if saturate:
            whole = [max(low, min(v, high)) for v in whole]
        else:
            whole = [(v - low) % (high - low + 1) + low for v in whole]
    return np.array(whole, dtype=dtype.numpy).reshape(x.shape)
