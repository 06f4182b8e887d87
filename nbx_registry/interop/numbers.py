"""Numbers on their way into a tensor: Python's as arrays, and arrays in another dtype."""

from __future__ import annotations

import importlib
from typing import Any

import numpy as np

from nbx_registry.dtypes import DType
from nbx_registry.errors import SignatureError
from nbx_registry.interop.numpy_arrays import table_dtype
from nbx_registry.rounding import integer_range


def of_numbers(x: Any, wanted: DType | None) -> np.ndarray:
    """Return Python numbers, in lists or alone, as an array: of the dtype that NumPy finds, complex64 if complex.

    Raises `SignatureError` for what is none, and for integers that an integer dtype ``wanted`` does not hold.
    """
    try:
        array = np.asarray(x)
    except ValueError as error:
        raise SignatureError(f"cannot make an array of {type(x).__name__}: {error}") from error
    if array.dtype.kind not in "biufc":
        raise SignatureError(f"a {type(x).__qualname__} is no array and no nested list of numbers")
    if wanted is not None and wanted.integral and array.dtype.kind in "iub" and array.size:
        least, most = integer_range(wanted)
        if int(array.min()) < least or int(array.max()) > most:
            raise SignatureError(f"numbers from {array.min()} to {array.max()} do not all fit {wanted.name}")
    # Python's complex numbers are of a dtype that the table lacks.
    return array.astype(np.complex64) if array.dtype.kind == "c" else array


def converted(array: np.ndarray, wanted: DType) -> np.ndarray:
    """Return the elements in another dtype, as the op astype converts them. Raises `SignatureError` as it does."""
    source = table_dtype(array.dtype, "array")
    if source.kind == "complex" and wanted.kind != "complex":
        raise SignatureError(f"{source.name} does not convert to {wanted.name}; take the real part first")
    # By reference: the kernels of the host stand above array libraries.
    conversion = importlib.import_module("nbx_registry.host.kernels.conversion").conversion
    out = np.empty(array.shape, wanted.numpy)
    conversion(source, wanted, saturate=False)(array, out)
    return out
