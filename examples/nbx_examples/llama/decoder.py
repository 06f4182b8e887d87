"""The network, written only with ``nbx.ops``: a prompt at once, then token by token on a paged cache.

Root-mean-square norms before attention and feed-forward, rotary positions, grouped queries, SiLU-gated feed-forward
(Touvron et al., "LLaMA", arXiv:2302.13971; Grattafiori et al., "The Llama 3 Herd of Models", arXiv:2407.21783).
"""

from __future__ import annotations

import numpy as np

import nbx_registry as nbx
from nbx_examples.llama.cache import Cache
from nbx_examples.llama.config import Config
from nbx_examples.llama.weights import Layer, Weights


class Decoder:
    """Greedy continuation of ``batch`` sequences.

    Nothing that `step` does depends on a value of the host: lengths, tokens and cache lie on the device and stay where
    they are, so that one recorded step is every step.

    Parameters
    ----------
    config : Config
    weights : Weights
        On the same device.
    batch, longest : int
        Sequences, and the most tokens of one, prompt included.
    device : str
        ``cpu`` or a live device as ``cuda:0``.
    """

    def __init__(self, config: Config, weights: Weights, *, batch: int, longest: int, device: str = "cpu") -> None:
        self.config = config
        self.weights = weights
        self.batch = batch
        self.device = device
        self.cache = Cache(config, batch, longest, device=device)
        self.cos, self.sin = (self._place(table) for table in config.tables(longest))
        self.tokens = nbx.ops.full(shape=(batch,), fill_value=0, dtype="int64", device=device)
        """The last token of each sequence, int64 [batch]: what the next step reads and then writes."""

    def prompt(self, ids: np.ndarray) -> None:
        """Read the prompts, int64 [batch, tokens] all of one length, into an empty cache; `tokens` are what follows."""
        batch, count = ids.shape
        x = nbx.ops.embedding(self.weights.embedding, self._place(ids.reshape(-1)))
        position = self._place(np.broadcast_to(np.arange(count, dtype=np.int32), ids.shape).copy())
        slot = self._place(self.cache.slots(count))
        for index, layer in enumerate(self.weights.layers):
            q, k, v = self._heads(self._norm(x), layer, position)
            for new, pool in ((k, self.cache.keys[index]), (v, self.cache.values[index])):
                nbx.ops.paged_kv_append(self._rows(new), slot, pool)
            attended = nbx.ops.scaled_dot_product_attention(q, k, v, causal=True)
            x = self._feed_forward(nbx.ops.add(x, layer.merge(self._merged(attended))), layer)
        nbx.ops.paged_lens_advance(self.cache.lens, n=count)
        last = x.reshape((batch, count, self.config.hidden))[:, count - 1]
        self._choose(last)

    def step(self) -> None:
        """Decode one token of every sequence: `tokens` become the ones that follow."""
        x = nbx.ops.embedding(self.weights.embedding, self.tokens)
        lens = self.cache.lens
        position = lens.reshape((self.batch, 1))
        attended = nbx.ops.add(lens, 1)
        for index, layer in enumerate(self.weights.layers):
            q, k, v = self._heads(self._norm(x), layer, position)
            keys, values = self.cache.keys[index], self.cache.values[index]
            nbx.ops.paged_kv_append_step(k[:, :, 0], v[:, :, 0], keys, values, self.cache.table, lens)
            mixed = nbx.ops.paged_decode_attention(
                q[:, :, 0], keys, values, self.cache.table, attended, longest=self.cache.longest
            )
            merged = mixed.reshape((self.batch, self.config.heads * self.config.head))
            x = self._feed_forward(nbx.ops.add(x, layer.merge(merged)), layer)
        self._choose(x)
        nbx.ops.paged_lens_advance(lens)

    def _choose(self, x: nbx.Tensor) -> None:
        nbx.ops.argmax(self.weights.logits(self._norm(x)), axis=-1, out=self.tokens)

    def _feed_forward(self, x: nbx.Tensor, layer: Layer) -> nbx.Tensor:
        normed = self._norm(x)
        return nbx.ops.add(x, layer.down(nbx.ops.multiply(layer.gate(normed, silu=True), layer.up(normed))))

    def _heads(self, x: nbx.Tensor, layer: Layer, position: nbx.Tensor) -> tuple[nbx.Tensor, nbx.Tensor, nbx.Tensor]:
        """[batch * tokens, hidden] to queries, keys and values [batch, heads, tokens, head]: views of one product.

        Queries and keys at ``position`` [batch, tokens] are rotated together, as heads of one tensor.
        """
        config = self.config
        first, second = config.heads, config.heads + config.kv_heads
        heads = layer.qkv(x).reshape((*position.shape, config.heads + 2 * config.kv_heads, config.head))
        by_head = nbx.ops.permute_dims(heads, axes=(0, 2, 1, 3))
        rotated = nbx.ops.rotary_embedding(by_head[:, :second], position, self.cos, self.sin)
        return rotated[:, :first], rotated[:, first:], by_head[:, second:]

    def _rows(self, x: nbx.Tensor) -> nbx.Tensor:
        """[batch, heads, tokens, head] to [batch * tokens, heads, head], as the cache takes them."""
        batch, heads, tokens, width = x.shape
        return nbx.ops.permute_dims(x, axes=(0, 2, 1, 3), copy=True).reshape((batch * tokens, heads, width))

    def _merged(self, x: nbx.Tensor) -> nbx.Tensor:
        rows = self._rows(x)
        return rows.reshape((rows.shape[0], rows.shape[1] * rows.shape[2]))

    def _norm(self, x: nbx.Tensor) -> nbx.Tensor:
        return nbx.ops.rms_norm(x, self.weights.scale, eps=self.config.epsilon)

    def _place(self, array: np.ndarray) -> nbx.Tensor:
        return nbx.asarray(array, device=self.device)
