"""What the host's kernels are timed on: for every op small tensors, where calls count, and those of real models."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import host_plain as plain
import ml_dtypes
import numpy as np
from host_plain import Array

F32, F16, BF16, I32 = np.dtype(np.float32), np.dtype(np.float16), np.dtype(ml_dtypes.bfloat16), np.dtype(np.int32)
FLOATS = (F32, F16, BF16)
SMALL, MEDIUM, LARGE = (1, 1024), (64, 4096), (1024, 4096)
"""Rows of a model's width: one short one, those of a step of decoding, those of a prompt."""


class Case(NamedTuple):
    """One op on given tensors, beside its plain way."""

    label: str
    tensors: tuple[Any, ...]
    attributes: dict[str, Any]
    plain: Callable[[], Any]
    tolerance: float | None = 1e-3
    """By which plain results may differ, relative to the largest; None: they are other numbers, or in another order."""


Maker = Callable[[np.random.Generator], Iterator[Case]]
CASES: dict[str, Maker] = {}
"""Of every op, by name."""


def of(*ops: str) -> Callable[[Callable[[str, np.random.Generator], Iterator[Case]]], Maker]:
    """Register cases of these ops; their function is given an op's name and a generator of numbers."""

    def register(function: Callable[[str, np.random.Generator], Iterator[Case]]) -> Any:
        for op in ops:
            CASES[op] = lambda rng, op=op: function(op, rng)
        return function

    return register


def numbers(rng: np.random.Generator, shape: tuple[int, ...], dtype: np.dtype[Any] = F32) -> Array:
    """Return normal numbers, or integers up to 100."""
    if dtype == I32:
        return rng.integers(-100, 100, shape, np.int32)
    return rng.standard_normal(shape, np.float32).astype(dtype)


def apart(rng: np.random.Generator, shape: tuple[int, ...], dtype: np.dtype[Any] = F32) -> Array:
    """Return numbers above zero and away from it."""
    return np.abs(numbers(rng, shape, dtype)) + dtype.type(1)


def text(shape: tuple[int, ...], dtype: np.dtype[Any] = F32) -> str:
    """Return how a shape and a dtype are printed."""
    return f"{'x'.join(map(str, shape))} {dtype.name}"


# Elementwise ----------------------------------------------------------------------------------------------------------

ARITHMETIC: dict[str, np.ufunc] = {
    "add": np.add,
    "subtract": np.subtract,
    "multiply": np.multiply,
    "divide": np.divide,
    "maximum": np.maximum,
    "minimum": np.minimum,
}


@of(*ARITHMETIC)
def arithmetic(op: str, rng: np.random.Generator) -> Iterator[Case]:
    """Two tensors, of floating numbers and of integers; a tensor and a row; a tensor and a number."""
    function = ARITHMETIC[op]
    for shape in (SMALL, MEDIUM, LARGE):
        for dtype in (*FLOATS, *(() if op == "divide" else (I32,))):
            a, b = numbers(rng, shape, dtype), apart(rng, shape, dtype)
            yield Case(text(shape, dtype), (a, b), {}, lambda a=a, b=b: function(a, b))
    for dtype in (F32, F16):
        a, row = numbers(rng, LARGE, dtype), apart(rng, LARGE[1:], dtype)
        yield Case(f"{text(LARGE, dtype)}, a row", (a, row), {}, lambda a=a, row=row: function(a, row))
        yield Case(f"{text(LARGE, dtype)}, a number", (a, 0.5), {}, lambda a=a: function(a, dtype.type(0.5)))


UNARY: dict[str, Callable[[Array], Array]] = {
    "negative": np.negative,
    "abs": np.absolute,
    "reciprocal": np.reciprocal,
    "sqrt": np.sqrt,
    "rsqrt": plain.rsqrt,
    "exp": lambda x: plain.elementary(np.exp, x),
    "log": lambda x: plain.elementary(np.log, x),
    "tanh": lambda x: plain.elementary(np.tanh, x),
    "erf": plain.erf,
    "relu": plain.relu,
    "sigmoid": plain.sigmoid,
    "silu": plain.silu,
}


