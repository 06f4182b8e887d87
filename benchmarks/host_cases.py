"""What the host's kernels are timed on: for every op small tensors, where calls count, and those of real models.

Here are the ops of the Array API and those beside them, in `host_cases_network` the ops of networks.
"""

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
        half = dtype.type(0.5)
        yield Case(f"{text(LARGE, dtype)}, a number", (a, 0.5), {}, lambda a=a, half=half: function(a, half))


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


# Reductions -----------------------------------------------------------------------------------------------------------

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
