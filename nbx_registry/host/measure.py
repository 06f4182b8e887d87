"""The host's own rates: measured here, because no file can know them, and kept in the user's device file."""

from __future__ import annotations

import datetime
import os
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np

from nbx_registry.errors import FileError

BYTES = 2**28
"""Bytes copied a pass: beyond the caches of any host, so that memory is what is measured."""
EXTENT = 2048
"""Extent of the matrices multiplied: beyond it the rate does not grow."""
PASSES = 12

_HEAD = "# Written by `nbx doctor --measure-host`; run it again to replace it.\n"


def measure() -> dict[str, float]:
    """Return rates by the key of the fact they are.

    Each is the best of `PASSES`, not the median: a floor is what cannot be beaten.
    """
    products = float32_flop_per_s()
    return {
        "memory.bandwidth_bytes_per_s": bandwidth_bytes_per_s(),
        # A host multiplies matrices on its vector units, so one measurement bounds both.
        "peak.vector.float32_flop_per_s": products,
        "peak.matrix.float32_flop_per_s": products,
    }


def bandwidth_bytes_per_s(nbytes: int = BYTES) -> float:
    """Measure a copy that all cores share: bytes read and written together, a second."""
    workers = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    source = np.ones(nbytes, np.uint8)
    target = np.zeros(nbytes, np.uint8)
    parts = [slice(i * nbytes // workers, (i + 1) * nbytes // workers) for i in range(workers)]

    def copy(part: slice) -> None:
        np.copyto(target[part], source[part])

    with ThreadPoolExecutor(workers) as pool:
        # np.copyto releases the interpreter's lock, so the parts are copied at the same time.
        return 2 * nbytes / _best(lambda: list(pool.map(copy, parts)))


def float32_flop_per_s(extent: int = EXTENT) -> float:
    """Measure NumPy's float32 matrix product, the fastest arithmetic there is here."""
    a = np.ones((extent, extent), np.float32)
    out = np.empty_like(a)
    return 2 * extent**3 / _best(lambda: np.matmul(a, a, out=out))


def _best(run: Callable[[], object]) -> float:
    best = float("inf")
    for _ in range(PASSES):
        begin = time.perf_counter()
        run()
        best = min(best, time.perf_counter() - begin)
    return best


def write(folder: Path, rates: Mapping[str, float]) -> Path:
    """Write measured rates as an overlay of ``host/cpu`` into the user's folder of device files; return its path.

    Replaces an earlier measurement. Raises `FileError` for a file there that this function did not write, since it may
    hold more than a measurement.
    """
    path = folder / "host" / "cpu.yml"
    if path.exists() and not path.read_text("utf-8").startswith(_HEAD):
        raise FileError(f"{path} was written by hand: state the rates there, or move the file away and measure again")
    today = datetime.date.today().isoformat()
    facts = "".join(
        f"  {key}: {{value: {round(rate)}, source: measured-here, read: measured, date: '{today}'}}\n"
        for key, rate in rates.items()
    )
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(
        f"{_HEAD}sources:\n  measured-here: {{document: nbx doctor --measure-host, publisher: this machine}}\n"
        f"facts:\n{facts}",
        "utf-8",
    )
    return path