@of(*UNARY)
def unary(op: str, rng: np.random.Generator) -> Iterator[Case]:
    """One tensor, of magnitudes where roots and logarithms are taken."""
    for shape in (SMALL, MEDIUM, LARGE):
        for dtype in FLOATS:
            x = (apart if op in ("reciprocal", "sqrt", "rsqrt", "log") else numbers)(rng, shape, dtype)
            yield Case(text(shape, dtype), (x,), {}, lambda x=x: UNARY[op](x), 1e-2)


@of("gelu")
def gelu(_op: str, rng: np.random.Generator) -> Iterator[Case]:
    """Both forms, on what a feed-forward layer gives."""
    for shape in ((1, 64), (2, 17, 1536), (8, 128, 1536), LARGE):
        for dtype in FLOATS:
            x = numbers(rng, shape, dtype)
            yield Case(text(shape, dtype), (x,), {}, lambda x=x: plain.gelu(x), 1e-2)
            yield Case(
                f"{text(shape, dtype)} tanh", (x,), {"approximate": "tanh"}, lambda x=x: plain.gelu_tanh(x), 1e-2
            )


@of("pow")
def power(_op: str, rng: np.random.Generator) -> Iterator[Case]:
    """By one number, and element by element."""
    for shape in (SMALL, MEDIUM, LARGE):
        for dtype in FLOATS:
            x = apart(rng, shape, dtype)
            for e in (2, 3, -0.75):
                yield Case(f"{text(shape, dtype)} by {e}", (x, e), {}, lambda x=x, e=e: plain.power(x, e), 1e-2)
            y = numbers(rng, shape, dtype)
            yield Case(text(shape, dtype), (x, y), {}, lambda x=x, y=y: plain.powers(x, y), 1e-2)


@of("clip")
def clip(_op: str, rng: np.random.Generator) -> Iterator[Case]:
    """Between two numbers, and below one."""
    for shape in (SMALL, MEDIUM, LARGE):
        for dtype in (*FLOATS, I32):
            x, (low, high) = numbers(rng, shape, dtype), np.array([-1, 1]).astype(dtype)
            yield Case(text(shape, dtype), (x, -1, 1), {}, lambda x=x, a=low, b=high: plain.clip(x, a, b))
            yield Case(f"{text(shape, dtype)} below", (x, None, 1), {}, lambda x=x, b=high: np.minimum(x, b))


@of("where")
def where(_op: str, rng: np.random.Generator) -> Iterator[Case]:
    """Tensors by a random condition; a tensor or a number by a row."""
    for shape in (SMALL, MEDIUM, LARGE):
        for dtype in (*FLOATS, I32):
            a, b = numbers(rng, shape, dtype), numbers(rng, shape, dtype)
            c = rng.random(shape) < 0.5
            yield Case(text(shape, dtype), (c, a, b), {}, lambda a=a, b=b, c=c: np.where(c, a, b))
            row = np.arange(shape[-1]) < shape[-1] // 2
            number = dtype.type(-1)
            yield Case(
                f"{text(shape, dtype)} by a row, a number",
                (row, a, -1),
                {},
                lambda a=a, row=row, number=number: np.where(row, a, number),
            )


@of("astype")
def astype(_op: str, rng: np.random.Generator) -> Iterator[Case]:
    """Between floating dtypes, and to and from integers."""
    pairs = ((F32, F16), (F16, F32), (F32, BF16), (BF16, F32), (F16, BF16), (F32, I32), (I32, F32), (I32, F16))
    pairs += ((F32, np.dtype(np.float64)), (F32, np.dtype(np.int8)), (F32, np.dtype(ml_dtypes.float8_e4m3fn)))
    for shape in (SMALL, MEDIUM, LARGE):
        for source, target in pairs:
            x = numbers(rng, shape, source)
            label = f"{text(shape, source)} to {target.name}"
            yield Case(label, (x,), {"dtype": target.name}, lambda x=x, target=target: plain.astype(x, target), 0.1)


# Reductions and normalization -----------------------------------------------------------------------------------------

REDUCTIONS: dict[str, Callable[[Array, int | None], Array]] = {
    "sum": plain.total,
    "mean": plain.mean,
    "prod": plain.prod,
    "max": lambda x, axis: x.max(axis),
    "argmax": lambda x, axis: x.argmax(axis),
}


