"""The suite inside pytest: three lines in a plugin's tests, and the command that drives it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from nbx_conformance import cli

THREE_LINES = """
from nbx_conformance import suite

test_conformance = suite({arguments})
"""

HOSTILE = """
import numpy as np
from nbx_conformance import suite
from nbx_registry.hookspecs import hookimpl
from nbx_registry.kernel import Kernel
from nbx_registry.launch import Launch

def bind(context):
    def wrong(x, out):
        out[...] = x
    return Launch(function=wrong, args=("x", "out"))

class Plugin:
    NBX_HOOKS = 1
    name = "nbx-wrong"

    @hookimpl
    def nbx_register_kernels(self):
        return [Kernel(id="nbx-wrong/sqrt/it", op="sqrt@1", backend="numpy", runtimes=("host",), bind=bind{when})]

test_conformance = suite("nbx-wrong", extra=(Plugin(),))
"""


def pytest_on(folder: Path, source: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    (folder / "test_conformance.py").write_text(source, "utf-8")
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-W", "error", *arguments, "."]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False, timeout=300)


def conformance(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "nbx_conformance", *arguments]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False, timeout=300)


def test_three_lines_have_the_suite_with_readable_ids(tmp_path: Path) -> None:
    done = pytest_on(tmp_path, THREE_LINES.format(arguments="'nbx-host', ops=('sqrt',)"), "-v")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "test_conformance[sqrt/nbx-host/sqrt/numpy/awkward-f32-N63] PASSED" in done.stdout
    assert "conformance on cpu (host/cpu), on the device" in done.stdout


def test_the_command_line_narrows_a_suite_and_shares_it_among_processes(tmp_path: Path) -> None:
    source = THREE_LINES.format(arguments="'nbx-host'")
    out = tmp_path / "out" / "bundle.json"
    done = pytest_on(tmp_path, source, "--nbx-op=sqrt", "-k", "awkward", f"--nbx-out={out}", "-q", "-n", "2")
    assert done.returncode == 0, done.stdout + done.stderr
    assert list(json.loads(out.read_bytes())["kernels"]) == ["nbx-host/sqrt/numpy"]


def test_two_runs_shared_among_processes_leave_no_bundle_and_no_journal(tmp_path: Path) -> None:
    source = THREE_LINES.format(arguments="'nbx-host', ops=('sqrt',)")
    source += "test_other = suite('nbx-host', ops=('abs',))\n"
    out = tmp_path / "out" / "bundle.json"
    done = pytest_on(tmp_path, source, "-k", "awkward", f"--nbx-out={out}", "-q", "-n", "2")
    assert done.returncode == 1
    assert "is not written: a bundle holds one run, and there are 2" in done.stdout
    assert list(out.parent.iterdir()) == []


def test_a_failure_names_check_place_and_the_command_that_shows_it_again(tmp_path: Path) -> None:
    done = pytest_on(tmp_path, HOSTILE.format(when=""), "-k", "awkward-f32-N63")
    assert done.returncode == 1
    assert "fail: numbers: out[0, 0] is " in done.stdout
    again = "nbx conformance run --device cpu --via device --size smoke --kernel nbx-wrong/sqrt/it -k awkward-f32-N63"
    assert again in done.stdout


@pytest.mark.parametrize("spread", [(), ("-n", "2")], ids=["one-process", "two-processes"])
def test_a_kernel_that_refuses_everything_fails_the_run(tmp_path: Path, spread: tuple[str, ...]) -> None:
    source = HOSTILE.format(when=', when=("x.dtype in (float8_e5m2,)",)')
    done = pytest_on(tmp_path, source, "-k", "awkward", *spread)
    assert done.returncode == 1
    assert "nothing was measured about nbx-wrong/sqrt/it" in done.stdout


def test_a_run_whose_kernels_are_all_for_other_devices_is_no_pass(tmp_path: Path) -> None:
    done = pytest_on(tmp_path, HOSTILE.format(when=""", when=("device.arch == 'sm_70'",)"""), "-k", "awkward")
    assert done.returncode == 1
    assert "nothing was measured: what was tried is for other devices than cpu" in done.stdout


@pytest.mark.parametrize(
    ("arguments", "why"),
    [("'nbx-devices'", "nothing can be measured"), ("'nbx-absent'", "unknown plugin 'nbx-absent'")],
)
def test_nothing_to_measure_is_no_pass(tmp_path: Path, arguments: str, why: str) -> None:
    done = pytest_on(tmp_path, THREE_LINES.format(arguments=arguments))
    assert done.returncode == 1
    assert why in done.stdout


def test_the_command_runs_verifies_and_leaves_nothing_else_behind(tmp_path: Path) -> None:
    (tmp_path / "pytest.ini").write_text("[pytest]\naddopts = --no-such-option\n", "utf-8")
    done = conformance(tmp_path, "run", "--op", "sqrt", "--out", "bundle.json")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "nbx-host/sqrt/numpy" in done.stdout
    assert sorted(path.name for path in tmp_path.iterdir()) == ["bundle.json", "pytest.ini"]
    done = conformance(tmp_path, "verify", "bundle.json")
    assert (done.returncode, done.stdout) == (0, "bundle.json: verified (self-reported, unsigned)\n")
    (tmp_path / "bundle.json").write_bytes((tmp_path / "bundle.json").read_bytes().replace(b'"pass"', b'"PASS"', 1))
    done = conformance(tmp_path, "verify", "--json", "bundle.json")
    assert done.returncode == 3
    assert json.loads(done.stdout)["bundles"][0]["verified"] is False


def test_a_run_is_told_as_plain_data(tmp_path: Path) -> None:
    done = conformance(tmp_path, "run", "--op", "sqrt", "--plugin", "nbx-host", "--json", "--out", "bundle.json")
    told = json.loads(done.stdout)
    (run,) = told["runs"]
    assert (told["exit_code"], told["problems"], Path(told["bundle"]).name) == (0, [], "bundle.json")
    kernel = run["kernels"]["nbx-host/sqrt/numpy"]
    assert (kernel["verdict"], kernel["fail"], kernel["error"]) == ("pass", 0, 0)
    assert kernel["pass"] > 10
    done = conformance(tmp_path, "run", "--op", "sqrt", "-k", "nosuchcase", "--json")
    assert (done.returncode, json.loads(done.stdout)["exit_code"]) == (3, 3)
    assert json.loads(conformance(tmp_path, "lint", "--json").stdout)["problems"] == []


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (("--device", "cpu", "--plugin", "nbx-cuda"), "no kernel of nbx-cuda can be tried on cpu"),
        (("--op", "sqrt", "-k", "nosuchcase"), "no trial matches"),
    ],
    ids=["no-kernel", "no-case"],
)
def test_a_command_that_measures_nothing_does_not_pass(tmp_path: Path, arguments: tuple[str, ...], why: str) -> None:
    done = conformance(tmp_path, "run", *arguments)
    assert done.returncode == 3, done.stdout + done.stderr
    assert "nothing was measured" in done.stdout + done.stderr
    assert why in done.stdout + done.stderr


@pytest.mark.parametrize(
    ("arguments", "code", "why"),
    [
        (("run", "--op", "sqrtt"), 2, "did you mean 'sqrt'"),
        (("run", "--device", "nvidia/b300"), 2, "did you mean 'nvidia/b200'"),
        (("run", "--size", "huge"), 2, "'huge' is not one of"),
        (("run", "--device", "nvidia/b200", "--via", "device"), 3, "is not here"),
        (("verify", "absent.json"), 2, "does not exist"),
    ],
    ids=lambda value: "-".join(value) if isinstance(value, tuple) else "",
)
def test_exit_codes_of_what_cannot_be_run(arguments: tuple[str, ...], code: int, why: str) -> None:
    done = CliRunner().invoke(cli.conformance, arguments)
    assert done.exit_code == code, done.output
    assert why in done.output
