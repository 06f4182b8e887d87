"""The checks of plugins as wholes: each finds what it is there for, and says nothing of what is sound."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import nbx_registry as nbx
from nbx_conformance import plugin_checks
from nbx_conformance.cases import CaseTable
from nbx_conformance.plugin_checks import PLUGIN_CHECKS, PluginItem
from nbx_conformance.plugin_checks.subject import Subject
from nbx_conformance.report import plugins
from nbx_conformance.runs import runner
from nbx_conformance.runs.options import Options
from nbx_conformance.runs.session import Session
from nbx_conformance.trials.trial import Outcome
from nbx_registry.errors import FileError
from nbx_registry.hookspecs import hookimpl
from nbx_registry.kernel import Kernel
from nbx_registry.op import op

PLUGIN = """
from pathlib import Path
from nbx_registry.hookspecs import hookimpl
from nbx_registry.kernel import Kernel
{imports}

NBX_HOOKS = 1

@hookimpl
def nbx_register_kernels():
    return [Kernel(id="nbx-probe/add/x", op="add@1", backend="numpy", runtimes=("host",),
                   bind="nbx_probe.kernels:bind", doc="One line.")]
"""


HOST_EVIDENCE = Path(nbx.__file__).parent / "host" / "evidence"


class Probe:
    """A distribution ``nbx-probe`` on ``sys.path``, written as a test goes."""

    def __init__(self, site: Path) -> None:
        self.package = site / "nbx_probe"
        self.write("__init__.py", "")
        self.write("plugin.py", PLUGIN.format(imports=""))
        self.write("kernels.py", "def bind(context):\n    raise NotImplementedError\n")
        metadata = site / "nbx_probe-1.2.dist-info"
        metadata.mkdir()
        (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: nbx-probe\nVersion: 1.2\n")
        (metadata / "entry_points.txt").write_text("[nbx_registry]\nnbx-probe = nbx_probe.plugin\n")

    def write(self, name: str, text: str) -> None:
        path = self.package / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(textwrap.dedent(text), "utf-8")

    def forget(self) -> None:
        """Let it be imported anew: what a test before imported under this name is another package."""
        for name in [name for name in sys.modules if name.partition(".")[0] == "nbx_probe"]:
            del sys.modules[name]

    def looked(self, check: str) -> Outcome | None:
        self.forget()
        registry = nbx.load()
        plugin = registry.plugins["nbx-probe"]
        return PLUGIN_CHECKS[check](Subject(plugin, registry, runner.case_table(registry)))


@pytest.fixture
def probe(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Probe:
    monkeypatch.syspath_prepend(tmp_path)
    return Probe(tmp_path)


def made(name: str = "made", **items: Sequence[Any]) -> Any:
    hooks = {
        f"nbx_register_{kind}": hookimpl(lambda values=values: values, specname=f"nbx_register_{kind}")
        for kind, values in items.items()
    }
    return SimpleNamespace(name=name, NBX_HOOKS=1, **hooks)


def kernel(identifier: str, **changes: Any) -> Kernel:
    given = {"op": "add@1", "backend": "numpy", "runtimes": ("host",), "bind": lambda _: None, "doc": "One line."}
    return Kernel(**{"id": identifier, **given, **changes})


def looked(check: str, *extra: Any, name: str = "made", cases: CaseTable | None = None) -> Outcome | None:
    registry = nbx.load(plugins=extra)
    assert registry.plugins[name].state == "active", registry.plugins[name].reason
    return PLUGIN_CHECKS[check](Subject(registry.plugins[name], registry, cases or CaseTable([])))


def failed(outcome: Outcome | None) -> str:
    assert outcome is not None
    assert outcome.verdict == "fail", outcome
    return outcome.detail


# Light import, no torch.


def test_a_sound_plugin_passes_both(probe: Probe) -> None:
    for check in ("light_import", "no_torch"):
        assert probe.looked(check) == Outcome(check, "pass")


@pytest.mark.parametrize("toolkit", ["torch", "triton"])
def test_a_toolkit_that_loading_imports_is_named(probe: Probe, toolkit: str) -> None:
    # A stand-in is as good: what counts is that it was imported.
    stand_in = probe.package.parent / toolkit
    stand_in.mkdir()
    (stand_in / "__init__.py").write_text("")
    probe.write("plugin.py", PLUGIN.format(imports="import nbx_probe.more"))
    probe.write("more.py", f"try:\n    import {toolkit}\nexcept ImportError:\n    pass\n")
    assert failed(probe.looked("light_import")) == (
        f"loading nbx_probe.plugin imports {toolkit}; import it where a kernel is bound"
    )


def test_what_is_imported_where_a_kernel_is_bound_is_not_loaded(probe: Probe) -> None:
    probe.write("kernels.py", "import triton\n\ndef bind(context):\n    import torch\n")
    outcome = probe.looked("light_import")
    assert outcome is not None
    assert outcome.verdict == "pass"


def test_a_plugin_that_loads_only_beside_others_is_told(probe: Probe) -> None:
    probe.write("plugin.py", PLUGIN.format(imports="import sys\nassert 'nbx_conformance' in sys.modules"))
    assert "importing nbx_probe.plugin raised AssertionError" in failed(probe.looked("light_import"))


@pytest.mark.parametrize(
    "source",
    [
        "print('hello')",
        "print('hello', end='')",
        "import atexit, sys\n'nbx_conformance' in sys.modules or atexit.register(print, 'hello')",
        "import sys\nsys.stdout.buffer.write(b'hello\\xff')",
    ],
    ids=["a-line", "no-end", "at-exit", "no-text"],
)
def test_a_plugin_that_prints_is_told(probe: Probe, source: str) -> None:
    probe.write("plugin.py", PLUGIN.format(imports=source))
    assert failed(probe.looked("light_import")).startswith("loading nbx_probe.plugin prints 'hello")


@pytest.mark.parametrize(("code", "said"), [(7, "ends with 7"), (0, "ends before it has told what it loads")])
def test_a_plugin_that_ends_the_process_is_told(probe: Probe, code: int, said: str) -> None:
    source = f"import os, sys\n'nbx_conformance' in sys.modules or os._exit({code})"
    probe.write("plugin.py", PLUGIN.format(imports=source))
    assert said in failed(probe.looked("light_import"))


@pytest.mark.parametrize(
    ("name", "source", "line"),
    [
        ("kernels.py", "import numpy, torch.nn\n", 1),
        ("deep/down.py", "def f():\n    from torch import nn\n", 2),
        ("lazy.py", "try:\n    import torch\nexcept ImportError:\n    torch = None\n", 2),
        ("typed.py", "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    pass\nelse:\n    import torch\n", 5),
    ],
)
def test_a_module_that_imports_torch_is_named(probe: Probe, name: str, source: str, line: int) -> None:
    probe.write(name, source)
    assert failed(probe.looked("no_torch")) == f"{probe.package / name}:{line} imports torch"


@pytest.mark.parametrize(
    ("name", "source"),
    [
        ("tests/test_it.py", "import torch\n"),
        ("typed.py", "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import torch\n"),
        ("own.py", "from .torch import f\nfrom nbx_probe import torch\nimport torchlike\n"),
    ],
)
def test_what_is_no_import_of_torch_is_told_nothing_of(probe: Probe, name: str, source: str) -> None:
    probe.write(name, source)
    assert probe.looked("no_torch") == Outcome("no_torch", "pass")


def test_a_module_that_is_no_python_is_named(probe: Probe) -> None:
    probe.write("broken.py", "def\n")
    assert "broken.py cannot be read" in failed(probe.looked("no_torch"))


def test_of_an_object_of_this_process_neither_can_be_told() -> None:
    plugin = made(kernels=[kernel("made/add/x")])
    assert looked("light_import", plugin) is None
    assert looked("no_torch", plugin) is None


# Ids, references, overlays.


@op("made::twice@1(x: F[*S]) -> F[*S]")
def twice(x: np.ndarray) -> np.ndarray:
    """Double.

    Parameters
    ----------
    x : floating

    Returns
    -------
    the dtype and shape of ``x``
    """
    return 2 * x


@op("made::thrice@1(x: F[*S], y: F[*S], *, times: int = 3) -> F[*S]")
def thrice(x: np.ndarray, y: np.ndarray, *, times: int) -> np.ndarray:
    """Multiply.

    Parameters
    ----------
    x : floating
    y

    Returns
    -------
    """
    return times * x + y


@op("made::bare@1(x: F[*S]) -> F[*S]")
def bare(x: np.ndarray) -> np.ndarray:
    return x


def test_kernels_are_named_after_their_plugin() -> None:
    assert looked("ids", made(kernels=[kernel("made/add/x")])) == Outcome("ids", "pass")
    plugin = made(kernels=[kernel("made/add/x"), kernel("other/add/x")])
    assert failed(looked("ids", plugin)) == "kernel other/add/x is to begin with made/"


def test_a_namespace_belongs_to_one_plugin() -> None:
    first, second = made(ops=[twice]), made("other", ops=[thrice])
    assert looked("ids", first) == Outcome("ids", "pass")
    assert "namespace 'made' are brought by other too" in failed(looked("ids", first, second))


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"bind": "nbx_registry.host.kernels.elementwise:ad"}, "did you mean 'add'"),
        ({"settings": "nbx_registry.nowhere:SPACE"}, "no module 'nbx_registry.nowhere'"),
        ({"when": ("Q > 4",)}, "no 'Q'"),
    ],
    ids=["bind", "settings", "condition"],
)
def test_references_and_conditions_are_looked_at_without_importing(changes: dict[str, Any], why: str) -> None:
    assert looked("references", made(kernels=[kernel("made/add/x")])) == Outcome("references", "pass")
    broken = made("broken", kernels=[kernel("broken/add/x", **changes)])
    assert why in failed(looked("references", made(kernels=[kernel("made/add/x")]), broken, name="broken"))
    # Of one plugin alone.
    assert looked("references", made(kernels=[kernel("made/add/x")]), broken) == Outcome("references", "pass")


def test_folders_that_are_not_there_are_told(tmp_path: Path) -> None:
    assert "nbx_register_waivers gives" in failed(looked("references", made(waivers=[tmp_path / "absent"])))


@pytest.mark.parametrize(
    ("files", "why"),
    [
        ({"acme/one.yml": "arch: a\nruntime: cuda\nevidence_class: c\n"}, ""),
        ({"acme/one.yml": "arch: a\nruntime: cuda\narch: b\n"}, "key 'arch' is given twice"),
        ({"acme/one.yml": "arch: a\n"}, "runtime and evidence_class are missing"),
        ({"schema.yml": "namespace: acme\nkeys: {zzz: {type: capability, meaning: m}}\n"}, "outside the namespace"),
        ({"acme/one.yaml": "arch: a\n"}, "not read; device files are"),
    ],
    ids=["sound", "twice", "missing", "schema", "name"],
)
def test_device_files_are_read(tmp_path: Path, files: dict[str, str], why: str) -> None:
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    outcome = looked("overlays", made(devices=[tmp_path]))
    if why:
        assert why in failed(outcome)
    else:
        assert outcome == Outcome("overlays", "pass")
    assert looked("overlays", made(kernels=[])) is None


def test_an_overlay_that_states_a_fact_again_is_refused(tmp_path: Path) -> None:
    (tmp_path / "nvidia").mkdir()
    path = tmp_path / "nvidia" / "h200-sxm.yml"
    path.write_text("facts:\n  multiprocessors: {value: 132, source: N1}\n")
    assert "fact 'multiprocessors' is given twice" in failed(looked("overlays", made(overlays=[tmp_path])))


# Cases, docs, waivers, advisories.


def test_an_op_without_cases_is_told_and_one_with_too_few(tmp_path: Path) -> None:
    assert failed(looked("cases", made(ops=[twice]))) == "op made::twice@1 has no conformance cases"
    text = 'op: made::twice@1\nworkloads:\n  - {name: one, from: here, tensors: {x: "float32[3]"}}\n'
    (tmp_path / "twice.yml").write_text(text)
    assert "made::twice@1: no case" in failed(looked("cases", made(ops=[twice], cases=[tmp_path])))
    (tmp_path / "gone.yml").write_text(text.replace("twice", "gone"))
    assert "cases for made::gone@1, which nobody registers" in failed(
        looked("cases", made(ops=[twice], cases=[tmp_path]))
    )
    assert looked("cases", made(kernels=[kernel("made/add/x")])) is None


def test_an_op_says_what_it_takes_and_gives_and_a_kernel_has_its_line() -> None:
    assert looked("docs", made(ops=[twice], kernels=[kernel("made/add/x")])) == Outcome("docs", "pass")
    found = failed(looked("docs", made(ops=[thrice])))
    assert found == (
        "op made::thrice@1 does not say of which dtype and shape y is, under Parameters; op made::thrice@1 does not "
        "say what times is, under Parameters; op made::thrice@1 does not say of which dtype and shape the result is, "
        "under Returns"
    )
    assert "has no docstring" in failed(looked("docs", made(ops=[bare])))
    assert failed(looked("docs", made(kernels=[kernel("made/add/x", doc=" ")]))) == "kernel made/add/x has no doc"


def test_files_of_waivers_and_advisories_are_read(tmp_path: Path) -> None:
    link = "https://example.com"
    about = {"id": "W", "kernel": "made/add/x", "case": "*", "check": "numbers", "device": "*"}
    waiver = {**about, "reason": "r", "link": link, "expires": "2999-01-01"}
    (tmp_path / "waivers").mkdir()
    (tmp_path / "waivers" / "w.yml").write_text(json.dumps({"waivers": [waiver]}))
    plugin = made(waivers=[tmp_path / "waivers"])
    assert looked("waivers", plugin) == Outcome("waivers", "pass")
    (tmp_path / "waivers" / "w.yml").write_text(json.dumps({"waivers": [waiver, waiver]}))
    assert "id 'W' is given twice" in failed(looked("waivers", plugin))

    (tmp_path / "advisories").mkdir()
    advisory = {"kernel": "made/add/*", "when": "x1.size > 4", "reason": "r", "link": link}
    (tmp_path / "advisories" / "a.yml").write_text(json.dumps({"advisories": [advisory]}))
    plugin = made(kernels=[kernel("made/add/x")], advisories=[tmp_path / "advisories"])
    assert looked("advisories", plugin) == Outcome("advisories", "pass")
    for change, why in (({"when": "Q > 4"}, "no 'Q'"), ({"versions": "new"}, "no version specifier")):
        (tmp_path / "advisories" / "a.yml").write_text(json.dumps({"advisories": [{**advisory, **change}]}))
        assert why in failed(looked("advisories", plugin))
    assert looked("advisories", made(kernels=[])) is None


def test_bundles_are_about_kernels_of_their_own_plugin(tmp_path: Path) -> None:
    assert looked("evidence", made()) is None
    (tmp_path / "bad.json").write_text("garbage")
    assert "bad.json:1: not JSON" in failed(looked("evidence", made(evidence=[tmp_path])))
    (tmp_path / "bad.json").write_bytes((HOST_EVIDENCE / "host-cpu.json").read_bytes())
    registry = nbx.load(plugins=[made(evidence=[tmp_path])])
    outcome = PLUGIN_CHECKS["evidence"](Subject(registry.plugins["made"], registry, CaseTable([])))
    assert "bad.json is about kernels of nbx-host" in failed(outcome)


# In a run.


def test_a_kernel_without_code_is_named_with_the_way_out(probe: Probe) -> None:
    probe.write("plugin.py", PLUGIN.format(imports="").replace("kernels:bind", "kernels:lost"))
    probe.forget()
    with pytest.raises(FileError, match=r"kernel nbx-probe/add/x has no code: .*NBX_BLOCK=nbx-probe"):
        _ = Session(Options(device="cpu", plugins=("nbx-probe",))).items


def chosen(**options: Any) -> set[str]:
    return {item.plugin for item in plugin_checks.items(Session(Options(device="cpu", **options)))}


def test_plugins_are_looked_at_whose_kernels_are_tried_once() -> None:
    assert chosen(plugins=("nbx-host",)) == {"nbx-host"}
    assert chosen(ops=("sqrt",)) == set()
    assert chosen(ops=("sqrt",), plugins=("nbx-host",)) == {"nbx-host"}
    assert chosen(kernels=("nbx-host/sqrt/numpy",)) == set()
    assert chosen(plugins=("nbx-host",), shard=(1, 3)) == {"nbx-host"}
    assert chosen(plugins=("nbx-host",), shard=(2, 3)) == set()


def test_what_was_found_is_in_the_bundle_and_in_the_lines_behind_the_table() -> None:
    session = Session(Options(device="cpu", kernels=("nbx-host/sqrt/numpy",)))
    assert PluginItem("nbx-host", "ids").id == "plugin/nbx-host/ids"
    assert plugin_checks.look(session, PluginItem("nbx-host", "ids")) == Outcome("ids", "pass")
    session.outcomes["nbx-host"] = {"ids": Outcome("ids", "pass"), "docs": Outcome("docs", "fail", "no doc")}
    version = session.registry.plugins["nbx-host"].version
    assert plugin_checks.to_dict(session) == {
        "nbx-host": {
            "distribution": "nbx-registry",
            "version": version,
            "verdict": "fail",
            "checks": [
                {"check": "docs", "verdict": "fail", "reason": "no doc"},
                {"check": "ids", "verdict": "pass"},
            ],
        }
    }
    assert list(plugins(session)) == [f"plugin nbx-host {version}: failed: docs"]


IN_PYTEST = """
from nbx_conformance import suite

