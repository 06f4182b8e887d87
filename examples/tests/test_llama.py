"""The Llama example beside the same network written out in float64 NumPy, and beside itself."""

from __future__ import annotations

import numpy as np
import pytest
from click.testing import CliRunner

import nbx_registry as nbx
from nbx_examples.llama import SMALL, Decoder, Weights
from nbx_examples.llama.__main__ import main
from nbx_examples.llama.generate import generate
from nbx_examples.llama.weights import Dense, Layer, Quantised

LONGEST = 150
PROMPT = 70
STEPS = 6


@pytest.fixture(scope="module")
def weights() -> Weights:
    return Weights(SMALL, seed=1)


def prompts(batch: int, tokens: int = PROMPT) -> np.ndarray:
    return np.random.default_rng(3).integers(0, SMALL.vocabulary, (batch, tokens))


def decoded(weights: Weights, ids: np.ndarray, steps: int = STEPS) -> np.ndarray:
    """Return the tokens that follow prompts, int64 [batch, steps + 1]."""
    decoder = Decoder(SMALL, weights, batch=len(ids), longest=LONGEST)
    decoder.prompt(ids)
    found = [decoder.tokens.numpy().copy()]
    for _ in range(steps):
        decoder.step()
        found.append(decoder.tokens.numpy().copy())
    return np.stack(found, axis=1)


def of(product: object) -> np.ndarray:
    assert isinstance(product, Dense)
    return product.weight.numpy().astype(np.float64)


def norm(x: np.ndarray) -> np.ndarray:
    return x / np.sqrt(np.mean(x * x, axis=-1, keepdims=True) + SMALL.epsilon)


def rotated(x: np.ndarray) -> np.ndarray:
    """Turn pairs half a head apart, as complex numbers; x [T, heads, head]."""
    pairs = x[..., : SMALL.head // 2] + 1j * x[..., SMALL.head // 2 :]
    rates = 500000.0 ** -(np.arange(0, SMALL.head, 2) / SMALL.head)
    turns = 128 * rates / (2 * np.pi)
    # Pairs that turn less than once in 128 tokens are slowed 32 times, more than 4 times not, the rest in between.
    blend = np.clip((turns - 1) / 3, 0, 1)
    rates = blend * rates + (1 - blend) * rates / 32
    turned = pairs * np.exp(1j * np.arange(len(x))[:, None, None] * rates)
    return np.concatenate([turned.real, turned.imag], axis=-1)


def attended(x: np.ndarray, layer: Layer) -> np.ndarray:
    tokens, group = len(x), SMALL.heads // SMALL.kv_heads
    heads = (x @ of(layer.qkv).T).reshape(tokens, -1, SMALL.head)
    q, k, v = np.split(heads, [SMALL.heads, SMALL.heads + SMALL.kv_heads], axis=1)
    q, k, v = rotated(q), np.repeat(rotated(k), group, axis=1), np.repeat(v, group, axis=1)
    scores = np.einsum("qhd,khd->hqk", q, k) / np.sqrt(SMALL.head)
    scores = np.where(np.tri(tokens, dtype=bool), scores, -np.inf)
    share = np.exp(scores - scores.max(axis=-1, keepdims=True))
    share /= share.sum(axis=-1, keepdims=True)
    return np.einsum("hqk,khd->qhd", share, v).reshape(tokens, -1) @ of(layer.merge).T


def logits(weights: Weights, ids: np.ndarray) -> np.ndarray:
    """Return the logits behind every token of one sequence, [T, vocabulary]."""
    x = weights.embedding.numpy().astype(np.float64)[ids]
    for layer in weights.layers:
        x = x + attended(norm(x), layer)
        gate, up = norm(x) @ of(layer.gate).T, norm(x) @ of(layer.up).T
        x = x + (gate / (1 + np.exp(-gate)) * up) @ of(layer.down).T
    return norm(x) @ of(weights.logits).T


def test_tokens_are_those_of_the_network_in_float64(weights: Weights) -> None:
    ids = prompts(3)
    found = decoded(weights, ids)
    for prompt, tokens in zip(ids, found, strict=True):
        expected = logits(weights, np.concatenate([prompt, tokens[:-1]]))[PROMPT - 1 :]
        behind = expected.max(axis=-1) - expected[np.arange(STEPS + 1), tokens]
        # float16 rounds what the layers pass on: of nearly equal logits either may win.
        assert behind.max() < 0.02 * expected.std()


def test_a_step_goes_on_where_a_longer_prompt_ends(weights: Weights) -> None:
    ids = prompts(2)
    found = decoded(weights, ids)
    longer = decoded(weights, np.concatenate([ids, found[:, :-1]], axis=1), steps=0)
    np.testing.assert_array_equal(longer[:, 0], found[:, -1])


def test_sequences_of_a_batch_do_not_meet(weights: Weights) -> None:
    ids = prompts(3)
    np.testing.assert_array_equal(decoded(weights, ids[1:2], steps=3), decoded(weights, ids, steps=3)[1:2])


@pytest.mark.parametrize("batch", [1, 3])
def test_quantised_weights_decode_too(weights: Weights, batch: int) -> None:
    quantised = Weights(SMALL, seed=1, quantised=True)
    ids = prompts(batch)
    found = decoded(quantised, ids)
    assert found.shape == (batch, STEPS + 1)
    assert (found != decoded(weights, ids)).any(), "4 bits leave some choice to rounding"
    up = quantised.layers[0].up
    assert isinstance(up, Quantised)
    scale = up.packed[1].numpy()
    # Half a step, and what rounding the scale and the minimum to float16 moves the end of the range.
    assert np.abs(nbx.ops.dequant_int4(*up.packed).numpy().T - of(weights.layers[0].up)).max() < 0.52 * scale.max()


@pytest.mark.parametrize("quantised", [False, True], ids=["float16", "int4"])
def test_a_recorded_step_decodes_the_same_tokens(quantised: bool) -> None:
    registry = nbx.default()
    weights = Weights(SMALL, seed=2, quantised=quantised)
    plain = generate(registry, SMALL, weights, prompts(2), STEPS, longest=LONGEST, captured=False)
    recorded = generate(registry, SMALL, weights, prompts(2), STEPS, longest=LONGEST)
    np.testing.assert_array_equal(recorded.tokens, plain.tokens)
    assert len(np.unique(plain.tokens)) > STEPS, "a stream of one token would show nothing"
    assert recorded.record_s > 0


def test_the_command_compares_both_ways() -> None:
    before = nbx.default()
    said = CliRunner().invoke(main, ["--batch", "2", "--prompt", "33", "--steps", "3", "--quantised"])
    assert said.exit_code == 0, said.output
    assert "the same 8 tokens both ways" in said.output
    assert nbx.default() is before


def test_the_command_says_what_a_device_lacks() -> None:
    said = CliRunner().invoke(main, ["--device", "cuda:7"])
    assert said.exit_code == 1
    assert "cuda:7" in said.output


def test_a_cache_that_is_full_takes_no_more(weights: Weights) -> None:
    decoder = Decoder(SMALL, weights, batch=1, longest=64)
    decoder.prompt(prompts(1, 64))
    with pytest.raises(nbx.SignatureError, match="position"):
        decoder.step()


@pytest.mark.parametrize("longest", [0, 33, 69])
def test_prompts_that_the_cache_has_no_room_for_are_refused(weights: Weights, longest: int) -> None:
    before = nbx.default()
    with pytest.raises(ValueError, match=f"room for {longest} tokens of a sequence, not for {PROMPT}"):
        generate(before, SMALL, weights, prompts(1), 1, longest=longest)
    assert nbx.default() is before
