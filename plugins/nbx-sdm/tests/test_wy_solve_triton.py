"""The Triton kernel of ``sdm::wy_solve``: built for each architecture, its numbers from the interpreter."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import nbx_registry as nbx
from nbx_registry.spec import parse

KERNEL = "nbx-sdm/wy_solve/blocks"


@pytest.mark.parametrize("device", ["nvidia/v100-sxm2-16gb", "nvidia/h200-sxm", "nvidia/b200"])
@pytest.mark.parametrize("width", [1, 65, 128])
def test_it_builds_within_the_devices_limits(device: str, width: int) -> None:
    registry = nbx.load()
    op = registry.ops["sdm::wy_solve"]
    square, row = f"float32[3, {width}, {width}]", f"float32[3, {width}]"
    signature = op.signature([parse(square), parse(row), parse(square)], {})
    (launch,) = registry.bind_specs(op.name, signature, device=device, kernel=KERNEL).launches
    made = launch.function
    assert (made.arch, made.threads) == (registry.devices[device].arch, 32)
    assert made.shared_bytes <= 48 * 1024
    assert made.spills == 0


def test_registering_loads_no_toolkit() -> None:
    code = "import sys, nbx_sdm.plugin; print({'triton', 'torch'} & {m.partition('.')[0] for m in sys.modules})"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "set()\n"


def test_its_numbers_interpreted() -> None:
    if os.environ.get("TRITON_INTERPRET") == "1":
        pytest.skip("this is that process")
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", str(Path(__file__).with_name("interpreted"))],
        env={**os.environ, "TRITON_INTERPRET": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-8000:] + done.stderr[-2000:]
