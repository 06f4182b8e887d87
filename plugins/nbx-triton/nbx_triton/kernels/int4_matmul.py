"""dequant_matmul_int4: a matrix times a packed weight.

On a matrix unit weights cannot be its operands: rounded to 16 bits they would be off by more than the contract allows.
Nibbles can, exactly. So `matrix_groups` sums x q over a group on the unit, then scales that sum and adds the minimum
times the sum of x alone, which `add_rows` has made before. Groups are shared among programs where tiles are few, and
`add_splits` adds the programs' sums in order. Where x, scale or minimum is not finite, or a sum too large, weights are
made after all, one by one.

`matrix_tiles` makes weights in float32 and multiplies them in float32: for x of float32, and without a matrix unit.

Accumulation is float32, in a fixed order. Deterministic. At the least the words are read once for all rows of x.
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
from nbx_triton.kernels.strided import NARROW, program
from nbx_triton.launching import Argument, launch

GROUPS = Space(
    parameters={"block_m": (64, 128), "block_n": (32, 64, 128), "stages": (3, 4)},
    exclude={
        "taller than x": "block_m > 64 and block_m > M",
        "wider than the weight": "block_n > 64 and block_n > N",
        "registers": "block_m > 64 and block_n > 64",
        "few rows want many columns at once": "M <= 16 and block_n > 64",
    },
)
PROGRAMS = 256
"""About how many there are to be: where there are fewer tiles, groups are shared."""
_HEIGHT = 8


@triton.jit
def nibbles(words, one, like: tl.constexpr):
    """Return the nibbles of words as numbers of dtype ``like``: eight rows, the lowest nibbles first, for one."""
    a, b = nibble(words, one, 0).to(like), nibble(words, one, 1).to(like)
    c, d = nibble(words, one, 2).to(like), nibble(words, one, 3).to(like)
    e, f = nibble(words, one, 4).to(like), nibble(words, one, 5).to(like)
    g, h = nibble(words, one, 6).to(like), nibble(words, one, 7).to(like)
    even = tl.join(tl.join(a, e), tl.join(c, g))
    odd = tl.join(tl.join(b, f), tl.join(d, h))
    # Rows, columns, and then 4, 2 and 1 of the place.
    return tl.reshape(tl.permute(tl.join(even, odd), (0, 2, 3, 4, 1)), (8 * words.shape[0], words.shape[1]))


@triton.jit
def tile_of(number, tiles_m, tiles_n, HEIGHT: tl.constexpr):
    """Return row and column of a tile: HEIGHT rows of them at a time, so that neighbours share what they read."""
    first = number // (HEIGHT * tiles_n) * HEIGHT
    height = tl.minimum(tiles_m - first, HEIGHT)
    within = number % (HEIGHT * tiles_n)
    return first + within % height, within // height


@triton.jit
def add_rows(x, sums, rows, depth, groups, x_strides, WIDE: tl.constexpr, BLOCK_M: tl.constexpr, GROUP: tl.constexpr):
    """Write the sums of one group of BLOCK_M rows of x."""
    number = program(WIDE)
    group = number % groups
    row = number // groups * BLOCK_M + tl.arange(0, BLOCK_M)
    k = group * GROUP + tl.arange(0, GROUP)
    inside = (row < rows)[:, None] & (k < depth)[None, :]
    own = tl.load(x + row[:, None] * x_strides[0] + k[None, :] * x_strides[1], mask=inside, other=0).to(tl.float32)
    tl.store(sums + row * groups + group, tl.sum(own, axis=1), mask=row < rows)


@triton.jit
def matrix_groups(
    x,
    w,
    scale,
    zero_min,
    sums,
    target,
    one,
    rows,
    columns,
    depth,
    groups,
    share,
    x_strides,
    w_strides,
    scale_strides,
    min_strides,
    target_strides,
    WIDE: tl.constexpr,
    HEIGHT: tl.constexpr,
    WORDS: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
):
    """Write one tile's sums over ``share`` groups to ``target``, whose strides are of split, row and column."""
    number = program(WIDE)
    tiles_m = (rows + BLOCK_M - 1) // BLOCK_M
    tiles_n = (columns + BLOCK_N - 1) // BLOCK_N
    part = number // (tiles_m * tiles_n)
    tile_m, tile_n = tile_of(number % (tiles_m * tiles_n), tiles_m, tiles_n, HEIGHT)
    row = tile_m * BLOCK_M + tl.arange(0, BLOCK_M)
    column = tile_n * BLOCK_N + tl.arange(0, BLOCK_N)
    here_m = row < rows
    here_n = column < columns
    r = tl.arange(0, WORDS)
    k = tl.arange(0, 8 * WORDS)
    first = (part * share).to(tl.int32)
    last = tl.minimum(first + share, groups)
    own_x = x + row[:, None] * x_strides[0]
    own_w = w + column * w_strides[1]
    own_scale = scale + column * scale_strides[1]
    own_min = zero_min + column * min_strides[1]
    total = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    for block in range(first, last):
        group = number * 0 + block
        deep = group * 8 * WORDS + k
        # Past the end of x there are zeros, which meet nibbles of 0.
        left = tl.load(own_x + deep[None, :] * x_strides[1], mask=here_m[:, None] & (deep < depth)[None, :], other=0)
        below = group * WORDS + r
        known = here_n[None, :] & (8 * below < depth)[:, None]
        words = tl.load(own_w[None, :] + below[:, None] * w_strides[0], mask=known, other=0)
        step = tl.load(own_scale + group * scale_strides[0], mask=here_n, other=0).to(tl.float32)
        least = tl.load(own_min + group * min_strides[0], mask=here_n, other=0).to(tl.float32)
        plain = tl.load(sums + row * groups + group, mask=here_m, other=0)
        right = nibbles(words, one, left.dtype)
        total += tl.dot(left, right, input_precision="ieee") * step[None, :] + plain[:, None] * least[None, :]
    if tl.max(tl.where(tl.abs(total) < float("inf"), 0, 1)) > 0:
        # An infinity times a nibble of 0 is NaN, where times its weight it may be infinite.
        total = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
        for turn in range(8 * first * WORDS, tl.minimum(8 * last * WORDS, depth)):
            at = number * 0 + turn
            left = tl.load(own_x + at * x_strides[1], mask=here_m[:, None], other=0).to(tl.float32)
            weights = weights_of(
                own_w, own_scale, own_min, at, w_strides[0], scale_strides[0], min_strides[0], here_n, WORDS
            )
            total += left * weights[None, :]
    place = target + part * target_strides[0] + row[:, None] * target_strides[1] + column[None, :] * target_strides[2]
    tl.store(place, total.to(target.dtype.element_ty), mask=here_m[:, None] & here_n[None, :])


