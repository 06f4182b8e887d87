"""linear, made of other ops."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from nbx_registry.composite import Trace, Traced


def linear(trace: Trace, x: Traced, w: Traced, bias: Traced | None, *, activation: None) -> Traced:
    """Return ``x w^T``, and the bias on top where there is one. The conditions let no activation through."""
    del activation
    product = trace.call("matmul", x, trace.permute(w, (1, 0)))
    return product if bias is None else trace.call("add", product, bias)
