"""The driver's launch call, prepared: everything it takes is made once, per launch only the stream may change.

`Prepared` and `launcher` alone know how the driver is entered. The alternative, measured beside it by
``benchmarks/launch.py``, is cuda-bindings' ``cuLaunchKernel``.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable

from nbx_cuda.runtime.driver import library

Dimensions = tuple[int, int, int]


class _Config(ctypes.Structure):
    """``CUlaunchConfig``."""

    _fields_ = (
        ("grid", ctypes.c_uint * 3),
        ("block", ctypes.c_uint * 3),
        ("shared_bytes", ctypes.c_uint),
        ("stream", ctypes.c_void_p),
        ("attributes", ctypes.c_void_p),
        ("attribute_count", ctypes.c_uint),
    )


class _Attribute(ctypes.Structure):
    """``CUlaunchAttribute``: of its union of 64 bytes only the first number is used here."""

    _fields_ = (("id", ctypes.c_int), ("_pad", ctypes.c_int), ("value", ctypes.c_int), ("_rest", ctypes.c_int * 15))


_PROGRAMMATIC_STREAM_SERIALIZATION = 6
"""``CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION``: begin once the launch before says so or ends."""


class Prepared:
    """One launch over parameter cells of its own. ``arguments`` are what the launch call takes."""

    __slots__ = ("_attributes", "_config", "arguments")

    def __init__(
        self,
        function: int,
        grid: Dimensions,
        block: Dimensions,
        shared_bytes: int,
        cells: tuple[int, ...],
        *,
        early: bool = False,
    ) -> None:
        self._attributes = (_Attribute * 1)(_Attribute(_PROGRAMMATIC_STREAM_SERIALIZATION, 0, 1)) if early else None
        address = None if self._attributes is None else ctypes.addressof(self._attributes)
        self._config = _Config(grid, block, shared_bytes, None, address, int(early))
        # ctypes converts nothing at the call when it is given its own objects and no argtypes.
        self.arguments = (
            ctypes.byref(self._config),
            ctypes.c_void_p(function),
            (ctypes.c_void_p * len(cells))(*cells),
            None,
        )

    def on(self, stream: int) -> None:
        """Send the launches that follow to ``stream``."""
        self._config.stream = stream


def launcher() -> Callable[..., int]:
    """Return the call that launches: takes the ``arguments`` of a `Prepared`, returns the driver's code."""
    return library().cuLaunchKernelEx
