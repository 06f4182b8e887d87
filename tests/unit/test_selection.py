"""Selection: the order of the candidates, the codes of the refused, faults, composites."""

from __future__ import annotations

import json
import pickle
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from making import add, host_kernel, made, plugin

import nbx_registry as nbx
from nbx_registry.errors import MissingFact
from nbx_registry.kernel import Backend, Kernel
from nbx_registry.space import Space

SPECS = ("float32[63, 127]", "float32[127]")


def decide(*kernels: Kernel, require: str = "any", specs: tuple[str, ...] = SPECS, **keywords: Any) -> nbx.Decision:
    reg = nbx.load(plugins=[made("made", *kernels)], block=[k for k in nbx.load().kernels if "/add/" in k])
    return reg.decide("add", *specs, require=require, **keywords)


def only(decision: nbx.Decision) -> list[nbx.Candidate]:
    return [c for c in decision.candidates if c.kernel.startswith("made/")]


@pytest.mark.parametrize(
    ("when", "code", "reason"),
    [
        ("x1.dtype in (float16, bfloat16)", "DTYPE", "float32"),
        ("x1.rank == 3", "SHAPE", "x1.rank = 2"),
        ("out.size <= 1000", "SHAPE", "out.size = 8001"),
        ("x1.align >= 64", "LAYOUT", "x1.align = 16"),
        ("device.arch == 'sm_90'", "ARCH", "sm_90"),
        ("device.matrix_unit.m8n8k4", "FACT_MISSING", "matrix_unit.m8n8k4"),
    ],
)
def test_a_failed_clause_has_its_code_and_its_values(when: str, code: str, reason: str) -> None:
    decision = decide(host_kernel("made/add/x", add, when=(when,)))
    (candidate,) = only(decision)
    assert decision.chosen is None
    assert candidate.code == code
    assert reason in candidate.reason
    assert candidate.would_run_if


def test_what_was_never_checked_is_refused_last_of_all() -> None:
    unchecked = host_kernel("made/add/unchecked", add)
    wrong = host_kernel("made/add/wrong", add, when=("x1.dtype is float16" if False else "x1.dtype == float16",))
    codes = {c.kernel: c.code for c in only(decide(unchecked, wrong, require="checked"))}
    assert codes == {"made/add/unchecked": "EVIDENCE", "made/add/wrong": "DTYPE"}


def test_the_more_specific_comes_before_the_preferred_before_the_id() -> None:
    kernels = [
        host_kernel("made/add/a", add),
        host_kernel("made/add/b", add, preference=5),
        host_kernel("made/add/c", add, when=("device.runtime == 'host'", "device.id == 'host/cpu'")),
    ]
    accepted = [c.kernel for c in only(decide(*kernels)) if c.accepted]
    assert accepted == ["made/add/c", "made/add/b", "made/add/a"]


def test_a_pin_gets_its_kernel_or_its_refusal() -> None:
    small = host_kernel("made/add/small", add, when=("out.size <= 10",))
    large = host_kernel("made/add/large", add, preference=9)
    decision = decide(small, large, kernel="made/add/small")
    assert decision.chosen is None
    assert decision.candidate("made/add/small").code == "SHAPE"
    assert decision.candidate("made/add/large").code == "NOT_PINNED"


def test_a_pin_of_another_op_or_of_none_is_named() -> None:
    reg = nbx.load()
    with pytest.raises(nbx.SignatureError, match="implements multiply@1"):
        reg.decide("add", *SPECS, kernel="nbx-host/multiply/numpy")
    with pytest.raises(nbx.UnknownName, match="did you mean 'nbx-host/multiply/numpy'"):
        reg.decide("add", *SPECS, kernel="nbx-host/multipy/numpy")


def test_another_runtime_is_said_before_conditions_are_looked_at() -> None:
    decision = decide(host_kernel("made/add/x", add, when=("x1.rank == 9",)), device="nvidia/h200-sxm")
    assert only(decision)[0].code == "RUNTIME"


def test_a_missing_runtime_is_a_refusal_with_a_way_out() -> None:
    decision = nbx.load().decide("add", *SPECS, device="tpu:0")
    assert decision.chosen is None
    assert {c.code for c in decision.candidates} <= {"RUNTIME", "RUNTIME_MISSING"}


