"""Rows of real numbers and rows of their frequencies, as kernels of rfft and irfft are given them."""

from __future__ import annotations

from typing import NamedTuple

from nbx_registry.launch import BindContext
from nbx_triton.kernels.strided import NARROW, collapse, reach
from nbx_triton.launching import Argument, Pointer


class Signals(NamedTuple):
    """The input's and the output's rows."""

    rows: int
    arguments: dict[str, Argument]
    """Both as pointers to float32; strides count real numbers on the one side, complex ones on the other."""
    wide: bool
    """Whether an offset passes 32 bits."""


def signals_of(ctx: BindContext, *, slack: int, places: int) -> Signals:
    """Return the rows of a transform along the last axis, for a kernel that also has offsets of what it masks off.

    These are ``slack`` more rows than there are, and of a row ``places`` in all.
    """
    (x,) = ctx.signature.tensors
    (out,) = ctx.signature.outputs
    rows = out.size // out.shape[-1]
    shape, x_strides, out_strides = collapse(out.shape[:-1], x.strides[:-1], out.strides[:-1])
    grown = (*shape[:-1], shape[-1] + slack, places)
    # Complex numbers are pairs, so distances double.
    farthest = 2 * max(reach(grown, (*x_strides, x.strides[-1])), reach(grown, (*out_strides, out.strides[-1])))
    arguments: dict[str, Argument] = {
        "x": Pointer("x", "float32", x.align),
        "out": Pointer("out", "float32", out.align),
        "rows": rows,
        "shape": shape,
        "x_strides": x_strides,
        "out_strides": out_strides,
        "x_column": x.strides[-1],
        "out_column": out.strides[-1],
    }
    return Signals(rows, arguments, farthest >= NARROW or rows + slack >= NARROW)
