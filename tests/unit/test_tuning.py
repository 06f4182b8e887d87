"""Tuning on the host, with kernels whose spaces are made here and times that are made up."""

from __future__ import annotations

import itertools
import json
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from making import made

import nbx_registry as nbx
from nbx_registry.errors import FileError, NbxError, Refused, SignatureError, UnknownName
from nbx_registry.kernel import Kernel
from nbx_registry.launch import BindContext, Launch
from nbx_registry.space import Space
from nbx_registry.tuning import Outcome, tune
from nbx_registry.tuning.key import Stopwatch
from nbx_registry.tuning.session import alike

SPECS = ("float32[129]", "float32[129]")
ID = "made/add/blocked"
BLOCKS = Space(
    parameters={"block": (32, 64, 128, 256)}, exclude={"a block wider than the tensor": "block > 2 * x1.size"}
)
TIMES = {32: 4e-6, 64: 2e-6, 128: 3e-6, 256: 9e-6}
"""Of the default, 128, and the others: 64 is the fastest, 256 over twice that."""

Make = Callable[..., nbx.Registry]


@pytest.fixture
def make(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest, tmp_path: Path) -> Make:
    """Give a function that loads a registry with a kernel of add in blocks, and its space."""
    monkeypatch.setenv("NBX_CONFIG_DIR", str(tmp_path / "config"))
    # References are loaded once in a process: each test has a module of its own.
    module = ModuleType(f"nbx_tuned_{abs(hash(request.node.nodeid))}")
    monkeypatch.setitem(sys.modules, module.__name__, module)

    def load(flaws: Mapping[int, str] | None = None, space: Any = BLOCKS, **changes: Any) -> nbx.Registry:
        module.__dict__["SPACE"] = space
        stated: dict[str, Any] = {
            "id": ID,
            "op": "add@1",
            "backend": "made",
            "runtimes": ("host",),
            "bind": in_blocks(flaws or {}),
            "when": ("x1.rank == 1", "x1.contiguous", "x2.contiguous", "x1.size == x2.size"),
            "key": ("out.size", "x1.dtype"),
            "defaults": {"block": 128},
            "settings": f"{module.__name__}:SPACE",
        }
        return nbx.load(plugins=[made("made", Kernel(**{**stated, **changes}))], require="any")

    return load


def in_blocks(flaws: Mapping[int, str]) -> Callable[[BindContext], Launch]:
    def bind(context: BindContext) -> Launch:
        block = context.settings["block"]
        flaw = flaws.get(block, "")
        if flaw == "refuses":
            raise ValueError("that is beyond me")

        def run(x1: Any, x2: Any, out: Any) -> None:
            if flaw == "raises":
                raise RuntimeError("out of resources")
            whole = out.size // block * block if flaw == "tail" else out.size
            for start in range(0, whole, block):
                part = slice(start, min(start + block, whole))
                np.add(x1[part], x2[part], out=out[part])
            if flaw == "numbers":
                out[0] = np.nextafter(out[0], np.float32(np.inf)) * np.float32(1 + 2**-20)

        return Launch(function=run, args=context.signature.names)

    return bind


def timed(times: Mapping[int, float] = TIMES) -> Stopwatch:
    return lambda settings, kind, measured: times[settings["block"]]


def run(reg: nbx.Registry, folder: Path, *specs: Any, times: Mapping[int, float] = TIMES, **changes: Any) -> Outcome:
    return tune(reg, "add", specs or SPECS, kernel=ID, out=folder, stopwatch=timed(times), **changes)


def entries(folder: Path) -> list[Any]:
    return json.loads((folder / "host-cpu.json").read_text())["entries"]


# What is found --------------------------------------------------------------------------------------------------------


