"""Pointwise kernels: one value an element from up to three operands at the same place, numbers among them.

Tensors are walked as `walk` says, by `dense` or `strided`. Values are computed by `evaluate`, in float32 for the
floating dtypes below it and rounded once; integers wrap around. The memory is the limit where an element of 2 bytes
takes under about 28 instructions (H200: 132 x 128 lanes at 1.7 GHz for 1.06e12 elements/s read and written): exp takes
9, sigmoid, silu and gelu 17, tanh and erf 25, log 28; in bfloat16 exp takes 22 and sigmoid and silu 24. Of wider
elements all stay below it. On an H200 2^27 numbers of float16 take, cold, 130 to 131 us by exp, silu and gelu, 135 by
tanh, 143 by erf and 152 by log, where a copy takes 130; two operands 189 us. Deterministic.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import triton
import triton.language as tl

from nbx_registry.dtypes import DType
from nbx_registry.launch import BindContext, Launch, Scalar
from nbx_registry.rounding import integers_as_float64, round_to_float
from nbx_registry.space import Space
from nbx_registry.spec import TensorSpec
from nbx_triton.kernels.elementary import (
    error_function,
    hyperbolic_tangent,
    hyperbolic_tangent_float64,
    logarithm,
    power_of_e,
    short_decay,
    short_gaussian_error_unit,
    short_power_of_e,
)
from nbx_triton.kernels.mathematics import normal_distribution
from nbx_triton.kernels.walk import Operand, Request, consecutive, operand, tile, walk_dense, walk_strided
from nbx_triton.launching import Pointer

SETTINGS = Space(parameters={"vectors": (1, 2, 4, 8), "warps": (4, 8)})
"""Of `dense`: vectors of 16 bytes a thread has of the widest operand, and warps of a program."""


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
        if OP == "add":
            y = a + wide(x2, result)
        elif OP == "subtract":
            y = a - wide(x2, result)
        elif OP == "multiply":
            y = a * wide(x2, result)
        elif OP == "divide":
            if result == tl.float64:
                y = a / wide(x2, result)
            else:
                y = tl.div_rn(a, wide(x2, result))
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
        elif OP == "sqrt":
            if result == tl.float64:
                y = tl.sqrt(a)
            else:
                y = tl.sqrt_rn(a)
        elif OP == "rsqrt":
            if result == tl.float64:
                y = 1.0 / tl.sqrt(a)
            else:
                y = tl.rsqrt(a)
        elif OP == "exp":
            if result == tl.float16:
                y = short_power_of_e(a)
            else:
                y = exponential_in(a, result)
        elif OP == "sigmoid":
            y = 1.0 / (1.0 + decay_in(a, result))
        elif OP == "silu":
            y = a * (1.0 / (1.0 + decay_in(a, result)))
        elif OP == "gelu":
            if result.primitive_bitwidth == 16:
                y = short_gaussian_error_unit(a)
            else:
                y = a * normal_distribution(a)
        elif OP == "gelu_tanh":
            # The tanh of half of it is 2 / (1 + e^-that) - 1.
            inner = a * (a * a * 0.07135481627260025 + 1.5957691216057308)
            # What counts is the error relative to 1, not to e^-that.
            y = a * (1.0 / (1.0 + decay_in(inner, tl.float16 if result.primitive_bitwidth == 16 else result)))
        elif OP == "log":
            if result == tl.float64:
                y = tl.log(a)
            else:
                y = logarithm(a, result == tl.float16)
        elif OP == "tanh":
            if result == tl.float64:
                y = hyperbolic_tangent_float64(a)
            else:
                y = hyperbolic_tangent(a, result.primitive_bitwidth == 16)
        else:
            tl.static_assert(OP == "erf")
            if result == tl.float64:
                y = tl.erf(a)
            else:
                y = error_function(a, result.primitive_bitwidth == 16)
    return y


@triton.jit
def dense(
    operands,
    out,
    count,
    OP: tl.constexpr,
    EVEN: tl.constexpr,
    WIDE: tl.constexpr,
    VECTOR: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Compute OP of consecutive elements."""
    consecutive(evaluate, OP, operands, out, count, EVEN, WIDE, VECTOR, BLOCK)


