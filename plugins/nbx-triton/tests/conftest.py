"""Fixtures: kernels bound from spec strings for a device that need not be present."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import triton
import triton.language as tl

import nbx_registry as nbx
from nbx_registry import dtypes, spec
from nbx_triton.compiler import Options, Source

# Triton decides at import whether it compiles or interprets, so what is interpreted runs in a process of its own.
INTERPRETING = os.environ.get("TRITON_INTERPRET") == "1"
collect_ignore = ["interpreted"] if not INTERPRETING else []


@pytest.fixture(scope="session")
def registry() -> nbx.Registry:
    return nbx.load()


@pytest.fixture(scope="session")
def bind(registry: nbx.Registry) -> Callable[..., Any]:
    """Bind a kernel to spec strings: an absent device's launches hold artifacts in place of functions."""

    def bind(kernel: str, tensors: list[str | tuple[str, ...] | float | None], device: str, **attributes: Any) -> Any:
        op = registry.ops[registry.kernels[kernel].op.partition("@")[0]]
        specs = [
            None
            if tensor is None
            else spec.parse(tensor)
            if isinstance(tensor, str)
            else tuple(map(spec.parse, tensor))
            if isinstance(tensor, tuple)
            else spec.TensorSpec(dtypes.get("float64"), (), weak=True)
            for tensor in tensors
        ]
        signature = op.signature(specs, attributes)
        return registry.bind_specs(op.name, signature, device=device, kernel=kernel, require="any")

    return bind


@triton.jit
def _scale(x, out, factor, count, BLOCK: tl.constexpr):
    index = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    value = tl.load(x + index, mask=index < count)
    tl.store(out + index, value * factor + 1.0, mask=index < count)


@pytest.fixture(scope="session")
def source() -> Callable[..., Source]:
    """A small function with its types; keyword arguments change what is stated of it."""
    plain = Source(
        function=_scale,
        signature=(("x", "*fp32"), ("out", "*fp32"), ("factor", "fp32"), ("count", "i32"), ("BLOCK", "constexpr")),
        constants=(((4,), 256),),
        divisible=((0,), (1,)),
    )
    return lambda **changes: replace(plain, **changes)


@pytest.fixture(scope="session")
def options() -> Options:
    return Options(num_warps=2, num_stages=1, enable_fp_fusion=False)


@pytest.fixture
def sass(tmp_path: Path) -> Callable[[bytes], str]:
    """What the machine runs: a cubin to its disassembly."""

    def disassembled(image: bytes) -> str:
        file = tmp_path / "kernel.cubin"
        file.write_bytes(image)
        tool = Path(triton.__file__).parent / "backends" / "nvidia" / "bin" / "cuobjdump"
        return subprocess.run([tool, "-sass", file], check=True, capture_output=True, text=True).stdout

    return disassembled
