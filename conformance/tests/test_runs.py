"""Runs of the command that end otherwise than they should: kernels that end their process, kills, interrupts."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from nbx_conformance.bundles.verify import verify
from nbx_conformance.runs.options import Options
from nbx_conformance.runs.session import Session

KERNEL = "nbx-fatal/sqrt/it"
TRIALS = len(Session(Options(device="cpu", kernels=("nbx-host/sqrt/numpy",))).items)
"""As many as any kernel of the op has."""

SIMULATION = Path(__file__).parents[2] / "tests" / "plugins" / "nbx-simulated"

MODULE = """
import os, signal, time
import numpy as np
from nbx_registry.hookspecs import hookimpl
from nbx_registry.kernel import Kernel
from nbx_registry.launch import Launch

NBX_HOOKS = 1

def bind(context):
    def it(x, out):
        mode = os.environ.get("FATAL")
        if mode == "segv" and x.shape[-1:] == (63,) and x.dtype == np.float32:
            os.kill(os.getpid(), signal.SIGSEGV)
        if mode == "slow":
            time.sleep(0.05)
        with np.errstate(all="ignore"):
            out[...] = np.sqrt(x.astype(np.float64))
    return Launch(function=it, args=("x", "out"))

@hookimpl
def nbx_register_kernels():
    return [Kernel(id="nbx-fatal/sqrt/it", op="sqrt@1", backend="numpy", runtimes=("host",), bind="nbx_fatal:bind")]
"""

TWO_DEVICES = """
from dataclasses import replace
from nbx_simulated import runtime
from nbx_simulated.plugin import NBX_HOOKS, nbx_register_backends, nbx_register_devices, nbx_register_kernels
from nbx_simulated.plugin import nbx_register_runtimes

