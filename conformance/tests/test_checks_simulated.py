"""Hostile kernels over the simulation, whose streams really run behind: each is flagged by the check that is for it."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from nbx_conformance.runs.runner import Record, verdict_of

pytest.importorskip("nbx_simulated", reason="the simulation lives beside the core's tests")

import nbx_simulated.plugin as simulation
from nbx_simulated.hostile import hostile_kernels

CASES = {
    "add@1": ("awkward-f32-N129", "special-f32", "layout-f32-strided", "minilm"),
    "softmax@1": ("awkward-f16-N127", "special-f32", "layout-axis1-strided", "minilm"),
    "layer_norm@1": ("awkward-f32-C129", "special-f16", "layout-strided", "minilm"),
}
CAUGHT_BY = {
    "unwritten": "poison",
    "reads_past_input": "guards",
    "writes_past_output": "guards",
    "stale": "fresh",
    "wrong_stream": "stream",
    "host_fallback": "stream",
    "undeclared_memory": "allocation",
    "writes_input": "inputs",
    "one_percent": "numbers",
    "special_values": "special",
    "ignores_strides": "guards",
    "ignores_overlap": "aliasing",
    "unrepeatable": "determinism",
}


def test_every_hostile_kernel_has_a_check() -> None:
    assert {hostile.name for hostile in hostile_kernels()} == set(CAUGHT_BY)


@pytest.mark.parametrize("flaw", sorted(CAUGHT_BY))
@pytest.mark.parametrize("op", sorted(CASES))
def test_a_hostile_kernel_is_flagged_by_its_check(try_kernel: Callable[..., list[Record]], op: str, flaw: str) -> None:
    hostile = next(hostile for hostile in hostile_kernels(op) if hostile.name == flaw)
    records = try_kernel(hostile.kernel.id, simulation, hostile.plugin, device="sim:0", cases=CASES[op])
    assert verdict_of(records) in ("fail", "error")
    assert CAUGHT_BY[flaw] in {name for record in records for name in record.checks.get("fail", ())}


@pytest.mark.parametrize("op", sorted(CASES))
def test_the_honest_twin_passes_and_is_looked_at_by_every_check(
    try_kernel: Callable[..., list[Record]], op: str
) -> None:
    kernel = f"nbx-simulated/{op.partition('@')[0]}/loopback"
    records = try_kernel(kernel, simulation, device="sim:0", cases=CASES[op])
    assert verdict_of(records) == "pass"
    passed = {name for record in records for name in record.checks["pass"]}
    assert passed >= set(CAUGHT_BY.values())
