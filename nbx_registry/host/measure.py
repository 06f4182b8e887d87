"""Measuring the host: its bandwidth, its products, its cache, written into the user's folder of device files."""

from __future__ import annotations

import datetime
import json
import time
from pathlib import Path
from typing import Any

import numpy as np

from nbx_registry import jsonfile, yamlfile
from nbx_registry.errors import FileError
from nbx_registry.host.parallel import spread
from nbx_registry.yamlfile import Table

DEVICE = "host/cpu"
KEY = "memory.bandwidth_bytes_per_s"
PRODUCT_KEYS = ("peak.vector.float32_flop_per_s", "peak.matrix.float32_flop_per_s")
"""A host multiplies matrices on its vector units, so one measurement is the roof of both."""
CACHE_KEY = "last_level_cache.bytes"
MIN_BYTES = 128 * 2**20
"""Smallest array copied where the cache is small or not known."""
CACHES = Path("/sys/devices/system/cpu/cpu0/cache")
"""Where Linux describes the caches of the first core."""


def copy_bandwidth(nbytes: int | None = None, *, repeats: int = 15) -> float:
    """Return bytes per second of NumPy copies on all threads: bytes read plus written, the fastest of ``repeats``.

    As many threads copy as the host's kernels use, and the fastest time counts: what least times are computed with is a
    roof of the whole machine. The arrays (``nbytes`` each) are by default four times the largest cache and at least
    `MIN_BYTES`. Cached stores read the line they fill; that traffic is not counted, so the figure is what a program
    sees, not what the bus carries, and what only reads can be faster.
    """
    size = max(MIN_BYTES, 4 * largest_cache()) if nbytes is None else nbytes
    source = np.ones(size // 8, np.float64)
    target = np.empty_like(source)

    def copy(start: int, stop: int) -> None:
        np.copyto(target[start:stop], source[start:stop])

    # The first copy meets pages that are not mapped yet.
    copy(0, source.size)
    seconds: list[float] = []
    for _ in range(repeats):
        began = time.perf_counter()
        spread(copy, source.size, 2 * source.nbytes)
        seconds.append(time.perf_counter() - began)
    return 2 * source.nbytes / min(seconds)


def product_rate(extent: int = 2048, *, repeats: int = 10) -> float:
    """Return operations per second of NumPy's float32 matrix product, the fastest of ``repeats``."""
    a = np.ones((extent, extent), np.float32)
    out = np.empty_like(a)
    seconds: list[float] = []
    for _ in range(repeats):
        start = time.perf_counter()
        np.matmul(a, a, out=out)
        seconds.append(time.perf_counter() - start)
    return 2 * extent**3 / min(seconds)


def largest_cache() -> int:
    """Return the bytes of the largest cache the system describes; 0 where it describes none."""
    sizes = [0]
    for path in CACHES.glob("index*/size"):
        text = path.read_text("ascii").strip()
        if text.endswith("K") and text[:-1].isdecimal():
            sizes.append(int(text[:-1]) * 1024)
    return max(sizes)


def write(
    user_folder: Path,
    bytes_per_s: float,
    float32_flop_per_s: float | None = None,
    cache_bytes: int | None = None,
    *,
    today: datetime.date | None = None,
) -> Path:
    """Write measured rates, and the largest cache, into the user's overlay of the host, and return its path.

    Other facts of that file are kept (its comments are not); an earlier measurement is replaced. The file is
    replaced as a whole, so a reader sees the old one or the new.

    Raises
    ------
    FileError
        If the file there is malformed, or states a rate that was not measured.
    """
    path = user_folder / f"{DEVICE}.yml"
    table: dict[str, Any] = dict(yamlfile.load(path)) if path.exists() else {}
    facts: Any = table.get("facts", Table(1))
    if not isinstance(facts, Table):
        raise FileError(f"{path}: facts is {yamlfile.kind(facts)}; write a mapping, or remove the file")
    date = (today or datetime.date.today()).isoformat()
    found: dict[str, tuple[float, str]] = {KEY: (_rate(bytes_per_s), "NumPy's copy on all threads, the fastest seen")}
    if float32_flop_per_s is not None:
        product = (_rate(float32_flop_per_s), "NumPy's float32 matrix product, the fastest seen")
        found |= dict.fromkeys(PRODUCT_KEYS, product)
    if cache_bytes is not None:
        found[CACHE_KEY] = (cache_bytes, "the largest cache of a core, as the system describes it")
    for key, (value, note) in found.items():
        before = facts.get(key)
        if before is not None and not (isinstance(before, Table) and before.get("source") == "measured"):
            raise FileError(f"{path}: {key} is stated and was not measured; remove it there to have it measured")
        facts[key] = {"value": value, "source": "measured", "date": date, "note": note}
    table["facts"] = facts
    lines = ["# Written by `nbx doctor --measure-host`."]
    for key, value in table.items():
        if isinstance(value, Table):
            lines += [f"{key}:", *(f"  {json.dumps(name)}: {_flow(row)}" for name, row in value.items())]
        else:
            lines.append(f"{key}: {_flow(value)}")
    jsonfile.replace(path, ("\n".join(lines) + "\n").encode())
    return path


def _rate(measured: float) -> float:
    return float(f"{measured:.4g}")


def _flow(value: Any) -> str:
    # JSON is YAML, but for its escapes of characters beyond 16 bits: write them as they are.
    return json.dumps(value, ensure_ascii=False)
