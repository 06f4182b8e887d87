"""depthwise_conv2d, conv2d."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

SLIDE, GATHER = "nbx-triton/depthwise_conv2d/slide", "nbx-triton/depthwise_conv2d/gather"


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
@pytest.mark.parametrize(
    ("shape", "taps", "padding"),
    [
        ((2, 5, 9, 24), (3, 3), 1),
        ((1, 3, 6, 17), (3, 3), (0, 2)),
        ((2, 3, 1, 127), (1, 7), (0, 3)),
        ((1, 2, 7, 16), (5, 4), (1, 9)),
        ((1, 2, 3, 8), (3, 8), 2),
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
