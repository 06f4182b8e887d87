"""Kernels that normalise, turn, move and choose compile within the limits of the oldest and of a present device."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import nbx_registry as nbx

CASES = {
    "rms_norm/rows": (["float16[63, 8192]", "float16[8192]"], {}),
    "rms_norm/split": (["float32[3, 70001]", None], {}),
    "group_norm/groups": (["float16[3, 12, 33, 31]", "float16[12]", None], {"groups": 4}),
    "group_norm/split": (["bfloat16[2, 320, 128, 128]", "bfloat16[320]", "bfloat16[320]"], {"groups": 32}),
    "rotary_embedding/tokens": (["float16[2, 8, 63, 128]", "int64[2, 63]", *["float32[99, 64]"] * 2], {}),
    "pixel_shuffle/rows": (["float16[2, 36, 63, 128]"], {"r": 3}),
    "pixel_unshuffle/rows": (["int8[2, 3, 132, 64]"], {"r": 4}),
    "concat/parts": ([("float16[63, 5]", "float32[63, 129]")], {"axis": 1}),
    "take/tiles": (["complex64[7, 63, 129]", "int32[33]"], {"axis": 1}),
    "topk/rows": (["bfloat16[63, 129]"], {"k": 5}),
    "topk/passes": (["float64[63, 129]"], {"k": 5}),
}
WIDE_CASES = {
    "rms_norm/rows": (["float16[65537, 65537]", None], {}),
    "group_norm/groups": (["float16[129, 64, 511, 513]", None, None], {"groups": 32}),
    "rotary_embedding/tokens": (["float16[131101, 4, 33, 128]", "int32[131101, 33]", *["float32[9, 64]"] * 2], {}),
    "pixel_unshuffle/rows": (["int8[524809, 1, 64, 66]"], {"r": 2}),
    "pixel_shuffle/rows": (["int8[16400, 9, 128, 128]"], {"r": 3}),
    "concat/parts": ([("int8[32769, 40009]", "int8[32769, 25528]")], {"axis": 1}),
    "take/tiles": (["int8[32769, 37]", "int32[65537]"], {"axis": 1}),
    "topk/rows": (["int8[2097169, 1025]"], {"k": 3}),
}


@pytest.mark.parametrize("device", ["nvidia/v100-sxm2-16gb", "nvidia/h200-sxm"])
@pytest.mark.parametrize("kernel", CASES)
def test_builds_without_spills(registry: nbx.Registry, bind: Callable[..., Any], kernel: str, device: str) -> None:
    tensors, attributes = CASES[kernel]
    facts = registry.devices[device]
    for launch in bind(f"nbx-triton/{kernel}", tensors, device, **attributes).launches:
        made = launch.function
        assert made.arch == facts.arch
        assert made.shared_bytes <= facts.fact("shared.bytes_per_block_optin")
        assert made.registers * made.threads <= facts.fact("registers.per_block")
        assert made.spills == 0


@pytest.mark.parametrize("kernel", WIDE_CASES)
def test_more_than_2_to_the_31_elements_build(bind: Callable[..., Any], kernel: str) -> None:
    tensors, attributes = WIDE_CASES[kernel]
    bound = bind(f"nbx-triton/{kernel}", tensors, "nvidia/h200-sxm", **attributes)
    assert [launch.function.spills for launch in bound.launches] == [0]


@pytest.mark.parametrize("device", ["nvidia/v100-sxm2-16gb", "nvidia/h200-sxm", "amd/mi300x"])
@pytest.mark.parametrize(
    ("kernel", "tensors", "attributes"),
    [
        ("softmax/rows", ["float16[63, 131072]"], {}),
        ("rms_norm/rows", ["float32[63, 20001]", None], {}),
        ("layer_norm/rows", ["float16[63, 131072]", None, None], {}),
        ("sum/rows", ["float16[128, 131072]"], {"axis": 1}),
        ("max/columns", ["float16[16384, 8192]"], {"axis": 0}),
    ],
    ids=str,
)
def test_a_program_has_as_many_threads_as_a_device_gives_it(
    registry: nbx.Registry,
    bind: Callable[..., Any],
    kernel: str,
    tensors: list[Any],
    attributes: dict[str, Any],
    device: str,
) -> None:
    (step,) = bind(f"nbx-triton/{kernel}", tensors, device, **attributes).launches
    assert 512 <= step.function.threads <= registry.devices[device].fact("threads.per_block")
    assert step.function.spills == 0


def test_selecting_the_best_of_long_rows_fits_one_warp(bind: Callable[..., Any]) -> None:
    bound = bind("nbx-triton/topk/select-64", ["float16[16384, 8192]"], "nvidia/h200-sxm", k=64)
    select, finish = (launch.function for launch in bound.launches)
    assert (select.threads, finish.threads) == (32, 32)
    # Sixteen programs on a multiprocessor: enough loads in flight.
    assert select.registers <= 128
    assert select.spills == finish.spills == 0
