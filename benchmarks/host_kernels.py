"""Host kernels: time of each over the time of the same computation in plain NumPy, output allocated on both sides.

Run ``python benchmarks/host_kernels.py``: it prints both medians and their ratio for every case, and exits 1 if a case
of more than 100 microseconds is above ``--limit`` (1.2). The two sides take turns, and the processor's time is
measured, so that what else the machine does falls on both.
"""

from __future__ import annotations

import argparse
import importlib
import sys
import time
from collections.abc import Callable, Iterator
from statistics import median
from typing import Any

import numpy as np
from minilm_host import gelu as plain_gelu

from nbx_registry import contracts
from nbx_registry.host.runtime import host_runtime
from nbx_registry.host.specs import KERNELS
from nbx_registry.interop import adapter
from nbx_registry.launch import BindContext
from nbx_registry.runtime import Slot

OPS = {op.name: op for op in contracts.ALL}
BOUND = {kernel.op.partition("@")[0]: str(kernel.bind) for kernel in KERNELS if kernel.backend == "numpy"}
F32 = np.float32
Side = Callable[[], object]


def bound(name: str, *arrays: np.ndarray | None, **attributes: Any) -> Side:
    """Return a kernel on these arrays, bound without a registry; every call allocates the output."""
    op = OPS[name]
    specs = [None if x is None else reader.spec(x) if (reader := adapter(x)) else None for x in arrays]
    signature = op.signature([*specs, *(None,) * (len(op.tensors) - len(specs))], attributes)
    module, _, function = BOUND[name].partition(":")
    kernel = next(k for k in KERNELS if k.bind == BOUND[name])
    device: Any = None
    context = BindContext(kernel=kernel, signature=signature, device=device, settings={})
    launch = getattr(importlib.import_module(module), function)(context)
    slots = [Slot(slot, spec, "input") for slot, spec in signature.slots()]
    run = host_runtime().program(0, [launch], slots).function
    given = [x for x in arrays if x is not None]
    (out,) = signature.outputs
    return lambda: run(*given, np.empty(out.shape, out.dtype.numpy))


def softmax(x: np.ndarray) -> np.ndarray:
    """Plain softmax over the last axis."""
    x = x - x.max(-1, keepdims=True)
    np.exp(x, out=x)
    x /= x.sum(-1, keepdims=True)
    return x


def layer_norm(x: np.ndarray, weight: np.ndarray, bias: np.ndarray) -> np.ndarray:
    """Plain layer_norm over the last axis."""
    x = x - x.mean(-1, keepdims=True)
    x /= np.sqrt(np.square(x).mean(-1, keepdims=True) + F32(1e-5))
    x *= weight
    x += bias
    return x


def linear(x: np.ndarray, w: np.ndarray, bias: np.ndarray) -> np.ndarray:
    """Plain linear layer."""
    out = x @ w.T
    out += bias
    return out


def attention(q: np.ndarray, k: np.ndarray, v: np.ndarray, mask: np.ndarray) -> np.ndarray:
    """Plain attention with a mask that hides keys."""
    scores = (q * F32(q.shape[-1] ** -0.5)) @ k.swapaxes(-1, -2)
    scores += np.where(mask, F32(0), F32(-np.inf))
    return softmax(scores) @ v


def cases() -> Iterator[tuple[str, Side, Side]]:
    """Yield name, kernel, and plain NumPy."""
    rng = np.random.default_rng(0)

    def normal(*shape: int) -> np.ndarray:
        return rng.standard_normal(shape).astype(F32)

    for shape in ((8, 128, 1536), (2, 17, 1536), (1, 64)):
        x = normal(*shape)
        yield f"gelu {shape}", bound("gelu", x), lambda x=x: plain_gelu(x)
    for shape in ((1024, 1000), (4096, 64), (64, 16)):
        x = normal(*shape)
        yield f"softmax {shape}", bound("softmax", x), lambda x=x: softmax(x)
    for shape in ((8, 128, 384), (2, 17, 384), (1024, 4096)):
        x, w, b = normal(*shape), normal(shape[-1]), normal(shape[-1])
        yield f"layer_norm {shape}", bound("layer_norm", x, w, b), lambda x=x, w=w, b=b: layer_norm(x, w, b)
    for m, k, n in ((1024, 384, 1536), (1024, 1536, 384), (34, 384, 1536), (1, 384, 384)):
        x, w, b = normal(m, k), normal(n, k), normal(n)
        plain = lambda x=x, w=w, b=b: linear(x, w, b)  # noqa: E731
        yield f"linear {m}x{k}x{n}", bound("linear", x, w, b), plain
        activated = lambda plain=plain: plain_gelu(plain())  # noqa: E731
        yield f"linear {m}x{k}x{n} gelu", bound("linear", x, w, b, activation="gelu"), activated
    for batch, heads, tokens, width in ((8, 12, 20, 32), (8, 12, 128, 32), (1, 12, 512, 64)):
        q, k, v = (normal(batch, tokens, heads, width).transpose(0, 2, 1, 3) for _ in range(3))
        mask = rng.random((batch, 1, 1, tokens)) < 0.9
        mask[..., 0] = True
        name = f"attention {batch}x{heads}x{tokens}x{width}"
        plain = lambda q=q, k=k, v=v, mask=mask: attention(q, k, v, mask)  # noqa: E731
        yield name, bound("scaled_dot_product_attention", q, k, v, mask), plain
    w, index = normal(30522, 384), rng.integers(0, 30522, (8, 128))
    yield "embedding", bound("embedding", w, index), lambda: w[index]
    x = normal(8, 12, 128, 32)
    copied = bound("permute_dims", x, axes=(0, 2, 1, 3), copy=True)
    yield "permute_dims", copied, lambda: np.ascontiguousarray(x.transpose(0, 2, 1, 3))
    y = normal(2, 144, 64, 96)
    shuffled = y.reshape(2, 36, 2, 2, 64, 96).transpose(0, 1, 4, 2, 5, 3)
    yield "pixel_shuffle", bound("pixel_shuffle", y, r=2), lambda: np.ascontiguousarray(shuffled)
    z = normal(1024, 1024)
    yield "sum", bound("sum", z, axis=1), lambda: z.sum(1)
    yield "astype float16", bound("astype", z, dtype="float16"), lambda: z.astype(np.float16)


def measure(sides: tuple[Side, Side], seconds: float = 0.4) -> list[float]:
    """Return the median time of each side in seconds of the processor."""
    for side in sides:
        side()
    begin = time.process_time()
    sides[0]()
    repeats = max(5, min(1000, int(seconds / max(time.process_time() - begin, 1e-6))))
    times: tuple[list[float], list[float]] = ([], [])
    for _ in range(repeats):
        for side, found in zip(sides, times, strict=True):
            begin = time.process_time()
            side()
            found.append(time.process_time() - begin)
    return [median(found) for found in times]


def main() -> int:
    """Print every case."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--limit", type=float, default=1.2)
    limit = parser.parse_args().limit
    slow = 0
    for name, kernel, plain in cases():
        ours, theirs = measure((kernel, plain))
        over = theirs > 1e-4 and ours / theirs > limit
        slow += over
        figures = f"{ours * 1e6:9.1f} us {theirs * 1e6:9.1f} us {ours / theirs:6.2f}"
        print(f"{name:28s} {figures}{'  above the limit' if over else ''}")
    return 1 if slow else 0


if __name__ == "__main__":
    sys.exit(main())
