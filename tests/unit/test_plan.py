"""Plans: what a recording holds, what a file must say, and that calls find what was prepared."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from making import add, host_kernel, made
from ops_made import made_ops

import nbx_registry as nbx
import nbx_simulated.plugin
from nbx_registry import programs
from nbx_registry.kernel import Kernel
from nbx_registry.launch import BindContext, Launch
from nbx_registry.registry import set_default


def counting() -> tuple[Any, list[str]]:
    """Return a plugin whose kernel for add notes every signature it is bound to, and the notes."""
    bound: list[str] = []

    def bind(context: BindContext) -> Launch:
        bound.append(str(context.signature))
        return Launch(function=add, args=context.signature.names)

    return made("made", host_kernel("made/add/x", add, bind=bind, preference=9, overlap="any")), bound


X = np.ones((5, 7), np.float32)
REQUESTS: dict[str, Callable[[nbx.Registry], object]] = {
    "plain": lambda reg: reg.call("add", X, X),
    "scalar": lambda reg: reg.call("add", X, 2.5),
    "strided": lambda reg: reg.call("add", X.T, X.T),
    "out-strided": lambda reg: reg.call("add", X, X, out=np.empty((7, 5), np.float32).T),
    "pinned": lambda reg: reg.call("add", X, X, kernel="made/add/x"),
    "policy": lambda reg: reg.call("add", X, X, require="any"),
}


@pytest.mark.parametrize("request_", REQUESTS.values(), ids=REQUESTS)
def test_after_preparing_nothing_is_bound(tmp_path: Path, request_: Callable[[nbx.Registry], object]) -> None:
    reg = nbx.load(plugins=[counting()[0]], block=["nbx-host/add/numpy"], require="any")
    with reg.record() as plan:
        request_(reg)
        request_(reg)
    assert len(plan) == 1
    plan.save(tmp_path / "plan.json")

    plugin, bound = counting()
    fresh = nbx.load(plugins=[plugin], block=["nbx-host/add/numpy"], require="any")
    fresh.prepare(nbx.Plan.load(tmp_path / "plan.json"))
    assert len(bound) == 1
    request_(fresh)
    assert len(bound) == 1


def test_a_plan_holds_lists_attributes_and_tensors_left_out(tmp_path: Path) -> None:
    reg = nbx.load(plugins=[made_ops()], require="any")
    x = np.ones((2, 3), np.float32)
    with reg.record() as plan:
        reg.call("made::concat", [x, x[:1]])
        reg.call("layer_norm", x, None, np.ones(3, np.float32), eps=float("inf"))
        reg.call("astype", x, dtype="bfloat16")
        reg.call("sum", x, axis=(0, 1))
    plan.save(tmp_path / "plan.json")
    loaded = nbx.Plan.load(tmp_path / "plan.json")
    assert loaded.entries == plan.entries
    assert loaded.entries[0].tensors[0] == ["float32[2, 3]", "float32[1, 3]"]
    assert loaded.entries[1].tensors == ["float32[2, 3]", None, "float32[3]"]
    prepared = nbx.load(plugins=[made_ops()], require="any").prepare(loaded)
    assert [str(p.signature) for p in prepared] == [str(p.signature) for p in reg.prepare(plan)]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"op_digest": "0" * 64}, "op_digest: the plan has '0000"),
        (
            {"kernel": "nbx-host/add/other"},
            "kernel: the plan has 'nbx-host/add/other', here it is 'nbx-host/add/numpy'",
        ),
        ({"settings": {"width": 8}}, r"settings: the plan has {'width': 8}, here it is {}"),
        ({"toolkit": "numpy 1.0"}, "toolkit: the plan has 'numpy 1.0', here it is 'numpy "),
        ({"workspace": [512]}, r"workspace: the plan has \[512\], here it is \[\]"),
        ({"device": "nvidia/h200-sxm"}, "nvidia/h200-sxm, which is not present here"),
        ({"device": "nvidia/h2000"}, "unknown device"),
        ({"pin": "nbx-host/add/nump"}, "did you mean 'nbx-host/add/numpy'"),
        ({"op": "add@9"}, "unknown op 'add@9'"),
        ({"outputs": []}, r"outputs: the plan has nothing; add\(.*\) gives float32\[5, 7\]"),
        ({"outputs": ["float32[5, 7]"] * 2}, r"outputs: the plan has float32\[5, 7\], float32\[5, 7\]; add"),
        ({"outputs": ["float32[7, 5]"]}, r"the plan has float32\[7, 5\]; add"),
        ({"outputs": ["float64[5, 7]"]}, r"the plan has float64\[5, 7\]; add"),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_a_plan_that_is_not_of_this_installation_is_told(tmp_path: Path, change: dict[str, Any], message: str) -> None:
    reg = nbx.load(require="any")
    with reg.record() as plan:
        reg.call("add", X, X)
    plan.save(tmp_path / "plan.json")
    document = json.loads((tmp_path / "plan.json").read_text())
    document["entries"][0].update(change)
    document["steps"] = []
    (tmp_path / "plan.json").write_text(json.dumps(document))
    with pytest.raises(nbx.NbxError, match=message):
        reg.prepare(nbx.Plan.load(tmp_path / "plan.json"))


def test_every_difference_of_every_entry_is_told_before_anything_is_bound(tmp_path: Path) -> None:
    plugin, bound = counting()
    reg = nbx.load(plugins=[plugin], block=["nbx-host/add/numpy"], require="any")
    with reg.record() as plan:
        reg.call("add", X, X)
        reg.call("add", X, 2.0)
        reg.call("sqrt", X)
    other = nbx.Plan([replace(e, op_digest="0", settings={"n": 1}) for e in plan.entries[:2]] + plan.entries[2:])
    bound.clear()
    fresh = nbx.load(plugins=[plugin], block=["nbx-host/add/numpy"], require="any")
    with pytest.raises(nbx.NbxError) as caught:
        fresh.prepare(other)
    text = str(caught.value)
    assert text.count("op_digest: the plan has '0'") == text.count("settings: the plan has {'n': 1}") == 2
    assert "entry 0, add(x1: float32[5, 7]" in text
    assert "entry 1" in text
    assert "sqrt" not in text
    assert bound == []


def test_what_is_not_here_hides_no_difference(tmp_path: Path) -> None:
    reg = nbx.load(require="any")
    with reg.record() as plan:
        for op in ("add", "multiply"):
            reg.call(op, X, X)
        for op in ("sqrt", "exp", "tanh"):
            reg.call(op, X)
    changes = [
        {"op": "add@9"},
        {"toolkit": "numpy 1.0"},
        {"attributes": {"b": 1}, "op_digest": "0" * 64},
        {"pin": "nbx-host/exp/gone"},
        {"attributes": {"b": 1}},
    ]
    wrong = nbx.Plan([replace(e, **change) for e, change in zip(plan, changes, strict=True)])
    with pytest.raises(nbx.NbxError) as caught:
        reg.prepare(wrong)
    text = str(caught.value)
    for part in (
        "entry 0, add@9:\n    unknown op 'add@9'; did you mean 'add@1'?",
        "toolkit: the plan has 'numpy 1.0'",
        "entry 2, sqrt@1:\n    op_digest: the plan has '0000",
        "sqrt: unknown attribute 'b'",
        "unknown kernel 'nbx-host/exp/gone'",
    ):
        assert part in text
    # That one is of the contract that is here, and does not fit it.
    assert "tanh" not in text
    with pytest.raises(nbx.SignatureError, match="tanh: unknown attribute 'b'"):
        reg.prepare(nbx.Plan(wrong.entries[4:]))


def test_a_kernel_refused_because_its_code_changed_is_told_as_changed() -> None:
    reg = nbx.load(require="any")
    with reg.record() as plan:
        reg.call("add", X, X)
    entry = replace(plan.entries[0], require="tuned")
    with pytest.raises(nbx.Refused):
        reg.prepare(nbx.Plan([entry]))
    with pytest.raises(nbx.NbxError, match=r"(?s)kernel_digest: the plan has '0000.*require='tuned'"):
        reg.prepare(nbx.Plan([replace(entry, kernel_digest="0" * 64)]))


def test_what_is_no_plan_is_told() -> None:
    reg = nbx.load(require="any")
    asks: list[Callable[[Any], object]] = [reg.prepare, reg.keys]
    for ask in asks:
        with pytest.raises(nbx.SignatureError, match=r"'plan.json' is no plan; a file is read by nbx.Plan.load"):
            ask("plan.json")
    price: Any = reg.price
    with pytest.raises(nbx.SignatureError, match="only device= is taken"):
        price(nbx.Plan(), "float32[3]", kernel="nbx-host/add/numpy")


def test_another_process_prints_what_differs(tmp_path: Path) -> None:
    reg = nbx.load(require="any")
    with reg.record() as plan:
        reg.call("add", X, X)
    plan.save(tmp_path / "plan.json")
    # The contract's own oracle is other code in the other process.
    script = """
