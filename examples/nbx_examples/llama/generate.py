"""Continuing prompts, step by step or by replaying one recorded step."""

from __future__ import annotations

import time
from dataclasses import dataclass

import numpy as np

import nbx_registry as nbx
from nbx_examples.llama.config import Config
from nbx_examples.llama.decoder import Decoder
from nbx_examples.llama.weights import Weights


@dataclass(frozen=True, kw_only=True, slots=True)
class Continuation:
    """What followed the prompts."""

    tokens: np.ndarray
    """int64 [batch, steps + 1]."""
    prompt_s: float
    """Seconds from the prompts to the first token."""
    record_s: float
    """Seconds to record a step and prove the recording; 0 where none was."""
    step_s: float
    """Median seconds of one step, its tokens read on the host."""


def generate(
    registry: nbx.Registry,
    config: Config,
    weights: Weights,
    ids: np.ndarray,
    steps: int,
    *,
    longest: int | None = None,
    device: str = "cpu",
    captured: bool = True,
) -> Continuation:
    """Continue prompts ``ids``, int64 [batch, tokens], greedily.

    ``longest`` is the cache's room, by default for just so many tokens; it settles the split of the keys, and so the
    last bits of what is computed. ``nbx.ops`` works on ``registry`` meanwhile.

    Raises `Refused` where the device lacks a kernel, `CaptureError` where the step cannot be recorded, `ValueError`
    where the prompts are longer than ``longest``.
    """
    before = nbx.set_default(registry)
    try:
        batch, count = ids.shape
        room = count + steps if longest is None else longest
        decoder = Decoder(config, weights, batch=batch, longest=room, device=device)
        began = time.perf_counter()
        decoder.prompt(ids)
        found = [decoder.tokens.numpy().copy()]
        prompted = time.perf_counter()
        step = registry.capture(decoder.step) if captured else decoder.step
        recorded = time.perf_counter()
        taken: list[float] = []
        for _ in range(steps):
            start = time.perf_counter()
            step()
            found.append(decoder.tokens.numpy().copy())
            taken.append(time.perf_counter() - start)
    finally:
        nbx.set_default(before)
    return Continuation(
        tokens=np.stack(found, axis=1),
        prompt_s=prompted - began,
        record_s=recorded - prompted if captured else 0.0,
        step_s=float(np.median(taken)) if taken else 0.0,
    )
