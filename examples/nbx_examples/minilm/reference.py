"""The pinned embeddings: what PyTorch computes in float64 from the same weights (see ``tests/make_reference.py``)."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np

TOLERANCE = 1e-5
"""Largest difference of one element from the pinned value that counts as agreement."""


def pinned() -> tuple[list[str], np.ndarray]:
    """Return the sentences and their embeddings, [B, 384] float64."""
    rows = json.loads(Path(__file__).with_name("reference.json").read_text("utf-8"))["rows"]
    return [row["sentence"] for row in rows], np.array([row["embedding"] for row in rows])