def test_a_slow_default_is_replaced_and_the_proof_says_everything(make: Make, tmp_path: Path) -> None:
    (found,) = run(make(), tmp_path).tuned
    assert (found.settings, found.default) == ({"block": 64}, {"block": 128})
    (entry,) = entries(tmp_path)
    assert (entry["kernel"], entry["key"]) == (ID, {"out.size": 129, "x1.dtype": "f32"})
    proof = entry["proof"]
    assert proof["times"]["tuned_s"] == 2e-6
    assert proof["times"]["default_s"] == 3e-6
    assert {"tuned_warm_s", "default_warm_s"} <= proof["times"].keys()
    assert 0 < proof["deviation"] <= proof["bound"]
    assert (proof["toolkit"], proof["timed"], proof["dropped"]) == ("made", 4, 1)
    assert proof["machine"]["handle"] == "cpu"
    assert proof["machine"]["versions"]["numpy"] == np.__version__


def test_a_candidate_that_a_rule_excludes_is_not_even_bound(make: Make, tmp_path: Path) -> None:
    reg = make({256: "refuses"})
    (found,) = run(reg, tmp_path, "float32[63]", "float32[63]").tuned
    assert found.timed == 3
    assert [(one.rule, one.by_rule) for one in found.excluded] == [("a block wider than the tensor", True)]
    assert entries(tmp_path)[0]["proof"]["pruned"] == {"a block wider than the tensor": 1}
    assert entries(tmp_path)[0]["proof"]["excluded"] == []


@pytest.mark.parametrize(
    ("flaw", "rule", "said"),
    [
        ("numbers", "wrong", "on input 0: out[0] is"),
        ("tail", "wrong", "on input 0: out[128] is nan"),
        ("raises", "unusable", "RuntimeError: out of resources"),
        ("refuses", "unusable", "that is beyond me"),
    ],
)
def test_a_wrong_candidate_is_excluded_and_recorded_however_fast(
    make: Make, tmp_path: Path, flaw: str, rule: str, said: str
) -> None:
    (found,) = run(make({64: flaw}), tmp_path).tuned
    assert found.settings == {"block": 128}
    assert found.times["tuned_s"] == found.times["default_s"] == 3e-6
    (excluded,) = entries(tmp_path)[0]["proof"]["excluded"]
    assert (excluded["settings"], excluded["rule"]) == ({"block": 64}, rule)
    assert said in excluded["reason"]


def test_wrong_candidates_are_excluded_though_they_all_agree(make: Make, tmp_path: Path) -> None:
    (found,) = run(make({32: "numbers", 64: "numbers", 256: "numbers"}), tmp_path).tuned
    assert found.settings == {"block": 128}
    assert found.timed == 1
    assert [one.settings["block"] for one in found.excluded] == [32, 64, 256]


def test_a_default_that_is_wrong_with_all_others_tunes_nothing(make: Make, tmp_path: Path) -> None:
    outcome = run(make(dict.fromkeys((32, 64, 128, 256), "numbers")), tmp_path)
    assert outcome.tuned == ()
    (failure,) = outcome.failed
    assert "the default (block=128) is wrong: on input 0" in failure.message
    assert not (tmp_path / "host-cpu.json").exists()


def test_the_default_is_timed_where_a_rule_excludes_it(make: Make, tmp_path: Path) -> None:
    space = Space(parameters={"block": (64, 128)}, exclude={"never": "block == 128"})
    (found,) = run(make(space=space), tmp_path).tuned
    assert found.timed == 2
    assert found.settings == {"block": 64}


def test_what_is_not_faster_when_measured_again_loses_to_the_default(make: Make, tmp_path: Path) -> None:
    def once(settings: Mapping[str, Any], kind: str, measured: Callable[[], float]) -> float:
        calls[settings["block"]] = calls.get(settings["block"], 0) + 1
        # Fast in the race, seven rounds, and never again.
        return 1e-6 if settings["block"] == 64 and calls[64] <= 7 else TIMES[128]

    calls: dict[int, int] = {}
    outcome = tune(make(), "add", SPECS, kernel=ID, out=tmp_path, stopwatch=once)
    assert outcome.tuned[0].settings == {"block": 128}
    assert outcome.tuned[0].times["tuned_s"] == outcome.tuned[0].times["default_s"] == TIMES[128]


