"""Rotary position embedding, some tokens at a time."""

from __future__ import annotations

import numpy as np

from nbx_registry.contracts.attention import halves
from nbx_registry.host.kernels.blocks import BLOCK, Array, working
from nbx_registry.launch import BindContext, Launch


def rotary_embedding(context: BindContext) -> Launch:
    """Bind the rotation: blocks of tokens, all heads of a token together, each read before it is written."""
    signature = context.signature
    x, _, _, _ = signature.operands
    batch, heads, tokens, width = x.shape
    interleaved = signature.attributes["interleaved"]
    dtype = working(x.dtype)
    tokens_at_once = max(1, min(tokens, BLOCK // max(heads * width, 1)))
    batch_at_once = max(1, min(batch, BLOCK // max(heads * tokens_at_once * width, 1)))

    def run(x: Array, position: Array, cos: Array, sin: Array, out: Array) -> None:
        if out.size == 0:
            return
        with np.errstate(all="ignore"):
            for b in range(0, batch, batch_at_once):
                for t in range(0, tokens, tokens_at_once):
                    part = slice(b, b + batch_at_once), slice(None), slice(t, t + tokens_at_once)
                    rows = position[part[0], part[2]]
                    c, s = (table[rows].astype(dtype, copy=False)[:, None] for table in (cos, sin))
                    first, second = (half.astype(dtype) for half in halves(x[part], interleaved))
                    left, right = halves(out[part], interleaved)
                    turned = np.multiply(first, s)
                    np.multiply(first, c, first)
                    np.copyto(left, np.subtract(first, second * s, first), casting="unsafe")
                    np.multiply(second, c, second)
                    np.copyto(right, np.add(second, turned, second), casting="unsafe")

    return Launch(function=run, args=signature.names)
