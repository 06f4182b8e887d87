"""What kernels of matrix products share: an op's operands as axes and strides, and what becomes of sums at the end."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

import triton
import triton.language as tl

from nbx_registry.launch import BindContext
from nbx_registry.spec import TensorSpec
from nbx_triton.kernels.elementary import short_decay, short_gaussian_error_unit
from nbx_triton.kernels.mathematics import exponential, normal_distribution
from nbx_triton.kernels.strided import broadcast_strides, collapse, reach
from nbx_triton.launching import Argument

_BARRIERS = 1024
"""Of shared memory, bytes that are left for what stages need beside their elements."""

PIECE = 8
"""Elements of 16 bits that are moved at once."""


@dataclass(frozen=True, slots=True)
class Matrices:
    """An operand or the result: its name, and the strides of its matrices, of their rows and of their columns."""

    name: str
    spec: TensorSpec
    batch: tuple[int, ...]
    rows: tuple[int, ...]
    """One stride for each of the axes that number rows; of the right operand there is one such axis."""
    column: int

    @property
    def row(self) -> int:
        """The stride of rows of one axis."""
        (row,) = self.rows
        return row


@dataclass(frozen=True, slots=True)
class Product:
    """``activation(a @ b + bias)`` for each matrix of a batch, with as few axes as describe it."""

    a: Matrices
    b: Matrices
    out: Matrices
    bias: TensorSpec | None
    activation: str
    batch: tuple[int, ...]
    row_shape: tuple[int, ...]
    columns: int
    depth: int

    @property
    def rows(self) -> int:
        """Rows of one product."""
        return prod(self.row_shape)

    @property
    def matrices(self) -> int:
        """How many products there are."""
        return prod(self.batch)

    def farthest(self, slack: int) -> int:
        """Return the largest offset that is computed where tiles reach past rows, columns and depth by ``slack``."""
        rows = (*self.row_shape[:-1], self.row_shape[-1] + slack)
        deep, across = self.depth + slack, self.columns + slack
        shapes = ((self.a, (*rows, deep)), (self.b, (deep, across)), (self.out, (*rows, across)))
        return max(reach(self.batch, m.batch) + reach(shape, (*m.rows, m.column)) for m, shape in shapes)


def product_of(ctx: BindContext) -> Product:
    """Return what ``matmul`` or ``linear`` is asked for. It has elements."""
    return _linear(ctx) if ctx.kernel.op == "linear@1" else _matmul(ctx)


def _matmul(ctx: BindContext) -> Product:
    x1, x2 = ctx.signature.operands
    (out,) = ctx.signature.outputs
    # Operands of rank 1 get the axis they lack, with extent 1.
    shape1, strides1 = (x1.shape, x1.strides) if x1.rank > 1 else ((1, *x1.shape), (0, *x1.strides))
    shape2, strides2 = (x2.shape, x2.strides) if x2.rank > 1 else ((*x2.shape, 1), (*x2.strides, 0))
    out_strides = list(out.strides)
    if x1.rank == 1:
        out_strides.insert(out.rank if x2.rank == 1 else out.rank - 1, 0)
    if x2.rank == 1:
        out_strides.append(0)
    rank = len(out_strides) - 2
    batch, a_batch, b_batch, out_batch = collapse(
        out.shape[:rank],
        broadcast_strides(shape1[:-2], strides1[:-2], rank),
        broadcast_strides(shape2[:-2], strides2[:-2], rank),
        out_strides[:rank],
    )
    return Product(
        a=Matrices("x1", x1, a_batch, (strides1[-2],), strides1[-1]),
        b=Matrices("x2", x2, b_batch, (strides2[-2],), strides2[-1]),
        out=Matrices("out", out, out_batch, (out_strides[-2],), out_strides[-1]),
        bias=None,
        activation="none",
        batch=batch,
        row_shape=(shape1[-2],),
        columns=shape2[-1],
        depth=shape1[-1],
    )


def _linear(ctx: BindContext) -> Product:
    # The leading axes of x number the rows; w is [N, K].
    x, w, bias = ctx.signature.tensors
    (out,) = ctx.signature.outputs
    row_shape, a_rows, out_rows = collapse(x.shape[:-1], x.strides[:-1], out.strides[:-1])
    return Product(
        a=Matrices("x", x, (0,), a_rows, x.strides[-1]),
        b=Matrices("w", w, (0,), (w.strides[1],), w.strides[0]),
        out=Matrices("out", out, (0,), out_rows, out.strides[-1]),
        bias=bias,
        activation=ctx.signature.attributes["activation"] or "none",
        batch=(1,),
        row_shape=row_shape,
        columns=w.shape[0],
        depth=w.shape[1],
    )


@dataclass(frozen=True, slots=True)
class Pieces:
    """How the operands of a product lie in pieces of 8 elements, for kernels that move whole ones.

    Of a and b one stride is 1 and all others are multiples of 8; so is an extent along which elements lie side by side.
    """

    arguments: dict[str, Argument]
    constants: dict[str, int | bool]


def pieces_of(product: Product, step: int) -> Pieces:
    """Return the arguments and constants that `offsets` takes, for a kernel that goes along the depth by ``step``."""
    a, b = product.a, product.b
    a_deep, b_deep = a.column == 1, b.row == 1
    column_unit, depth_unit = common_unit(product.columns), common_unit(product.depth)
    arguments: dict[str, Argument] = {
        "a": a.name,
        "b": b.name,
        "rows": product.rows,
        "columns": product.columns // column_unit,
        "depth": product.depth // depth_unit,
        "a_pitch": (a.row if a_deep else a.column) // PIECE,
        "b_pitch": (b.column if b_deep else b.row) // PIECE,
    }
    return Pieces(
        arguments,
        {
            "A_DEEP": a_deep,
            "B_DEEP": b_deep,
            "COLUMN_UNIT": column_unit,
            "DEPTH_UNIT": depth_unit,
            "EVEN": product.depth % step == 0,
        },
    )


def common_unit(*values: int) -> int:
    """Return what code may take all of these to be multiples of: a piece, or 1."""
    return 1 if any(value % PIECE for value in values) else PIECE


def reads_shared_memory(ctx: BindContext) -> bool:
    """Whether the matrix unit reads both operands from shared memory, not from registers."""
    return ctx.device.has("matrix_unit.wgmma_m64k16") or ctx.device.has("matrix_unit.tcgen05_f16")


def fitting_stages(ctx: BindContext, stages: int, stage_bytes: int, together: int = 1) -> int:
    """Return stages, or fewer where the device lacks the shared memory for this many programs; two at the least.

    Products that read their operands there keep all stages, others have the step at hand in registers.
    """
    room = (ctx.device.fact("shared.bytes_per_block_optin") // together - _BARRIERS) // stage_bytes
    return max(2, min(stages, room if reads_shared_memory(ctx) else room + 1))


@triton.jit
def activate(x, ACTIVATION: tl.constexpr, result: tl.constexpr = tl.float32):
    """Apply an epilogue to float32 (or float64) sums that are rounded to ``result`` afterwards.

    For results of 16 bits errors of 2e-7 will do; nothing then takes more registers than the sums have left over.
    """
    if ACTIVATION == "relu":
        # A comparison keeps NaN, which a maximum may drop.
        x = tl.where(x < 0, 0.0, x).to(x.dtype)
    elif ACTIVATION != "none":
        if result.primitive_bitwidth == 16:
            if ACTIVATION == "gelu":
                x = short_gaussian_error_unit(x)
            elif ACTIVATION == "gelu_tanh":
                # The tanh of half of it is 2 / (1 + e^-that) - 1.
                y = x * (x * x * 0.07135481627260025 + 1.5957691216057308)
                x = x / (1.0 + short_decay(y, result == tl.float16))
            else:
                tl.static_assert(ACTIVATION == "silu")
                x = x / (1.0 + short_decay(x, result == tl.float16))
        elif ACTIVATION == "gelu":
            x = x * normal_distribution(x)
        elif ACTIVATION == "gelu_tanh":
            x = tl.div_rn(x, 1.0 + exponential(-1.5957691216057308 * (x + 0.044715 * x * x * x)))
        else:
            tl.static_assert(ACTIVATION == "silu")
            x = tl.div_rn(x, 1.0 + exponential(-x))
    return x


@triton.jit
def tile_of(number, tiles_m, tiles_n, HEIGHT: tl.constexpr):
    """Return row and column of a tile: HEIGHT rows of them at a time, so that neighbours share what they read."""
    first = number // (HEIGHT * tiles_n) * HEIGHT
    height = tl.minimum(tiles_m - first, HEIGHT)
    within = number % (HEIGHT * tiles_n)
    return first + within % height, within // height


@triton.jit
def offsets(index, k, extent, pitch, DEEP: tl.constexpr):
    """Return what to add to an operand's address for indices of its outer axis, and for those of the depth.

    The pitch is in pieces of 8 elements. DEEP: elements lie side by side along the depth, or else along the outer axis,
    whose extent is a multiple of 8 then, as the first index is. Indices past the extent become some within: what is
    loaded there is not stored.
    """
    if DEEP:
        outer = tl.minimum(index, extent - 1) * (pitch * 8)
        inner = k
    else:
        outer = tl.max_contiguous(tl.multiple_of(index % extent, 8), 8)
        inner = k * (pitch * 8)
    return outer, inner


@triton.jit
def advance(count, pitch, DEEP: tl.constexpr):
    """Return what to add to an operand's addresses to go ``count`` elements along the depth."""
    if DEEP:
        distance = count
    else:
        distance = count * (pitch * 8)
    return distance
