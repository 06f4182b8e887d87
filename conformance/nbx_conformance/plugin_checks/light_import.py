"""Light import: in a fresh process, finding the plugin and asking it for what it brings loads no toolkit."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Final

from nbx_conformance.plugin_checks.subject import Subject, told
from nbx_conformance.trials.trial import Outcome

NAME = "light_import"

HEAVY: Final = frozenset(
    (
        *("torch", "triton", "cuda", "cupy", "jax", "jaxlib", "tensorflow", "tvm", "tilelang", "wgpu", "numba"),
        *("cutlass", "mlx", "tinygrad", "taichi", "pycuda", "pyopencl", "pynvml", "hip", "scipy", "pandas"),
    )
)
"""Toolkits, libraries of arrays, and others that take long to import; beside them the modules of every backend."""

SECONDS: Final = 120

_MARK: Final = "nbx-light-import: "
"""Begins the line that tells what was found, whatever is printed before it and behind it."""

# All else is blocked: what another plugin loads is its own matter. What is imported before the plugin, the core needs.
_SCRIPT: Final = """
import importlib, json, sys
name, module, mark, sys.path[:] = json.loads(sys.argv[1])
from nbx_registry import entrypoints, plugins
from nbx_registry.distributions import canonical
names = [source.name for source in entrypoints.installed()]
plugins.discover(block=names)
before = set(sys.modules)
extra = [] if module is None else [importlib.import_module(module)]
others = [other for other in names if canonical(other) != canonical(name)]
found = next((p for p in plugins.discover(block=others, extra=extra) if canonical(p.name) == canonical(name)), None)
# A plugin that rests on another is out here, where that is blocked; it was asked for everything all the same.
wrong = "nothing of this name is found" if found is None else found.reason if found.traceback else ""
print("\\n" + mark + json.dumps({"modules": sorted(set(sys.modules) - before), "wrong": wrong}))
"""


def check(subject: Subject) -> Outcome | None:
    """Load the plugin in a process of its own; None for one that is an object of this process."""
    plugin = subject.plugin
    if subject.package is None:
        return None
    module = None if plugin.distribution is not None else plugin.module
    given = json.dumps([plugin.name, module, _MARK, sys.path])
    try:
        done = subprocess.run(
            [sys.executable, "-c", _SCRIPT, given],
            capture_output=True,
            text=True,
            errors="replace",
            timeout=SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return Outcome(NAME, "fail", f"loading {plugin.name} in a fresh process takes longer than {SECONDS} s")
    if done.returncode:
        last = (done.stderr.strip().splitlines() or ["no message"])[-1]
        return Outcome(NAME, "fail", f"a fresh process that loads {plugin.name} ends with {done.returncode}: {last}")
    before, told_of, rest = done.stdout.rpartition(f"\n{_MARK}")
    if not told_of:
        return Outcome(NAME, "fail", f"a fresh process that loads {plugin.name} ends before it has told what it loads")
    line, _, behind = rest.partition("\n")
    found, printed = json.loads(line), (before + behind).splitlines()
    if found["wrong"]:
        return Outcome(NAME, "fail", f"in a fresh process: {found['wrong']}")
    tops = {name.partition(".")[0] for name in found["modules"]} - {subject.top}
    loaded = sorted(tops & (HEAVY | _toolkits(subject)))
    wrong: list[str] = []
    if loaded:
        wrong.append(f"loading {plugin.module} imports {told(loaded, 8)}; import it where a kernel is bound")
    if printed:
        # It comes between the lines of commands whose output others read.
        wrong.append(f"loading {plugin.module} prints {printed[0][:80]!r}; log it, or say it when asked")
    return Outcome(NAME, "fail" if wrong else "pass", told(wrong))


def _toolkits(subject: Subject) -> set[str]:
    backends = subject.registry.catalog.backends.values()
    return {module.partition(".")[0] for backend in backends for module in backend.modules}
