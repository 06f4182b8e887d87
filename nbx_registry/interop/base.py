"""What an adapter is, and what every array library is held to."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

import numpy as np

from nbx_registry.errors import SignatureError
from nbx_registry.spec import TensorSpec

MAX_ALIGN = 256
"""The largest alignment a spec states, bytes: no kernel asks for more."""


class Adapter(Protocol):
    """One array library: how its arrays are described, reached and made. Stateless and shared between threads.

    Nothing is copied and nothing is synchronised by any of these, but `take` on a library that hands its arrays over.
    """

    name: str
    """``numpy``, ``torch``, ``cupy``, ``nbx``, ``dlpack``."""
    foreign: bool
    """Whether arrays must be exchanged for `take` of them first: they cannot be read where they are."""

    address_code: str
    """Python source of `address` over ``{x}``, for calls compiled into one function; empty where there is none."""

    def take(self, x: Any) -> Any:
        """Return ``x`` itself, or for a foreign library the nbx.Tensor that stands for it (read-only)."""
        ...

    def key(self, x: Any, /) -> tuple[Any, ...]:
        """Return something hashable and cheap that settles `spec` (but for alignment) and `place`.

        Arrays that `spec` or `place` refuses have keys that no accepted array has: an accepted key needs no check.
        """
        ...

    def spec(self, x: Any, *, measure_align: bool = False) -> TensorSpec:
        """Describe ``x``; offset 0, because `address` is that of the first element.

        ``align`` is measured (up to 256 bytes) only if asked for, else 16 as for every spec.

        Raises
        ------
        SignatureError
            For what no kernel could be given: a dtype outside the table, byte-swapped or structured elements,
            negative strides, strides that are no multiple of the element, a gradient to be recorded.
        """
        ...

    def place(self, x: Any) -> str:
        """Return where it lives: ``cpu``, ``cuda:0``."""
        ...

    def array(self, x: Any) -> np.ndarray:
        """Return a NumPy array over the same memory. Host arrays only."""
        ...

    def address(self, x: Any) -> int:
        """Return the address of the first element; of no meaning where there is no element."""
        ...

    def writable(self, x: Any) -> bool:
        """Whether ``x`` may be written: as ``out=``, or where an op writes in place."""
        ...

    def empty(self, spec: TensorSpec, place: str, like: Any = None) -> Any:
        """Return an uninitialised array of that library, with the spec's strides. ``like`` is an array of it."""
        ...

    def view(self, x: Any, shape: tuple[int, ...], strides: tuple[int, ...], offset: int) -> Any:
        """Return the memory of ``x`` with another shape and strides, ``offset`` elements on. Not checked."""
        ...

    def streams(self, place: str) -> Callable[[], Any]:
        """Return what tells the raw handle of the stream the library enqueues on there; None: it has no say."""
        ...


def alignment(address: int) -> int:
    """Return the largest power of two, at most 256, that divides ``address``."""
    return address & -address & (MAX_ALIGN - 1) or MAX_ALIGN


def element_strides(strides: Sequence[int], itemsize: int, shape: Sequence[int], what: str) -> tuple[int, ...]:
    """Turn byte strides into element strides. Raises `SignatureError` for those no kernel is given.

    ``what`` names the array in the message. Axes of extent below 2, whose stride moves nothing, pass with any.
    """
    result: list[int] = []
    for axis, (step, extent) in enumerate(zip(strides, shape, strict=True)):
        if extent < 2:
            result.append(max(step, 0) // itemsize)
        elif step < 0:
            raise SignatureError(
                f"{what} has a negative stride ({step} bytes on axis {axis}); give a copy: numpy.ascontiguousarray(x)"
            )
        elif step % itemsize:
            raise SignatureError(
                f"{what} has a stride of {step} bytes on axis {axis}, no multiple of its element's {itemsize};"
                " give a copy: numpy.ascontiguousarray(x)"
            )
        else:
            result.append(step // itemsize)
    return tuple(result)
