"""Importing and loading stay light: what a fresh process loaded, and how long it took."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

HEAVY = {
    "torch", "triton", "cuda", "wgpu", "tilelang", "tvm", "cupy", "jax",
    "threadpoolctl", "pytest", "hypothesis", "rich", "click", "nbx_conformance", "nbx_examples",
}  # fmt: skip

REGISTERING = {
    "catalog", "contracts", "cost", "distributions", "dtypes", "entrypoints", "environment", "errors", "head",
    "hookspecs", "host", "infer", "items", "kernel", "op", "plugins", "policy", "registry", "rounding", "runtimespec",
    "signature", "spec", "tolerance",
}  # fmt: skip
"""Modules of the core that registering needs. Each takes milliseconds of every process's start: a new one has a reason
to be here, or is imported where it is used."""

NOT_TO_REGISTER = {
    "yaml", "json", "email", "importlib.metadata", "zipfile", "shutil", "tempfile", "socket", "random", "difflib",
    "traceback", "hashlib", "csv", "ctypes", "inspect", "ast", "tokenize",
}  # fmt: skip
"""What some request needs, or an error, and registering does not."""

LIMITS = ("--limit-ms", "120", "--times-numpy", "1.5")
"""The budget is 60 ms each, and `benchmarks/import_time.py` holds it on a quiet machine, where NumPy takes about 90.
Tests share two cores with each other, so here the limit is wider and grows with what NumPy took beside."""


def modules_of(code: str) -> set[str]:
    script = f"import sys\n{code}\nprint(' '.join(sorted(sys.modules)))"
    # -I: neither the working directory nor the user's site may decide what is found.
    ran = subprocess.run([sys.executable, "-I", "-c", script], capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    return set(ran.stdout.splitlines()[-1].split())


def loaded_by(code: str) -> set[str]:
    return {name.partition(".")[0] for name in modules_of(code)}


@pytest.mark.parametrize(
    "code",
    [
        "import nbx_registry",
        "import nbx_registry; nbx_registry.load()",
        "import nbx_registry; reg = nbx_registry.load(); list(reg.ops), list(reg.devices), dict(reg.plugins)",
        "import nbx_registry; print(nbx_registry.load().decide('add', 'float32[63]', 'float32[63]', device='cpu'))",
        "import nbx_registry, numpy; nbx_registry.ops.add(numpy.ones(3), numpy.ones(3))",
    ],
    ids=["import", "load", "listings", "decide", "call-on-the-host"],
)
def test_no_toolkit_is_loaded_by(code: str) -> None:
    assert not loaded_by(code) & HEAVY


def test_import_alone_reads_no_plugin() -> None:
    assert not {name for name in loaded_by("import nbx_registry") if name.startswith("nbx_")} - {"nbx_registry"}


def test_registering_imports_what_it_needs_and_no_more() -> None:
    # NumPy and what stands in the environment's .pth files bring modules of their own.
    found = modules_of("import numpy, nbx_registry; nbx_registry.load()") - modules_of("import numpy")
    assert not found & NOT_TO_REGISTER
    core = {name.split(".")[1] for name in found if name.startswith("nbx_registry.")}
    assert core == REGISTERING
    assert not {name for name in found if name.startswith(("nbx_registry.host.kernels", "nbx_registry.host.runtime"))}


def test_the_command_line_loads_no_toolkit() -> None:
    code = (
        "from nbx_registry.cli import main\n"
        "import contextlib, io\n"
        "for line in (['ops'], ['kernels'], ['plugins'], ['explain', 'sqrt', 'float32[3]']):\n"
        "    with contextlib.redirect_stdout(io.StringIO()):\n"
        "        main(line, standalone_mode=False)\n"
    )
    assert not loaded_by(code) & (HEAVY - {"rich", "click"})


def test_import_and_load_keep_within_a_multiple_of_their_time() -> None:
    command = [sys.executable, str(ROOT / "benchmarks/import_time.py"), "--repeats", "7", *LIMITS]
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stdout + ran.stderr
