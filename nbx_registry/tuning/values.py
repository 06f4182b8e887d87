"""Values that a kernel is tuned on: drawn anew for each of several inputs, alike for one signature, never zeros.

What holds indices holds ones that the contract allows, all different where that can be; what holds lengths holds long
ones; a parameter whose contract fixes an integer dtype holds words of any bits.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from typing import Any, Final

import numpy as np

from nbx_registry.dtypes import DType
from nbx_registry.param import Param
from nbx_registry.rounding import float_format, integer_range
from nbx_registry.signature import Signature
from nbx_registry.spec import TensorSpec

Array = np.ndarray[Any, np.dtype[Any]]

NUMBER: Final = 3
"""Inputs that each candidate is checked on."""

_BLOCK: Final = 2**20 - 3
"""Elements drawn; a prime, so that rows of a larger tensor, which repeats them, differ."""

_PERMUTED: Final = 2**24
"""Indices up to which all there are are shuffled."""

_LENGTHS: Final = frozenset({"lens", "seq_lens"})
"""Parameters that count tokens, by which most of the work is decided."""

_SCALARS: Final[Mapping[str, tuple[bool | int | float, ...]]] = {
    "bool": (True,),
    "int": (3, 1, 7),
    "float": (1.5, -0.75, 2.5),
}
"""Python scalars where nobody gave any, by turns from the last parameter on: limits have something between them."""


def draw(signature: Signature, given: Mapping[str, Any], number: int) -> list[Any]:
    """Return the values of every parameter in order, as `Op.run_oracle` takes them.

    Parameters
    ----------
    given
        By parameter: an array, or a Python scalar, that is taken as it is.
    number
        Which of the inputs; each has values of its own.
    """
    found: list[Any] = []
    weak = sum(isinstance(operand, TensorSpec) and operand.weak for operand in signature.tensors)
    for param, operand in zip(signature.op.tensors, signature.tensors, strict=True):
        if operand is None:
            found.append(None)
        elif param.name in given:
            found.append(given[param.name])
        elif isinstance(operand, tuple):
            items = [_values(signature, param, spec, number, str(place)) for place, spec in enumerate(operand)]
            found.append(items)
        elif operand.weak:
            weak -= 1
            scalars = _SCALARS[operand.dtype.kind]
            found.append(scalars[weak % len(scalars)])
        else:
            found.append(_values(signature, param, operand, number, ""))
    return found


def _values(signature: Signature, param: Param, spec: TensorSpec, number: int, place: str) -> Array:
    rng = np.random.default_rng([zlib.crc32(f"{signature} {param.name} {place}".encode()), number])
    # Along an expanded axis all are one element.
    kept = tuple(1 if step == 0 else extent for extent, step in zip(spec.shape, spec.strides, strict=True))
    size = int(np.prod(kept, dtype=np.int64))
    values = _elements(signature, param, spec.dtype, size, number, rng).reshape(kept)
    return np.array(np.broadcast_to(values, spec.shape), order="C")


def _elements(
    signature: Signature, param: Param, dtype: DType, size: int, number: int, rng: np.random.Generator
) -> Array:
    limits = signature.index_limits().get(param.name)
    if dtype.integral and param.name in _LENGTHS:
        return _lengths(signature, limits[1] if limits is not None else None, size, number, rng).astype(dtype.numpy)
    if dtype.integral and limits is not None:
        return _indices(signature, limits[0], limits[1], size, rng).astype(dtype.numpy)
    drawn = _drawn(param, dtype, min(size, _BLOCK), number, rng)
    return drawn if drawn.size == size else np.resize(drawn, size)


def _drawn(param: Param, dtype: DType, size: int, number: int, rng: np.random.Generator) -> Array:
    if dtype.kind == "bool":
        return rng.random(size) < 0.5
    if dtype.integral:
        low, high = integer_range(dtype)
        if param.letter is None:
            return rng.integers(low, high, size, dtype.numpy if dtype.bits >= 8 else np.int64, endpoint=True).astype(
                dtype.numpy
            )
        values = rng.integers(1, min(9, high), size, endpoint=True)
        return (values if low == 0 else values * rng.choice([max(low, -1), 1], size)).astype(dtype.numpy)
    if dtype.kind == "complex":
        return (rng.standard_normal(size) + 1j * rng.standard_normal(size)).astype(dtype.numpy)
    drawn = rng.uniform(0.25, 1.75, size) if number == 1 else rng.standard_normal(size) * (3 if number else 1)
    least = 2.0 ** float_format(dtype).least_exponent
    return np.where(np.abs(drawn) < least, least, drawn).astype(dtype.numpy)


def _lengths(signature: Signature, end: int | None, size: int, number: int, rng: np.random.Generator) -> Array:
    """Return lengths: the longest there may be, then some of at least half that, then any."""
    axes = signature.axes
    table = int(axes["max_pages"]) * int(axes["page_tokens"]) if {"max_pages", "page_tokens"} <= axes.keys() else 1000
    longest = max((table if end is None else end) - 1, 0)
    if number == 0:
        return np.full(size, longest)
    return rng.integers(longest // 2 if number == 1 else min(longest, 1), longest, size, endpoint=True)


def _indices(signature: Signature, low: int, end: int | None, size: int, rng: np.random.Generator) -> Array:
    """Return indices, no two alike as far as there are enough.

    The others repeat them or, where the op writes in place, point nowhere: two writes to one place are out of contract.
    """
    first, end = max(low, 0), 8 if end is None else end
    room = max(end - first, 0)
    distinct = first + (rng.permutation(room)[:size] if room <= _PERMUTED else _sparse(room, size, rng))
    rest = size - distinct.size
    if not rest:
        return distinct
    writes = any(param.mutable for param in signature.op.tensors)
    if (writes and low < 0) or not room:
        return np.concatenate([distinct, np.full(rest, max(low, -1))])
    return np.concatenate([distinct, rng.integers(first, end, rest)])


def _sparse(room: int, size: int, rng: np.random.Generator) -> Array:
    """Return different numbers below a far larger one."""
    drawn = np.unique(rng.integers(0, room, 2 * size))
    return rng.permutation(drawn)[:size]
