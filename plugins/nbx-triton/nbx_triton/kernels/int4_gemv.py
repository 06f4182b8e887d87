"""dequant_gemv_int4: a vector times a packed weight, in an order that is stated, and faster in another one.

`ordered` computes 64 columns, group after group. A group is 16 rows of words; for each of these and each column there
is one running sum in float32, to which every group adds its word's eight products from the lowest nibble to the
highest, each by one fused multiply-add of x and of the weight as `dequant_int4` has it. At the end the 16 sums are
added in halves: the upper eight to the lower eight, and so on. The order is the program's and no layout's, so that
bits do not depend on ``BLOCK_N``, warps or stages, and dequantising first and multiplying in this order gives the same.

`split` takes a third less: it sums x q and x alone over a group, and applies scale and minimum to these sums. Groups
are shared among programs, whose sums `add_splits` adds in order. Where x, scale or minimum is not finite, or a sum too
large, weights are made after all, one by one.

Both are deterministic. An H200 reads the words of 8192 x 28672 in 29 us; four operations a weight take as long.
"""

from __future__ import annotations

from collections.abc import Sequence

import triton
import triton.language as tl

from nbx_registry.launch import BindContext, Launch
from nbx_registry.space import Space
from nbx_triton.compiler import Options
from nbx_triton.kernels.int4 import WORDS, beyond, nibble, packed, weights_of
from nbx_triton.kernels.int4_splits import join, share_groups
from nbx_triton.kernels.strided import NARROW, program, reach
from nbx_triton.launching import Argument, launch

ORDERED = Space(
    parameters={"block_n": (1, 8, 32, 64, 128), "warps": (2, 4), "stages": (2, 4)},
    exclude={
        "wider than the weight": "block_n > 64 and block_n > N",
        "less than a line of memory": "block_n < 32 and N > 32",
    },
)
SPLIT = Space(
    parameters={"block_n": (64, 128, 256), "programs": (512, 1024), "stages": (2, 3)},
    exclude={"wider than the weight": "block_n > 64 and block_n > N"},
)
"""``programs`` is about how many there are to be: where there are fewer tiles of columns, groups are shared."""