runtime.LIVE = (runtime.LIVE[0], replace(runtime.LIVE[0], index=1))
"""

SPREAD = pytest.mark.parametrize("spread", [(), ("-n", "2")], ids=["one-process", "two-processes"])

Command = Callable[..., "subprocess.Popen[str]"]


def install(site: Path, name: str, module: str) -> None:
    """Leave in ``site`` what an installer leaves of a plugin."""
    points = site / f"{module}-1.0.dist-info"
    points.mkdir(parents=True)
    (points / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n", "utf-8")
    (points / "entry_points.txt").write_text(f"[nbx_registry]\n{name} = {module}\n", "utf-8")


# Where whoever runs the tests ignores interrupts, as a shell's background jobs do, the run must not.
INTERRUPTIBLE = """
import runpy, signal
signal.signal(signal.SIGINT, signal.default_int_handler)
runpy.run_module("nbx_conformance", run_name="__main__", alter_sys=True)
"""


@pytest.fixture
def command(tmp_path: Path) -> Command:
    """Give a function that starts the command where a fatal kernel and two equal devices are installed."""
    site = tmp_path / "site"
    for name, module, source in (("nbx-fatal", "nbx_fatal", MODULE), ("nbx-simulated", "nbx_two", TWO_DEVICES)):
        install(site, name, module)
        (site / f"{module}.py").write_text(source, "utf-8")

    def start(*arguments: str, kernel: str = KERNEL, mode: str = "") -> subprocess.Popen[str]:
        paths = [str(site), str(SIMULATION), *filter(None, [os.environ.get("PYTHONPATH")])]
        return subprocess.Popen(
            [sys.executable, "-c", INTERRUPTIBLE, "run", "--kernel", kernel, "--out", "bundle.json", *arguments],
            cwd=tmp_path,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(paths), "FATAL": mode},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    return start


def lines(journal: Path) -> int:
    return journal.read_bytes().count(b"\n") if journal.exists() else 0


def broken_off(command: Command, journal: Path, how: signal.Signals, *spread: str) -> tuple[int, int, str]:
    """Start a run and end it once some trials are done; return its exit code, what was recorded, and what it said."""
    run = command(*spread, mode="slow")
    until = time.monotonic() + 120
    while lines(journal) < 5 and run.poll() is None and time.monotonic() < until:
        time.sleep(0.02)
    # An interrupt from a terminal is for every process of the run; what kills one kills that one.
    if how == signal.SIGINT:
        os.killpg(run.pid, how)
    else:
        run.send_signal(how)
    out, err = run.communicate(timeout=120)
    return run.returncode, lines(journal) - 1, out + err


@SPREAD
def test_a_kernel_that_ends_its_process_is_an_error_and_the_rest_is_tried(
    command: Command, tmp_path: Path, spread: tuple[str, ...]
) -> None:
    run = command(*spread, mode="segv")
    out, err = run.communicate(timeout=300)
    assert run.returncode == 3, out + err
    entry = json.loads((tmp_path / "bundle.json").read_bytes())["kernels"][KERNEL]
    wrong = [case for case in entry["cases"] if case["verdict"] not in ("pass", "refused")]
    assert [(case["case"], case["verdict"], case["check"]) for case in wrong] == [
        ("awkward-f32-N63", "error", "numbers")
    ]
    assert "ended" in wrong[0]["reason"]
    assert len({case["case"] for case in entry["cases"]}) == entry["expected"]
    assert f"failed: {KERNEL} awkward-f32-N63: numbers" in out
    assert re.search(r"100%  (\d+) of \1 trials, 0:", out)
    assert f"--kernel {KERNEL} -k awkward-f32-N63" in out
    assert not (tmp_path / "bundle.json.partial").exists()


@SPREAD
def test_a_run_that_was_killed_goes_on_where_it_was(command: Command, tmp_path: Path, spread: tuple[str, ...]) -> None:
    journal = tmp_path / "bundle.json.partial"
    _, recorded, _ = broken_off(command, journal, signal.SIGKILL, *spread)
    assert recorded >= 4
    assert not (tmp_path / "bundle.json").exists()
    run = command("--resume", *spread)
    out, err = run.communicate(timeout=300)
    assert run.returncode == 0, out + err
    assert f"going on from bundle.json.partial: {recorded} of {TRIALS} trials are kept" in out
    assert not journal.exists()
    found = verify(tmp_path / "bundle.json")
    assert found.problems == ()
    assert json.loads((tmp_path / "bundle.json").read_bytes())["kernels"][KERNEL]["verdict"] == "pass"


@SPREAD
def test_an_interrupt_keeps_what_was_found_and_says_how_to_go_on(
    command: Command, tmp_path: Path, spread: tuple[str, ...]
) -> None:
    journal = tmp_path / "bundle.json.partial"
    code, recorded, said = broken_off(command, journal, signal.SIGINT, *spread)
    assert code == 130, said
    assert f"broken off: {recorded} of {TRIALS} trials are kept in {journal}" in said
    assert "nbx conformance run --kernel nbx-fatal/sqrt/it" in said
    assert "--resume" in said.splitlines()[-1]
    assert not (tmp_path / "bundle.json").exists()


def test_a_run_that_does_not_resume_says_what_it_replaces(command: Command, tmp_path: Path) -> None:
    (tmp_path / "bundle.json.partial").write_text("{}\n", "utf-8")
    run = command("--resume")
    out, err = run.communicate(timeout=120)
    assert run.returncode == 2, out
    assert "bundle.json.partial is no journal of this version's; leave out --resume to begin anew" in err
    run = command("-k", "minilm")
    out, err = run.communicate(timeout=120)
    assert run.returncode == 0, out + err
    assert "bundle.json.partial, of a run that was broken off, is replaced" in out
    data = json.loads((tmp_path / "bundle.json").read_bytes())
    assert data["selection"]["keyword"] == "minilm"
    assert (data["kernels"][KERNEL]["verdict"], data["kernels"][KERNEL]["expected"]) == ("incomplete", TRIALS)


def test_processes_are_dealt_out_over_the_devices_of_a_product(command: Command, tmp_path: Path) -> None:
    kernel = "nbx-simulated/negative/loopback"
    run = command("--device", "sim/loopback", "-n", "2", "-k", "awkward", kernel=kernel)
    out, err = run.communicate(timeout=300)
    assert run.returncode == 0, out + err
    assert "on 2 of 2 devices: sim:0, sim:1" in out
    data = json.loads((tmp_path / "bundle.json").read_bytes())
    assert data["device"]["handles"] == ["sim:0", "sim:1"]
    assert {case["handle"] for case in data["kernels"][kernel]["cases"]} == {"sim:0", "sim:1"}
