"""The host's int4 kernels: the bytes of dequantise-then-multiply, refusals before writing, threads, memory."""

from __future__ import annotations

import tracemalloc
from typing import Any

import numpy as np
import pytest
from running import oracle, sign, values

import nbx_registry as nbx
from nbx_registry import dtypes
from nbx_registry.host.kernels import quantized
from nbx_registry.host.kernels.quantized import TILE, product, unpacked
from nbx_registry.host.kernels.widening import widen


@pytest.fixture(scope="module")
def reg() -> nbx.Registry:
    return nbx.load(require="any")


def packed(k: int, n: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng([seed, k, n])
    groups = -(-k // 128)
    words = rng.integers(-(2**31), 2**31, (k // 8, n)).astype(np.int32)
    return words, values((groups, n), "float16", 1, 0.02), values((groups, n), "float16", 2, 0.1)


@pytest.mark.parametrize("shape", [(8, 1), (128, 63), (136, 127), (1000, 33), (264, 4099), (5000, 3)], ids=str)
@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32"])
def test_packing_is_the_oracles_to_the_bit(reg: nbx.Registry, dtype: str, shape: tuple[int, int]) -> None:
    w = values(shape, dtype, scale=0.02)
    for ours, wanted in zip(reg.call("quantize_int4", w), oracle("quantize_int4", w), strict=True):
        assert ours.tobytes() == wanted.astype(ours.dtype).tobytes()


def test_a_weight_seen_sideways_packs_the_same(reg: nbx.Registry) -> None:
    w = values((264, 1031), "float16")
    for ours, wanted in zip(reg.call("quantize_int4", w.T.copy().T), reg.call("quantize_int4", w), strict=True):
        assert ours.tobytes() == wanted.tobytes()


@pytest.mark.parametrize("block_n", [1, 8, 64])
@pytest.mark.parametrize(("k", "n"), [(8, 3), (136, 65), (1000, 127), (4096, 64)])
def test_a_fused_product_has_the_bytes_of_dequantise_then_multiply(k: int, n: int, block_n: int) -> None:
    """The two add up tiles of the same shape in the same order; where the numbers come from must not show."""
    w, scale, zero_min = packed(k, n)
    weight = oracle("dequant_int4", w, scale, zero_min).astype(np.float32)
    for x in (values((1, k), "float32", 3), values((5, k), "float16", 3)):
        fused, apart = np.empty((2, len(x), n), np.float32)
        product(x, unpacked(w, scale, zero_min), fused, k, n, width=block_n)
        product(x, lambda rows, columns: np.ascontiguousarray(weight[rows, columns]), apart, k, n, width=block_n)
        assert fused.tobytes() == apart.tobytes()


def test_rows_past_the_end_add_exactly_0(reg: nbx.Registry) -> None:
    # The last group of 136 rows has 8. Were the other 120 added as their minimum, each would add 30000.
    w, scale, zero_min = packed(136, 5)
    zero_min[...] = 30000
    x = np.zeros(136, np.float32)
    x[128:] = 1
    weight = oracle("dequant_int4", w, scale, zero_min)
    np.testing.assert_allclose(reg.call("dequant_gemv_int4", x, w, scale, zero_min), weight[128:].sum(0), rtol=1e-6)


@pytest.mark.parametrize("op", ["dequant_gemv_int4", "dequant_matmul_int4"])
@pytest.mark.parametrize("kernel", ["numpy", "composed"])
@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32"])
def test_products_are_within_their_bound(reg: nbx.Registry, op: str, kernel: str, dtype: str) -> None:
    weight = packed(1000, 1031)
    x = values((1000,) if op == "dequant_gemv_int4" else (65, 1000), dtype, 3)
    y = reg.call(op, x, *weight, kernel=f"nbx-host/{op}/{kernel}")
    signature = sign(op, x, *weight)
    (reference,) = signature.op.run_oracle(signature, [x, *weight])
    (bound,) = signature.op.bound(signature, [x, *weight], (reference,))
    assert (np.abs(y.astype(np.float64) - reference) <= bound).all()


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32"])
def test_a_number_that_is_not_finite_is_named_and_nothing_written(reg: nbx.Registry, dtype: str, value: float) -> None:
    w = values((264, 5), dtype)
    w[200, 3] = value
    out = refused(reg, w, rf"w holds {value} at \[200, 3\]")
    assert all((array == 77).all() for array in out)


def refused(reg: nbx.Registry, w: np.ndarray, message: str) -> list[np.ndarray]:
    signature = sign("quantize_int4", w)
    out = [np.full(spec.shape, 77, spec.dtype.numpy) for spec in signature.outputs]
    with pytest.raises(nbx.SignatureError, match=message):
        reg.call("quantize_int4", w, out=tuple(out))
    return out


@pytest.mark.parametrize("dtype", ["bfloat16", "float32"])
def test_a_range_beyond_float16_is_named_and_nothing_written(reg: nbx.Registry, dtype: str) -> None:
    w = values((264, 5), dtype)
    w[130, 2] = -1e5
    out = refused(reg, w, r"group 1 of column 2 of w goes from -(1e\+05|100000\.0|99840\.0)")
    assert all((array == 77).all() for array in out)


def test_a_large_number_whose_group_float16_holds_is_packed(reg: nbx.Registry) -> None:
    w = values((264, 5), "float32")
    w[130, 2] = 7e4
    for ours, wanted in zip(reg.call("quantize_int4", w), oracle("quantize_int4", w), strict=True):
        assert ours.tobytes() == wanted.astype(ours.dtype).tobytes()


def test_results_do_not_depend_on_threads(reg: nbx.Registry, monkeypatch: pytest.MonkeyPatch) -> None:
    w, weight = values((1160, 4099), "float16", scale=0.02), packed(1160, 4099)
    matrix, vector = values((3, 1160), "float16", 3), values((1160,), "float16", 3)
    found: list[list[bytes]] = []
    for threads in ("1", "2", "5"):
        monkeypatch.setenv("NBX_HOST_THREADS", threads)
        results: list[Any] = [
            *reg.call("quantize_int4", w),
            reg.call("dequant_int4", *weight),
            reg.call("dequant_gemv_int4", vector, *weight),
            reg.call("dequant_matmul_int4", matrix, *weight),
        ]
        found.append([array.tobytes() for array in results])
    assert found[0] == found[1] == found[2]


def test_packing_holds_a_few_tiles_beside_its_output(reg: nbx.Registry, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NBX_HOST_THREADS", "2")
    monkeypatch.setattr(quantized, "TILE", TILE // 8)
    w = values((4096, 2048), "float16")
    packed, scale, zero_min = reg.call("quantize_int4", w)
    out = np.empty((4096, 2048), np.float32)
    tracemalloc.start()
    try:
        reg.call("quantize_int4", w, out=(packed, scale, zero_min))
        packing = tracemalloc.get_traced_memory()[1]
        tracemalloc.reset_peak()
        reg.call("dequant_int4", packed, scale, zero_min, out=out)
        unpacking = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    # Both are a small share of the 32 MB that the weight has in float32.
    assert packing < 2 * 3 * 4 * quantized.TILE
    assert unpacking < 2 * 3 * 4 * quantized.TILE


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_widening_is_exact_for_every_finite_number(dtype: str) -> None:
    every = np.arange(2**16, dtype=np.uint16).view(dtypes.get(dtype).numpy)
    with np.errstate(all="ignore"):
        every = every[np.isfinite(every)]
    out = np.empty(every.shape, np.float32)
    widen(every, out)
    wanted = every.astype(np.float32)
    assert out.tobytes() == wanted.tobytes()