def test_what_is_wrong_once_it_was_timed_does_not_win(make: Make, tmp_path: Path) -> None:
    calls = {"run": 0}

    def bind(context: BindContext) -> Launch:
        block = context.settings["block"]

        def run_it(x1: Any, x2: Any, out: Any) -> None:
            np.add(x1, x2, out=out)
            if block == 64:
                calls["run"] += 1
                # Right on the inputs it is first checked on.
                out[-1] += calls["run"] > 3

        return Launch(function=run_it, args=context.signature.names)

    (found,) = run(make(bind=bind), tmp_path).tuned
    assert found.settings == {"block": 128}
    assert "after it was timed, on input 0" in found.excluded[-1].reason


@pytest.mark.parametrize("when", ["while it was timed", "after it was timed"])
def test_what_cannot_run_any_more_is_excluded(make: Make, tmp_path: Path, when: str) -> None:
    def bind(context: BindContext) -> Launch:
        block, count = context.settings["block"], itertools.count(1)

        def run_it(x1: Any, x2: Any, out: Any) -> None:
            # The first runs are those it is checked on.
            if block == 64 and next(count) > 3:
                raise RuntimeError("\x1b[31mout of " + "resources " * 100)
            np.add(x1, x2, out=out)

        return Launch(function=run_it, args=context.signature.names)

    def stopwatch(settings: Mapping[str, Any], kind: str, measured: Callable[[], float]) -> float:
        if when.startswith("while"):
            measured()
        return TIMES[settings["block"]]

    (found,) = tune(make(bind=bind), "add", SPECS, kernel=ID, out=tmp_path, stopwatch=stopwatch).tuned
    assert found.settings == {"block": 128}
    (excluded,) = entries(tmp_path)[0]["proof"]["excluded"]
    assert (excluded["settings"], excluded["rule"]) == ({"block": 64}, "unusable")
    assert excluded["reason"].startswith(f"{when}: RuntimeError: \\x1b[31mout of")
    assert len(excluded["reason"]) < 400


def test_real_times_never_make_a_winner_that_is_slower_than_the_default(make: Make, tmp_path: Path) -> None:
    (found,) = tune(make(), "add", SPECS, kernel=ID, out=tmp_path).tuned
    assert found.settings["block"] in (32, 64, 128, 256)
    assert all(seconds > 0 for seconds in found.times.values())
    assert found.times["tuned_s"] <= found.times["default_s"]


# What may be asked ----------------------------------------------------------------------------------------------------


def test_every_kernel_with_a_space_is_tuned_and_the_others_are_named(make: Make, tmp_path: Path) -> None:
    outcome = tune(make(), "add", SPECS, out=tmp_path, stopwatch=timed())
    assert [one.kernel for one in outcome.tuned] == [ID]
    assert "nbx-host/add/numpy states no settings, and so has nothing to tune" in outcome.left


def test_a_zero_extent_is_refused_by_name(make: Make, tmp_path: Path) -> None:
    (failure,) = run(make(), tmp_path, "float32[0]", "float32[0]").failed
    assert failure.code == "SHAPE"
    assert f"out.size of the key of {ID} is an extent of 0" in failure.message


def test_what_nothing_may_run_is_refused(make: Make, tmp_path: Path) -> None:
    with pytest.raises(Refused, match="SHAPE"):
        run(make(), tmp_path, "float32[3, 43]", "float32[3, 43]")
    with pytest.raises(SignatureError, match="unknown argument"):
        tune(make(), "add", SPECS, {"axis": 1}, out=tmp_path)
    with pytest.raises(UnknownName, match="did you mean"):
        run(make(), tmp_path, devices=["cpuu"])


def test_a_device_that_is_not_here_is_refused(make: Make, tmp_path: Path) -> None:
    with pytest.raises(NbxError, match="nvidia/t4 is not present here"):
        run(make(), tmp_path, devices=["nvidia/t4"])


