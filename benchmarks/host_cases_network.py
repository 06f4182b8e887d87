"""What the host's kernels are timed on: the ops of networks, on the tensors of real ones."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import host_plain as plain
import numpy as np
from host_cases import CASES, F16, F32, FLOATS, LARGE, Array, Case, numbers, of, text

__all__ = ["CASES"]
"""Complete with the cases of this module."""

# Normalization --------------------------------------------------------------------------------------------------------


@of("softmax")
def softmax(_op: str, rng: np.random.Generator) -> Iterator[Case]:
    """Over the last axis, and over one before it."""
    for shape, axis in (((64, 16), -1), ((1, 1024), -1), ((4096, 64), -1), ((1024, 1000), -1), ((32, 256, 512), 1)):
        for dtype in FLOATS:
            x = numbers(rng, shape, dtype)
            label = f"{text(shape, dtype)} axis {axis}"
            yield Case(label, (x,), {"axis": axis}, lambda x=x, axis=axis: plain.softmax(x, axis), 1e-2)
    x = numbers(rng, (32, 32000))
    yield Case(text(x.shape), (x,), {}, lambda: plain.softmax(x))


@of("layer_norm", "rms_norm")
def norm(op: str, rng: np.random.Generator) -> Iterator[Case]:
    """Rows of networks, of one token to a prompt."""
    for shape in ((1, 384), (1, 4096), (2, 17, 384), (8, 128, 384), (32, 4096), LARGE):
        for dtype in FLOATS:
            x = numbers(rng, shape, dtype)
            w, b = numbers(rng, shape[-1:], dtype), numbers(rng, shape[-1:], dtype)
            if op == "layer_norm":
                yield Case(text(shape, dtype), (x, w, b), {}, lambda x=x, w=w, b=b: plain.layer_norm(x, w, b), 1e-2)
            else:
                yield Case(text(shape, dtype), (x, w), {}, lambda x=x, w=w: plain.rms_norm(x, w), 1e-2)


@of("group_norm")
def group_norm(_op: str, rng: np.random.Generator) -> Iterator[Case]:
    """Images of a decoder."""
    for shape in ((1, 32, 8, 8), (1, 320, 32, 32), (2, 320, 64, 64), (1, 128, 256, 256)):
        for dtype in FLOATS:
            x, w, b = (numbers(rng, s, dtype) for s in (shape, shape[1:2], shape[1:2]))
            run = lambda x=x, w=w, b=b: plain.group_norm(x, w, b, 32)  # noqa: E731
            yield Case(text(shape, dtype), (x, w, b), {"groups": 32}, run, 1e-2)


# Products -------------------------------------------------------------------------------------------------------------


@of("matmul")
def matmul(_op: str, rng: np.random.Generator) -> Iterator[Case]:
    """Matrices, stacks of them, a stack and a matrix, one row."""
    shapes = (((16, 32), (32, 16)), ((1, 4096), (4096, 1024)), ((512, 1024), (1024, 1024)))
    shapes += (((8, 12, 128, 64), (8, 12, 64, 128)), ((8, 128, 384), (384, 384)))
    for a, b in shapes:
        for dtype in FLOATS:
            x, y = numbers(rng, a, dtype), numbers(rng, b, dtype)
            label = f"{text(a)[:-8]} by {text(b, dtype)}"
            yield Case(label, (x, y), {}, lambda x=x, y=y: plain.matmul(x, y), 1e-2)


@of("linear")
def linear(_op: str, rng: np.random.Generator) -> Iterator[Case]:
    """Layers of MiniLM on a batch and on one row, with their activation and without."""
    for m, k, n in ((1, 384, 384), (34, 384, 1536), (1024, 384, 1536), (1024, 1536, 384)):
        for dtype in FLOATS:
            x, w, b = numbers(rng, (m, k), dtype), numbers(rng, (n, k), dtype), numbers(rng, (n,), dtype)
            run = lambda x=x, w=w, b=b: plain.linear(x, w, b)  # noqa: E731
            label = f"{m}x{k}x{n} {dtype.name}"
            yield Case(label, (x, w, b), {}, run, 1e-2)
            activated = lambda run=run: plain.gelu(run())  # noqa: E731
            yield Case(f"{label} gelu", (x, w, b), {"activation": "gelu"}, activated, 1e-2)


@of("conv2d")
def conv2d(_op: str, rng: np.random.Generator) -> Iterator[Case]:
    """Layers of an image network, of one place and of nine."""
    shapes = ((1, 8, 8, 8, 8, 3, 1, 1), (1, 64, 56, 56, 64, 3, 1, 1), (1, 256, 56, 56, 64, 1, 1, 0))
    shapes += ((8, 512, 7, 7, 2048, 1, 1, 0), (1, 3, 224, 224, 64, 7, 2, 3), (4, 128, 28, 28, 128, 3, 1, 1))
    for n, c, h, w, o, taps, stride, padding in shapes:
        for dtype in (F32, F16):
            x, filters, b = (
                numbers(rng, (n, c, h, w), dtype),
                numbers(rng, (o, c, taps, taps), dtype),
                numbers(rng, (o,)),
            )
            b = b.astype(dtype)
            run = lambda x=x, f=filters, b=b, s=stride, p=padding: plain.conv2d(x, f, b, s, p)  # noqa: E731
            label = f"{text((n, c, h, w), dtype)} by {o}x{taps}x{taps} stride {stride}"
            yield Case(label, (x, filters, b), {"stride": stride, "padding": padding}, run, 1e-2)


@of("depthwise_conv2d")
def depthwise_conv2d(_op: str, rng: np.random.Generator) -> Iterator[Case]:
    """Layers of a mobile network and of ConvNeXt."""
    shapes = ((1, 8, 8, 8, 3, 1, 1), (1, 96, 112, 112, 3, 2, 1), (1, 144, 56, 56, 3, 1, 1), (1, 384, 14, 14, 7, 1, 3))
    for n, c, h, w, taps, stride, padding in shapes:
        for dtype in (F32, F16):
            x, filters, b = (
                numbers(rng, (n, c, h, w), dtype),
                numbers(rng, (c, 1, taps, taps), dtype),
                numbers(rng, (c,)),
            )
            b = b.astype(dtype)
            run = lambda x=x, f=filters, b=b, s=stride, p=padding: plain.depthwise_conv2d(x, f, b, s, p)  # noqa: E731
            label = f"{text((n, c, h, w), dtype)} by {taps}x{taps} stride {stride}"
            yield Case(label, (x, filters, b), {"stride": stride, "padding": padding}, run, 2e-2)


# Attention ------------------------------------------------------------------------------------------------------------


@of("scaled_dot_product_attention")
def attention(_op: str, rng: np.random.Generator) -> Iterator[Case]:
    """MiniLM's with a mask, a causal prompt with grouped heads, few tokens."""

    def heads(batch: int, count: int, tokens: int, width: int, dtype: np.dtype[Any]) -> Array:
        return numbers(rng, (batch, tokens, count, width), dtype).transpose(0, 2, 1, 3)

    for batch, count, tokens, width in ((1, 2, 4, 16), (8, 12, 20, 32), (8, 12, 128, 32), (1, 12, 512, 64)):
        for dtype in FLOATS:
            q, k, v = (heads(batch, count, tokens, width, dtype) for _ in range(3))
            mask = rng.random((batch, 1, 1, tokens)) < 0.9
            mask[..., 0] = True
            run = lambda q=q, k=k, v=v, mask=mask: plain.attention(q, k, v, mask=mask)  # noqa: E731
            yield Case(f"{text((batch, count, tokens, width), dtype)} mask", (q, k, v, mask), {}, run, 2e-2)
    for tokens in (64, 512):
        for dtype in (F32, F16):
            q, k, v = (heads(1, n, tokens, 64, dtype) for n in (32, 8, 8))
            run = lambda q=q, k=k, v=v: plain.attention(q, k, v, causal=True)  # noqa: E731
            yield Case(f"{text((1, 32, tokens, 64), dtype)} causal", (q, k, v), {"causal": True}, run, 2e-2)


