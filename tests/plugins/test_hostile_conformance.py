"""Conformance catches every hostile kernel of the simulation, each with the check that is there for it."""

from __future__ import annotations

import pytest

import nbx_registry as nbx
import nbx_simulated.plugin
from nbx_conformance.runs import route, runner
from nbx_registry.registry import set_default
from nbx_simulated.hostile import hostile_kernels
from nbx_simulated.plugin import loopback

CAUGHT_BY = {
    "unwritten": ("add", "poison"),
    "reads_past_input": ("add", "guards"),
    "writes_past_output": ("add", "guards"),
    "stale": ("add", "fresh"),
    "wrong_stream": ("add", "stream"),
    "host_fallback": ("add", "stream"),
    "undeclared_memory": ("add", "allocation"),
    "writes_input": ("add", "inputs"),
    "one_percent": ("add", "numbers"),
    "special_values": ("add", "special"),
    "ignores_strides": ("add", "numbers"),
    # Element by element an output may lie over an input; over a whole row it may not.
    "ignores_overlap": ("softmax", "aliasing"),
    "unrepeatable": ("add", "determinism"),
}


def records(op: str, kernel: str, *plugins: object):
    """Try a kernel of ``sim:0`` on one case after another."""
    registry = nbx.load(plugins=[nbx_simulated.plugin, *plugins], require="any")
    before = set_default(registry)
    try:
        site = route.find(registry, "sim:0", "device").site(registry, runner.case_table(registry))
        for item in runner.items(site, runner.Selection(ops=frozenset([op]), kernels=frozenset([kernel]))):
            yield runner.execute(site, item)
    finally:
        set_default(before)


def test_every_hostile_kernel_has_a_check_that_catches_it():
    assert set(CAUGHT_BY) == {hostile.name for hostile in hostile_kernels()}


@pytest.mark.parametrize("flaw", CAUGHT_BY)
def test_a_hostile_kernel_is_caught(flaw):
    op, check = CAUGHT_BY[flaw]
    hostile = next(h for h in hostile_kernels(f"{op}@1") if h.name == flaw)
    for record in records(op, hostile.kernel.id, hostile.plugin):
        if check in (*record.checks.get("fail", ()), *record.checks.get("error", ())):
            return
    pytest.fail(f"{hostile.kernel.id} passed {check} on every case: {hostile.doc}")


@pytest.mark.parametrize("op", ["add", "softmax"])
def test_the_honest_kernel_is_not(op):
    found = list(records(op, loopback(f"{op}@1").id))
    assert runner.verdict_of(found) == "pass"
    assert [record.case for record in found if record.verdict in ("fail", "error")] == []
