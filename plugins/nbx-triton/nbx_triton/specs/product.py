"""Specs of matrix products."""

from __future__ import annotations

from collections.abc import Iterable
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


def _pieces(operand: str, rows: str) -> str:
    """Return the condition that matrices lie in whole pieces of 8 elements, along their columns or along their rows."""
    row, column = f"{operand}.strides[-2]", f"{operand}.strides[-1]"
    return (
        f"len({operand}.shape) > 1 and {operand}.align >= 16 and"
        f" (({column} == 1 and {row} % 8 == 0) or ({row} == 1 and {column} % 8 == 0 and {rows} % 8 == 0))"
    )


def _batch(operand: str) -> str:
    """Return the condition that matrices of a batch lie whole pieces apart."""
    return (
        f"len({operand}.shape) < 3 or ({operand}.strides[-3] % 8 == 0"
        f" and (len({operand}.shape) < 4 or ({operand}.strides[-4] % 8 == 0 and len({operand}.shape) < 5)))"
    )


# The engine, and shared memory for several steps of large tiles.
_ENGINE = ("device.async_copy.tma", "device.shared.bytes_per_block_optin >= 200000")


def _forward(operand: str) -> str:
    """Return the condition that rows, columns and matrices of a batch follow one another in memory."""
    return (
        f"{operand}.strides[-1] > 0 and {operand}.strides[-2] > 0 and"
        f" (len({operand}.shape) < 3 or ({operand}.strides[-3] > 0 and {operand}.strides[-3] % 8 == 0))"
    )


_MATMUL = (
    "x1.dtype in (float16, bfloat16)",
    *_DEVICE,
    "K > 0 and K % 8 == 0 and N % 8 == 0",
    _pieces("x1", "M"),
    _pieces("x2", "K"),
)
_LINEAR = (
    "x.dtype in (float16, bfloat16)",
    *_DEVICE,
    "K > 0 and K % 8 == 0",
    "x.align >= 16 and len(x.shape) > 1 and x.strides[-1] == 1",
    # Rows one pitch apart.
    "(x.contiguous and out.contiguous) or (len(x.shape) == 2 and x.strides[-2] % 8 == 0)",
    _pieces("w", "N"),
)


def _few(rows: str, matrices: str) -> tuple[str, str]:
    """Return the conditions that large tiles are too few or too large: of a short depth, and of a long one.

    Along a long depth a program is busy for long enough that it need not share its multiprocessor.
    """
    tiles = f"cdiv({rows}, 128) * cdiv(N, 256) * {matrices}"
    large = f"{rows} <= 64 or N <= 128"
    return (
        f"K < 1024 and ({large} or {tiles} < 2 * device.multiprocessors)",
        f"K >= 1024 and ({large} or 4 * {tiles} < 3 * device.multiprocessors)",
    )


def _blocks(
    op: str, rows: str, matrices: str, when: tuple[str, ...], several: str, key: tuple[str, ...]
) -> Iterable[Kernel]:
    """Yield the kernels of large tiles and of two smaller ones, for ``several`` rows or matrices."""
    short, long = _few(rows, matrices)
    tiles = [
        ("blocks", 1, (), (128, 256, 0, 4, 8), "a large tile"),
        ("blocks-64", 3, (several, short), (64, 128, 0, 3, 4), "a tile of 64 rows"),
        ("blocks-128", 3, (several, long), (128, 128, 0, 4, 8), "a tile of 128 rows and columns"),
    ]
    if op == "linear@1":
        at_once = (
            "device.matrix_unit.wgmma_m64k16",
            "N >= 512 and cdiv(N, 192) * 192 <= cdiv(N, 128) * 128",
            f"cdiv({rows}, 64) * cdiv(N, 192) <= 3 * device.multiprocessors",
        )
        tiles.append(
            ("blocks-192", 4, (several, short, *at_once), (64, 128, 64, 2, 4), "a tile of 192 columns, all at once,")
        )
    for variant, preference, conditions, tile, what in tiles:
        yield kernel(
            op,
            variant,
            "blocks:bind",
            when=(*when, *conditions),
            key=key,
            defaults=dict(zip(("block_m", "block_n", "more_n", "stages", "warps"), tile, strict=True)),
            settings="nbx_triton.kernels.blocks:SETTINGS",
            preference=preference,
            doc=f"One program computes {what} on the matrix unit, of operands that lie in whole 16-byte pieces.",
        )


