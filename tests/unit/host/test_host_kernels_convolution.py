"""The host's convolutions, against torch in float64."""

from typing import Any

import numpy as np
import pytest
import torch
from hosted import FLOATS, LAYOUTS, check, laid_out, run, wide
from running import sign, values

import nbx_registry as nbx
from nbx_registry.host.kernels import convolution


def truth_of(x: np.ndarray, w: np.ndarray, bias: np.ndarray | None, **attributes: Any) -> torch.Tensor:
    return torch.nn.functional.conv2d(wide(x), wide(w), None if bias is None else wide(bias), **attributes)


def tolerance(dtype: str, terms: int) -> dict[str, float]:
    """What float32 sums may be off by, or float64's; narrow results are rounded once from there."""
    unit = 2.0**-53 if dtype == "float64" else 2.0**-24
    return {"ulp": 0.51 if dtype in ("float16", "bfloat16") else 1, "absolute": 8 * unit * terms}


@pytest.fixture(params=[False, True], ids=["one-block", "many-blocks"], autouse=True)
def blocks(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run everything as it comes, and again with blocks so small that every axis is cut."""
    if request.param:
        monkeypatch.setattr(convolution, "BLOCK", 40)
        monkeypatch.setattr(convolution, "WINDOWS", 200)


WINDOWS = [
    ((33, 17), (3, 3), {}),
    ((33, 17), (3, 3), {"padding": 1}),
    ((33, 17), (3, 5), {"stride": 2, "padding": (1, 2)}),
    ((33, 17), (5, 2), {"stride": (3, 2), "padding": (7, 0)}),
    ((33, 17), (3, 3), {"dilation": 2, "padding": 2}),
    ((33, 17), (4, 3), {"stride": (2, 4), "dilation": (3, 6), "padding": (5, 3)}),
    ((33, 17), (1, 1), {}),
    ((33, 17), (1, 1), {"stride": 3}),
    ((1, 129), (1, 7), {"padding": (0, 3)}),
    ((33, 17), (33, 17), {}),
    ((1, 1), (3, 3), {"padding": 1}),
    ((2, 3), (1, 1), {"padding": (4, 5), "stride": 4}),
]


@pytest.mark.parametrize(("image", "taps", "window"), WINDOWS, ids=str)
def test_windows_of_a_depthwise_convolution(image: tuple[int, int], taps: tuple[int, int], window: Any) -> None:
    x, w, bias = values((2, 5, *image), "float32", 1), values((5, 1, *taps), "float32", 2), values((5,), "float32", 3)
    found = run("depthwise_conv2d", x, w, bias, **window)
    check(found, truth_of(x, w, bias, groups=5, **window), **tolerance("float32", taps[0] * taps[1]))


@pytest.mark.parametrize("groups", [1, 3])
@pytest.mark.parametrize(("image", "taps", "window"), WINDOWS, ids=str)
def test_windows_of_a_convolution(image: tuple[int, int], taps: tuple[int, int], window: Any, groups: int) -> None:
    x, w = values((2, 6, *image), "float32", 4), values((9, 6 // groups, *taps), "float32", 5)
    bias = values((9,), "float32", 6)
    found = run("conv2d", x, w, bias, groups=groups, **window)
    check(found, truth_of(x, w, bias, groups=groups, **window), **tolerance("float32", 6 * taps[0] * taps[1]))


@pytest.mark.parametrize("padding", [0, 1])
@pytest.mark.parametrize("dtype", FLOATS)
def test_narrow_products_are_in_float32_whatever_the_padding(dtype: str, padding: int) -> None:
    x, w = values((3, 4, 19, 7), dtype, 7, 30), values((4, 1, 3, 3), dtype, 8)
    found = run("depthwise_conv2d", x, w, padding=padding)
    check(found, truth_of(x, w, None, padding=padding, groups=4), **tolerance(dtype, 9 * 100))
    w = values((6, 2, 3, 3), dtype, 9)
    found = run("conv2d", x, w, padding=padding, groups=2)
    check(found, truth_of(x, w, None, padding=padding, groups=2), **tolerance(dtype, 18 * 100))


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("op", ["depthwise_conv2d", "conv2d"])
def test_views(op: str, layout: str) -> None:
    groups = 4 if op == "depthwise_conv2d" else 1
    x, w, bias = values((3, 4, 13, 9), "float32", 10), values((4, 4 // groups, 3, 3), "float32", 11), None
    if layout == "expanded":
        x, bias = np.broadcast_to(x[:1], x.shape), np.broadcast_to(np.float32(0.5), (4,))
    else:
        x, w = laid_out(x, layout), laid_out(w, layout)
    room = np.full((3, 4, 12, 20), 7.0, np.float32)
    target = room[:, :, 1:12, ::3]
    run(op, x, w, bias, out=target)
    check(target, truth_of(x, w, bias, groups=groups), **tolerance("float32", 36))
    assert np.all(room[:, :, 0] == 7)
    assert np.all(room[..., 1::3] == 7)
    pointwise = laid_out(values((3, 4, 1, 1), "float32", 12), layout)
    for stack in (x, x.transpose(0, 1, 3, 2), x[:, :, ::-1]):
        check(run("conv2d", stack, pointwise), truth_of(stack, pointwise, None), **tolerance("float32", 4))


@pytest.mark.parametrize("shape", [(0, 4, 5, 5), (2, 0, 5, 5)])
def test_nothing_to_convolve(shape: tuple[int, ...]) -> None:
    x = np.zeros(shape, np.float32)
    found = run("depthwise_conv2d", x, np.zeros((shape[1], 1, 3, 3), np.float32))
    assert found.shape == (*shape[:2], 3, 3)
    bias = values((6,), "float32", 13)
    found = run("conv2d", x, np.zeros((6, shape[1], 3, 3), np.float32), bias)
    assert np.array_equal(found, np.broadcast_to(bias[:, None, None], (shape[0], 6, 3, 3)))


def test_infinities_and_nan_reach_the_windows_that_cover_them() -> None:
    x, w = values((1, 2, 9, 9), "float32", 14), values((2, 1, 3, 3), "float32", 15)
    x[0, 0, 4, 4], x[0, 1, 0, 8] = np.nan, np.inf
    check(
        run("depthwise_conv2d", x, w, padding=1), truth_of(x, w, None, padding=1, groups=2), **tolerance("float32", 9)
    )
    w = values((3, 2, 3, 3), "float32", 16)
    check(run("conv2d", x, w, padding=1), truth_of(x, w, None, padding=1), **tolerance("float32", 18))


def test_a_channel_depends_on_no_other() -> None:
    x, w = values((3, 33, 19, 7), "float16", 17), values((33, 1, 3, 3), "float16", 18)
    together = run("depthwise_conv2d", x, w, padding=1, stride=2)
    alone = run("depthwise_conv2d", x[1:2, 4:5], w[4:5], padding=1, stride=2)
    assert together[1, 4].tobytes() == alone.tobytes()


@pytest.mark.parametrize("dtype", FLOATS)
def test_a_depthwise_convolution_composed_of_a_grouped_one_is_within_the_bound(dtype: str) -> None:
    reg = nbx.load(require="any")
    x, w, bias = values((2, 5, 17, 9), dtype, 20, 8), values((5, 1, 3, 2), dtype, 21), values((5,), dtype, 22)
    window = {"stride": (2, 1), "padding": 1, "dilation": (1, 2)}
    composed = "nbx-host/depthwise_conv2d/composed"
    found = reg.call("depthwise_conv2d", x, w, bias, **window, kernel=composed)
    signature = sign("depthwise_conv2d", x, w, bias, **window)
    reference = signature.op.run_oracle(signature, [x, w, bias])
    (bound,) = signature.op.bound(signature, [x, w, bias], reference)
    assert np.all(np.abs(found.astype(np.float64) - reference[0]) <= bound)
    empty = np.zeros((2, 0, 9, 9), np.float32)
    decision = reg.decide("depthwise_conv2d", empty, np.zeros((0, 1, 3, 3), np.float32))
    assert decision.chosen == "nbx-host/depthwise_conv2d/numpy"
