"""MiniLM on the host: time through the registry over the time of the same network in plain NumPy.

Run ``python benchmarks/minilm_host.py``: it prints both medians and their ratio, and exits 1 if the ratio is above
``--limit`` (1.5). Both sides embed the same batch in turn, so that what else the machine does falls on both.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Mapping
from statistics import median

import numpy as np

from nbx_examples.minilm import Batch, MiniLM, Tokens, find
from nbx_examples.minilm.files import Config
from nbx_examples.minilm.reference import TOLERANCE, pinned


def plain_numpy(config: Config, w: Mapping[str, np.ndarray], batch: Batch) -> np.ndarray:
    """Embed a batch with NumPy alone: [B, hidden] float32."""
    b, t = batch.ids.shape
    heads, width = config.heads, config.hidden // config.heads
    bias = np.where(batch.keep[:, None, None, :], np.float32(0), np.float32(-np.inf))

    def linear(x: np.ndarray, name: str) -> np.ndarray:
        # One product of two matrices: NumPy's product of a stack with a matrix is slower.
        out = x.reshape(b * t, -1) @ w[name + ".weight"].T
        out += w[name + ".bias"]
        return out.reshape(b, t, -1)

    def norm(x: np.ndarray, name: str) -> np.ndarray:
        x = x - x.mean(axis=-1, keepdims=True)
        x /= np.sqrt(np.square(x).mean(axis=-1, keepdims=True) + np.float32(config.epsilon))
        x *= w[name + ".weight"]
        x += w[name + ".bias"]
        return x

    x = w["embeddings.word_embeddings.weight"][batch.ids] + w["embeddings.token_type_embeddings.weight"][0]
    x = norm(x + w["embeddings.position_embeddings.weight"][:t], "embeddings.LayerNorm")
    for layer in range(config.layers):
        at = f"encoder.layer.{layer}."
        q, k, v = (
            linear(x, f"{at}attention.self.{name}").reshape(b, t, heads, width).transpose(0, 2, 1, 3)
            for name in ("query", "key", "value")
        )
        scores = (q * np.float32(width**-0.5)) @ k.transpose(0, 1, 3, 2)
        scores += bias
        scores -= scores.max(axis=-1, keepdims=True)
        np.exp(scores, out=scores)
        scores /= scores.sum(axis=-1, keepdims=True)
        attended = (scores @ v).transpose(0, 2, 1, 3).reshape(b, t, config.hidden)
        x = norm(x + linear(attended, at + "attention.output.dense"), at + "attention.output.LayerNorm")
        x = norm(x + linear(gelu(linear(x, at + "intermediate.dense")), at + "output.dense"), at + "output.LayerNorm")
    keep = batch.keep[:, :, None].astype(np.float32)
    mean = (x * keep).sum(axis=1) / keep.sum(axis=1)
    return mean / np.sqrt(np.square(mean).sum(axis=-1, keepdims=True))


def gelu(x: np.ndarray) -> np.ndarray:
    """Return x (1 + erf(x / sqrt 2)) / 2, erf by Abramowitz and Stegun 7.1.26 (absolute error 1.5e-7)."""
    z = np.abs(x) * np.float32(2**-0.5)
    t = 1 / (1 + np.float32(0.3275911) * z)
    p = np.full_like(t, 1.061405429)
    for c in (-1.453152027, 1.421413741, -0.284496736, 0.254829592):
        p *= t
        p += np.float32(c)
    p *= t
    p *= np.exp(-z * z)
    return x * np.float32(0.5) * (1 + np.copysign(1 - p, x))


def main() -> int:
    """Print the medians and the ratio."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--limit", type=float, default=1.5)
    parser.add_argument("--repeats", type=int, default=30)
    arguments = parser.parse_args()
    files = find()
    config = files.config()
    weights = files.weights(config)
    sentences, expected = pinned()
    batch = Tokens(files.tokenizer_file())(sentences * 4)
    model = MiniLM(config, weights)
    sides: dict[str, Callable[[], np.ndarray]] = {
        "plain NumPy": lambda: plain_numpy(config, weights, batch),
        "nbx-registry": lambda: model(batch),
    }
    times: dict[str, list[float]] = {name: [] for name in sides}
    for name, embed in sides.items():
        worst = np.abs(embed() - np.tile(expected, (4, 1))).max()
        if not worst <= TOLERANCE:
            print(f"{name}: differs from the pinned embeddings by {worst:.2e}, more than {TOLERANCE}")
            return 1
    for _ in range(arguments.repeats):
        for name, embed in sides.items():
            begin = time.perf_counter()
            embed()
            times[name].append(time.perf_counter() - begin)
    for name, seconds in times.items():
        print(f"{name:13s} {median(seconds) * 1e3:8.2f} ms  ({len(batch.ids)} x {batch.ids.shape[1]} tokens)")
    ratio = median(times["nbx-registry"]) / median(times["plain NumPy"])
    print(f"ratio         {ratio:8.2f}     (limit {arguments.limit})")
    return 0 if ratio <= arguments.limit else 1


if __name__ == "__main__":
    sys.exit(main())
