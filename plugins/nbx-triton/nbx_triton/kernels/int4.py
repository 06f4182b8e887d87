"""int4 weights, packed and unpacked: quantize_int4, dequant_int4; and what the products of packed weights share.

One program handles the 16 words of a group of 128 rows, ``BLOCK_N`` columns wide: neighbouring lanes are neighbouring
columns, so that words, scales and, eight rows a word, weights are whole lines of memory. Deterministic; every column is
by itself.

At the least 8192 x 28672 weights are 117 MB of words and 7 MB of scales and minima: 29 us of an H200's memory.
"""

from __future__ import annotations

from collections.abc import Sequence

import triton
import triton.language as tl

from nbx_registry.contracts.quantized import GROUP, NIBBLES
from nbx_registry.launch import BindContext, Launch, Scalar
from nbx_registry.spec import TensorSpec
from nbx_triton.compiler import Options
from nbx_triton.kernels.strided import NARROW, program, reach
from nbx_triton.launching import Argument, launch

WORDS = GROUP // NIBBLES
"""Words of a group, one above the other."""
ONE = Scalar(150 << 23, "int32")
"""The bits of 2^23. As an argument it is in a register: two immediate numbers do not fit one operation."""
BLOCK_N = 64
OPTIONS = Options(num_warps=4, num_stages=1, enable_fp_fusion=False)


@triton.jit
def nibble(words, one, PLACE: tl.constexpr):
    """Return nibble PLACE of words as float32, exactly. ``one`` is `ONE`.

    Bits become the mantissa of a number whose exponent makes the nibble count in ones, from which what the exponent
    adds is taken off: two operations, where a conversion from integers takes a slow unit. Nibbles 5 to 7 have no place
    in a mantissa and are shifted, all three by one shift; that it repeats the sign above them does not matter.
    """
    if PLACE < 5:
        bits = (words & (15 * 16**PLACE)) | (one - (PLACE << 25))
        number = bits.to(tl.float32, bitcast=True) - 8388608.0 / 16**PLACE
    else:
        bits = ((words >> 20) & (15 * 16 ** (PLACE - 5))) | (one - ((PLACE - 5) << 25))
        number = bits.to(tl.float32, bitcast=True) - 8388608.0 / 16 ** (PLACE - 5)
    return number


