"""Specs of matrix products of a few rows."""

from __future__ import annotations

from typing import Any

from nbx_registry.kernel import Kernel
from nbx_triton.specs.common import HALVES, kernel

_MATMUL_KEY = ("x1.dtype", "x1.shape", "x1.strides", "x2.shape", "x2.strides", "out.strides")
_LINEAR_KEY = (
    "x.dtype",
    "x.shape",
    "x.strides",
    "w.shape",
    "w.strides",
    "bias.given",
    "bias.strides",
    "out.strides",
    "activation",
)


def _lines(operand: str, along: int, across: int) -> str:
    """Return the condition that a matrix's elements lie side by side along one axis, in whole 16-byte pieces."""
    return f"{operand}.align >= 16 and {operand}.strides[{along}] == 1 and {operand}.strides[{across}] % 8 == 0"


def _words(operand: str) -> str:
    """Return the condition that rows of any number of axes lie in whole 16-byte pieces."""
    shape, strides = f"len({operand}.shape)", f"{operand}.strides"
    return (
        f"{operand}.align >= 16 and {strides}[-1] == 1 and ({operand}.contiguous or {shape} < 2 or"
        f" ({strides}[-2] % 8 == 0 and ({shape} < 3 or ({strides}[-3] % 8 == 0 and {shape} < 4))))"
    )


# A few rows times a matrix either way round, or a matrix times a column.
_MATMUL = (
    f"x1.dtype in {HALVES}",
    "K > 0 and len(x1.shape) <= 2 and len(x1.shape) + len(x2.shape) in (3, 4)",
    "(len(x2.shape) == 2 and N % 8 == 0) or (len(x2.shape) == 1 and K % 8 == 0)",
    f"(len(x2.shape) == 2 and (({_lines('x2', -1, -2)}) or ({_lines('x2', -2, -1)} and K % 8 == 0 and {_words('x1')})))"
    f" or (len(x2.shape) == 1 and {_words('x1')} and {_words('x2')})",
)
_LINEAR = (
    f"x.dtype in {HALVES}",
    "K > 0 and K % 8 == 0",
    f"({_lines('w', 1, 0)} and {_words('x')}) or ({_lines('w', 0, 1)} and N % 8 == 0)",
)


def _row(op: str, **facts: Any) -> Kernel:
    return kernel(
        op,
        "row",
        "gemv:bind",
        defaults={"block_n": 4, "depth": 2048, "warps": 4, "stages": 1},
        settings="nbx_triton.kernels.gemv:SETTINGS",
        preference=3,
        doc="One program computes some columns of one row, its threads sharing the depth: a matrix is read once.",
        **facts,
    )


def _few(op: str, **facts: Any) -> Kernel:
    return kernel(
        op,
        "few",
        "gemv:bind",
        defaults={"block_n": 8, "depth": 256, "warps": 2, "stages": 4},
        settings="nbx_triton.kernels.gemv:SETTINGS",
        preference=3,
        doc="One program computes some columns of all rows, its threads sharing the depth: a matrix is read once.",
        **facts,
    )


KERNELS = (
    _row("matmul@1", when=(*_MATMUL, "M == 1 or len(x2.shape) == 1"), key=_MATMUL_KEY),
    _few(
        "matmul@1",
        when=(*_MATMUL, "M == 2 or (x1.dtype == float32 and 2 < M and M <= 8)", "len(x2.shape) == 2"),
        key=_MATMUL_KEY,
    ),
    _row("linear@1", when=(*_LINEAR, "prod(B) == 1"), key=_LINEAR_KEY),
    _few(
        "linear@1",
        when=(*_LINEAR, "1 < prod(B) and (prod(B) <= 4 or (x.dtype == float32 and prod(B) <= 8))"),
        key=_LINEAR_KEY,
    ),
)
