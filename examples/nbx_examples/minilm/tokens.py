"""Text to token ids, padded to the longest sentence of a batch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from tokenizers import Tokenizer

from nbx_registry.errors import FileError

MAX_TOKENS = 256
"""Tokens of a sentence that the model was trained to read; what follows is cut."""


@dataclass(frozen=True, slots=True)
class Batch:
    """Sentences as token ids."""

    ids: np.ndarray
    """[B, T] int64; padding is 0."""
    keep: np.ndarray
    """[B, T] bool; False on padding."""


class Tokens:
    """The model's tokenizer. Raises `FileError` for a file it cannot be read from."""

    def __init__(self, path: Path) -> None:
        try:
            self._tokenizer = Tokenizer.from_file(str(path))
        # tokenizers raises a plain Exception for whatever it cannot read.
        except Exception as error:
            raise FileError(f"{path}: not a readable tokenizer file: {error}") from error
        self._tokenizer.enable_truncation(MAX_TOKENS)
        self._tokenizer.enable_padding(pad_id=0, pad_token="[PAD]")

    def __call__(self, sentences: Sequence[str]) -> Batch:
        """Encode at least one sentence."""
        encodings = self._tokenizer.encode_batch(list(sentences))
        ids = np.array([encoding.ids for encoding in encodings], np.int64)
        keep = np.array([encoding.attention_mask for encoding in encodings], np.bool_)
        return Batch(ids, keep)