def test_values_that_are_given_are_those_that_is_tuned_on(make: Make, tmp_path: Path) -> None:
    seen: list[np.ndarray] = []

    def bind(context: BindContext) -> Launch:
        def run_it(x1: Any, x2: Any, out: Any) -> None:
            seen.append(x1.copy())
            np.add(x1, x2, out=out)

        return Launch(function=run_it, args=context.signature.names)

    given = np.arange(1, 130, dtype=np.float32)
    run(make(bind=bind), tmp_path, given, "float32[129]")
    assert all((values == given).all() for values in seen)


def test_drawn_values_differ_from_input_to_input_and_are_never_zero(make: Make, tmp_path: Path) -> None:
    seen: dict[bytes, np.ndarray] = {}

    def bind(context: BindContext) -> Launch:
        def run_it(x1: Any, x2: Any, out: Any) -> None:
            seen[x1.tobytes()] = x1.copy()
            np.add(x1, x2, out=out)

        return Launch(function=run_it, args=context.signature.names)

    run(make(bind=bind), tmp_path)
    assert len(seen) == 3
    assert all((values != 0).all() for values in seen.values())


def test_a_plan_is_tuned_key_by_key_each_once(make: Make, tmp_path: Path) -> None:
    reg = make()
    x, y = np.ones(129, np.float32), np.ones(63, np.float32)
    with reg.record() as plan:
        for _ in range(2):
            reg.call("add", x, x, kernel=ID)
            reg.call("add", y, y, kernel=ID)
            reg.call("sqrt", y)
    outcome = tune(reg, plan, out=tmp_path, stopwatch=timed())
    assert [one.key["out.size"] for one in outcome.tuned] == [129, 63]
    assert any("nbx-host/sqrt/numpy states no settings" in text for text in outcome.left)
    assert len(entries(tmp_path)) == 2


def test_an_entry_of_a_plan_that_does_not_fit_is_named(make: Make, tmp_path: Path) -> None:
    reg = make()
    draft = reg.draft("host/cpu", require="any")
    draft.call("sqrt", "float32[3]")
    draft.call("softmax", "float32[3]")
    for change, error, said in (
        ({"attributes": {"axis": "x"}}, nbx.SignatureError, "attribute axis is 'x', but takes an integer"),
        ({"op": "softmaxx@1"}, nbx.UnknownName, "did you mean 'softmax@1'"),
    ):
        draft.plan.save(tmp_path / "plan.json")
        data = json.loads((tmp_path / "plan.json").read_text())
        data["entries"][1].update(change)
        (tmp_path / "plan.json").write_text(json.dumps(data))
        plan = nbx.Plan.load(tmp_path / "plan.json")
        for attempt in (lambda plan=plan: tune(reg, plan), lambda plan=plan: reg.price(plan)):
            with pytest.raises(error, match=rf"entry 1 of the plan, softmax.?@1: .*{said}"):
                attempt()


def test_a_plan_for_several_products_tunes_on_each_what_runs_there(make: Make, tmp_path: Path) -> None:
    reg = make()
    draft = reg.draft("host/cpu", require="any")
    draft.call("add", "float32[63]", "float32[63]", kernel=ID)
    draft.call("add", "float32[129]", "float32[129]", kernel=ID)
    draft.plan.save(tmp_path / "plan.json")
    data = json.loads((tmp_path / "plan.json").read_text())
    for row in (data["entries"][1], *data["values"][3:]):
        row["device"] = "nvidia/t4"
    (tmp_path / "plan.json").write_text(json.dumps(data))
    plan = nbx.Plan.load(tmp_path / "plan.json")
    assert plan.devices == ["host/cpu", "nvidia/t4"]
    outcome = tune(reg, plan, devices=["cpu"], out=tmp_path / "out", stopwatch=timed())
    assert [one.key["out.size"] for one in outcome.tuned] == [63]


