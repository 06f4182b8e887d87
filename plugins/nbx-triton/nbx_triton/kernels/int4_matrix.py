"""dequant_gemv_int4 on the matrix unit: words go in almost as they lie.

The low four bits of a float16 count multiples of 2^-24, and the next four sixteen times as many: numbers so small have
no exponent. So a word under the mask 000F000F is two nibbles as two float16, exactly, and the unit multiplies numbers
of any size. Four masked words, two of them shifted, are the eight rows of a word; x lies in the other operand's columns
so that each of the four products has its sum in one of them. A fifth product, with ones, is the sum of x alone. Scale
and minimum are applied to sums of a group. That takes an operation a weight, where one by one it takes two to four.

For bfloat16, whose small numbers would come out too small for float32, nibbles become whole numbers first: their bits
after those of 128, from which it is taken off.

A program has some columns and all of the depth. Deterministic. Where x, scale or minimum is not finite, or a sum too
large, weights are made after all, one by one.
"""

from __future__ import annotations

from collections.abc import Sequence

import triton
import triton.language as tl

from nbx_registry.launch import BindContext, Launch
from nbx_registry.space import Space
from nbx_triton.compiler import Options
from nbx_triton.kernels.int4 import WORDS, packed, wide_gemv
from nbx_triton.kernels.int4_gemv import exactly
from nbx_triton.kernels.strided import program
from nbx_triton.launching import launch

SETTINGS = Space(
    parameters={"across": (2, 4), "warps": (2, 4, 8), "groups": (1, 2, 3, 4)},
    exclude={"more than registers hold": "across * groups > 12"},
)
"""``across``: columns that a thread loads side by side. ``groups``: those that each half of the warps has under way."""


@triton.jit
def two_nibbles(words, PLACE: tl.constexpr, like: tl.constexpr):
    """Return nibbles PLACE and PLACE + 4 side by side along a last axis, as numbers of dtype ``like``.

    float16: times 2^-24, and 16 times that for odd places.
    """
    if like == tl.float16:
        source = words if PLACE < 2 else words >> 8
        bits = source & (0x000F000F << (4 * (PLACE % 2)))
        low = bits.to(tl.int16).to(tl.float16, bitcast=True)
        high = (bits >> 16).to(tl.int16).to(tl.float16, bitcast=True)
    else:
        bits = ((words >> (4 * PLACE)) & 0x000F000F) | 0x43004300
        low = ((bits << 16).to(tl.float32, bitcast=True) - 128.0).to(tl.bfloat16)
        high = ((bits & -65536).to(tl.float32, bitcast=True) - 128.0).to(tl.bfloat16)
    return tl.join(low, high)


@triton.jit
def column_of(m, ACROSS: tl.constexpr, WARPS: tl.constexpr):
    """Return the column that row ``m`` of a tile is, and the half of the groups that it takes."""
    COLUMN_WARPS: tl.constexpr = WARPS // 2
    warp = m // 16 % WARPS
    if ACROSS == 4:
        within = m % 8 * 4 + m // (16 * WARPS) * 2 + m // 8 % 2
    else:
        within = m % 8 * 2 + m // 8 % 2
    return warp % COLUMN_WARPS * (8 * ACROSS) + within, warp // COLUMN_WARPS


