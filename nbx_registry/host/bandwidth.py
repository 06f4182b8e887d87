"""The host's memory bandwidth: measured here, because no file can know it, and kept in the user's device file."""

from __future__ import annotations

import datetime
import os
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np

from nbx_registry.errors import FileError

KEY = "memory.bandwidth_bytes_per_s"
BYTES = 2**28
"""Bytes copied a pass: beyond the caches of any host, so that memory is what is measured."""
PASSES = 12


def measure(nbytes: int = BYTES, passes: int = PASSES) -> float:
    """Return bytes a second, read and written together: the best pass of a copy that all cores share.

    The best and not the median, because a floor is what cannot be beaten.
    """
    workers = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    source = np.ones(nbytes, np.uint8)
    target = np.zeros(nbytes, np.uint8)
    parts = [slice(i * nbytes // workers, (i + 1) * nbytes // workers) for i in range(workers)]
    best = float("inf")
    with ThreadPoolExecutor(workers) as pool:
        for _ in range(passes):
            begin = time.perf_counter()
            # np.copyto releases the interpreter's lock, so the parts are copied at the same time.
            list(pool.map(lambda part: np.copyto(target[part], source[part]), parts))
            best = min(best, time.perf_counter() - begin)
    return 2 * nbytes / best


def write(folder: Path, bandwidth: float) -> Path:
    """Write the measurement as an overlay of ``host/cpu`` into the user's folder of device files; return its path.

    Replaces an earlier measurement. Raises `FileError` for a file there that this function did not write, since it may
    hold more than the measurement.
    """
    path = folder / "host" / "cpu.yml"
    head = "# Written by `nbx doctor --measure-host`; run it again to replace it.\n"
    if path.exists() and not path.read_text("utf-8").startswith(head):
        raise FileError(f"{path} was written by hand: state {KEY} there, or move the file away and measure again")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(
        f"{head}sources:\n"
        f"  measured-here: {{document: nbx doctor --measure-host, publisher: this machine}}\n"
        f"facts:\n"
        f"  {KEY}:\n"
        f"    value: {round(bandwidth)}\n"
        f"    source: measured-here\n"
        f"    read: measured\n"
        f"    date: '{datetime.date.today().isoformat()}'\n"
        f"    note: the best of {PASSES} copies of {BYTES} bytes by all cores, read and written bytes together\n",
        "utf-8",
    )
    return path
