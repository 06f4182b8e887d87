"""``nbx new-plugin``: what it writes is a whole plugin that works as it is, under whatever name."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

import nbx_registry as nbx
from nbx_registry import scaffold
from nbx_registry.cli import main
from nbx_registry.errors import NbxError

ROOT = Path(__file__).parents[2]


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("NBX_CONFIG_DIR", str(tmp_path / "config"))

    def invoke(*words: str) -> Result:
        result = CliRunner().invoke(main, ["new-plugin", *words])
        assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
        return result

    return invoke


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A plugin written under another name, and installed: its wheel's contents beside it, in ``site``."""
    folder = tmp_path_factory.mktemp("written")
    scaffold.write(scaffold.name_of("nbx-zeta"), folder)
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder / "dist")]
    done = subprocess.run(command, cwd=folder / "nbx-zeta", capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    (wheel,) = (folder / "dist").glob("*.whl")
    zipfile.ZipFile(wheel).extractall(folder / "site")
    return folder


def installed(folder: Path, *command: str, code: int = 0) -> str:
    environment = {
        **os.environ,
        "PYTHONPATH": str(folder / "site"),
        "NBX_CONFIG_DIR": str(folder / "config"),
        "COLUMNS": "200",
    }
    done = subprocess.run(
        [sys.executable, *command],
        # Not in the distribution's own folder, whose package would come before the installed one.
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout


def command(folder: Path, *words: str, code: int = 0) -> str:
    return installed(folder, "-c", "from nbx_registry.cli import main; main()", *words, code=code)


def test_its_own_tests_pass(folder: Path) -> None:
    text = (folder / "nbx-zeta" / "tests" / "test_conformance.py").read_text("utf-8")
    assert text.splitlines() == [
        "from nbx_conformance import suite",
        "",
        'test_conformance = suite("nbx-zeta")',
    ]
    output = installed(folder, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-W", "error", "nbx-zeta")
    assert "nbx-zeta/matmul/plain" in output
    assert "nbx-zeta/linear/parts" in output


def test_it_is_listed_and_nothing_is_wrong_with_it(folder: Path) -> None:
    assert re.search(r"nbx-zeta +0\.1\.0 +active +0 +2 +1 +1 +0", command(folder, "plugins"))
    assert "nbx-zeta/matmul/plain" in command(folder, "kernels")
    assert "zeta:0" in command(folder, "devices")
    script = "import nbx_registry as nbx; reg = nbx.load(); print([f for f in reg.diagnostics() if 'zeta' in str(f)])"
    assert installed(folder, "-W", "error", "-c", script) == "[]\n"
    told = json.loads(command(folder, "doctor", "--json"))
    assert not [row for row in told if "zeta" in row["about"] or (row["kind"] == "problem" and "zeta" in row["text"])]


ASK = """
import numpy as np, nbx_registry as nbx
x, w, b = (np.ones(shape, np.float32) for shape in ((3, 63), (5, 63), (5,)))
x, w, b = (nbx.asarray(array, device="zeta:0") for array in (x, w, b))
print([nbx.load().decide("linear", *given).chosen for given in ((x, w), (x, w, b))])
"""


def test_checked_on_its_device_it_runs_and_what_is_made_of_parts_wants_all_of_them(folder: Path) -> None:
    assert installed(folder, "-c", ASK) == "[None, None]\n"
    bundle = folder / "site" / "nbx_zeta" / "evidence" / "one.json"
    command(folder, "conformance", "run", "--device", "zeta:0", "--plugin", "nbx-zeta", "--out", str(bundle))
    assert installed(folder, "-c", ASK) == "['nbx-zeta/linear/parts', None]\n"
    refusal = command(
        folder,
        *("explain", "linear", "float32[3, 63]", "float32[5, 63]", "float32[5]", "--device", "zeta/one"),
        code=3,
    )
    assert "nbx-zeta/linear/parts: PART_REFUSED: part add(x1: float32[3, 5], x2: float32[5])" in refusal


@pytest.mark.parametrize("name", ["nbx-zeta", "nbx-big-iron"])
def test_it_is_as_tidy_as_what_is_here(name: str, tmp_path: Path) -> None:
    names = scaffold.name_of(name)
    scaffold.write(names, tmp_path)
    for words in (["check"], ["format", "--check"]):
        ruff = [sys.executable, "-m", "ruff", *words, "--no-cache", "--config", str(ROOT / "pyproject.toml")]
        done = subprocess.run([*ruff, str(tmp_path / name / names.module)], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr


def test_nothing_of_the_template_is_left_in_it(folder: Path) -> None:
    for path in (folder / "nbx-zeta").rglob("*"):
        assert "acme" not in path.name
        if path.suffix in (".py", ".md", ".yml", ".toml"):
            assert "acme" not in path.read_text("utf-8").lower(), path


def test_a_name_of_several_words_is_written_in_each_places_own_way(tmp_path: Path) -> None:
    names = scaffold.name_of("nbx-big-iron")
    assert (names.module, names.short, names.title) == ("nbx_big_iron", "big_iron", "Big Iron")
    scaffold.write(names, tmp_path)
    script = """
import nbx_big_iron.plugin, nbx_registry as nbx
reg = nbx.load(plugins=[nbx_big_iron.plugin])
assert reg.diagnostics() == [f for f in reg.diagnostics() if "big" not in str(f)]
print(reg.device("big_iron:0")[0].id, reg.plugins["nbx_big_iron.plugin"].state)
"""
    environment = {**os.environ, "PYTHONPATH": str(tmp_path / "nbx-big-iron")}
    done = subprocess.run([sys.executable, "-c", script], env=environment, capture_output=True, text=True, check=False)
    assert done.stdout == "big_iron/one active\n", done.stderr


def test_a_name_that_holds_the_templates_own_is_replaced_once() -> None:
    assert scaffold.name_of("nbx-acme2").replace("nbx-acme nbx_acme acme Acme ACME-1") == (
        "nbx-acme2 nbx_acme2 acme2 Acme2 ACME2-1"
    )
    assert scaffold.name_of("acme").replace("nbx-acme nbx_acme acme") == "acme acme acme"


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("", "no name of a distribution"),
        ("NBX_Zeta", "write nbx-zeta"),
        ("nbx--zeta", "write nbx-zeta"),
        ("nbx-zeta-", "write nbx-zeta"),
        ("../zeta", "no name of a distribution"),
        ("nbx-zäta", "no name of a distribution"),
        ("nbx zeta", "no name of a distribution"),
        ("nbx-3d", "begin that with a letter"),
        ("3d", "begin that with a letter"),
        ("nbx-for", "keyword 'for'"),
        ("class", "keyword 'class'"),
        ("nbx-true", "'true', which is none in a device file"),
        ("null", "'null', which is none in a device file"),
        ("nbx-" + "z" * 60, "at most 40"),
        ("nbx-host", "there is a plugin 'nbx-host' already"),
        ("nbx-numpy", "the backend 'numpy'"),
        ("nbx-view", "the backend 'view'"),
        ("nbx-cpu", "the runtime 'cpu'"),
        ("nbx-nvidia", "devices of the vendor 'nvidia'"),
        ("json", "imported as 'json'"),
        ("nbx-registry", "imported as 'nbx_registry'"),
    ],
)
def test_a_name_that_will_not_do_is_told_and_nothing_is_written(run, tmp_path: Path, name: str, message: str) -> None:
    result = run(name)
    assert result.exit_code == 2
    assert message in " ".join(result.output.split())
    assert list(tmp_path.iterdir()) == []


def test_what_is_there_already_is_left_alone(run, tmp_path: Path) -> None:
    (tmp_path / "nbx-zeta").mkdir()
    result = run("nbx-zeta")
    assert result.exit_code == 2
    assert "is there already" in result.output
    assert list((tmp_path / "nbx-zeta").iterdir()) == []


def test_a_link_to_nowhere_is_there_already(run, tmp_path: Path) -> None:
    (tmp_path / "nbx-zeta").symlink_to("nowhere")
    result = run("nbx-zeta")
    assert result.exit_code == 2
    assert "is there already" in result.output


def test_a_folder_that_may_not_be_looked_into_is_told(tmp_path: Path) -> None:
    with pytest.raises(NbxError, match="cannot be written"):
        scaffold.write(scaffold.name_of("nbx-zeta"), tmp_path / ("long" * 200))


def test_a_folder_that_cannot_be_written_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(NbxError, match="cannot be written"):
        scaffold.write(scaffold.name_of("nbx-zeta"), tmp_path / "file")


def test_the_folder_may_be_chosen_and_the_answer_be_json(run, tmp_path: Path) -> None:
    (tmp_path / "vendor").mkdir()
    answer = json.loads(run("nbx-zeta", "--folder", "vendor", "--json").stdout)
    assert answer["folder"] == str(Path("vendor") / "nbx-zeta")
    written = [path for path in (tmp_path / "vendor" / "nbx-zeta").rglob("*") if path.is_file()]
    assert sorted(answer["files"]) == sorted(
        path.relative_to(tmp_path / "vendor" / "nbx-zeta").as_posix() for path in written
    )
    assert {"pyproject.toml", ".github/workflows/ci.yml", "nbx_zeta/plugin.py"} <= set(answer["files"])
    assert run("nbx-zeta", "--folder", "absent").exit_code == 2
    refused = json.loads(run("Nbx_Zeta", "--json").stdout)
    assert "write nbx-zeta" in refused["error"]["message"]


def test_the_template_is_a_plugin_of_this_core() -> None:
    assert (scaffold.distribution.TEMPLATE / "pyproject.toml").is_file()
    assert scaffold.collision(scaffold.name_of("nbx-zeta"), nbx.load().catalog) is None