def test_a_missing_toolkit_is_a_refusal_on_a_live_device_and_none_from_a_file() -> None:
    backend = Backend(name="lacking", modules=("no_such_toolkit",), install="pip install no-such-toolkit")
    kernel = host_kernel("lacking/add/x", add, backend="lacking")
    reg = nbx.load(plugins=[plugin("lacking", backends=[backend], kernels=[kernel])])
    here = reg.decide("add", *SPECS, require="any").candidate("lacking/add/x")
    assert here.code == "TOOLKIT_MISSING"
    assert here.would_run_if == "pip install no-such-toolkit"
    assert reg.decide("add", *SPECS, require="any", device="host/cpu").candidate("lacking/add/x").accepted


def test_a_condition_over_an_unknown_name_is_a_fault_of_the_plugin() -> None:
    decision = decide(host_kernel("made/add/x", add, when=("Q <= 4",)), host_kernel("made/add/y", add))
    assert decision.chosen is None
    assert "'Q'" in decision.faults[0].message
    assert decision.faults[0].plugin == "made"


def test_a_condition_that_raises_is_a_fault_and_never_skipped() -> None:
    bad = host_kernel("made/add/x", add, when=("out.size // (x1.rank - 2) == 1",), preference=-9)
    reg = nbx.load(plugins=[made("made", bad, host_kernel("made/add/y", add))])
    decision = reg.decide("add", *SPECS, require="any")
    assert decision.faults
    assert "Traceback" in decision.faults[0].traceback or decision.faults[0].traceback
    x = np.ones((63, 127), np.float32)
    with pytest.raises(nbx.PluginFault, match="made/add/x"):
        reg.call("add", x, x, require="any")
    blocked = nbx.load(plugins=[made("made", bad, host_kernel("made/add/y", add))], block=["made/add/x"])
    assert blocked.decide("add", *SPECS, require="any").candidate("made/add/x").code == "BLOCKED"
    np.testing.assert_array_equal(blocked.call("add", x, x, require="any"), x + x)


def test_a_binder_that_raises_is_a_fault() -> None:
    def bind(context: Any) -> Any:
        raise KeyError("by design")

    reg = nbx.load(plugins=[made("made", host_kernel("made/add/x", add, bind=bind))])
    x = np.ones(3, np.float32)
    with pytest.raises(nbx.PluginFault, match="KeyError: 'by design'"):
        reg.call("add", x, x, require="any", kernel="made/add/x")


def test_a_missing_fact_is_no_default() -> None:
    with pytest.raises(MissingFact, match=r"memory\.bandwith.*memory\.bandwidth_bytes_per_s"):
        nbx.load().devices["nvidia/h200-sxm"].fact("memory.bandwith_bytes_per_s")


def test_decide_and_call_choose_the_same() -> None:
    reg = nbx.load()
    x = np.ones((3, 5), np.float32)
    decision = reg.decide("add", x, x, require="any")
    bound = reg.bind("add", x, x, require="any")
    assert bound.kernel == decision.chosen is not None


@pytest.mark.parametrize("require", ["chekced", "", "Checked"])
def test_an_unknown_policy_is_named(require: str) -> None:
    with pytest.raises(nbx.SignatureError, match="require="):
        nbx.load().decide("add", *SPECS, require=require)


def linear_of_parts(trace: Any, x: Any, w: Any, bias: Any, *, activation: Any) -> Any:
    return trace.call("add", trace.call("matmul", x, trace.permute(w, (1, 0))), bias)


def composite(**changes: Any) -> Kernel:
    return Kernel(
        **{
            "id": "made/linear/parts",
            "op": "linear@1",
            "backend": "composite",
            "runtimes": (),
            "bind": linear_of_parts,
            "parts": ("matmul@1", "add@1"),
            "when": ("bias.given", "activation == None"),
            **changes,
        }
    )


