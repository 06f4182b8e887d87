"""The network of all-MiniLM-L6-v2, written only with ``nbx.ops``: the same code on the host and on a device.

Six layers of post-norm attention and feed-forward (BERT: Devlin et al., arXiv:1810.04805), a mean over the tokens
that are no padding, and division by the Euclidean norm (Sentence-BERT: Reimers and Gurevych, arXiv:1908.10084).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import numpy as np

import nbx_registry as nbx
from nbx_examples.minilm.files import Config
from nbx_examples.minilm.tokens import Batch

Array = Any
"""What the ops take and return: a NumPy array on the host, an ``nbx.Tensor`` on a device."""


class MiniLM:
    """Sentences as [B, 384] float32 of Euclidean norm 1.

    Parameters
    ----------
    config : Config
        Sizes of the network.
    weights : mapping of str to ndarray
        Float32 tensors under their names in the weights file.
    device : str
        ``cpu`` (NumPy arrays throughout) or a live device as ``cuda:0`` (nbx.Tensor throughout).
    """

    def __init__(self, config: Config, weights: Mapping[str, np.ndarray], device: str = "cpu") -> None:
        self.config = config
        self.device = device
        self.weights = {name: self._place(array) for name, array in weights.items()}
        self._join()
        # Every token of a single sentence is of type 0: its embedding is one row, added to all.
        self.token_type = self._place(weights["embeddings.token_type_embeddings.weight"][0])

    def __call__(self, batch: Batch) -> Array:
        """Embed a batch: [B, hidden], on the model's device."""
        return self.embed(*self.placed(batch))

    def placed(self, batch: Batch) -> tuple[Array, Array, Array, Array]:
        """Return what `embed` takes: ids, positions, the mask of attention and the weights of the mean."""
        positions = np.arange(batch.ids.shape[1], dtype=np.int64)
        mask = batch.keep[:, None, None, :]  # [B, 1, 1, T]: every query attends the kept keys
        share = batch.keep[:, :, None].astype(np.float32)
        return self._place(batch.ids), self._place(positions), self._place(mask), self._place(share)

    def embed(self, ids: Array, positions: Array, mask: Array, share: Array) -> Array:
        """Embed what lies on the device already; nothing of it is read on the host."""
        x = self._embed(ids, positions)
        for layer in range(self.config.layers):
            x = self._layer(x, mask, f"encoder.layer.{layer}.")
        return self._pool(x, share)

    def _embed(self, ids: Array, positions: Array) -> Array:
        words = nbx.ops.embedding(self.weights["embeddings.word_embeddings.weight"], ids)
        places = nbx.ops.embedding(self.weights["embeddings.position_embeddings.weight"], positions)
        return self._norm(nbx.ops.add(nbx.ops.add(words, self.token_type), places), "embeddings.LayerNorm")

    def _layer(self, x: Array, mask: Array, at: str) -> Array:
        q, k, v = self._heads(self._linear(x, f"{at}attention.self"))
        attended = self._merge(nbx.ops.scaled_dot_product_attention(q, k, v, mask))
        x = self._norm(
            nbx.ops.add(x, self._linear(attended, f"{at}attention.output.dense")), f"{at}attention.output.LayerNorm"
        )
        wide = self._linear(x, f"{at}intermediate.dense", activation="gelu")
        return self._norm(nbx.ops.add(x, self._linear(wide, f"{at}output.dense")), f"{at}output.LayerNorm")

    def _pool(self, x: Array, share: Array) -> Array:
        total = nbx.ops.sum(nbx.ops.multiply(x, share), axis=1)  # [B, hidden]
        mean = nbx.ops.divide(total, nbx.ops.sum(share, axis=1))
        squares = nbx.ops.sum(nbx.ops.multiply(mean, mean), axis=-1, keepdims=True)
        return nbx.ops.divide(mean, nbx.ops.sqrt(squares))

    def _join(self) -> None:
        """Make one weight of a layer's queries, keys and values, so that one product makes all three."""
        for layer in range(self.config.layers):
            at = f"encoder.layer.{layer}.attention.self"
            for kind in ("weight", "bias"):
                parts = [self.weights.pop(f"{at}.{name}.{kind}") for name in ("query", "key", "value")]
                self.weights[f"{at}.{kind}"] = nbx.ops.concat(parts, axis=0)

    def _heads(self, x: Array) -> tuple[Array, Array, Array]:
        """[B, T, 3 hidden] to queries, keys and values [B, heads, T, hidden / heads]: views, nothing moves."""
        batch, tokens, _ = x.shape
        split = x.reshape((batch, tokens, 3, self.config.heads, self.config.hidden // self.config.heads))
        by_head = nbx.ops.permute_dims(split, axes=(2, 0, 3, 1, 4))
        return by_head[0], by_head[1], by_head[2]

    def _merge(self, x: Array) -> Array:
        """The way back; the heads of a token become neighbours, so this one is a copy."""
        batch, heads, tokens, width = x.shape
        return nbx.ops.permute_dims(x, axes=(0, 2, 1, 3), copy=True).reshape((batch, tokens, heads * width))

    def _linear(self, x: Array, name: str, activation: Literal["gelu"] | None = None) -> Array:
        return nbx.ops.linear(x, self.weights[f"{name}.weight"], self.weights[f"{name}.bias"], activation=activation)

    def _norm(self, x: Array, name: str) -> Array:
        weight, bias = self.weights[f"{name}.weight"], self.weights[f"{name}.bias"]
        return nbx.ops.layer_norm(x, weight, bias, eps=self.config.epsilon)

    def _place(self, array: np.ndarray) -> Array:
        return array if self.device == "cpu" else nbx.asarray(array, device=self.device)