@triton.jit
def halves(sums):
    """Return the upper half of the rows added to the lower half."""
    both = tl.reshape(sums, (2, sums.shape[0] // 2, sums.shape[1]))
    low, high = tl.split(tl.permute(both, (1, 2, 0)))
    return low + high


@triton.jit
def add_group(
    sums,
    x,
    w,
    scale,
    zero_min,
    one,
    first,
    rows,
    here,
    x_stride,
    row_stride,
    MASKED: tl.constexpr,
    WORDS: tl.constexpr,
):
    """Return the sums of `ordered` with those of one group added, whose words begin in row ``first``.

    ``w``, ``scale`` and ``zero_min`` point to its columns. Rows from ``rows`` on add 0.
    """
    row = first + tl.arange(0, WORDS)
    known = row < rows
    inside = here[None, :]
    if MASKED:
        inside = inside & known[:, None]
    words = tl.load(w[None, :] + row[:, None] * row_stride, mask=inside, other=0)
    step = tl.load(scale, mask=here, other=0).to(tl.float32)[None, :]
    least = tl.load(zero_min, mask=here, other=0).to(tl.float32)[None, :]
    for i in tl.static_range(8):
        place = x + (8 * row + i) * x_stride
        if MASKED:
            own = tl.load(place, mask=known, other=0)
        else:
            own = tl.load(place)
        weights = tl.fma(nibble(words, one, i), step, least)
        if MASKED:
            weights = tl.where(known[:, None], weights, 0.0)
        sums = tl.fma(own.to(tl.float32)[:, None] + tl.zeros_like(sums), weights, sums)
    return sums


@triton.jit
def ordered(
    x,
    w,
    scale,
    zero_min,
    out,
    one,
    rows,
    columns,
    x_stride,
    w_strides,
    scale_strides,
    min_strides,
    out_stride,
    WHOLE: tl.constexpr,
    WIDE: tl.constexpr,
    STAGES: tl.constexpr,
    WORDS: tl.constexpr,
    BLOCK_N: tl.constexpr,
):
    """Write BLOCK_N columns. WHOLE: the last group is as long as the others."""
    number = program(WIDE)
    column = number * BLOCK_N + tl.arange(0, BLOCK_N)
    here = column < columns
    w += column * w_strides[1]
    scale += column * scale_strides[1]
    zero_min += column * min_strides[1]
    sums = tl.zeros((WORDS, BLOCK_N), tl.float32)
    groups = rows // WORDS
    for block in tl.range(groups, num_stages=STAGES):
        group = number * 0 + block
        steps, least = scale + group * scale_strides[0], zero_min + group * min_strides[0]
        sums = add_group(sums, x, w, steps, least, one, group * WORDS, rows, here, x_stride, w_strides[0], False, WORDS)
    if not WHOLE:
        group = number * 0 + groups
        steps, least = scale + group * scale_strides[0], zero_min + group * min_strides[0]
        sums = add_group(sums, x, w, steps, least, one, group * WORDS, rows, here, x_stride, w_strides[0], True, WORDS)
    sums = halves(halves(halves(halves(sums))))
    total = tl.reshape(sums, (BLOCK_N,))
    tl.store(out + column * out_stride, total.to(out.dtype.element_ty), mask=here)


@triton.jit
def split(
    x,
    w,
    scale,
    zero_min,
    target,
    one,
    rows,
    columns,
    groups,
    share,
    x_stride,
    w_strides,
    scale_strides,
    min_strides,
    target_strides,
    WHOLE: tl.constexpr,
    WIDE: tl.constexpr,
    STAGES: tl.constexpr,
    WORDS: tl.constexpr,
    BLOCK_N: tl.constexpr,
):
    """Write the sums of BLOCK_N columns over ``share`` groups to ``target``, whose strides are of split and column."""
    number = program(WIDE)
    tiles = (columns + BLOCK_N - 1) // BLOCK_N
    part = number // tiles
    column = number % tiles * BLOCK_N + tl.arange(0, BLOCK_N)
    here = column < columns
    first = (part * share).to(tl.int32)
    last = tl.minimum(first + share, groups)
    own_w = w + column * w_strides[1]
    own_scale = scale + column * scale_strides[1]
    own_min = zero_min + column * min_strides[1]
    sums = tl.zeros((WORDS, BLOCK_N), tl.float32)
    for block in tl.range(first, last, num_stages=STAGES):
        group = number * 0 + block
        row = group * WORDS + tl.arange(0, WORDS)
        known = row < rows
        inside = here[None, :]
        if not WHOLE:
            inside = inside & known[:, None]
        words = tl.load(own_w[None, :] + row[:, None] * w_strides[0], mask=inside, other=0)
        step = tl.load(own_scale + group * scale_strides[0], mask=here, other=0).to(tl.float32)[None, :]
        least = tl.load(own_min + group * min_strides[0], mask=here, other=0).to(tl.float32)[None, :]
        products = tl.zeros((WORDS, BLOCK_N), tl.float32)
        plain = tl.zeros((WORDS,), tl.float32)
        for i in tl.static_range(8):
            place = x + (8 * row + i) * x_stride
            if WHOLE:
                own = tl.load(place).to(tl.float32)
            else:
                own = tl.load(place, mask=known, other=0).to(tl.float32)
            products += own[:, None] * nibble(words, one, i)
            plain += own
        sums += products * step + plain[:, None] * least
    total = tl.sum(sums, axis=0)
    if tl.max(tl.where(tl.abs(total) < float("inf"), 0, 1), axis=0) > 0:
        # An infinity times a nibble of 0 is NaN, where times its weight it may be infinite.
        total = tl.zeros((BLOCK_N,), tl.float32)
        for turn in range(8 * first * WORDS, tl.minimum(8 * last * WORDS, 8 * rows)):
            at = number * 0 + turn
            weights = weights_of(
                own_w, own_scale, own_min, at, w_strides[0], scale_strides[0], min_strides[0], here, WORDS
            )
            total += tl.load(x + at * x_stride).to(tl.float32) * weights
    place = target + part * target_strides[0] + column * target_strides[1]
    tl.store(place, total.to(target.dtype.element_ty), mask=here)


def _arguments(ctx: BindContext) -> dict[str, Argument]:
    x, w, _, _ = ctx.signature.tensors
    return {**packed(ctx), "x": "x", "rows": w.shape[0], "x_stride": x.strides[0]}


def _wide(ctx: BindContext) -> bool:
    x, *packed = ctx.signature.tensors
    (out,) = ctx.signature.outputs
    return beyond(*packed) or 2 * max(reach(y.shape, y.strides) for y in (x, out)) >= NARROW


def bind_ordered(ctx: BindContext) -> Sequence[Launch]:
    """Bind ``dequant_gemv_int4`` in its stated order."""
    _, w, _, _ = ctx.signature.tensors
    (out,) = ctx.signature.outputs
    if out.size == 0:
        return ()
    block_n = ctx.settings["block_n"]
    step = launch(
        ctx,
        ordered,
        programs=triton.cdiv(out.size, block_n),
        arguments={**_arguments(ctx), "out": "out", "out_stride": out.strides[0]},
        constants={
            "WHOLE": w.shape[0] % WORDS == 0,
            "WIDE": _wide(ctx),
            "STAGES": ctx.settings["stages"],
            "WORDS": WORDS,
            "BLOCK_N": block_n,
        },
        # What is fused is written so.
        options=Options(num_warps=ctx.settings["warps"], num_stages=1, enable_fp_fusion=False),
    )
    return (step,)


def bind_split(ctx: BindContext) -> Sequence[Launch]:
    """Bind ``dequant_gemv_int4`` with groups shared among programs."""
    _, w, scale, _ = ctx.signature.tensors
    (out,) = ctx.signature.outputs
    if out.size == 0:
        return ()
    block_n, groups = ctx.settings["block_n"], scale.shape[0]
    tiles = triton.cdiv(out.size, block_n)
    share, splits = share_groups(groups, tiles, ctx.settings["programs"])
    wide = _wide(ctx)
    step = launch(
        ctx,
        split,
        programs=tiles * splits,
        arguments={
            **_arguments(ctx),
            "target": "partial" if splits > 1 else "out",
            "groups": groups,
            "share": share,
            "target_strides": (out.size, 1) if splits > 1 else (0, out.strides[0]),
        },
        constants={
            "WHOLE": w.shape[0] % WORDS == 0,
            "WIDE": wide,
            "STAGES": ctx.settings["stages"],
            "WORDS": WORDS,
            "BLOCK_N": block_n,
        },
        options=Options(num_warps=4, num_stages=1, enable_fp_fusion=True),
    )
    return (step,) if splits == 1 else (step, join(ctx, splits, wide))
