"""The host's attention kernels and rotations, against torch in float64."""

from typing import Any

import numpy as np
import pytest
import torch
from hosted import FLOATS, check, run, wide
from running import values

from nbx_registry import dtypes
from nbx_registry.host.kernels import attention


def truth_of(
    q: Any, k: Any, v: Any, mask: Any = None, causal: bool = False, scale: float | None = None
) -> torch.Tensor:
    """Attend in float64; what sees no key is 0, and causal is aligned at the bottom right."""
    q, k, v = wide(q), wide(k), wide(v)
    repeats = q.shape[1] // k.shape[1]
    k, v = k.repeat_interleave(repeats, 1), v.repeat_interleave(repeats, 1)
    scores = q @ k.mT * (q.shape[-1] ** -0.5 if scale is None else scale)
    if mask is not None:
        m = wide(mask)
        scores = scores.masked_fill(~m, -torch.inf) if m.dtype == torch.bool else scores + m
    if causal:
        seen = torch.ones(scores.shape[-2:], dtype=torch.bool).tril(scores.shape[-1] - scores.shape[-2])
        scores = scores.masked_fill(~seen, -torch.inf)
    weights = torch.softmax(scores, -1)
    blind = torch.isneginf(scores).all(-1, keepdim=True)
    return weights.masked_fill(blind, 0) @ v


def tolerance(dtype: str) -> dict[str, float]:
    return {"ulp": 0.52 if dtype in ("float16", "bfloat16") else 1, "absolute": 1e-13 if dtype == "float64" else 4e-6}


