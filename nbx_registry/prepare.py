"""Preparing a plan: what is installed here is compared with what the plan holds, then all of it is bound."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from nbx_registry.catalog import Catalog
from nbx_registry.errors import NbxError
from nbx_registry.plan import Plan
from nbx_registry.planentry import PlanEntry
from nbx_registry.program import BoundProgram
from nbx_registry.programs import Programs
from nbx_registry.signature import Signature
from nbx_registry.target import Target

SHOWN = 20
"""How many entries that differ are told one by one."""


def prepare(
    plan: Plan, catalog: Catalog, programs: Programs, targets_of: Callable[[str], Sequence[Target]]
) -> list[BoundProgram]:
    """Bind every entry on the targets that ``targets_of`` gives its device, once all of it is found to be the same.

    Raises
    ------
    NbxError
        What is here differs: field by field for every entry.
    SignatureError
        An entry does not fit its contract.
    Refused
        A kernel of the plan may not run here.
    """
    wanted: list[tuple[Signature, Target, PlanEntry]] = []
    problems: list[str] = []
    for number, entry in enumerate(plan):
        signature = entry.signature(catalog.op(entry.op))
        for target in targets_of(entry.device):
            choice = programs.choose(signature, target, entry.require, entry.pin)
            here = PlanEntry.of(catalog, signature, choice, target, entry.require, entry.pin)
            found = entry.differences(here)
            if found:
                problems.append(f"entry {number}, {signature} on {target}:\n    " + "\n    ".join(found))
            wanted.append((signature, target, entry))
    if problems:
        more = f"\n  and {len(problems) - SHOWN} more" if len(problems) > SHOWN else ""
        raise NbxError(
            "the plan differs from what is here; make it anew, or install what it was made with\n  "
            + "\n  ".join(problems[:SHOWN])
            + more
        )
    return [programs.get(signature, target, e.require, e.pin, keep=True) for signature, target, e in wanted]
