"""The contract of ``sdm::wy_solve``: oracle, cost and tolerance."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from nbx_registry.errors import SignatureError
from nbx_registry.op import Signature
from nbx_registry.spec import TensorSpec, parse
from nbx_sdm.contracts import wy_solve


def sign(chunks: int, width: int) -> Signature:
    square, row = (parse(f"float32[{shape}]") for shape in (f"{chunks}, {width}, {width}", f"{chunks}, {width}"))
    return wy_solve.signature([square, row, square], {})


def made(chunks: int, width: int, scale: float = 0.3) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng([chunks, width])
    a, qk = (scale * rng.standard_normal((chunks, width, width)) for _ in range(2))
    beta = rng.random((chunks, width))
    return a.astype(np.float32), beta.astype(np.float32), qk.astype(np.float32)


def solve(a: np.ndarray, beta: np.ndarray, qk: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    x, qx = wy_solve.run_oracle(sign(len(a), a.shape[-1]), [a, beta, qk])
    return x, qx


@pytest.mark.parametrize("width", [1, 17, 65])
def test_x_is_the_inverse(width: int) -> None:
    a, beta, qk = made(2, width)
    x, qx = solve(a, beta, qk)
    lower = np.tril(beta[..., None].astype(np.float64) * a, -1)
    np.testing.assert_allclose((np.eye(width) + lower) @ x, np.broadcast_to(np.eye(width), x.shape), atol=1e-8)
    np.testing.assert_allclose(qx, np.tril(np.tril(qk.astype(np.float64)) @ x), atol=1e-8)


def test_what_does_not_count_may_be_nan_and_comes_out_as_plus_zero() -> None:
    a, beta, qk = made(3, 17)
    x, qx = solve(a, beta, qk)
    above, on_or_above = np.triu_indices(17, 1), np.triu_indices(17)
    a[:, *on_or_above] = np.nan
    qk[:, *above] = -np.inf
    again = solve(a, beta, qk)
    for found, before in zip(again, (x, qx), strict=True):
        assert found.tolist() == before.tolist()
        assert not np.signbit(found[:, *above]).any()
        assert not found[:, *above].any()
    assert (np.diagonal(x, axis1=1, axis2=2) == 1).all()


@pytest.mark.parametrize(("chunks", "width"), [(1, 1), (3, 17), (512, 128)])
def test_cost(chunks: int, width: int) -> None:
    c = width
    solved = sum(i - j for j in range(c) for i in range(j, c))
    product = sum(i - j + 1 for j in range(c) for i in range(j, c))
    signature = sign(chunks, width)
    cost = wy_solve.cost(signature)
    assert cost.flops == chunks * (2 * solved + 2 * product + c * (c - 1) // 2)
    # The first term of a sum is neither multiplied, by the one on X's diagonal, nor added.
    sums = sum(2 * (i - j - 1) for j in range(c) for i in range(j + 1, c))
    sums += sum(2 * (i - j) for j in range(c) for i in range(j, c))
    assert cost.least_flops == chunks * (sums + c * (c - 1) // 2)
    assert cost.bytes_read == 4 * chunks * (2 * c * c + c)
    assert cost.bytes_written == 8 * chunks * c * c
    # Of A what is below the diagonal, of QK what is not above, of beta all but the first.
    assert cost.least_bytes == 4 * chunks * (c * c + c - 1) + 8 * chunks * c * c
    assert (cost.unit, cost.dtype.name) == ("vector", "float32")


def substitute(
    a: np.ndarray, beta: np.ndarray, qk: np.ndarray, rounded: Callable[..., Any] | None = None
) -> tuple[np.ndarray, ...]:
    """Solve by forward substitution in float32, row by row; ``rounded`` is what products look at of their operands."""
    cut = rounded or (lambda v: v)
    width = a.shape[-1]
    lower = np.tril(np.nan_to_num(a) * beta[..., None], -1)
    x = np.zeros_like(lower)
    for i in range(width):
        x[:, i] = -np.einsum("nk,nkj->nj", cut(lower[:, i, :i]), cut(x[:, :i]))
        x[:, i, i] = 1
    return x, np.tril(cut(np.tril(qk)) @ cut(x))


def tf32(v: np.ndarray) -> np.ndarray:
    return (v.astype(np.float32).view(np.uint32) & np.uint32(0xFFFFE000)).view(np.float32)


@pytest.mark.parametrize("width", [17, 65, 129])
def test_float32_substitution_is_within_the_bound_and_tf32_is_not(width: int) -> None:
    arrays = made(2, width)
    signature = sign(2, width)
    references = wy_solve.run_oracle(signature, arrays)
    bounds = wy_solve.bound(signature, arrays, references)
    for outputs, honest in ((substitute(*arrays), True), (substitute(*arrays, tf32), False)):
        shares = [
            float(np.max(np.abs(o - r) / np.maximum(b, 1e-300)))
            for o, r, b in zip(outputs, references, bounds, strict=True)
        ]
        assert (max(shares) <= 1) is honest


def test_refusals() -> None:
    square, row = parse("float32[2, 5, 5]"), parse("float32[2, 5]")
    cases: list[tuple[list[TensorSpec], str]] = [
        ([square, parse("float32[2, 6]"), square], "axis C of beta is 6, but C of A is 5"),
        ([parse("float32[2, 5, 4]"), row, square], "C"),
        ([square, row, parse("float16[2, 5, 5]")], "QK is float16, but must be float32"),
        ([parse("float32[2, 0, 0]"), parse("float32[2, 0]"), parse("float32[2, 0, 0]")], r"C >= 1 \(C = 0\)"),
    ]
    for tensors, words in cases:
        with pytest.raises(SignatureError, match=words):
            wy_solve.signature(tensors, {})
