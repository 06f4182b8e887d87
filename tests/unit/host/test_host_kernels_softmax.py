"""The host's softmax down columns, in planes larger than a block and in single columns."""

import numpy as np
import pytest
import torch
from hosted import FLOATS, check, run, wide
from running import values

from nbx_registry.host.kernels.blocks import add_down


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize(("shape", "axis"), [((63, 1, 129), 0), ((2, 1000, 129), 1), ((3, 127, 1), 1), ((300, 600), 0)])
def test_columns_are_weighted(dtype: str, shape: tuple[int, ...], axis: int) -> None:
    x = values(shape, dtype, 1)
    check(run("softmax", x, axis=axis), torch.softmax(wide(x), axis), ulp=1 if dtype.endswith("16") else 24)


@pytest.mark.parametrize("rows", [7, 257, 1000])
def test_a_column_depends_on_no_other(rows: int) -> None:
    x = values((rows, 600), "float32", 2)
    whole = run("softmax", x, axis=0)
    for columns in (slice(0, 1), slice(599, 600), slice(3, 5), slice(100, 400)):
        assert run("softmax", x[:, columns], axis=0).tobytes() == whole[:, columns].tobytes()


def test_many_rows_of_ones_are_not_miscounted() -> None:
    ones = np.full((100_000, 2), 0.1, np.float32)
    np.testing.assert_allclose(add_down(ones), ones.astype(np.float64).sum(0, keepdims=True), rtol=2e-6)