@of("rotary_embedding")
def rotary_embedding(_op: str, rng: np.random.Generator) -> Iterator[Case]:
    """One token of a sequence, of many, and prompts."""
    angle = np.arange(4096)[:, None] * 10000.0 ** (-np.arange(0, 128, 2) / 128)
    cos, sin = np.cos(angle).astype(F32), np.sin(angle).astype(F32)
    for shape in ((1, 2, 1, 16), (1, 32, 1, 128), (64, 32, 1, 128), (1, 32, 512, 128), (4, 8, 1024, 64)):
        for dtype in FLOATS:
            x, half = numbers(rng, shape, dtype), shape[-1] // 2
            position = rng.integers(0, 4096, (shape[0], shape[2]))
            c, s = (np.ascontiguousarray(table[:, :half]) for table in (cos, sin))
            run = lambda x=x, position=position, c=c, s=s: plain.rotary_embedding(x, position, c, s)  # noqa: E731
            yield Case(text(shape, dtype), (x, position, c, s), {}, run, 1e-2)


@of("decode_attention")
def decode_attention(_op: str, rng: np.random.Generator) -> Iterator[Case]:
    """One query on a short cache, grouped heads on long ones."""
    for batch, count, groups, tokens, width in ((1, 2, 2, 8, 16), (1, 32, 8, 2048, 128), (16, 32, 8, 512, 64)):
        for dtype in FLOATS:
            q = numbers(rng, (batch, count, width), dtype)
            k, v = (numbers(rng, (batch, groups, tokens, width), dtype) for _ in range(2))
            label = f"{batch}x{count}/{groups}x{tokens}x{width} {dtype.name}"
            run = lambda q=q, k=k, v=v: plain.decode_attention(q, k, v)  # noqa: E731
            yield Case(label, (q, k, v), {}, run, 2e-2)


