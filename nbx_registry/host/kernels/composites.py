"""Composites of the core: ops made of others, for devices that have no kernel of their own for them yet."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from nbx_registry.composite import Trace, Traced


def mean(trace: Trace, x: Traced, *, axis: tuple[int, ...] | None, keepdims: bool) -> Traced:
    """Add up, then divide by the number of terms: nothing by nothing is NaN."""
    total = trace.call("sum", x, axis=axis, keepdims=keepdims)
    return trace.call("divide", total, float(x.spec.size // max(total.spec.size, 1)))


def linear(trace: Trace, x: Traced, w: Traced, bias: Traced | None, *, activation: str | None) -> Traced:
    """Multiply by the transposed weight, add the bias, apply the activation."""
    y = trace.call("matmul", x, trace.permute(w, (1, 0)))
    if bias is not None:
        y = trace.call("add", y, bias)
    if activation is not None:
        y = trace.call("gelu", y, approximate="tanh" if activation == "gelu_tanh" else "none")
    return y
