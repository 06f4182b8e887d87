"""Convolutions and Fourier transforms compile within the limits of the oldest and of a present device."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import nbx_registry as nbx

CASES = {
    "depthwise_conv2d/slide": (["float16[2, 96, 1, 1000]", "float16[96, 1, 1, 7]", None], {"padding": (0, 3)}),
    "depthwise_conv2d/gather": (["float32[2, 5, 33, 17]", "float32[5, 1, 4, 3]", None], {"stride": 2}),
    "conv2d/tiles": (["float16[2, 17, 33, 31]", "float16[65, 17, 3, 3]", "float16[65]"], {"padding": 1}),
    "conv2d/channels-last": (["bfloat16[8, 128, 64, 64]", "bfloat16[256, 128, 3, 3]", None], {"padding": 1}),
    "rfft/butterflies": (["float32[63, 16]"], {}),
    "irfft/products": (["complex64[63, 201]"], {"n": 400}),
    "rfft_basis/tables": ([], {"n": 1000}),
}
WIDE_CASES = {
    "depthwise_conv2d/slide": (["float16[65537, 8, 1, 8192]", "float16[8, 1, 1, 3]", None], {}),
    "conv2d/channels-last": (["float16[8209, 16, 257, 257]", "float16[64, 16, 3, 3]", None], {"stride": 2}),
    "irfft/butterflies": (["complex64[134217728, 17]"], {"n": 32}),
    "rfft_basis/tables": ([], {"n": 70001}),
}
ABSENT = {("conv2d/channels-last", "nvidia/v100-sxm2-16gb")}
"""What a device lacks the means for."""


@pytest.mark.parametrize(
    ("kernel", "device"),
    [
        (kernel, device)
        for kernel in CASES
        for device in ("nvidia/v100-sxm2-16gb", "nvidia/h200-sxm")
        if (kernel, device) not in ABSENT
    ],
)
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
    for launch in bind(f"nbx-triton/{kernel}", tensors, "nvidia/h200-sxm", **attributes).launches:
        assert launch.function.spills == 0


def test_inputs_of_a_depthwise_convolution_stay_in_registers(bind: Callable[..., Any]) -> None:
    tensors = ["float32[2, 5, 24, 40]", "float32[5, 1, 3, 3]", None]
    (launch,) = bind("nbx-triton/depthwise_conv2d/slide", tensors, "nvidia/h200-sxm", padding=1).launches
    assert launch.shared_bytes == 0
    assert launch.function.registers <= 64


def test_images_that_lie_channel_by_channel_are_not_packed(bind: Callable[..., Any]) -> None:
    tensors = ["float16[2, 64, 9, 8];strides=[4608, 1, 512, 64]", "float16[64, 64, 3, 3]", None]
    launches = bind("nbx-triton/conv2d/channels-last", tensors, "nvidia/h200-sxm").launches
    assert [launch.function.entry for launch in launches] == ["pack_filters", "channels_last"]


@pytest.mark.parametrize(("channels", "size", "tile"), [(64, 64, 64 * 64), (320, 64, 128 * 256), (640, 64, 128 * 128)])
def test_tiles_of_a_convolution_leave_few_multiprocessors_idle(
    bind: Callable[..., Any], channels: int, size: int, tile: int
) -> None:
    tensors = [f"float16[2, {channels}, {size}, {size}]", f"float16[{channels}, {channels}, 3, 3]", None]
    launch = bind("nbx-triton/conv2d/channels-last", tensors, "nvidia/h200-sxm", padding=1).launches[-1]
    filters = -(-channels // 128) * 128 if channels > 64 else 64
    assert launch.grid[0] * tile == 2 * size * size * filters


def test_a_transform_of_1024_numbers_is_exchanged_within_a_warp(bind: Callable[..., Any]) -> None:
    (launch,) = bind("nbx-triton/rfft/butterflies", ["float32[4096, 1024]"], "nvidia/h200-sxm").launches
    assert launch.function.threads == 32
    assert launch.shared_bytes <= 4096
    # Twelve warps on a multiprocessor.
    assert launch.function.registers <= 168
    assert launch.function.spills == 0
