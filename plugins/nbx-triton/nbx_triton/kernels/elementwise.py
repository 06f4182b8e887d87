"""Elementwise kernels: add, multiply, divide, sqrt, gelu, astype. Arithmetic is exact up to one rounding per step.

One program computes ``BLOCK`` consecutive elements of the output. The axes of all operands are merged as far as their
strides allow; where one axis is left, loads are vectorised. Deterministic.
"""

from __future__ import annotations

from collections.abc import Sequence

import triton
import triton.language as tl

from nbx_registry.launch import BindContext, Launch, ScalarOf
from nbx_registry.spec import TensorSpec
from nbx_triton.compiler import Options
from nbx_triton.kernels.mathematics import exponential, normal_distribution
from nbx_triton.kernels.strided import NARROW, broadcast_strides, collapse, locate, program, reach
from nbx_triton.launching import Argument, launch

BLOCK = 1024


@triton.jit
def binary(
    x1,
    x2,
    out,
    count,
    shape,
    x1_strides,
    x2_strides,
    out_strides,
    OP: tl.constexpr,
    HALF: tl.constexpr,
    WEAK1: tl.constexpr,
    WEAK2: tl.constexpr,
    WIDE: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Compute ``out = x1 OP x2``; a weak operand is a number. HALF: in float32, rounded once to a narrower dtype."""
    index = program(WIDE) * BLOCK + tl.arange(0, BLOCK)
    inside = index < count
    result: tl.constexpr = out.dtype.element_ty
    if WEAK1:
        # As an element of the other's dtype: rounded to it first.
        a = x1.to(result)
    else:
        a = tl.load(x1 + locate(index, shape, x1_strides), mask=inside, other=1)
    if WEAK2:
        b = x2.to(result)
    else:
        b = tl.load(x2 + locate(index, shape, x2_strides), mask=inside, other=1)
    if HALF:
        a = a.to(tl.float32)
        b = b.to(tl.float32)
    else:
        a = a.to(result)
        b = b.to(result)
    if OP == "add":
        c = a + b
    elif OP == "multiply":
        c = a * b
    elif result == tl.float64:
        c = a / b
    else:
        c = tl.div_rn(a, b)
    tl.store(out + locate(index, shape, out_strides), c.to(result), mask=inside)


@triton.jit
def unary(
    x,
    out,
    count,
    shape,
    x_strides,
    out_strides,
    OP: tl.constexpr,
    WIDE: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Compute ``out = OP(x)``, in float32 for narrower dtypes."""
    index = program(WIDE) * BLOCK + tl.arange(0, BLOCK)
    inside = index < count
    result: tl.constexpr = out.dtype.element_ty
    a = tl.load(x + locate(index, shape, x_strides), mask=inside, other=1)
    if result != tl.float64:
        a = a.to(tl.float32)
    if OP == "sqrt":
        if result == tl.float64:
            b = tl.sqrt(a)
        else:
            b = tl.sqrt_rn(a)
    elif OP == "gelu":
        b = a * normal_distribution(a)
    else:
        inner = 0.7978845608028654 * (a + 0.044715 * a * a * a)
        b = tl.div_rn(a, 1.0 + exponential(-2.0 * inner))
    tl.store(out + locate(index, shape, out_strides), b.to(result), mask=inside)


def _wide(count: int, shape: Sequence[int], *strides: Sequence[int]) -> bool:
    return count + BLOCK >= NARROW or any(reach(shape, own) >= NARROW for own in strides)


def _grid(count: int) -> int:
    return triton.cdiv(count, BLOCK)


def _bind_binary(ctx: BindContext, op: str) -> Sequence[Launch]:
    x1, x2 = ctx.signature.tensors
    (out,) = ctx.signature.outputs
    if out.size == 0:
        return ()
    strides = [(0,) * out.rank if x.weak else broadcast_strides(x.shape, x.strides, out.rank) for x in (x1, x2)]
    shape, s1, s2, s_out = collapse(out.shape, *strides, out.strides)
    step = launch(
        ctx,
        binary,
        programs=_grid(out.size),
        arguments={
            "x1": _operand("x1", x1, out),
            "x2": _operand("x2", x2, out),
            "out": "out",
            "count": out.size,
            "shape": shape,
            "x1_strides": s1,
            "x2_strides": s2,
            "out_strides": s_out,
        },
        constants={
            "OP": op,
            "HALF": out.dtype.floating and out.dtype.bits < 64,
            "WEAK1": x1.weak,
            "WEAK2": x2.weak,
            "WIDE": _wide(out.size, shape, s1, s2, s_out),
            "BLOCK": BLOCK,
        },
        # One operation an element: there is nothing to contract.
        options=Options(num_warps=4, num_stages=1, enable_fp_fusion=False),
    )
    return (step,)


def _operand(name: str, x: TensorSpec, out: TensorSpec) -> Argument:
    """Return the operand, or the number that the caller gives in its place."""
    if not x.weak:
        return name
    if out.dtype.floating:
        return ScalarOf(name, "float64" if out.dtype.bits == 64 else "float32")
    return ScalarOf(name, "uint64" if out.dtype.kind == "uint" else "int64")


def bind_add(ctx: BindContext) -> Sequence[Launch]:
    """Bind ``add``."""
    return _bind_binary(ctx, "add")


def bind_multiply(ctx: BindContext) -> Sequence[Launch]:
    """Bind ``multiply``."""
    return _bind_binary(ctx, "multiply")


def bind_divide(ctx: BindContext) -> Sequence[Launch]:
    """Bind ``divide``."""
    return _bind_binary(ctx, "divide")


def _bind_unary(ctx: BindContext, op: str) -> Sequence[Launch]:
    (x,) = ctx.signature.tensors
    (out,) = ctx.signature.outputs
    if out.size == 0:
        return ()
    shape, s, s_out = collapse(out.shape, x.strides, out.strides)
    step = launch(
        ctx,
        unary,
        programs=_grid(out.size),
        arguments={"x": "x", "out": "out", "count": out.size, "shape": shape, "x_strides": s, "out_strides": s_out},
        constants={"OP": op, "WIDE": _wide(out.size, shape, s, s_out), "BLOCK": BLOCK},
        options=Options(num_warps=4, num_stages=1, enable_fp_fusion=True),
    )
    return (step,)


def bind_sqrt(ctx: BindContext) -> Sequence[Launch]:
    """Bind ``sqrt``."""
    return _bind_unary(ctx, "sqrt")


def bind_gelu(ctx: BindContext) -> Sequence[Launch]:
    """Bind ``gelu``."""
    return _bind_unary(ctx, "gelu_tanh" if ctx.signature.attributes["approximate"] == "tanh" else "gelu")