@triton.jit
def strided(
    operands,
    out,
    rows,
    columns,
    shape,
    strides,
    out_strides,
    steps,
    out_step,
    OP: tl.constexpr,
    WIDE: tl.constexpr,
    BLOCK_ROWS: tl.constexpr,
    BLOCK_COLUMNS: tl.constexpr,
):
    """Compute OP of a tile of elements."""
    tile(
        evaluate,
        OP,
        operands,
        out,
        rows,
        columns,
        shape,
        strides,
        out_strides,
        steps,
        out_step,
        WIDE,
        BLOCK_ROWS,
        BLOCK_COLUMNS,
    )


def _request(ctx: BindContext) -> Request:
    """Return what a signature asks of `evaluate`."""
    op = ctx.signature.op.name
    (out,) = ctx.signature.outputs
    names = [param.name for param in ctx.signature.op.tensors]
    specs = dict(zip(names, ctx.signature.tensors, strict=True))
    # Signs are bits of a float and of a complex number's parts; what is moved is bits, whatever they mean.
    if op in ("abs", "negative") and not out.dtype.integral:
        dtype, name = _bits(out.dtype), "and" if op == "abs" else "xor"
        operands = (Operand(Pointer("x", dtype, specs["x"].align), specs["x"]), Operand(_sign(op, out.dtype)))
        return _requested(name, operands, dtype, out)
    if ctx.signature.attributes.get("approximate") == "tanh":
        op = "gelu_tanh"
    moved = op == "where" and all(specs[name].dtype is out.dtype and not specs[name].weak for name in ("x1", "x2"))
    operands = tuple(_operand(name, spec, out, moved) for name, spec in specs.items())
    dtype = _bits(out.dtype) if moved or out.dtype.kind == "bool" else out.dtype
    return _requested(op, operands, dtype, out)


def _operand(name: str, spec: TensorSpec | None, out: TensorSpec, moved: bool) -> Operand:
    if spec is None:
        return Operand()
    return operand(name, spec, out, _bits(spec.dtype) if moved or spec.dtype.kind == "bool" else spec.dtype)


def _requested(op: str, operands: tuple[Operand, ...], dtype: DType | str, out: TensorSpec) -> Request:
    return Request(operands=operands, out=Pointer("out", dtype, out.align), spec=out, constants={"OP": op})


def _bits(dtype: DType) -> str:
    return f"uint{dtype.bits}"


def _sign(op: str, dtype: DType) -> Scalar:
    """Return the bits to flip for ``negative``, or to keep for ``abs``."""
    sign = 0x8000_0000_8000_0000 if dtype.kind == "complex" else 1 << (dtype.bits - 1)
    return Scalar(sign if op == "negative" else (1 << dtype.bits) - 1 - sign, f"uint{max(dtype.bits, 32)}")


def bind_dense(ctx: BindContext) -> Sequence[Launch]:
    """Bind an op of `evaluate` over operands that are as dense as the output."""
    return walk_dense(ctx, dense, _request(ctx))


def bind_strided(ctx: BindContext) -> Sequence[Launch]:
    """Bind an op of `evaluate` over operands of any strides."""
    return walk_strided(ctx, strided, _request(ctx))


def bind_full_dense(ctx: BindContext) -> Sequence[Launch]:
    """Bind ``full``, whose value is rounded here, as bits."""
    return walk_dense(ctx, dense, _full(ctx))


def bind_full_strided(ctx: BindContext) -> Sequence[Launch]:
    """Bind ``full`` into a view."""
    return walk_strided(ctx, strided, _full(ctx))


def _full(ctx: BindContext) -> Request:
    (out,) = ctx.signature.outputs
    value = ctx.signature.attributes["fill_value"]
    if out.dtype.floating:
        value = round_to_float(integers_as_float64(np.asarray(value)), out.dtype)
    with np.errstate(all="ignore"):
        bits = int.from_bytes(np.array(value).astype(out.dtype.numpy).tobytes(), "little")
    passed = Operand(Scalar(bits, f"uint{max(out.dtype.bits, 32)}"))
    return _requested("full", (passed,), _bits(out.dtype), out)
