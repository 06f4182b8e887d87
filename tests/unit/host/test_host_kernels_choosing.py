"""The host's clip and where, of few elements and of more than a block, against NumPy's plain functions."""

import numpy as np
import pytest
import torch
from hosted import FLOATS, run
from running import values

from nbx_registry.host.kernels.blocks import PART, in_parts

FEW, MANY = (7, 129), (129, 1000)
"""Shapes of less and of more than a block."""


@pytest.mark.parametrize("dtype", [*FLOATS, "int8", "int64", "complex64"])
@pytest.mark.parametrize("shape", [FEW, MANY])
@pytest.mark.parametrize("extents", ["whole", "row", "column"])
def test_a_condition_that_broadcasts_chooses_bits(dtype: str, shape: tuple[int, int], extents: str) -> None:
    x1, x2 = values(shape, dtype, 1), values(shape, dtype, 2)
    of_condition = {"whole": shape, "row": shape[1:], "column": (shape[0], 1)}[extents]
    condition = np.random.default_rng(3).random(of_condition) < 0.5
    found = run("where", condition, x1, x2)
    assert found.tobytes() == np.where(condition, x1, x2).tobytes()


@pytest.mark.parametrize("shape", [FEW, MANY])
@pytest.mark.parametrize("first", [True, False])
def test_rows_and_numbers_are_chosen_too(shape: tuple[int, int], first: bool) -> None:
    row, condition = values(shape[1:], "float16", 4), np.random.default_rng(5).random(shape) < 0.5
    given = (row, 0.5) if first else (0.5, row)
    np.testing.assert_array_equal(run("where", condition, *given), np.where(condition, *given))


@pytest.mark.parametrize("shape", [FEW, MANY])
@pytest.mark.parametrize(
    ("first", "second", "common"),
    [("bfloat16", "float32", "float32"), ("float64", "float16", "float64"), ("int8", "uint8", "int16")],
)
def test_the_dtype_that_holds_both_is_chosen_in(shape: tuple[int, int], first: str, second: str, common: str) -> None:
    x1, x2 = values(shape, first, 6), values(shape, second, 7)
    condition = np.random.default_rng(8).random(shape) < 0.5
    found = run("where", condition, x1, x2)
    assert found.dtype == common
    np.testing.assert_array_equal(found, np.where(condition, x1.astype(common), x2.astype(common)))


@pytest.mark.parametrize("shape", [FEW, MANY])
@pytest.mark.parametrize("shift", [0, 1, -1])
def test_the_output_may_be_one_of_the_two_or_lie_across_it(shape: tuple[int, int], shift: int) -> None:
    room = values((shape[0] + 2, shape[1]), "float32", 9)
    x1, out = room[1:-1], room[1 + shift : len(room) - 1 + shift]
    x2, condition = values(shape, "float32", 10), np.random.default_rng(11).random(shape) < 0.5
    for given in ((x1, x2), (x2, x1)):
        expected = np.where(condition, *given)
        run("where", condition, *given, out=out)
        np.testing.assert_array_equal(out, expected)


@pytest.mark.parametrize("dtype", [*FLOATS, "int32"])
@pytest.mark.parametrize("shape", [FEW, MANY])
def test_clip_between_numbers_and_rows(dtype: str, shape: tuple[int, int]) -> None:
    x, low = values(shape, dtype, 12, scale=3), values(shape[1:], dtype, 13)
    one = x.dtype.type(1)
    for bounds in ((-1, 1), (low, 1), (None, low), (low, None), (1, -1)):
        least, most = (x.dtype.type(b) if isinstance(b, int) else b for b in bounds)
        expected = x if least is None else np.maximum(x, least)
        expected = expected if most is None else np.minimum(expected, most)
        np.testing.assert_array_equal(run("clip", x, *bounds) * one, expected * one)


def test_clip_into_its_own_upper_bound() -> None:
    x, low, high = values(FEW, "float32", 14), -np.ones(FEW, np.float32), values(FEW, "float32", 15)
    expected = np.minimum(np.maximum(x, low), high)
    run("clip", x, low, high, out=high)
    np.testing.assert_array_equal(high, expected)


@pytest.mark.parametrize("number", [0.1, -0.0, 1 + 2**-9, 3e38, 2**100, 7, float("inf")])
def test_a_number_beside_bfloat16_is_rounded_once(number: float) -> None:
    x = np.zeros((3,), values((1,), "bfloat16", 1).dtype)
    found = run("where", np.ones(3, bool), number, x)
    expected = torch.tensor([float(number)] * 3, dtype=torch.float64).to(torch.bfloat16)
    assert found.tobytes() == expected.view(torch.int16).numpy().tobytes()


@pytest.mark.parametrize("shape", [(), (5,), (PART + 1,), (3, PART + 1), (129, 9, 127), (2, 3, 16_000)])
def test_parts_cover_an_array_once_and_are_no_larger_than_one(shape: tuple[int, ...]) -> None:
    out = np.zeros(shape, np.int32)
    row, column = np.arange(shape[-1] if shape else 1, dtype=np.int32), np.int32(7)
    for part, number, target in in_parts((row if shape else row[0], column, out)):
        assert target.size <= PART
        target += part + number
    np.testing.assert_array_equal(out, np.broadcast_to(row + 7, shape) if shape else 7)
