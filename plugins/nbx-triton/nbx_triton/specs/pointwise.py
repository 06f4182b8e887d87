"""Specs of pointwise kernels: `dense` where all operands are without gaps and in one order, `strided` for the rest."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal, NamedTuple

from nbx_registry.kernel import Kernel
from nbx_triton.specs.common import ALL, FLOATS, HALVES, NUMBERS, kernel

_SIGNED = f"{NUMBERS[:-1]}, float8_e4m3fn, float8_e5m2)"
_NEGATED = f"{_SIGNED[:-1]}, complex64)"
_WIDTHS = "(8, 16, 32, 64)"

_REAL = (f"x.dtype in {NUMBERS}",)
_FLOATING = (f"x.dtype in {FLOATS}",)


class _Op(NamedTuple):
    """How one op is walked."""

    operands: tuple[str, ...]
    when: tuple[str, ...]
    """What the operands' dtypes must be."""
    attributes: tuple[str, ...] = ()
    """Those that its binder reads."""
    module: str = "pointwise"
    overlap: Literal["refuse", "same"] = "same"


def _pair(dtypes: str) -> _Op:
    return _Op(("x1", "x2"), (f"x1.weak or x1.dtype in {dtypes}", f"x2.weak or x2.dtype in {dtypes}"))


_OPS = {
    "abs": _Op(("x",), (f"x.dtype in {_SIGNED}",)),
    "negative": _Op(("x",), (f"x.dtype in {_NEGATED}",)),
    "relu": _Op(("x",), _REAL),
    **dict.fromkeys(
        ("reciprocal", "sqrt", "rsqrt", "exp", "log", "tanh", "sigmoid", "erf", "silu"), _Op(("x",), _FLOATING)
    ),
    "gelu": _Op(("x",), (f"x.dtype in {HALVES}",), ("approximate",)),
    "astype": _Op(("x",), (f"x.dtype in {ALL}", f"dtype in {ALL}"), ("dtype", "saturate"), "astype", "refuse"),
    **dict.fromkeys(("add", "subtract", "multiply", "maximum", "minimum"), _pair(NUMBERS)),
    "divide": _pair(FLOATS),
    "clip": _Op(("x", "min", "max"), _REAL),
    "where": _Op(
        ("condition", "x1", "x2"),
        (
            f"(x1.weak or x1.dtype in {ALL}) and (x2.weak or x2.dtype in {ALL}) and out.dtype in {ALL}"
            f" or x1.dtype == x2.dtype and not x1.weak and not x2.weak and bits(x1.dtype) in {_WIDTHS}",
        ),
    ),
}

_DENSE = ("out.contiguous", "out.align >= 16")
_DENSE_DOC = (
    "One program computes 1024 to 32768 consecutive elements; a thread loads several vectors of 16 bytes at once."
)
_STRIDED_DOC = (
    "One program computes a tile of 2048 elements, its rows counted out over all axes but the output's densest."
)
_DEFAULTS = {"vectors": 2, "warps": 4}


def _is_dense(operand: str, *, one: bool) -> tuple[str, ...]:
    """Return the conditions on an operand of `dense`; the one operand of an op has the output's shape anyhow."""
    if one:
        return (f"{operand}.contiguous", f"{operand}.align >= 16")
    return (
        f"{operand}.weak or {operand}.size == out.size",
        f"{operand}.contiguous",
        f"{operand}.weak or {operand}.align >= 16",
    )


def _kernels(name: str, op: _Op) -> Iterator[Kernel]:
    one = len(op.operands) == 1
    kinds = [f"{operand}.{field}" for operand in op.operands for field in ("dtype", *(() if one else ("weak",)))]
    layouts = [f"{operand}.{field}" for operand in op.operands for field in ("shape", "strides")]
    yield kernel(
        f"{name}@1",
        "dense",
        f"{op.module}:bind_dense",
        when=(*op.when, *(clause for operand in op.operands for clause in _is_dense(operand, one=one)), *_DENSE),
        key=(*kinds, *op.attributes, "out.size"),
        batch_invariant=True,
        overlap=op.overlap,
        preference=1,
        defaults=_DEFAULTS,
        settings=f"nbx_triton.kernels.{op.module}:SETTINGS",
        doc=_DENSE_DOC,
    )
    yield kernel(
        f"{name}@1",
        "strided",
        f"{op.module}:bind_strided",
        when=op.when,
        key=(*kinds, *op.attributes, *layouts, "out.strides"),
        batch_invariant=True,
        overlap=op.overlap,
        doc=_STRIDED_DOC,
    )


KERNELS = (
    *(made for name, op in _OPS.items() for made in _kernels(name, op)),
    kernel(
        "full@1",
        "dense",
        "pointwise:bind_full_dense",
        when=(f"bits(out.dtype) in {_WIDTHS}", *_DENSE),
        key=("out.dtype", "out.size"),
        batch_invariant=True,
        preference=1,
        defaults=_DEFAULTS,
        settings="nbx_triton.kernels.pointwise:SETTINGS",
        doc="One program stores the bits of the value, rounded when it was bound, in vectors of 16 bytes.",
    ),
    kernel(
        "full@1",
        "strided",
        "pointwise:bind_full_strided",
        when=(f"bits(out.dtype) in {_WIDTHS}",),
        key=("out.dtype", "out.shape", "out.strides"),
        batch_invariant=True,
        doc=_STRIDED_DOC,
    ),
    kernel(
        "arange@1",
        "products",
        "arange:bind",
        when=(f"out.dtype in {NUMBERS}",),
        key=("out.dtype", "out.size", "out.strides"),
        doc="One program multiplies 1024 to 8192 consecutive indices by the step, in 32 or 64 bits.",
    ),
)
