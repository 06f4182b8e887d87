"""Calls of ops as a type checker sees them: what is right passes, and each wrong one is an error.

Checked by ``make lint``: an ``ignore`` that nothing needs is an error itself.
"""
# pyright: strict, reportUnnecessaryTypeIgnoreComment=true

from __future__ import annotations

import numpy as np
import numpy.typing as npt

import nbx_registry as nbx
from nbx_registry.dtypes import DType
from nbx_registry.typing import ArrayLike


def right(x: npt.NDArray[np.float32], mask: npt.NDArray[np.bool], t: nbx.Tensor, anything: ArrayLike, d: DType) -> None:
    """Arrays of any library, Python scalars where they broadcast, attributes by keyword."""
    nbx.ops.add(x, t)
    nbx.ops.add(x, 2)
    nbx.ops.multiply(1.5, t, out=x, device="cpu", kernel="nbx-host/multiply/numpy", require="any")
    nbx.ops.where(mask, x, 0.0)
    nbx.ops.gelu(np.float32(1), approximate="tanh")
    nbx.ops.sum(anything, axis=(0, 1), keepdims=True)
    nbx.ops.astype(x, dtype="bfloat16", saturate=True)
    nbx.ops.astype(x, dtype=d)
    nbx.ops.sdm.wy_solve(x, x, x)


def wrong(x: npt.NDArray[np.float32], mask: npt.NDArray[np.bool]) -> None:
    """Each line is refused before it runs."""
    nbx.ops.add(x)  # pyright: ignore[reportCallIssue]
    nbx.ops.add(x, "1")  # pyright: ignore[reportArgumentType]
    nbx.ops.add(x, [1.0, 2.0])  # pyright: ignore[reportArgumentType]
    nbx.ops.gelu(x, approximate="tan")  # pyright: ignore[reportArgumentType]
    nbx.ops.gelu(x, "tanh")  # pyright: ignore[reportCallIssue]
    nbx.ops.sum(x, dim=0)  # pyright: ignore[reportCallIssue]
    nbx.ops.sum(x, axis="rows")  # pyright: ignore[reportArgumentType]
    nbx.ops.sqrt(2.0)  # pyright: ignore[reportArgumentType]
    nbx.ops.maximum(x, 1j)  # pyright: ignore[reportArgumentType]
    nbx.ops.astype(x)  # pyright: ignore[reportCallIssue]
    nbx.ops.add(x, x, require="never")  # pyright: ignore[reportArgumentType]
    nbx.ops.adt(x, x)  # pyright: ignore[reportCallIssue]
