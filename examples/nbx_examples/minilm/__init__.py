"""all-MiniLM-L6-v2, sentences to embeddings, run op by op through nbx-registry."""

from nbx_examples.minilm.files import INSTALL, ModelFiles, find
from nbx_examples.minilm.model import MiniLM
from nbx_examples.minilm.tokens import Batch, Tokens

__all__ = ["INSTALL", "Batch", "MiniLM", "ModelFiles", "Tokens", "find"]
