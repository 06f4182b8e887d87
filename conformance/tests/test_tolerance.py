"""The bound that results are held against: the contract's, as the device's file tightens it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from nbx_conformance.runs.runner import Record
from nbx_registry.hookspecs import hookimpl
from nbx_registry.kernel import Kernel
from nbx_registry.launch import Launch

CASE = "awkward-f32-M63-K127-N129"
SHARE = 0.3
"""Of the contract's bound: how far off the kernel is."""


def bind(context: Any) -> Launch:
    def run(x1: Any, x2: Any, out: Any) -> None:
        first, second = x1.astype(np.float64), x2.astype(np.float64)
        error = 2 * x1.shape[-1] * 2.0**-24 * (np.abs(first) @ np.abs(second))
        np.copyto(out, first @ second + SHARE * error, casting="same_kind")

    return Launch(function=run, args=context.signature.names)


def off_by_a_share(folder: Path) -> Any:
    kernel = Kernel(
        id="made/matmul/x",
        op="matmul@1",
        backend="numpy",
        runtimes=("host",),
        bind=bind,
        when=("x1.dtype == float32", "x1.dtype == x2.dtype"),
    )
    return SimpleNamespace(
        name="made",
        NBX_HOOKS=1,
        nbx_register_kernels=hookimpl(lambda: [kernel], specname="nbx_register_kernels"),
        nbx_register_overlays=hookimpl(lambda: [folder], specname="nbx_register_overlays"),
    )


@pytest.mark.parametrize(
    ("facts", "verdict"),
    [
        ("", "pass"),
        ("  tolerance.matmul: {value: 0.5, source: device, date: 2026-11-30}", "pass"),
        ("  tolerance.matmul: {value: 0.25, source: device, date: 2026-11-30}", "fail"),
        ("  tolerance.linear: {value: 0.25, source: device, date: 2026-11-30}", "pass"),
    ],
    ids=["the-contracts", "half", "a-quarter", "another-ops"],
)
def test_a_device_tightens_the_bound_of_an_op(
    tmp_path: Path, try_kernel: Callable[..., list[Record]], facts: str, verdict: str
) -> None:
    (tmp_path / "host").mkdir()
    (tmp_path / "host" / "cpu.yml").write_text(f"facts:\n{facts}\n", "utf-8")
    (record,) = try_kernel("made/matmul/x", off_by_a_share(tmp_path), cases=(CASE,))
    assert record.verdict == verdict
    assert ("numbers" in record.checks.get("fail", ())) == (verdict == "fail")


def test_rounding_once_is_never_refused(tmp_path: Path, try_kernel: Callable[..., list[Record]]) -> None:
    (tmp_path / "host").mkdir()
    facts = "  tolerance.sqrt: {value: 0.001, source: device, date: 2026-11-30}"
    (tmp_path / "host" / "cpu.yml").write_text(f"facts:\n{facts}\n", "utf-8")
    records = try_kernel("nbx-host/sqrt/numpy", off_by_a_share(tmp_path))
    assert {record.verdict for record in records} == {"pass", "refused"}
    assert max(record.profile.get("share", 0) for record in records) > 0.9
