"""Products of a few rows compile within limits on every architecture, their matrices read by 16 bytes."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import triton

import nbx_registry as nbx

CASES = {
    "linear/few": ["bfloat16[4, 2048]", "bfloat16[3000, 2048]", "bfloat16[3000]"],
    "linear/row": ["float32[1, 2048]", "float32[3000, 2048]", "float32[3000]"],
    "matmul/few": ["float32[8, 2048]", "float32[2048, 3000]"],
    "matmul/row": ["float16[33, 2048]", "float16[2048]"],
}


@pytest.mark.parametrize("device", ["nvidia/v100-sxm2-16gb", "nvidia/h200-sxm", "nvidia/rtx-5090"])
@pytest.mark.parametrize("kernel", CASES)
def test_builds_within_the_devices_limits(
    registry: nbx.Registry, bind: Callable[..., Any], kernel: str, device: str
) -> None:
    facts = registry.devices[device]
    (launch,) = bind(f"nbx-triton/{kernel}", CASES[kernel], device).launches
    made = launch.function
    assert made.shared_bytes <= facts.fact("shared.bytes_per_block_optin")
    assert made.registers * made.threads <= facts.fact("registers.per_block")
    assert made.spills == 0


def test_more_than_2_to_the_31_elements_build(bind: Callable[..., Any]) -> None:
    tensors = ["float16[1, 32768]", "float16[65544, 32768]", None]
    (launch,) = bind("nbx-triton/linear/row", tensors, "nvidia/h200-sxm").launches
    assert launch.function.spills == 0


def test_a_row_of_results_reads_16_bytes_at_a_time(bind: Callable[..., Any], tmp_path: Path) -> None:
    tensors = ["float16[1, 2048]", "float16[8192, 2048]", None]
    (launch,) = bind("nbx-triton/linear/row", tensors, "nvidia/h200-sxm").launches
    image = tmp_path / "kernel.cubin"
    image.write_bytes(launch.function.image)
    tool = Path(triton.__file__).parent / "backends" / "nvidia" / "bin" / "cuobjdump"
    text = subprocess.run([tool, "-sass", image], check=True, capture_output=True, text=True).stdout
    wide, all_loads = (sum(load in line for line in text.splitlines()) for load in ("LDG.E.128", "LDG.E"))
    assert 0 < wide == all_loads


@pytest.mark.parametrize(
    ("op", "tensors", "variant"),
    [
        ("linear", ["float16[1, 2048]", "float16[2048, 2048]", None], "row"),
        ("linear", ["float16[4, 2048]", "float16[2048, 2048]", None], "few"),
        ("matmul", ["float16[2, 2048]", "float16[2048, 2048]"], "few"),
        ("matmul", ["float16[2048, 2048]", "float16[2048]"], "row"),
    ],
    ids=str,
)
def test_a_few_rows_take_these(registry: nbx.Registry, op: str, tensors: list[str | None], variant: str) -> None:
    decision = registry.decide(op, *tensors, device="nvidia/h200-sxm", require="any")
    assert decision.chosen == f"nbx-triton/{op}/{variant}"


INT4 = ["float16[8192]", "int32[1024, 28672]", "float16[64, 28672]", "float16[64, 28672]"]
INT4_UNEVEN = ["float16[8200]", "int32[1025, 28671]", "float16[65, 28671]", "float16[65, 28671]"]


@pytest.mark.parametrize("device", ["nvidia/a100-sxm4-80gb", "nvidia/h200-sxm", "nvidia/rtx-5090"])
@pytest.mark.parametrize("tensors", [INT4, INT4_UNEVEN], ids=["even", "uneven"])
def test_int4_on_the_matrix_unit_stays_in_registers(
    registry: nbx.Registry, bind: Callable[..., Any], tensors: list[str], device: str
) -> None:
    (launch,) = bind("nbx-triton/dequant_gemv_int4/matrix", tensors, device).launches
    made = launch.function
    assert made.registers * made.threads <= registry.devices[device].fact("registers.per_block")
    assert made.spills == 0


def test_int4_words_stay_with_the_threads_that_loaded_them(
    bind: Callable[..., Any], sass: Callable[[bytes], str]
) -> None:
    (launch,) = bind("nbx-triton/dequant_gemv_int4/matrix", INT4, "nvidia/h200-sxm").launches
    lines = sass(launch.function.image).splitlines()
    products = [number for number, line in enumerate(lines) if "HMMA" in line]
    assert products
    loop = "\n".join(lines[products[0] : products[-1]])
    assert loop.count("LDG.E.EF.128") == 16
    assert not any(word in loop for word in ("LDS", "STS", "BAR"))
