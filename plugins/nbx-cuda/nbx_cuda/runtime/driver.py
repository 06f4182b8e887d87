"""The driver library: where it is, why it is not there, and calls whose failures raise `CudaError`.

Two ways into one library. cuda-bindings serves everything that is not timed; ctypes serves what runs at every launch
(and what must be asked before cuda-bindings is worth importing: it takes a tenth of a second and more).
"""

from __future__ import annotations

import ctypes
import importlib.util
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

from nbx_cuda.runtime.errors import CudaError

LIBRARY = "nvcuda.dll" if sys.platform == "win32" else "libcuda.so.1"

NO_DEVICE = 100


@cache
def library() -> ctypes.CDLL:
    """Return the driver library, initialised. Raises `CudaError` saying why there is none."""
    try:
        found = ctypes.CDLL(LIBRARY)
    except OSError as error:
        raise CudaError(
            f"no NVIDIA driver: {LIBRARY} was not found ({error}); install the NVIDIA driver, or use a machine that "
            "has one"
        ) from error
    result = found.cuInit(0)
    if result == NO_DEVICE:
        raise CudaError(
            "the NVIDIA driver found no device; look at nvidia-smi and at CUDA_VISIBLE_DEVICES", result=result
        )
    if result:
        raise CudaError(f"the NVIDIA driver does not start: cuInit gave {_words(found, result)}", result=result)
    return found


@cache
def device_count() -> int:
    """Return how many devices the driver shows. Raises `CudaError` when there is no driver."""
    count = ctypes.c_int()
    check(library().cuDeviceGetCount(ctypes.byref(count)), "counting devices")
    return count.value


def why_absent() -> str:
    """Return why no device can be driven, with the way out; an empty string when one can."""
    try:
        count = device_count()
    except CudaError as error:
        return str(error)
    if count == 0:
        return "the NVIDIA driver shows no device; look at nvidia-smi and at CUDA_VISIBLE_DEVICES"
    return _missing_toolkit()


@cache
def _missing_toolkit() -> str:
    for module, distribution in (("cuda.core", "cuda-core"), ("cuda.bindings", "cuda-bindings")):
        try:
            present = importlib.util.find_spec(module) is not None
        except ModuleNotFoundError:  # not even the namespace package ``cuda``
            present = False
        if not present:
            return f"{distribution} is not installed; pip install 'nbx-registry[cuda]'"
    return ""


@cache
def bindings() -> Any:
    """Return ``cuda.bindings.driver``."""
    from cuda.bindings import driver

    return driver


def check(result: int, doing: str) -> None:
    """Raise `CudaError` unless a driver call gave success. ``doing`` says what was tried."""
    if result:
        raise CudaError(f"{doing}: {_words(library(), result)}", result=result)


def call(doing: str, function: str, *arguments: Any) -> Any:
    """Call a driver function through cuda-bindings and return its value (None, one, or a tuple).

    Raises `CudaError` with ``doing``, the driver's name for the failure and its explanation.
    """
    result, *values = getattr(bindings(), function)(*arguments)
    check(int(result), doing)
    return values[0] if len(values) == 1 else tuple(values) or None


@contextmanager
def translated(doing: str) -> Iterator[None]:
    """Turn cuda-core's errors into `CudaError`, saying what was tried."""
    from cuda.core._utils.cuda_utils import CUDAError

    try:
        yield
    except CUDAError as error:
        name = str(error).partition(":")[0]
        result = getattr(bindings().CUresult, name, None)
        raise CudaError(f"{doing}: {error}", result=None if result is None else int(result)) from error
    except RuntimeError as error:
        raise CudaError(f"{doing}: {error}") from error


def _words(found: ctypes.CDLL, result: int) -> str:
    name, text = ctypes.c_char_p(), ctypes.c_char_p()
    found.cuGetErrorName(result, ctypes.byref(name))
    found.cuGetErrorString(result, ctypes.byref(text))
    return f"{(name.value or b'an unknown error').decode()} ({result}): {(text.value or b'no explanation').decode()}"
