"""linear, made of other ops."""

from __future__ import annotations

from typing import Any


def linear(trace: Any, x: Any, w: Any, bias: Any, *, activation: str | None) -> Any:
    """Return ``x w^T``, and the bias on top where there is one."""
    product = trace.call("matmul", x, trace.permute(w, (1, 0)))
    return product if bias is None else trace.call("add", product, bias)
