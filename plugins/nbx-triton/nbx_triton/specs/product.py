"""Specs of matrix products."""

from __future__ import annotations

from typing import Any

from nbx_registry.kernel import Kernel, Workspace
from nbx_triton.specs.common import FLOATS, kernel

_MATMUL_KEY = ("x1.dtype", "x1.shape", "x1.strides", "x2.shape", "x2.strides")
_LINEAR_KEY = (
    "x.dtype",
    "x.shape",
    "x.strides",
    "w.shape",
    "w.strides",
    "bias.given",
    "bias.strides",
    "activation",
)
# Copies to shared memory beside the work are of 16 bytes, and the unit's products of 16-bit floats.
_DEVICE = ("device.async_copy.cp_async", "device.matrix_unit.m16n8k16")


def _pieces(operand: str, rows: str, columns: str) -> str:
    """Return the condition that matrices lie in whole pieces of 8 elements, along rows or along columns."""
    row, column = f"{operand}.strides[-2]", f"{operand}.strides[-1]"
    return (
        f"len({operand}.shape) > 1 and {operand}.align >= 16 and"
        f" (({column} == 1 and {row} % 8 == 0 and {columns} % 8 == 0)"
        f" or ({row} == 1 and {column} % 8 == 0 and {rows} % 8 == 0))"
    )


def _batch(operand: str) -> str:
    """Return the condition that matrices of a batch lie whole pieces apart."""
    return (
        f"len({operand}.shape) < 3 or ({operand}.strides[-3] % 8 == 0"
        f" and (len({operand}.shape) < 4 or ({operand}.strides[-4] % 8 == 0 and len({operand}.shape) < 5)))"
    )


_MATMUL = ("x1.dtype in (float16, bfloat16)", *_DEVICE, "K > 0", _pieces("x1", "M", "K"), _pieces("x2", "K", "N"))
_LINEAR = (
    "x.dtype in (float16, bfloat16)",
    *_DEVICE,
    "K > 0 and K % 8 == 0",
    "x.align >= 16 and len(x.shape) > 1 and x.strides[-1] == 1",
    # Rows one pitch apart.
    "(x.contiguous and out.contiguous) or (len(x.shape) == 2 and x.strides[-2] % 8 == 0)",
    _pieces("w", "N", "K"),
)


def _blocks(op: str, **facts: Any) -> Kernel:
    return kernel(
        op,
        "blocks",
        "blocks:bind",
        defaults={"block_m": 128, "block_n": 256, "stages": 3},
        settings="nbx_triton.kernels.blocks:SETTINGS",
        preference=1,
        doc="One program computes a large tile on the matrix unit, of operands that lie in whole 16-byte pieces.",
        **facts,
    )


def _streamed(op: str, rows: str, **facts: Any) -> Kernel:
    tiles, steps = "cdiv(max(N, 1), block_n)", "cdiv(max(K, 1), block_k)"
    share = f"cdiv({steps}, clamp(programs // {tiles}, 1, min(16, cdiv({steps}, 4))))"
    shares = f"cdiv({steps}, {share})"
    return kernel(
        op,
        "streamed",
        "streamed:bind",
        workspace=(
            Workspace(
                name="partial", dtype="float32", shape=(f"({shares} > 1) * {shares}", rows, "N"), lifetime=(0, 1)
            ),
        ),
        defaults={"block_n": 64, "block_k": 64, "stages": 4, "programs": 264},
        settings="nbx_triton.kernels.streamed:SETTINGS",
        preference=2,
        doc="A program has some columns and all rows, or a share of their depth; a second launch adds the shares.",
        **facts,
    )


KERNELS = (
    kernel(
        "matmul@1",
        "tiles",
        "product:bind",
        when=(f"x1.dtype in {FLOATS}",),
        key=_MATMUL_KEY,
        doc="One program computes a tile of one product, along K in order; float32 and float64 are IEEE.",
    ),
    kernel(
        "linear@1",
        "tiles",
        "product:bind",
        # The smooth activations are written for float32.
        when=(f"x.dtype in {FLOATS}", "x.dtype != float64 or activation in (None, 'relu')"),
        key=_LINEAR_KEY,
        doc="One program computes a tile, adds the bias and applies the activation before rounding.",
    ),
    _blocks(
        "matmul@1",
        when=(*_MATMUL, "M >= 16", _batch("x1"), _batch("x2")),
        key=(*_MATMUL_KEY, "out.strides"),
    ),
    _blocks("linear@1", when=(*_LINEAR, "prod(B) >= 16"), key=(*_LINEAR_KEY, "out.strides")),
    _streamed(
        "matmul@1",
        "M",
        when=(*_MATMUL, "16 <= M and M <= 128", "len(x1.shape) == 2 and len(x2.shape) == 2"),
        key=(*_MATMUL_KEY, "out.strides"),
    ),
    _streamed(
        "linear@1",
        "prod(B)",
        when=(*_LINEAR, "16 <= prod(B) and prod(B) <= 128"),
        key=(*_LINEAR_KEY, "out.strides"),
    ),
)
