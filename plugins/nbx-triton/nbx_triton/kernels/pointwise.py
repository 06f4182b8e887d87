"""Pointwise kernels: one value an element from up to three operands at the same place, numbers among them.

Two ways through memory serve every op. `dense`: operands without gaps and in the same order, so that all axes are one;
a program computes consecutive elements, each thread several vectors of 16 bytes. Their loads are issued together where
little is computed; where much is, the assembler spreads them out, in so few registers that all warps fit and keep the
memory busy. `strided`: the rest; a program computes a tile of the output's densest axis and of the others, counted out
a row at a time, not an element at a time. Values are computed by `evaluate`, in float32 for the floating dtypes below
it and rounded once; integers wrap around. The memory is the limit where an element of 2 bytes takes under about 28
instructions (H200: 132 x 128 lanes at 1.7 GHz for 1.06e12 elements/s read and written): exp takes 22, sigmoid, silu and
gelu 24, log and erf 31, tanh 34; of wider elements all stay below it. Deterministic.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import triton
import triton.language as tl

from nbx_registry.contracts.creation import progression as bounds_of
from nbx_registry.dtypes import DType
from nbx_registry.launch import BindContext, Launch, Scalar, ScalarOf
from nbx_registry.rounding import integers_as_float64, round_to_float
from nbx_registry.space import Space
from nbx_registry.spec import TensorSpec
from nbx_triton.compiler import THREADS_PER_WARP, Options
from nbx_triton.kernels.astype import to_odd_float32
from nbx_triton.kernels.elementary import (
    error_function,
    hyperbolic_tangent,
    hyperbolic_tangent_float64,
    logarithm,
    power_of_e,
    short_decay,
    short_gaussian_error_unit,
)
from nbx_triton.kernels.strided import NARROW, broadcast_strides, collapse, locate, program, reach
from nbx_triton.launching import Argument, Pointer, launch

SETTINGS = Space(parameters={"vectors": (2, 4, 8), "warps": (4, 8)})
"""Of `dense`: vectors of 16 bytes a thread has of the widest operand, and warps of a program."""

VECTOR_BYTES = 16
TILE = 2048
"""Elements of a program of `strided`."""
SQUARE = 64
"""Most columns of a tile whose rows an operand has closer together than its columns."""


@triton.jit
def wide(a, result: tl.constexpr):
    """Return ``a`` in what an element of ``result`` is computed in."""
    if result.is_floating() and result.primitive_bitwidth < 64:
        b = a.to(tl.float32)
    else:
        b = a.to(result)
    return b


@triton.jit
def larger(a, b):
    """Return the larger of two; NaN where either is, also where the GPU's own maximum has no such form (sm_70)."""
    return tl.where((a > b) | (a != a), a, b)


@triton.jit
def smaller(a, b):
    """Return the smaller of two; NaN where either is."""
    return tl.where((a < b) | (a != a), a, b)


@triton.jit
def exponential_in(a, result: tl.constexpr):
    """Return e^a, float64 or float32."""
    if result == tl.float64:
        b = tl.exp(a)
    else:
        b = power_of_e(a)
    return b


@triton.jit
def decay_in(a, result: tl.constexpr):
    """Return e^-a as results of that dtype need it."""
    if result.primitive_bitwidth == 16:
        b = short_decay(a, result == tl.float16)
    else:
        b = exponential_in(-a, result)
    return b


