"""add."""

from __future__ import annotations

import numpy as np

from nbx_acme.kernels.memory import array_at
from nbx_registry import BindContext, Launch, ScalarOf


def bind(context: BindContext) -> Launch:
    """Bind ``out = x1 + x2``; either may be a Python scalar, which the launch then takes by value."""
    x1, x2 = context.signature.operands
    (out,) = context.signature.outputs

    def run(left: int | float, right: int | float, result: int) -> None:
        operands = [value if spec.weak else array_at(value, spec) for value, spec in ((left, x1), (right, x2))]
        np.add(*operands, out=array_at(result, out))

    args = tuple(ScalarOf(name, spec.dtype.name) if spec.weak else name for name, spec in context.signature.slots())
    return Launch(function=run, args=args)
