"""Rotary position embedding, some tokens at a time."""

from __future__ import annotations

import numpy as np

from nbx_registry.contracts.attention import halves
from nbx_registry.host.kernels.blocks import BLOCK, Array, working
from nbx_registry.launch import BindContext, Launch

AT_ONCE = 4 * BLOCK
"""Elements of a block of tokens: what is read and written of one fits a core's second-level cache."""


def rotary_embedding(context: BindContext) -> Launch:
    """Bind the rotation: blocks of tokens, all heads of a token together.

    A block is read in full before it is written, so that the output may be the input.
    """
    signature = context.signature
    x, _, _, _ = signature.operands
    batch, heads, tokens, width = x.shape
    interleaved = signature.attributes["interleaved"]
    dtype = working(x.dtype)
    tokens_at_once = max(1, min(tokens, AT_ONCE // max(heads * width, 1)))
    batch_at_once = max(1, min(batch, AT_ONCE // max(heads * tokens_at_once * width, 1)))

    def run(x: Array, position: Array, cos: Array, sin: Array, out: Array) -> None:
        if out.size == 0:
            return
        direct = out.dtype == dtype and not np.may_share_memory(x, out)
        for b in range(0, batch, batch_at_once):
            for t in range(0, tokens, tokens_at_once):
                part = slice(b, b + batch_at_once), slice(None), slice(t, t + tokens_at_once)
                rows = position[part[0], None, part[2]]
                c, s = cos[rows].astype(dtype, copy=False), sin[rows].astype(dtype, copy=False)
                read = x[part].astype(dtype, copy=False)
                turned = out[part] if direct else np.empty(read.shape, dtype)
                (first, second), (left, right) = halves(read, interleaved), halves(turned, interleaved)
                np.multiply(first, c, left)
                np.subtract(left, second * s, left)
                np.multiply(second, c, right)
                np.add(right, first * s, right)
                if not direct:
                    np.copyto(out[part], turned, casting="unsafe")

    return Launch(function=run, args=signature.names)
