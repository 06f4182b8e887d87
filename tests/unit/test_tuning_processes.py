"""What ends a process that tunes is left out by the next one; the processes here only say what they would do."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from making import made

import nbx_registry as nbx
from nbx_registry.kernel import Kernel
from nbx_registry.space import Space
from nbx_registry.tuning import Failure, jobs, processes

ID = "made/add/blocked"

PROGRAM = """
import json, os, sys, time

def say(**data):
    print(json.dumps(data), flush=True)

def failed(code, message=""):
    say(failed={"kernel": "k", "key": {}, "code": code, "message": message})

does = json.loads(sys.argv[1])
say(ready="there")
for line in sys.stdin:
    told = json.loads(line)
    avoided = [one["settings"]["block"] for one in told["avoided"]]
    for block in (128, 32, 64, 256):
        what = "" if block in avoided else does.get(str(block), "")
        say(tries={"block": block})
        if what == "exits":
            os._exit(3)
        if what == "hangs":
            time.sleep(60)
        if what == "breaks":
            failed("DEVICE_UNUSABLE", "an illegal access")
            time.sleep(60)
    failed("DONE", json.dumps({**told, "entry": told["entry"]["kernel"]}))
"""


@pytest.fixture
def reg(monkeypatch: pytest.MonkeyPatch) -> nbx.Registry:
    module: Any = ModuleType("nbx_tuned_apart")
    module.SPACE = Space(parameters={"block": (32, 64, 128, 256)})
    monkeypatch.setitem(sys.modules, module.__name__, module)
    kernel = Kernel(
        id=ID,
        op="add@1",
        backend="made",
        runtimes=("host",),
        bind=lambda _context: (),
        key=("out.size",),
        defaults={"block": 128},
        settings="nbx_tuned_apart:SPACE",
    )
    return nbx.load(plugins=[made("made", kernel)], require="any")


Shared = Callable[..., list[Failure]]


@pytest.fixture
def shared(reg: nbx.Registry, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Shared:
    """Give a function that tunes one key in processes which do with some candidates as they are told."""

    def run(does: dict[str, str], *specs: Any) -> list[Failure]:
        command = (sys.executable, "-I", "-S", "-c", PROGRAM, json.dumps(does))
        monkeypatch.setattr(processes, "COMMAND", command)
        signature, _ = reg.signature("add", *(specs or ("float32[63]", "float32[63]")))
        target = reg.target("cpu")
        given = {"x2": specs[1]} if specs else {}
        found = jobs.of_request(reg, signature, target, ID, given).jobs
        return list(processes.shared(reg, found, [target], tmp_path / "s.json"))  # type: ignore[arg-type]

    return run


@pytest.mark.parametrize(
    ("what", "said"),
    [("exits", "the process ended with code 3 at block=64"), ("breaks", "an illegal access")],
)
def test_what_ends_its_process_is_left_out_by_a_fresh_one(shared: Shared, what: str, said: str) -> None:
    (found,) = shared({"64": what, "256": "exits"})
    assert found.code == "DONE"
    avoided = json.loads(found.message)["avoided"]
    assert [one["settings"]["block"] for one in avoided] == [64, 256]
    assert avoided[0]["rule"] == "unusable"
    assert said in avoided[0]["reason"]


def test_what_hangs_is_left_out(shared: Shared, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processes, "PATIENCE_S", 2.0)
    (found,) = shared({"32": "hangs"})
    assert found.code == "DONE"
    (avoided,) = json.loads(found.message)["avoided"]
    assert "took longer than 2 s at block=32" in avoided["reason"]


def test_a_default_that_ends_its_process_fails_the_key(shared: Shared) -> None:
    (found,) = shared({"128": "exits"})
    assert (found.code, found.key) == ("PROCESS_ENDED", {"out.size": 63})
    assert "on cpu: the process ended with code 3 at block=128" in found.message


def test_numbers_that_were_given_are_told(shared: Shared) -> None:
    (found,) = shared({}, "float32[63]", 2.5)
    assert json.loads(found.message)["given"] == {"x2": 2.5}


def test_arrays_are_tuned_on_where_they_are(reg: nbx.Registry) -> None:
    x = np.ones(63, np.float32)
    signature, _ = reg.signature("add", x, x)
    (job,) = jobs.of_request(reg, signature, reg.target("cpu"), ID, {"x1": x}).jobs
    assert not processes.can_send(job)


def test_what_is_not_installed_cannot_be_tuned_apart(reg: nbx.Registry, tmp_path: Path) -> None:
    # The kernel of this process is none of the other's.
    signature, _ = reg.signature("add", "float32[63]", "float32[63]")
    target = reg.target("cpu")
    found = jobs.of_request(reg, signature, target, ID, {}).jobs
    (failure,) = processes.shared(reg, found, [target], tmp_path / "s.json")
    assert isinstance(failure, Failure)
    assert failure.code == "UNKNOWN"
    assert ID in failure.message
