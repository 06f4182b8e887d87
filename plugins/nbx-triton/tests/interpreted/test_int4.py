"""quantize_int4, dequant_int4, dequant_gemv_int4, dequant_matmul_int4."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from nbx_registry import Registry, dtypes, spec
from nbx_registry.runtime import Runtime


def packed(rng: np.random.Generator, k: int, n: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Draw words of all bits, and scales and minima of the size of real ones."""
    groups = -(-k // 128)
    words = rng.integers(-(2**31), 2**31, (k // 8, n)).astype(np.int32)
    scale = rng.uniform(0.001, 0.02, (groups, n)).astype(np.float16)
    return words, scale, (rng.standard_normal((groups, n)) * 0.1).astype(np.float16)


@pytest.mark.parametrize(("dtype", "k", "n"), [("float32", 8, 1), ("bfloat16", 136, 65), ("float16", 264, 33)], ids=str)
def test_quantize(check: Callable, normal: Callable, dtype: str, k: int, n: int) -> None:
    check("nbx-triton/quantize_int4/groups", normal(dtype, k, n))
    check("nbx-triton/quantize_int4/groups", normal(dtype, n, k).T[:, ::-1])


def test_quantize_constant_and_shifted_groups(check: Callable, normal: Callable) -> None:
    w = normal("float32", 136, 5)
    w[:, 0], w[:, 1], w[:, 2] = 0, -0.0, 1000.3
    w[:, 3] += 1000
    check("nbx-triton/quantize_int4/groups", w)


@pytest.mark.parametrize(("k", "n"), [(8, 1), (136, 65), (128, 63)], ids=str)
def test_dequant(check: Callable, rng: np.random.Generator, k: int, n: int) -> None:
    check("nbx-triton/dequant_int4/groups", *packed(rng, k, n))
    words, scale, zero_min = packed(rng, k, 2 * n)
    check("nbx-triton/dequant_int4/groups", words[:, ::-2], scale[::, ::2], np.asfortranarray(zero_min[:, :n]))


GEMV = ["ordered", "split", "strips"]


@pytest.mark.parametrize(
    ("k", "n", "dtype"), [(136, 127, "float16"), (392, 65, "bfloat16"), (136, 33, "float32")], ids=str
)
@pytest.mark.parametrize("variant", GEMV)
def test_gemv(
    check: Callable, normal: Callable, rng: np.random.Generator, variant: str, k: int, n: int, dtype: str
) -> None:
    check(f"nbx-triton/dequant_gemv_int4/{variant}", normal(dtype, k), *packed(rng, k, n))


@pytest.mark.parametrize(("k", "n"), [(136, 127), (392, 65), (2048, 128)], ids=str)
def test_gemv_on_the_matrix_unit(check: Callable, normal: Callable, rng: np.random.Generator, k: int, n: int) -> None:
    words, scale, zero_min = packed(rng, k, n)
    check("nbx-triton/dequant_gemv_int4/matrix", normal("float16", k), words, scale, zero_min)
    # Rows past the last add nothing, whatever scale and minimum are.
    zero_min[-1, : n // 2] = 1000
    check("nbx-triton/dequant_gemv_int4/matrix", normal("float16", k), words, scale, zero_min[:, ::-1])
    words[:9] = 0
    x = normal("float16", k)
    x[5], x[130] = np.inf, 65504
    check("nbx-triton/dequant_gemv_int4/matrix", x, words[:, ::-1], scale, np.full_like(scale, 0.1))


@pytest.mark.parametrize("kernel", [*(f"dequant_gemv_int4/{variant}" for variant in GEMV), "dequant_matmul_int4/tiles"])
def test_rows_past_the_end_add_nothing(
    check: Callable, normal: Callable, rng: np.random.Generator, kernel: str
) -> None:
    words, scale, zero_min = packed(rng, 136, 33)
    zero_min[:] = 30000
    x = normal("float32", 136) if "gemv" in kernel else normal("float32", 3, 136)
    check(f"nbx-triton/{kernel}", x, words, scale, zero_min)
    zero_min[1] = np.inf
    check(f"nbx-triton/{kernel}", np.abs(x), words, scale, zero_min)


@pytest.mark.parametrize(
    "kernel", [*(f"dequant_gemv_int4/{variant}" for variant in GEMV), "dequant_matmul_int4/groups"]
)
def test_infinities_meet_weights_and_not_nibbles(
    check: Callable, normal: Callable, rng: np.random.Generator, kernel: str
) -> None:
    words, scale, _ = packed(rng, 136, 33)
    words[:9] = 0
    x = normal("float16", 136) if "gemv" in kernel else normal("float16", 3, 136)
    x[..., 5], x[..., 130] = np.inf, 65504
    if "matmul" in kernel:
        x[1, 8] = np.nan
    check(f"nbx-triton/{kernel}", x, words, scale, np.full_like(scale, 0.1))


def test_products_too_large_for_float32_before_they_are_scaled(check: Callable, rng: np.random.Generator) -> None:
    x = np.full(136, 2e38, np.float32)
    x[1:] = 1e30
    words, scale, zero_min = packed(rng, 136, 33)
    check("nbx-triton/dequant_gemv_int4/split", x, words, scale, np.abs(zero_min))


@pytest.fixture
def ordered(registry: Registry, emulator: Runtime) -> Callable[..., np.ndarray]:
    """Run the ordered kernel with settings."""

    def ordered(*arrays: np.ndarray, **settings: int) -> np.ndarray:
        signature = registry.ops["dequant_gemv_int4"].signature(
            [spec.TensorSpec(dtypes.of_numpy(array.dtype), array.shape) for array in arrays], {}
        )
        bound = registry.bind_specs(
            "dequant_gemv_int4",
            signature,
            device="nvidia/h200-sxm",
            kernel="nbx-triton/dequant_gemv_int4/ordered",
            require="any",
            runtime=emulator,
            settings=settings,
        )
        out = np.empty(signature.outputs[0].shape, signature.outputs[0].dtype.numpy)
        bound.program.run([array.ctypes.data for array in (*arrays, out)], None)
        return out

    return ordered


@pytest.mark.parametrize(("k", "n", "block_n"), [(264, 3, 1), (392, 17, 8), (392, 65, 64)], ids=str)
def test_the_bits_of_a_gemv_are_those_of_dequantising_first(
    run: Callable, ordered: Callable, normal: Callable, rng: np.random.Generator, k: int, n: int, block_n: int
) -> None:
    x, (words, scale, zero_min) = normal("float16", k), packed(rng, k, n)
    (weights,) = run("nbx-triton/dequant_int4/groups", words, scale, zero_min)
    # Sixteen sums a column, one a row of words in a group: groups in order, the lowest nibble first.
    padded = np.zeros((-(-k // 128) * 128, n), np.float32)
    padded[:k] = weights
    factors = np.zeros(len(padded), np.float32)
    factors[:k] = x
    sums = np.zeros((16, n), np.float32)
    for group in range(0, len(padded), 128):
        for i in range(8):
            # The emulator rounds a fused multiply-add twice.
            sums = factors[group + i : group + 128 : 8, None] * padded[group + i : group + 128 : 8] + sums
    while len(sums) > 1:
        sums = sums[: len(sums) // 2] + sums[len(sums) // 2 :]
    out = ordered(x, words, scale, zero_min, block_n=block_n)
    np.testing.assert_array_equal(out, sums[0].astype(np.float16))


@pytest.mark.parametrize(
    ("m", "k", "n", "dtype"), [(1, 264, 33, "float16"), (65, 136, 33, "bfloat16"), (17, 136, 33, "float32")], ids=str
)
def test_matmul(
    check: Callable, normal: Callable, rng: np.random.Generator, m: int, k: int, n: int, dtype: str
) -> None:
    x, weights = normal(dtype, m, k), packed(rng, k, n)
    check("nbx-triton/dequant_matmul_int4/tiles", x, *weights)
    if dtype != "float32":
        check("nbx-triton/dequant_matmul_int4/groups", x, *weights)
        check("nbx-triton/dequant_matmul_int4/groups", normal(dtype, k, m).T, *(a[:, ::-1] for a in weights))


def test_matmul_rounds_no_weight_to_16_bits(run: Callable) -> None:
    # 15 * 1.0009765625 + 0.0001: float16 has no such number near 15.
    words = np.full((16, 16), -1, np.int32)
    scale, zero_min = np.full((1, 16), 1.0009765625, np.float16), np.full((1, 16), 0.0001, np.float16)
    x = np.eye(16, 128, dtype=np.float16) - np.eye(16, 128, 1, dtype=np.float16) * np.float16(0.99)
    (out,) = run("nbx-triton/dequant_matmul_int4/groups", x, words, scale, zero_min)
    weight = np.float32(15) * scale.astype(np.float32) + zero_min.astype(np.float32)
    wanted = x.astype(np.float64).sum(1)[:, None] * weight
    np.testing.assert_allclose(out, wanted, rtol=2**-11)


def test_sums_over_nothing_are_0(run: Callable) -> None:
    nothing = np.zeros((0, 5), np.int32), np.zeros((0, 5), np.float16), np.zeros((0, 5), np.float16)
    (out,) = run("nbx-triton/dequant_gemv_int4/ordered", np.zeros(0, np.float16), *nothing)
    assert out.shape == (5,)
    assert (out == 0).all()
    (out,) = run("nbx-triton/dequant_matmul_int4/tiles", np.zeros((3, 0), np.float16), *nothing)
    assert out.shape == (3, 5)
    assert (out == 0).all()