@triton.jit
def matrix_tiles(
    x,
    w,
    scale,
    zero_min,
    out,
    one,
    rows,
    columns,
    depth,
    x_strides,
    w_strides,
    scale_strides,
    min_strides,
    out_strides,
    WIDE: tl.constexpr,
    HEIGHT: tl.constexpr,
    GROUP: tl.constexpr,
    WORDS: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
):
    """Write one tile, WORDS rows of words at a time, which are of one GROUP."""
    number = program(WIDE)
    tiles_m = (rows + BLOCK_M - 1) // BLOCK_M
    tile_m, tile_n = tile_of(number, tiles_m, (columns + BLOCK_N - 1) // BLOCK_N, HEIGHT)
    row = tile_m * BLOCK_M + tl.arange(0, BLOCK_M)
    column = tile_n * BLOCK_N + tl.arange(0, BLOCK_N)
    here_m = (row < rows)[:, None]
    here_n = (column < columns)[None, :]
    r = tl.arange(0, WORDS)
    k = tl.arange(0, 8 * WORDS)
    own_x = x + row[:, None] * x_strides[0]
    own_w = w + column[None, :] * w_strides[1]
    own_scale = scale + column[None, :] * scale_strides[1]
    own_min = zero_min + column[None, :] * min_strides[1]
    total = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    for block in range(0, depth, 8 * WORDS):
        at = number * 0 + block
        deep = at + k
        left = tl.load(own_x + deep[None, :] * x_strides[1], mask=here_m & (deep < depth)[None, :], other=0)
        below = at // 8 + r
        words = tl.load(own_w + below[:, None] * w_strides[0], mask=here_n & (8 * below < depth)[:, None], other=0)
        step = tl.load(own_scale + at // GROUP * scale_strides[0], mask=here_n, other=0).to(tl.float32)
        least = tl.load(own_min + at // GROUP * min_strides[0], mask=here_n, other=0).to(tl.float32)
        right = nibbles(words, one, tl.float32) * step + least
        # Past the end there is no weight, not a minimum: 0 times an infinite one is NaN.
        right = tl.where((deep < depth)[:, None], right, 0.0)
        total = tl.dot(left.to(tl.float32), right, total, input_precision="ieee")
    place = out + row[:, None] * out_strides[0] + column[None, :] * out_strides[1]
    tl.store(place, total.to(out.dtype.element_ty), mask=here_m & here_n)


def _arguments(ctx: BindContext) -> dict[str, Argument]:
    (x, *_) = ctx.signature.tensors
    rows, depth = x.shape
    return {**packed(ctx), "x": "x", "rows": rows, "depth": depth, "x_strides": x.strides}


def _wide(ctx: BindContext) -> bool:
    return beyond(*ctx.signature.operands, *ctx.signature.outputs)


def bind_groups(ctx: BindContext) -> Sequence[Launch]:
    """Bind ``dequant_matmul_int4`` on the matrix unit."""
    x, _, scale, _ = ctx.signature.tensors
    (out,) = ctx.signature.outputs
    if out.size == 0:
        return ()
    rows, columns = out.shape
    groups = scale.shape[0]
    block_n = ctx.settings["block_n"]
    tiles_n = triton.cdiv(columns, block_n)
    share, splits = share_groups(groups, triton.cdiv(rows, ctx.settings["block_m"]) * tiles_n, PROGRAMS)
    wide = _wide(ctx) or splits * out.size + 2**16 >= NARROW or rows * groups + 2**16 >= NARROW
    # The unit takes 16 rows at the least; addresses in 64 bits take twice the registers.
    block_m = min(ctx.settings["block_m"], max(16, triton.next_power_of_2(rows)), 32 if wide else 128)
    add = launch(
        ctx,
        add_rows,
        programs=triton.cdiv(rows, 16) * groups,
        arguments={
            "x": "x",
            "sums": "sums",
            "rows": rows,
            "depth": x.shape[1],
            "groups": groups,
            "x_strides": x.strides,
        },
        constants={"WIDE": wide, "BLOCK_M": 16, "GROUP": 8 * WORDS},
        options=Options(num_warps=4, num_stages=1, enable_fp_fusion=False),
    )
    multiply = launch(
        ctx,
        matrix_groups,
        programs=triton.cdiv(rows, block_m) * tiles_n * splits,
        arguments={
            **_arguments(ctx),
            "sums": "sums",
            "target": "partial" if splits > 1 else "out",
            "groups": groups,
            "share": share,
            "target_strides": (out.size, columns, 1) if splits > 1 else (0, *out.strides),
        },
        constants={"WIDE": wide, "HEIGHT": _HEIGHT, "WORDS": WORDS, "BLOCK_M": block_m, "BLOCK_N": block_n},
        options=Options(
            num_warps=8 if block_m * block_n > 4096 else 4, num_stages=_stages(ctx, block_m), enable_fp_fusion=True
        ),
    )
    return (add, multiply) if splits == 1 else (add, multiply, join(ctx, splits, wide))


def _stages(ctx: BindContext, block_m: int) -> int:
    """Return the stages that are set, or fewer where the device lacks the shared memory."""
    stages, block_n = ctx.settings["stages"], ctx.settings["block_n"]
    # Of a stage there are x and words; once, the nibbles and the tile.
    once = 2 * 8 * WORDS * block_n + 4 * block_m * block_n
    each = 2 * 8 * WORDS * block_m + 4 * WORDS * block_n
    while stages > 1 and once + stages * each > ctx.device.fact("shared.bytes_per_block_optin"):
        stages -= 1
    return stages


def bind_tiles(ctx: BindContext) -> Sequence[Launch]:
    """Bind ``dequant_matmul_int4`` in float32."""
    (out,) = ctx.signature.outputs
    if out.size == 0:
        return ()
    rows, columns = out.shape
    block_m, block_n, words = (16, 64, 4) if rows <= 16 else (64, 64, 2)
    step = launch(
        ctx,
        matrix_tiles,
        programs=triton.cdiv(rows, block_m) * triton.cdiv(columns, block_n),
        arguments={**_arguments(ctx), "out": "out", "out_strides": out.strides},
        constants={
            "WIDE": _wide(ctx),
            "HEIGHT": _HEIGHT,
            "GROUP": 8 * WORDS,
            "WORDS": words,
            "BLOCK_M": block_m,
            "BLOCK_N": block_n,
        },
        options=Options(num_warps=4, num_stages=2, enable_fp_fusion=True),
    )
    return (step,)