@of(*REDUCTIONS)
def reduction(op: str, rng: np.random.Generator) -> Iterator[Case]:
    """Over rows, over columns, over all; over short rows and over few columns."""
    function = REDUCTIONS[op]
    shapes = ((SMALL, 1), (MEDIUM, 1), (MEDIUM, 0), (LARGE, 1), (LARGE, 0), (LARGE, None), ((65536, 64), 1))
    shapes += (((65536, 64), 0), ((32, 64, 2048), 1))
    for shape, axis in shapes:
        for dtype in (F32, F16, BF16, I32):
            if dtype == I32 and op in ("mean", "prod"):
                continue
            # Products of these stay in range.
            x = (
                (2.0 ** rng.integers(0, 2, shape) / 1.4142).astype(dtype)
                if op == "prod"
                else numbers(rng, shape, dtype)
            )
            tolerance = None if op in ("argmax", "prod") else 1e-2
            label = f"{text(shape, dtype)} axis {axis}"
            yield Case(label, (x,), {"axis": axis}, lambda x=x, axis=axis: function(x, axis), tolerance)


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


# Layout, indexing, sorting --------------------------------------------------------------------------------------------


@of("permute_dims")
def permute_dims(_op: str, rng: np.random.Generator) -> Iterator[Case]:
    """Heads to the front, a matrix transposed."""
    for shape, axes in (((1, 16, 4, 32), (0, 2, 1, 3)), ((8, 128, 12, 32), (0, 2, 1, 3)), (LARGE, (1, 0))):
        for dtype in (F32, F16):
            x = numbers(rng, shape, dtype)
            copy = lambda x=x, axes=axes: np.ascontiguousarray(x.transpose(axes))  # noqa: E731
            yield Case(f"{text(shape, dtype)} to {axes}", (x,), {"axes": axes, "copy": True}, copy)


@of("broadcast_to")
def broadcast_to(_op: str, rng: np.random.Generator) -> Iterator[Case]:
    """A row down, a column along."""
    for source, shape in ((SMALL, (4, 1024)), ((1, 4096), LARGE), ((1024, 1), LARGE)):
        for dtype in (F32, F16):
            x = numbers(rng, source, dtype)
            copy = lambda x=x, shape=shape: np.broadcast_to(x, shape).copy()  # noqa: E731
            yield Case(f"{text(source, dtype)} to {text(shape)[:-8]}", (x,), {"shape": shape, "copy": True}, copy)


@of("concat")
def concat(_op: str, rng: np.random.Generator) -> Iterator[Case]:
    """Short rows, long rows, below one another and side by side."""
    for shape, axis in ((SMALL, 0), (MEDIUM, 1), ((512, 4096), 0), ((512, 4096), 1), ((4, 32, 128, 64), -1)):
        for dtype in (F32, F16):
            arrays = [numbers(rng, shape, dtype) for _ in range(2)]
            join = lambda arrays=arrays, axis=axis: np.concatenate(arrays, axis)  # noqa: E731
            yield Case(f"2 of {text(shape, dtype)} axis {axis}", (arrays,), {"axis": axis}, join)


@of("pixel_shuffle", "pixel_unshuffle")
def pixel_shuffle(op: str, rng: np.random.Generator) -> Iterator[Case]:
    """Images of an upsampler."""
    for n, c, h, w in ((1, 16, 8, 8), (2, 144, 64, 96), (1, 256, 128, 128)):
        for dtype in (F32, F16):
            x = numbers(rng, (n, c, h, w), dtype)
            move = plain.pixel_shuffle if op == "pixel_shuffle" else plain.pixel_unshuffle
            yield Case(text(x.shape, dtype), (x,), {"r": 2}, lambda x=x, move=move: move(x, 2))


@of("embedding")
def embedding(_op: str, rng: np.random.Generator) -> Iterator[Case]:
    """A vocabulary of MiniLM and of Llama, a few tokens and a batch."""
    for rows, width, shape in (
        (512, 64, (1, 8)),
        (30522, 384, (8, 128)),
        (32000, 1024, (1, 1)),
        (32000, 1024, (4, 512)),
    ):
        for dtype in (F32, F16):
            w, index = numbers(rng, (rows, width), dtype), rng.integers(0, rows, shape)
            label = f"{text(shape)[:-8]} of {text((rows, width), dtype)}"
            yield Case(label, (w, index), {}, lambda w=w, index=index: w[index])


