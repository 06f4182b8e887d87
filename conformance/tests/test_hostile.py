"""The suite is proven first: every hostile kernel is flagged by the check that is there for it, every twin passes.

Each is tried on all smoke cases of its op, as a run of the suite tries it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import pytest
from hostile import CORPUS, Hostile, HostilePlugin, Twin, WritesBeforeTheBeginning, WritesPastTheEnd

from nbx_conformance.runs.runner import Record, verdict_of

Run = Callable[..., list[Record]]


def flagged(records: Iterable[Record]) -> set[str]:
    """Names of the checks that found something wrong."""
    return {name for record in records for v in ("fail", "error") for name in record.checks.get(v, ())}


@pytest.mark.parametrize("hostile", CORPUS, ids=str)
def test_a_hostile_kernel_is_flagged_by_its_check(try_kernel: Run, hostile: Hostile) -> None:
    records = try_kernel("nbx-hostile/kernel", HostilePlugin(hostile.op, hostile.fault, **hostile.kernel))
    assert hostile.check in flagged(records)
    assert verdict_of(records) in ("fail", "error")


TWINS = {f"{hostile.op}{dict(hostile.kernel) or ''}": hostile for hostile in CORPUS}


@pytest.mark.parametrize("hostile", TWINS.values(), ids=TWINS)
def test_the_honest_twin_passes_every_case(try_kernel: Run, hostile: Hostile) -> None:
    records = try_kernel("nbx-hostile/kernel", HostilePlugin(hostile.op, hostile.twin, **hostile.kernel))
    assert {r.case: r.details for r in records if r.verdict in ("fail", "error")} == {}
    assert verdict_of(records) == "pass"


@pytest.mark.parametrize("fault", [WritesPastTheEnd, WritesBeforeTheBeginning])
def test_a_kernel_that_writes_beside_its_memory_is_given_none_without_bands(try_kernel: Run, fault: type[Twin]) -> None:
    records = try_kernel("nbx-hostile/kernel", HostilePlugin("add@1", fault))
    astray = [record.checks for record in records if "guards" in record.checks.get("fail", ())]
    assert astray
    assert any("stream" in checks["pass"] for checks in astray)
    assert not [checks for checks in astray if any("allocation" in names for names in checks.values())]


def test_a_kernel_that_refuses_everything_has_proven_nothing(try_kernel: Run) -> None:
    records = try_kernel(
        "nbx-hostile/kernel", HostilePlugin("add@1", Twin, when=("x1.dtype in (int8,)", "x1.rank > 9"))
    )
    assert verdict_of(records) == "unmeasured"


def test_a_condition_that_raises_is_a_fault_not_a_refusal(try_kernel: Run) -> None:
    records = try_kernel("nbx-hostile/kernel", HostilePlugin("add@1", Twin, when=("16 // (x1.size - 189) != 1",)))
    raised = [record for record in records if record.verdict == "error"]
    assert raised
    assert {name for record in raised for name in record.checks["error"]} == {"refusals"}


def test_a_refusal_for_a_reason_that_does_not_hold_is_flagged(try_kernel: Run) -> None:
    records = try_kernel("nbx-hostile/kernel", HostilePlugin("add@1", Twin, when=("not x1.contiguous",)))
    assert "refusals" in flagged(records)