def test_the_parts_of_a_composite_are_tuned(make: Make, tmp_path: Path) -> None:
    def compose(trace: Any, x: Any, w: Any, bias: Any, **attributes: Any) -> Any:
        y = trace.call("matmul", x, trace.permute(w, (1, 0)))
        return trace.call("add", y, bias)

    parts = {"id": "made/linear/parts", "op": "linear@1", "backend": "composite", "runtimes": ()}
    composite = Kernel(**parts, bind=compose, parts=("matmul@1", "add@1"))
    reg = make(id="made/add/rows", when=("x1.contiguous", "x2.contiguous"), bind=rows, preference=5)
    kernel = reg.kernels["made/add/rows"]
    reg = nbx.load(plugins=[made("made", kernel, composite)], block=["nbx-host/add/numpy"], require="any")
    specs = ("float32[3, 5]", "float32[7, 5]", "float32[7]")
    outcome = tune(reg, "linear", specs, kernel="made/linear/parts", out=tmp_path, stopwatch=timed())
    assert [(one.kernel, one.key["out.size"]) for one in outcome.tuned] == [("made/add/rows", 21)]


def rows(context: BindContext) -> Launch:
    return Launch(function=lambda x1, x2, out: np.add(x1, x2, out=out), args=context.signature.names)


def test_more_devices_than_are_here_are_refused(make: Make) -> None:
    with pytest.raises(NbxError, match="2 devices of host/cpu are asked for, and 1 here"):
        alike(make(), ["cpu"], 2)


# What becomes of it ---------------------------------------------------------------------------------------------------


def test_by_default_the_users_folder_is_written_and_a_later_registry_runs_it(make: Make, tmp_path: Path) -> None:
    reg = make()
    outcome = tune(reg, "add", SPECS, kernel=ID, stopwatch=timed())
    file = tmp_path / "config" / "settings" / "host-cpu.json"
    assert outcome.files == (file,)
    x = np.ones(129, np.float32)
    again = make()
    assert again.bind("add", x, x, kernel=ID, require="any").settings == {"block": 64}
    # Another key runs the declared default; nothing is tuned for it.
    y = np.ones(63, np.float32)
    assert again.bind("add", y, y, kernel=ID).settings == {"block": 128}
    decision = again.decide("add", *SPECS, kernel=ID)
    tuned = decision.candidate(ID).tuned
    assert tuned is not None
    assert (tuned.settings, tuned.file) == ({"block": 64}, file)
    assert f"tuned: block=64, proven {tuned.date} in {file}" in str(decision)
    assert decision.to_dict()["candidates"][0]["tuned"]["file"] == str(file)
    json.dumps(decision.to_dict())


def test_reg_tune_is_the_same(make: Make, tmp_path: Path) -> None:
    outcome = make().tune("add", *SPECS, kernel=ID, out=tmp_path / "own.json")
    assert outcome.files == (tmp_path / "own.json",)
    assert json.loads((tmp_path / "own.json").read_text())["device"] == "host/cpu"
    with pytest.raises(SignatureError, match="out=3 is no path"):
        make().tune("add", *SPECS, out=3)


def test_a_key_without_an_entry_is_refused_where_one_is_asked_for(make: Make, tmp_path: Path) -> None:
    tune(make(), "add", SPECS, kernel=ID, stopwatch=timed())
    reg = make()
    x, y = np.ones(129, np.float32), np.ones(63, np.float32)
    reg._selector.evidence = lambda kernel, target: nbx.Evidence("here")  # type: ignore[method-assign]
    assert reg.call("add", x, x, require="tuned")[0] == 2
    with pytest.raises(Refused) as caught:
        reg.call("add", y, y, kernel=ID, require="tuned")
    refused = caught.value.decision.candidate(ID)
    assert refused.code == "KEY_NOT_TUNED"
    assert refused.reason == "no settings are proven for key {'out.size': 63, 'x1.dtype': 'f32'}"
    assert "nbx tune finds some" in refused.would_run_if


