"""The host's Fourier kernels, against torch in float64."""

import numpy as np
import pytest
import torch
from hosted import LAYOUTS, bind, laid_out, run
from running import values

LENGTHS = [1, 2, 3, 8, 63, 127, 129, 1000, 1021]


def near(found: np.ndarray, truth: torch.Tensor, size: np.ndarray) -> None:
    """Assert that each part is within a few roundings of the sum of magnitudes."""
    off = found - truth.numpy()
    assert found.shape == off.shape
    assert np.all(np.maximum(np.abs(off.real), np.abs(off.imag)) <= 2.0**-24 * 8 * size[..., None])


def truth_of_tables(n: int) -> tuple[np.ndarray, np.ndarray]:
    angle = 2 * torch.pi * torch.outer(torch.arange(n // 2 + 1), torch.arange(n)).remainder(n).double() / n
    return angle.cos().numpy(), -angle.sin().numpy()


@pytest.mark.parametrize("n", LENGTHS)
def test_tables_are_rounded_once(n: int) -> None:
    c, s = run("rfft_basis", n=n)
    assert c.dtype == s.dtype == np.float32
    for found, truth in zip((c, s), truth_of_tables(n), strict=True):
        np.testing.assert_allclose(found, truth, rtol=0, atol=2.0**-25 * 1.001)
    assert np.all(c[:, 0] == 1)
    assert np.all(s[:, 0] == 0)


@pytest.mark.parametrize("n", LENGTHS)
def test_tables_of_the_inverse_carry_weights(n: int) -> None:
    c, s = run("irfft_basis", n=n)
    weight = np.full((n // 2 + 1, 1), 2 / n)
    weight[0] = 1 / n
    if n % 2 == 0:
        weight[-1] = 1 / n
    for found, truth in zip((c, s), truth_of_tables(n), strict=True):
        np.testing.assert_allclose(found, weight * truth, rtol=0, atol=2.0**-23 / n)
    assert not s[0].any()
    assert n % 2 or not s[-1].any()


def test_tables_are_written_to_views() -> None:
    room = np.full((2, 33, 200), 7.0, np.float32)
    c, s = run("rfft_basis", n=64)
    program, _ = bind("rfft_basis", n=64)
    program.run([room[0, :, :128:2], room[1, :, :128:2]], None)
    assert np.array_equal(room[0, :, :128:2], c)
    assert np.array_equal(room[1, :, :128:2], s)
    assert np.all(room[..., 1:128:2] == 7)


@pytest.mark.parametrize("n", LENGTHS)
def test_transforms_of_any_length(n: int) -> None:
    x = values((3, 5, n), "float32", 1)
    found = run("rfft", x)
    assert found.dtype == np.complex64
    near(found, torch.fft.rfft(torch.from_numpy(x).double()), np.abs(x).sum(-1))
    y = values((3, 5, n // 2 + 1), "complex64", 2)
    near(run("irfft", y, n=n), torch.fft.irfft(torch.from_numpy(y).to(torch.complex128), n), np.abs(y).sum(-1) / n * 3)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_views(layout: str) -> None:
    x, y = laid_out(values((7, 65), "float32", 3), layout), laid_out(values((7, 33), "complex64", 4), layout)
    near(run("rfft", x), torch.fft.rfft(torch.from_numpy(x.copy()).double()), np.abs(x).sum(-1))
    room = np.full((7, 200), 7.0, np.float32)
    run("irfft", y, n=65, out=room[:, :130:2])
    truth = torch.fft.irfft(torch.from_numpy(y.copy()).to(torch.complex128), 65)
    near(room[:, :130:2], truth, np.abs(y).sum(-1) / 65 * 3)
    assert np.all(room[:, 1:130:2] == 7)


def test_frequencies_that_are_missing_or_too_many() -> None:
    y = values((2, 9), "complex64", 5)
    wide = torch.from_numpy(y).to(torch.complex128)
    for n in (1, 6, 15, 40):
        near(run("irfft", y, n=n), torch.fft.irfft(wide, n), np.abs(y).sum(-1) / n * 3)
    assert run("irfft", y[:, :0], n=5).tolist() == [[0.0] * 5] * 2


def test_imaginary_parts_at_the_ends_are_ignored() -> None:
    y = values((2, 9), "complex64", 6)
    spoilt = y.copy()
    spoilt.imag[:, 0], spoilt.imag[:, 8] = np.nan, np.inf
    assert run("irfft", spoilt, n=16).tobytes() == run("irfft", y, n=16).tobytes()
    assert not np.isfinite(run("irfft", spoilt, n=17)).all()
    spoilt[1] = y[1]
    assert run("irfft", spoilt, n=17)[1].tobytes() == run("irfft", y, n=17)[1].tobytes()


def test_no_rows() -> None:
    assert run("rfft", np.zeros((0, 63), np.float32)).shape == (0, 32)
    assert run("irfft", np.zeros((3, 0, 5), np.complex64), n=8).shape == (3, 0, 8)


def test_a_row_depends_on_no_other() -> None:
    x = values((33, 129), "float32", 7)
    spectrum = run("rfft", x)
    assert run("rfft", x[7]).tobytes() == spectrum[7].tobytes()
    assert run("irfft", spectrum[7], n=129).tobytes() == run("irfft", spectrum, n=129)[7].tobytes()
