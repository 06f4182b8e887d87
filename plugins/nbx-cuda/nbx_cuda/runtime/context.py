"""The primary context of a device, made current for as long as a call needs it.

Everybody in the process shares a device's primary context (torch included), and which context is current is a
property of the thread. So every call that needs one asks: a thread that never touched CUDA gets ours and keeps it,
a thread that works on another device gets its own back afterwards.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from nbx_cuda.runtime.driver import check, library, translated


class Context:
    """The primary context of device ``index``; retained for the life of the process."""

    def __init__(self, index: int) -> None:
        self.index = index
        self._library = library()
        previous = self._current()
        with translated(f"starting cuda:{index}"):
            self._core_device().set_current()
        self.handle = self._current()
        self._leave(previous)

    @contextmanager
    def current(self) -> Iterator[None]:
        """Make the context current in this thread for the length of the block."""
        previous = self._current()
        if previous == self.handle:
            yield
            return
        self._enter()
        try:
            yield
        finally:
            self._leave(previous)

    @contextmanager
    def device(self) -> Iterator[Any]:
        """Make the context current, and give cuda-core's ``Device``, which is an object of the thread."""
        previous = self._current()
        core_device = self._core_device()
        core_device.set_current()
        try:
            yield core_device
        finally:
            self._leave(previous)

    def _core_device(self) -> Any:
        from cuda.core import Device

        return Device(self.index)

    def _current(self) -> int | None:
        handle = ctypes.c_void_p()
        check(self._library.cuCtxGetCurrent(ctypes.byref(handle)), "asking for the current context")
        return handle.value

    def _enter(self) -> None:
        check(self._library.cuCtxSetCurrent(ctypes.c_void_p(self.handle)), f"entering the context of cuda:{self.index}")

    def _leave(self, previous: int | None) -> None:
        if previous is not None:
            check(self._library.cuCtxSetCurrent(ctypes.c_void_p(previous)), "restoring the caller's context")