@triton.jit
def load_words(
    w,
    group,
    rows,
    column,
    columns,
    w_strides,
    MASKED: tl.constexpr,
    UNEVEN: tl.constexpr,
    ACROSS: tl.constexpr,
    WARPS: tl.constexpr,
):
    """Return two groups' words in the shape in which a thread loads what the unit wants in that thread.

    Its axes are the unit's four lanes of the depth, its eight lanes of rows with the warps, and of one thread twice two
    rows of words and ACROSS columns. The first half of the warps takes the first group.
    """
    lane = tl.arange(0, 4)[:, None, None, None, None]
    strip = tl.arange(0, 8 * WARPS)[None, :, None, None, None]
    far = tl.arange(0, 2)[None, None, :, None, None]
    near = tl.arange(0, 2)[None, None, None, :, None]
    across = tl.arange(0, ACROSS)[None, None, None, None, :]
    row = (group + strip // (4 * WARPS)) * 16 + far * 8 + lane * 2 + near
    own = column + strip % (4 * WARPS) * ACROSS + across
    if UNEVEN:
        own = tl.minimum(own, columns - 1)
    place = w + row * w_strides[0] + own * w_strides[1]
    if MASKED:
        words = tl.load(place, mask=row + across * 0 < rows, other=0)
    else:
        words = tl.load(place)
    return words


@triton.jit
def as_rows(words, ACROSS: tl.constexpr, WARPS: tl.constexpr):
    """Return what `load_words` loaded as a matrix of columns and rows of words: nothing moves between threads."""
    if ACROSS == 4:
        words = tl.permute(tl.reshape(words, (4, WARPS, 8, 2, 2, 2, 2)), (5, 1, 6, 2, 3, 0, 4))
    else:
        words = tl.permute(tl.reshape(words, (4, WARPS, 8, 2, 2, 2)), (1, 5, 2, 3, 0, 4))
    return tl.reshape(words, (8 * WARPS * ACROSS, 16))


@triton.jit
def matrix(
    x,
    w,
    scale,
    zero_min,
    out,
    rows,
    columns,
    x_stride,
    w_strides,
    scale_strides,
    min_strides,
    out_stride,
    MASKED: tl.constexpr,
    UNEVEN: tl.constexpr,
    WIDE: tl.constexpr,
    GROUPS: tl.constexpr,
    ACROSS: tl.constexpr,
    WARPS: tl.constexpr,
):
    """Write a tile of columns, GROUPS times two groups a turn.

    MASKED: words end within a turn; UNEVEN: columns within a tile.
    """
    SMALL: tl.constexpr = x.dtype.element_ty == tl.float16
    ROWS: tl.constexpr = 8 * ACROSS * WARPS
    number = program(WIDE)
    zero = number * 0
    column = number * (ROWS // 2)
    within, half = column_of(tl.arange(0, ROWS), ACROSS, WARPS)
    own = column + within
    # Past the last column its weights are read once more, and not written.
    known = tl.minimum(own, columns - 1) if UNEVEN else own
    from_scale, from_min = scale + known * scale_strides[1], zero_min + known * min_strides[1]
    pair = tl.arange(0, 32)[:, None]
    place = tl.arange(0, 8)[None, :]
    first_place = half[:, None] * 4
    ones = tl.full((ROWS, 32), 1.0, tl.float32).to(x.dtype.element_ty)
    total = tl.zeros((ROWS, 8), tl.float32)
    groups = (rows + 15) // 16
    words, steps, leasts = (), (), ()
    for g in tl.static_range(GROUPS):
        # Loaded in place of what there is not are the last two groups, or the last one twice.
        at = zero + 2 * g if MASKED else zero + tl.minimum(2 * g, groups - 2)
        loaded = load_words(w, at, rows, column, columns, w_strides, MASKED, UNEVEN, ACROSS, WARPS)
        own_group = tl.minimum(at + half, groups - 1)
        words = words + (loaded,)  # noqa: RUF005 - the compiler unpacks no tuples
        steps = steps + (tl.load(from_scale + own_group * scale_strides[0]),)  # noqa: RUF005
        leasts = leasts + (tl.load(from_min + own_group * min_strides[0]),)  # noqa: RUF005
    for first in tl.range(0, groups, 2 * GROUPS, num_stages=1):
        more_words, more_steps, more_leasts = (), (), ()
        for g in tl.static_range(GROUPS):
            group = first + 2 * g
            # Four columns are eight rows' factors of each word, four and four; the other four those of the next group.
            row = (group + place // 4) * 128 + 4 * pair + place % 4
            if MASKED:
                factors = tl.load(x + row * x_stride, mask=row < 8 * rows, other=0)
            else:
                factors = tl.load(x + row * x_stride)
            step = steps[g].to(tl.float32)
            if SMALL:
                step *= 2.0**24
            products = tl.zeros((ROWS, 8), tl.float32)
            for i in tl.static_range(4):
                nibbles = tl.reshape(two_nibbles(as_rows(words[g], ACROSS, WARPS), i, x.dtype.element_ty), (ROWS, 32))
                sums = tl.dot(nibbles, factors)
                if SMALL and i % 2 == 1:
                    sums *= 0.0625
                products = tl.where(place == first_place + i, sums, products)
            least = leasts[g].to(tl.float32)
            total += products * step[:, None] + tl.dot(ones, factors) * least[:, None]
            # Under way while the other groups are worked on.
            at = zero + (group + 2 * GROUPS if MASKED else tl.minimum(group + 2 * GROUPS, groups - 2))
            loaded = load_words(w, at, rows, column, columns, w_strides, MASKED, UNEVEN, ACROSS, WARPS)
            own_group = tl.minimum(at + half, groups - 1)
            more_words = more_words + (loaded,)  # noqa: RUF005
            more_steps = more_steps + (tl.load(from_scale + own_group * scale_strides[0]),)  # noqa: RUF005
            more_leasts = more_leasts + (tl.load(from_min + own_group * min_strides[0]),)  # noqa: RUF005
        words, steps, leasts = more_words, more_steps, more_leasts
    # Rows in order of columns, those of both halves side by side.
    result = tl.sum(tl.where(place // 4 == half[:, None], total, 0.0), axis=1)
    if ACROSS == 4:
        result = tl.permute(tl.reshape(result, (2, 2, WARPS // 2, 2, 8)), (2, 4, 0, 3, 1))
    else:
        result = tl.permute(tl.reshape(result, (2, WARPS // 2, 2, 8)), (1, 3, 2, 0))
    result = tl.sum(tl.reshape(result, (ROWS // 2, 2)), axis=1)
    own = column + tl.arange(0, ROWS // 2)
    here = own < columns
    known = tl.minimum(own, columns - 1)
    if tl.max(tl.where(tl.abs(result) < float("inf"), 0, 1), axis=0) > 0:
        result = exactly(
            x, w, scale, zero_min, rows, known, zero, x_stride, w_strides, scale_strides, min_strides, 16, 8
        )
    tl.store(out + own * out_stride, result.to(out.dtype.element_ty), mask=here)


def bind(ctx: BindContext) -> Sequence[Launch]:
    """Bind ``dequant_gemv_int4`` on the matrix unit."""
    x, w, _, _ = ctx.signature.tensors
    (out,) = ctx.signature.outputs
    if out.size == 0:
        return ()
    across, warps, groups = ctx.settings["across"], ctx.settings["warps"], ctx.settings["groups"]
    block_n = 4 * across * warps
    step = launch(
        ctx,
        matrix,
        programs=triton.cdiv(out.size, block_n),
        arguments={
            **{name: value for name, value in packed(ctx).items() if name != "one"},
            "x": "x",
            "rows": w.shape[0],
            "x_stride": x.strides[0],
            "out": "out",
            "out_stride": out.strides[0],
        },
        constants={
            "MASKED": w.shape[0] % (2 * WORDS * groups) != 0,
            "UNEVEN": out.size % block_n != 0,
            "WIDE": wide_gemv(ctx),
            "GROUPS": groups,
            "ACROSS": across,
            "WARPS": warps,
        },
        options=Options(num_warps=warps, num_stages=1, enable_fp_fusion=True),
    )
    return (step,)
