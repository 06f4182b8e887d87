"""astype, oracle and host kernel, for every pair of dtypes, saturating or not, against others' conversions."""

from __future__ import annotations

import itertools
import math
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import torch
from hosted import run
from running import oracle

from nbx_registry import dtypes, tensor
from nbx_registry.dtypes import DType

NUMBERS = [0.0, -0.0, 0.1, 0.3, 0.5, 1.0, 1.5, 2.5, 3.5, 4.75, 5.0, 6.0, 7.5, 100.0, 239.9, 247.0, 248.0, 447.0]
NUMBERS += [464.0, 465.0, 57343.0, 61439.0, 61440.0, 65519.0, 65520.0, 1e6, 2.0**31, 3e9, 2.0**63, 1e20, 3.4e38]
NUMBERS += [1e-3, 1e-7, 1e-40, 2.0**-9, 2.0**-10, 2.0**-16, 2.0**-17, 2.0**-25]
NUMBERS += [1 + 2.0**-8, 1 + 3 * 2.0**-8, 1 + 2.0**-11, 1 + 3 * 2.0**-11]
VALUES = np.array([*NUMBERS, *(-v for v in NUMBERS), math.inf, -math.inf, math.nan], np.float32)
"""Ties, ends of ranges and what lies beyond, subnormals: all of them exact in float32."""

PAIRS = [pair for pair in itertools.product(dtypes.TABLE, repeat=2) if pair[0] != "complex64" or pair[1] == "complex64"]


def span(dtype: DType) -> tuple[int, int]:
    info = ml_dtypes.iinfo(dtype.numpy)
    return int(info.min), int(info.max)


def sources(dtype: DType) -> np.ndarray:
    if dtype.kind == "bool":
        return np.array([False, True, True])
    if dtype.integral:
        low, high = span(dtype)
        # 2^24 and fewer bits are exact in float32, from which others convert on.
        wanted = {
            low,
            low + 1,
            -(2**24),
            -129,
            -128,
            -9,
            -8,
            -1,
            0,
            1,
            7,
            8,
            15,
            16,
            100,
            127,
            128,
            255,
            256,
            449,
            65519,
        }
        return np.array(sorted(v for v in wanted if low <= v <= high), "u8" if low == 0 else "i8").astype(dtype.numpy)
    with np.errstate(all="ignore"):
        return VALUES.astype(dtype.numpy)


def overflowing(x: np.ndarray, target: DType) -> np.ndarray:
    """Return integers or exact float32 numbers in a floating dtype, as NumPy, ml_dtypes and torch convert them."""
    with np.errstate(all="ignore"):
        if target.numpy_name == "numpy:float64":
            return x.astype(np.float64)
        # NumPy rounds integers to float32 and float16 once; on from float32 only what is exact there.
        found = x.astype(target.numpy) if x.dtype.kind in "iu" else x.astype(np.float32).astype(target.numpy)
    theirs = getattr(torch, target.name, None)
    if theirs is not None and not target.packed:
        by_torch = torch.from_numpy(x.astype(np.float32)).to(theirs).double().numpy()
        exact = x.astype(np.float32).astype(np.float64) == x.astype(np.float64)
        if target.name == "float8_e4m3fn":
            # torch saturates there, whatever is asked.
            exact &= np.abs(x.astype(np.float64)) < 464
        np.testing.assert_array_equal(found.astype(np.float64)[exact], by_torch[exact])
    return found