@of("take")
def take(_op: str, rng: np.random.Generator) -> Iterator[Case]:
    """Rows, columns, channels."""
    for shape, axis, count in (((64, 64), 0, 16), (LARGE, 0, 512), (LARGE, 1, 1024), ((32, 128, 1024), 1, 64)):
        for dtype in (F32, F16):
            x, indices = numbers(rng, shape, dtype), rng.integers(0, shape[axis], count)
            label = f"{count} of {text(shape, dtype)} axis {axis}"
            run = lambda x=x, indices=indices, axis=axis: np.take(x, indices, axis)  # noqa: E731
            yield Case(label, (x, indices), {"axis": axis}, run)


@of("topk")
def topk(_op: str, rng: np.random.Generator) -> Iterator[Case]:
    """Experts of a router, tokens of a vocabulary."""
    for shape, k in (((1, 64), 4), ((1024, 64), 8), ((4, 32000), 50), ((32, 128256), 1), ((256, 8192), 2048)):
        for dtype in FLOATS:
            x = numbers(rng, shape, dtype)
            yield Case(f"{k} of {text(shape, dtype)}", (x,), {"k": k}, lambda x=x, k=k: plain.topk(x, k), None)


# Creation -------------------------------------------------------------------------------------------------------------


@of("full")
def full(_op: str, _rng: np.random.Generator) -> Iterator[Case]:
    """Small and large."""
    for shape in (SMALL, MEDIUM, LARGE):
        for dtype in FLOATS:
            given = {"shape": shape, "fill_value": 0.5, "dtype": dtype.name}
            number = dtype.type(0.5)
            run = lambda shape=shape, dtype=dtype, number=number: np.full(shape, number, dtype)  # noqa: E731
            yield Case(text(shape, dtype), (), given, run)


@of("arange")
def arange(_op: str, _rng: np.random.Generator) -> Iterator[Case]:
    """Positions, and steps of a float."""
    for count in (64, 1024, 4096, 1 << 18, 1 << 22):
        for dtype in (np.dtype(np.int64), I32):
            given = {"start": 0, "stop": count, "dtype": dtype.name}
            run = lambda count=count, dtype=dtype: np.arange(0, count, dtype=dtype)  # noqa: E731
            yield Case(f"{count} {dtype.name}", (), given, run)
        # In float64: numpy.arange in float32 adds up a rounded step.
        given = {"start": 0.0, "stop": count * 0.1, "step": 0.1, "dtype": "float32"}
        yield Case(f"{count} float32", (), given, lambda count=count: (0.1 * np.arange(count)).astype(F32))


@of("random_bits", "uniform", "normal")
def random(op: str, _rng: np.random.Generator) -> Iterator[Case]:
    """A few numbers, a layer's, those of an image's noise."""
    plainly = {"random_bits": plain.philox, "uniform": plain.uniform, "normal": plain.normal}[op]
    for shape in ((4,), (100,), SMALL, (4, 64, 64), (512, 512), (1024, 1024)):
        count = int(np.prod(shape))
        given = {"shape": shape, "seed": 1 << 40, "offset": 2}
        run = lambda count=count, shape=shape: plainly(count, 1 << 40, 2).reshape(shape)  # noqa: E731
        yield Case(text(shape)[:-8], (), given, run)


@of("rfft_basis", "irfft_basis")
def basis(op: str, _rng: np.random.Generator) -> Iterator[Case]:
    """Frames of speech and of music."""
    tables = plain.rfft_basis if op == "rfft_basis" else plain.irfft_basis
    for n in (64, 400, 1023, 2048):
        yield Case(str(n), (), {"n": n}, lambda n=n: tables(n))


@of("rfft", "irfft")
def rfft(op: str, rng: np.random.Generator) -> Iterator[Case]:
    """A frame, frames of speech, of music."""
    for shape in ((1, 64), (100, 400), (512, 2048), (8, 131072)):
        x, n = numbers(rng, shape), shape[-1]
        if op == "rfft":
            yield Case(text(shape), (x,), {}, lambda x=x: np.fft.rfft(x))
        else:
            y = np.fft.rfft(x)
            yield Case(text(shape), (y,), {"n": n}, lambda y=y, n=n: np.fft.irfft(y, n))


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