import sys, nbx_registry as nbx
from nbx_registry import digest
if sys.argv[2] == "changed":
    true = digest.source_digest
    digest.source_digest = lambda reference: true(reference)[::-1]
print(len(nbx.load(require="any").prepare(nbx.Plan.load(sys.argv[1]))))
"""
    ran = [
        subprocess.run([sys.executable, "-c", script, tmp_path / "plan.json", how], capture_output=True, text=True)
        for how in ("same", "changed")
    ]
    assert ran[0].stdout.strip() == "1", ran[0].stderr
    digest = plan.entries[0].kernel_digest
    assert digest is not None
    assert f"kernel_digest: the plan has {digest!r}, here it is {digest[::-1]!r}" in ran[1].stderr


def test_a_composite_s_parts_are_compared_too() -> None:
    def doubled(trace: Any, x: Any, *, approximate: str) -> Any:
        del approximate
        return trace.call("add", x, x)

    def made_of(*extra: Any) -> nbx.Registry:
        composite = Kernel(
            id="made/gelu/parts", op="gelu@1", backend="composite", runtimes=(), bind=doubled, parts=("add@1",)
        )
        return nbx.load(
            plugins=[made("made", composite, *extra)], require="any", block=["nbx-host/add/numpy"] * len(extra)
        )

    reg = made_of()
    with reg.record() as plan:
        reg.call("gelu", X, kernel="made/gelu/parts")
    assert [part.kernel for part in plan.entries[0].parts] == ["nbx-host/add/numpy"]
    with pytest.raises(
        nbx.NbxError, match=r"parts\[0\]\.kernel: the plan has 'nbx-host/add/numpy', here it is 'made/add/x'"
    ):
        made_of(host_kernel("made/add/x", add)).prepare(plan)


def test_a_plan_is_prepared_on_the_device_that_is_named() -> None:
    reg = nbx.load(plugins=[nbx_simulated.plugin], require="any")
    before = set_default(reg)
    with reg.record() as plan:
        reg.call("add", nbx.asarray(X, device="sim:1"), 1.0)
    set_default(before)
    (bound,) = reg.prepare(plan, device="sim:1")
    assert bound.target.name == "sim:1"
    for device in ("sim:0", "cpu", "sim:7"):
        with pytest.raises(nbx.NbxError, match=f"the plan is for sim/loopback-large, which is not {device}"):
            reg.prepare(plan, device=device)


def test_what_is_prepared_is_not_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(programs, "LIMIT", 4)
    plugin, bound = counting()
    reg = nbx.load(plugins=[plugin], block=["nbx-host/add/numpy"], require="any")
    draft = reg.draft("cpu")
    for n in range(1, 20):
        draft.call("add", f"float32[{n}]", 1.0)
    reg.prepare(draft.plan)
    assert len(bound) == 19
    for n in range(1, 20):
        reg.call("add", np.ones(n, np.float32), 1.0)
    assert len(bound) == 19


def test_strides_that_move_nothing_are_kept(tmp_path: Path) -> None:
    plugin, bound = counting()
    reg = nbx.load(plugins=[plugin], block=["nbx-host/add/numpy"], require="any")
    x = nbx.asarray(X)[:, None]
    with reg.record() as plan:
        reg.call("add", x, x)
    plan.save(tmp_path / "plan.json")
    loaded = nbx.Plan.load(tmp_path / "plan.json")
    assert loaded.entries[0].tensors[1] == f"float32[5, 1, 7];strides={list(x.strides)}"
    assert str(x.spec) == "float32[5, 1, 7]"
    fresh = nbx.load(plugins=[plugin], block=["nbx-host/add/numpy"], require="any")
    fresh.prepare(loaded)
    bound.clear()
    fresh.call("add", x, x)
    assert bound == []


ENTRY: dict[str, Any] = {
    "op": "add@1", "kernel": "k", "op_digest": "d", "kernel_digest": None, "toolkit": None, "settings": {}, "parts": [],
    "tensors": ["float32[5]", "weak int64"], "outputs": ["float32[5]"], "attributes": {}, "device": "host/cpu",
    "require": "any", "pin": None, "workspace": [64], "written": [],
}  # fmt: skip
VALUES = [{"nbytes": 20, "device": "host/cpu", "given": given} for given in (True, False)]
STEP = {"entry": 0, "inputs": [0, None], "outputs": [1]}


def document(**changes: Any) -> str:
    whole = {"format": 2, "entries": [ENTRY], "values": VALUES, "steps": [STEP]}
    return json.dumps({**whole, **changes})


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[]", "must be an object"),
        ("{", "not JSON"),
        (document(format=1), "format: is 1; this version reads format 2"),
        ('{"format": 2}', "entries: is missing"),
        (document(entries=[{"op": "add@1"}]), r"entries\[0\]\.parts: is missing"),
        (document(entries=[{"oops": 1}]), r"entries\[0\]\.oops: unknown key"),
        (document(entries=[{**ENTRY, "tensors": 5}]), r"entries\[0\]\.tensors: must be a list"),
        (
            document(entries=[{**ENTRY, "tensors": ["flot32[5]", None]}]),
            r"tensors: unknown dtype 'flot32'; did you mean",
        ),
        (document(entries=[{**ENTRY, "outputs": [None]}]), r"outputs: None is no spec string"),
        (document(entries=[{**ENTRY, "require": "chekced"}]), r"require: 'chekced' is none of"),
        (document(entries=[{**ENTRY, "workspace": [-1]}]), r"workspace: holds -1"),
        (document(entries=[{**ENTRY, "parts": [{**ENTRY}]}]), r"parts\[0\]\.tensors: unknown key"),
        (document(values=[{"nbytes": 20, "device": "host/cpu"}]), r"values\[0\]\.given: must be true or false"),
        (document(values=[{"nbytes": -1, "device": "host/cpu", "given": True}]), r"values\[0\]\.nbytes: is -1"),
        (document(steps=[{**STEP, "entry": 1}]), r"steps\[0\]\.entry: is 1; there are 1 entries"),
        (document(steps=[{**STEP, "inputs": [0]}]), r"steps\[0\]\.inputs: has 1 values; add@1 of entry 0 takes 2"),
        (document(steps=[{**STEP, "outputs": []}]), r"steps\[0\]\.outputs: has 0 values; add@1 of entry 0 takes 1"),
        (document(steps=[{**STEP, "outputs": [2]}]), r"outputs: holds 2, which is none of the 2 values"),
        (document(steps=[{**STEP, "inputs": [0, True]}]), r"inputs: holds True"),
        (document(steps=[{**STEP, "inputs": [1, 0]}]), r"inputs: value 1 is read before a step makes it"),
        (document(steps=[{**STEP, "twice": 1}]), r"steps\[0\]\.twice: unknown key"),
        (
            document(steps=[{**STEP, "inputs": [None, None]}]),
            r"inputs: holds None where add@1 of entry 0 takes a tensor",
        ),
        (document(steps=[{**STEP, "inputs": [0, 0]}]), r"inputs: holds 0 where add@1 of entry 0 takes no tensor"),
        (
            document(values=[{**VALUES[0], "nbytes": 19}, VALUES[1]]),
            r"inputs: value 0 has 19 bytes; add@1 reaches over 20",
        ),
        (document(values=[VALUES[0], {**VALUES[1], "nbytes": 19}]), r"outputs: value 1 has 19 bytes"),
        (
            document(values=[VALUES[0], {**VALUES[1], "device": "acme/one"}]),
            r"outputs: value 1 is on acme/one; add@1 runs on",
        ),
        (document(entries=[{**ENTRY, "written": [2]}]), r"written: holds 2, which is none of the 2 operands"),
        (document(entries=[{**ENTRY, "outputs": ["weak float32"]}]), r"outputs: 'weak float32' is no spec string"),
        (
            document(entries=[{**ENTRY, "attributes": {"a": 1.5}}]).replace("1.5", "1e400"),
            r"attributes: holds what JSON has",
        ),
        (document(entries=[{**ENTRY, "settings": {"a": ["\ud800"]}}]), r"settings: holds what JSON has no word for"),
    ],
)
def test_a_malformed_plan_is_named(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "plan.json").write_text(text)
    with pytest.raises(nbx.NbxError, match=rf"(?s)plan\.json.*{message}"):
        nbx.Plan.load(tmp_path / "plan.json")


def test_a_plan_file_is_what_was_saved(tmp_path: Path) -> None:
    (tmp_path / "plan.json").write_text(document())
    plan = nbx.Plan.load(tmp_path / "plan.json")
    plan.save(tmp_path / "again.json")
    assert nbx.Plan.load(tmp_path / "again.json") == plan
    assert json.loads((tmp_path / "again.json").read_text()) == json.loads(document())
    assert plan.trace() == [("alloc", 1, 20), ("alloc", (0, 0), 64), ("free", (0, 0))]


@pytest.mark.parametrize("place", ["cpu", "sim:0"])
def test_unaligned_operands_are_noted_as_what_ran(place: str) -> None:
    plugins = [nbx_simulated.plugin, made("made", *aligned_kernels())]
    reg = nbx.load(plugins=plugins, block=["nbx-host/sqrt/numpy"], require="any")
    before = set_default(reg)
    x = nbx.asarray(np.ones(64, np.float32), device=place)
    with reg.profile() as profile:
        reg.call("sqrt", x)
        reg.call("sqrt", x[1:])
    runtime = "host" if place == "cpu" else "sim"
    assert [row.kernel for row in sorted(profile.rows, key=lambda row: row.kernel)] == [
        f"made/sqrt/aligned-{runtime}",
        f"made/sqrt/any-{runtime}",
    ]
    with reg.record() as plan:
        reg.call("sqrt", x[1:])
    set_default(before)
    # The call is bound before the address is known: both are needed ahead.
    assert [(entry.kernel, entry.tensors) for entry in plan] == [
        (f"made/sqrt/aligned-{runtime}", ["float32[63]"]),
        (f"made/sqrt/any-{runtime}", ["float32[63];align=4"]),
    ]
    assert [step.entry for step in plan.steps] == [1]


def aligned_kernels() -> list[Kernel]:
    """Return kernels of sqrt for operands that are aligned, and for any, on the host and on the simulation."""
    found: list[Kernel] = []
    for name, when, preference in (("aligned", ("x.align >= 16",), 9), ("any", (), 8)):
        found.append(
            host_kernel(
                f"made/sqrt/{name}-host", np.sqrt, when=(*when, "device.runtime == 'host'"), preference=preference
            )
        )
        found.append(
            Kernel(
                id=f"made/sqrt/{name}-sim", op="sqrt@1", backend="loopback", runtimes=("sim",), when=when,
                bind="nbx_simulated.kernels:bind", preference=preference,
            )
        )  # fmt: skip
    return found


def test_recordings_and_profiles_see_every_thread_and_one_at_a_time() -> None:
    reg = nbx.load(require="any")

    def work(n: int) -> None:
        for _ in range(50):
            reg.call("add", np.ones(n, np.float32), 1.0)

    with reg.profile() as profile:
        with pytest.raises(nbx.NbxError, match="one at a time"), reg.record():
            pass
        threads = [threading.Thread(target=work, args=(n,)) for n in range(1, 9)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    (row,) = profile.rows
    assert row.calls == 400
    assert row.kernel == "nbx-host/add/numpy"
    # host/cpu states no bandwidth, unless this machine's was measured.
    assert (row.floor_s is None) == bool(row.floor_missing)
    with reg.record() as plan:
        threads = [threading.Thread(target=work, args=(n,)) for n in (3, 3, 4, 4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert sorted(entry.outputs[0] for entry in plan) == ["float32[3]", "float32[4]"]
    assert reg.observer is None


def test_a_call_that_returns_after_the_block_is_not_of_the_plan() -> None:
    begun, ended = threading.Event(), threading.Event()

    def late(x: Any, out: Any) -> None:
        begun.set()
        ended.wait(30)
        np.sqrt(x, out=out)

    plugin = made("made", host_kernel("made/sqrt/x", late))
    reg = nbx.load(plugins=[plugin], block=["nbx-host/sqrt/numpy"], require="any")
    thread = threading.Thread(target=lambda: reg.call("sqrt", X))
    with reg.record() as plan:
        reg.call("add", X, 1.0)
        thread.start()
        begun.wait(30)
    ended.set()
    thread.join()
    assert [entry.op for entry in plan] == ["add@1"]
    assert len(plan.steps) == 1
