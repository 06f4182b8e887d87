"""Weights drawn from a seed, in float16 or quantised to 4 bits."""

from __future__ import annotations

from typing import Protocol

import numpy as np

import nbx_registry as nbx
from nbx_examples.llama.config import Config

EMBEDDING = 0.02
"""Standard deviation of the embeddings. Other weights have K^-1/2, so that what passes a product keeps its size."""


class Product(Protocol):
    """Multiplies rows by a weight."""

    def __call__(self, x: nbx.Tensor, *, silu: bool = False) -> nbx.Tensor:
        """Return [B, N] of ``x`` [B, K], through x / (1 + e^-x) where asked for."""
        ...


class Dense:
    """A weight [N, K] float16."""

    def __init__(self, weight: nbx.Tensor) -> None:
        self.weight = weight

    def __call__(self, x: nbx.Tensor, *, silu: bool = False) -> nbx.Tensor:
        """Multiply; the activation rides along."""
        return nbx.ops.linear(x, self.weight, activation="silu" if silu else None)


class Quantised:
    """A weight of 4 bits an element, in groups of 128 along K.

    It is quantised on the host, where it is made once, and lies on the device packed.
    """

    def __init__(self, weight: nbx.Tensor) -> None:
        packed = nbx.ops.quantize_int4(np.ascontiguousarray(weight.numpy().T))
        self.packed = [nbx.asarray(part, device=weight.device) for part in packed]

    def __call__(self, x: nbx.Tensor, *, silu: bool = False) -> nbx.Tensor:
        """Multiply: one row as a vector, which has a kernel of its own."""
        if x.shape[0] == 1:
            y = nbx.ops.dequant_gemv_int4(x[0], *self.packed).reshape((1, -1))
        else:
            y = nbx.ops.dequant_matmul_int4(x, *self.packed)
        return nbx.ops.silu(y) if silu else y


class Layer:
    """Weights of one layer."""

    def __init__(self, qkv: Product, merge: Product, gate: Product, up: Product, down: Product) -> None:
        self.qkv = qkv
        self.merge = merge
        self.gate = gate
        self.up = up
        self.down = down


class Weights:
    """All weights of the network, from one stream of random numbers.

    Parameters
    ----------
    config : Config
    seed : int
    device : str
        ``cpu`` or a live device as ``cuda:0``.
    quantised : bool
        Whether what rows are multiplied by has 4 bits an element; the table of embeddings stays in float16.
    """

    def __init__(self, config: Config, *, seed: int = 0, device: str = "cpu", quantised: bool = False) -> None:
        self._stream = (seed, 0)
        self._device = device
        product = Quantised if quantised else Dense
        hidden, heads = config.hidden, config.heads * config.head
        self.embedding = self._draw(config.vocabulary, hidden, EMBEDDING)
        self.layers = [
            Layer(
                qkv=product(self._draw((config.heads + 2 * config.kv_heads) * config.head, hidden)),
                merge=product(self._draw(hidden, heads)),
                gate=product(self._draw(config.intermediate, hidden)),
                up=product(self._draw(config.intermediate, hidden)),
                down=product(self._draw(hidden, config.intermediate)),
            )
            for _ in range(config.layers)
        ]
        self.logits: Product = product(self.embedding)
        self.scale = nbx.ops.full(shape=(hidden,), fill_value=1.0, dtype="float16", device=device)
        """Of every normalisation: 1, as before training."""

    def _draw(self, rows: int, width: int, deviation: float | None = None) -> nbx.Tensor:
        seed, offset = self._stream
        self._stream = (seed, offset + rows * width)
        drawn = nbx.ops.normal(shape=(rows, width), seed=seed, offset=offset, dtype="float16", device=self._device)
        return nbx.ops.multiply(drawn, width**-0.5 if deviation is None else deviation)
