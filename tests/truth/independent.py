"""What oracles are compared with: torch in float64 on the CPU, mpmath, ml_dtypes and Python's own integers.

Each function under `independent` compares one op's oracle with something this project did not write. It takes a
`Comparer`, calls it with pairs of results, and is free to choose shapes, dtypes, attributes and special values.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import torch
from running import OPS, oracle

from nbx_registry import dtypes
from nbx_registry.op import Op

Comparison = Callable[["Comparer"], None]

COMPARISONS: list[tuple[tuple[str, ...], Comparison]] = []
"""Ids of ops, and what compares them."""

SPECIAL = np.array([0.0, -0.0, 1.0, -1.0, np.inf, -np.inf, np.nan, 6e-8, -6e-8, 65504.0, -65504.0, 0.1, -3.5, 1e-3])
"""Values of float16, subnormal and largest among them; every floating dtype but float8 has the like."""


def independent(*ops: str) -> Callable[[Comparison], Comparison]:
    """Register a comparison of these ops."""

    def register(function: Comparison) -> Comparison:
        COMPARISONS.append((ops, function))
        return function

    return register


class Comparer:
    """Runs oracles, compares results, and counts both."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self.ran: set[str] = set()

    def oracle(self, op: Op | str, *arrays: Any, **attributes: Any) -> Any:
        """Return what an op's oracle gives."""
        self.ran.add((OPS[op] if isinstance(op, str) else op).id)
        return oracle(op, *arrays, **attributes)

    def __call__(self, ours: Any, theirs: Any, source: str, *, rtol: float = 1e-12, atol: float = 1e-14) -> None:
        """Assert that two results agree: exactly where ``rtol`` is 0 (signs of zeros too), NaN with NaN."""
        found, expected = np.asarray(ours), as_numpy(theirs)
        assert found.shape == expected.shape
        if rtol:
            np.testing.assert_allclose(found, expected, rtol=rtol, atol=atol)
        else:
            np.testing.assert_array_equal(found, expected)
            if found.dtype.kind == "f":
                number = ~np.isnan(found)
                np.testing.assert_array_equal(np.signbit(found)[number], np.signbit(expected)[number])
        self.counts[source] += 1


def as_numpy(value: Any) -> np.ndarray:
    """Return a torch tensor (bfloat16 and float8 as float64) or anything else as a NumPy array."""
    if isinstance(value, torch.Tensor):
        if value.dtype.is_floating_point:
            value = value.to(torch.float64)
        return value.numpy()
    return np.asarray(value)


def wide(array: np.ndarray) -> torch.Tensor:
    """Return a floating array's values as a float64 tensor (a complex one's as complex128, others as they are)."""
    kind = dtypes.of_numpy(array.dtype).kind
    return torch.from_numpy(np.array(array, {"complex": np.complex128, "float": np.float64}.get(kind, array.dtype)))


TORCH = {
    **{name: getattr(torch, name) for name in ("bool", "uint8", "int8", "int16", "int32", "int64")},
    **{name: getattr(torch, name) for name in ("float16", "bfloat16", "float32", "float64")},
    **{name: getattr(torch, name) for name in ("float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz")},
    "complex64": torch.complex64,
}
"""torch's dtypes by our names, as far as it computes with them."""


def as_torch(array: np.ndarray) -> torch.Tensor:
    """Return an array as a tensor of the same dtype and bits."""
    name = dtypes.of_numpy(array.dtype).name
    if array.dtype.kind == "V" or name.startswith(("bfloat", "float8")):
        bits = {1: np.uint8, 2: np.int16}[array.dtype.itemsize]
        return torch.from_numpy(np.ascontiguousarray(array).view(bits).copy()).view(TORCH[name])
    return torch.from_numpy(array.copy())


def special(dtype: str) -> np.ndarray:
    """Return `SPECIAL` in a dtype."""
    with np.errstate(all="ignore"):
        return SPECIAL.astype(dtypes.get(dtype).numpy)


BFLOAT16 = ml_dtypes.bfloat16
