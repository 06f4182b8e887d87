"""The host's kernel of ``sdm::wy_solve``, against torch's triangular solve in float64."""

from typing import Any

import numpy as np
import pytest
import torch

from nbx_registry.interop import adapter
from nbx_registry.launch import BindContext
from nbx_sdm.contracts import wy_solve
from nbx_sdm.kernels.wy_solve_numpy import bind
from nbx_sdm.specs import KERNELS


def chunks(n: int, c: int, scale: float = 0.1) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return A, beta and QK, NaN wherever they do not count."""
    rng = np.random.default_rng([n, c])
    a, qk = (scale * rng.standard_normal((2, n, c, c))).astype(np.float32)
    a[:, ~np.tri(c, k=-1, dtype=bool)] = np.nan
    qk[:, ~np.tri(c, dtype=bool)] = np.nan
    return a, rng.uniform(0.5, 1, (n, c)).astype(np.float32), qk


def solve(a: np.ndarray, beta: np.ndarray, qk: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    specs = [found.spec(x) for x in (a, beta, qk) if (found := adapter(x)) is not None]
    kernel = next(k for k in KERNELS if k.backend == "numpy")
    device: Any = None
    context = BindContext(kernel=kernel, signature=wy_solve.signature(specs, {}), device=device, settings={})
    x, qx = np.full(a.shape, np.nan, np.float32), np.full(a.shape, np.nan, np.float32)
    bind(context).function(a, beta, qk, x, qx)
    return x, qx


def truth(a: np.ndarray, beta: np.ndarray, qk: np.ndarray) -> tuple[torch.Tensor, torch.Tensor]:
    width = a.shape[-1]
    strict = torch.from_numpy(np.where(np.tri(width, k=-1, dtype=bool), a, 0).astype(np.float64))
    lower = strict * torch.from_numpy(beta.astype(np.float64))[:, :, None]
    eye = torch.eye(width, dtype=torch.float64).expand_as(lower)
    x = torch.linalg.solve_triangular(eye + lower, eye, upper=False, unitriangular=True)
    return x, torch.from_numpy(np.where(np.tri(width, dtype=bool), qk, 0).astype(np.float64)) @ x


@pytest.mark.parametrize("scale", [0.1, 0.4])
@pytest.mark.parametrize("c", [1, 2, 16, 17, 65, 129])
def test_it_is_the_inverse_rounded_once(c: int, scale: float) -> None:
    given = chunks(3, c, scale)
    for found, expected in zip(solve(*given), truth(*given), strict=True):
        np.testing.assert_allclose(found, expected.numpy(), rtol=2**-23, atol=1e-12 * float(expected.abs().max()))


def test_above_the_diagonal_is_plus_zero() -> None:
    for found in solve(*chunks(3, 33)):
        above = found[:, ~np.tri(33, dtype=bool)]
        assert np.all(above == 0)
        assert not np.signbit(above).any()


def test_a_chunks_bits_do_not_depend_on_how_many_there_are() -> None:
    a, beta, qk = chunks(700, 40)  # more than are held at once
    x, qx = solve(a, beta, qk)
    for n in (0, 333, 699):
        alone = solve(a[n : n + 1], beta[n : n + 1], qk[n : n + 1])
        assert np.array_equal(alone[0][0], x[n])
        assert np.array_equal(alone[1][0], qx[n])


def test_views_and_nothing() -> None:
    a, beta, qk = chunks(6, 34)
    some = a.swapaxes(1, 2)[::2, ::2, 1::2].swapaxes(1, 2)
    once = np.broadcast_to(qk[:1, ::2, ::2], (3, 17, 17))
    seen = (some, beta[::2, ::2], once)
    for found, expected in zip(solve(*seen), solve(*(x.copy() for x in seen)), strict=True):
        assert np.array_equal(found, expected)
    assert solve(*chunks(0, 17))[0].shape == (0, 17, 17)
