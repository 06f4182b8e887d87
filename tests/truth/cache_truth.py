"""The paged cache and rotary embedding, against torch in float64 on the CPU and Python's own integers."""

from __future__ import annotations

import itertools

import numpy as np
import torch
from independent import TORCH, Comparer, as_torch, independent, wide
from running import values
from torch.nn import functional

FLOATS = ["float16", "bfloat16", "float32", "float64"]
TABLE = np.array([[3, 8, -1], [0, -1, -1], [7, 1, 2], [5, 6, 4], [-1, -1, -1]], np.int32)


@independent("rotary_embedding@1")
def rotations(compare: Comparer) -> None:
    for dtype, (batch, heads, tokens, width) in itertools.product(
        FLOATS, [(2, 3, 17, 64), (1, 1, 1, 2), (3, 2, 5, 126)]
    ):
        x = values((batch, heads, tokens, width), dtype, 1)
        angle = np.outer(np.arange(129), 10000.0 ** (-np.arange(width // 2) / (width // 2)))
        cos, sin = np.cos(angle).astype(np.float32), np.sin(angle).astype(np.float32)
        position = np.random.default_rng(2).integers(0, 129, (batch, tokens))
        at = torch.from_numpy(position)
        turn = torch.complex(wide(cos)[at], wide(sin)[at])[:, None]
        # Neighbours are real and imaginary part of one number.
        pairs = torch.view_as_complex(wide(x).unflatten(-1, (-1, 2)).contiguous())
        theirs = torch.view_as_real(pairs * turn).flatten(-2)
        compare(compare.oracle("rotary_embedding", x, position, cos, sin, interleaved=True), theirs, "torch")
        halves = torch.complex(*wide(x).chunk(2, -1)) * turn
        theirs = torch.cat([halves.real, halves.imag], -1)
        compare(compare.oracle("rotary_embedding", x, position.astype(np.int32), cos, sin), theirs, "torch")


@independent("paged_kv_append_step@1")
def steps(compare: Comparer) -> None:
    op = "paged_kv_append_step"
    for (source, target), lens in itertools.product(
        [("float32", "float32"), ("float32", "float16"), ("float32", "bfloat16"), ("float16", "float8_e5m2")],
        [[17, 16, 0, 47, 5], [-1, 15, 48, 31, 0]],
    ):
        new = [
            values((5, 3, width), source, seed, 1e5 if source == "float32" else 1.0) for seed, width in ((1, 8), (2, 6))
        ]
        pools = [values((9, 3, 16, width), target, seed) for seed, width in ((3, 8), (4, 6))]
        found = compare.oracle(op, *new, *pools, TABLE, np.array(lens, np.int32))
        for rows, pool, ours in zip(new, pools, found, strict=True):
            theirs = as_torch(pool).to(torch.float64)
            for b, length in enumerate(lens):
                entry, position = divmod(length, 16)
                if 0 <= entry < 3 and (page := int(TABLE[b, entry])) >= 0:
                    theirs[page, :, position] = as_torch(rows[b]).to(TORCH[target]).to(torch.float64)
            compare(ours, theirs, "torch", rtol=0)


@independent("paged_lens_advance@1")
def advances(compare: Comparer) -> None:
    lens = np.array([0, 17, -1, 2**31 - 1, -(2**31)], np.int32)
    for n in (1, 0, -5, 2**31 - 1, -(2**31)):
        theirs = [(value + n + 2**31) % 2**32 - 2**31 for value in lens.tolist()]
        compare(compare.oracle("paged_lens_advance", lens, n=n), theirs, "python", rtol=0)


@independent("paged_decode_attention@1")
def paged_decodes(compare: Comparer) -> None:
    op = "paged_decode_attention"
    for (query, cache), (heads, kv, width, out), lens in itertools.product(
        [("float32", "float32"), ("float16", "float16"), ("float32", "bfloat16"), ("float64", "float64")],
        [(6, 2, 127, 64), (4, 4, 8, 8), (8, 1, 129, 33)],
        [[20, 16, 48, 33, 0], [17, 1, 1000, 47, 3], [0, 0, 5, -1, 0]],
    ):
        q, k, v = (
            values((5, heads, width), query, 1),
            values((9, kv, 16, width), cache, 2),
            values((9, kv, 16, out), cache, 3),
        )
        theirs = torch.zeros(5, heads, out, dtype=torch.float64)
        for b, length in enumerate(lens):
            pages = torch.from_numpy(TABLE[b][TABLE[b] >= 0].astype(np.int64))
            reached = max(0, min(length, 16 * len(pages)))
            if reached:
                # torch joins the pages one behind the other, and leaves out what lies past the end.
                keys, held = (wide(pool)[pages].transpose(0, 1).flatten(1, 2)[:, :reached] for pool in (k, v))
                theirs[b] = functional.scaled_dot_product_attention(
                    wide(q)[b, :, None], keys, held, scale=0.2, enable_gqa=True
                )[:, 0]
        compare(compare.oracle(op, q, k, v, TABLE, np.array(lens, np.int32), scale=0.2), theirs, "torch")
    # Of a finite query beyond float16 its largest number is left.
    q, k, v = (
        np.array([[[1e5, -2e5]]], np.float32),
        values((1, 1, 4, 2), "float16", 4, 1e-4),
        values((1, 1, 4, 2), "float16", 5),
    )
    clamped = torch.tensor([[[65504.0, -65504.0]]], dtype=torch.float64)
    theirs = functional.scaled_dot_product_attention(clamped, wide(k)[0, :, :3], wide(v)[0, :, :3])
    found = compare.oracle(op, q, k, v, np.zeros((1, 1), np.int32), np.array([3], np.int32), q_dtype="float16")
    compare(found, theirs, "torch")
