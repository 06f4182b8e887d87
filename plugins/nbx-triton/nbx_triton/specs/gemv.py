"""Specs of matrix products of a few rows."""

from __future__ import annotations

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
_DOTS_DOC = "One program computes a few columns, its threads sharing the depth, along which the matrix lies."
_COLUMNS_DOC = "One program computes some columns, along which the matrix lies, its threads sharing the depth."
_DOTS = {"block_n": 4, "depth": 2048, "warps": 4, "stages": 1}
_COLUMNS = {"block_n": 32, "rows": 8, "warps": 8, "stages": 2}


def _words(operand: str) -> str:
    """Return the condition that elements lie side by side along the last axis, in rows of whole 8-byte words."""
    shape, strides = f"len({operand}.shape)", f"{operand}.strides"
    return (
        f"{operand}.align >= 16 and {strides}[-1] == 1 and ({operand}.contiguous or {shape} < 2 or"
        f" ({strides}[-2] % 8 == 0 and ({shape} < 3 or ({strides}[-3] % 8 == 0 and {shape} < 4))))"
    )


KERNELS = (
    kernel(
        "matmul@1",
        "dots",
        "gemv:bind_dots",
        when=(
            f"x1.dtype in {HALVES}",
            "K > 0 and K % 8 == 0",
            # A matrix times a vector, or a few rows times a matrix that is transposed.
            f"({_words('x1')})",
            "(len(x1.shape) == 2 and len(x2.shape) == 1 and x2.align >= 16 and x2.strides[0] == 1) or"
            " (len(x1.shape) <= 2 and M <= 8 and len(x2.shape) == 2 and x2.align >= 16 and x2.strides[0] == 1"
            " and x2.strides[1] % 8 == 0)",
        ),
        key=_MATMUL_KEY,
        batch_invariant=True,
        defaults=_DOTS,
        settings="nbx_triton.kernels.gemv:DOTS",
        preference=3,
        doc=_DOTS_DOC,
    ),
    kernel(
        "matmul@1",
        "columns",
        "gemv:bind_columns",
        when=(
            f"x1.dtype in {HALVES}",
            "len(x1.shape) <= 2 and K > 0 and M <= 8 and len(x2.shape) == 2 and N % 8 == 0",
            _words("x2"),
        ),
        key=_MATMUL_KEY,
        batch_invariant=True,
        defaults=_COLUMNS,
        settings="nbx_triton.kernels.gemv:COLUMNS",
        preference=3,
        doc=_COLUMNS_DOC,
    ),
    kernel(
        "linear@1",
        "dots",
        "gemv:bind_dots",
        when=(f"x.dtype in {HALVES}", "prod(B) <= 8 and K > 0 and K % 8 == 0", _words("x"), _words("w")),
        key=_LINEAR_KEY,
        batch_invariant=True,
        defaults=_DOTS,
        settings="nbx_triton.kernels.gemv:DOTS",
        preference=3,
        doc=_DOTS_DOC,
    ),
    kernel(
        "linear@1",
        "columns",
        "gemv:bind_columns",
        when=(
            f"x.dtype in {HALVES}",
            "prod(B) <= 8 and K > 0 and N % 8 == 0",
            "w.align >= 16 and w.strides[0] == 1 and w.strides[1] % 8 == 0",
        ),
        key=_LINEAR_KEY,
        batch_invariant=True,
        defaults=_COLUMNS,
        settings="nbx_triton.kernels.gemv:COLUMNS",
        preference=3,
        doc=_COLUMNS_DOC,
    ),
)
