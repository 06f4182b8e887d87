"""sum, prod, mean, max, argmax: along any axes, in one pass and a fixed order.

The tensor is seen as rows of elements to reduce: the axes that stay number the rows, those that go number the elements
of a row. One program reduces ``BLOCK_ROWS`` rows, in ``BLOCK_COLUMNS`` running results each that are then combined as a
tree. A running sum of floats joins its total every 256 elements: none grows by a long row's elements one by one.
Tiles are long along the axis whose neighbours in memory are closest: along the elements of a row, or along rows (then a
row's elements are far from each other, and a tile takes runs of many rows).
Where that makes too few programs the elements of a row are shared out among several, which write partial results that
`gather` combines in order.

Floating input is computed in float32 (float64 in float64), partial results included. Products and sums of integers and
bools are int64, which wraps as uint64 does; their sums for a mean too, but those of 64-bit integers float64; their
largest in 32 or 64 bits of their own kind. Every element is read once: the floor is the tensor's bytes over the
bandwidth, with 16 bytes a load, several loads of a thread under way. Deterministic: no atomics.
"""

from __future__ import annotations

import triton
import triton.language as tl
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait

from nbx_triton.kernels.strided import locate, program

TURNS = tl.constexpr(256)
"""How many elements a running sum of floats takes before it joins its total."""


@triton.jit
def multiply(a, b):
    """Return a b."""
    return a * b


@triton.jit
def larger(a, b):
    """Return the larger of two; NaN where either is."""
    return tl.maximum(a, b, propagate_nan=tl.PropagateNan.ALL)


@triton.jit
def first_largest(a, i, b, j):
    """Return the larger of two and its index; NaN is larger than all, and of equal ones the lower index counts."""
    above = (b > a) | ((b != b) & (a == a))
    equal = (b == a) | ((b != b) & (a != a))
    taken = above | (equal & (j < i))
    return tl.where(taken, b, a), tl.where(taken, j, i)


