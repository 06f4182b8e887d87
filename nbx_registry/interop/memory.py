"""NumPy arrays over memory known by its address."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any

import numpy as np


class _Memory:
    """What NumPy reads an address from; it becomes the array's base and keeps ``owner`` alive."""

    __slots__ = ("__array_interface__", "owner")

    def __init__(self, interface: dict[str, Any], owner: object) -> None:
        self.__array_interface__ = interface
        self.owner = owner


# One scratch byte for arrays without elements, whose address may be zero: NumPy takes no null pointer.
_NOTHING = ctypes.create_string_buffer(1)
_NOTHING_ADDRESS = ctypes.addressof(_NOTHING)


def array_at(
    address: int,
    dtype: np.dtype,
    shape: tuple[int, ...],
    strides: Sequence[int] | None = None,
    *,
    owner: object,
    readonly: bool = False,
) -> np.ndarray:
    """Return an array over the memory at ``address``, which ``owner`` keeps alive; ``strides`` count elements.

    The memory is not read, so that the address may be a device's as long as nobody reads the elements.
    """
    size = dtype.itemsize
    interface: dict[str, Any] = {
        "version": 3,
        "shape": shape,
        # Elements are declared as raw bytes: the interface knows no ml_dtypes; the dtype is put on by a view.
        "typestr": f"|V{size}",
        "data": (address or _NOTHING_ADDRESS, readonly),
        "strides": None if strides is None else tuple(step * size for step in strides),
    }
    return np.asarray(_Memory(interface, owner)).view(dtype)


# NumPy's own ways to an array's address cost 0.7 us and more. The address is the first field behind the object's
# header, which NumPy's C interface has published and kept since 1.7; where that does not hold (an interpreter other
# than CPython) the slow way is taken.
_HEADER = object.__basicsize__
_pointer_at = ctypes.c_void_p.from_address


def _read_address(array: np.ndarray) -> int:
    return _pointer_at(id(array) + _HEADER).value or 0


def _ask_address(array: np.ndarray) -> int:
    return array.__array_interface__["data"][0]


def _choose() -> Any:
    import sys

    if sys.implementation.name != "cpython":
        return _ask_address
    probe = np.empty(7, np.int16)[3:]
    return _read_address if _read_address(probe) == _ask_address(probe) else _ask_address


address_of = _choose()
"""Return the address of a NumPy array's first element."""
