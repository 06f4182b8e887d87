"""The op contracts of the core, one module a family."""

from __future__ import annotations

from nbx_registry.contracts import attention, cache, elementwise, indexing, layout, linalg, normalization, reduction
from nbx_registry.op import Op

_FAMILIES = (elementwise, reduction, normalization, linalg, indexing, attention, cache, layout)

ALL: tuple[Op, ...] = tuple(
    {op.id: op for family in _FAMILIES for op in vars(family).values() if isinstance(op, Op)}.values()
)
"""Every op of the core."""
