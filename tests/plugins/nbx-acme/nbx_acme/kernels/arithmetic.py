"""add and matmul."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from nbx_acme.kernels.memory import array_at
from nbx_registry.launch import BindContext, Launch, ScalarOf


def bind_add(context: BindContext) -> Launch:
    """Bind ``out = x1 + x2``; either may be a Python scalar."""
    return _binary(context, np.add)


def bind_matmul(context: BindContext) -> Launch:
    """Bind ``out = x1 @ x2``."""
    return _binary(context, np.matmul)


def _binary(context: BindContext, function: Callable[..., object]) -> Launch:
    x1, x2 = context.signature.tensors
    (out,) = context.signature.outputs

    def run(left: object, right: object, result: int) -> None:
        operands = [value if spec.weak else array_at(value, spec) for value, spec in ((left, x1), (right, x2))]
        function(*operands, out=array_at(result, out))

    args = tuple(ScalarOf(name, spec.dtype.name) if spec.weak else name for name, spec in context.signature.slots())
    return Launch(function=run, args=args)
