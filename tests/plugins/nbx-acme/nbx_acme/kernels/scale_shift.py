"""acme::scale_shift."""

from __future__ import annotations

import numpy as np

from nbx_acme.kernels.memory import array_at
from nbx_registry.launch import BindContext, Launch, Scalar


def bind(context: BindContext) -> Launch:
    """Bind the op over contiguous memory; scale and shift are arguments of the launch."""
    signature = context.signature
    (x,), (out,) = signature.tensors, signature.outputs
    limits = np.iinfo(x.dtype.numpy)

    def run(source: int, target: int, scale: int, shift: int) -> None:
        values = array_at(source, x)
        # A product with a 64-bit number needs Python's integers.
        wide = values.astype(np.int64 if limits.bits < 64 else object) * scale + shift
        array_at(target, out)[...] = np.clip(wide, limits.min, limits.max)

    return Launch(
        function=run,
        args=(
            "x",
            "out",
            Scalar(signature.attributes["scale"], "int32"),
            Scalar(signature.attributes["shift"], "int32"),
        ),
    )
