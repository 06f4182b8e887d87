"""Attention with warps of different trades, which nothing interprets: held to its contract on a card that has it."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

import nbx_registry as nbx
from nbx_registry import spec
from nbx_registry.errors import NbxError

KERNEL = "nbx-triton/scaled_dot_product_attention/warps"


@pytest.fixture(scope="module")
def card(pytestconfig: pytest.Config) -> nbx.Registry:
    made = nbx.load(require="any")
    try:
        device = made.target("cuda:0").device
    except NbxError:
        device = None
    assert device or not pytestconfig.getoption("--cards", default=0), "there is no card, or no file describes it"
    if device is None or device.arch != "sm_90":
        pytest.skip("no card here has the matrix unit")
    return made


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize(
    ("batch", "heads", "queries", "keys", "causal", "scale"),
    [
        (1, (2, 2), 128, 128, False, None),
        (2, (4, 2), 129, 300, True, None),
        # The first queries see nothing.
        (1, (3, 1), 300, 129, True, 0.5),
        (1, (2, 1), 65, 1, False, None),
        # More tiles than there are multiprocessors.
        (9, (8, 1), 257, 200, True, None),
    ],
    ids=lambda value: str(value).replace(" ", ""),
)
def test_attention(
    card: nbx.Registry,
    dtype: str,
    batch: int,
    heads: tuple[int, int],
    queries: int,
    keys: int,
    causal: bool,
    scale: float | None,
) -> None:
    rng = np.random.default_rng(queries)
    kind = np.dtype(np.float16 if dtype == "float16" else ml_dtypes.bfloat16)
    # Heads within tokens, as projections leave them.
    shapes = ((batch, queries, heads[0], 128), (batch, keys, heads[1], 128), (batch, keys, heads[1], 128))
    arrays = [rng.standard_normal(shape).astype(kind).transpose(0, 2, 1, 3) for shape in shapes]
    op = card.ops["scaled_dot_product_attention"]
    tensors = [nbx.asarray(np.ascontiguousarray(x.transpose(0, 2, 1, 3)), device="cuda:0") for x in arrays]
    q, k, v = (x.permute((0, 2, 1, 3)) for x in tensors)
    bound = card.bind(op.name, q, k, v, None, kernel=KERNEL, causal=causal, scale=scale)
    first, again = bound().numpy(), bound().numpy()
    assert first.tobytes() == again.tobytes()
    specs = [spec.parse(f"{dtype}{list(x.shape)}") for x in arrays]
    signature = op.signature([*specs, None], {"causal": causal, "scale": scale})
    (wanted,) = op.run_oracle(signature, [*arrays, None])
    (allowed,) = op.bound(signature, [*arrays, None], (wanted,))
    assert (np.abs(first.astype(np.float64) - wanted) <= allowed).all()
