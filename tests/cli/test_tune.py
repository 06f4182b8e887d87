"""``nbx tune``: what it takes, what it prints, and its exit codes."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest
from click.testing import Result

import nbx_registry as nbx
from nbx_registry.hookspecs import hookimpl
from nbx_registry.kernel import Backend, Kernel
from nbx_registry.launch import BindContext, Launch
from nbx_registry.space import Space

Run = Callable[..., Result]
ID = "made/add/chunks"


@pytest.fixture
def chunks(monkeypatch: pytest.MonkeyPatch, with_plugins: Callable[..., None]) -> Callable[..., None]:
    """Give a function that installs a kernel of add with three candidates, one of them wrong."""

    def install(wrong: int = 63) -> None:
        name = f"nbx_cli_tuned_{wrong}"
        module: Any = ModuleType(name)
        module.SPACE = Space(parameters={"chunk": (7, 63, 1000)}, exclude={"one chunk": "chunk > x1.size"})
        monkeypatch.setitem(sys.modules, name, module)

        def bind(context: BindContext) -> Launch:
            chunk = context.settings["chunk"]

            def run(x1: Any, x2: Any, out: Any) -> None:
                for start in range(0, out.size, chunk):
                    part = slice(start, start + chunk)
                    np.add(x1[part], x2[part], out=out[part])
                out[-1] += chunk == wrong

            return Launch(function=run, args=context.signature.names)

        kernel = Kernel(
            id=ID,
            op="add@1",
            backend="made",
            runtimes=("host",),
            bind=bind,
            when=("x1.rank == 1", "x2.rank == 1", "x1.size == x2.size"),
            key=("out.size",),
            defaults={"chunk": 7},
            settings=f"{name}:SPACE",
        )
        with_plugins(
            SimpleNamespace(
                name="made",
                NBX_HOOKS=1,
                nbx_register_backends=hookimpl(lambda: [Backend(name="made")], specname="nbx_register_backends"),
                nbx_register_kernels=hookimpl(lambda: [kernel], specname="nbx_register_kernels"),
            )
        )

    return install


def test_it_prints_what_it_found_and_writes_it(run: Run, chunks: Callable[..., None], tmp_path: Path) -> None:
    chunks()
    ran = run("tune", "add", "float32[129]", "x2=float32[129]", "--kernel", ID)
    assert ran.exit_code == 0, ran.output
    assert f"{ID}  out.size=129" in ran.stdout
    assert "1 timed, 0 of them dropped early; 1 excluded by rules" in ran.stdout
    assert "excluded chunk=63: wrong: on input 0: out[128]" in ran.stdout
    assert "the default stays" in ran.stdout
    file = tmp_path / "settings" / "host-cpu.json"
    assert f"writtento{file}" in "".join(ran.stdout.split())
    assert json.loads(file.read_text())["entries"][0]["settings"] == {"chunk": 7}
    explained = run("explain", "add", "float32[129]", "float32[129]", "--kernel", ID, "--require", "any")
    assert "tuned: chunk=7, proven" in explained.stdout
    assert max(map(len, ran.stdout.splitlines())) <= 80


def test_json_holds_the_entries(run_json: Callable[..., Any], chunks: Callable[..., None], tmp_path: Path) -> None:
    chunks()
    words = ("tune", "add", "float32[129]", "float32[129]", "--kernel", ID, "--out", str(tmp_path / "own"))
    found = run_json(*words)
    (one,) = found["tuned"]
    assert (one["device"], one["kernel"], one["key"]) == ("host/cpu", ID, {"out.size": 129})
    assert found["files"] == [str(tmp_path / "own" / "host-cpu.json")]
    assert found["failed"] == []


def test_a_default_that_is_wrong_exits_1(run: Run, chunks: Callable[..., None], tmp_path: Path) -> None:
    chunks(wrong=7)
    ran = run("tune", "add", "float32[129]", "float32[129]", "--kernel", ID)
    assert ran.exit_code == 1
    assert "the default (chunk=7) is wrong" in ran.stdout.replace("\n", "")
    assert not (tmp_path / "settings").exists() or not list((tmp_path / "settings").glob("*.json"))


def test_a_plan_is_tuned(run: Run, chunks: Callable[..., None], tmp_path: Path) -> None:
    chunks()
    reg = nbx.load()
    x = np.ones(1000, np.float32)
    with reg.record() as plan:
        reg.call("add", x, x, kernel=ID, require="any")
    plan.save(tmp_path / "plan.json")
    ran = run("tune", "--plan", str(tmp_path / "plan.json"))
    assert ran.exit_code == 0, ran.output
    assert "out.size=1000" in ran.stdout


def test_nothing_to_tune_is_said(run: Run) -> None:
    ran = run("tune", "sqrt", "float32[63]")
    assert ran.exit_code == 0
    assert "nbx-host/sqrt/numpy states no settings" in ran.stdout
    assert "nothing to tune" in ran.stdout


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        ([], 2, "name an OP with its ARGs, or a plan"),
        (["sqrt", "float32[63]", "--plan", __file__], 2, "name an OP with its ARGs, or a plan"),
        (["--plan", __file__, "--kernel", "x"], 2, "--attr and --kernel go with an OP"),
        (["--plan", __file__], 1, "not JSON"),
        (["sqrt", "float32[63]", "-n", "0"], 2, "is no number of devices"),
        (["sqrt", "float32[63]", "--device", "nvidia/t4"], 1, "is not present here"),
        (["sqrt", "float32[63]", "--kernel", "nbx-host/add/numpy"], 2, "implements add@1"),
        (["sqrt", "int32[63]"], 2, "floating"),
        (["sqrt", "float32[63]", "--out", "/dev/null/x"], 0, "nothing to tune"),
    ],
    ids=lambda value: " ".join(value[:3])[:40] if isinstance(value, list) else "",
)
def test_a_wrong_question_is_told(run: Run, words: list[str], code: int, said: str) -> None:
    ran = run("tune", *words)
    assert ran.exit_code == code, ran.output
    assert said in ran.output.replace("\n  ", " ").replace("\n", " ")
