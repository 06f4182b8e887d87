"""The op contracts of the core, one module a family."""

from __future__ import annotations

from nbx_registry.contracts import (
    activation,
    attention,
    cache,
    choosing,
    conversion,
    convolution,
    creation,
    decoding,
    elementwise,
    exponential,
    fourier,
    indexing,
    layout,
    linalg,
    normalization,
    quantized,
    random,
    reduction,
    sorting,
)
from nbx_registry.op import Op

_FAMILIES = (
    elementwise,
    exponential,
    activation,
    choosing,
    conversion,
    reduction,
    normalization,
    linalg,
    convolution,
    layout,
    creation,
    random,
    indexing,
    sorting,
    attention,
    decoding,
    cache,
    fourier,
    quantized,
)

ALL: tuple[Op, ...] = tuple(
    {op.id: op for family in _FAMILIES for op in vars(family).values() if isinstance(op, Op)}.values()
)
"""Every op of the core."""
