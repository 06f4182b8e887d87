"""Kernels under an advisory: what it revokes is refused as specified, and proves nothing."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from nbx_conformance.runs import runner
from nbx_conformance.runs.runner import Record
from nbx_registry.hookspecs import hookimpl

KERNEL = "nbx-host/sqrt/numpy"
SMALL, LARGE = "awkward-f32-N63", "awkward-f32-N1000"


def warning(folder: Path, **about: Any) -> Any:
    entry = {"kernel": KERNEL, "reason": "wrong", "link": "https://example.com", **about}
    (folder / "a.yml").write_text(json.dumps({"advisories": [entry]}), "utf-8")
    hook = hookimpl(lambda: [folder], specname="nbx_register_advisories")
    return SimpleNamespace(name="warns", NBX_HOOKS=1, nbx_register_advisories=hook)


def test_within_the_window_it_is_refused_and_beside_it_tried(
    tmp_path: Path, try_kernel: Callable[..., list[Record]]
) -> None:
    records = try_kernel(KERNEL, warning(tmp_path, when="x.size > 1000"), cases=(SMALL, LARGE))
    assert [record.verdict for record in records] == ["pass", "refused"]
    assert records[1].details["refusals"].startswith("ADVISORY: x.size > 1000")
    assert runner.verdict_of(records) == "pass"


def test_of_a_kernel_that_is_revoked_altogether_nothing_is_measured(
    tmp_path: Path, try_kernel: Callable[..., list[Record]]
) -> None:
    records = try_kernel(KERNEL, warning(tmp_path), cases=(SMALL, LARGE))
    assert {record.verdict for record in records} == {"refused"}
    assert runner.verdict_of(records) == "unmeasured"
