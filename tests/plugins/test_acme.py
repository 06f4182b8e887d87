"""A third party's plugin: all that it brings works, and nothing in the core knows of it."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import textwrap
import zipfile
from pathlib import Path

import numpy as np
import pytest

import nbx_acme.plugin
import nbx_registry as nbx
from nbx_conformance.cases import CaseTable
from nbx_conformance.lint import lint
from nbx_registry import dtypes
from nbx_registry.errors import MissingFact, OutOfMemory, PluginFault, Refused, SignatureError
from nbx_registry.registry import Registry, set_default
from nbx_registry.runtime import Runtime

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def registry():
    made = nbx.load(plugins=[nbx_acme.plugin], require="any")
    before = set_default(made)
    yield made
    set_default(before)


def on_device(array) -> nbx.Tensor:
    return nbx.asarray(array, device="acme:0")


def chosen(registry: Registry, *request: object, **attributes: object) -> str | None:
    return registry.decide(*request, **attributes).chosen


def test_it_is_active_and_has_brought_one_of_everything(registry):
    plugin = registry.plugins["nbx-acme"]
    assert plugin.state == "active", plugin.reason
    assert [op.id for op in plugin.ops] == ["acme::scale_shift@1"]
    assert [dtype.name for dtype in plugin.dtypes] == ["acme_fixed8"]
    assert len(plugin.kernels) == 5
    assert "acme/one" in registry.devices
    assert isinstance(registry.runtime("acme"), Runtime)
    assert registry.diagnostics() == []


def test_the_cases_of_its_op_are_of_every_kind_that_applies(registry):
    ops = [op for op in registry.ops.values() if op.namespace == "acme"]
    assert lint(CaseTable(registry.plugins["nbx-acme"].cases), ops) == []


def test_no_file_of_the_core_names_it():
    core = [*(ROOT / "nbx_registry").rglob("*"), *(ROOT / "devices/nbx_devices").rglob("*")]
    # What nbx new-plugin writes is no part of the core: nothing imports it.
    core = [path for path in core if "scaffold" not in path.parts]
    naming = [path for path in core if path.suffix in (".py", ".yml", ".json") and b"nbx_acme" in path.read_bytes()]
    assert naming == []


def test_its_live_device_is_its_product_with_a_fact_of_its_own(registry):
    device, live = registry.device("acme:0")
    assert device is not None
    assert (device.id, live.name) == ("acme/one", "Acme One")
    assert device.fact("acme.scratchpad_bytes") == 4096
    assert device.source("acme.scratchpad_bytes") == "ACME-1"
    assert registry.devices.check() == ()
    with pytest.raises(MissingFact, match=r"host/cpu states no 'acme.scratchpad_bytes' \(bytes\)"):
        registry.devices["host/cpu"].fact("acme.scratchpad_bytes")


@pytest.mark.parametrize(("elements", "kernel"), [(1, "scratchpad"), (512, "scratchpad"), (513, "plain")])
def test_its_fact_decides_between_its_kernels(registry, elements, kernel):
    spec = f"float32[{elements}]"
    assert chosen(registry, "add", spec, spec, device="acme/one") == f"nbx-acme/add/{kernel}"
    x = on_device(np.arange(elements, dtype=np.float32))
    assert chosen(registry, "add", x, x) == f"nbx-acme/add/{kernel}"


def test_the_refusal_tells_the_clause_with_its_values(registry):
    decision = registry.decide("add", "float32[513]", "float32[513]", device="acme/one")
    refused = decision.candidate("nbx-acme/add/scratchpad")
    assert refused.code == "DEVICE"
    assert refused.reason.startswith("x1.nbytes + x2.nbytes <= device.acme.scratchpad_bytes")
    assert "x1.nbytes = 2052" in refused.reason
    assert "device.acme.scratchpad_bytes = 4096" in refused.reason


def test_kernels_of_others_do_not_run_there_and_its_own_not_elsewhere(registry):
    there = registry.decide("add", "float32[3]", "float32[3]", device="acme/one")
    assert {c.code for c in there.candidates if not c.kernel.startswith("nbx-acme/")} == {"RUNTIME"}
    here = registry.decide("add", "float32[3]", "float32[3]", device="cpu")
    assert {c.code for c in here.candidates if c.kernel.startswith("nbx-acme/")} == {"RUNTIME"}


@pytest.mark.parametrize("dtype", [np.float32, np.int32])
def test_add_computes_broadcasts_and_takes_scalars(registry, dtype):
    a, b = np.arange(63, dtype=dtype).reshape(9, 7), np.arange(7, dtype=dtype)
    result = registry.call("add", on_device(a), on_device(b))
    assert result.device == "acme:0"
    assert np.array_equal(result.numpy(), a + b)
    assert np.array_equal(registry.call("add", on_device(a), 3).numpy(), a + 3)
    out = nbx.empty((9, 7), dtype.__name__, device="acme:0")
    assert registry.call("add", on_device(a), on_device(b), out=out) is out
    assert np.array_equal(out.numpy(), a + b)


@pytest.mark.parametrize("biased", [False, True])
def test_linear_is_made_of_its_matmul_and_its_add(registry, biased):
    generator = np.random.default_rng(0)
    x, w = generator.standard_normal((2, 5, 7), np.float32), generator.standard_normal((3, 7), np.float32)
    bias = generator.standard_normal(3, np.float32) if biased else None
    operands = [on_device(x), on_device(w), *([on_device(bias)] if biased else [])]
    expected = x @ w.T + (bias if biased else 0)
    assert np.allclose(registry.call("linear", *operands).numpy(), expected, rtol=1e-5, atol=1e-6)
    bound = registry.bind("linear", *operands)
    assert bound.kernel == "nbx-acme/linear/parts"
    assert len(bound.launches) == 1 + biased
    decision = registry.decide("linear", *operands)
    parts = "nbx-acme/matmul/plain" + (", nbx-acme/add/scratchpad" if biased else "")
    assert f"made of {parts}" in decision.candidate("nbx-acme/linear/parts").rank


def test_a_composite_is_refused_with_what_its_part_lacks(registry):
    decision = registry.decide("linear", "float16[2, 5]", "float16[3, 5]", device="acme/one")
    assert decision.chosen is None
    refused = decision.candidate("nbx-acme/linear/parts")
    assert refused.code == "PART_REFUSED"
    assert "x1.dtype == float32 (x1.dtype = float16)" in refused.reason
    activated = registry.decide("linear", "float32[2, 5]", "float32[3, 5]", activation="relu", device="acme/one")
    assert activated.candidate("nbx-acme/linear/parts").code == "ATTRIBUTE"


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int16", "int32", "int64", "uint64"])
def test_its_op_is_called_by_name_and_agrees_with_its_oracle(registry, dtype):
    limits = np.iinfo(dtype)
    x = np.random.default_rng(1).integers(limits.min, limits.max, (3, 43), dtype, endpoint=True)
    signature, _ = registry.signature("acme::scale_shift", x, scale=-3, shift=77)
    (expected,) = signature.op.run_oracle(signature, [x])
    y = nbx.ops.acme.scale_shift(on_device(x), scale=-3, shift=77)
    assert np.array_equal(y.numpy(), expected)
    assert expected.min() == limits.min, "the case saturates"


def test_its_op_is_documented_priced_and_checked_like_any(registry):
    assert "saturating" in nbx.ops.acme.scale_shift.__doc__
    price = registry.price("acme::scale_shift", "int8[1000]", scale=2, device="acme/one")
    assert (price.flops, price.bytes_read, price.bytes_written) == (2000, 1000, 1000)
    floor = registry.price("add", "float32[1000]", "float32[1000]", device="acme/one").floor_s
    assert floor == pytest.approx(3 * 4000 / 5.0e9)
    with pytest.raises(SignatureError, match=r"-1000 <= scale <= 1000 \(scale = 1001\)"):
        registry.call("acme::scale_shift", on_device(np.zeros(3, np.int8)), scale=1001)
    with pytest.raises(SignatureError, match=r"shfit.*did you mean 'shift'"):
        registry.call("acme::scale_shift", on_device(np.zeros(3, np.int8)), shfit=1)
    with pytest.raises(Refused, match=r"LAYOUT: x.contiguous"):
        registry.call("acme::scale_shift", on_device(np.zeros((4, 6), np.int8))[:, ::2])


def test_its_dtype_is_a_dtype_like_any(registry):
    fixed = dtypes.get("acme_fixed8")
    assert (fixed.bits, fixed.kind) == (8, "int")
    assert chosen(registry, "acme::scale_shift", "acme_fixed8[100]", device="acme/one") is not None
    x = nbx.empty(63, "acme_fixed8", device="acme:0")
    sixteenths = np.arange(-31, 32, dtype=np.int8)
    x.runtime.copy_in(0, x.address, sixteenths)
    y = nbx.ops.acme.scale_shift(x, scale=8)
    assert y.dtype is fixed
    assert np.array_equal(y.numpy(), np.clip(sixteenths.astype(int) * 8, -128, 127))
    decision = registry.decide("add", "acme_fixed8[4]", "acme_fixed8[4]", device="acme/one")
    assert {decision.candidate(f"nbx-acme/add/{k}").code for k in ("plain", "scratchpad")} == {"DTYPE"}


def test_what_was_never_checked_does_not_run_unless_someone_says_so(registry):
    x = on_device(np.zeros(3, np.float32))
    with pytest.raises(Refused) as raised:
        registry.call("add", x, x, require="checked")
    candidate = raised.value.decision.candidate("nbx-acme/add/plain")
    assert candidate.code == "EVIDENCE"
    assert "nbx conformance run --device acme:0" in candidate.would_run_if
    blocked = nbx.load(block=["nbx-acme"], plugins=[nbx_acme.plugin])
    assert blocked.plugins["nbx-acme"].state == "blocked"
    assert "acme/one" not in blocked.devices


def test_a_binder_that_raises_is_its_plugins_fault(registry, monkeypatch):
    from nbx_acme.kernels import scale_shift

    monkeypatch.setattr(scale_shift, "np", None)
    with pytest.raises(PluginFault, match=r"nbx-acme/acme::scale_shift/plain.*AttributeError"):
        registry.call("acme::scale_shift", on_device(np.zeros(5, np.int16)), scale=5)


def test_its_memory_runs_out_with_figures_and_goes_on(registry):
    with pytest.raises(OutOfMemory, match="bytes requested") as raised:
        nbx.empty(1 << 30, device="acme:0")
    assert raised.value.requested == 4 << 30
    assert on_device([1.0, 2.0]).numpy().tolist() == [1.0, 2.0]


def test_a_stream_a_bound_call_and_a_graph(registry):
    runtime = registry.runtime("acme")
    x, out = on_device(np.arange(5, dtype=np.float32)), nbx.empty(5, device="acme:0")
    with nbx.stream(runtime.stream(0)) as stream:
        bound = registry.bind("add", x, x, out=out)
        bound()
        assert out.numpy().tolist() == [0, 2, 4, 6, 8]
        with runtime.capture(0, stream) as capture:
            bound()
        runtime.copy_in(0, x.address, np.ones(5, np.float32))
        capture.graph.replay(stream)
    assert out.numpy().tolist() == [2] * 5


@pytest.fixture(scope="module")
def site(acme_folder, tmp_path_factory) -> Path:
    """A folder with the built wheel in it, as an installer leaves it: the package, and the metadata beside."""
    built, site = tmp_path_factory.mktemp("wheel"), tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(built)]
    done = subprocess.run(command, cwd=acme_folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    (wheel,) = built.glob("*.whl")
    zipfile.ZipFile(wheel).extractall(site)
    return site


def run_installed(site: Path, script: str) -> str:
    environment = {**os.environ, "PYTHONPATH": str(site)}
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", textwrap.dedent(script)],
        capture_output=True,
        text=True,
        env=environment,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_installed_it_is_found_by_its_entry_point_and_loads_no_kernel_before_one_runs(site):
    output = run_installed(
        site,
        """
        import sys
        import numpy as np
        import nbx_registry as nbx
        plugin = nbx.load().plugins["nbx-acme"]
        print(plugin.state, plugin.distribution, plugin.version)
        print(sorted(name for name in sys.modules if name.startswith(("nbx_acme.kernels", "nbx_acme.runtime"))))
        x = nbx.asarray(np.arange(4, dtype=np.int8), device="acme:0")
        print(nbx.ops.acme.scale_shift(x, scale=2, require="any").numpy().tolist())
        """,
    )
    assert output.splitlines() == ["active nbx-acme 0.1.0", "[]", "[0, 2, 4, 6]"]


def test_the_command_line_knows_what_is_installed(site):
    output = run_installed(
        site,
        """
        from nbx_registry.cli import main
        for arguments in (["devices", "acme/one"], ["ops", "acme::scale_shift"], ["plugins"]):
            try:
                main(arguments)
            except SystemExit as end:
                assert not end.code, (arguments, end.code)
        """,
    )
    assert "acme.scratchpad_bytes" in output
    assert "scale_shift" in output
    assert re.search(r"nbx-acme\s.*0\.1\.0", output)


ASK = """
    import nbx_registry as nbx
    d = nbx.load().decide("acme::scale_shift", "int8[100]", device="acme/one", require="checked_here")
    candidate = d.candidate("nbx-acme/acme::scale_shift/plain")
    print(d.chosen, candidate.evidence.level, bool(candidate.evidence.stale))
    """


def test_the_vendor_proves_its_kernel_ships_the_bundle_and_the_gate_opens(site, tmp_path):
    kernel = "nbx-acme/acme::scale_shift/plain"
    assert run_installed(site, ASK).split() == ["None", "none", "False"]
    installed = tmp_path / "site"
    shutil.copytree(site, installed)
    bundle = installed / "nbx_acme/evidence/one.json"
    command = [sys.executable, "-c", "from nbx_registry.cli import main; main()", "conformance", "run"]
    done = subprocess.run(
        [*command, "--device", "acme:0", "--kernel", kernel, "--out", str(bundle)],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": str(installed)},
        cwd=tmp_path,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert run_installed(installed, ASK).split() == [kernel, "here", "False"]

    source = installed / "nbx_acme/kernels/scale_shift.py"
    code = source.read_text("utf-8")
    source.write_text(code.replace("    def run(", "    # Only a comment.\n    def run("), "utf-8")
    assert run_installed(installed, ASK).split() == [kernel, "here", "False"]
    source.write_text(code.replace("* scale + shift", "* scale + shift + 0"), "utf-8")
    assert run_installed(installed, ASK).split() == ["None", "none", "True"]
