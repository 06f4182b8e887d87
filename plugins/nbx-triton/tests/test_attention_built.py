"""Attention compiles within every architecture's limits, with the products and the registers that it is written for."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest

import nbx_registry as nbx

SIXTEEN_BITS = ["nvidia/a100-sxm4-80gb", "nvidia/l40s", "nvidia/h200-sxm", "nvidia/b200", "nvidia/rtx-5090"]
"""Products of every architecture on which Triton uses the matrix unit."""

HEADS = "float16[32, 12, 128, 32];strides=[49152, 32, 384, 1]"
CASES = {
    "online-128": ("online", ["float16[4, 32, 4096, 128]", *["float16[4, 8, 4096, 128]"] * 2, None]),
    "online-rows": ("online", [*["bfloat16[2, 8, 1000, 96]"] * 3, "bool[1000, 1000]"]),
    "online-keys": ("online", [*["bfloat16[2, 8, 1000, 96]"] * 3, "float16[2, 1, 1, 1000]"]),
    "short-32": ("short", [*[HEADS] * 3, "bool[32, 1, 1, 128]"]),
    "short-128": ("short", [*["float16[2, 8, 100, 128]"] * 3, "float32[100, 100]"]),
}


@pytest.mark.parametrize("device", SIXTEEN_BITS)
@pytest.mark.parametrize("case", CASES)
def test_builds_within_the_devices_limits(
    registry: nbx.Registry, bind: Callable[..., Any], case: str, device: str
) -> None:
    kernel, tensors = CASES[case]
    (launch,) = bind(f"nbx-triton/scaled_dot_product_attention/{kernel}", tensors, device, causal=True).launches
    facts, made = registry.devices[device], launch.function
    assert made.shared_bytes <= facts.fact("shared.bytes_per_block_optin")
    assert made.registers * made.threads <= facts.fact("registers.per_block")
    # A few registers may spill; a tile that does not fit by far is a mistake in its size.
    assert made.spills <= 128


def test_weights_stay_in_registers(bind: Callable[..., Any], sass: Callable[[bytes], str]) -> None:
    kernel, tensors = CASES["online-128"]
    name = f"nbx-triton/scaled_dot_product_attention/{kernel}"
    text = sass(bind(name, tensors, "nvidia/h200-sxm", causal=True).launches[0].function.image)
    # Two loops of 8 steps of 16 along the width and 4 along the keys, the latter with A in registers.
    assert len(re.findall(r"HGMMA\.64x64x16\.F32 R\d+, gdesc", text)) == 16
    assert len(re.findall(r"HGMMA\.64x128x16\.F32 R\d+, R\d+, gdesc", text)) == 8


@pytest.mark.parametrize("width", [64, 128])
def test_products_of_both_groups_of_warps_go_on_while_weights_are_made(
    bind: Callable[..., Any], sass: Callable[[bytes], str], width: int
) -> None:
    tensors = [f"float16[4, 32, 4096, {width}]", *[f"float16[4, 8, 4096, {width}]"] * 2, None]
    kernel = "nbx-triton/scaled_dot_product_attention/warps"
    made = bind(kernel, tensors, "nvidia/h200-sxm", causal=True).launches[0].function
    assert made.threads == 384
    assert made.registers * made.threads <= 65536
    assert made.spills <= 64
    text = re.findall(r"HGMMA|MUFU\.EX2|WARPGROUP\.DEPBAR|SHFL\.BFLY", sass(made.image))
    # From the products that are waited for first, over 66 powers, to the wait for the others.
    order = "".join({"H": "h", "M": "x", "W": "w", "S": ""}[word[0]] for word in text)
    steps = re.findall("h" * (width // 16 + 8) + "w" + "x" * 66 + "w", order)
    # A loop of cut blocks and one of whole ones, for each group.
    assert len(steps) == 4
