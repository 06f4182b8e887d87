"""Composites of the core: ops made of others, for devices that have no kernel of their own for them yet."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from nbx_registry.composite import Trace, Traced


def linear(trace: Trace, x: Traced, w: Traced, bias: Traced | None, *, activation: str | None) -> Traced:
    """Multiply by the transposed weight, add the bias, apply the activation."""
    y = trace.call("matmul", x, trace.permute(w, (1, 0)))
    if bias is not None:
        y = trace.call("add", y, bias)
    if activation is not None:
        y = trace.call("gelu", y, approximate="tanh" if activation == "gelu_tanh" else "none")
    return y