@pytest.fixture(params=[1 << 17, 500], ids=["one-block", "many-blocks"], autouse=True)
def scores_at_once(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run everything as it comes, and again with blocks so small that every axis is cut."""
    monkeypatch.setattr(attention, "SCORES", request.param)


SDPA = "scaled_dot_product_attention"


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("dtype", FLOATS)
def test_grouped_queries_and_another_value_width(dtype: str, causal: bool) -> None:
    q, k, v = values((2, 4, 33, 16), dtype, 1), values((2, 2, 65, 16), dtype, 2), values((2, 2, 65, 24), dtype, 3)
    check(run(SDPA, q, k, v, causal=causal), truth_of(q, k, v, causal=causal), **tolerance(dtype))


@pytest.mark.parametrize("width", [1, 127, 129])
def test_widths_and_scale(width: int) -> None:
    q, k, v = (values((1, 2, 17, width), "float32", seed) for seed in (4, 5, 6))
    check(run(SDPA, q, k, v), truth_of(q, k, v), **tolerance("float32"))
    check(run(SDPA, q, k, v, scale=0.3), truth_of(q, k, v, scale=0.3), **tolerance("float32"))


MASKS = {
    "keys": lambda rng: rng.random((2, 1, 1, 65)) < 0.6,
    "all": lambda rng: rng.random((2, 4, 33, 65)) < 0.6,
    "matrix": lambda rng: rng.random((33, 65)) < 0.6,
    "added": lambda rng: np.where(rng.random((4, 33, 65)) < 0.3, -np.inf, rng.random((4, 33, 65))).astype(np.float32),
    "added-float64": lambda rng: rng.random((33, 1)),
    "hides-all": lambda rng: np.zeros((33, 65), bool),
    "hides-start": lambda rng: np.broadcast_to(np.arange(65) > 60, (33, 65)),
}


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("kind", MASKS)
def test_masks(kind: str, causal: bool) -> None:
    q, k, v = (values((2, heads, rows, 16), "float32", rows) for heads, rows in ((4, 33), (2, 65), (2, 65)))
    mask = MASKS[kind](np.random.default_rng(7))
    check(run(SDPA, q, k, v, mask, causal=causal), truth_of(q, k, v, mask, causal), **tolerance("float32"))


def test_queries_before_the_first_key_see_nothing() -> None:
    q, k = values((1, 2, 9, 8), "float32", 8), values((1, 2, 4, 8), "float32", 9)
    found = run(SDPA, q, k, k, causal=True)
    assert np.all(found[:, :, :5] == 0)
    check(found, truth_of(q, k, k, causal=True), **tolerance("float32"))


def test_no_keys_give_zero() -> None:
    q, k = values((2, 4, 5, 8), "float16", 10), np.empty((2, 2, 0, 8), np.float16)
    assert np.all(run(SDPA, q, k, k) == 0)
    assert np.all(run("decode_attention", q[:, :, 0], k, k) == 0)


def test_heads_taken_out_of_tokens_are_read_in_place() -> None:
    q, k, v = (values((2, 33, 4, 16), "float32", seed).transpose(0, 2, 1, 3) for seed in (11, 12, 13))
    check(run(SDPA, q, k, v), truth_of(q, k, v), **tolerance("float32"))
    odd = values((2, 4, 33, 32), "float32", 14)[..., ::2]
    check(run(SDPA, odd, odd, odd), truth_of(odd, odd, odd), **tolerance("float32"))
    once = np.broadcast_to(values((1, 1, 1, 16), "float32", 15), (2, 4, 33, 16))
    check(run(SDPA, q, once, v), truth_of(q, once, v), **tolerance("float32"))


def test_an_output_with_strides() -> None:
    q, k, v = (values((2, 4, 33, 16), "float32", seed) for seed in (16, 17, 18))
    room = np.full((2, 33, 4, 40), 7.0, np.float32)
    run(SDPA, q, k, v, out=room[..., :32:2].transpose(0, 2, 1, 3))
    check(room[..., :32:2].transpose(0, 2, 1, 3), truth_of(q, k, v), **tolerance("float32"))
    assert np.all(room[..., 1:32:2] == 7)


def test_nan_and_infinities_spoil_their_own_row_alone() -> None:
    q, k, v = (values((1, 1, 9, 8), "float32", seed) for seed in (19, 20, 21))
    q[0, 0, 2, 3], q[0, 0, 5, 1] = np.nan, np.inf
    check(run(SDPA, q, k, v), truth_of(q, k, v), **tolerance("float32"))


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("length", [1, 257, 1000])
def test_decode_attention_reads_a_prefix_in_place(dtype: str, length: int) -> None:
    q = values((2, 4, 16), dtype, 22)
    cache = values((2, 2, 1100, 16), dtype, 23)
    cache[:, :, length:] = np.nan
    k, v = cache[:, :, :length], cache[:, :, :length, ::-1][..., ::-1]
    check(run("decode_attention", q, k, v), truth_of(q[:, :, None], k, v)[:, :, 0], **tolerance(dtype))


def test_decode_attention_with_a_bias_that_hides() -> None:
    q, k, v = (
        values((2, 4, 16), "float32", 24),
        values((2, 2, 600, 16), "float32", 25),
        values((2, 2, 600, 8), "float32", 26),
    )
    bias = np.where(np.arange(600) < 520, -np.inf, 0.5)
    check(run("decode_attention", q, k, v, bias), truth_of(q[:, :, None], k, v, bias)[:, :, 0], **tolerance("float32"))
    assert np.all(run("decode_attention", q, k, v, np.full(600, -np.inf, np.float32)) == 0)


def test_a_query_rounded_to_float16_saturates_where_it_is_finite() -> None:
    q = np.array([[[1e6, 1.0 + 2**-12]]], np.float32)
    k = np.eye(2, dtype=np.float16)[None, None]
    v = np.array([[[[1.0], [2.0]]]], np.float16)
    found = run("decode_attention", q, k, v, scale=2**-16, q_dtype="float16")
    rounded = q.clip(-65504, 65504).astype(np.float16)
    check(found, truth_of(rounded[:, :, None], k, v, scale=2**-16)[:, :, 0], **tolerance("float32"))


def test_splits_joined_are_the_whole() -> None:
    q, k, v = (
        values((1, 1, 16), "float32", 27),
        values((1, 1, 90, 16), "float32", 28),
        values((1, 1, 90, 8), "float32", 29),
    )
    scores = (wide(q[:, :, None]) @ wide(k).mT)[0, 0, 0].numpy() / 4
    parts = [scores[:0], scores[:40], scores[40:41], scores[41:]]
    starts = [0, 0, 40, 41]
    m = np.array([[part.max(initial=-np.inf) for part in parts]], np.float32)
    p = [np.exp(part - part.max(initial=-np.inf)) if part.size else part for part in parts]
    total = np.array([[weights.sum() for weights in p]], np.float32)
    o = np.array([[w @ v[0, 0, s : s + len(w)].astype(float) for w, s in zip(p, starts, strict=True)]], np.float32)
    o[0, 0] = np.nan  # an empty split's sums are not looked at before anything else is
    found = run("decode_attention_reduce", o, m, total, dtype="float32")
    check(found, truth_of(q[:, :, None], k, v)[:, 0, 0], ulp=4, absolute=1e-6)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float64"])
def test_nothing_to_join_gives_zero(dtype: str) -> None:
    nothing = np.full((3, 2), -np.inf, np.float32)
    o = np.zeros((3, 2, 5), np.float32)
    assert np.all(run("decode_attention_reduce", o, nothing, np.zeros((3, 2), np.float32), dtype=dtype) == 0)
    assert np.all(run("decode_attention_reduce", o[:, :0], nothing[:, :0], nothing[:, :0], dtype=dtype) == 0)


# rotary_embedding -----------------------------------------------------------------------------------------------------


def rotated(x: np.ndarray, position: np.ndarray, cos: np.ndarray, sin: np.ndarray, interleaved: bool) -> torch.Tensor:
    """Rotate in float64: as complex numbers if pairs are neighbours, else by half a turn of the width."""
    c, s = (wide(table)[torch.from_numpy(position.astype(np.int64))][:, None] for table in (cos, sin))
    if interleaved:
        pairs = torch.view_as_complex(wide(x).unflatten(-1, (-1, 2)).contiguous())
        return torch.view_as_real(pairs * torch.complex(c, s)).flatten(-2)
    c, s = torch.cat([c, c], -1), torch.cat([s, s], -1)
    first, second = wide(x).chunk(2, -1)
    return wide(x) * c + torch.cat([-second, first], -1) * s


def tables(rows: int, width: int, dtype: str = "float32") -> tuple[np.ndarray, np.ndarray]:
    angle = np.outer(np.arange(rows), 10000.0 ** (-np.arange(width) / width))
    return tuple(values_of(angle).astype(dtypes.get(dtype).numpy) for values_of in (np.cos, np.sin))


@pytest.mark.parametrize("interleaved", [False, True])
@pytest.mark.parametrize(
    "shape", [(2, 3, 17, 64), (1, 1, 1, 2), (5, 4, 1, 126), (2, 2, 600, 8), (1, 70, 3, 256)], ids=str
)
@pytest.mark.parametrize("dtype", FLOATS)
def test_rotations(dtype: str, shape: tuple[int, ...], interleaved: bool) -> None:
    x, (cos, sin) = values(shape, dtype, 40), tables(129, shape[-1] // 2)
    position = np.random.default_rng(41).integers(0, 129, (shape[0], shape[2]))
    found = run("rotary_embedding", x, position, cos, sin, interleaved=interleaved)
    limits = {"ulp": 0.51 if dtype in ("float16", "bfloat16") else 1, "absolute": 1e-6 if dtype != "float64" else 1e-15}
    check(found, rotated(x, position, cos, sin, interleaved), **limits)


@pytest.mark.parametrize("interleaved", [False, True])
@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_a_rotation_may_be_in_place_and_of_views(dtype: str, interleaved: bool) -> None:
    room = values((2, 33, 4, 40), dtype, 42)
    x, (cos, sin) = room[..., :32].transpose(0, 2, 1, 3), tables(200, 16, dtype)
    position = np.arange(66, dtype=np.int32).reshape(33, 2).T
    truth = rotated(x, position, cos, sin, interleaved)
    before = room[..., 32:].copy()
    run("rotary_embedding", x, position, cos[:, ::-1][:, ::-1], sin, interleaved=interleaved, out=x)
    check(x, truth, ulp=0.51 if dtype == "float16" else 1, absolute=1e-6)
    assert np.array_equal(room[..., 32:], before)


def test_a_token_is_rotated_the_same_alone() -> None:
    x, (cos, sin) = values((3, 4, 500, 64), "float16", 43), tables(500, 32)
    position = np.tile(np.arange(500), (3, 1))
    found = run("rotary_embedding", x, position, cos, sin)
    alone = run("rotary_embedding", x[1:2, :, 7:8], position[1:2, 7:8], cos, sin)
    assert found[1:2, :, 7:8].tobytes() == alone.tobytes()


def test_nothing_to_rotate() -> None:
    cos = np.zeros((5, 4), np.float32)
    for shape in ((0, 2, 3, 8), (2, 0, 3, 8), (2, 2, 0, 8)):
        position = np.zeros((shape[0], shape[2]), np.int32)
        assert run("rotary_embedding", np.zeros(shape, np.float32), position, cos, cos).shape == shape
