"""layer_norm of dense rows, of up to 32 bits a number.

`short` normalises ``BLOCK_ROWS`` rows that fit a block, each read once: about 17 operations an element, where the
memory leaves time for 28 of 16 bits. The mean is corrected by that of what is left: nothing is lost to one that is
large beside the deviations.

Few long rows are given to several programs each. `measure` of `group_norm` writes mean and squared deviations of each
piece of a row, as if it were a group of one channel; `normalise_rows` merges those of a row as T. F. Chan, G. H. Golub
and R. J. LeVeque do, and writes a piece, which is read from memory once, then from the cache.

Blocks follow from a row's length alone: its bits do not depend on the number of rows. Deterministic.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import triton
import triton.language as tl

from nbx_registry.launch import BindContext, Launch, Scalar
from nbx_triton.compiler import Options
from nbx_triton.kernels.group_norm import measure
from nbx_triton.kernels.normalization import affine, quotient, reciprocal_root
from nbx_triton.kernels.strided import NARROW, program
from nbx_triton.launching import Argument, launch

PIECE = 8192
"""Elements that a program has in registers at a time."""
MAX_SHARES = 256
OPTIONS = Options(num_warps=8, num_stages=1, enable_fp_fusion=True)


@triton.jit
def short(
    x,
    weight,
    bias,
    out,
    rows,
    length,
    share,
    eps,
    weight_stride,
    bias_stride,
    WIDE: tl.constexpr,
    BLOCK_ROWS: tl.constexpr,
    BLOCK_COLUMNS: tl.constexpr,
):
    """Write ``BLOCK_ROWS`` whole rows of ``length``; ``share`` is 1 / length."""
    row = program(WIDE) * BLOCK_ROWS + tl.arange(0, BLOCK_ROWS)
    column = tl.arange(0, BLOCK_COLUMNS)[None, :].to(row.dtype)
    inside = (row < rows)[:, None] & (column < length)
    place = (row * length)[:, None] + column
    a = tl.load(x + place, mask=inside, other=0).to(tl.float32)
    centred = tl.where(inside, a - (tl.sum(a, axis=1) * share)[:, None], 0.0)
    centred = tl.where(inside, centred - (tl.sum(centred, axis=1) * share)[:, None], 0.0)
    scale = reciprocal_root(tl.sum(centred * centred, axis=1) * share + eps)
    y = affine(centred * scale[:, None], weight, bias, column, column < length, weight_stride, bias_stride)
    tl.store(out + place, y.to(out.dtype.element_ty), mask=inside)


@triton.jit
def normalise_rows(
    x,
    weight,
    bias,
    counts,
    means,
    m2s,
    out,
    length,
    shares,
    per_share,
    size,
    eps,
    weight_stride,
    bias_stride,
    WIDE: tl.constexpr,
    SHARES: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Write ``per_share`` elements of a row of ``length``; ``size`` is that as a number."""
    number = program(WIDE)
    row = number // shares
    share = tl.arange(0, SHARES)
    known = share < shares
    own_count = tl.load(counts + row * shares + share, mask=known, other=0)
    own_mean = tl.load(means + row * shares + share, mask=known, other=0)
    own_m2 = tl.load(m2s + row * shares + share, mask=known, other=0)
    mean = quotient(tl.sum(own_count * own_mean, axis=0), size)
    apart = tl.where(known, own_mean - mean, 0.0)
    m2 = tl.sum(own_m2 + own_count * (apart * apart), axis=0)
    scale = reciprocal_root(quotient(m2, size) + eps)
    column = tl.arange(0, BLOCK).to(number.dtype)
    first = number % shares * per_share
    last = tl.minimum(first + per_share, length)
    for at in range(first, last, BLOCK):
        here = at + column
        inside = here < last
        a = tl.load(x + row * length + here, mask=inside, other=0).to(tl.float32)
        y = affine((a - mean) * scale, weight, bias, here, inside, weight_stride, bias_stride)
        tl.store(out + row * length + here, y.to(out.dtype.element_ty), mask=inside)


def bind_short(ctx: BindContext) -> Sequence[Launch]:
    """Bind ``layer_norm`` of dense rows that fit a block."""
    x, _, _ = ctx.signature.tensors
    (out,) = ctx.signature.outputs
    if out.size == 0:
        return ()
    length, rows = x.shape[-1], prod(x.shape[:-1])
    columns = triton.next_power_of_2(length)
    # 32 elements a thread, of 16 bits four loads of 16 bytes.
    block_rows, warps = (4096 // columns, 4) if columns <= 4096 else (1, columns // 1024)
    step = launch(
        ctx,
        short,
        programs=triton.cdiv(rows, block_rows),
        arguments={
            **_scaling(ctx),
            "x": "x",
            "out": "out",
            "rows": rows,
            "length": length,
            "share": Scalar(1 / length, "float32"),
        },
        constants={
            "WIDE": x.size + block_rows * columns >= NARROW,
            "BLOCK_ROWS": block_rows,
            "BLOCK_COLUMNS": columns,
        },
        options=Options(num_warps=warps, num_stages=1, enable_fp_fusion=True),
    )
    return (step,)


def _scaling(ctx: BindContext) -> dict[str, Argument]:
    """Return what the scale of a row depends on beside its elements, weight and bias."""
    _, weight, bias = ctx.signature.tensors
    return {
        "eps": Scalar(ctx.signature.attributes["eps"], "float32"),
        "weight": None if weight is None else "weight",
        "bias": None if bias is None else "bias",
        "weight_stride": 0 if weight is None else weight.strides[0],
        "bias_stride": 0 if bias is None else bias.strides[0],
    }


def bind_split(ctx: BindContext) -> Sequence[Launch]:
    """Bind ``layer_norm`` of dense rows, several programs each; see ``counts``, ``means`` and ``m2s``."""
    x, _, _ = ctx.signature.tensors
    (out,) = ctx.signature.outputs
    if out.size == 0:
        return ()
    length, rows = x.shape[-1], prod(x.shape[:-1])
    tiles = triton.cdiv(length, PIECE)
    tiles_each = triton.cdiv(tiles, MAX_SHARES)
    shares = triton.cdiv(tiles, tiles_each)
    found: dict[str, Argument] = {"counts": "counts", "means": "means", "m2s": "m2s", "shares": shares}
    wide = x.size + shares * tiles_each * PIECE >= NARROW
    first = launch(
        ctx,
        measure,
        programs=rows * shares,
        arguments={
            **found,
            "x": "x",
            "groups": 1,
            "channels": 1,
            "pixels": length,
            "tiles": tiles,
            "per_share": tiles_each,
            "x_strides": (length, 0),
            "pixel_shape": (length,),
            "x_pixel_strides": (1,),
        },
        constants={"WIDE": wide, "BLOCK_CHANNELS": 1, "BLOCK_PIXELS": PIECE},
        options=OPTIONS,
    )
    second = launch(
        ctx,
        normalise_rows,
        programs=rows * shares,
        arguments={
            **found,
            **_scaling(ctx),
            "x": "x",
            "out": "out",
            "length": length,
            "per_share": tiles_each * PIECE,
            "size": Scalar(float(length), "float32"),
        },
        constants={"WIDE": wide, "SHARES": triton.next_power_of_2(shares), "BLOCK": PIECE},
        options=OPTIONS,
    )
    return (first, second)
