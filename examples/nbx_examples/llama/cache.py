"""The paged cache of keys and values: pools of pages a layer, one table of pages for all layers."""

from __future__ import annotations

import numpy as np

import nbx_registry as nbx
from nbx_examples.llama.config import Config


class Cache:
    """Room for ``longest`` tokens of each of ``batch`` sequences.

    Pages are dealt out in a shuffled order, as a server that has run for a while would.

    Attributes
    ----------
    keys, values : list of float16 [pages, kv_heads, page_tokens, head]
        Pools by layer.
    table : int32 [batch, pages a sequence]
    lens : int32 [batch]
        Tokens held, on the device.
    """

    def __init__(self, config: Config, batch: int, longest: int, *, device: str = "cpu", page_tokens: int = 64) -> None:
        self.page_tokens = page_tokens
        self.longest = longest
        each = -(-longest // page_tokens)
        self._pages = np.random.default_rng(0).permutation(batch * each).astype(np.int32).reshape(batch, each)
        shape = (batch * each, config.kv_heads, page_tokens, config.head)

        def pool() -> nbx.Tensor:
            return nbx.ops.full(shape=shape, fill_value=0.0, dtype="float16", device=device)

        self.keys = [pool() for _ in range(config.layers)]
        self.values = [pool() for _ in range(config.layers)]
        self.table = nbx.asarray(self._pages, device=device)
        self.lens = nbx.ops.full(shape=(batch,), fill_value=0, dtype="int32", device=device)

    def slots(self, tokens: int) -> np.ndarray:
        """Return where the first tokens of each sequence go, int32 [batch * tokens], sequence after sequence.

        Raises `ValueError` for more tokens than there is room for.
        """
        if tokens > self.longest:
            raise ValueError(f"the cache has room for {self.longest} tokens of a sequence, not for {tokens}")
        position = np.arange(tokens)
        page = self._pages[:, position // self.page_tokens]
        return (page * self.page_tokens + position % self.page_tokens).astype(np.int32).reshape(-1)
