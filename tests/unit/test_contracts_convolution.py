"""Contracts of convolution: extents, refusals, edges, and costs that count what lies inside the input."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from running import oracle, outputs, sign, values

from nbx_registry.contracts.convolution import Sweep, floor_sum
from nbx_registry.errors import SignatureError


@pytest.mark.parametrize(
    ("window", "extents"),
    [
        ({}, "31, 61"),
        ({"padding": 1}, "33, 63"),
        ({"stride": 2, "padding": (1, 0)}, "17, 31"),
        ({"stride": (3, 4), "padding": (0, 5), "dilation": (2, 7)}, "10, 15"),
    ],
    ids=str,
)
def test_extents_of_the_output(window: dict[str, Any], extents: str) -> None:
    x = "float16[2, 6, 33, 63]"
    assert outputs("depthwise_conv2d", x, "float16[6, 1, 3, 3]", "float16[6]", **window) == f"float16[2, 6, {extents}]"
    assert outputs("conv2d", x, "float16[8, 3, 3, 3]", groups=2, **window) == f"float16[2, 8, {extents}]"


@pytest.mark.parametrize(
    ("tensors", "window", "words"),
    [
        (("float32[2, 6, 9, 9]", "float32[5, 1, 3, 3]"), {}, "axis C of w is 5, but C of x is 6"),
        (("float32[2, 6, 9, 9]", "float32[6, 2, 3, 3]"), {}, "axis 1 of w is 2, but must be 1"),
        (("float32[2, 6, 9, 9]", "float16[6, 1, 3, 3]"), {}, "w is float16, but x is float32"),
        (("float32[2, 6, 9, 9]", "float32[6, 1, 3, 3]", "float32[5]"), {}, "axis C of bias is 5, but C of x is 6"),
        (("int8[2, 6, 9, 9]", "int8[6, 1, 3, 3]"), {}, "x is int8, but must be floating"),
        (
            ("float32[2, 6, 9, 9]", "float32[6, 1, 3, 3]"),
            {"padding": -1},
            r"min\(padding\) >= 0 \(padding = \(-1, -1\)",
        ),
        (("float32[2, 6, 9, 9]", "float32[6, 1, 3, 3]"), {"stride": (1, 0)}, r"min\(stride\) >= 1 \(stride = \(1, 0\)"),
        (
            ("float32[2, 6, 9, 9]", "float32[6, 1, 3, 3]"),
            {"dilation": 0},
            r"min\(dilation\) >= 1 \(dilation = \(0, 0\)",
        ),
        (("float32[2, 6, 9, 9]", "float32[6, 1, 0, 3]"), {}, "KH >= 1 and KW >= 1"),
        (("float32[2, 6, 9, 9]", "float32[6, 1, 10, 3]"), {}, r"dilation\[0\] \* .*KH = 10, H = 9"),
        (
            ("float32[2, 6, 9, 9]", "float32[6, 1, 3, 3]"),
            {"dilation": (1, 6), "padding": 1},
            r"dilation = \(1, 6\).*W = 9",
        ),
    ],
)
def test_depthwise_convolution_refuses(tensors: tuple[str, ...], window: dict[str, Any], words: str) -> None:
    with pytest.raises(SignatureError, match=words):
        sign("depthwise_conv2d", *tensors, **window)


@pytest.mark.parametrize(
    ("x", "w", "groups", "words"),
    [
        ("float32[2, 6, 9, 9]", "float32[8, 5, 3, 3]", 1, r"C == CG \* groups \(C = 6, CG = 5, groups = 1\)"),
        ("float32[2, 6, 9, 9]", "float32[8, 2, 3, 3]", 3, r"O % groups == 0 \(O = 8, groups = 3\)"),
        ("float32[2, 6, 9, 9]", "float32[8, 6, 3, 3]", 0, r"groups >= 1 \(groups = 0\)"),
        ("float32[2, 6, 9, 9]", "float32[8, 6, 3, 12]", 1, "KW = 12, W = 9"),
    ],
)
def test_convolution_refuses(x: str, w: str, groups: int, words: str) -> None:
    with pytest.raises(SignatureError, match=words):
        sign("conv2d", x, w, groups=groups)


def test_the_filter_is_not_flipped_and_beyond_the_input_there_are_zeros() -> None:
    x, w = np.array([[[[1.0, 2.0, 4.0]]]]), np.array([[[[10.0, 100.0]]]])
    assert oracle("depthwise_conv2d", x, w).tolist() == [[[[210, 420]]]]
    padded = oracle("conv2d", x, w, np.array([1000.0]), padding=(0, 1))
    assert padded.tolist() == [[[[1100, 1210, 1420, 1040]]]]


def test_a_depthwise_convolution_is_one_of_as_many_groups_as_channels() -> None:
    x, w, bias = values((2, 5, 9, 7), "float32", 1), values((5, 1, 3, 2), "float32", 2), values((5,), "float32", 3)
    window = {"stride": (2, 1), "padding": (1, 2), "dilation": (1, 3)}
    alone = [oracle("conv2d", x[:, [c]], w[[c]], bias[[c]], **window) for c in range(5)]
    assert oracle("depthwise_conv2d", x, w, bias, **window) == pytest.approx(np.concatenate(alone, 1), rel=1e-13)
    assert oracle("conv2d", x, w, bias, groups=5, **window) == pytest.approx(np.concatenate(alone, 1), rel=1e-13)


def test_without_channels_or_images_there_is_the_bias_or_nothing() -> None:
    bias = np.array([1.0, -2.0], np.float32)
    empty = np.zeros((1, 0, 4, 4), np.float32)
    found = oracle("conv2d", empty, np.zeros((2, 0, 3, 3), np.float32), bias)
    assert found.tolist() == [[[[1, 1]] * 2, [[-2, -2]] * 2]]
    assert oracle("depthwise_conv2d", empty, np.zeros((0, 1, 3, 3), np.float32)).shape == (1, 0, 2, 2)
    assert outputs("depthwise_conv2d", "float32[0, 3, 9, 9]", "float32[3, 1, 3, 3]") == "float32[0, 3, 7, 7]"


# Costs ----------------------------------------------------------------------------------------------------------------


def sweeps() -> list[Sweep]:
    found: list[Sweep] = []
    for extent, taps, stride, padding, dilation in itertools.product(
        (0, 1, 2, 5, 9), (1, 2, 3, 4), (1, 2, 3, 5), (0, 1, 2, 5), (1, 2, 3, 4)
    ):
        outputs = (extent + 2 * padding - dilation * (taps - 1) - 1) // stride + 1
        if dilation * (taps - 1) + 1 <= extent + 2 * padding:
            found.append(Sweep(extent, outputs, taps, stride, padding, dilation))
    return found


def test_what_a_window_meets_is_what_counting_finds() -> None:
    assert len(sweeps()) > 800
    for sweep in sweeps():
        inside = range(sweep.padding, sweep.padding + sweep.extent)
        met = [
            (tap, place)
            for output in range(sweep.outputs)
            for tap in range(sweep.taps)
            if (place := output * sweep.stride + tap * sweep.dilation) in inside
        ]
        assert sweep.meetings() == len(met), sweep
        assert sweep.taps_used() == len({tap for tap, _ in met}), sweep
        assert sweep.places_read() == len({place for _, place in met}), sweep


def test_what_a_window_meets_takes_no_counting() -> None:
    sweep = Sweep(2**40, 2**40, 2**20 + 1, 1, 2**19, 1)
    # Each end of the input loses the taps beyond it: 1 + 2 + ... + 2^19.
    assert sweep.meetings() == 2**40 * (2**20 + 1) - 2**19 * (2**19 + 1)
    assert (sweep.taps_used(), sweep.places_read()) == (2**20 + 1, 2**40)


@pytest.mark.parametrize(("count", "divisor", "factor", "start"), [(0, 3, 2, 5), (7, 3, 0, 5), (129, 7, 1000, 63)])
def test_floor_sums(count: int, divisor: int, factor: int, start: int) -> None:
    expected = sum((factor * i + start) // divisor for i in range(count))
    assert floor_sum(count, divisor, factor, start) == expected


def test_costs_without_padding_are_closed_forms() -> None:
    cost = (signature := sign("depthwise_conv2d", "float16[2, 6, 33, 63]", "float16[6, 1, 3, 5]")).op.cost(signature)
    assert cost.flops == cost.least_flops == 2 * 2 * 6 * 31 * 59 * 15
    assert cost.bytes_read == 2 * (2 * 6 * 33 * 63 + 6 * 15)
    assert cost.bytes_written == 2 * 2 * 6 * 31 * 59
    assert cost.least_bytes == cost.bytes_read + cost.bytes_written
    assert (cost.unit, cost.dtype.name) == ("vector", "float32")
    signature = sign("conv2d", "float16[2, 6, 33, 63]", "float16[8, 3, 3, 5]", "float16[8]", groups=2)
    cost = signature.op.cost(signature)
    assert cost.flops == cost.least_flops == 2 * 2 * 8 * 31 * 59 * 3 * 15
    assert cost.least_bytes == 2 * (2 * 6 * 33 * 63 + 8 * 3 * 15 + 8 + 2 * 8 * 31 * 59)
    assert (cost.unit, cost.dtype.name) == ("matrix", "float16")


def test_at_the_least_padding_costs_nothing() -> None:
    signature = sign("depthwise_conv2d", "float32[1, 1, 5, 7]", "float32[1, 1, 3, 3]", padding=1)
    cost = signature.op.cost(signature)
    assert cost.flops == 2 * 35 * 9
    # Three taps a place, but for one that is lost at either end.
    assert cost.least_flops == 2 * (3 * 5 - 2) * (3 * 7 - 2)


def test_at_the_least_only_what_is_seen_is_read() -> None:
    # Every second row and third column, and of a single place the filter's middle.
    signature = sign("conv2d", "float32[2, 3, 9, 9]", "float32[4, 3, 1, 1]", stride=(2, 3))
    assert signature.op.cost(signature).least_bytes == 4 * (2 * 3 * 5 * 3 + 4 * 3 + 2 * 4 * 5 * 3)
    signature = sign("conv2d", "float32[2, 3, 1, 1]", "float32[4, 3, 3, 3]", padding=1)
    assert signature.op.cost(signature).least_bytes == 4 * (2 * 3 + 4 * 3 + 2 * 4)
    expanded = sign("conv2d", "float32[2, 3, 9, 9];strides=[0, 81, 9, 1]", "float32[4, 3, 1, 1]", stride=(2, 3))
    assert expanded.op.cost(expanded).least_bytes == 4 * (3 * 5 * 3 + 4 * 3 + 2 * 4 * 5 * 3)
