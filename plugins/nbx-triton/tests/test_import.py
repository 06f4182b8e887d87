"""Registering kernels loads no toolkit."""

from __future__ import annotations

import subprocess
import sys

import pytest

TOOLKITS = "{'triton', 'torch', 'cuda', 'tilelang'}"


@pytest.mark.parametrize("module", ["nbx_triton", "nbx_triton.specs", "nbx_triton.plugin"])
def test_importing_loads_no_toolkit(module: str) -> None:
    code = f"import sys, {module}; print(sorted({TOOLKITS} & {{m.partition('.')[0] for m in sys.modules}}))"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"


def test_compiling_imports_no_torch() -> None:
    code = (
        "import sys, nbx_registry as nbx\n"
        "from nbx_registry import spec\n"
        "reg = nbx.load()\n"
        "op = reg.ops['add']\n"
        "sig = op.signature([spec.parse('float16[63]')] * 2, {})\n"
        "bound = reg.bind_specs('add', sig, device='nvidia/h200-sxm', kernel='nbx-triton/add/strided')\n"
        "print(bound.launches[0].function.kind, 'torch' in sys.modules)\n"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == (
        "cubin False\n"
    )


def test_every_reference_names_a_function_that_exists() -> None:
    import importlib

    from nbx_triton.specs import KERNELS

    for kernel in KERNELS:
        module, _, name = str(kernel.bind).partition(":")
        assert callable(getattr(importlib.import_module(module), name)), kernel.id
