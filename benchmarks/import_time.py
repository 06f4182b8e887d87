"""Time of ``import nbx_registry`` and of ``nbx.load()``, beside ``import numpy``, in fresh processes.

Run ``python benchmarks/import_time.py``: it prints medians in milliseconds and exits 1 where ``import nbx_registry``
or the first ``load()`` takes more than ``--limit-ms`` (60) beyond what came before it. On a machine that does other
things too, ``--times-numpy X`` raises the limit to X times what ``import numpy`` took in the same processes.

There are seven plugins and forty device files: what the installed distributions lack of them is made for the run, each
plugin with 40 kernels of its own.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import median
from typing import Any

PLUGINS, DEVICES, KERNELS = 7, 40, 40

FRESH = """
import json, time
t0 = time.perf_counter(); import numpy
t1 = time.perf_counter(); import nbx_registry
t2 = time.perf_counter(); registry = nbx_registry.load()
t3 = time.perf_counter()
active = [plugin for plugin in registry.plugins.values() if plugin.state == "active"]
print(json.dumps({
    "seconds": {"import numpy": t1 - t0, "import nbx_registry": t2 - t1, "nbx_registry.load()": t3 - t2},
    "plugins": len(active),
    "files": sum(len(list(folder.glob("*/*.yml"))) for plugin in active for folder in plugin.devices),
    "kernels": len(registry.kernels),
}))
"""
PLUGIN = """
from pathlib import Path
from nbx_registry.hookspecs import hookimpl
from nbx_registry.kernel import Kernel

NBX_HOOKS = 1

@hookimpl
def nbx_register_devices():
    return (Path(__file__).with_name("devices"),)

@hookimpl
def nbx_register_kernels():
    return tuple(
        Kernel(
            id=f"NAME/add/{number}", op="add@1", backend="numpy", runtimes=("host",), bind="MODULE:bind",
            when=("x1.dtype in (float16, float32)", "x1.contiguous", f"out.size > {number}", "device.arch == 'sm_90'"),
            key=("out.size", "x1.dtype"),
        )
        for number in range(COUNT)
    )
"""
DEVICE = """
extends: nvidia/arch/sm_90
evidence_class: made-NUMBER
facts:
  memory.bytes: {value: 85899345920, source: made}
"""


def main() -> int:
    """Print the medians."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--limit-ms", type=float, default=60)
    parser.add_argument("--times-numpy", type=float, default=0)
    parser.add_argument("--repeats", type=int, default=15)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        there = _fresh(folder)
        make(Path(folder), PLUGINS - there["plugins"], DEVICES - there["files"])
        # The first run may have to compile bytecode.
        runs = [_fresh(folder) for _ in range(arguments.repeats + 1)][1:]
    counts = {key: runs[0][key] for key in ("plugins", "files", "kernels")}
    assert counts["plugins"] >= PLUGINS, counts
    assert counts["files"] >= DEVICES, counts
    print(f"{counts['plugins']} plugins, {counts['files']} device files, {counts['kernels']} kernels")
    medians = {name: 1e3 * median(run["seconds"][name] for run in runs) for name in runs[0]["seconds"]}
    for name, milliseconds in medians.items():
        print(f"{name:20s} {milliseconds:7.1f} ms")
    limit = max(arguments.limit_ms, arguments.times_numpy * medians["import numpy"])
    over = [name for name, value in medians.items() if name != "import numpy" and value > limit]
    for name in over:
        print(f"{name} is above the limit of {limit:.0f} ms")
    return 1 if over else 0


def make(folder: Path, plugins: int, devices: int) -> None:
    """Write distributions of one plugin each, the device files spread over them."""
    for number in range(plugins):
        name, module = f"nbx-made-{number}", f"nbx_made_{number}"
        package = folder / module
        (package / "devices" / "made").mkdir(parents=True)
        (package / "__init__.py").write_text("")
        text = PLUGIN.replace("NAME", name).replace("MODULE", module).replace("COUNT", str(KERNELS))
        (package / "plugin.py").write_text(text)
        for device in range(number, devices, plugins):
            file = package / "devices" / "made" / f"card-{device}.yml"
            file.write_text(DEVICE.replace("NUMBER", str(device)))
        metadata = folder / f"{module}-0.1.dist-info"
        metadata.mkdir()
        (metadata / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 0.1\n")
        (metadata / "entry_points.txt").write_text(f"[nbx_registry]\n{name} = {module}.plugin\n")


def _fresh(folder: str) -> dict[str, Any]:
    path = os.pathsep.join(part for part in (folder, os.environ.get("PYTHONPATH", "")) if part)
    # As installed packages have it: bytecode is there, and kept from the first run on.
    environment = {**os.environ, "PYTHONPATH": path, "PYTHONPYCACHEPREFIX": str(Path(folder) / "bytecode")}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    ran = subprocess.run([sys.executable, "-c", FRESH], check=True, capture_output=True, text=True, env=environment)
    return json.loads(ran.stdout)


if __name__ == "__main__":
    sys.exit(main())
