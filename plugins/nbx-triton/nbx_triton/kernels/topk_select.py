"""topk of long rows: what cannot be among the k best is left out first, the rest is sorted.

A row, or a segment of one where rows are few, is seen as ``GROUPS`` interleaved groups. The k-th best of the groups'
best ones is a bound: k elements at the least reach it, and nothing below it is wanted. `select` finds it in one pass,
and in a second, which the cache serves, lists the places of those that reach it: of numbers in no particular order
about 73 where k is 64 and there are 256 groups. `finish` sorts what the lists of a row name. A list that has not enough
room is not used: of such a segment `finish` looks at every element, and sorts the pieces that have one among the best
so far. So any row is right, and a row of equal elements not slow.

At the least every element is read once: 268 MB for 16384 x 8192 of 16 bits. Deterministic: elements that are equal
differ in their places, which are part of what is sorted.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import triton
import triton.language as tl

from nbx_registry.launch import BindContext, Launch
from nbx_triton.compiler import Options
from nbx_triton.kernels.ordering import order_key, pack, place_of
from nbx_triton.kernels.strided import locate, program
from nbx_triton.kernels.topk import arguments_of, narrow_key, wide
from nbx_triton.launching import Argument, launch

PROGRAMS = 1056
"""Programs to be had where rows allow it: eight on each of an H200's multiprocessors."""
SIZES = {64: (256, 128, 8192), 256: (512, 512, 8192), 1024: (2048, 2048, 16384)}
"""For k up to this: groups, places of a list, elements of a segment at the least."""


@triton.jit
def comparable(x, LARGEST: tl.constexpr):
    """Return what is compared: floats as float32, the best the largest, NaN the least where it comes last."""
    if x.dtype.is_floating():
        a = x.to(tl.float32)
        if not LARGEST:
            a = tl.where(a == a, -a, float("-inf"))
    else:
        a = order_key(x, LARGEST)
    return a


@triton.jit
def load_groups(
    source,
    at,
    last,
    stride,
    offset_dtype: tl.constexpr,
    LARGEST: tl.constexpr,
    WHOLE: tl.constexpr,
    GROUPS: tl.constexpr,
):
    """Return one element of each group, and the least there is for those past the end, of which WHOLE has none."""
    column = at + tl.arange(0, GROUPS)
    place = source + column.to(offset_dtype) * stride
    if WHOLE:
        a = comparable(tl.load(place), LARGEST)
    elif source.dtype.element_ty.is_floating():
        if LARGEST:
            a = comparable(tl.load(place, mask=column < last, other=float("-inf")), LARGEST)
        else:
            a = comparable(tl.load(place, mask=column < last, other=float("inf")), LARGEST)
    else:
        inside = column < last
        a = tl.where(inside, comparable(tl.load(place, mask=inside, other=0), LARGEST), -0x80000000)
    return a


@triton.jit
def bound_of(best, k, K: tl.constexpr):
    """Return the k-th best of ``best``."""
    if best.dtype.is_floating():
        top = tl.topk(order_key(best, True), K)
    else:
        top = tl.topk(best, K)
    bound = tl.sum(tl.where(tl.arange(0, K) == k - 1, top, 0), axis=0)
    if best.dtype.is_floating():
        # Back from the key: the sign to the front, beside the size.
        bits = tl.where(bound < 0, -bound | -0x80000000, bound)
        bound = bits.to(tl.float32, bitcast=True)
    return bound


@triton.jit
def ones(bits):
    """Return how many bits of 32 are set (H. S. Warren, "Hacker's Delight", 2002, 5-1)."""
    n = bits - ((bits >> 1) & 0x55555555)
    n = (n & 0x33333333) + ((n >> 2) & 0x33333333)
    n = (n + (n >> 4)) & 0x0F0F0F0F
    return ((n * 0x01010101) >> 24).to(tl.int32)


