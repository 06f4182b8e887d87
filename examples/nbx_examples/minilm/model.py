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
        # Every token of a single sentence is of type 0, whose embedding is one row: added to all positions once.
        self.places = nbx.ops.add(
            self.weights["embeddings.position_embeddings.weight"],
            self._place(weights["embeddings.token_type_embeddings.weight"][0]),
        )
        # A row's root mean square is its Euclidean norm by the root of its width.
        self.unit = nbx.ops.full(shape=(config.hidden,), fill_value=config.hidden**-0.5, device=device)

    def __call__(self, batch: Batch) -> Array:
        """Embed a batch: [B, hidden], on the model's device."""
        return self.embed(*self.placed(batch))

    def placed(self, batch: Batch) -> tuple[Array, Array, Array]:
        """Return what `embed` takes: ids, the mask of attention and what of the tokens counts."""
        mask = batch.keep[:, None, None, :]  # [B, 1, 1, T]: every query attends the kept keys
        share = batch.keep[:, :, None].astype(np.float32)
        return self._place(batch.ids), self._place(mask), self._place(share)

    def embed(self, ids: Array, mask: Array, share: Array) -> Array:
        """Embed what lies on the device already; nothing of it is read on the host."""
        words = nbx.ops.embedding(self.weights["embeddings.word_embeddings.weight"], ids)
        x = self._norm(nbx.ops.add(words, self.places[: ids.shape[1]]), "embeddings.LayerNorm")
        for layer in range(self.config.layers):
            # The words have been read: every layer's heads are merged where they were.
            x = self._layer(x, mask, words, f"encoder.layer.{layer}.")
        return self._pool(x, share)

    def _layer(self, x: Array, mask: Array, merged: Array, at: str) -> Array:
        q, k, v = self._heads(self._linear(x, f"{at}attention.self"))
        nbx.ops.scaled_dot_product_attention(q, k, v, mask, out=self._by_head(merged))
        x = self._norm(
            nbx.ops.add(x, self._linear(merged, f"{at}attention.output.dense")), f"{at}attention.output.LayerNorm"
        )
        wide = self._linear(x, f"{at}intermediate.dense", activation="gelu")
        return self._norm(nbx.ops.add(x, self._linear(wide, f"{at}output.dense")), f"{at}output.LayerNorm")

    def _pool(self, x: Array, share: Array) -> Array:
        """Sum the tokens that count; what the mean would divide by drops out of the quotient."""
        total = nbx.ops.sum(nbx.ops.multiply(x, share), axis=1)  # [B, hidden]
        return nbx.ops.rms_norm(total, self.unit, eps=0.0)

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

    def _by_head(self, x: Array) -> Array:
        """[B, T, hidden] to [B, heads, T, hidden / heads], a view: what is written there lies token by token."""
        batch, tokens, hidden = x.shape
        split = x.reshape((batch, tokens, self.config.heads, hidden // self.config.heads))
        return nbx.ops.permute_dims(split, axes=(0, 2, 1, 3))

    def _linear(self, x: Array, name: str, activation: Literal["gelu"] | None = None) -> Array:
        return nbx.ops.linear(x, self.weights[f"{name}.weight"], self.weights[f"{name}.bias"], activation=activation)

    def _norm(self, x: Array, name: str) -> Array:
        weight, bias = self.weights[f"{name}.weight"], self.weights[f"{name}.bias"]
        return nbx.ops.layer_norm(x, weight, bias, eps=self.config.epsilon)

    def _place(self, array: np.ndarray) -> Array:
        return array if self.device == "cpu" else nbx.asarray(array, device=self.device)
