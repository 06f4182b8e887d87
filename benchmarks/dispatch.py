"""What dispatch costs on the host, each figure beside its limit: `python benchmarks/dispatch.py`.

Figures are medians over rounds in which the two sides alternate, so that a busy machine slows both.
"""

from __future__ import annotations

import statistics
import sys
import time
import timeit
from collections.abc import Callable
from types import SimpleNamespace

import numpy as np

import nbx_registry as nbx
from nbx_registry.hookspecs import hookimpl
from nbx_registry.kernel import Backend, Kernel
from nbx_registry.launch import BindContext, Launch

ROUNDS = 41


def microseconds(call: Callable[[], object], number: int) -> float:
    """Return the time of one call in a loop of ``number``."""
    return timeit.timeit(call, number=number) / number * 1e6


def over(call: Callable[[], object], base: Callable[[], object], number: int = 5000) -> tuple[float, float]:
    """Return the median difference of two calls and the base's median, microseconds."""
    pairs = [(microseconds(call, number), microseconds(base, number)) for _ in range(ROUNDS)]
    return statistics.median(a - b for a, b in pairs), statistics.median(b for _, b in pairs)


def bind_add(context: BindContext) -> Launch:
    """Bind NumPy's add."""
    del context
    return Launch(function=np.add, args=("x1", "x2", "out"))


def many_kernels(number: int = 0) -> SimpleNamespace:
    """Return a plugin of 1,000 kernels, 50 of them for one op, whose conditions those of no other number have."""
    names = ["multiply", "divide", "sqrt", "gelu", "softmax", "layer_norm", "matmul", "linear", "embedding", "astype"]
    others = [(name, number) for name in names for number in range(95)]
    when = ("out.dtype in (float16, float32)", "out.rank <= 8", "out.size > {n} // 1000", "x1.contiguous")
    kernels = [
        Kernel(
            id=f"bench/add/{n:03}",
            op="add@1",
            backend="bench",
            runtimes=("host",),
            bind=bind_add,
            when=tuple(clause.format(n=number * 50 + n) for clause in when),
            overlap="any",
        )
        for n in range(50)
    ]
    kernels += [
        Kernel(id=f"bench/{name}/{n:03}", op=f"{name}@1", backend="bench", runtimes=("host",), bind=bind_add)
        for name, n in others
    ]
    return SimpleNamespace(
        name="bench",
        NBX_HOOKS=1,
        nbx_register_backends=hookimpl(lambda: [Backend(name="bench")], specname="nbx_register_backends"),
        nbx_register_kernels=hookimpl(lambda: kernels, specname="nbx_register_kernels"),
    )


def report(what: str, value: float, limit: float, unit: str = "us") -> bool:
    """Print one row; return whether it is within its limit."""
    good = value <= limit
    print(f"{what:<66} {value:9.2f} {unit}  limit {limit:g} {'ok' if good else 'OVER'}")
    return good


def main() -> int:
    """Run everything; return 1 if a limit is passed."""
    reg = nbx.load(require="any")
    rng = np.random.default_rng(7)
    a, b = rng.standard_normal((2, 63), dtype=np.float32)
    c = np.empty_like(a)
    results = []
    extra, base = over(lambda: reg.call("add", a, b, out=c), lambda: np.add(a, b, out=c))
    results.append(report(f"call add out= over numpy.add ({base:.2f} us)", extra, 2.0))
    bound = reg.bind("add", a, b, out=c)
    extra, base = over(bound, lambda: np.add(a, b, out=c))
    results.append(report(f"Bound over numpy.add ({base:.2f} us)", extra, 0.5))

    first, settled, warm = [], [], []
    for number in range(9):
        crowded = nbx.load(plugins=[many_kernels(number)], require="any")
        start = time.perf_counter()
        crowded.decide("add", "float32[63, 127]", "float32[127]")
        first.append((time.perf_counter() - start) * 1e3)
        for rank in range(1, 8):
            shape = ", ".join(["3"] * rank)
            start = time.perf_counter()
            crowded.decide("add", f"float16[{shape}]", f"float16[{shape}]")
            settled.append((time.perf_counter() - start) * 1e3)
        start = time.perf_counter()
        crowded.decide("add", "float32[65, 127]", "float32[127]")
        warm.append((time.perf_counter() - start) * 1e3)
    results.append(report("an op's first decide, 50 kernels of 1,000 compiled", statistics.median(first), 10, "ms"))
    results.append(report("decide, compiled, nothing cached", statistics.median(settled), 0.5, "ms"))
    results.append(report("decide, another size of a known kind", statistics.median(warm), 0.5, "ms"))

    times = []
    weight = rng.standard_normal(64, dtype=np.float32)
    # Prefixes of one buffer, as a cache of keys grows: what is timed is the new shape, not memory touched anew.
    buffer = rng.standard_normal((10_000, 64), dtype=np.float32)
    for length in range(1, 10_001):
        x = buffer[:length]
        start = time.perf_counter()
        call, args = reg.dispatcher("multiply").prepare((x, weight), {})
        times.append((time.perf_counter() - start) * 1e6)
        del call, args
    results.append(report("a new shape of a known op, p50 over 10,000 lengths", float(np.percentile(times, 50)), 60))
    results.append(report("a new shape of a known op, p99 over 10,000 lengths", float(np.percentile(times, 99)), 200))
    return 0 if all(results) else 1


if __name__ == "__main__":
    sys.exit(main())