test_conformance = suite("nbx-probe")
"""


@pytest.fixture
def under(probe: Probe, tmp_path: Path) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Give a function that runs the suite in pytest on the distribution."""

    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        folder = tmp_path / "suite"
        folder.mkdir(exist_ok=True)
        (folder / "test_conformance.py").write_text(IN_PYTEST, "utf-8")
        command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-W", "error", *arguments, "."]
        environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
        return subprocess.run(
            command, cwd=folder, capture_output=True, text=True, check=False, timeout=300, env=environment
        )

    return run


@pytest.mark.parametrize("spread", [(), ("-n", "2")], ids=["one-process", "two-processes"])
def test_they_are_tests_of_pytest_and_fail_the_run(
    probe: Probe, under: Callable[..., subprocess.CompletedProcess[str]], tmp_path: Path, spread: tuple[str, ...]
) -> None:
    probe.write("kernels.py", KERNELS)
    probe.write("more.py", "import torch\n")
    out = tmp_path / "bundle.json"
    done = under("-v", "-k", "plugin or N63", f"--nbx-out={out}", *spread)
    assert done.returncode == 1, done.stdout + done.stderr
    assert "plugin/nbx-probe/light_import]" in done.stdout
    assert f"fail: {probe.package / 'more.py'}:1 imports torch" in done.stdout
    assert "again: nbx conformance run --device cpu --plugin nbx-probe -k plugin/nbx-probe/no_torch" in done.stdout
    assert "plugin nbx-probe 1.2: failed: no_torch" in done.stdout
    said = json.loads(out.read_bytes())["plugins"]["nbx-probe"]
    assert (said["distribution"], said["version"], said["verdict"]) == ("nbx-probe", "1.2", "fail")
    verdicts = {check["check"]: check["verdict"] for check in said["checks"]}
    assert verdicts == {"docs": "pass", "ids": "pass", "light_import": "pass", "no_torch": "fail", "references": "pass"}


KERNELS = """
import numpy as np
from nbx_registry.launch import Launch


def bind(context):
    def run(x1, x2, out):
        np.add(x1, x2, out=out, casting="same_kind")

    return Launch(function=run, args=context.signature.names)
"""
