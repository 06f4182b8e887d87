"""matmul and linear of a few rows: a matrix is read once, and how fast is all that counts.

`dots` is for a matrix whose elements lie side by side along the depth, as a linear layer's weight. A program has a few
columns of the result; its threads share the depth. `columns` is for elements side by side along the result's columns: a
program has some of these, and its threads share the depth too. So one launch suffices, and nothing is left to join.

Elements travel in words of eight bytes, two of them a load, and become float32. Each sum of a thread adds its products
in ascending order, each by one fused multiply-add, and threads' sums are added in a tree. Deterministic.

At the least 128256 x 2048 weights of float16 are 525 MB: 125 us of an H200's memory, where one row takes 127 us. In
that time 14 operations a weight go by, of which conversion takes one and a half and each row one.
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
from nbx_triton.kernels.products import activate
from nbx_triton.kernels.strided import NARROW, collapse, locate, program, reach
from nbx_triton.launching import Argument, launch

SETTINGS = Space(
    parameters={"block_n": (1, 2, 4, 8, 16), "depth": (256, 512, 2048), "warps": (2, 4, 8), "stages": (1, 3, 4)},
    exclude={
        "more than registers hold": "block_n * depth > 2048 * warps",
        "less than a load of each thread": "block_n * depth < 256 * warps",
    },
)
"""Those of `dots`: columns and elements of the depth that are a turn."""
_ACROSS = 32
_DEEP = 8
_COLUMN_WARPS = 8
_COLUMN_STAGES = 3
_SLACK = 4096


@triton.jit
def singles(words, like: tl.constexpr):
    """Return the elements of words of 64 bits, of dtype ``like``, as float32: a tuple, first elements first."""
    BITS: tl.constexpr = like.primitive_bitwidth
    found = ()
    for i in tl.static_range(64 // BITS):
        bits = (words >> (32 * (i * BITS // 32))).to(tl.uint32)
        if like == tl.bfloat16:
            # The upper half of a float32.
            bits = bits & 0xFFFF0000 if i % 2 else bits << 16
        if like == tl.float16:
            number = (bits >> (16 * (i % 2))).to(tl.uint16).to(tl.float16, bitcast=True).to(tl.float32)
        else:
            number = bits.to(tl.float32, bitcast=True)
        found = found + (number,)  # noqa: RUF005 - the compiler unpacks no tuples
    return found


@triton.jit
def fetch(place, here, MASKED: tl.constexpr):
    """Return what is at ``place``, 0 where MASKED and not ``here``."""
    if MASKED:
        value = tl.load(place, mask=here, other=0)
    else:
        value = tl.load(place)
    return value


@triton.jit
def finish(total, column, here, bias, bias_stride, out, out_column, ACTIVATION: tl.constexpr):
    """Write ``activation(total + bias)``."""
    if bias is not None:
        total += tl.load(bias + column * bias_stride, mask=here, other=0).to(tl.float32)
    total = activate(total, ACTIVATION, out.dtype.element_ty)
    tl.store(out + column * out_column, total.to(out.dtype.element_ty), mask=here)


@triton.jit
def dots(
    x,
    w,
    bias,
    out,
    columns,
    words,
    row_shape,
    x_rows,
    out_rows,
    w_pitch,
    bias_stride,
    out_column,
    ACTIVATION: tl.constexpr,
    MASKED: tl.constexpr,
    UNEVEN: tl.constexpr,
    WIDE: tl.constexpr,
    STAGES: tl.constexpr,
    ROWS: tl.constexpr,
    BLOCK_N: tl.constexpr,
    WORDS: tl.constexpr,
):
    """Write BLOCK_N columns of ROWS rows. ``words`` are those of the depth, WORDS a turn; pitches are in elements."""
    PER_WORD: tl.constexpr = 64 // w.dtype.element_ty.primitive_bitwidth
    number = program(WIDE)
    column = number * BLOCK_N + tl.arange(0, BLOCK_N)
    here = column < columns
    word = tl.arange(0, WORDS)
    if UNEVEN:
        # What is loaded for columns that there are not is not stored.
        from_w = w + tl.minimum(column, columns - 1) * w_pitch
    else:
        from_w = w + column * w_pitch
    own = from_w.to(tl.pointer_type(tl.uint64), bitcast=True)[:, None] + word[None, :]
    sums = ()
    for _ in tl.static_range(ROWS):
        sums = sums + (tl.zeros((BLOCK_N, WORDS), tl.float32),)  # noqa: RUF005 - the compiler unpacks no tuples
    for first in tl.range(0, words, WORDS, num_stages=STAGES):
        known = first + word < words
        weights = singles(fetch(own + first, known[None, :], MASKED), w.dtype.element_ty)
        more = ()
        for m in tl.static_range(ROWS):
            from_x = (x + locate(m, row_shape, x_rows)).to(tl.pointer_type(tl.uint64), bitcast=True)
            factors = singles(fetch(from_x + first + word, known, MASKED), x.dtype.element_ty)
            total = sums[m]
            for i in tl.static_range(PER_WORD):
                total = tl.fma(tl.broadcast_to(factors[i][None, :], total.shape), weights[i], total)
            more = more + (total,)  # noqa: RUF005
        sums = more
    for m in tl.static_range(ROWS):
        total = tl.sum(sums[m], axis=1)
        finish(total, column, here, bias, bias_stride, out + locate(m, row_shape, out_rows), out_column, ACTIVATION)


@triton.jit
def columns(
    x,
    w,
    bias,
    out,
    columns,
    depth,
    row_shape,
    x_rows,
    out_rows,
    x_depth,
    w_pitch,
    bias_stride,
    out_column,
    ACTIVATION: tl.constexpr,
    PACKED: tl.constexpr,
    MASKED: tl.constexpr,
    UNEVEN: tl.constexpr,
    WIDE: tl.constexpr,
    STAGES: tl.constexpr,
    ROWS: tl.constexpr,
    PARTS: tl.constexpr,
    DEEP: tl.constexpr,
    WORDS: tl.constexpr,
):
    """Write the columns in WORDS words of ROWS rows. A turn takes DEEP rows of ``w`` for each of PARTS.

    PACKED: ``x`` lies in words along the depth too.
    """
    PER_WORD: tl.constexpr = 64 // w.dtype.element_ty.primitive_bitwidth
    number = program(WIDE)
    word = tl.arange(0, WORDS)
    part = tl.arange(0, PARTS)
    column = (number * WORDS + word) * PER_WORD
    here = column < columns
    sums = ()
    for _ in tl.static_range(ROWS * PER_WORD):
        sums = sums + (tl.zeros((PARTS, WORDS), tl.float32),)  # noqa: RUF005 - the compiler unpacks no tuples
    for turn in tl.range((depth + PARTS * DEEP - 1) // (PARTS * DEEP), num_stages=STAGES):
        first = number * 0 + (turn * PARTS + part) * DEEP
        loaded = ()
        for r in tl.static_range(DEEP):
            known = first + r < depth
            from_w = (w + (first + r) * w_pitch).to(tl.pointer_type(tl.uint64), bitcast=True)
            place = from_w[:, None] + (number * WORDS + word)[None, :]
            loaded = loaded + (fetch(place, known[:, None] & here[None, :], MASKED or UNEVEN),)  # noqa: RUF005
        factors = ()
        for m in tl.static_range(ROWS):
            from_x = x + locate(m, row_shape, x_rows)
            for r in tl.static_range(0, DEEP, PER_WORD if PACKED else 1):
                known = first + r < depth
                if PACKED:
                    place = (from_x + first + r).to(tl.pointer_type(tl.uint64), bitcast=True)
                    factors = factors + singles(fetch(place, known, MASKED), x.dtype.element_ty)
                else:
                    place = from_x + (first + r) * x_depth
                    factors = factors + (fetch(place, known, MASKED).to(tl.float32),)  # noqa: RUF005
        for r in tl.static_range(DEEP):
            weights = singles(loaded[r], w.dtype.element_ty)
            more = ()
            for m in tl.static_range(ROWS):
                for i in tl.static_range(PER_WORD):
                    total = sums[m * PER_WORD + i]
                    factor = tl.broadcast_to(factors[m * DEEP + r][:, None], total.shape)
                    more = more + (tl.fma(factor, weights[i], total),)  # noqa: RUF005
            sums = more
    for m in tl.static_range(ROWS):
        for i in tl.static_range(PER_WORD):
            total = tl.sum(sums[m * PER_WORD + i], axis=0)
            to = out + locate(m, row_shape, out_rows)
            finish(total, column + i, here, bias, bias_stride, to, out_column, ACTIVATION)


class _Operands(NamedTuple):
    """A product as the kernels see it."""

    x: str
    w: str
    bias: TensorSpec | None
    activation: str
    rows: tuple[int, ...]
    """Axes that number the rows."""
    x_rows: tuple[int, ...]
    out_rows: tuple[int, ...]
    x_depth: int
    w_depth: int
    w_column: int
    out_column: int
    columns: int
    depth: int


def _operands(ctx: BindContext) -> _Operands:
    (out,) = ctx.signature.outputs
    if ctx.signature.op.name == "linear":
        x, w, bias = ctx.signature.tensors
        return _Operands(
            x="x",
            w="w",
            bias=bias,
            activation=ctx.signature.attributes["activation"] or "none",
            rows=x.shape[:-1],
            x_rows=x.strides[:-1],
            out_rows=out.strides[:-1],
            x_depth=x.strides[-1],
            w_depth=w.strides[1],
            w_column=w.strides[0],
            out_column=out.strides[-1],
            columns=w.shape[0],
            depth=w.shape[1],
        )
    x1, x2 = ctx.signature.tensors
    if x2.rank == 1:
        # A matrix times a vector: the result's only axis is the matrix's rows.
        return _Operands(
            x="x2",
            w="x1",
            bias=None,
            activation="none",
            rows=(),
            x_rows=(),
            out_rows=(),
            x_depth=x2.strides[0],
            w_depth=x1.strides[1],
            w_column=x1.strides[0],
            out_column=out.strides[0],
            columns=x1.shape[0],
            depth=x1.shape[1],
        )
    return _Operands(
        x="x1",
        w="x2",
        bias=None,
        activation="none",
        rows=x1.shape[:-1],
        x_rows=x1.strides[:-1],
        out_rows=out.strides[:-1],
        x_depth=x1.strides[-1],
        w_depth=x2.strides[0],
        w_column=x2.strides[1],
        out_column=out.strides[-1],
        columns=x2.shape[1],
        depth=x2.shape[0],
    )


def _arguments(o: _Operands) -> dict[str, Argument]:
    row_shape, x_rows, out_rows = collapse(o.rows, o.x_rows, o.out_rows)
    return {
        "x": o.x,
        "w": o.w,
        "bias": None if o.bias is None else "bias",
        "out": "out",
        "columns": o.columns,
        "row_shape": row_shape,
        "x_rows": x_rows,
        "out_rows": out_rows,
        "bias_stride": 0 if o.bias is None else o.bias.strides[0],
        "out_column": o.out_column,
    }


def _wide(o: _Operands) -> bool:
    deep, across = o.depth + _SLACK, o.columns + _SLACK
    return (
        max(
            reach((deep, across), (o.w_depth, o.w_column)),
            reach((*o.rows, deep), (*o.x_rows, o.x_depth)),
            reach((*o.rows, across), (*o.out_rows, o.out_column)),
        )
        >= NARROW
    )


def _rows(o: _Operands) -> int:
    rows = 1
    for extent in o.rows:
        rows *= extent
    return rows


def _in_words(ctx: BindContext, o: _Operands, per_word: int) -> bool:
    """Whether rows of x lie in whole words."""
    aligned = ctx.signature.tensor(o.x).align % 8 == 0 and not any(stride % per_word for stride in o.x_rows)
    return aligned and o.x_depth == 1 and o.depth % per_word == 0


def bind(ctx: BindContext) -> Sequence[Launch]:
    """Bind ``matmul`` or ``linear`` of a few rows."""
    (out,) = ctx.signature.outputs
    if out.size == 0:
        return ()
    o = _operands(ctx)
    return (_bind_dots(ctx, o) if o.w_depth == 1 and o.w_column % 8 == 0 else _bind_columns(ctx, o),)


def _bind_dots(ctx: BindContext, o: _Operands) -> Launch:
    per_word = 64 // ctx.signature.outputs[0].dtype.bits
    settings = ctx.settings
    block_n, words = settings["block_n"], o.depth // per_word
    turn = min(settings["depth"] // per_word, triton.next_power_of_2(words))
    return launch(
        ctx,
        dots,
        programs=triton.cdiv(o.columns, block_n),
        arguments={**_arguments(o), "words": words, "w_pitch": o.w_column},
        constants={
            "ACTIVATION": o.activation,
            "MASKED": words % turn != 0,
            "UNEVEN": o.columns % block_n != 0,
            "WIDE": _wide(o),
            "STAGES": settings["stages"],
            "ROWS": _rows(o),
            "BLOCK_N": block_n,
            "WORDS": turn,
        },
        # What is fused is written so.
        options=Options(num_warps=settings["warps"], num_stages=1, enable_fp_fusion=False),
    )


def _bind_columns(ctx: BindContext, o: _Operands) -> Launch:
    per_word = 64 // ctx.signature.outputs[0].dtype.bits
    words = _ACROSS // per_word
    parts = _COLUMN_WARPS * THREADS_PER_WARP * 2 // words
    deep = min(_DEEP, int(triton.next_power_of_2(triton.cdiv(o.depth, parts))))
    return launch(
        ctx,
        columns,
        programs=triton.cdiv(o.columns, _ACROSS),
        arguments={**_arguments(o), "depth": o.depth, "x_depth": o.x_depth, "w_pitch": o.w_depth},
        constants={
            "ACTIVATION": o.activation,
            "PACKED": deep % per_word == 0 and _in_words(ctx, o, per_word),
            "MASKED": o.depth % (parts * deep) != 0,
            "UNEVEN": o.columns % _ACROSS != 0,
            "WIDE": _wide(o),
            "STAGES": _COLUMN_STAGES,
            "ROWS": _rows(o),
            "PARTS": parts,
            "DEEP": deep,
            "WORDS": words,
        },
        options=Options(num_warps=_COLUMN_WARPS, num_stages=1, enable_fp_fusion=False),
    )
