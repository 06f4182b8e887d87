"""What ``nbx demo`` shows, as data: embeddings, what ran to make them, and one refusal explained."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import nbx_registry as nbx
from nbx_examples.minilm.files import find
from nbx_examples.minilm.model import Array, MiniLM
from nbx_examples.minilm.reference import pinned
from nbx_examples.minilm.tokens import Tokens
from nbx_registry.decision import Decision

BATCH = 32
"""Sentences embedded at a time."""

REFUSING_DEVICE = "nvidia/v100-sxm2-16gb"
"""Asked about from its device file; no such card has run the suite."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Demonstration:
    """The outcome of one demonstration."""

    device: str
    sentences: list[str]
    embeddings: np.ndarray
    """[B, 384] float32, on the host."""
    similarity: np.ndarray
    """[B, B] float32: cosines, since embeddings have norm 1."""
    rows: Sequence[Any]
    """Rows of the registry's profile: .op, .calls, .kernel, .evidence, .seconds, .floor_s, .floor_missing."""
    deviation: float | None
    """Largest difference from the pinned embeddings; None for sentences that are not the pinned ones."""
    refusal: Decision
    """Why the same attention does not run on `REFUSING_DEVICE` under ``require="checked_here"``."""


def demonstrate(
    registry: nbx.Registry, *, device: str = "cpu", sentences: Sequence[str] | None = None, folder: Path | None = None
) -> Demonstration:
    """Embed sentences (the pinned ones unless others are given) and record what ran.

    ``nbx.ops`` works on ``registry`` meanwhile. Raises `FileError` for missing or malformed model files, `Refused`
    where the device lacks a kernel.
    """
    before = nbx.set_default(registry)
    try:
        return _demonstrate(registry, device, sentences, folder)
    finally:
        nbx.set_default(before)


def _demonstrate(
    registry: nbx.Registry, device: str, sentences: Sequence[str] | None, folder: Path | None
) -> Demonstration:
    files = find(folder)
    config = files.config()
    tokens = Tokens(files.tokenizer_file())
    model = MiniLM(config, files.weights(config), device)
    reference_sentences, reference = pinned()
    texts = list(sentences) if sentences is not None else reference_sentences
    batches = [tokens(texts[start : start + BATCH]) for start in range(0, len(texts), BATCH)]
    # Once before the profile: kernels load and bind on their first call, which is no part of what a call costs.
    model(batches[0])
    with registry.profile() as profile:
        embeddings = np.concatenate([_host(model(batch)) for batch in batches])
        similarity = _host(_similarity(embeddings, device))
    attention = [f"float32[{len(batches[0].ids)}, {config.heads}, {batches[0].ids.shape[1]}, 32]"] * 3
    mask = f"bool[{len(batches[0].ids)}, 1, 1, {batches[0].ids.shape[1]}]"
    refusal = registry.decide(
        "scaled_dot_product_attention", *attention, mask, device=REFUSING_DEVICE, require="checked_here"
    )
    return Demonstration(
        device=device,
        sentences=texts,
        embeddings=embeddings,
        similarity=similarity,
        rows=profile.rows,
        deviation=float(np.abs(embeddings - reference).max()) if texts == reference_sentences else None,
        refusal=refusal,
    )


def _similarity(embeddings: np.ndarray, device: str) -> Array:
    rows = embeddings if device == "cpu" else nbx.asarray(embeddings, device=device)
    return nbx.ops.matmul(rows, nbx.ops.permute_dims(rows, axes=(1, 0)))


def _host(array: Array) -> np.ndarray:
    return array if isinstance(array, np.ndarray) else array.numpy()
