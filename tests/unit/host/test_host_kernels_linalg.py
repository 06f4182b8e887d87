"""The host's matmul and linear, against torch in float64."""

import hosted
import numpy as np
import pytest
import torch
from hosted import FLOATS, check, run, wide
from running import values

SHAPES = [
    ((33, 65), (65, 17)),
    ((5, 33, 65), (65, 17)),
    ((2, 1, 33, 65), (3, 65, 17)),
    ((65,), (3, 65, 17)),
    ((3, 17, 65), (65,)),
    ((65,), (65,)),
    ((1, 129), (129, 1)),
]


def scaled(shape: tuple[int, ...], dtype: str, seed: int) -> np.ndarray:
    return values(shape, dtype, seed)


def rounding(dtype: str, terms: int) -> dict[str, float]:
    """What float32 sums may be off by, or float64's; narrow results are rounded once from there."""
    unit = 2.0**-53 if dtype == "float64" else 2.0**-24
    return {"ulp": 0.51 if dtype in ("float16", "bfloat16") else 1, "absolute": 8 * unit * terms}


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize(("a", "b"), SHAPES, ids=str)
def test_matmul(dtype: str, a: tuple[int, ...], b: tuple[int, ...]) -> None:
    x1, x2 = scaled(a, dtype, 1), scaled(b, dtype, 2)
    check(run("matmul", x1, x2), torch.matmul(wide(x1), wide(x2)), **rounding(dtype, a[-1]))


def test_matmul_of_views() -> None:
    x1 = values((65, 33), "float32", 3).T
    x2 = values((65, 34), "float32", 4)[:, ::2]
    check(run("matmul", x1, x2), wide(x1) @ wide(x2), **rounding("float32", 65))
    row = np.broadcast_to(values((1, 65), "float32", 5), (33, 65))
    check(run("matmul", row, x2), wide(row) @ wide(x2), **rounding("float32", 65))


def test_a_stack_times_a_matrix_goes_to_an_output_with_strides() -> None:
    x1, x2 = values((3, 5, 65), "float32", 6), values((65, 17), "float32", 7)
    room = np.full((3, 6, 40), 7.0, np.float32)
    run("matmul", x1, x2, out=room[:, :5, :34:2])
    np.testing.assert_allclose(room[:, :5, :34:2], x1 @ x2, rtol=1e-5, atol=1e-5)
    assert np.all(room[:, 5] == 7)
    assert np.all(room[:, :5, 1:34:2] == 7)


@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_products_over_nothing_are_zero(dtype: str) -> None:
    assert np.all(run("matmul", values((4, 0), dtype), values((0, 3), dtype)) == 0)
    assert np.all(run("linear", values((4, 0), dtype), values((3, 0), dtype)) == 0)
    assert run("linear", values((0, 5), dtype), values((3, 5), dtype)).shape == (0, 3)


ACTIVATIONS = {
    None: lambda z: z,
    "relu": torch.relu,
    "gelu": torch.nn.functional.gelu,
    "gelu_tanh": lambda z: torch.nn.functional.gelu(z, approximate="tanh"),
    "silu": torch.nn.functional.silu,
}


@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize("dtype", FLOATS)
def test_linear(dtype: str, activation: str | None) -> None:
    # 700 rows of 33: the epilogue takes more than one block.
    x, w, bias = scaled((7, 100, 65), dtype, 8), scaled((33, 65), dtype, 9), scaled((33,), dtype, 10)
    truth = ACTIVATIONS[activation](wide(x) @ wide(w).T + wide(bias))
    check(run("linear", x, w, bias, activation=activation), truth, **rounding(dtype, 65))


@pytest.mark.parametrize("lead", [(), (1,), (2, 1, 7)], ids=str)
def test_linear_takes_any_number_of_leading_axes(lead: tuple[int, ...]) -> None:
    x, w = values((*lead, 65), "float32", 11), values((17, 65), "float32", 12)
    check(run("linear", x, w), wide(x) @ wide(w).T, **rounding("float32", 65))


def test_linear_of_views() -> None:
    x = values((3, 4, 130), "float32", 13)[:, :, ::2].swapaxes(0, 1)
    w = values((65, 17), "float32", 14).T
    bias = values((34,), "float32", 15)[::2]
    expected = torch.nn.functional.gelu(wide(x) @ wide(w).T + wide(bias))
    check(run("linear", x, w, bias, activation="gelu"), expected, **rounding("float32", 65))
    pitched = values((17, 100), "float32", 16)[:, :65]
    check(run("linear", x, pitched), wide(x) @ wide(pitched).T, **rounding("float32", 65))


@pytest.mark.parametrize("activation", [None, "gelu"])
def test_linear_into_an_output_with_strides(activation: str | None) -> None:
    x, w, bias = values((3, 5, 65), "float32", 17), values((17, 65), "float32", 18), values((17,), "float32", 19)
    expected = run("linear", x, w, bias, activation=activation)
    for place in (np.s_[:, :5, :17], np.s_[:, :5, :34:2]):
        room = np.full((3, 6, 40), 7.0, np.float32)
        run("linear", x, w, bias, activation=activation, out=room[place])
        np.testing.assert_allclose(room[place], expected, rtol=1e-5, atol=1e-5)
        room[place] = 7
        assert np.all(room == 7)


def test_a_narrow_product_of_ones_does_not_stall() -> None:
    ones = np.ones((3, 10_000), np.float16)
    np.testing.assert_array_equal(run("linear", ones, ones[:2]).astype(float), np.full((3, 2), 10_000.0))


def test_nan_passes_every_activation() -> None:
    x, w = values((3, 5), "float32", 20), values((4, 5), "float32", 21)
    x[1, 2] = np.nan
    for activation in ACTIVATIONS:
        found = hosted.run("linear", x, w, activation=activation)
        assert np.isnan(found[1]).all()
        assert not np.isnan(found[[0, 2]]).any()