def expected(x: np.ndarray, source: DType, target: DType, saturate: bool) -> np.ndarray:
    if target.kind == "bool":
        return x.astype(np.float64) != 0
    if target.floating:
        numbers = x.astype(np.int64) if source.kind == "bool" else x.astype(x.dtype if source.integral else np.float32)
        if source.packed and source.integral:
            numbers = x.astype(np.int32)
        if saturate and source.floating:
            largest = float(ml_dtypes.finfo(target.numpy).max)
            numbers = np.clip(numbers.astype(np.float64), -largest, largest)
        elif saturate and target.bits < 32:
            largest = int(float(ml_dtypes.finfo(target.numpy).max))
            numbers = np.array([max(-largest, min(int(v), largest)) for v in numbers])
        return overflowing(numbers, target)
    low, high = span(target)
    if source.floating:
        whole = [0 if math.isnan(v) else low if v < low else high if v > high else math.trunc(v) for v in map(float, x)]
    else:
        whole = [int(v) for v in x]
        if saturate:
            whole = [max(low, min(v, high)) for v in whole]
        else:
            whole = [(v - low) % (high - low + 1) + low for v in whole]
    return np.array(whole, object).astype(np.uint64 if low == 0 else np.int64).astype(target.numpy)


def settled(x: np.ndarray, source: DType, target: DType, saturate: bool) -> np.ndarray:
    """Return where the contract says what comes out."""
    if not source.floating:
        return np.ones(x.shape, bool)
    wide = x.astype(np.float64)
    if target.name == "float4_e2m1fn":
        return ~np.isnan(wide)
    if target.integral and not saturate:
        low, high = span(target)
        return ~(np.trunc(wide) < low) & ~(np.trunc(wide) >= high + 1)
    return np.ones(x.shape, bool)


def same(found: Any, truth: np.ndarray, where: np.ndarray) -> None:
    got, want = np.asarray(found)[where], truth[where]
    if want.dtype.kind in "iub" or want.dtype in (ml_dtypes.int4, ml_dtypes.uint4):
        assert [int(v) for v in got] == [int(v) for v in want]
        return
    got, want = got.astype(np.float64), want.astype(np.float64)
    np.testing.assert_array_equal(got, want)
    number = ~np.isnan(want)
    np.testing.assert_array_equal(np.signbit(got)[number], np.signbit(want)[number])


@pytest.mark.parametrize("saturate", [False, True], ids=["plain", "saturate"])
@pytest.mark.parametrize(("source", "target"), PAIRS, ids=["-".join(pair) for pair in PAIRS])
def test_every_pair(source: str, target: str, saturate: bool) -> None:
    a, b = dtypes.get(source), dtypes.get(target)
    if b.kind == "complex":
        parts = VALUES.astype(np.float32)
        x = np.stack([parts, parts[::-1]], -1).view(np.complex64)[:, 0] if a.kind == "complex" else sources(a)
        largest = np.finfo(np.float32).max
        halves = [x.real, x.imag] if a.kind == "complex" else [x.astype(np.float32), np.zeros(x.shape)]
        wanted = [np.clip(half, -largest, largest) if saturate else half for half in halves]
        for found in (
            run("astype", x, dtype=b, saturate=saturate),
            oracle("astype", x, dtype=target, saturate=saturate),
        ):
            for part, half in zip((np.real(found), np.imag(found)), wanted, strict=True):
                np.testing.assert_array_equal(part, half)
        return
    x = sources(a)
    truth, where = expected(x, a, b, saturate), settled(x, a, b, saturate)
    assert where.any()
    same(run("astype", x, dtype=b, saturate=saturate), truth, where)
    same(oracle("astype", x, dtype=target, saturate=saturate), truth, where)
    if not saturate and source != target:
        same(tensor.asarray(x, target).numpy(), truth, where)


def test_casting_down_to_float16_overflows_unless_it_saturates() -> None:
    x = np.array([65519.0, 65520.0, 1e6, -1e6])
    assert run("astype", x, dtype=dtypes.get("float16")).tolist() == [65504, math.inf, math.inf, -math.inf]
    found = run("astype", x, dtype=dtypes.get("float16"), saturate=True)
    assert found.tolist() == [65504, 65504, 65504, -65504]
    assert tensor.asarray(x, "float16").numpy().tolist() == [65504, math.inf, math.inf, -math.inf]