@triton.jit
def weights_of(w, scale, zero_min, row, w_stride, scale_stride, min_stride, here, WORDS: tl.constexpr):
    """Return one row of weights, of the columns that ``w``, ``scale`` and ``zero_min`` point to."""
    words = tl.load(w + row // 8 * w_stride, mask=here, other=0)
    group = row // (8 * WORDS)
    step = tl.load(scale + group * scale_stride, mask=here, other=0).to(tl.float32)
    least = tl.load(zero_min + group * min_stride, mask=here, other=0).to(tl.float32)
    return ((words >> (row % 8 * 4).to(tl.int32)) & 15).to(tl.float32) * step + least


@triton.jit
def own_group(rows, columns, WIDE: tl.constexpr, WORDS: tl.constexpr, BLOCK_N: tl.constexpr):
    """Return the program's group, its rows of words, its columns, and whether there are such rows and columns."""
    number = program(WIDE)
    tiles = (columns + BLOCK_N - 1) // BLOCK_N
    group = number // tiles
    row = (group * WORDS + tl.arange(0, WORDS))[:, None]
    column = (number % tiles * BLOCK_N + tl.arange(0, BLOCK_N))[None, :]
    return group, row, column, row < rows, column < columns


@triton.jit
def unpack(
    w,
    scale,
    zero_min,
    out,
    one,
    rows,
    columns,
    w_strides,
    scale_strides,
    min_strides,
    out_strides,
    WIDE: tl.constexpr,
    WORDS: tl.constexpr,
    BLOCK_N: tl.constexpr,
):
    """Write the weights of WORDS rows of words, one group. ``rows`` are those of words; products are exact."""
    group, row, column, known, here = own_group(rows, columns, WIDE, WORDS, BLOCK_N)
    inside = known & here
    words = tl.load(w + row * w_strides[0] + column * w_strides[1], mask=inside, other=0)
    step = tl.load(scale + group * scale_strides[0] + column * scale_strides[1], mask=here, other=0)
    least = tl.load(zero_min + group * min_strides[0] + column * min_strides[1], mask=here, other=0)
    for i in tl.static_range(8):
        weights = nibble(words, one, i) * step.to(tl.float32) + least.to(tl.float32)
        tl.store(out + (8 * row + i) * out_strides[0] + column * out_strides[1], weights, mask=inside)


@triton.jit
def pack(
    w,
    packed,
    scale,
    zero_min,
    rows,
    columns,
    w_strides,
    packed_strides,
    scale_strides,
    min_strides,
    WIDE: tl.constexpr,
    WORDS: tl.constexpr,
    BLOCK_N: tl.constexpr,
):
    """Write the words of one group, its scales and minima. ``rows`` are those of words.

    Each operation is rounded once, in float32; scale and minimum are rounded to float16 before they quantise.
    """
    group, row, column, known, here = own_group(rows, columns, WIDE, WORDS, BLOCK_N)
    inside = known & here
    source = w + 8 * row * w_strides[0] + column * w_strides[1]
    smallest = tl.full((WORDS, BLOCK_N), float("inf"), tl.float32)
    largest = tl.full((WORDS, BLOCK_N), float("-inf"), tl.float32)
    for i in tl.static_range(8):
        a = tl.load(source + i * w_strides[0], mask=inside, other=0).to(tl.float32)
        smallest = tl.minimum(smallest, tl.where(known, a, float("inf")))
        largest = tl.maximum(largest, tl.where(known, a, float("-inf")))
    low = tl.min(smallest, axis=0)[None, :]
    step = tl.div_rn(tl.max(largest, axis=0)[None, :] - low, 15.0).to(tl.float16)
    step = tl.where(step == 0, 1.0, step).to(tl.float16)
    # A minimum of -0 is stored as +0.
    least = (low.to(tl.float16).to(tl.float32) + 0.0).to(tl.float16)
    words = tl.zeros((WORDS, BLOCK_N), tl.int32)
    for i in tl.static_range(8):
        # The second time it comes from the cache.
        a = tl.load(source + i * w_strides[0], mask=inside, other=0).to(tl.float32)
        place = tl.div_rn(a - least.to(tl.float32), step.to(tl.float32) + tl.zeros_like(a))
        place = tl.minimum(tl.maximum(place, 0.0), 15.0)
        # The sum is rounded to a whole number, half to even, which is its lowest bits.
        words |= ((place + 8388608.0).to(tl.int32, bitcast=True) & 15) << (4 * i)
    tl.store(packed + row * packed_strides[0] + column * packed_strides[1], words, mask=inside)
    tl.store(scale + group * scale_strides[0] + column * scale_strides[1], step, mask=here)
    tl.store(zero_min + group * min_strides[0] + column * min_strides[1], least, mask=here)


def beyond(*tensors: TensorSpec) -> bool:
    """Whether offsets need 64 bits. The slack covers the rest of a group and of a tile of columns, masked off."""
    return any(
        reach([extent + slack for extent, slack in zip(x.shape, (GROUP, 256), strict=True)], x.strides) >= NARROW
        for x in tensors
    )


def wide_gemv(ctx: BindContext) -> bool:
    """Whether offsets of ``dequant_gemv_int4`` need 64 bits."""
    x, *weight = ctx.signature.tensors
    (out,) = ctx.signature.outputs
    return beyond(*weight) or 2 * max(reach(y.shape, y.strides) for y in (x, out)) >= NARROW


def packed(ctx: BindContext) -> dict[str, Argument]:
    """Return the arguments that a packed weight is to every kernel that unpacks it."""
    *_, w, scale, zero_min = ctx.signature.tensors
    return {
        "w": "w",
        "scale": "scale",
        "zero_min": "zero_min",
        "one": ONE,
        "columns": w.shape[1],
        "w_strides": w.strides,
        "scale_strides": scale.strides,
        "min_strides": zero_min.strides,
    }


def bind_dequant(ctx: BindContext) -> Sequence[Launch]:
    """Bind ``dequant_int4``."""
    w, scale, zero_min = ctx.signature.tensors
    (out,) = ctx.signature.outputs
    if out.size == 0:
        return ()
    step = launch(
        ctx,
        unpack,
        programs=scale.shape[0] * triton.cdiv(w.shape[1], BLOCK_N),
        arguments={**packed(ctx), "out": "out", "rows": w.shape[0], "out_strides": out.strides},
        constants={"WIDE": beyond(w, scale, zero_min, out), "WORDS": WORDS, "BLOCK_N": BLOCK_N},
        options=OPTIONS,
    )
    return (step,)


def bind_quantize(ctx: BindContext) -> Sequence[Launch]:
    """Bind ``quantize_int4``."""
    (w,) = ctx.signature.tensors
    packed, scale, zero_min = ctx.signature.outputs
    if w.size == 0:
        return ()
    rows, columns = packed.shape
    step = launch(
        ctx,
        pack,
        programs=scale.shape[0] * triton.cdiv(columns, BLOCK_N),
        arguments={
            "w": "w",
            "packed": "packed",
            "scale": "scale",
            "zero_min": "zero_min",
            "rows": rows,
            "columns": columns,
            "w_strides": w.strides,
            "packed_strides": packed.strides,
            "scale_strides": scale.strides,
            "min_strides": zero_min.strides,
        },
        constants={"WIDE": beyond(w, packed, scale, zero_min), "WORDS": WORDS, "BLOCK_N": BLOCK_N},
        options=OPTIONS,
    )
    return (step,)