@of("decode_attention_reduce")
def decode_attention_reduce(_op: str, rng: np.random.Generator) -> Iterator[Case]:
    """Rows of a step, in as many splits as there are."""
    for rows, splits, width in ((2, 2, 16), (32, 8, 128), (512, 16, 128), (2048, 4, 64)):
        o, m = numbers(rng, (rows, splits, width)), numbers(rng, (rows, splits))
        total = np.abs(numbers(rng, (rows, splits))) + F32.type(1)
        run = lambda o=o, m=m, total=total: plain.decode_attention_reduce(o, m, total)  # noqa: E731
        yield Case(text((rows, splits, width)), (o, m, total), {}, run)


@of("paged_decode_attention")
def paged_decode_attention(_op: str, rng: np.random.Generator) -> Iterator[Case]:
    """Many short sequences, some of 512 tokens, a long one."""
    for batch, count, groups, tokens, width in (
        (1, 2, 2, 8, 16),
        (64, 8, 8, 20, 64),
        (8, 32, 8, 512, 128),
        (1, 32, 8, 4096, 128),
    ):
        for dtype in FLOATS:
            page_tokens = 16
            each = -(-tokens // page_tokens)
            q = numbers(rng, (batch, count, width), dtype)
            k, v = (numbers(rng, (batch * each, groups, page_tokens, width), dtype) for _ in range(2))
            table = rng.permutation(batch * each).astype(np.int32).reshape(batch, each)
            lens = np.full(batch, tokens, np.int32)
            label = f"{batch}x{count}/{groups}x{tokens}x{width} {dtype.name}"
            run = lambda q=q, k=k, v=v, t=table, n=lens: plain.paged_decode_attention(q, k, v, t, n)  # noqa: E731
            yield Case(label, (q, k, v, table, lens), {}, run, 2e-2)


# Paged caches ---------------------------------------------------------------------------------------------------------


@of("paged_kv_append")
def paged_kv_append(_op: str, rng: np.random.Generator) -> Iterator[Case]:
    """One row, a batch of them, a prompt."""
    for rows in (1, 64, 2048):
        for source, target in ((F32, F32), (F16, F16), (F32, F16)):
            new = numbers(rng, (rows, 8, 128), source)
            slot = rng.permutation(4096)[:rows].astype(np.int32)
            pool = np.zeros((256, 8, 16, 128), target)
            run = lambda new=new, slot=slot, pool=pool: plain.paged_kv_append(new, slot, pool)  # noqa: E731
            yield Case(f"{text(new.shape, source)} into {target.name}", (new, slot, pool), {}, run)


@of("paged_kv_append_step")
def paged_kv_append_step(_op: str, rng: np.random.Generator) -> Iterator[Case]:
    """One sequence, a batch."""
    for batch in (1, 8, 64):
        for dtype in (F32, F16):
            k, v = (numbers(rng, (batch, 8, 128), dtype) for _ in range(2))
            k_pool, v_pool = np.zeros((2, batch * 8, 8, 16, 128), dtype)
            table = rng.permutation(batch * 8).astype(np.int32).reshape(batch, 8)
            lens = rng.integers(0, 128, batch).astype(np.int32)
            given = (k, v, k_pool, v_pool, table, lens)
            yield Case(text(k.shape, dtype), given, {}, lambda given=given: plain.paged_kv_append_step(*given))


@of("paged_lens_advance")
def paged_lens_advance(_op: str, _rng: np.random.Generator) -> Iterator[Case]:
    """A batch."""
    for batch in (1, 64):
        lens = np.zeros(batch, np.int32)
        yield Case(str(batch), (lens,), {}, lambda lens=lens: np.add(lens, np.int32(1), out=lens))


# int4 weights ---------------------------------------------------------------------------------------------------------


@of("quantize_int4")
def quantize_int4(_op: str, rng: np.random.Generator) -> Iterator[Case]:
    """A small weight and projections of a layer."""
    for shape in ((256, 256), (1024, 1024), (4096, 1024)):
        for dtype in (F32, F16):
            w = numbers(rng, shape, dtype)
            yield Case(text(shape, dtype), (w,), {}, lambda w=w: plain.quantize_int4(w))


@of("dequant_int4")
def dequant_int4(_op: str, rng: np.random.Generator) -> Iterator[Case]:
    """The same."""
    for shape in ((256, 256), (1024, 1024), (4096, 1024)):
        packed = plain.quantize_int4(numbers(rng, shape))
        yield Case(text(shape)[:-8], packed, {}, lambda packed=packed: plain.dequant_int4(*packed))


@of("dequant_gemv_int4", "dequant_matmul_int4")
def dequant_product(op: str, rng: np.random.Generator) -> Iterator[Case]:
    """The same, by one row or by some."""
    for shape in ((256, 256), (1024, 1024), (4096, 1024)):
        packed = plain.quantize_int4(numbers(rng, shape))
        for rows in ((),) if op == "dequant_gemv_int4" else ((1,), (64,)):
            for dtype in (F32, F16):
                x = numbers(rng, (*rows, shape[0]), dtype)
                run = lambda x=x, packed=packed: plain.dequant_product(x, *packed)  # noqa: E731
                yield Case(f"{text(x.shape, dtype)} by {shape[1]}", (x, *packed), {}, run, 1e-2)
