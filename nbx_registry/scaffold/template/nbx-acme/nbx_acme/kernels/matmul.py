"""matmul."""

from __future__ import annotations

import numpy as np

from nbx_acme.kernels.memory import array_at
from nbx_registry import BindContext, Launch


def bind(context: BindContext) -> Launch:
    """Bind ``out = x1 @ x2`` for the shapes and strides of a signature.

    Binding happens once a kind of call; what it returns runs at every call, with three addresses.
    """
    x1, x2 = context.signature.operands
    (out,) = context.signature.outputs

    def run(left: int, right: int, result: int) -> None:
        np.matmul(array_at(left, x1), array_at(right, x2), out=array_at(result, out))

    return Launch(function=run, args=("x1", "x2", "out"))
