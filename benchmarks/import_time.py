"""Time of ``import nbx_registry`` and of ``nbx.load()``, beside ``import numpy``, in fresh processes.

Run ``python benchmarks/import_time.py``: it prints medians in milliseconds and exits 1 where ``import nbx_registry``
or the first ``load()`` takes more than ``--limit-ms`` (60) beyond what came before it. On a machine that does other
things too, ``--times-numpy X`` raises the limit to X times what ``import numpy`` took in the same processes.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from statistics import median

FRESH = """
import json, time
t0 = time.perf_counter(); import numpy
t1 = time.perf_counter(); import nbx_registry
t2 = time.perf_counter(); nbx_registry.load()
t3 = time.perf_counter()
print(json.dumps({"import numpy": t1 - t0, "import nbx_registry": t2 - t1, "nbx_registry.load()": t3 - t2}))
"""


def main() -> int:
    """Print the medians."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--limit-ms", type=float, default=60)
    parser.add_argument("--times-numpy", type=float, default=0)
    parser.add_argument("--repeats", type=int, default=15)
    arguments = parser.parse_args()
    runs = [_fresh() for _ in range(arguments.repeats + 1)][1:]  # the first one may have to compile bytecode
    medians = {name: 1e3 * median(run[name] for run in runs) for name in runs[0]}
    for name, milliseconds in medians.items():
        print(f"{name:20s} {milliseconds:7.1f} ms")
    limit = max(arguments.limit_ms, arguments.times_numpy * medians["import numpy"])
    over = [name for name, value in medians.items() if name != "import numpy" and value > limit]
    for name in over:
        print(f"{name} is above the limit of {limit:.0f} ms")
    return 1 if over else 0


def _fresh() -> dict[str, float]:
    ran = subprocess.run([sys.executable, "-c", FRESH], check=True, capture_output=True, text=True)
    return json.loads(ran.stdout)


if __name__ == "__main__":
    sys.exit(main())
