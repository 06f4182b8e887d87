"""The Triton kernel of ``sdm::wy_solve`` on the interpreter, against the contract."""

from __future__ import annotations

import numpy as np
import pytest

import nbx_registry as nbx
from nbx_registry import dtypes
from nbx_registry.spec import TensorSpec
from nbx_sdm.contracts import wy_solve
from nbx_triton import interpreter

KERNEL = "nbx-sdm/wy_solve/blocks"


@pytest.fixture(scope="module")
def registry() -> nbx.Registry:
    return nbx.load()


@pytest.fixture(scope="module")
def emulator() -> interpreter.InterpreterRuntime:
    return interpreter.runtime()


def made(chunks: int, width: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return A, beta and QK, NaN wherever they do not count."""
    rng = np.random.default_rng([chunks, width])
    a, qk = (0.3 * rng.standard_normal((2, chunks, width, width))).astype(np.float32)
    a[:, ~np.tri(width, k=-1, dtype=bool)] = np.nan
    qk[:, ~np.tri(width, dtype=bool)] = np.nan
    return a, rng.uniform(0.05, 1, (chunks, width)).astype(np.float32), qk


def describe(x: np.ndarray) -> TensorSpec:
    return TensorSpec(dtypes.of_numpy(x.dtype), x.shape, tuple(s // x.itemsize for s in x.strides))


def solve(
    registry: nbx.Registry, emulator: interpreter.InterpreterRuntime, *arrays: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    signature = wy_solve.signature([describe(x) for x in arrays], {})
    bound = registry.bind_specs(
        wy_solve.name, signature, device="nvidia/h200-sxm", kernel=KERNEL, require="any", runtime=emulator
    )
    x, qx = (np.full(arrays[0].shape, np.nan, np.float32) for _ in range(2))
    bound.program.run([array.ctypes.data for array in (*arrays, x, qx)], None)
    return x, qx


@pytest.mark.parametrize("width", [1, 2, 16, 17, 33, 65])
def test_it_keeps_its_contract(registry: nbx.Registry, emulator: interpreter.InterpreterRuntime, width: int) -> None:
    arrays = made(2, width)
    signature = wy_solve.signature([describe(x) for x in arrays], {})
    expected = wy_solve.run_oracle(signature, arrays)
    allowed = wy_solve.bound(signature, arrays, expected)
    for found, wanted, bound in zip(solve(registry, emulator, *arrays), expected, allowed, strict=True):
        assert (np.abs(found - wanted) <= bound).all()
        above = found[:, ~np.tri(width, dtype=bool)]
        assert (above == 0).all()
        assert not np.signbit(above).any()


def test_it_reads_through_strides(registry: nbx.Registry, emulator: interpreter.InterpreterRuntime) -> None:
    a, beta, qk = made(2, 19)
    plain = solve(registry, emulator, a, beta, qk)
    turned = np.ascontiguousarray(a.transpose(0, 2, 1)).transpose(0, 2, 1)
    spaced = np.zeros((2, 38), np.float32)[:, ::2]
    spaced[:] = beta
    for found, wanted in zip(solve(registry, emulator, turned, spaced, qk), plain, strict=True):
        np.testing.assert_array_equal(found, wanted)


def test_a_chunks_bits_do_not_depend_on_how_many_there_are(
    registry: nbx.Registry, emulator: interpreter.InterpreterRuntime
) -> None:
    arrays = made(4, 17)
    for found, wanted in zip(
        solve(registry, emulator, *(x[2:3] for x in arrays)), solve(registry, emulator, *arrays), strict=True
    ):
        np.testing.assert_array_equal(found[0], wanted[2])


def test_no_chunks_launch_nothing(registry: nbx.Registry) -> None:
    signature = wy_solve.signature([describe(x) for x in made(0, 17)], {})
    assert registry.bind_specs(wy_solve.name, signature, device="nvidia/h200-sxm", kernel=KERNEL).launches == ()