@triton.jit
def select(
    x,
    lists,
    counts,
    length,
    k,
    segments,
    per_segment,
    row_shape,
    x_row_strides,
    stride,
    LARGEST: tl.constexpr,
    WHOLE: tl.constexpr,
    WIDE: tl.constexpr,
    GROUPS: tl.constexpr,
    TURNS: tl.constexpr,
    ROOM: tl.constexpr,
    K: tl.constexpr,
):
    """Write the places of one segment's elements that reach the bound, and how many these are.

    ``lists`` is ``[row, segment, ROOM]``, ``counts`` ``[row, segment]``: of more than ROOM the count alone matters.
    """
    number = program(WIDE)
    source = x + locate(number // segments, row_shape, x_row_strides)
    first = (number % segments * per_segment).to(tl.int32)
    last = tl.minimum(first + per_segment, length)
    group = tl.arange(0, GROUPS)
    if x.dtype.element_ty.is_floating():
        best = tl.full((GROUPS,), float("-inf"), tl.float32)
    else:
        best = tl.full((GROUPS,), -0x80000000, tl.int32)
    for at in range(first, last, GROUPS * TURNS):
        for turn in tl.static_range(TURNS):
            a = load_groups(source, at + turn * GROUPS, last, stride, number.dtype, LARGEST, WHOLE, GROUPS)
            best = tl.maximum(best, a, propagate_nan=tl.PropagateNan.ALL)
    bound = bound_of(best, k, K)
    listed = lists + number * ROOM
    total = first * 0
    for at in range(first, last, GROUPS * TURNS):
        # One bit for each element of a group that reaches the bound: a NaN does, and all do where it is NaN.
        reached = tl.full((GROUPS,), 0, tl.uint32)
        for turn in tl.static_range(TURNS):
            a = load_groups(source, at + turn * GROUPS, last, stride, number.dtype, LARGEST, WHOLE, GROUPS)
            reached |= tl.where(a < bound, 0, 1).to(tl.uint32) << turn
        if not WHOLE:
            # Nothing past the end does. A shift by 32 would be none.
            known = tl.minimum(tl.maximum(last - at - group + GROUPS - 1, 0) // GROUPS, TURNS)
            those = tl.full((GROUPS,), 0xFFFFFFFF, tl.uint32) >> tl.minimum(32 - known, 31).to(tl.uint32)
            reached = tl.where(known > 0, reached & those, 0)
        count = ones(reached)
        place = total + tl.cumsum(count, axis=0) - count
        total += tl.sum(count, axis=0)
        most = tl.max(count, axis=0)
        for _turn in range(most):
            rest = reached & (reached - 1)
            lowest = reached ^ rest
            # A power of two as a float has its exponent for a logarithm.
            nth = (lowest.to(tl.float32).to(tl.int32, bitcast=True) >> 23) - 127
            tl.store(listed + place, at + nth * GROUPS + group, mask=(reached != 0) & (place < ROOM))
            place += 1
            reached = rest
    tl.store(counts + number, total)


@triton.jit
def finish(
    x,
    lists,
    counts,
    values,
    indices,
    length,
    k,
    segments,
    per_segment,
    row_shape,
    x_row_strides,
    value_row_strides,
    index_row_strides,
    stride,
    value_stride,
    index_stride,
    LARGEST: tl.constexpr,
    NARROW_KEY: tl.constexpr,
    WIDE: tl.constexpr,
    ROOM: tl.constexpr,
    K: tl.constexpr,
):
    """Write the k best of one row: those of its segments' lists, or of whole segments that were too much for a list."""
    row = program(WIDE)
    source = x + locate(row, row_shape, x_row_strides)
    slot = tl.arange(0, ROOM)
    rank = K - 1 - tl.arange(0, K)
    if NARROW_KEY:
        best = tl.full((K,), -0x80000000, tl.int32)
    else:
        best = tl.full((K,), -0x8000000000000000, tl.int64)
    last_best = tl.min(best, axis=0)
    for segment in range(segments):
        number = row * segments + segment
        count = tl.load(counts + number)
        first = segment * per_segment
        size = tl.minimum(per_segment, length - first)
        kept = count <= ROOM
        for at in range(0, tl.where(kept, count, size), ROOM):
            if kept:
                inside = slot < count
                place = tl.load(lists + number * ROOM + slot, mask=inside, other=0)
            else:
                inside = at + slot < size
                place = first + at + slot
            a = tl.load(source + place.to(row.dtype) * stride, mask=inside, other=0)
            packed = pack(order_key(a, LARGEST), place, inside, NARROW_KEY)
            if tl.max(packed, axis=0) > last_best:
                # Those so far rise and the others fall: the larger ones are the best of both, a bitonic sequence.
                best = tl.bitonic_merge(tl.maximum(best, tl.topk(packed, K)))
                last_best = tl.sum(tl.where(rank == k - 1, best, 0), axis=0)
    place = place_of(best, NARROW_KEY)
    wanted = rank < k
    found = tl.load(source + place.to(row.dtype) * stride, mask=wanted, other=0)
    step = rank.to(row.dtype)
    tl.store(values + locate(row, row_shape, value_row_strides) + step * value_stride, found, mask=wanted)
    target = indices + locate(row, row_shape, index_row_strides) + step * index_stride
    tl.store(target, place.to(tl.int64), mask=wanted)


def bind(ctx: BindContext) -> Sequence[Launch]:
    """Bind ``topk`` of long rows; what is selected goes through the workspaces ``lists`` and ``counts``."""
    values, _ = ctx.signature.outputs
    if values.size == 0:
        return ()
    arguments, rows = arguments_of(ctx)
    length, k = ctx.signature.axes["L"], ctx.signature.attributes["k"]
    most = min(size for size in SIZES if size >= k)
    groups, room, least = SIZES[most]
    # The kernel's workspace declares as many.
    segments = max(1, min(triton.cdiv(PROGRAMS, rows), triton.cdiv(length, least)))
    per_segment = triton.cdiv(triton.cdiv(length, segments), groups) * groups
    segments = triton.cdiv(length, per_segment)
    turns = min(32, triton.next_power_of_2(per_segment // groups))
    whole = per_segment % (groups * turns) == 0 and length == segments * per_segment
    cut: dict[str, Argument] = {
        "lists": "lists",
        "counts": "counts",
        "segments": segments,
        "per_segment": per_segment,
    }
    constants: dict[str, Any] = {
        "LARGEST": bool(ctx.signature.attributes["largest"]),
        "WIDE": wide(ctx, groups * turns) or rows * segments * room >= 2**31,
        "ROOM": room,
        "K": most,
    }
    reading = ("x", "length", "k", "row_shape", "x_row_strides", "stride")
    first = launch(
        ctx,
        select,
        programs=rows * segments,
        arguments={**{name: arguments[name] for name in reading}, **cut},
        constants={**constants, "GROUPS": groups, "TURNS": turns, "WHOLE": whole},
        options=Options(num_warps=groups // 256, num_stages=1, enable_fp_fusion=False),
    )
    second = launch(
        ctx,
        finish,
        programs=rows,
        arguments={**arguments, **cut},
        constants={**constants, "NARROW_KEY": narrow_key(ctx)},
        options=Options(num_warps=max(1, room // 256), num_stages=1, enable_fp_fusion=False),
    )
    return (first, second)