@triton.jit
def evaluate(OP: tl.constexpr, x1, x2, x3, result: tl.constexpr):
    """Return OP of what was fetched, in any dtype that converts to ``result``. Absent operands are None."""
    if OP == "full":
        y = x1
    elif OP == "and":
        y = x1 & x2
    elif OP == "xor":
        y = x1 ^ x2
    elif OP == "where":
        y = tl.where(x1 != 0, x2.to(result), x3.to(result))
    else:
        a = wide(x1, result)
        if OP == "subtract":
            y = a - wide(x2, result)
        elif OP == "maximum":
            y = larger(a, wide(x2, result))
        elif OP == "minimum":
            y = smaller(a, wide(x2, result))
        elif OP == "clip":
            y = a
            if x2 is not None:
                y = larger(y, wide(x2, result))
            if x3 is not None:
                y = smaller(y, wide(x3, result))
        elif OP == "relu":
            y = a
            if not result.is_int_unsigned():
                y = tl.where(a < 0, 0, a)
        elif OP == "abs":
            y = a
            if not result.is_int_unsigned():
                y = tl.where(a < 0, -a, a)
        elif OP == "negative":
            y = -a
        elif OP == "reciprocal":
            # In float32 PTX's div.full: within 2 ulp over the full range.
            y = 1.0 / a
        elif OP == "rsqrt":
            if result == tl.float64:
                y = 1.0 / tl.sqrt(a)
            else:
                y = tl.rsqrt(a)
        elif OP == "exp":
            y = exponential_in(a, result)
        elif OP == "sigmoid":
            y = 1.0 / (1.0 + decay_in(a, result))
        elif OP == "silu":
            y = a / (1.0 + decay_in(a, result))
        elif OP == "gelu":
            y = short_gaussian_error_unit(a)
        elif OP == "gelu_tanh":
            # The tanh of half of it is 2 / (1 + e^-that) - 1.
            y = a / (1.0 + decay_in(a * (a * a * 0.07135481627260025 + 1.5957691216057308), result))
        elif OP == "log":
            if result == tl.float64:
                y = tl.log(a)
            else:
                y = logarithm(a)
        elif OP == "tanh":
            if result == tl.float64:
                y = hyperbolic_tangent_float64(a)
            else:
                y = hyperbolic_tangent(a)
        else:
            tl.static_assert(OP == "erf")
            if result == tl.float64:
                y = tl.erf(a)
            else:
                y = error_function(a)
    return y


@triton.jit
def number(x, result: tl.constexpr):
    """Return a number given in an operand's place as an element of ``result``, rounded once."""
    if x.dtype == tl.float64 and result.primitive_bitwidth < 32:
        y = to_odd_float32(x).to(result)
    else:
        y = x.to(result)
    return y


