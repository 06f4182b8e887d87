"""Packing float16 weights to int4 on the host: time on one thread over time on all, and memory beside the output.

Run ``python benchmarks/host_packing.py``: it packs the projections of Llama-3-8B's layers, random float16 weights of
about ``--gigabytes``, once in a process for each number of threads. It prints seconds, gigabytes a second, how many
times as fast as one thread that is, the processor's seconds (as many on any number of threads, if these do not get in
each other's way; what else the machine does is not in them), and the most memory that was in use beside weights and
output; and exits 1 where that is more than ``--megabytes`` a thread. ``--op dequant_int4`` unpacks, ``--op astype``
casts to bfloat16.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import time
from typing import Any

LAYER = (
    ("query", 4096, 4096),
    ("key", 4096, 1024),
    ("value", 4096, 1024),
    ("output", 4096, 4096),
    ("gate", 4096, 14336),
    ("up", 4096, 14336),
    ("down", 14336, 4096),
)
"""Name, K and N of the projections of one layer of Llama-3-8B."""
OPS = ("quantize_int4", "dequant_int4", "astype")


def sizes(gigabytes: float) -> list[tuple[int, int]]:
    """Return K and N of as many projections, layer after layer, as make that much float16."""
    found: list[tuple[int, int]] = []
    rest = gigabytes * 1e9
    while True:
        for _, k, n in LAYER:
            rest -= 2 * k * n
            if rest < 0 and found:
                return found
            found.append((k, n))


def measure(op: str, gigabytes: float, repeats: int) -> dict[str, float]:
    """Return seconds (the best of the repeats), the processor's, bytes of weights, and bytes in use beside it all."""
    import numpy as np

    import nbx_registry as nbx

    registry = nbx.load(require="any")
    rng = np.random.default_rng(0)
    inputs: list[tuple[Any, ...]] = []
    for k, n in sizes(gigabytes):
        w = np.empty((k, n), np.float16)
        for row in range(0, k, 256):
            w[row : row + 256] = rng.standard_normal((min(256, k - row), n), np.float32) * np.float32(0.02)
        inputs.append((w,) if op != "dequant_int4" else registry.call("quantize_int4", w))
    keywords = {"dtype": "bfloat16"} if op == "astype" else {}
    bound = [registry.bind(op, *tensors, **keywords) for tensors in inputs]
    for call in bound:
        for array in call.out if isinstance(call.out, tuple) else (call.out,):
            array.fill(0)
    before = in_use()
    times: list[float] = []
    busy: list[float] = []
    for _ in range(repeats):
        start, start_busy = time.perf_counter(), time.process_time()
        for call in bound:
            call()
        times.append(time.perf_counter() - start)
        busy.append(time.process_time() - start_busy)
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    weights = 2.0 * sum(k * n for k, n in sizes(gigabytes))
    return {"seconds": min(times), "processor": min(busy), "bytes": weights, "beside": most - before}


def in_use() -> int:
    """Return the memory that this process has now, after asking the kernel to forget how much it had at most."""
    with open("/proc/self/clear_refs", "w", encoding="ascii") as file:
        file.write("5")
    with open("/proc/self/statm", encoding="ascii") as file:
        return int(file.read().split()[1]) * resource.getpagesize()


def main() -> int:
    """Measure on one thread, on powers of two of them, and on all."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gigabytes", type=float, default=1.0)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--op", choices=OPS, default="quantize_int4")
    parser.add_argument("--megabytes", type=float, default=16, help="memory beside the output for each thread")
    parser.add_argument("--measure", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.measure:
        print(json.dumps(measure(given.op, given.gigabytes, given.repeats)))
        return 0
    cores = len(os.sched_getaffinity(0))
    counts = sorted({1, cores, *(2**i for i in range(1, 11) if 2**i < cores)})
    print(f"{given.op}, {given.gigabytes:g} GB of float16, {cores} cores")
    print(f"{'threads':>8} {'seconds':>8} {'GB/s':>6} {'times':>6} {'processor':>10} {'MB beside the output':>21}")
    first = 0.0
    passed = True
    for count in counts:
        command = [sys.executable, __file__, "--measure", "--op", given.op]
        command += ["--gigabytes", str(given.gigabytes), "--repeats", str(given.repeats)]
        ran = subprocess.run(
            command, env={**os.environ, "NBX_HOST_THREADS": str(count)}, stdout=subprocess.PIPE, text=True, check=True
        )
        found = json.loads(ran.stdout)
        seconds, beside = found["seconds"], found["beside"] / 1e6
        first = first or seconds
        passed = passed and beside <= count * given.megabytes
        rate, faster = found["bytes"] / seconds / 1e9, first / seconds
        print(
            f"{count:8} {seconds:8.2f} {rate:6.2f} {faster:6.2f} {found['processor']:10.2f} {beside:21.1f}", flush=True
        )
    return 0 if passed else 1


if __name__ == "__main__":
    sys.exit(main())
