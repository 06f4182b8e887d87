"""The host's attention kernels, as data."""

from __future__ import annotations

from nbx_registry.host.specs.numpy_kernel import numpy_kernel

KERNELS = (
    numpy_kernel(
        "scaled_dot_product_attention",
        "attention",
        "Scores of 131072 pairs at a time: BLAS, softmax, BLAS; keys past a causal block are left out.",
    ),
    numpy_kernel("decode_attention", "decoding", "The heads of a group as one product by BLAS; all keys in one pass."),
    numpy_kernel(
        "decode_attention_reduce", "decoding", "The splits of a row in one product by BLAS.", batch_invariant=True
    ),
    numpy_kernel(
        "paged_decode_attention",
        "decoding",
        "Sequences of as many pages together, long ones in parts: gathered, then the heads of a group as one product.",
        batch_invariant=True,
    ),
    numpy_kernel(
        "rotary_embedding",
        "rotary",
        "Blocks of tokens, all heads together.",
        batch_invariant=True,
        overlap="same",
    ),
)