def test_a_composite_runs_its_parts_and_shows_them() -> None:
    reg = nbx.load(plugins=[made("made", composite())])
    rng = np.random.default_rng(3)
    x, w, bias = (rng.standard_normal(shape, dtype=np.float32) for shape in ((3, 5, 7), (4, 7), (4,)))
    y = reg.call("linear", x, w, bias, kernel="made/linear/parts", require="any")
    np.testing.assert_allclose(y, x @ w.T + bias, rtol=1e-5)
    candidate = reg.decide("linear", x, w, bias, require="any").candidate("made/linear/parts")
    assert "nbx-host/matmul/numpy" in " ".join(candidate.rank)
    assert candidate.evidence.level == reg.decide("matmul", x, w.T).candidates[0].evidence.level


def test_a_composite_whose_part_has_no_kernel_names_the_part() -> None:
    reg = nbx.load(plugins=[made("made", composite())], block=[k for k in nbx.load().kernels if "/matmul/" in k])
    decision = reg.decide("linear", "float32[3, 7]", "float32[4, 7]", "float32[4]", require="any")
    candidate = decision.candidate("made/linear/parts")
    assert candidate.code == "PART_REFUSED"
    assert "matmul" in candidate.reason


def test_a_composite_that_calls_what_it_does_not_declare_is_a_fault() -> None:
    reg = nbx.load(plugins=[made("made", composite(parts=("matmul@1",)))])
    decision = reg.decide("linear", "float32[3, 7]", "float32[4, 7]", "float32[4]", require="any")
    assert "add@1" in decision.faults[0].message


# Tuned settings.


def tuned(
    folder: Path, *entries: tuple[str, float], rule: str = "out.size", device: str = "host/cpu", runtime: str = "host"
) -> nbx.Registry:
    """Return a registry of two kernels of add, timed on one key as said: the id and seconds of each entry."""

    spaces: Any = ModuleType("nbx_selection_made")
    spaces.SETTINGS = Space(parameters={"width": (4, 8)})
    sys.modules.setdefault(spaces.__name__, spaces)

    def entry(kernel: str, seconds: float) -> dict[str, Any]:
        proof = {"date": "2026-11-30", "toolkit": "made 1", "deviation": 0, "bound": 1, "times": {"tuned_s": seconds}}
        return {"kernel": kernel, "key": {"out.size": 63 * 127}, "settings": {"width": 8, "stages": 2}, "proof": proof}

    document = {"format": 1, "device": device, "entries": [entry(*one) for one in entries]}
    (folder / "made.json").write_text(json.dumps(document))
    facts: dict[str, Any] = {
        "key": (rule,),
        "runtimes": (runtime,),
        "settings": "nbx_selection_made:SETTINGS",
        "defaults": {"width": 4, "stages": 2},
    }
    kernels = [host_kernel("made/add/a", add, preference=1, **facts), host_kernel("made/add/b", add, **facts)]
    items = {"backends": [Backend(name="made")], "kernels": kernels, "settings": [folder]}
    reg = nbx.load(plugins=[plugin("made", **items)], block=["nbx-host/add/numpy"])
    # What was checked is another matter: here, all of it.
    reg._selector.evidence = lambda kernel, target: nbx.Evidence("here")
    return reg


def test_of_two_timed_on_the_key_the_faster_runs(tmp_path: Path) -> None:
    reg = tuned(tmp_path, ("made/add/a", 2e-6), ("made/add/b", 1e-6))
    decision = reg.decide("add", *SPECS)
    assert [c.kernel for c in decision.candidates if c.accepted] == ["made/add/b", "made/add/a"]
    assert decision.candidates[0].rank == ("1e-06 s on this key",)
    assert decision.candidates[0].evidence.tuned
    assert "checked here, tuned" in str(decision)
    # Another key was timed by nobody.
    assert reg.decide("add", "float32[3]", "float32[3]").chosen == "made/add/a"


def test_one_timed_alone_gives_no_precedence_but_its_settings_are_used(tmp_path: Path) -> None:
    x = np.ones((63, 127), np.float32)
    assert tuned(tmp_path, ("made/add/b", 1e-9)).bind("add", x, x).settings == {"width": 4, "stages": 2}
    bound = tuned(tmp_path, ("made/add/a", 1.0)).bind("add", x, x)
    assert bound.kernel == "made/add/a"
    assert bound.settings == {"width": 8, "stages": 2}
    assert bound.evidence.tuned


