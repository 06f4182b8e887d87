"""Host kernels: time of each over the time of the same computation in plain NumPy.

Run ``python benchmarks/host_kernels.py``, or with ``--op softmax`` for some ops: it prints both medians, their ratio
and the case, the worst ratios again at the end. With ``--check`` it exits 1 if a ratio is above ``--limit`` (1.2) in
three measurements one after the other.

A kernel is called by a Bound: what that may cost, half a microsecond a call and one for a look at a tensor of
indices, is not counted for the limit. Outputs of a megabyte or more are made anew on both sides, since where memory
lies decides there. The two sides take turns on one thread each, and the processor's time is measured, so that what
else the machine does falls on both. Memory that is freed stays with the process, so that no side pays for fresh
pages. That both compute the same is asserted first.
"""

from __future__ import annotations

import argparse
import ctypes
import os
import sys
import time
from collections.abc import Callable
from statistics import median
from typing import Any, NamedTuple

os.environ.update(OPENBLAS_NUM_THREADS="1", OMP_NUM_THREADS="1", NBX_HOST_THREADS="1")

import numpy as np
from host_cases import Case
from host_cases_network import CASES

import nbx_registry as nbx

BOUND_S = 0.5e-6
"""What a call of a Bound may cost: `docs/performance.md`."""
LOOK_S = 1e-6
"""What its look at a tensor of indices may cost, of which each has to be in range."""
FRESH = 1 << 20
"""Bytes of outputs from which on they are made anew."""
SAMPLE_S = 2e-4
"""Of calls shorter than that several make a sample."""

Side = Callable[[], Any]


class Figure(NamedTuple):
    """What was measured of a case: medians in seconds."""

    name: str
    ours: float
    plain: float
    allowed: float
    """What of ours is the registry's, at the most."""

    @property
    def ratio(self) -> float:
        """Time of the kernel over that of the plain way."""
        return self.ours / self.plain

    def over(self, limit: float) -> bool:
        """Whether the kernel takes longer than it may."""
        return self.ours - self.allowed > limit * self.plain

    def __str__(self) -> str:
        return f"{self.ours * 1e6:10.1f} us {self.plain * 1e6:10.1f} us {self.ratio:6.2f}  {self.name}"


def keep_memory() -> None:
    """Keep what is freed, where the C library is glibc: else whole arrays, which plain ways make, cost fresh pages."""
    library = ctypes.CDLL(None)
    if hasattr(library, "mallopt"):
        trim_threshold, mmap_max = -1, -4
        library.mallopt(trim_threshold, 2**31 - 1)
        library.mallopt(mmap_max, 0)


def kernel(reg: nbx.Registry, op: str, case: Case) -> tuple[Side, float]:
    """Return the kernel on the case's tensors, and what of its time may be the registry's.

    It is bound, or, of large outputs, called with fresh ones.
    """
    given: dict[str, Any] = {"require": "any", "kernel": f"nbx-host/{op}/numpy", **case.attributes}
    bound = reg.bind(op, *case.tensors, **given)
    signature = bound.program.signature
    allowed = BOUND_S + LOOK_S * len(signature.op.index_bounds)
    # Without tensors the outputs would be those of the registry, which take longer to make.
    if not case.tensors or sum(spec.nbytes for spec in signature.outputs) < FRESH:
        return bound, allowed
    return lambda: reg.call(op, *case.tensors, **given), allowed


def agree(op: str, case: Case, ours: Side) -> None:
    """Assert that both sides compute the same."""
    theirs, found = case.plain(), ours()
    if case.tolerance is None or found is None:
        return
    pairs = zip(found, theirs, strict=True) if isinstance(theirs, tuple) else [(found, theirs)]
    for x, y in pairs:
        # Without tensors to follow an op makes those of the registry.
        x = x.numpy() if isinstance(x, nbx.Tensor) else x
        a, b = (np.asarray(z, np.complex128 if z.dtype.kind == "c" else np.float64) for z in (x, y))
        assert (a.shape, x.dtype) == (b.shape, y.dtype), (
            f"{op} {case.label}: {x.dtype}{a.shape}, plain {y.dtype}{b.shape}"
        )
        worst, most = np.abs(a - b).max(initial=0), np.abs(b).max(initial=0)
        assert worst <= case.tolerance * max(most, 1e-30), f"{op} {case.label}: differs by {worst} of {most}"


def measure(sides: tuple[Side, Side], seconds: float) -> tuple[float, float]:
    """Return the median time of each side in seconds of the processor, of about as many of measuring."""
    for side in sides:
        side()
    begin = time.process_time()
    sides[1]()
    once = max(time.process_time() - begin, 1e-7)
    calls = max(1, round(SAMPLE_S / once))
    samples = max(5, min(300, round(seconds / (2 * calls * once))))
    times: tuple[list[float], list[float]] = ([], [])
    for _ in range(samples):
        for side, found in zip(sides, times, strict=True):
            begin = time.process_time()
            for _ in range(calls):
                side()
            found.append((time.process_time() - begin) / calls)
    return median(times[0]), median(times[1])


def main() -> int:
    """Print every case."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--op", nargs="+", choices=sorted(CASES), metavar="OP", help="these ops alone")
    parser.add_argument("--limit", type=float, default=1.2)
    parser.add_argument("--seconds", type=float, default=0.3, help="of measuring a case")
    parser.add_argument("--worst", type=int, default=20, help="how many ratios are printed again")
    parser.add_argument("--check", action="store_true", help="exit 1 if a case is above the limit")
    given = parser.parse_args()
    keep_memory()
    reg = nbx.load(require="any")
    figures: list[Figure] = []
    slow: list[Figure] = []
    for op in given.op or CASES:
        for case in CASES[op](np.random.default_rng(0)):
            ours, allowed = kernel(reg, op, case)
            with np.errstate(all="ignore"):
                agree(op, case, ours)
                tries: list[Figure] = []
                while len(tries) < 3:
                    tries.append(Figure(f"{op} {case.label}", *measure((ours, case.plain), given.seconds), allowed))
                    if not tries[-1].over(given.limit):
                        break
            best = min(tries, key=lambda figure: figure.ratio)
            above = all(figure.over(given.limit) for figure in tries)
            slow += [best] * above
            figures.append(best)
            print(f"{best}{'  ABOVE' if above else ''}", flush=True)
    print(f"\n{len(figures)} cases, {len(slow)} above {given.limit}; the worst ratios:")
    for figure in sorted(figures, key=lambda figure: -figure.ratio)[: given.worst]:
        print(figure)
    return 1 if given.check and slow else 0


if __name__ == "__main__":
    sys.exit(main())