@triton.jit
def beginning(dtype: tl.constexpr, OP: tl.constexpr, OTHER: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    """Return running results of nothing, in the dtype in which elements of ``dtype`` are reduced."""
    if dtype == tl.float64:
        total = tl.full((ROWS, COLUMNS), OTHER, tl.float64)
    elif dtype.is_floating():
        total = tl.full((ROWS, COLUMNS), OTHER, tl.float32)
    elif OP == "prod" or OP == "sum":
        total = tl.full((ROWS, COLUMNS), OTHER, tl.int64)
    elif OP == "mean":
        if dtype.primitive_bitwidth == 64:
            total = tl.full((ROWS, COLUMNS), OTHER, tl.float64)
        else:
            total = tl.full((ROWS, COLUMNS), OTHER, tl.int64)
    else:
        if dtype.primitive_bitwidth == 64:
            total = tl.full((ROWS, COLUMNS), OTHER, dtype)
        elif dtype == tl.uint32:
            total = tl.full((ROWS, COLUMNS), OTHER, tl.uint32)
        else:
            total = tl.full((ROWS, COLUMNS), OTHER, tl.int32)
    return total


@triton.jit
def merge(OP: tl.constexpr, total, place, a, at):
    """Take elements ``a`` into running results; ``place`` is where in the row the tile of the largest began."""
    if OP == "sum" or OP == "mean":
        total += a
    elif OP == "prod":
        total *= a
    elif OP == "max":
        total = larger(total, a)
    else:
        # A later one must be above the largest so far, of which NaN is none.
        above = (a > total) | ((a != a) & (total == total))
        total = tl.where(above, a, total)
        place = tl.where(above, at, place)
    return total, place


@triton.jit
def fetch(start, column, shape, strides, here, OTHER: tl.constexpr, EVEN_ROWS: tl.constexpr, POLICY: tl.constexpr):
    """Return elements ``column`` of rows, OTHER where rows are not ``here``."""
    source = start + locate(column, shape, strides)[None, :]
    if EVEN_ROWS:
        a = tl.load(source, eviction_policy=POLICY)
    else:
        a = tl.load(source, mask=here, other=OTHER, eviction_policy=POLICY)
    return a


@triton.jit
def take(
    start,
    first,
    last,
    step,
    lane,
    shape,
    strides,
    here,
    total,
    place,
    OP: tl.constexpr,
    OTHER: tl.constexpr,
    EVEN_ROWS: tl.constexpr,
    TILES: tl.constexpr,
    AHEAD: tl.constexpr,
    POLICY: tl.constexpr,
):
    """Take TILES whole tiles, side by side, every ``step`` elements from ``first`` to before ``last``.

    AHEAD: each is loaded again as soon as it is taken, so that as many are under way all the time.
    """
    WIDTH: tl.constexpr = total.shape[1]
    if AHEAD:
        if first < last:
            tiles = ()
            for k in tl.static_range(TILES):
                part = fetch(start, first + k * WIDTH + lane, shape, strides, here, OTHER, EVEN_ROWS, POLICY)
                tiles = tiles + (part,)  # noqa: RUF005 - Triton has no unpacking
            for at in range(first, last, step):
                # At the end once more what is there already.
                beyond = tl.where(at + step < last, at + step, at)
                others = ()
                for k in tl.static_range(TILES):
                    total, place = merge(OP, total, place, tiles[k].to(total.dtype), at + k * WIDTH)
                    part = fetch(start, beyond + k * WIDTH + lane, shape, strides, here, OTHER, EVEN_ROWS, POLICY)
                    others = others + (part,)  # noqa: RUF005
                tiles = others
    elif OP == "prod":
        # One factor at a time: a product of two numbers next to 1 is rounded down more often than up.
        for at in range(first, last, step):
            for k in tl.static_range(TILES):
                a = fetch(start, at + k * WIDTH + lane, shape, strides, here, OTHER, EVEN_ROWS, POLICY)
                total, place = merge(OP, total, place, a.to(total.dtype), at)
    else:
        # The last axis is a thread's own: its elements are loaded together, and combined in registers.
        tile = tl.arange(0, TILES) * WIDTH
        for at in range(first, last, step):
            column = at + lane[:, None] + tile[None, :]
            source = start[:, :, None] + locate(column, shape, strides)[None, :, :]
            if EVEN_ROWS:
                a = tl.load(source)
            else:
                a = tl.load(source, mask=here[:, :, None], other=OTHER)
            a = a.to(total.dtype)
            own = tl.broadcast_to((at + tile)[None, None, :], a.shape)
            part, where = finish(OP, a, own, 2)
            total, place = merge(OP, total, place, part, where)
    return total, place


@triton.jit
def finish(OP: tl.constexpr, total, place, axis: tl.constexpr):
    """Combine results along an axis, as a tree: the result, and for argmax also which ``place`` has it.

    For others the result is returned twice.
    """
    if OP == "argmax":
        result, found = tl.reduce((total, place), axis, first_largest)
    else:
        if OP == "sum" or OP == "mean":
            result = tl.sum(total, axis=axis)
        elif OP == "prod":
            result = tl.reduce(total, axis, multiply)
        else:
            result = tl.reduce(total, axis, larger)
        found = result
    return result, found


@triton.jit
def divide(total, count):
    """Return a mean, correctly rounded from a sum and a number of its dtype, or from a sum of integers and float64."""
    if count.dtype == tl.float64:
        mean = total.to(tl.float64) / count
    else:
        mean = tl.div_rn(total, count)
    return mean


@triton.jit
def reduce(
    x,
    out,
    places,
    rows,
    length,
    splits,
    count,
    row_shape,
    row_strides,
    out_strides,
    shape,
    strides,
    OP: tl.constexpr,
    OTHER: tl.constexpr,
    PARTIAL: tl.constexpr,
    EVEN_ROWS: tl.constexpr,
    LONG: tl.constexpr,
    WIDE_ROWS: tl.constexpr,
    WIDE_COLUMNS: tl.constexpr,
    BLOCK_ROWS: tl.constexpr,
    BLOCK_COLUMNS: tl.constexpr,
    TILES: tl.constexpr,
    AHEAD: tl.constexpr,
    POLICY: tl.constexpr,
    EARLY: tl.constexpr,
):
    """Reduce tiles s, ``s + splits``, ``s + 2 * splits`` and so on of each row; s is the split.

    So all programs together go through memory from its beginning to its end.
    PARTIAL: ``out`` is ``[splits, rows]`` in the dtype of running results, ``out_strides`` is for one split, and argmax
    has ``places`` beside it. Else it is the output; ``count`` is what a mean is divided by, as a number. OTHER leaves
    a result as it is. LONG: running sums join totals on the way. AHEAD and POLICY, the cache's, are `take`'s. EARLY:
    the next launch may begin, and waits by itself for what is written here.
    """
    if EARLY:
        # Once all programs have begun; those of the next launch are then in place when the last of these ends.
        gdc_launch_dependents()
    number = program(WIDE_ROWS)
    split = tl.program_id(0) % splits
    row = (number // splits) * BLOCK_ROWS + tl.arange(0, BLOCK_ROWS)
    start = x + locate(row, row_shape, row_strides)[:, None]
    here = (row < rows)[:, None]
    lane = tl.arange(0, BLOCK_COLUMNS)
    if WIDE_COLUMNS:
        lane = lane.to(tl.int64)
        split = split.to(tl.int64)
    # As wide as the split's number; an argument of 1 is a constant, which has no width.
    step = (split * 0 + splits) * (BLOCK_COLUMNS * TILES)
    first = split * (BLOCK_COLUMNS * TILES)
    # Whole tiles need no look at the row's end, which would make loads of single elements where 16 does not divide it.
    whole = length // (BLOCK_COLUMNS * TILES) * (BLOCK_COLUMNS * TILES)
    total = beginning(x.dtype.element_ty, OP, OTHER, BLOCK_ROWS, BLOCK_COLUMNS)
    place = tl.zeros((BLOCK_ROWS, BLOCK_COLUMNS), lane.dtype) + first
    if LONG:
        for chunk in range(first, whole, step * (TURNS // TILES)):
            part = beginning(x.dtype.element_ty, OP, OTHER, BLOCK_ROWS, BLOCK_COLUMNS)
            end = tl.minimum(chunk + step * (TURNS // TILES), whole)
            part, place = take(
                start,
                chunk,
                end,
                step,
                lane,
                shape,
                strides,
                here,
                part,
                place,
                OP,
                OTHER,
                EVEN_ROWS,
                TILES,
                AHEAD,
                POLICY,
            )
            total += part
    else:
        total, place = take(
            start,
            first,
            whole,
            step,
            lane,
            shape,
            strides,
            here,
            total,
            place,
            OP,
            OTHER,
            EVEN_ROWS,
            TILES,
            AHEAD,
            POLICY,
        )
    # What is left of a row is its next split's.
    last = tl.where(whole // (BLOCK_COLUMNS * TILES) % splits == split, length, whole)
    for at in range(whole, last, BLOCK_COLUMNS):
        column = at + lane
        inside = (column < length)[None, :]
        if not EVEN_ROWS:
            inside = inside & here
        a = tl.load(start + locate(column, shape, strides)[None, :], mask=inside, other=OTHER)
        total, place = merge(OP, total, place, a.to(total.dtype), at)
    result, found = finish(OP, total, place + lane[None, :], 1)
    if PARTIAL:
        offset = split * rows + row
        tl.store(out + offset, result, mask=row < rows)
        if OP == "argmax":
            tl.store(places + offset, found.to(tl.int64), mask=row < rows)
    else:
        deliver(OP, out, result, found, count, locate(row, row_shape, out_strides), row < rows)


@triton.jit
def deliver(OP: tl.constexpr, out, result, found, count, offset, here):
    """Store results in the output's dtype."""
    if OP == "argmax":
        value = found
    elif OP == "mean":
        value = divide(result, count)
    else:
        value = result
    tl.store(out + offset, value.to(out.dtype.element_ty), mask=here)


@triton.jit
def gather(
    partial,
    places,
    out,
    rows,
    splits,
    count,
    row_shape,
    out_strides,
    OP: tl.constexpr,
    OTHER: tl.constexpr,
    WIDE: tl.constexpr,
    EARLY: tl.constexpr,
    BLOCK_ROWS: tl.constexpr,
    SPLITS: tl.constexpr,
):
    """Combine the partial results of a block of rows, ``[splits, rows]``. SPLITS is ``splits`` up to a power of two.

    EARLY: the launch before may not have ended.
    """
    if EARLY:
        gdc_wait()
    row = program(WIDE) * BLOCK_ROWS + tl.arange(0, BLOCK_ROWS)
    split = tl.arange(0, SPLITS)
    here = row < rows
    inside = here[:, None] & (split < splits)[None, :]
    offset = (split * rows)[None, :] + row[:, None]
    part = tl.load(partial + offset, mask=inside, other=OTHER)
    place = offset
    if OP == "argmax":
        # What is not there comes after all that is.
        place = tl.load(places + offset, mask=inside, other=9223372036854775807)
    result, found = finish(OP, part, place, 1)
    deliver(OP, out, result, found, count, locate(row, row_shape, out_strides), here)
