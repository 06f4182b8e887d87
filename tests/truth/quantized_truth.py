"""Quantised weights, against torch: its float32 arithmetic, rounding to float16, shifts, and float64 products."""

from __future__ import annotations

import numpy as np
import torch
from independent import Comparer, as_torch, independent
from running import values

SIZES = [(8, 1), (128, 63), (136, 5), (264, 33), (1000, 7)]


def weights() -> list[np.ndarray]:
    found = [values(size, dtype, scale=0.02) for size in SIZES for dtype in ("float16", "bfloat16", "float32")]
    constant = [np.full((136, 3), value, np.float32) for value in (0.0, 0.1, -3.3, 1000.3)]
    shifted = [values((264, 33), "float32", 5) + np.float32(1000), values((136, 9), "float32", 6, 1e-6)]
    return [*found, *constant, *shifted]


def packing(w: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return packed words, scales and minima, group after group, row after row."""
    w = w.float()
    k, n = w.shape
    packed = torch.zeros((k // 8, n), dtype=torch.int64)
    scales, minima = [], []
    for start in range(0, k, 128):
        rows = w[start : start + 128]
        scale = ((rows.amax(0) - rows.amin(0)) / 15).half()
        scale = torch.where(scale == 0, torch.ones_like(scale), scale)
        least = rows.amin(0).half() + 0.0
        q = torch.round((rows - least.float()) / scale.float()).clamp(0, 15).long()
        for row in range(len(rows)):
            packed[(start + row) // 8] |= q[row] << (4 * ((start + row) % 8))
        scales.append(scale)
        minima.append(least)
    # Words beyond 2^31 are negative ones.
    return torch.where(packed < 2**31, packed, packed - 2**32).int(), torch.stack(scales), torch.stack(minima)


def unpacking(packed: torch.Tensor, scale: torch.Tensor, zero_min: torch.Tensor) -> torch.Tensor:
    """Return the weight in float64, before it is rounded to float32."""
    words = packed.long() % 2**32
    q = torch.stack([(words >> (4 * i)) & 15 for i in range(8)], 1).reshape(-1, packed.shape[1])
    groups = torch.arange(len(q)) // 128
    return q.double() * scale.double()[groups] + zero_min.double()[groups]


@independent("quantize_int4@1")
def weights_in_four_bits(compare: Comparer) -> None:
    for w in weights():
        for ours, theirs in zip(compare.oracle("quantize_int4", w), packing(as_torch(w)), strict=True):
            compare(ours, theirs, "torch", rtol=0)


@independent("dequant_int4@1", "dequant_gemv_int4@1", "dequant_matmul_int4@1")
def weights_out_of_four_bits(compare: Comparer) -> None:
    rng = np.random.default_rng(4)
    for k, n in SIZES:
        groups = -(-k // 128)
        w = rng.integers(-(2**31), 2**31, (k // 8, n)).astype(np.int32)
        scale, zero_min = values((groups, n), "float16", 1, 0.02), values((groups, n), "float16", 2)
        weight = unpacking(*map(torch.from_numpy, (w, scale, zero_min))).float().double()
        compare(compare.oracle("dequant_int4", w, scale, zero_min), weight, "torch", rtol=0)
        for dtype in ("float16", "bfloat16", "float32"):
            x = values((5, k), dtype, 3)
            theirs = as_torch(x).double() @ weight
            compare(compare.oracle("dequant_matmul_int4", x, w, scale, zero_min), theirs, "torch")
            compare(compare.oracle("dequant_gemv_int4", x[2], w, scale, zero_min), theirs[2], "torch")
