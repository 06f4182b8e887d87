"""mean, prod, max and argmax, against torch, math.fsum and Python's integers."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import torch
from elementwise_truth import AXES, FLOATS, INTEGERS, extremes, integers, span, wrapped
from independent import Comparer, as_torch, independent, special, wide
from running import values

ALL = (0, 1, 2)


@independent("mean@1")
def means(compare: Comparer) -> None:
    for dtype, axis, keepdims in itertools.product([*FLOATS, "complex64"], AXES, [False, True]):
        x = values((5, 7, 9), dtype)
        theirs = torch.mean(wide(x), ALL if axis is None else axis, keepdim=keepdims)
        compare(compare.oracle("mean", x, axis=axis, keepdims=keepdims), theirs, "torch")
    for dtype, axis in itertools.product(["bool", *INTEGERS], AXES):
        x = values((5, 7, 9), dtype)
        theirs = torch.mean(as_torch(x).to(torch.float64), ALL if axis is None else axis)
        compare(compare.oracle("mean", x, axis=axis), theirs, "torch")
    for dtype in ("int64", "uint64", "int4", "uint4"):
        x = extremes(dtype)
        whole = [int(v) for v in x.tolist()]
        compare(compare.oracle("mean", x), sum(whole) / len(whole), "Python")
    for x in (special("float64"), np.zeros((0, 3)), np.array([np.inf, 1.0]), np.array([np.inf, -np.inf])):
        compare(compare.oracle("mean", x), torch.mean(wide(x)), "torch")
    nothing = np.ones((2, 0, 3))
    compare(compare.oracle("mean", nothing, axis=1), torch.mean(wide(nothing), 1), "torch")
    tenths = np.full(1001, 0.1)
    compare(compare.oracle("mean", tenths), math.fsum(tenths.tolist()) / 1001, "Python")


@independent("prod@1")
def products(compare: Comparer) -> None:
    for dtype, axis, keepdims in itertools.product([*FLOATS, "complex64"], AXES, [False, True]):
        x = values((3, 4, 5), dtype)
        compare(compare.oracle("prod", x, axis=axis, keepdims=keepdims), torch_prod(wide(x), axis, keepdims), "torch")
    for dtype, axis in itertools.product(["bool", *INTEGERS], AXES):
        x = values((3, 4, 5), dtype)
        theirs = torch_prod(as_torch(x), axis, False).numpy()
        # torch multiplies unsigned bytes in int64; the numbers are the same modulo 2^64.
        compare(
            compare.oracle("prod", x, axis=axis),
            theirs.view(np.uint64) if dtype == "uint8" else theirs,
            "torch",
            rtol=0,
        )
    for dtype in ("int64", "uint64", "uint32", "int8", "int4", "uint4"):
        low, high = span(dtype)
        for numbers in ([high, high, 3], [low or 1, high, 7, 5, high], [3] * 50, [0, high]):
            x = integers([min(v, high) for v in numbers], dtype)
            exact = math.prod(int(v) for v in x.tolist())
            wide_name = "uint64" if dtype.startswith("u") else "int64"
            compare(compare.oracle("prod", x), wrapped(exact, wide_name), "Python", rtol=0)
    for x in (special("float64"), np.zeros((0, 3)), np.array([np.inf, 0.0]), np.array([1e200, 1e100, 1e-200])):
        compare(compare.oracle("prod", x), torch.prod(wide(x)), "torch")
    halves = np.array([60000, 60000, 1e-4, 1e-4, 0.5], np.float16)
    compare(compare.oracle("prod", halves), math.prod(map(float, halves)), "Python")


def torch_prod(x: torch.Tensor, axis: Any, keepdims: bool) -> torch.Tensor:
    """torch multiplies along one axis at a time."""
    axes = ALL if axis is None else (axis,) if isinstance(axis, int) else axis
    for one in sorted((a % 3 for a in axes), reverse=True):
        x = torch.prod(x, one, keepdim=keepdims)
    return x


@independent("max@1")
def largest(compare: Comparer) -> None:
    for dtype, axis, keepdims in itertools.product([*FLOATS, "bool", *INTEGERS], AXES, [False, True]):
        x = values((5, 7, 9), dtype)
        theirs = torch.amax(wide(x), ALL if axis is None else axis, keepdim=keepdims)
        compare(compare.oracle("max", x, axis=axis, keepdims=keepdims), theirs, "torch", rtol=0)
    for dtype in ("int64", "uint64", "uint16", "int4", "uint4"):
        x = extremes(dtype)[::-1]
        expected = integers([max(int(v) for v in x.tolist())], dtype)[0]
        compare(compare.oracle("max", x), expected, "Python", rtol=0)
    for dtype in FLOATS:
        x = special(dtype)
        pairs = np.stack(np.broadcast_arrays(x[:, None], x[None]), -1)
        # Of zeros of both signs either may come.
        theirs = torch.amax(wide(pairs), -1) + 0.0
        compare(compare.oracle("max", pairs, axis=-1) + 0.0, theirs, "torch", rtol=0)
    nothing = np.empty((0, 4, 3), np.float32)
    compare(compare.oracle("max", nothing, axis=1), torch.amax(wide(nothing), 1), "torch", rtol=0)


@independent("argmax@1")
def places_of_the_largest(compare: Comparer) -> None:
    for dtype, axis, keepdims in itertools.product([*FLOATS, *INTEGERS], [None, 0, 1, -1], [False, True]):
        # Small integers, so that there are ties.
        x = values((5, 7, 9), dtype, scale=3)
        x = x if dtype in INTEGERS else np.rint(x.astype(np.float64)).astype(x.dtype)
        theirs = first_of_the_largest(wide(x), axis, keepdims)
        compare(compare.oracle("argmax", x, axis=axis, keepdims=keepdims), theirs, "torch", rtol=0)
    for dtype in FLOATS:
        rng = np.random.default_rng(3)
        x = special(dtype)[rng.integers(0, 14, (50, 6))]
        compare(compare.oracle("argmax", x, axis=1), first_of_the_largest(wide(x), 1, False), "torch", rtol=0)
    for dtype in ("bool", "uint64", "int4", "uint4"):
        x = values((4, 9), dtype)
        expected = [max(range(9), key=lambda i, row=row: (int(row[i]), -i)) for row in x.tolist()]
        compare(compare.oracle("argmax", x, axis=1), expected, "Python", rtol=0)
    nothing = np.empty((0, 4, 3), np.float32)
    compare(compare.oracle("argmax", nothing, axis=1), torch.argmax(wide(nothing), 1), "torch", rtol=0)


def first_of_the_largest(x: torch.Tensor, axis: int | None, keepdims: bool) -> torch.Tensor:
    """torch leaves open which of equal elements argmax names: look for the first that equals torch's largest."""
    if axis is None:
        place = first_of_the_largest(x.reshape(-1), 0, False)
        return place.reshape([1] * x.ndim) if keepdims else place
    top = torch.amax(x, axis, keepdim=True)
    chosen = torch.where(torch.isnan(top), torch.isnan(x), x == top) if x.is_floating_point() else x == top
    extent = x.shape[axis]
    order = torch.arange(extent).reshape([extent if a == axis % x.ndim else 1 for a in range(x.ndim)])
    return torch.where(chosen, order, extent).amin(axis, keepdim=keepdims)