@triton.jit
def fetch_dense(x, first, lane, inside, result: tl.constexpr, VECTOR: tl.constexpr):
    """Return elements ``first + lane`` of an operand, the number in its place, or None."""
    if x is None:
        y = None
    elif x.dtype.is_ptr():
        # As many elements of each operand to a vector as of the widest: no values pass from thread to thread.
        width: tl.constexpr = x.dtype.element_ty.primitive_bitwidth
        y = tl.load(tl.multiple_of(x + first + lane, width * VECTOR // 8), mask=inside)
    else:
        y = number(x, result)
    return y


@triton.jit
def block(x1, x2, x3, out, first, lane, inside, OP: tl.constexpr, VECTOR: tl.constexpr):
    """Compute elements ``first + lane``, those ``inside`` or all."""
    result: tl.constexpr = out.dtype.element_ty
    a = fetch_dense(x1, first, lane, inside, result, VECTOR)
    b = fetch_dense(x2, first, lane, inside, result, VECTOR)
    c = fetch_dense(x3, first, lane, inside, result, VECTOR)
    tl.store(out + first + lane, evaluate(OP, a, b, c, result).to(result), mask=inside)


@triton.jit
def dense(
    x1,
    x2,
    x3,
    out,
    count,
    OP: tl.constexpr,
    EVEN: tl.constexpr,
    WIDE: tl.constexpr,
    VECTOR: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Compute ``BLOCK`` consecutive elements of ``out``, ``VECTOR`` a load; operands are as dense, numbers or None.

    EVEN: ``BLOCK`` divides their count. Else the last program masks off all from the last multiple of 16 on, a bound
    that leaves vectors whole, and does what lies beyond by itself.
    """
    first = program(WIDE) * BLOCK
    lane = tl.arange(0, BLOCK)
    if EVEN:
        block(x1, x2, x3, out, first, lane, None, OP, VECTOR)
    else:
        left = count - first
        whole = left // 16 * 16
        block(x1, x2, x3, out, first, lane, lane < whole, OP, VECTOR)
        if left < BLOCK:
            rest = tl.arange(0, 16)
            block(x1, x2, x3, out, first + whole, rest, rest < left - whole, OP, VECTOR)


@triton.jit
def fetch_strided(x, row, column, shape, strides, step, inside, result: tl.constexpr):
    """Return elements (row, column) of an operand, the number in its place, or None."""
    if x is None:
        y = None
    elif x.dtype.is_ptr():
        y = tl.load(x + locate(row, shape, strides)[:, None] + (column * step)[None, :], mask=inside)
    else:
        y = number(x, result)
    return y


@triton.jit
def strided(
    x1,
    x2,
    x3,
    out,
    rows,
    columns,
    shape,
    x1_strides,
    x2_strides,
    x3_strides,
    out_strides,
    x1_step,
    x2_step,
    x3_step,
    out_step,
    OP: tl.constexpr,
    WIDE: tl.constexpr,
    BLOCK_ROWS: tl.constexpr,
    BLOCK_COLUMNS: tl.constexpr,
):
    """Compute a tile of ``out``. Columns are one axis, rows (``rows`` of them, of ``shape``) count out the others."""
    result: tl.constexpr = out.dtype.element_ty
    tiles = (columns + BLOCK_COLUMNS - 1) // BLOCK_COLUMNS
    place = program(WIDE)
    row = (place // tiles) * BLOCK_ROWS + tl.arange(0, BLOCK_ROWS)
    column = (place % tiles) * BLOCK_COLUMNS + tl.arange(0, BLOCK_COLUMNS)
    inside = (row < rows)[:, None] & (column < columns)[None, :]
    a = fetch_strided(x1, row, column, shape, x1_strides, x1_step, inside, result)
    b = fetch_strided(x2, row, column, shape, x2_strides, x2_step, inside, result)
    c = fetch_strided(x3, row, column, shape, x3_strides, x3_step, inside, result)
    y = evaluate(OP, a, b, c, result).to(result)
    tl.store(out + locate(row, shape, out_strides)[:, None] + (column * out_step)[None, :], y, mask=inside)


@dataclass(frozen=True, slots=True)
class Operand:
    """What stands in one of the three places."""

    argument: Argument = None
    spec: TensorSpec | None = None
    """None for a number and for nothing."""


@dataclass(frozen=True, slots=True)
class Request:
    """An op as `evaluate` has it."""

    op: str
    operands: tuple[Operand, ...]
    out: Pointer
    spec: TensorSpec


def request(ctx: BindContext) -> Request:
    """Return what a signature asks of `evaluate`."""
    op = ctx.signature.op.name
    (out,) = ctx.signature.outputs
    names = [param.name for param in ctx.signature.op.tensors]
    specs = dict(zip(names, ctx.signature.tensors, strict=True))
    # Signs are bits of a float and of a complex number's parts; what is moved is bits, whatever they mean.
    if op in ("abs", "negative") and not out.dtype.integral:
        dtype, name = _bits(out.dtype), "and" if op == "abs" else "xor"
        operands = (Operand(Pointer("x", dtype, specs["x"].align), specs["x"]), Operand(_sign(op, out.dtype)))
        return Request(name, operands, Pointer("out", dtype, out.align), out)
    if ctx.signature.attributes.get("approximate") == "tanh":
        op = "gelu_tanh"
    moved = op == "where" and all(specs[name].dtype is out.dtype and not specs[name].weak for name in ("x1", "x2"))
    operands = tuple(_operand(name, spec, out, moved) for name, spec in specs.items())
    dtype = _bits(out.dtype) if moved or out.dtype.kind == "bool" else out.dtype
    return Request(op, operands, Pointer("out", dtype, out.align), out)


def _operand(name: str, spec: TensorSpec | None, out: TensorSpec, moved: bool) -> Operand:
    if spec is None:
        return Operand()
    if spec.weak:
        return Operand(ScalarOf(name, _passed(out.dtype)))
    return Operand(
        Pointer(name, _bits(spec.dtype) if moved or spec.dtype.kind == "bool" else spec.dtype, spec.align), spec
    )


def _passed(dtype: DType) -> str:
    """Return the dtype in which a number is passed that becomes one of ``dtype``, so that it is rounded once."""
    if dtype.floating:
        return "float32" if dtype.bits == 32 else "float64"
    return "uint64" if dtype.kind == "uint" else "int64"


def _bits(dtype: DType) -> str:
    return f"uint{dtype.bits}"


def _sign(op: str, dtype: DType) -> Scalar:
    """Return the bits to flip for ``negative``, or to keep for ``abs``."""
    sign = 0x8000_0000_8000_0000 if dtype.kind == "complex" else 1 << (dtype.bits - 1)
    return Scalar(sign if op == "negative" else (1 << dtype.bits) - 1 - sign, f"uint{max(dtype.bits, 32)}")


def bind_dense(ctx: BindContext) -> Sequence[Launch]:
    """Bind an op of `evaluate` over operands that are as dense as the output."""
    return _dense(ctx, request(ctx))


def bind_strided(ctx: BindContext) -> Sequence[Launch]:
    """Bind an op of `evaluate` over operands of any strides."""
    return _strided(ctx, request(ctx))


def bind_full_dense(ctx: BindContext) -> Sequence[Launch]:
    """Bind ``full``, whose value is rounded here, as bits."""
    return _dense(ctx, _full(ctx))


def bind_full_strided(ctx: BindContext) -> Sequence[Launch]:
    """Bind ``full`` into a view."""
    return _strided(ctx, _full(ctx))


def _full(ctx: BindContext) -> Request:
    (out,) = ctx.signature.outputs
    value = ctx.signature.attributes["fill_value"]
    if out.dtype.floating:
        value = round_to_float(integers_as_float64(np.asarray(value)), out.dtype)
    with np.errstate(all="ignore"):
        bits = int.from_bytes(np.array(value).astype(out.dtype.numpy).tobytes(), "little")
    passed = Operand(Scalar(bits, f"uint{max(out.dtype.bits, 32)}"))
    return Request("full", (passed,), Pointer("out", _bits(out.dtype), out.align), out)


def _dense(ctx: BindContext, asked: Request) -> Sequence[Launch]:
    count = asked.spec.size
    if count == 0:
        return ()
    warps = ctx.settings["warps"]
    widest = max(spec.dtype.itemsize for spec in (asked.spec, *_tensors(asked)))
    vector = VECTOR_BYTES // widest
    size = warps * THREADS_PER_WARP * ctx.settings["vectors"] * vector
    step = launch(
        ctx,
        dense,
        programs=triton.cdiv(count, size),
        arguments={**_arguments(asked), "count": count},
        constants={
            "OP": asked.op,
            "EVEN": count % size == 0,
            "WIDE": count + size >= NARROW,
            "VECTOR": vector,
            "BLOCK": size,
        },
        options=Options(num_warps=warps, num_stages=1, enable_fp_fusion=True),
    )
    return (step,)


def _strided(ctx: BindContext, asked: Request) -> Sequence[Launch]:
    out = asked.spec
    if out.size == 0:
        return ()
    given = [
        broadcast_strides(spec.shape, spec.strides, out.rank) if spec is not None else None
        for spec in (_at(asked, k).spec for k in range(3))
    ]
    shape, out_strides, *found = collapse(
        out.shape, out.strides, *(strides for strides in given if strides is not None)
    )
    others = iter(found)
    strides = [next(others) if own is not None else None for own in given]
    across = min(range(len(shape)), key=lambda axis: (abs(out_strides[axis]) or NARROW, -axis))
    rows = [axis for axis in range(len(shape)) if axis != across]
    down = _down(across, [own for own in strides if own is not None])
    if down is not None:
        rows.remove(down)
        rows.append(down)
    columns, count = shape[across], out.size // shape[across]
    block_columns = _columns(columns, TILE if down is None else SQUARE)
    block_rows = min(TILE // block_columns, triton.next_power_of_2(count))
    tiles = triton.cdiv(columns, block_columns) * triton.cdiv(count, block_rows)
    step = launch(
        ctx,
        strided,
        programs=tiles,
        arguments={
            **_arguments(asked),
            "rows": count,
            "columns": columns,
            "shape": tuple(shape[axis] for axis in rows) or (1,),
            **{
                f"x{k + 1}_strides": own and (tuple(own[axis] for axis in rows) or (0,))
                for k, own in enumerate(strides)
            },
            "out_strides": tuple(out_strides[axis] for axis in rows) or (0,),
            **{f"x{k + 1}_step": own and own[across] for k, own in enumerate(strides)},
            "out_step": out_strides[across],
        },
        constants={
            "OP": asked.op,
            "WIDE": max(count + block_rows, columns + block_columns, tiles) >= NARROW
            or any(reach(shape, own) >= NARROW for own in (out_strides, *found)),
            "BLOCK_ROWS": block_rows,
            "BLOCK_COLUMNS": block_columns,
        },
        options=Options(num_warps=4, num_stages=1, enable_fp_fusion=True),
    )
    return (step,)


def _at(asked: Request, place: int) -> Operand:
    return asked.operands[place] if place < len(asked.operands) else Operand()


def _tensors(asked: Request) -> list[TensorSpec]:
    return [operand.spec for operand in asked.operands if operand.spec is not None]


def _arguments(asked: Request) -> dict[str, Argument]:
    return {**{f"x{k + 1}": _at(asked, k).argument for k in range(3)}, "out": asked.out}


def _down(across: int, strides: Sequence[Sequence[int]]) -> int | None:
    """Return the axis along which an operand is denser than along the output's densest; None where none is."""
    for own in strides:
        axis = min(range(len(own)), key=lambda axis: (abs(own[axis]) or NARROW, -axis))
        if own[across] != 0 and abs(own[axis]) < abs(own[across]):
            return axis
    return None


def _columns(extent: int, most: int) -> int:
    """Return a power of two of columns for a tile, at most a quarter of which lie beyond ``extent`` if 128 do."""
    columns = min(most, triton.next_power_of_2(extent))
    while columns > 128 and 4 * columns * triton.cdiv(extent, columns) > 5 * extent:
        columns //= 2
    return columns


@triton.jit
def progression(
    out,
    count,
    stride,
    start,
    step,
    EVEN: tl.constexpr,
    WIDE: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Write ``start + index step`` for ``BLOCK`` indices: in the dtype of ``start``, modulo 2^bits where unsigned.

    EVEN and what else is done are as in `dense`.
    """
    first = program(WIDE) * BLOCK
    index = first + tl.arange(0, BLOCK)
    if EVEN:
        write(out, index, stride, start, step, None)
    else:
        whole = count // 16 * 16
        write(out, index, stride, start, step, index < whole)
        if count - first < BLOCK:
            rest = whole + tl.arange(0, 16)
            write(out, rest, stride, start, step, rest < count)


@triton.jit
def write(out, index, stride, start, step, inside):
    """Write ``start + index step``."""
    y = (start + index.to(start.dtype) * step).to(out.dtype.element_ty)
    tl.store(out + index * stride, y, mask=inside)


def bind_arange(ctx: BindContext) -> Sequence[Launch]:
    """Bind ``arange``."""
    (out,) = ctx.signature.outputs
    if out.size == 0:
        return ()
    attributes = ctx.signature.attributes
    start, _, by = bounds_of(attributes["start"], attributes["stop"], attributes["step"])
    if out.dtype.floating:
        kind = "float64" if out.dtype.bits == 64 else "float32"
        with np.errstate(over="ignore"):
            numbers = [float(np.dtype(kind).type(value)) for value in (start, by)]
    else:
        bits = max(out.dtype.bits, 32)
        kind, numbers = f"uint{bits}", [int(value) % 2**bits for value in (start, by)]
    warps, threads_elements = 4, 4 * VECTOR_BYTES // out.dtype.itemsize
    size = warps * THREADS_PER_WARP * threads_elements
    launched = launch(
        ctx,
        progression,
        programs=triton.cdiv(out.size, size),
        arguments={
            "out": "out",
            "count": out.size,
            "stride": out.strides[0],
            "start": Scalar(numbers[0], kind),
            "step": Scalar(numbers[1], kind),
        },
        constants={
            "EVEN": out.size % size == 0,
            "WIDE": max(out.size + size, (out.size + size) * abs(out.strides[0])) >= NARROW,
            "BLOCK": size,
        },
        options=Options(num_warps=warps, num_stages=1, enable_fp_fusion=True),
    )
    return (launched,)