def _bulk(op: str, rows: str, matrices: str, **facts: Any) -> Kernel:
    tiles = f"{matrices} * cdiv(max({rows}, 1), block_m) * cdiv(max(N, 1), block_n)"
    return kernel(
        op,
        "bulk",
        "bulk:bind",
        workspace=(Workspace(name="descriptions", dtype="int8", shape=(f"min({tiles}, 1024)", "512")),),
        defaults={"block_m": 128, "block_n": 256, "stages": 4, "resident": 1},
        settings="nbx_triton.kernels.bulk:SETTINGS",
        preference=2,
        doc="A program computes tile after tile, of operands that the device's copy engine brings ahead of it.",
        **facts,
    )


def _streamed(op: str, rows: str, least: int, when: tuple[str, ...], key: tuple[str, ...]) -> Iterable[Kernel]:
    """Yield the kernels of ``least`` to 32 rows and of up to 128."""
    tiles, steps = "cdiv(max(N, 1), block_n)", "cdiv(max(K, 1), block_k)"
    wanted = f"min(programs // {tiles}, 16, cdiv({steps}, 4))"
    shares = f"cdiv({steps}, cdiv({steps}, max({wanted}, 1)))"
    # Nothing where one program has all of the depth.
    partial = (f"({shares} > 1) * {shares}", rows, "N")
    for variant, some, settings in (
        ("streamed", f"{least} <= {rows} and {rows} <= 32", (64, 128, 4, 128)),
        ("streamed-128", f"32 < {rows} and {rows} <= 128", (64, 64, 8, 128)),
    ):
        yield kernel(
            op,
            variant,
            "streamed:bind",
            when=(*when, some),
            key=key,
            workspace=(Workspace(name="partial", dtype="float32", shape=partial, lifetime=(0, 1)),),
            defaults=dict(zip(("block_n", "block_k", "stages", "programs"), settings, strict=True)),
            settings="nbx_triton.kernels.streamed:SETTINGS",
            preference=2,
            doc="A program has some columns and all rows, or a share of their depth; a second launch adds the shares.",
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
    *_blocks(
        "matmul@1",
        "M",
        "(out.size // max(M * N, 1))",
        (*_MATMUL, "M >= 16", _batch("x1"), _batch("x2")),
        "M > 128 or len(x1.shape) > 2 or len(x2.shape) > 2",
        (*_MATMUL_KEY, "out.strides"),
    ),
    *_blocks("linear@1", "prod(B)", "1", (*_LINEAR, "prod(B) >= 16"), "prod(B) > 128", (*_LINEAR_KEY, "out.strides")),
    _bulk(
        "matmul@1",
        "M",
        "(len(x1.shape) < 3 or x1.shape[0])",
        when=(
            *_MATMUL,
            *_ENGINE,
            "M > 128",
            "len(x1.shape) == len(x2.shape)",
            "len(x1.shape) == 2 or (len(x1.shape) == 3 and x1.shape[0] == x2.shape[0])",
            f"{_forward('x1')} and {_forward('x2')}",
        ),
        key=(*_MATMUL_KEY, "out.strides"),
    ),
    _bulk(
        "linear@1",
        "prod(B)",
        "1",
        when=(
            *_LINEAR,
            *_ENGINE,
            "prod(B) > 128",
            # Rows that are no whole pieces are written by way of shared memory, of which sm_100 has too little left.
            "N % 8 == 0 or device.matrix_unit.wgmma_m64k16",
            "x.strides[-2] > 0 and w.strides[-1] > 0 and w.strides[-2] > 0",
        ),
        key=(*_LINEAR_KEY, "out.strides"),
    ),
    # Fewer rows take less time without the matrix unit.
    *_streamed(
        "matmul@1", "M", 3, (*_MATMUL, "len(x1.shape) == 2 and len(x2.shape) == 2"), (*_MATMUL_KEY, "out.strides")
    ),
    *_streamed("linear@1", "prod(B)", 5, _LINEAR, (*_LINEAR_KEY, "out.strides")),
)
