"""Specs of pointwise kernels: `dense` where all operands are without gaps and in one order, `strided` for the rest."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from nbx_registry.kernel import Kernel
from nbx_triton.specs.common import ALL, FLOATS, NUMBERS, kernel

_SIGNED = f"{NUMBERS[:-1]}, float8_e4m3fn, float8_e5m2)"
_NEGATED = f"{_SIGNED[:-1]}, complex64)"
_WIDTHS = "(8, 16, 32, 64)"

_FLOAT_OPS = ("reciprocal", "rsqrt", "exp", "log", "tanh", "sigmoid", "erf", "silu")
_OPS: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "abs": (("x",), (f"x.dtype in {_SIGNED}",)),
    "negative": (("x",), (f"x.dtype in {_NEGATED}",)),
    "relu": (("x",), (f"x.dtype in {NUMBERS}",)),
    **dict.fromkeys(_FLOAT_OPS, (("x",), (f"x.dtype in {FLOATS}",))),
    **dict.fromkeys(
        ("subtract", "maximum", "minimum"),
        (("x1", "x2"), (f"x1.weak or x1.dtype in {NUMBERS}", f"x2.weak or x2.dtype in {NUMBERS}")),
    ),
    "clip": (("x", "min", "max"), (f"x.dtype in {NUMBERS}",)),
    "where": (
        ("condition", "x1", "x2"),
        (
            f"(x1.weak or x1.dtype in {ALL}) and (x2.weak or x2.dtype in {ALL}) and out.dtype in {ALL}"
            f" or x1.dtype == x2.dtype and not x1.weak and not x2.weak and bits(x1.dtype) in {_WIDTHS}",
        ),
    ),
}
"""By op: its operands, and what their dtypes must be."""

_DENSE = ("out.contiguous", "out.align >= 16")
_DENSE_DOC = (
    "One program computes 1024 to 32768 consecutive elements; a thread loads several vectors of 16 bytes at once."
)
_STRIDED_DOC = (
    "One program computes a tile of 2048 elements, its rows counted out over all axes but the output's densest."
)
_SETTINGS = "nbx_triton.kernels.pointwise:SETTINGS"
_DEFAULTS = {"vectors": 4, "warps": 4}


def _is_dense(operand: str, *, one: bool) -> tuple[str, ...]:
    """Return the conditions on an operand of `dense`; the one operand of an op has the output's shape anyhow."""
    if one:
        return (f"{operand}.contiguous", f"{operand}.align >= 16")
    return (
        f"{operand}.weak or {operand}.size == out.size",
        f"{operand}.contiguous",
        f"{operand}.weak or {operand}.align >= 16",
    )


def _kernels(op: str, operands: Sequence[str], dtypes: tuple[str, ...]) -> Iterator[Kernel]:
    one = len(operands) == 1
    kinds = [f"{name}.{field}" for name in operands for field in ("dtype", *(() if one else ("weak",)))]
    layouts = [f"{name}.{field}" for name in operands for field in ("shape", "strides")]
    yield kernel(
        f"{op}@1",
        "dense",
        "pointwise:bind_dense",
        when=(*dtypes, *(clause for name in operands for clause in _is_dense(name, one=one)), *_DENSE),
        key=(*kinds, "out.size"),
        batch_invariant=True,
        overlap="same",
        preference=1,
        defaults=_DEFAULTS,
        settings=_SETTINGS,
        doc=_DENSE_DOC,
    )
    yield kernel(
        f"{op}@1",
        "strided",
        "pointwise:bind_strided",
        when=dtypes,
        key=(*kinds, *layouts, "out.strides"),
        batch_invariant=True,
        overlap="same",
        doc=_STRIDED_DOC,
    )


_DENSE_UNARY = (*_is_dense("x", one=True), *_DENSE)

KERNELS = (
    *(made for op, (operands, dtypes) in _OPS.items() for made in _kernels(op, operands, dtypes)),
    kernel(
        "gelu@1",
        "dense",
        "pointwise:bind_dense",
        when=("x.dtype in (float16, bfloat16)", *_DENSE_UNARY),
        key=("x.dtype", "approximate", "out.size"),
        batch_invariant=True,
        overlap="same",
        preference=1,
        defaults=_DEFAULTS,
        settings=_SETTINGS,
        doc=_DENSE_DOC,
    ),
    kernel(
        "full@1",
        "dense",
        "pointwise:bind_full_dense",
        when=(f"bits(out.dtype) in {_WIDTHS}", *_DENSE),
        key=("out.dtype", "out.size"),
        batch_invariant=True,
        preference=1,
        defaults=_DEFAULTS,
        settings=_SETTINGS,
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
