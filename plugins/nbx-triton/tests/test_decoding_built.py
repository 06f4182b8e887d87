"""Kernels of the paged cache and of int4 weights compile within limits, with the loads that they are written for."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import Any

import pytest

import nbx_registry as nbx


def paged(dtype: str, heads: tuple[int, int], width: int, page_tokens: int, pages: int = 99) -> list[str]:
    pool = f"{dtype}[{pages}, {heads[1]}, {page_tokens}, {width}]"
    return [f"{dtype}[3, {heads[0]}, {width}]", pool, pool, "int32[3, 33]", "int32[3]"]


def packed(x: str, k: int, n: int) -> list[str]:
    groups = f"float16[{-(-k // 128)}, {n}]"
    return [x, f"int32[{k // 8}, {n}]", groups, groups]


CASES = {
    "paged_decode_attention/split-128": paged("float16", (32, 8), 128, 16),
    "paged_decode_attention/split-129": paged("bfloat16", (3, 1), 129, 24),
    "paged_decode_attention/quarters-128": paged("float16", (32, 8), 128, 64),
    "paged_decode_attention/quarters-1x64": paged("bfloat16", (32, 8), 64, 64),
    "paged_kv_append_step/rows": [
        *["float16[8, 8, 128]"] * 2,
        *["bfloat16[65, 8, 16, 128]"] * 2,
        "int32[8, 64]",
        "int32[8]",
    ],
    "paged_lens_advance/blocks": ["int32[63]"],
    "quantize_int4/groups": ["bfloat16[1000, 129]"],
    "dequant_int4/groups": packed("", 1000, 129)[1:],
    "dequant_gemv_int4/ordered": packed("float16[8192]", 8192, 28672),
    "dequant_gemv_int4/split": packed("bfloat16[8192]", 8192, 2048),
    "dequant_gemv_int4/strips": packed("float32[8192]", 8192, 28672),
    "dequant_gemv_int4/matrix": packed("float16[8192]", 8192, 28672),
    "dequant_matmul_int4/tiles": packed("float32[7, 1000]", 1000, 129),
}
WIDE_CASES = {
    "paged_decode_attention/split": paged("float16", (32, 32), 128, 64, 20011),
    "paged_kv_append_step/rows": [
        *["float16[3, 512, 128]"] * 2,
        *["float16[2053, 512, 16, 128]"] * 2,
        "int32[3, 40]",
        "int32[3]",
    ],
    "dequant_gemv_int4/ordered": packed("float16[1024]", 1024, 16777259),
    "dequant_gemv_int4/strips": packed("bfloat16[1024]", 1024, 16777259),
    "dequant_gemv_int4/matrix": packed("float16[8192]", 8192, 2097153),
    "dequant_matmul_int4/groups": packed("float16[32769, 136]", 136, 65537),
}


OLDEST = ["paged_decode_attention/split-128", "dequant_gemv_int4/ordered", "dequant_matmul_int4/tiles"]


@pytest.mark.parametrize(("device", "kernels"), [("nvidia/v100-sxm2-16gb", OLDEST), ("nvidia/h200-sxm", CASES)])
def test_builds_within_the_devices_limits(
    registry: nbx.Registry, bind: Callable[..., Any], device: str, kernels: Iterable[str]
) -> None:
    facts = registry.devices[device]
    for kernel in kernels:
        for launch in bind(f"nbx-triton/{kernel.partition('-1')[0]}", CASES[kernel], device).launches:
            made = launch.function
            assert made.arch == facts.arch
            assert made.shared_bytes <= facts.fact("shared.bytes_per_block_optin")
            assert made.registers * made.threads <= facts.fact("registers.per_block")
            assert made.spills == 0, kernel


@pytest.mark.parametrize("kernel", WIDE_CASES)
def test_more_than_2_to_the_31_elements_build(bind: Callable[..., Any], kernel: str) -> None:
    bound = bind(f"nbx-triton/{kernel}", WIDE_CASES[kernel], "nvidia/h200-sxm")
    assert not any(launch.function.spills for launch in bound.launches)


def test_the_matrix_unit_multiplies_nibbles_where_there_is_one(
    registry: nbx.Registry, bind: Callable[..., Any]
) -> None:
    tensors = packed("float16[65, 4096]", 4096, 4096)
    bound = bind("nbx-triton/dequant_matmul_int4/groups", tensors, "nvidia/h200-sxm")
    sums, multiply, join = bound.launches
    assert not any(launch.function.spills for launch in (sums, multiply, join))
    # Two rows of tiles, and groups shared twice, are the programs that a device of this size wants.
    assert multiply.grid[0] == 2 * 64 * 2
    decision = registry.decide("dequant_matmul_int4", *tensors, device="nvidia/v100-sxm2-16gb", require="any")
    assert decision.chosen == "nbx-triton/dequant_matmul_int4/tiles"


def test_a_sequence_has_the_programs_that_its_longest_length_wants(bind: Callable[..., Any]) -> None:
    tensors = ["float16[1, 32, 128]", *["float16[512, 8, 16, 128]"] * 2, "int32[1, 512]", "int32[1]"]
    kernel = "nbx-triton/paged_decode_attention"
    attend, join = bind(f"{kernel}/split", tensors, "nvidia/h200-sxm").launches
    assert (attend.grid[0], join.grid[0]) == (8 * 32, 32 * 4)
    assert (attend.early, join.early) == (False, True)
    # Keys and values of a step are under way in registers, in each of the programs that fit on a multiprocessor.
    assert 65536 // (attend.function.registers * attend.function.threads) >= 16
    attend, _ = bind(f"{kernel}/split", tensors, "nvidia/h200-sxm", longest=300).launches
    assert attend.grid[0] == 8 * 2
    attend, join = bind(f"{kernel}/quarters", tensors, "nvidia/a100-sxm4-80gb", longest=300).launches
    assert attend.grid[0] == 8 * 8
    assert not join.early


@pytest.mark.parametrize(
    ("batch", "width", "kernel"),
    [
        (1, 128, "direct-128"),
        (3, 128, "quarters"),
        (8, 128, "split"),
        (1, 64, "direct-64"),
        (8, 64, "split"),
        (1, 96, "quarters"),
    ],
)
def test_few_keys_for_the_device_are_split_further(registry: nbx.Registry, batch: int, width: int, kernel: str) -> None:
    cache = f"float16[{batch}, 8, 8192, {width}]"
    decision = registry.decide(
        "decode_attention", f"float16[{batch}, 32, {width}]", cache, cache, device="nvidia/h200-sxm", require="any"
    )
    assert decision.chosen == f"nbx-triton/decode_attention/{kernel}"


@pytest.mark.parametrize("device", ["nvidia/a100-sxm4-80gb", "nvidia/h200-sxm", "nvidia/rtx-5090"])
@pytest.mark.parametrize("width", [64, 128])
def test_what_is_loaded_is_multiplied_without_shared_memory(
    bind: Callable[..., Any], sass: Callable[[bytes], str], width: int, device: str
) -> None:
    kernel = f"nbx-triton/decode_attention/direct-{width}"
    cache = f"bfloat16[1, 8, 4096, {width}]"
    made = bind(kernel, [f"bfloat16[1, 32, {width}]", cache, cache, None], device).launches[0].function
    assert made.spills == 0
    text = sass(made.image)
    # Of keys and of values, in the first step and in the loop: 16 bytes a thread for each 16 elements of a row.
    assert len(re.findall(r"LDG\.E\.EF\.128", text)) == 4 * width // 16
    # The sums of warps meet in shared memory, once.
    assert len(re.findall(r"\bBAR\.SYNC", text)) == 1
    assert text.rindex("HMMA") < text.index("STS")
