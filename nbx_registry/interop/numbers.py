"""Numbers on their way into a tensor: Python's as arrays, and arrays in another dtype."""

from __future__ import annotations

import importlib
from typing import Any

import numpy as np

from nbx_registry import dtypes
from nbx_registry.dtypes import DType
from nbx_registry.errors import SignatureError
from nbx_registry.interop.numpy_arrays import table_dtype
from nbx_registry.rounding import integer_range


def of_numbers(x: Any, wanted: DType | None) -> np.ndarray:
    """Return Python numbers, in lists or alone, as an array: of the dtype that NumPy finds, complex64 if complex.

    Integers of which int64 does not hold all are in ``wanted``, or float64 for a floating one. Raises `SignatureError`
    for what is no number, for integers that ``wanted`` (int64 where it is None) does not hold, and those beyond
    float64.
    """
    try:
        array = np.asarray(x)
    except ValueError as error:
        raise SignatureError(f"cannot make an array of {type(x).__name__}: {error}") from error
    if array.dtype.kind in "uO" or (array.dtype.kind == "f" and array.size and np.abs(array).max() >= 2.0**63):
        # NumPy makes uint64, float64 or objects of such integers, as their signs and sizes fall.
        objects = np.asarray(x, dtype=object)
        kinds = set(map(type, objects.flat))
        if kinds == {int}:
            return _of_large(objects, wanted)
        if kinds == {int, float}:
            return _floating(objects, "float64")
    if array.dtype.kind not in "biufc":
        raise SignatureError(f"a {type(x).__qualname__} is no array and no nested list of numbers")
    if wanted is not None and wanted.integral and array.dtype.kind in "iub" and array.size:
        least, most = integer_range(wanted)
        if int(array.min()) < least or int(array.max()) > most:
            raise SignatureError(f"numbers from {array.min()} to {array.max()} do not all fit {wanted.name}")
    # Python's complex numbers are of a dtype that the table lacks.
    return array.astype(np.complex64) if array.dtype.kind == "c" else array


def _of_large(integers: np.ndarray, wanted: DType | None) -> np.ndarray:
    """Return an array of Python integers, of which int64 does not hold all."""
    dtype = dtypes.get("int64") if wanted is None else wanted
    least, most = integers.min(), integers.max()
    if dtype.integral:
        low, high = integer_range(dtype)
        if low <= least and most <= high:
            return integers.astype(dtype.numpy)
        hint = "; give a dtype that holds them, as dtype='float64'" if wanted is None else ""
        raise SignatureError(f"numbers from {_spelled(least)} to {_spelled(most)} do not all fit {dtype.name}{hint}")
    return integers.astype(np.uint64) if least >= 0 and most < 2**64 else _floating(integers, dtype.name)


def _floating(numbers: np.ndarray, wanted: str) -> np.ndarray:
    try:
        return numbers.astype(np.float64)
    except OverflowError as error:
        raise SignatureError(
            f"an integer among the numbers is beyond float64, by which they become {wanted}"
        ) from error


def _spelled(integer: int) -> str:
    # Python spells out no integer of more than some thousand digits.
    return str(integer) if integer.bit_length() <= 128 else f"one of {integer.bit_length()} bits"


def converted(array: np.ndarray, wanted: DType) -> np.ndarray:
    """Return the elements in another dtype, as the op astype converts them. Raises `SignatureError` as it does."""
    source = table_dtype(array.dtype, "array")
    if source.kind == "complex" and wanted.kind != "complex":
        raise SignatureError(f"{source.name} does not convert to {wanted.name}; take the real part first")
    # By reference: the kernels of the host stand above array libraries.
    conversion = importlib.import_module("nbx_registry.host.kernels.conversion").conversion
    out = np.empty(array.shape, wanted.numpy)
    with np.errstate(all="ignore"):
        conversion(source, wanted, saturate=False)(array, out)
    return out
