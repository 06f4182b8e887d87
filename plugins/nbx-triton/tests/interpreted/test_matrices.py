"""matmul, linear, attention."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

HALVES = ["float16", "bfloat16", "float32"]
FLOATS = [*HALVES, "float64"]


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize(
    ("left", "right"),
    [
        ((63, 33), (33, 65)),
        ((33,), (33, 65)),
        ((63, 33), (33,)),
        ((33,), (33,)),
        ((2, 1, 17, 33), (3, 33, 9)),
        ((33,), (3, 33, 9)),
        ((3, 5, 33), (33,)),
        ((5, 0), (0, 4)),
        ((1, 1), (1, 1)),
    ],
    ids=str,
)
def test_matmul(check: Callable, normal: Callable, dtype: str, left: tuple[int, ...], right: tuple[int, ...]) -> None:
    check("nbx-triton/matmul/tiles", normal(dtype, *left), normal(dtype, *right))


def test_matmul_of_views(check: Callable, normal: Callable) -> None:
    check("nbx-triton/matmul/tiles", normal("float32", 65, 130).T[::2], normal("float32", 9, 65)[::-1].T)
    check("nbx-triton/matmul/tiles", np.broadcast_to(normal("float16", 1, 33), (17, 33)), normal("float16", 2, 33, 5))


def test_float32_products_are_not_rounded_first(run: Callable) -> None:
    x = np.full((1, 16), 1 + 2**-20, np.float32)
    (out,) = run("nbx-triton/matmul/tiles", x, np.eye(16, dtype=np.float32))
    assert (out == x).all()


@pytest.mark.parametrize("activation", [None, "relu", "gelu", "gelu_tanh", "silu"])
@pytest.mark.parametrize("dtype", HALVES)
def test_linear(check: Callable, normal: Callable, dtype: str, activation: str | None) -> None:
    x, w, bias = normal(dtype, 3, 5, 33), normal(dtype, 17, 33), normal(dtype, 17)
    check("nbx-triton/linear/tiles", x, w, bias, activation=activation)
    check("nbx-triton/linear/tiles", x.transpose(1, 0, 2), w[::-1], None, activation=activation)


def test_linear_in_float64(check: Callable, normal: Callable) -> None:
    arrays = normal("float64", 5, 33), normal("float64", 17, 33), normal("float64", 34)[::2]
    check("nbx-triton/linear/tiles", *arrays, activation="relu")


@pytest.mark.parametrize("dtype", HALVES)
@pytest.mark.parametrize(
    ("batch", "heads", "queries", "keys", "widths", "causal"),
    [
        (1, (2, 2), 33, 65, (40, 40), False),
        (2, (4, 2), 17, 33, (127, 127), True),
        (1, (2, 1), 35, 20, (129, 64), True),
        (1, (3, 1), 5, 70, (256, 33), False),
        (1, (1, 1), 4, 0, (16, 16), False),
        (1, (2, 2), 1, 65, (1, 1), True),
    ],
    ids=lambda value: str(value).replace(" ", ""),
)
def test_attention(
    check: Callable,
    normal: Callable,
    dtype: str,
    batch: int,
    heads: tuple[int, int],
    queries: int,
    keys: int,
    widths: tuple[int, int],
    causal: bool,
) -> None:
    q = normal(dtype, batch, heads[0], queries, widths[0])
    k = normal(dtype, batch, keys, heads[1], widths[0]).transpose(0, 2, 1, 3)
    v = normal(dtype, batch, heads[1], keys, widths[1])
    check("nbx-triton/scaled_dot_product_attention/online", q, k, v, None, causal=causal)
    if dtype != "float32" and max(widths) <= 128:
        check("nbx-triton/scaled_dot_product_attention/short", q, k, v, None, causal=causal)


@pytest.mark.parametrize("causal", [False, True])
def test_attention_of_whole_blocks_and_cut_ones(check: Callable, normal: Callable, causal: bool) -> None:
    q, k, v = normal("float16", 1, 4, 150, 32), normal("float16", 1, 2, 285, 32), normal("float16", 1, 2, 285, 32)
    check("nbx-triton/scaled_dot_product_attention/online", q, k, v, None, causal=causal)
    check("nbx-triton/scaled_dot_product_attention/online", k[:, :1], q[:, :1], q[:, 1:2], None, causal=causal)


@pytest.mark.parametrize("scale", [0.0, -0.25, 2.0])
@pytest.mark.parametrize("kernel", ["online", "short"])
@pytest.mark.parametrize("mask", ["none", "bool", "float"])
def test_scales(
    check: Callable, normal: Callable, rng: np.random.Generator, kernel: str, scale: float, mask: str
) -> None:
    q, k, v = normal("float16", 1, 2, 20, 32), normal("float16", 1, 1, 70, 32), normal("float16", 1, 1, 70, 32)
    rule = {"none": None, "bool": rng.random((20, 70)) > 0.5, "float": normal("float16", 20, 70)}[mask]
    check(f"nbx-triton/scaled_dot_product_attention/{kernel}", q, k, v, rule, causal=True, scale=scale)


@pytest.mark.parametrize("kernel", ["online", "short"])
@pytest.mark.parametrize("mask", ["bool", "row", "float", "leading", "all", "lowest"])
def test_masks(check: Callable, normal: Callable, rng: np.random.Generator, kernel: str, mask: str) -> None:
    q, k, v = normal("float16", 2, 2, 20, 32), normal("float16", 2, 1, 70, 32), normal("float16", 2, 1, 70, 32)
    rule = {
        "bool": lambda: rng.random((2, 1, 20, 70)) > 0.5,
        "row": lambda: rng.random(70) > 0.7,
        "float": lambda: normal("float16", 20, 70),
        # A first tile of keys with nothing to attend must not poison the rest.
        "leading": lambda: np.where(np.arange(70) < 65, -np.inf, 0).astype(np.float32),
        "all": lambda: np.zeros((20, 70), bool),
        # What hides by being low hides nothing where there is nothing else.
        "lowest": lambda: np.full((20, 70), -3.4028e38, np.float32),
    }[mask]()
    check(f"nbx-triton/scaled_dot_product_attention/{kernel}", q, k, v, rule, scale=0.5)


@pytest.mark.parametrize("dtype", HALVES)
@pytest.mark.parametrize(
    ("batch", "heads", "keys", "widths"),
    [
        (2, (4, 2), 63, (40, 40)),
        (1, (3, 3), 300, (127, 64)),
        (1, (20, 1), 257, (33, 129)),
        (1, (2, 2), 0, (64, 64)),
        (1, (2, 1), 257, (256, 256)),
    ],
    ids=lambda value: str(value).replace(" ", ""),
)
def test_decode_attention(
    check: Callable,
    normal: Callable,
    dtype: str,
    batch: int,
    heads: tuple[int, int],
    keys: int,
    widths: tuple[int, int],
) -> None:
    k, v = (normal(dtype, batch, heads[1], keys + 9, width) for width in widths)
    k[:, :, keys:], v[:, :, keys:] = np.nan, np.nan
    q, bias = normal(dtype, batch, heads[0], widths[0]), normal("float32", keys)
    check("nbx-triton/decode_attention/split", q, k[:, :, :keys], v[:, :, :keys], None)
    check("nbx-triton/decode_attention/quarters", q, k[:, :, :keys], v[:, :, :keys], bias, scale=0.3)


def test_decode_attention_of_hidden_keys_is_0(run: Callable, normal: Callable) -> None:
    arrays = normal("float16", 1, 2, 16), normal("float16", 1, 2, 300, 16), normal("float16", 1, 2, 300, 16)
    (out,) = run("nbx-triton/decode_attention/split", *arrays, np.full(300, -np.inf, np.float32))
    assert (out == 0).all()


@pytest.mark.parametrize("q_dtype", [None, "float16"])
def test_a_query_wider_than_the_cache(check: Callable, normal: Callable, q_dtype: str | None) -> None:
    q, k = normal("float32", 1, 2, 33, scale=1e5), normal("float16", 1, 2, 65, 33, scale=1e-4)
    check("nbx-triton/decode_attention/split", q, k, normal("float16", 1, 2, 65, 33), None, q_dtype=q_dtype)


@pytest.mark.parametrize("dtype", HALVES)
def test_decode_attention_reduce(check: Callable, normal: Callable, rng: np.random.Generator, dtype: str) -> None:
    o, m, norms = normal("float32", 5, 7, 33), normal("float32", 5, 7), rng.random((5, 7)).astype(np.float32)
    m[2], norms[2], o[2] = -np.inf, 0, 0
    m[3, :4], norms[3, :4], o[3, :4] = -np.inf, 0, 0
    check("nbx-triton/decode_attention_reduce/rows", o, m, norms, dtype=dtype)
