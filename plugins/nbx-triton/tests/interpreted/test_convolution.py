"""depthwise_conv2d, conv2d."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

SLIDE, GATHER = "nbx-triton/depthwise_conv2d/slide", "nbx-triton/depthwise_conv2d/gather"


@pytest.mark.parametrize(
    ("dtype", "shape", "taps", "padding"),
    [
        ("float16", (2, 5, 9, 24), (3, 3), 1),
        ("float32", (2, 5, 9, 24), (3, 3), 1),
        ("bfloat16", (1, 3, 6, 17), (3, 3), (0, 2)),
        ("float32", (2, 3, 1, 127), (1, 7), (0, 3)),
        ("bfloat16", (2, 3, 1, 128), (1, 7), (0, 3)),
        ("float64", (1, 2, 7, 16), (5, 4), (1, 9)),
        ("float16", (1, 2, 3, 8), (3, 8), 2),
    ],
    ids=str,
)
def test_depthwise(check: Callable, normal: Callable, dtype: str, shape: tuple, taps: tuple, padding: object) -> None:
    x, w = normal(dtype, *shape), normal(dtype, shape[1], 1, *taps)
    check(SLIDE, x, w, normal(dtype, shape[1]), padding=padding)


def test_depthwise_of_views(check: Callable, normal: Callable) -> None:
    w, bias = normal("float32", 6, 1, 3, 3)[::-2], normal("float32", 6)[::2]
    for x in (
        normal("float32", 2, 9, 16, 3).transpose(0, 3, 1, 2),
        normal("float32", 2, 3, 9, 36)[..., 4:20],
        normal("float32", 2, 3, 9, 16)[..., ::-1],
        np.broadcast_to(normal("float32", 1, 3, 1, 16), (2, 3, 9, 16)),
    ):
        check(SLIDE, x, w, bias, padding=1)
        check(GATHER, x, w, bias, padding=1)


@pytest.mark.parametrize(
    "window",
    [
        {"stride": 2, "padding": 1},
        {"stride": (3, 1), "dilation": 2},
        {"stride": (2, 4), "padding": (5, 3), "dilation": (3, 6)},
    ],
    ids=str,
)
def test_depthwise_of_any_window(check: Callable, normal: Callable, window: dict) -> None:
    check(GATHER, normal("float16", 2, 5, 13, 14), normal("float16", 5, 1, 4, 3), None, **window)


TILES, PACKED = "nbx-triton/conv2d/tiles", "nbx-triton/conv2d/channels-last"


@pytest.mark.parametrize(
    ("dtype", "shape", "filters", "window"),
    [
        ("float16", (2, 5, 9, 7), (17, 5, 3, 3), {"padding": 1}),
        ("float64", (2, 5, 9, 7), (17, 5, 3, 3), {"padding": 1}),
        ("float32", (1, 6, 12, 9), (8, 3, 2, 3), {"groups": 2, "stride": (2, 1), "padding": 3, "dilation": (1, 2)}),
        ("bfloat16", (2, 33, 5, 8), (70, 33, 1, 1), {}),
        ("float16", (2, 33, 4, 8), (70, 33, 1, 1), {}),
        ("float16", (1, 3, 1, 65), (5, 3, 1, 7), {"stride": (1, 3)}),
    ],
    ids=str,
)
def test_tiles(check: Callable, normal: Callable, dtype: str, shape: tuple, filters: tuple, window: dict) -> None:
    check(TILES, normal(dtype, *shape), normal(dtype, *filters), normal(dtype, filters[0]), **window)


@pytest.mark.parametrize(
    ("dtype", "shape", "filters", "window"),
    [
        ("float16", (2, 16, 9, 8), (70, 16, 3, 3), {"padding": 1}),
        ("bfloat16", (1, 70, 7, 7), (5, 70, 1, 1), {}),
        ("float16", (1, 34, 8, 9), (6, 17, 2, 3), {"groups": 2, "stride": (2, 1), "padding": 3, "dilation": (1, 2)}),
    ],
    ids=str,
)
def test_channels_last(
    check: Callable, normal: Callable, dtype: str, shape: tuple, filters: tuple, window: dict
) -> None:
    check(PACKED, normal(dtype, *shape), normal(dtype, *filters), normal(dtype, filters[0]), **window)


def test_convolution_of_views(check: Callable, normal: Callable) -> None:
    last = normal("float16", 2, 7, 5, 32).transpose(0, 3, 1, 2)
    bias = normal("float16", 16)[::2]
    for x in (last, last[:, ::-1], np.broadcast_to(normal("float16", 1, 16, 7, 1), (2, 16, 7, 5))):
        filters = normal("float16", 3, 3, x.shape[1], 8).transpose(3, 2, 0, 1)
        check(PACKED, x, filters, bias, padding=1)
        check(TILES, x, filters, bias, padding=1)
        check(TILES, x, filters[:, :, 1:2, 1:2], bias)


def test_no_channels_leave_the_bias(check: Callable, normal: Callable) -> None:
    check(TILES, normal("float32", 2, 0, 9, 9), normal("float32", 4, 0, 3, 3), normal("float32", 4))
