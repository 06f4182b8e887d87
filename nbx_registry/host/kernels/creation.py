"""Creation: full by assignment, arange block after block from one block of multiples of the step."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np

from nbx_registry import dtypes
from nbx_registry.contracts.creation import progression
from nbx_registry.dtypes import DType
from nbx_registry.host.kernels.blocks import BLOCK, Array
from nbx_registry.host.kernels.conversion import conversion
from nbx_registry.launch import BindContext, Launch
from nbx_registry.rounding import integers_as_float64, round_to_float

SHORT = 4096
"""Elements of a progression that is kept, to be copied: computing them takes longer than that."""

Writer = Callable[[Array], None]


def full(context: BindContext) -> Launch:
    """Bind an assignment of the value, rounded when it is bound."""
    (out,) = context.signature.outputs
    number = context.signature.attributes["fill_value"]
    rounded: Any = round_to_float(integers_as_float64(np.asarray(number)), out.dtype) if out.dtype.floating else number
    with np.errstate(all="ignore"):
        value = np.array(rounded).astype(out.dtype.numpy)

    def run(target: Array) -> None:
        np.copyto(target, value)

    return Launch(function=run, args=("out",))


def arange(context: BindContext) -> Launch:
    """Bind a progression: modulo 2^bits in an integer dtype, where every element fits; in float64 in a floating one."""
    (spec,) = context.signature.outputs
    attributes = context.signature.attributes
    start, _, step = progression(attributes["start"], attributes["stop"], attributes["step"])
    if spec.dtype.floating:
        write = _floats(spec.dtype, float(start), float(step), spec.size)
    else:
        write = _integers(spec.dtype, int(start), int(step), spec.size)
    if spec.size > SHORT:
        return Launch(function=write, args=("out",))
    values = np.empty(spec.size, spec.dtype.numpy)
    with np.errstate(all="ignore"):
        write(values)

    def run(out: Array) -> None:
        np.copyto(out, values)

    return Launch(function=run, args=("out",))


@cache
def _counting(dtype: np.dtype[Any]) -> Array:
    """Return 0, 1, 2, ...: as many as a block has."""
    return np.arange(BLOCK, dtype=dtype)


def _integers(dtype: DType, start: int, step: int, count: int) -> Writer:
    # Formats of 4 bits have no arithmetic in NumPy.
    wide = np.dtype(f"u{max(dtype.numpy.itemsize, 1)}")
    modulus = 1 << 8 * wide.itemsize
    by = wide.type(step % modulus)

    def run(out: Array) -> None:
        multiples = _counting(wide)
        if by != 1:
            multiples = np.multiply(multiples[:count], by)
        target = out.view(wide) if dtype.bits >= 8 else np.empty(count, wide)
        for first in range(0, count, BLOCK):
            block = target[first : first + BLOCK]
            np.add(multiples[: len(block)], wide.type((start + first * step) % modulus), out=block)
        if dtype.bits < 8:
            np.copyto(out, target.view(np.int8), casting="unsafe")

    return run


def _floats(dtype: DType, start: float, step: float, count: int) -> Writer:
    narrow = conversion(dtypes.get("float64"), dtype, saturate=False)

    def run(out: Array) -> None:
        multiples = _counting(np.dtype(np.float64))[:count] * step
        scratch = np.empty(len(multiples), np.float64)
        for first in range(0, count, BLOCK):
            block = out[first : first + BLOCK]
            wide = block if dtype.bits == 64 else scratch[: len(block)]
            np.add(multiples[: len(block)], start + first * step, out=wide)
            if wide is not block:
                narrow(wide, block)

    return run
