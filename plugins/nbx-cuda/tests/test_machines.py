"""Machines as they come: without CUDA, with the driver alone, with a card that no file describes."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest

import nbx_registry as nbx
from nbx_cuda.runtime import driver, runtime
from nbx_registry.runtime import LiveDevice


def run(script: str) -> str:
    """Run a script in a process of its own; warnings are errors."""
    command = [sys.executable, "-W", "error", "-c", textwrap.dedent(script)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("hidden", ["cuda", "nothing"])
def test_without_cuda_a_call_is_refused_by_name(hidden: str) -> None:
    script = f"""
        import ctypes, sys
        import numpy as np
        real = ctypes.CDLL
        def absent(name, *rest, **options):
            if name and "cuda" in str(name):
                raise OSError(f"{{name}}: cannot open shared object file: No such file or directory")
            return real(name, *rest, **options)
        ctypes.CDLL = absent
        if {hidden!r} != "nothing":
            sys.modules[{hidden!r}] = None
        import nbx_registry as nbx
        reg = nbx.load()
        found = reg.decide("softmax", "float16[63, 1000]", device="cuda:0")
        candidate = found.candidate("nbx-triton/softmax/rows")
        print(candidate.code, "|", candidate.reason, "|", candidate.would_run_if)
        x = np.ones(3, np.float32)
        for ask in (lambda: nbx.asarray(x, device="cuda:0"), lambda: nbx.empty((2,), device="cuda")):
            try:
                ask()
            except nbx.NbxError as error:
                print(error)
        # From the device file all is as ever.
        print(reg.decide("softmax", "float16[63, 1000]", device="nvidia/h200-sxm", require="any").chosen)
    """
    refused, placed, made, chosen = run(script).splitlines()
    assert refused.startswith("RUNTIME_MISSING | no NVIDIA driver: libcuda.so.1 was not found")
    assert "install the NVIDIA driver" in refused
    assert "no NVIDIA driver" in placed
    assert "no NVIDIA driver" in made
    assert chosen.startswith("nbx-triton/softmax/")


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="what a process has loaded is read from /proc")
def test_the_driver_is_all_that_is_loaded() -> None:
    script = """
        import os, sys
        from cuda import pathfinder
        def refuse(name, *rest):
            raise AssertionError(f"{name} of the toolkit is asked for")
        pathfinder.load_nvidia_dynamic_lib = refuse
        # What the runtime takes from cuda-core and cuda-bindings, in the order in which it does.
        from cuda.bindings import driver
        from cuda.core import Device, DeviceMemoryResource, DeviceMemoryResourceOptions, EventOptions, ObjectCode
        from cuda.core import LEGACY_DEFAULT_STREAM, PER_THREAD_DEFAULT_STREAM, Stream, StreamOptions
        ObjectCode.from_cubin(b"\\x7fELF", name="k")
        ObjectCode.from_ptx(b".version 6.4", name="k")
        assert driver.CUfunction_attribute and driver.CUmemPool_attribute
        with open("/proc/self/maps") as maps:
            loaded = {os.path.basename(line.split()[-1]) for line in maps if ".so" in line}
        toolkit = ("libnvrtc", "libcudart", "libnvJitLink", "libnvvm", "libcublas", "libnvptxcompiler")
        print(sorted(name for name in loaded if name.startswith(toolkit)))
    """
    assert run(script) == "[]\n"


@pytest.fixture
def unknown(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> nbx.Registry:
    """A registry on a machine whose one card has the name of none that a file describes."""
    card = LiveDevice(
        runtime="cuda",
        index=0,
        name="NVIDIA RTX 9999",
        arch="sm_89",
        detected={"memory.bytes": 8 * 2**30, "multiprocessors": 46, "l2.bytes": 2**25},
        versions={"driver": "13.0"},
    )
    monkeypatch.setattr(driver, "why_absent", str)
    monkeypatch.setattr(runtime, "live_devices", lambda: [card])
    monkeypatch.setattr(runtime.create(), "_live", None)
    monkeypatch.setenv("NBX_CONFIG_DIR", str(tmp_path))
    return nbx.load()


def test_an_unknown_card_is_refused_with_the_way_to_its_file(unknown: nbx.Registry) -> None:
    refused = unknown.decide("softmax", "float16[63, 1000]", device="cuda:0").candidate("nbx-triton/softmax/rows")
    assert refused.code == "FACT_MISSING"
    assert refused.reason == (
        "no device file matches 'NVIDIA RTX 9999' (sm_89); write one: nbx devices --new nvidia/<product> --card cuda:0 "
        "begins it from nvidia/arch/sm_89, and serves before it is filled in"
    )
    assert "docs/how-to/write-a-device-file.md" in refused.would_run_if


def test_the_file_that_is_begun_serves_at_once(unknown: nbx.Registry) -> None:
    from click.testing import CliRunner

    from nbx_registry.cli.main import main

    begun = CliRunner().invoke(main, ["devices", "--new", "nvidia/rtx-9999", "--card", "cuda:0"])
    assert begun.exit_code == 0, begun.output
    reg = nbx.load()
    device = reg.target("cuda:0").device
    assert device is not None
    # What the architecture's file states, and what the driver reports.
    assert (device.id, device.arch, device.fact("multiprocessors")) == ("nvidia/rtx-9999", "sm_89", 46)
    assert device.fact("shared.bytes_per_block_optin") == 101376
    decision = reg.decide("softmax", "float16[63, 1000]", device="cuda:0", require="any")
    assert (decision.chosen or "").startswith("nbx-triton/softmax/")
    signature: Any = reg.ops["softmax"].signature([nbx.spec.parse("float16[63, 1000]")], {})
    bound = reg.bind_specs("softmax", signature, device="nvidia/rtx-9999", kernel=decision.chosen, require="any")
    assert bound.launches[0].function.arch == "sm_89"
