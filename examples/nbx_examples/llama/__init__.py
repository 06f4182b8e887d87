"""Llama 3.2's network with a paged cache, decoding greedily op by op through nbx-registry."""

from nbx_examples.llama.config import LLAMA_3_2_1B, SMALL, Config
from nbx_examples.llama.decoder import Decoder
from nbx_examples.llama.weights import Weights

__all__ = ["LLAMA_3_2_1B", "SMALL", "Config", "Decoder", "Weights"]
