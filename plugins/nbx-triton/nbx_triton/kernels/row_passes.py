"""Rows too long for a block, read, measured and written: the passes that softmax and the norms share.

`passes` goes through rows twice, by tiles of ``TILES`` vectors a thread. The last ``HELD`` vectors of a row stay in
registers in between; the others are read again, from the tile that was read last to the first, so that they are met
in the cache. What has been read for the last time leaves the cache first, as does what is written.

What an op does it has three functions for:

``take(state, a, inside)``
    Return the state of each lane with elements ``a[row, tile, lane]`` in it, of which only those ``inside`` are of the
    row, or all where that is None. Others are ``OTHER``.
``settle(state, share, eps)``
    Return what the states of a row come to.
``give(found, a)``
    Return results, but for weight and bias.
"""

from __future__ import annotations

import triton
import triton.language as tl

from nbx_triton.kernels.normalization import affine, compute, factors
from nbx_triton.kernels.strided import locate, program


@triton.jit
def apart(a, SPLIT: tl.constexpr):
    """Return elements of 16 bits as they are, so that the compiler does not see it.

    What was converted before is then converted again, and does not take twice the registers in the meantime (PTX).
    """
    if SPLIT:
        a = tl.inline_asm_elementwise("mov.b32 $0, $1;", "=r,r", [a], dtype=a.dtype, is_pure=True, pack=2)
    return a


@triton.jit
def both(a, b):
    """Return where two conditions hold, either of which may be None: it always does."""
    if a is None:
        c = b
    elif b is None:
        c = a
    else:
        c = a & b
    return c


@triton.jit
def read(source, here, OTHER: tl.constexpr, LAST: tl.constexpr):
    """Return elements, OTHER where not ``here``. LAST: they are not read again."""
    policy: tl.constexpr = "evict_first" if LAST else ""
    if here is None:
        a = tl.load(source, eviction_policy=policy)
    else:
        a = tl.load(source, mask=here, other=OTHER, eviction_policy=policy)
    return a


@triton.jit
def write(GIVE: tl.constexpr, found, a, vectors, out, target, column, inside, here, out_stride):
    """Write what ``a`` comes to; ``inside`` are columns of the row, or all where that is None, ``here`` rows."""
    w = factors(vectors[0], column, inside, vectors[2])
    b = factors(vectors[1], column, inside, vectors[3])
    y = affine(GIVE(found, a), w, b)
    y = y.to(out.dtype.element_ty)
    tl.store(target + column * out_stride, y, mask=both(here, inside), eviction_policy="evict_first")


@triton.jit
def passes(
    TAKE: tl.constexpr,
    SETTLE: tl.constexpr,
    GIVE: tl.constexpr,
    state,
    OTHER: tl.constexpr,
    given,
    vectors,
    share,
    eps,
    WIDE: tl.constexpr,
    BLOCK_ROWS: tl.constexpr,
    TILES: tl.constexpr,
    HELD: tl.constexpr,
    LANES: tl.constexpr,
    SPLIT: tl.constexpr,
):
    """Read and write ``BLOCK_ROWS`` rows, ``TILES`` by ``LANES`` elements of each at a time.

    ``given`` are ``(x, out, rows, length, row_shape, row_strides, out_strides, stride, out_stride)``, ``vectors``
    ``(weight, bias, weight_stride, bias_stride)``. HELD is a multiple of TILES.
    """
    x, out, rows, length, row_shape, row_strides, out_strides, stride, out_stride = given
    row = program(WIDE) * BLOCK_ROWS + tl.arange(0, BLOCK_ROWS)
    lane = tl.arange(0, LANES)[None, None, :].to(row.dtype)
    tile = tl.arange(0, TILES)[None, :, None] * LANES + lane
    if BLOCK_ROWS == 1:
        here = None
    else:
        here = (row < rows)[:, None, None]
    step: tl.constexpr = TILES * LANES
    # Of what is held the last tile may be cut short.
    whole = tl.cdiv(length - HELD * LANES, step) * step
    last: tl.constexpr = HELD // TILES - 1
    column = whole + last * step + tile
    inside = column < length
    source = x + locate(row, row_shape, row_strides)[:, None, None]
    target = out + locate(row, row_shape, out_strides)[:, None, None]
    held = ()
    for k in tl.static_range(last):
        place = source + (whole + k * step + tile) * stride
        held = held + (read(place, here, OTHER, True),)  # noqa: RUF005 - Triton has no unpacking
    rest = read(source + column * stride, both(here, inside), OTHER, True)
    for at in range(0, whole, step):
        state = TAKE(state, compute(read(source + (at + tile) * stride, here, OTHER, False)), None)
    for k in tl.static_range(last):
        state = TAKE(state, compute(held[k]), None)
    found = SETTLE(TAKE(state, compute(rest), inside), share, eps)
    write(GIVE, found, compute(apart(rest, SPLIT)), vectors, out, target, column, inside, here, out_stride)
    for k in tl.static_range(last):
        place = whole + k * step + tile
        write(GIVE, found, compute(apart(held[k], SPLIT)), vectors, out, target, place, None, here, out_stride)
    for turn in range(0, whole, step):
        place = whole - step - turn + tile
        a = compute(read(source + place * stride, here, OTHER, True))
        write(GIVE, found, a, vectors, out, target, place, None, here, out_stride)
