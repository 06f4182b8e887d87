"""pow. NumPy's function does the general work; what it is not exact enough for, or answers as a root would, is not."""

from __future__ import annotations

from typing import Any

import numpy as np

from nbx_registry.host.kernels.blocks import BLOCK, Array, in_blocks, in_blocks_together, working
from nbx_registry.host.kernels.elementwise import arithmetic, rounded
from nbx_registry.launch import BindContext, Launch


def pow(context: BindContext) -> Launch:
    """Bind powers: of integers numpy.power, of floating numbers by one exponent or element by element."""
    signature = context.signature
    x_spec, e_spec = signature.operands
    (out,) = signature.outputs
    if not out.dtype.floating:
        return arithmetic(context, np.power)
    dtype = working(out.dtype)
    # With one exponent for all, the base decides the shape.
    single = not x_spec.weak and e_spec.size == 1 and x_spec.shape == out.shape

    def run(x: Any, e: Any, target: Array) -> None:
        e = rounded(e, out.dtype)
        if single:
            _by_one(x, float(e if e_spec.weak else e.item()), target, dtype)
        else:
            _by_each(rounded(x, out.dtype), e, target, dtype)

    return Launch(function=run, args=("x", "e", "out"))


def _by_each(x: Any, e: Any, out: Array, dtype: np.dtype[Any]) -> None:
    for base, exponent, target in in_blocks_together((x, e), out, (dtype, dtype, dtype)):
        np.power(base, exponent, out=target)
        # What NumPy's powers of float32 may miss by an ulp.
        for number, exact in ((1, np.positive), (2, np.square)):
            mask = np.equal(exponent, number)
            if np.count_nonzero(mask):
                exact(base, out=target, where=mask)


def _by_one(x: Array, e: float, out: Array, dtype: np.dtype[Any]) -> None:
    if e in (1, 2):
        function = np.positive if e == 1 else np.square
        function(x, out=out, dtype=dtype, casting="unsafe")
    elif e == -1:
        np.reciprocal(x, out=out, dtype=dtype, casting="unsafe")
    elif e.is_integer() and 3 <= abs(e) <= 8 and dtype == np.float32:
        # No such power of a float32 is beyond float64, but for those that float32 has at neither end.
        for base, target in in_blocks(x, out, np.dtype(np.float64)):
            _multiply(base, int(abs(e)), target)
            if e < 0:
                np.divide(1.0, target, target)
    else:
        # Not a scalar: of 0.5 numpy.power makes a root, which answers -0.0 and -inf otherwise.
        exponents = np.full(min(BLOCK, x.size), e, dtype)
        for base, target in in_blocks(x, out, dtype):
            np.power(base, exponents[: len(base)], out=target)


def _multiply(x: Array, count: int, out: Array) -> None:
    """Write x, apart from ``out``, to the power of ``count``, at least 3: by its binary digits, the highest first."""
    np.square(x, out=out)
    for position, digit in enumerate(f"{count:b}"[1:]):
        if position:
            np.square(out, out=out)
        if digit == "1":
            np.multiply(out, x, out)
