"""depthwise_conv2d: every channel convolved with its own filter. Products, sums and bias in float32, rounded once.

`slide` is for windows that move by one: a lane (a thread) computes ``ROWS`` by ``COLUMNS`` neighbouring outputs of one
channel from the ``ROWS + KH - 1`` by ``COLUMNS + KW - 1`` inputs under them, which it loads once, whole vectors where
they can be, and keeps in registers (with larger filters once a row of taps). Lanes are numbered along the width, then
down the image, then over channels and images: neighbouring lanes read neighbouring memory, and images of any size leave
none idle. The rows that two lanes share come from the cache, so each input comes from memory about once: for float32
[2, 11200, 24, 40] and its result that is 172 MB, 40 us at the 4.25 TB/s of an H200. A lane in float32 with 3 by 3 taps,
4 rows and 4 columns makes 18 loads and 144 multiply-adds for its 16 outputs.

An output adds its taps in one order, row by row, starting from the bias, each by one fused multiply-add: its bits
depend on nothing else. float64 is added in float64. Deterministic.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import triton
import triton.language as tl

from nbx_registry.launch import BindContext, Launch
from nbx_registry.space import Space
from nbx_registry.spec import TensorSpec
from nbx_triton.compiler import THREADS_PER_WARP, Options
from nbx_triton.kernels.lanes import stack, unstack
from nbx_triton.kernels.strided import NARROW, program, reach
from nbx_triton.kernels.windows import operand_arguments
from nbx_triton.launching import launch

VECTOR_BYTES = 16
SLACK = 1024
"""More than a lane's rows and vectors reach beyond the padding."""
HELD = 80
"""Inputs that a lane may hold: more of them leave registers for too few threads to hide what memory takes."""
UNROLLED = 12
"""Taps of a filter that is unrolled: the time to compile grows with the square of what is."""

SETTINGS = Space(
    parameters={"lane_rows": (1, 2, 4, 8), "warps": (4, 8)},
    exclude={
        "more rows than outputs": "lane_rows > 1 and lane_rows >= 2 * OH",
        "more inputs than registers": (
            f"lane_rows > 1 and lane_rows * ({8 * VECTOR_BYTES} // bits(x.dtype) + KW - 1) > {HELD}"
        ),
    },
)


@triton.jit
def _vector(
    row, inside, BEGIN: tl.constexpr, FIRST: tl.constexpr, END: tl.constexpr, LANES: tl.constexpr, BITS: tl.constexpr
):
    """Return the inputs BEGIN to END - 1 of a vector of them that begins with input FIRST, to which ``row`` points.

    Several are read as a vector, one by itself.
    """
    found = ()
    if END - BEGIN > 1:
        place = row[:, None] + tl.arange(0, 2**BITS)[None, :]
        parts = unstack(tl.load(place, mask=inside[:, None], other=0), LANES, BITS)
        for i in tl.static_range(BEGIN - FIRST, END - FIRST):
            found = found + (parts[i],)  # noqa: RUF005 - the compiler unpacks no tuples
    elif END - BEGIN == 1:
        found = (tl.load(row + (BEGIN - FIRST), mask=inside, other=0),)
    return found


@triton.jit
def _inputs(
    plane,
    top,
    column,
    x_row,
    x_column,
    live,
    height,
    width,
    WIDE: tl.constexpr,
    UNIT: tl.constexpr,
    ROWS: tl.constexpr,
    KW: tl.constexpr,
    PW: tl.constexpr,
    LANES: tl.constexpr,
    BITS: tl.constexpr,
):
    """Return the inputs of ``ROWS`` rows from ``top`` on, row by row from the left, in the dtype of their products.

    ``plane`` points to the lane's ``column`` of row 0; the leftmost input is PW to the left of it. UNIT above 1 is the
    number of columns, 2^BITS: inputs lie side by side, and rows begin at and are multiples of it, so that a vector is
    all inside or all outside.
    """
    columns: tl.constexpr = 2**BITS
    count: tl.constexpr = columns + KW - 1
    # Vectors before the lane's own, and after.
    before: tl.constexpr = (PW + columns - 1) // columns
    after: tl.constexpr = (count - PW - 1) // columns
    raw = ()
    for r in tl.static_range(ROWS):
        row = top + r
        there = live & (row >= 0) & (row < height)
        start = plane + row * x_row * UNIT
        if UNIT > 1:
            for q in tl.static_range(-before, after + 1):
                at = column + q * columns
                raw = raw + _vector(
                    start + q * columns,
                    there & (at >= 0) & (at < width),
                    q * columns + PW if q * columns + PW > 0 else 0,
                    q * columns + PW,
                    (q + 1) * columns + PW if (q + 1) * columns + PW < count else count,
                    LANES,
                    BITS,
                )
        else:
            for i in tl.static_range(-PW, count - PW):
                at = column + i
                inside = there & (at >= 0) & (at < width)
                raw = raw + (tl.load(start + i * x_column, mask=inside, other=0),)  # noqa: RUF005 - no unpacking
    found = ()
    for i in tl.static_range(ROWS * count):
        found = found + (raw[i].to(WIDE),)  # noqa: RUF005
    return found


