"""arange: each index times the step, in integers modulo 2^bits, in float32 where that is exact, else in float64.

Deterministic.

One program writes consecutive indices, several vectors of 16 bytes a thread. The floor is the output's bytes over the
bandwidth.
"""

from __future__ import annotations

from collections.abc import Sequence

import triton
import triton.language as tl

from nbx_registry.contracts.creation import progression as bounds_of
from nbx_registry.launch import BindContext, Launch, Scalar
from nbx_triton.compiler import THREADS_PER_WARP, Options
from nbx_triton.kernels.conversion import to_odd_float32
from nbx_triton.kernels.strided import NARROW, program
from nbx_triton.kernels.walk import VECTOR_BYTES
from nbx_triton.launching import launch


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

    EVEN and what else is done are as in `walk.consecutive`.
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
    """Write ``start + index step``, rounded once."""
    y = start + index.to(start.dtype) * step
    if y.dtype == tl.float64 and out.dtype.element_ty.primitive_bitwidth < 32:
        y = to_odd_float32(y)
    tl.store(out + index * stride, y.to(out.dtype.element_ty), mask=inside)


def bind(ctx: BindContext) -> Sequence[Launch]:
    """Bind ``arange``."""
    (out,) = ctx.signature.outputs
    if out.size == 0:
        return ()
    attributes = ctx.signature.attributes
    start, _, by = bounds_of(attributes["start"], attributes["stop"], attributes["step"])
    if out.dtype.floating:
        # Far from 0 neither an index nor what lies between two is a number of float32; of small integers all are.
        exact = start == int(start) and by == int(by) and abs(start) + abs(by) * out.size <= 2**24
        kind = "float32" if exact and out.dtype.bits < 64 else "float64"
        numbers = [float(start), float(by)]
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
