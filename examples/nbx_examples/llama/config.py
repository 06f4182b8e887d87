"""Sizes of the network, and the angles of its rotary embedding."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True, kw_only=True, slots=True)
class Rotary:
    """Rotary frequencies, stretched for contexts longer than those first trained on."""

    theta: float
    factor: float = 1.0
    """How much slower the slow pairs turn; 1 stretches nothing."""
    low: float = 1.0
    high: float = 4.0
    """Pairs that turn fewer than ``low`` times in the first context are stretched whole, more than ``high`` not at all,
    those between in proportion."""
    context: int = 8192
    """Tokens of the first context."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Config:
    """What the network is made of."""

    vocabulary: int
    hidden: int
    layers: int
    heads: int
    kv_heads: int
    head: int
    """Width of one head."""
    intermediate: int
    epsilon: float
    rotary: Rotary

    def tables(self, positions: int) -> tuple[np.ndarray, np.ndarray]:
        """Return cosines and sines [positions, head / 2] float32 of each position's angles."""
        frequency = self.rotary.theta ** -(np.arange(0, self.head, 2, dtype=np.float64) / self.head)
        turns = self.rotary.context * frequency / (2 * math.pi)
        span = self.rotary.high - self.rotary.low
        kept = np.clip((turns - self.rotary.low) / span, 0, 1)  # 1: as it is, 0: stretched whole
        frequency = frequency * (kept + (1 - kept) / self.rotary.factor)
        angle = np.arange(positions, dtype=np.float64)[:, None] * frequency
        return np.cos(angle).astype(np.float32), np.sin(angle).astype(np.float32)


LLAMA_3_2_1B = Config(
    vocabulary=128256,
    hidden=2048,
    layers=16,
    heads=32,
    kv_heads=8,
    head=64,
    intermediate=8192,
    epsilon=1e-5,
    rotary=Rotary(theta=500000.0, factor=32.0),
)
"""Sizes as ``config.json`` of Meta's Llama-3.2-1B states them; input and output embeddings are one table."""

SMALL = Config(
    vocabulary=1000,
    hidden=256,
    layers=2,
    heads=8,
    kv_heads=2,
    head=32,
    intermediate=512,
    epsilon=1e-5,
    rotary=Rotary(theta=500000.0, factor=32.0, context=128),
)
"""The same network, small enough for a host in a second."""