@triton.jit
def _taps(filters, strides, live, KH: tl.constexpr, KW: tl.constexpr, WIDE: tl.constexpr):
    """Return a lane's taps, row by row, in the dtype in which they are multiplied."""
    found = ()
    for i in tl.static_range(KH):
        for j in tl.static_range(KW):
            tap = tl.load(filters + i * strides[1] + j * strides[2], mask=live, other=0)
            found = found + (tap.to(WIDE),)  # noqa: RUF005 - the compiler unpacks no tuples
    return found


@triton.jit
def _add(totals, held, taps, KH: tl.constexpr, KW: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    """Return the totals of ``ROWS`` by ``COLUMNS`` outputs, each with the products of ``KH`` by ``KW`` taps added."""
    found = ()
    for r in tl.static_range(ROWS):
        for c in tl.static_range(COLUMNS):
            total = totals[r * COLUMNS + c]
            for i in tl.static_range(KH):
                for j in tl.static_range(KW):
                    total = tl.fma(held[(r + i) * (COLUMNS + KW - 1) + c + j], taps[i * KW + j], total)
            found = found + (total,)  # noqa: RUF005 - the compiler unpacks no tuples
    return found


@triton.jit
def begin(bias, channel, bias_stride, live, WIDE: tl.constexpr, LANES: tl.constexpr):
    """Return what sums begin with: the channel's bias, or 0."""
    if bias is not None:
        first = tl.load(bias + channel * bias_stride, mask=live, other=0).to(WIDE)
    else:
        first = tl.zeros((LANES,), WIDE)
    return first


@triton.jit
def slide(
    x,
    w,
    bias,
    out,
    lanes,
    across,
    down,
    channels,
    height,
    width,
    out_height,
    out_width,
    pad_rows,
    x_strides,
    x_column,
    w_strides,
    bias_stride,
    out_strides,
    out_column,
    KH: tl.constexpr,
    KW: tl.constexpr,
    TURNS: tl.constexpr,
    PW: tl.constexpr,
    ROWS: tl.constexpr,
    BITS: tl.constexpr,
    UNIT: tl.constexpr,
    OUT_UNIT: tl.constexpr,
    WHOLE: tl.constexpr,
    WIDE: tl.constexpr,
    LANES: tl.constexpr,
):
    """Write ``ROWS`` by 2^BITS outputs a lane; there are ``across`` by ``down`` lanes an image and channel.

    Strides of x and out, of image, channel and row, are in units of UNIT and OUT_UNIT elements, which tells the
    compiler what divides them. TURNS: once for all KH rows of taps, or once for each. WHOLE: no row of the output ends
    within a lane.
    """
    result: tl.constexpr = out.dtype.element_ty
    wide: tl.constexpr = tl.float64 if result == tl.float64 else tl.float32
    columns: tl.constexpr = 2**BITS
    each: tl.constexpr = KH if TURNS == 1 else 1
    lane = program(WIDE) * LANES + tl.arange(0, LANES)
    live = lane < lanes
    column = lane % across * columns
    top = lane // across % down * ROWS
    channel = lane // across // down % channels
    image = lane // across // down // channels

    filters = w + channel * w_strides[0]
    plane = x + (image * x_strides[0] + channel * x_strides[1]) * UNIT + column * x_column
    first = begin(bias, channel, bias_stride, live, wide, LANES)
    totals = ()
    for _ in tl.static_range(ROWS * columns):
        totals = totals + (first,)  # noqa: RUF005 - the compiler unpacks no tuples
    for turn in range(TURNS):
        taps = _taps(filters + turn * w_strides[1], w_strides, live, each, KW, wide)
        above = top - pad_rows + turn
        held = _inputs(
            plane,
            above,
            column,
            x_strides[2],
            x_column,
            live,
            height,
            width,
            wide,
            UNIT,
            ROWS + each - 1,
            KW,
            PW,
            LANES,
            BITS,
        )
        totals = _add(totals, held, taps, each, KW, ROWS, columns)

    for r in tl.static_range(ROWS):
        rounded = ()
        for c in tl.static_range(columns):
            rounded = rounded + (totals[r * columns + c].to(result),)  # noqa: RUF005
        place = (image * out_strides[0] + channel * out_strides[1] + (top + r) * out_strides[2]) * OUT_UNIT
        at = column[:, None] + tl.arange(0, columns)[None, :]
        inside = (live & (top + r < out_height))[:, None]
        if not WHOLE:
            inside = inside & (at < out_width)
        tl.store(out + place[:, None] + at * out_column, stack(rounded, LANES, BITS), mask=inside)


class _Tile(NamedTuple):
    rows: int
    columns: int
    unit: int
    """Inputs that are read as one vector: all columns, or 1."""
    out_unit: int


def _unit(tensor: TensorSpec, limit: int) -> int:
    """Return how many elements along the width, a power of two, may be accessed as one vector."""
    unit = limit
    while unit > 1 and (
        tensor.strides[3] != 1
        or tensor.align % (unit * tensor.dtype.itemsize)
        or any(stride % unit for stride, extent in zip(tensor.strides[:3], tensor.shape[:3], strict=True) if extent > 1)
    ):
        unit //= 2
    return unit


def _tile(ctx: BindContext) -> _Tile:
    x, w, _ = ctx.signature.tensors
    (out,) = ctx.signature.outputs
    _, _, out_height, out_width = out.shape
    limit = VECTOR_BYTES // x.dtype.itemsize
    unit = _unit(x, limit)
    while unit > 1 and x.shape[3] % unit:
        unit //= 2
    # Read one by one, inputs under neighbouring outputs are still read once.
    columns = unit if unit > 1 else min(4, triton.next_power_of_2(out_width))
    rows = min(ctx.settings["lane_rows"], triton.next_power_of_2(out_height))
    while rows > 1 and rows * (columns + w.shape[3] - 1) > HELD:
        rows //= 2
    return _Tile(rows, columns, unit, _unit(out, columns))


def bind(ctx: BindContext) -> Sequence[Launch]:
    """Bind ``depthwise_conv2d`` for windows that move by one, their taps side by side."""
    x, w, _ = ctx.signature.tensors
    (out,) = ctx.signature.outputs
    if out.size == 0:
        return ()
    images, channels, out_height, out_width = out.shape
    tile = _tile(ctx)
    warps = ctx.settings["warps"]
    block = warps * THREADS_PER_WARP
    across, down = triton.cdiv(out_width, tile.columns), triton.cdiv(out_height, tile.rows)
    lanes = images * channels * down * across
    padding = ctx.signature.attributes["padding"]
    taps_down, taps_across = w.shape[2:]
    step = launch(
        ctx,
        slide,
        programs=triton.cdiv(lanes, block),
        arguments={
            **operand_arguments(ctx),
            "lanes": lanes,
            "across": across,
            "down": down,
            "channels": channels,
            "pad_rows": padding[0],
            "x_strides": _in_units(x, tile.unit),
            "x_column": x.strides[3],
            "w_strides": (w.strides[0], w.strides[2], w.strides[3]),
            "out_strides": _in_units(out, tile.out_unit),
            "out_column": out.strides[3],
        },
        constants={
            "KH": taps_down,
            "KW": taps_across,
            "TURNS": 1 if taps_down * taps_across <= UNROLLED else taps_down,
            "PW": padding[1],
            "ROWS": tile.rows,
            "BITS": tile.columns.bit_length() - 1,
            "UNIT": tile.unit,
            "OUT_UNIT": tile.out_unit,
            "WHOLE": out_width % tile.columns == 0,
            "WIDE": lanes + block >= NARROW or far(ctx),
            "LANES": block,
        },
        options=Options(num_warps=warps, num_stages=1, enable_fp_fusion=False),
    )
    return (step,)


def _in_units(tensor: TensorSpec, unit: int) -> tuple[int, ...]:
    """Return the strides of image, channel and row in units, those of axes without neighbours as 0."""
    pairs = zip(tensor.strides[:3], tensor.shape[:3], strict=True)
    return tuple(stride // unit if extent > 1 else 0 for stride, extent in pairs)


def far(ctx: BindContext) -> bool:
    """Whether an offset or a place counted from the padding on passes 32 bits."""
    x, w, bias = ctx.signature.tensors
    (out,) = ctx.signature.outputs
    padding = ctx.signature.attributes["padding"]
    tensors = [tensor for tensor in (x, w, bias, out) if tensor is not None]
    places = max(x.shape[2] + 2 * padding[0], x.shape[3] + 2 * padding[1])
    return places + SLACK >= NARROW or any(reach(tensor.shape, tensor.strides) >= NARROW for tensor in tensors)