def test_a_corrupt_file_is_a_named_miss_and_is_never_written_over(make: Make, tmp_path: Path) -> None:
    file = tmp_path / "config" / "settings" / "host-cpu.json"
    file.parent.mkdir(parents=True)
    file.write_text('{"format": 1, "device": "host/cpu", "entr')
    reg = make()
    x = np.ones(129, np.float32)
    assert reg.bind("add", x, x, kernel=ID).settings == {"block": 128}
    decision = reg.decide("add", *SPECS, kernel=ID, require="tuned")
    assert any(f"settings that tune nothing: {file}:1: not JSON" in hint for hint in decision.hints)
    with pytest.raises(FileError, match="not JSON"):
        tune(reg, "add", SPECS, kernel=ID, stopwatch=timed())
    assert file.read_text().endswith("entr")


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"block": 48}, r"block=48 is none of \(32, 64, 128, 256\)"),
        ({"block": 256}, r"excluded by 'a block wider than the tensor': block > 2 \* x1.size"),
    ],
)
def test_an_entry_outside_the_space_on_this_device_is_a_named_miss(
    make: Make, tmp_path: Path, settings: dict[str, int], said: str
) -> None:
    specs = ("float32[63]", "float32[63]")
    run(make(), tmp_path / "config" / "settings", *specs)
    file = tmp_path / "config" / "settings" / "host-cpu.json"
    data = json.loads(file.read_text())
    data["entries"][0]["settings"] = settings
    file.write_text(json.dumps(data))
    reg = make()
    y = np.ones(63, np.float32)
    assert reg.bind("add", y, y, kernel=ID).settings == {"block": 128}
    (miss,) = reg.catalog.settings.misses()
    assert str(file) in str(miss)
    import re

    assert re.search(said, str(miss))
    assert reg.decide("add", *specs, kernel=ID).candidate(ID).tuned is None


def test_an_entry_with_an_unknown_parameter_is_a_named_miss(make: Make, tmp_path: Path) -> None:
    folder = tmp_path / "config" / "settings"
    run(make(), folder)
    file = folder / "host-cpu.json"
    file.write_text(file.read_text().replace('"settings": {\n    "block": 64\n   }', '"settings": {"blok": 64}'))
    reg = make()
    x = np.ones(129, np.float32)
    assert reg.bind("add", x, x, kernel=ID).settings == {"block": 128}
    (miss,) = reg.catalog.settings.misses()
    assert "name 'blok', which is none of that kernel's; did you mean 'block'?" in str(miss)


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ("[" * 800 + "]" * 800, "block: holds lists in lists, more than 8 deep"),
        ("1e999", "block: is a number beyond float64"),
        (r'"\ud800"', "holds characters that no line of text shows"),
    ],
    ids=["deep", "infinite", "unprintable"],
)
def test_an_entry_whose_values_are_none_is_a_named_miss(make: Make, tmp_path: Path, value: str, said: str) -> None:
    folder = tmp_path / "config" / "settings"
    run(make(), folder)
    file = folder / "host-cpu.json"
    file.write_text(
        file.read_text().replace('"settings": {\n    "block": 64\n   }', f'"settings": {{"block": {value}}}')
    )
    reg = make()
    x = np.ones(129, np.float32)
    assert reg.bind("add", x, x, kernel=ID).settings == {"block": 128}
    (miss,) = reg.catalog.settings.misses()
    assert said in str(miss)


def test_an_entry_for_a_zero_extent_is_a_named_miss(make: Make, tmp_path: Path) -> None:
    folder = tmp_path / "config" / "settings"
    run(make(key=("x1.shape[0]",)), folder)
    file = folder / "host-cpu.json"
    file.write_text(file.read_text().replace('"x1.shape[0]": 129', '"x1.size": 0'))
    assert "x1.size: is an extent of 0" in make(key=("x1.size",)).catalog.settings.check()[0]


def test_times_on_the_key_decide_between_kernels(make: Make, tmp_path: Path) -> None:
    slow = make(id="made/add/slow", preference=5).kernels["made/add/slow"]
    fast = make().kernels[ID]

    def both() -> nbx.Registry:
        return nbx.load(plugins=[made("made", slow, fast)], block=["nbx-host/add/numpy"], require="any")

    assert both().decide("add", *SPECS).chosen == "made/add/slow"
    for kernel, factor in (("made/add/slow", 3), (ID, 1)):
        times = {block: seconds * factor for block, seconds in TIMES.items()}
        tune(both(), "add", SPECS, kernel=kernel, stopwatch=timed(times))
    assert both().decide("add", *SPECS).chosen == ID
