"""Plans: what a recording holds, what a file must say, and that calls find what was prepared."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from making import add, host_kernel, made
from ops_made import made_ops

import nbx_registry as nbx
from nbx_registry.launch import BindContext, Launch


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
            "kernel: the plan has 'nbx-host/add/other', here",
        ),
        ({"settings": {"width": 8}}, "settings: the plan has"),
        ({"device": "nvidia/h200-sxm"}, "nvidia/h200-sxm, which is not present here"),
        ({"device": "nvidia/h2000"}, "unknown device"),
        ({"pin": "nbx-host/add/nump"}, "did you mean 'nbx-host/add/numpy'"),
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
    (tmp_path / "plan.json").write_text(json.dumps(document))
    with pytest.raises(nbx.NbxError, match=message):
        reg.prepare(nbx.Plan.load(tmp_path / "plan.json"))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[]", "must be an object"),
        ("{", "not JSON"),
        ('{"format": 2, "entries": []}', "format: is 2; this version reads format 1"),
        ('{"format": 1}', "entries: is missing"),
        ('{"format": 1, "entries": [{"op": "add@1"}]}', r"entries\[0\]\.tensors: must be a list"),
        ('{"format": 1, "entries": [{"oops": 1}]}', r"entries\[0\]\.oops: unknown key; did you mean 'op'|known are"),
    ],
)
def test_a_malformed_plan_is_named(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "plan.json").write_text(text)
    with pytest.raises(nbx.NbxError, match=rf"(?s)plan\.json.*{message}"):
        nbx.Plan.load(tmp_path / "plan.json")


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
