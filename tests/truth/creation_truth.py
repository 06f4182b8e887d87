"""Creation, against torch in float64, NumPy, ml_dtypes and Python's ranges."""

from __future__ import annotations

import itertools

import numpy as np
import torch
from independent import TORCH, Comparer, independent
from running import sign

from nbx_registry import dtypes


@independent("full@1")
def filled(compare: Comparer) -> None:
    for dtype, value in itertools.product(
        ["float16", "float32", "float64"], [0.1, -65504.0, 7, float("nan"), -0.0, 2049]
    ):
        theirs = torch.full((3, 5), value, dtype=TORCH[dtype])
        compare(compare.oracle("full", shape=(3, 5), fill_value=value, dtype=dtype), theirs.double(), "torch", rtol=0)
    for dtype, value in itertools.product(["bfloat16", "float8_e4m3fn", "float8_e5m2"], [0.1, -3.3, 100, 448.0]):
        theirs = np.full(7, np.float32(value)).astype(dtypes.get(dtype).numpy).astype(np.float64)
        compare(compare.oracle("full", shape=7, fill_value=value, dtype=dtype), theirs, "ml_dtypes", rtol=0)
    for dtype, value in [("int8", -128), ("int64", -(2**63)), ("uint64", 2**64 - 1), ("bool", True), ("int4", -8)]:
        ours = compare.oracle("full", shape=(2, 0, 3), fill_value=value, dtype=dtype)
        assert ours.shape == (2, 0, 3)
        ours = compare.oracle("full", shape=(), fill_value=value, dtype=dtype)
        compare(int(ours), value, "Python", rtol=0)
    for value, dtype in [(3, torch.int64), (3.5, torch.float32), (False, torch.bool)]:
        assert sign("full", shape=3, fill_value=value).outputs[0].dtype is dtypes.get(str(dtype)[6:])
        assert torch.full((3,), value).dtype is dtype


@independent("arange@1")
def counted(compare: Comparer) -> None:
    whole = [(5, None, 1), (0, 63, 1), (3, 130, 2), (200, -1, -3), (7, 8, 1000), (5, 5, 1), (5, 3, 1), (-7, 7, 7)]
    for start, stop, step in whole:
        first, end = (0, start) if stop is None else (start, stop)
        for dtype in ("int64", "int16", "float64"):
            ours = compare.oracle("arange", start=start, stop=stop, step=step, dtype=dtype)
            compare(ours, np.array(range(first, end, step), ours.dtype), "Python", rtol=0)
    for first, end, step in [(2**64 - 100, 2**64 - 1, 3), (-(2**63), 2**63, 2**61)]:
        dtype = "uint64" if first > 0 else "int64"
        ours = compare.oracle("arange", start=first, stop=end, step=step, dtype=dtype)
        compare(ours, np.array(range(first, end, step), dtype), "Python", rtol=0)
    floats = [
        (0, 1, 0.1),
        (-1.5, 12.9, 0.3),
        (10.0, -1, -0.07),
        (0, 0.9, 0.3),
        (1, 1.3, 0.1),
        (0.0, -1.0, 0.5),
        (3.5, None, 1),
    ]
    for start, stop, step in floats:
        ours = compare.oracle("arange", start=start, stop=stop, step=step, dtype="float64")
        first, end = (0, start) if stop is None else (start, stop)
        if (end - first) * step < 0:
            # torch refuses an end that lies the other way.
            compare(ours, np.arange(first, end, step), "NumPy", atol=1e-12)
        else:
            compare(ours, torch.arange(first, end, step, dtype=torch.float64), "torch")
            compare(ours, np.arange(first, end, step), "NumPy", atol=1e-12)
