"""Specs of elementwise kernels. Any strides: axes merge where they can, and are counted out element by element else."""

from __future__ import annotations

from nbx_triton.specs.common import ALL, FLOATS, HALVES, NUMBERS, kernel

_BINARY_KEY = ("x1.dtype", "x1.shape", "x1.strides", "x1.weak", "x2.dtype", "x2.shape", "x2.strides", "x2.weak")
_UNARY_KEY = ("x.dtype", "x.shape", "x.strides")

KERNELS = (
    *(
        kernel(
            f"{op}@1",
            "strided",
            f"elementwise:bind_{op}",
            when=(f"x1.weak or x1.dtype in {dtypes}", f"x2.weak or x2.dtype in {dtypes}"),
            key=_BINARY_KEY,
            batch_invariant=True,
            overlap="same",
            doc="One program computes 1024 consecutive elements; one IEEE operation each.",
        )
        for op, dtypes in (("add", NUMBERS), ("multiply", NUMBERS), ("divide", FLOATS))
    ),
    kernel(
        "sqrt@1",
        "strided",
        "elementwise:bind_sqrt",
        when=(f"x.dtype in {FLOATS}",),
        key=_UNARY_KEY,
        batch_invariant=True,
        overlap="same",
        doc="One program computes 1024 consecutive elements, correctly rounded.",
    ),
    kernel(
        "gelu@1",
        "strided",
        "elementwise:bind_gelu",
        when=(f"x.dtype in {HALVES}",),
        key=(*_UNARY_KEY, "approximate"),
        batch_invariant=True,
        overlap="same",
        doc="One program computes 1024 consecutive elements in float32, with no cancellation in the negative tail.",
    ),
    kernel(
        "astype@1",
        "strided",
        "astype:bind",
        when=(f"x.dtype in {ALL}", f"dtype in {ALL}"),
        key=(*_UNARY_KEY, "dtype", "saturate"),
        batch_invariant=True,
        doc="One program converts 1024 consecutive elements, each rounded once.",
    ),
)
