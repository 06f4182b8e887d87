"""Convolution, against torch in float64 on the CPU."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
from independent import Comparer, independent, wide
from running import values
from torch.nn import functional

FLOATS = ["float16", "bfloat16", "float32", "float64"]
WINDOWS: list[tuple[tuple[int, int], dict[str, Any]]] = [
    ((3, 3), {}),
    ((3, 3), {"padding": 1}),
    ((5, 2), {"stride": (3, 2), "padding": (6, 0)}),
    ((4, 3), {"stride": (2, 4), "dilation": (3, 6), "padding": (5, 3)}),
    ((1, 1), {"stride": 2}),
    ((17, 13), {}),
]


@independent("depthwise_conv2d@1")
def depthwise_convolutions(compare: Comparer) -> None:
    for dtype, (taps, window), biased in itertools.product(FLOATS, WINDOWS, [False, True]):
        x, w = values((2, 5, 17, 13), dtype, 1), values((5, 1, *taps), dtype, 2)
        bias = values((5,), dtype, 3) if biased else None
        theirs = functional.conv2d(wide(x), wide(w), None if bias is None else wide(bias), groups=5, **window)
        compare(compare.oracle("depthwise_conv2d", x, w, bias, **window), theirs, "torch", rtol=1e-11, atol=1e-12)
    x, w = values((1, 2, 9, 9), "float32", 4), values((2, 1, 3, 3), "float32", 5)
    x[0, 0, 4, 4], x[0, 1, 0, 8] = np.nan, np.inf
    theirs = functional.conv2d(wide(x), wide(w), groups=2, padding=1)
    compare(compare.oracle("depthwise_conv2d", x, w, padding=1), theirs, "torch", rtol=1e-11)


@independent("conv2d@1")
def convolutions(compare: Comparer) -> None:
    for dtype, (taps, window), (biased, groups) in itertools.product(
        FLOATS, WINDOWS, [(False, 1), (True, 1), (True, 3), (False, 6)]
    ):
        x, w = values((2, 6, 17, 13), dtype, 6), values((12, 6 // groups, *taps), dtype, 7)
        bias = values((12,), dtype, 8) if biased else None
        theirs = functional.conv2d(wide(x), wide(w), None if bias is None else wide(bias), groups=groups, **window)
        compare(compare.oracle("conv2d", x, w, bias, groups=groups, **window), theirs, "torch", rtol=1e-11, atol=1e-12)
    # In one dimension.
    x, w = values((2, 6, 129), "float32", 9), values((4, 6, 7), "float32", 10)
    theirs = functional.conv1d(wide(x), wide(w), padding=3, stride=2)[:, :, None]
    compare(compare.oracle("conv2d", x[:, :, None], w[:, :, None], padding=(0, 3), stride=(1, 2)), theirs, "torch")
