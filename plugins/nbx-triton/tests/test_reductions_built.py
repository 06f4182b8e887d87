"""pow and reductions compile for every architecture; what is dense in memory moves in vectors of 16 bytes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import nbx_registry as nbx


@pytest.mark.parametrize("device", ["nvidia/v100-sxm2-16gb", "nvidia/b200"])
@pytest.mark.parametrize(
    ("kernel", "tensors", "attributes"),
    [
        ("pow/dense", ["float16[1000001]", 1.7], {}),
        ("pow/dense", ["bfloat16[1000001]", 1.7], {}),
        ("pow/strided", ["float64[63, 129]", "float64[129]"], {}),
        ("prod/rows", ["int8[63, 8192]"], {"axis": 1}),
        ("max/columns", ["float64[8192, 63]"], {"axis": 0}),
        ("max/columns", ["bool[3301, 65]"], {"axis": 0}),
        ("sum/columns", ["float16[16384, 8192]"], {"axis": 0}),
        ("argmax/split-rows", ["bfloat16[3, 131071]"], {"axis": 1}),
    ],
    ids=str,
)
def test_builds_without_spills(
    registry: nbx.Registry,
    bind: Callable[..., Any],
    kernel: str,
    tensors: list[Any],
    attributes: dict[str, Any],
    device: str,
) -> None:
    for step in bind(f"nbx-triton/{kernel}", tensors, device, **attributes).launches:
        made = step.function
        assert made.spills == 0
        assert made.registers * made.threads <= registry.devices[device].fact("registers.per_block")


@pytest.mark.parametrize(
    ("kernel", "tensors", "attributes"),
    [
        ("pow/dense", ["float16[1048576]", 2.0], {}),
        ("prod/rows", ["float16[16384, 8192]"], {"axis": -1}),
        ("max/rows", ["float16[1048576, 64]"], {"axis": -1}),
        ("prod/split-rows", ["float32[134217729]"], {}),
        ("mean/split-columns", ["float32[16384, 512]"], {"axis": 0}),
        ("argmax/columns", ["float16[128, 1048576]"], {"axis": 0}),
        ("prod/columns", ["float16[8192, 128];strides=[1, 8192]"], {"axis": 0}),
    ],
    ids=["pow", "rows", "short", "odd", "shared", "columns", "transposed"],
)
def test_memory_is_read_in_vectors(
    bind: Callable[..., Any], sass: Callable[[bytes], str], kernel: str, tensors: list[Any], attributes: dict[str, Any]
) -> None:
    step = bind(f"nbx-triton/{kernel}", tensors, "nvidia/h200-sxm", **attributes).launches[0]
    text = sass(step.function.image)
    vectors = text.count("LDG.E.128 ") + text.count("LDG.E.EF.128 ")
    assert vectors >= 2
    # The general power has so much to compute that it takes few registers before wide vectors.
    vectors += text.count("LDG.E.64 ") if kernel == "pow/dense" else 0
    # What is left at the end of a row of odd length may be read one by one.
    assert vectors == text.count("LDG.E") or tensors == ["float32[134217729]"]


@pytest.mark.parametrize(
    ("kernel", "tensors", "attributes"),
    [
        ("pow/dense", ["float16[3000000001]", 2.0], {}),
        ("pow/strided", ["float16[65537, 65537]", "float16[65537]"], {}),
        ("prod/rows", ["float16[1048577, 4097]"], {"axis": 1}),
        ("max/columns", ["int8[65537, 65537]"], {"axis": 0}),
        ("argmax/split-rows", ["int8[3000000001]"], {}),
    ],
    ids=str,
)
def test_more_than_2_to_the_31_elements_build(
    bind: Callable[..., Any], kernel: str, tensors: list[Any], attributes: dict[str, Any]
) -> None:
    for step in bind(f"nbx-triton/{kernel}", tensors, "nvidia/h200-sxm", **attributes).launches:
        assert step.function.spills == 0