@pytest.mark.parametrize(
    ("tuned_on", "asked", "served"),
    [
        ("nvidia/v100-sxm2-16gb", "nvidia/v100-sxm2-32gb", True),
        ("nvidia/v100-sxm2-32gb", "nvidia/v100-sxm2-16gb", True),
        ("nvidia/h200-sxm", "nvidia/h200-sxm", True),
        ("nvidia/h200-sxm", "nvidia/h100-sxm", False),
    ],
)
def test_settings_serve_a_product_that_takes_them_from_another(
    tmp_path: Path, tuned_on: str, asked: str, served: bool
) -> None:
    reg = tuned(tmp_path, ("made/add/b", 1e-6), device=tuned_on, runtime="cuda")
    decision = reg.decide("add", *SPECS, device=asked, require="tuned")
    assert decision.chosen == ("made/add/b" if served else None)


def test_tuned_is_required_of_the_key(tmp_path: Path) -> None:
    reg = tuned(tmp_path, ("made/add/b", 1e-6))
    decision = reg.decide("add", *SPECS, require="tuned")
    assert decision.chosen == "made/add/b"
    refused = decision.candidate("made/add/a")
    assert refused.code == "KEY_NOT_TUNED"
    assert "{'out.size': 8001}" in refused.reason
    assert reg.decide("add", "float32[3]", "float32[3]", require="tuned").chosen is None
    x = np.ones((63, 127), np.float32)
    assert reg.bind("add", x, x, require="tuned").kernel == "made/add/b"


def test_a_key_that_raises_is_a_fault_of_its_plugin(tmp_path: Path) -> None:
    reg = tuned(tmp_path, ("made/add/a", 1e-6), rule="out.size // (x1.rank - 2)")
    decision = reg.decide("add", *SPECS)
    assert decision.chosen is None
    assert "the key" in decision.faults[0].message
    x = np.ones((63, 127), np.float32)
    with pytest.raises(nbx.PluginFault, match="made/add/a"):
        reg.call("add", x, x)


def test_a_fault_of_a_composite_that_could_not_win_is_told_and_stops_nothing(tmp_path: Path) -> None:
    def broken(trace: Any, x1: Any, x2: Any) -> Any:
        raise KeyError("by design")

    parts = Kernel(
        id="made/add/parts", op="add@1", backend="composite", runtimes=(), bind=broken, parts=("multiply@1",)
    )
    reg = nbx.load(plugins=[made("made", parts, host_kernel("made/add/a", add, preference=1))])
    reg._selector.evidence = lambda kernel, target: nbx.Evidence("here")
    decision = reg.decide("add", *SPECS, require="any")
    assert decision.chosen == "made/add/a"
    assert decision.faults[0].kernel == "made/add/parts"
    x = np.ones((63, 127), np.float32)
    assert reg.bind("add", x, x, require="any").kernel == "made/add/a"
    # Pinned it is the one that was asked for.
    with pytest.raises(nbx.PluginFault, match="KeyError: 'by design'"):
        reg.call("add", x, x, require="any", kernel="made/add/parts")


def test_every_clause_that_fails_is_told_in_what_would_have_to_be_otherwise() -> None:
    when = ("x1.dtype == float16", "x1.rank == 2", "x1.rank == 3 or x1.size < 9", "out.size <= 1000")
    backend = Backend(name="lacking", modules=("no_such_toolkit",), install="pip install no-such-toolkit")
    lacking = host_kernel("lacking/add/x", add, backend="lacking", when=when)
    reg = nbx.load(plugins=[plugin("lacking", backends=[backend], kernels=[lacking])])
    candidate = reg.decide("add", *SPECS, require="checked").candidate("lacking/add/x")
    assert candidate.code == "DTYPE"
    clauses = "x1.dtype == float16, and (x1.rank == 3 or x1.size < 9), and out.size <= 1000, and pip install"
    assert candidate.would_run_if.startswith(clauses)
    assert candidate.would_run_if.endswith("--kernel lacking/add/x passes, or require='any'")


