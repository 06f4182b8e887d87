"""Fixtures: kernels bound from spec strings for a device that need not be present."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import pytest

import nbx_registry as nbx
from nbx_registry import dtypes, spec

# Triton decides at import whether it compiles or interprets, so what is interpreted runs in a process of its own.
INTERPRETING = os.environ.get("TRITON_INTERPRET") == "1"
collect_ignore = ["interpreted"] if not INTERPRETING else []


@pytest.fixture(scope="session")
def registry() -> nbx.Registry:
    return nbx.load()


@pytest.fixture(scope="session")
def bind(registry: nbx.Registry) -> Callable[..., Any]:
    """Bind a kernel to spec strings: an absent device's launches hold artifacts in place of functions."""

    def bind(kernel: str, tensors: list[str | float | None], device: str, **attributes: Any) -> Any:
        op = registry.ops[registry.kernels[kernel].op.partition("@")[0]]
        specs = [
            None
            if tensor is None
            else spec.parse(tensor)
            if isinstance(tensor, str)
            else spec.TensorSpec(dtypes.get("float64"), (), weak=True)
            for tensor in tensors
        ]
        signature = op.signature(specs, attributes)
        return registry.bind_specs(op.name, signature, device=device, kernel=kernel, require="any")

    return bind
