"""Spec of rotary_embedding."""

from __future__ import annotations

from nbx_triton.specs.common import FLOATS, kernel

KERNELS = (
    kernel(
        "rotary_embedding@1",
        "tokens",
        "rotary:bind",
        when=(f"x.dtype in {FLOATS}", f"cos.dtype in {FLOATS}", "R <= 2048"),
        key=(
            "x.dtype",
            "x.shape",
            "x.strides",
            "position.dtype",
            "position.strides",
            "cos.dtype",
            "cos.shape",
            "cos.strides",
            "sin.strides",
            "interleaved",
        ),
        batch_invariant=True,
        overlap="same",
        doc="One program turns up to 512 pairs of four heads: the tables' rows are read once for all four.",
    ),
)