def test_a_clause_that_raises_behind_another_is_passed_over() -> None:
    bad = host_kernel("made/add/x", add, when=("x1.rank == 3", "1 // (x1.rank - 2) == 1", "out.size <= 10"))
    (candidate,) = only(decide(bad))
    assert candidate.would_run_if == "x1.rank == 3, and out.size <= 10"


def test_on_another_runtime_what_is_no_matter_of_the_device_is_told_too() -> None:
    kernel = host_kernel("made/add/x", add, runtimes=("tpu",), when=("x1.rank == 9", "device.id == 'a/b'"))
    (candidate,) = only(decide(kernel))
    assert (candidate.code, candidate.would_run_if) == (
        "RUNTIME",
        "the tensors were on a device of tpu, and x1.rank == 9",
    )


@pytest.mark.parametrize(
    ("changes", "more"),
    [
        ({}, " (nothing else stands in its way)"),
        ({"when": ("x1.rank == 3",)}, ", and x1.rank == 3"),
        ({"when": ("x1.rank == 3", "x1.size == 1")}, ", and x1.rank == 3, and x1.size == 1"),
        ({"when": ("out.size // (x1.rank - 2) == 1",)}, ", and made is mended"),
        ({"when": ("Q == 1",)}, ", and made is mended"),
    ],
)
def test_a_kernel_that_was_not_asked_for_tells_whether_it_would_have_been_accepted(
    changes: dict[str, Any], more: str
) -> None:
    kernels = [host_kernel("made/add/other", add, **changes), host_kernel("made/add/pinned", add)]
    pinned = decide(*kernels, kernel="made/add/pinned").candidate("made/add/other")
    assert (pinned.code, pinned.would_run_if) == ("NOT_PINNED", f"kernel='made/add/other'{more}")
    reg = nbx.load(plugins=[made("made", *kernels)], block=["made/add/other"])
    blocked = reg.decide("add", *SPECS, require="any").candidate("made/add/other")
    assert blocked.code == "BLOCKED"
    assert blocked.would_run_if == f"made/add/other is left out of block={more}"


def test_a_decision_travels_to_another_process() -> None:
    decision = decide(host_kernel("made/add/x", add, when=("x1.rank == 3", "x1.size == 1")))
    again = pickle.loads(pickle.dumps(decision))
    assert again == decision
    assert again.to_dict() == decision.to_dict()


def test_a_fault_is_its_plugins_whatever_the_kernel_is_called() -> None:
    def bind(context: Any) -> Any:
        raise SystemExit(3)

    for kernel in (
        host_kernel("other/add/x", add, bind=bind),
        host_kernel("other/add/x", add, when=("Q == 1",)),
        host_kernel("other/add/x", add, bind=lambda context: 5),
        host_kernel("other/add/x", add, bind="nbx_registry.nowhere:bind"),
    ):
        reg = nbx.load(plugins=[made("made", kernel)])
        x = np.ones(3, np.float32)
        with pytest.raises(nbx.PluginFault) as raised:
            reg.call("add", x, x, require="any", kernel="other/add/x")
        assert raised.value.plugin == "made"


# What to install.


@pytest.mark.parametrize(
    ("device", "hint"),
    [
        (
            "apple/m1",
            "nbx-metal, which is to bring kernels for matrix_unit.simdgroup_8x8, target.apple7 of apple/m1, is pl",
        ),
        ("nvidia/v100-sxm2-16gb", "nbx-cuda-volta, which is to bring kernels for matrix_unit.m8n8k4 of nvidia/v100-sx"),
        (
            "nvidia/b200",
            "nbx-cuda-blackwell-tilelang, which is to bring kernels for matrix_unit.tcgen05_f16, matrix_unit.",
        ),
    ],
)
def test_a_refusal_names_the_distribution_that_has_kernels_for_the_device(device: str, hint: str) -> None:
    decision = decide(host_kernel("made/add/a", add), device=device)
    assert decision.chosen is None
    assert [told for told in decision.hints if told.startswith(hint)]
    # What is installed is suggested to nobody, blocked or not.
    installed = nbx.load().plugins
    for told in decision.hints:
        assert not told.startswith("install ") or told.removeprefix("install ").partition(":")[0] not in installed
