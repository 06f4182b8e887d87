"""Pointwise kernels compile for every architecture, and the dense ones move vectors of 16 bytes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import nbx_registry as nbx

LARGE = "[1048576]"


@pytest.mark.parametrize("device", ["nvidia/v100-sxm2-16gb", "nvidia/b200"])
@pytest.mark.parametrize(
    ("kernel", "tensors"),
    [
        ("tanh/dense", ["bfloat16[1000001]"]),
        ("erf/dense", ["float64[1000001]"]),
        ("maximum/strided", ["float16[63, 129]", "float32[129]"]),
        ("clip/dense", ["float16[1000]", 0.5, None]),
    ],
)
def test_builds_without_spills(
    registry: nbx.Registry, bind: Callable[..., Any], kernel: str, tensors: list[Any], device: str
) -> None:
    (step,) = bind(f"nbx-triton/{kernel}", tensors, device).launches
    assert step.function.spills == 0
    assert step.function.registers * step.function.threads <= registry.devices[device].fact("registers.per_block") // 4


@pytest.mark.parametrize(
    ("kernel", "tensors", "loads", "stores"),
    [
        ("exp/dense", [f"float16{LARGE}"], {".128": 2}, 2),
        ("exp/dense", ["float16[1000001]"], {".128": 2, ".U16": 1}, 2),
        ("maximum/dense", [f"float16{LARGE}", f"float32{LARGE}"], {".64": 2, ".128": 2}, 2),
        ("where/dense", [f"bool{LARGE}", f"float16{LARGE}", f"float16{LARGE}"], {".64": 2, ".128": 4}, 2),
        ("exp/strided", ["float16[1024, 1024];strides=[1, 1024]"], {".128": 2}, 2),
        ("subtract/strided", ["float16[1024, 1024]", "float16[1024]"], {".128": 4}, 2),
    ],
    ids=["even", "ragged", "promoted", "chosen", "transposed", "broadcast"],
)
def test_memory_moves_in_vectors(
    bind: Callable[..., Any],
    sass: Callable[[bytes], str],
    kernel: str,
    tensors: list[str],
    loads: dict[str, int],
    stores: int,
) -> None:
    (step,) = bind(f"nbx-triton/{kernel}", tensors, "nvidia/h200-sxm").launches
    text = sass(step.function.image)
    assert {width: text.count(f"LDG.E{width} ") for width in loads} == loads
    assert text.count("LDG.E") == sum(loads.values())
    assert text.count("STG.E.128 ") == stores
    assert ("STS" in text) == (kernel == "exp/strided")


def test_a_power_s_table_is_looked_up_once_an_element(bind: Callable[..., Any], sass: Callable[[bytes], str]) -> None:
    (step,) = bind("nbx-triton/pow/dense", [f"float16{LARGE}", 1.7], "nvidia/h200-sxm").launches
    text = sass(step.function.image)
    elements = 2**20 // (step.grid[0] * step.function.threads)
    assert text.count("LDS.64 ") == elements
    # Elements are on their way before the table is made.
    assert text.index("LDG.E.128 ") < text.index("STS")


@pytest.mark.parametrize(
    ("kernel", "tensors"),
    [
        ("exp/dense", ["bfloat16[3000000001]"]),
        ("maximum/strided", ["float16[65537, 65537]", "float16[65537]"]),
        ("relu/strided", ["int8[32769, 65537];strides=[1, 32769]"]),
    ],
)
def test_more_than_2_to_the_31_elements_build(bind: Callable[..., Any], kernel: str, tensors: list[str]) -> None:
    (step,) = bind(f"nbx-triton/{kernel}", tensors, "nvidia/h200-sxm").launches
    assert step.function.spills == 0


def test_powers_by_a_table_leave_registers_for_all_warps(registry: nbx.Registry, bind: Callable[..., Any]) -> None:
    device = "nvidia/h200-sxm"
    (step,) = bind("nbx-triton/pow/dense", ["float16[134217728]", 1.7], device).launches
    facts = registry.devices[device]
    all_threads = facts.fact("threads.per_multiprocessor")
    assert step.function.registers * all_threads <= facts.fact("registers.per_multiprocessor")
